"""A user of napari: moves the real mouse, presses real keys, and looks at the screen."""

from __future__ import annotations

import io
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

HERE = Path(__file__).parent
SIZE = 1280, 780
PATIENCE = 90
"""Seconds after which something that does not happen is a failure."""
MAX_BLOCK = 1.0
"""Longest block of the event loop in seconds, but for imports. napari takes up to another second
for each layer that it adds, at first because it compiles its colour maps."""


class User:
    """A user before a screen with a window manager; one napari runs at a time.

    All settings and user data are in `folder`, with the pictures and the log of napari.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "DATA", "CACHE")}
        self.env = os.environ | homes | {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
        self.napari: Any = None
        self._n_faults = 0

    def start(self, *arguments: str) -> None:
        """Start napari, and give its window its size."""
        self.end()
        command = [sys.executable, str(HERE / "driven_napari.py"), str(self.folder), *arguments]
        with (self.folder / "log.txt").open("ab") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            self.napari = subprocess.Popen(command, env=self.env, cwd=self.folder, **pipes)
        self.wait_for("napari", "_QtMainWindow")
        self.tool("windowmove", "--sync", self.window("napari"), 2, 24)
        self.tool("windowsize", "--sync", self.window("napari"), *SIZE)
        self.wait_until(lambda: "MainWindow" in self.ask("focus"), "the window has the focus")

    def end(self) -> None:
        """End napari if a failure has left it running."""
        if self.napari is not None:
            self.napari.kill()
            self.napari.communicate()

    def close(self, *, unsaved: str = "") -> int:
        """Close napari by the button of its window, and return the exit status.

        If a table is `unsaved`, the first answer is No, and it stays open.
        """
        napari, shown = self.napari, self.wait_for("napari", "_QtMainWindow")
        command = ["xprop", "-id", self.window("napari"), "-notype", "_NET_FRAME_EXTENTS"]
        frame = subprocess.check_output(command, env=self.env, text=True)
        _, _, top, _ = map(int, re.findall(r"\d+", frame))
        right, upper = shown["x"] + shown["width"] // 2, shown["y"] - shown["height"] // 2
        for answer in ("No", "Yes") if unsaved else ():
            self.at(right - top // 2, upper - top // 2)
            self.wait_for(f"*{unsaved} are not saved. *")
            self.click(answer, "QPushButton")
        if not unsaved:
            self.at(right - top // 2, upper - top // 2)
        self.wait_until(
            lambda: napari.poll() is not None or "ConfirmClose" in self.ask("focus"),
            "napari ends, or asks whether to close",
        )
        if napari.poll() is None:
            self.click("Close", "QPushButton")
        return napari.wait(PATIENCE)

    def ask(self, *question: Any) -> Any:
        """Return the answer to a question to `driven_napari.py`."""
        self.napari.stdin.write(json.dumps(question).encode() + b"\n")
        self.napari.stdin.flush()
        if not (line := line_of(self.napari.stdout)):
            raise AssertionError(f"napari does not answer; status {self.napari.wait(PATIENCE)}")
        found = json.loads(line)
        assert "error" not in found, found["error"]
        return found["answer"]

    def wait_until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait until a condition holds, and return its value."""
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < deadline, f"it did not happen in {PATIENCE} s: {what}"
            time.sleep(0.05)
        return found

    def settled(self, ask: Callable[[], Any], what: str) -> Any:
        """Wait until two answers in succession are equal, and return them."""
        last: list[Any] = [None]

        def same() -> Any:
            before, last[0] = last[0], ask()
            return last[0] if last[0] == before else None

        return self.wait_until(same, what)

    def places(self, pattern: str, kind: str = "QWidget") -> list[dict[str, Any]]:
        """Return what is on the screen with such a text."""
        return self.ask("places", pattern, kind)

    def wait_for(self, pattern: str, kind: str = "QWidget") -> dict[str, Any]:
        """Wait for something with such a text, and return it."""
        return self.wait_until(lambda: self.places(pattern, kind), f"{pattern!r} is there")[0]

    def ready(self, pattern: str, kind: str = "QWidget") -> dict[str, Any]:
        """Wait until something with such a text is enabled and stays at its place; return it."""
        found = self.settled(
            lambda: [place for place in self.places(pattern, kind) if place["on"]],
            f"{pattern!r} can be clicked",
        )
        return found[0]

    def click(self, pattern: str, kind: str = "QWidget", *entries: str) -> None:
        """Click what has such a text as soon as it can be clicked, then entries of its menus."""
        for text, of in [(pattern, kind), *((entry, "QMenu") for entry in entries)]:
            place = self.ready(text, of)
            self.at(place["x"], place["y"])

    def at(self, x: float, y: float) -> None:
        """Click at a place of the screen."""
        self.tool("mousemove", round(x), round(y), "click", 1)

    def drag(self, *points: Sequence[float]) -> None:
        """Move the mouse through some points with its button down."""
        self.move(points[0], press=True)
        self.move(*np.concatenate([np.linspace(a, b, 6)[1:] for a, b in pairwise(points)]))
        self.tool("mouseup", 1)

    def move(self, *points: Sequence[float], press: bool = False) -> None:
        """Move the mouse through some points, and press its button."""
        moves = [("mousemove", round(x), round(y), "sleep", "0.01") for x, y in points]
        self.tool(*(word for move in moves for word in move), *(("mousedown", 1) if press else ()))

    def drop(self, paths: Sequence[Path], x: float, y: float, until: Callable[[], Any]) -> None:
        """Drag files from a window of another program to a place, and wait until they are open."""
        command = [sys.executable, str(HERE / "files_to_drag.py"), *map(str, paths)]
        other = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE)
        try:
            window = self.wait_until(lambda: self.window("files to drag"), "the files are shown")
            self.tool("windowmove", "--sync", window, SIZE[0] + 40, 100)
            self.move((SIZE[0] + 100, 150), press=True)
            self.move((SIZE[0] + 90, 160), (SIZE[0] + 80, 170), (x + 20, y + 20), (x, y))
            self.wait_until(lambda: b"Copy" in line_of(other.stdout), "napari takes the files")
            self.tool("mouseup", 1)
            # The other program hands the files over after the drop.
            self.wait_until(until, "the files are open")
        finally:
            self.tool("mouseup", 1)
            other.terminate()
            other.communicate()

    def key(self, *names: str) -> None:
        """Press keys."""
        self.tool("key", "--clearmodifiers", *names)

    def type(self, text: str) -> None:
        """Type a text."""
        self.tool("type", "--delay", 5, text)

    def choose_file(self, path: Path | None = None) -> None:
        """Press Return in a dialog for a file; type a path before, or take the proposed one."""
        focused = "QFileDialog .*LineEdit"
        self.wait_until(lambda: re.match(focused, self.ask("focus")), "a dialog asks for a file")
        if path is not None:
            self.key("ctrl+a")
            self.type(str(path))
        self.key("Return")

    def dismiss_notifications(self) -> None:
        """Close the notifications of napari: the end of one would take the focus from a field."""
        while found := self.places("*", kind := "NapariQtNotification"):
            self.at(found[0]["x"] + found[0]["width"] // 2 - 24, found[0]["y"] + 2)
            self.wait_until(lambda found=found: self.places("*", kind) != found, "one is closed")

    def window(self, name: str) -> str:
        """Return the id of the visible window with a title, or an empty text."""
        return self.tool("search", "--onlyvisible", "--name", f"^{name}$").split("\n")[0]

    def tool(self, *words: object) -> str:
        """Run xdotool."""
        command = ["xdotool", *map(str, words)]
        return subprocess.run(command, env=self.env, capture_output=True, text=True).stdout.strip()

    def screen(self) -> NDArray[np.uint8]:
        """Return the pixels of the screen."""
        shot = subprocess.check_output(["import", "-window", "root", "bmp:-"], env=self.env)
        return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB"))

    def selected(self) -> list[str]:
        """Return the names of the selected cells."""
        return self.ask("cells")["selected"]

    def faults(self) -> list[dict[str, Any]]:
        """Return the errors of napari and the long blocks since the last call."""
        lines = (self.folder / "faults").read_text().splitlines()
        new, self._n_faults = lines[self._n_faults :], len(lines)

        def is_fault(one: dict[str, Any]) -> bool:
            is_long = one.get("cpu", 0) > MAX_BLOCK * (1 + one.get("n_layers", 0))
            return "error" in one or (is_long and not one["is_import"])

        return [one for one in map(json.loads, new) if is_fault(one)]


def line_of(pipe: IO[bytes]) -> bytes:
    """Return the next line of a process, or nothing if it does not come."""
    ready, _, _ = select.select([pipe], [], [], PATIENCE)
    return pipe.readline() if ready else b""
