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
        self.napari: subprocess.Popen[bytes] | None = None
        self._n_blocks = 0

    def start(self, *arguments: str) -> None:
        """Start napari, and give its window its size."""
        self.end()
        command = [sys.executable, str(HERE / "driven_napari.py"), str(self.folder), *arguments]
        with (self.folder / "log.txt").open("ab") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            self.napari = subprocess.Popen(command, env=self.env, cwd=self.folder, **pipes)
        self.wait_for("napari", "_QtMainWindow")
        window = self.window("napari")
        self.tool("windowmove", "--sync", window, 2, 24)
        self.tool("windowsize", "--sync", window, *SIZE)
        self.wait_until(lambda: "MainWindow" in self.ask("focus"), "the window has the focus")

    def end(self) -> None:
        """End napari if a failure has left it running."""
        if self.napari is not None:
            self.napari.kill()
            self.napari.communicate()

    def close(self) -> int:
        """Close napari by the button of its window, and return the exit status."""
        napari, shown = self.napari, self.wait_for("napari", "_QtMainWindow")
        assert napari is not None
        frame = self.frame(self.window("napari"))
        self.at(
            shown["x"] + shown["width"] // 2 - frame["top"] // 2,
            shown["y"] - shown["height"] // 2 - frame["top"] // 2,
        )

        def asked_or_ended() -> bool:
            return napari.poll() is not None or "ConfirmClose" in self.ask("focus")

        self.wait_until(asked_or_ended, "napari asks whether to close, or ends")
        if napari.poll() is None:
            self.click("Close", "QPushButton")
        return napari.wait(PATIENCE)

    def ask(self, *question: Any) -> Any:
        """Return the answer to a question to `driven_napari.py`."""
        napari = self.napari
        assert napari is not None
        napari.stdin.write(json.dumps(question).encode() + b"\n")
        napari.stdin.flush()
        if not (line := line_of(napari.stdout)):
            raise AssertionError(f"napari does not answer; its exit status is {napari.wait(5)}")
        found = json.loads(line)
        assert "error" not in found, found["error"]
        return found["answer"]

    def wait_until(
        self, condition: Callable[[], Any], what: str, patience: float = PATIENCE
    ) -> Any:
        """Wait until a condition holds, and return its value."""
        deadline = time.monotonic() + patience
        while not (found := condition()):
            assert time.monotonic() < deadline, f"it did not happen in {patience} s: {what}"
            time.sleep(0.05)
        return found

    def places(self, pattern: str, kind: str = "QWidget") -> list[dict[str, Any]]:
        """Return what is on the screen with such a text."""
        return self.ask("places", pattern, kind)

    def wait_for(
        self, pattern: str, kind: str = "QWidget", patience: float = PATIENCE
    ) -> dict[str, Any]:
        """Wait for something with such a text, and return it."""
        what = f"{pattern!r} {kind} is on the screen"
        return self.wait_until(lambda: self.places(pattern, kind), what, patience)[0]

    def click(self, pattern: str, kind: str = "QWidget", *, button: int = 1) -> None:
        """Click what has such a text, as soon as it can be clicked."""
        place = self.ready(pattern, kind)
        self.at(place["x"], place["y"], button=button)

    def ready(self, pattern: str, kind: str = "QWidget") -> dict[str, Any]:
        """Wait until something with such a text is enabled and stays at its place; return it."""

        def enabled() -> list[dict[str, Any]]:
            return [place for place in self.places(pattern, kind) if place["enabled"]]

        return self.settled(enabled, f"{pattern!r} can be clicked")[0]

    def settled(self, ask: Callable[[], Any], what: str) -> Any:
        """Wait until two answers in succession are equal, and return them."""
        last: list[Any] = [None]

        def same() -> Any:
            before, last[0] = last[0], ask()
            return last[0] if last[0] and last[0] == before else None

        return self.wait_until(same, what)

    def choose(self, *entries: str) -> None:
        """Choose an entry of the menus of napari."""
        self.click(entries[0], "QMenuBar")
        for entry in entries[1:]:
            self.click(entry, "QMenu")

    def at(self, x: float, y: float, *, button: int = 1) -> None:
        """Click at a place of the screen."""
        self.tool("mousemove", round(x), round(y), "click", button)

    def drag(self, *points: Sequence[float]) -> None:
        """Move the mouse through some points with its button down."""
        steps = [np.linspace(a, b, 6)[1:] for a, b in pairwise(points)]
        self.move(points[0], press=True)
        self.move(*np.concatenate(steps))
        self.tool("mouseup", 1)

    def move(self, *points: Sequence[float], press: bool = False) -> None:
        """Move the mouse through some points, and press its button."""
        moves = [("mousemove", round(x), round(y), "sleep", "0.01") for x, y in points]
        self.tool(*(word for move in moves for word in move), *(("mousedown", 1) if press else ()))

    def drop(
        self, paths: Sequence[Path], x: float, y: float, until: Callable[[], Any], what: str
    ) -> None:
        """Drag files from a window of another program to a place of the screen."""
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
            self.wait_until(until, what)
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

    def choose_file(self, path: Path) -> None:
        """Type a path into a dialog that asks for one, and press Return."""
        self.wait_until(
            lambda: re.match("QFileDialog .*LineEdit", self.ask("focus")),
            "a dialog asks for a file",
        )
        self.key("ctrl+a")
        self.type(str(path))
        self.key("Return")

    def dismiss_notifications(self) -> None:
        """Close the notifications of napari: the end of one would take the focus from a field."""
        while found := self.places("*", "NapariQtNotification"):
            self.at(found[0]["x"] + found[0]["width"] // 2 - 24, found[0]["y"] + 2)
            self.wait_until(
                lambda found=found: self.places("*", "NapariQtNotification") != found,
                "a notification is closed",
            )

    def window(self, name: str) -> str:
        """Return the id of the visible window with a title, or an empty text."""
        return self.tool("search", "--onlyvisible", "--name", f"^{name}$").split("\n")[0]

    def frame(self, window: str) -> dict[str, int]:
        """Return the widths of the frame that the window manager draws around a window."""
        command = ["xprop", "-id", window, "-notype", "_NET_FRAME_EXTENTS"]
        shown = subprocess.check_output(command, env=self.env, text=True)
        widths = map(int, re.findall(r"\d+", shown))
        return dict(zip(("left", "right", "top", "bottom"), widths, strict=True))

    def tool(self, *words: object) -> str:
        """Run xdotool."""
        command = ["xdotool", *map(str, words)]
        return subprocess.run(command, env=self.env, capture_output=True, text=True).stdout.strip()

    def screen(self) -> NDArray[np.uint8]:
        """Return the pixels of the screen."""
        png = subprocess.check_output(["import", "-window", "root", "bmp:-"], env=self.env)
        return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))

    def look(self, name: str) -> None:
        """Keep a picture of the screen."""
        Image.fromarray(self.screen()).save(self.folder / f"{name}.png")

    def selected(self) -> list[str]:
        """Return the names of the selected cells."""
        return self.ask("cells").get("selected", [])

    def errors(self) -> list[str]:
        """Return the errors that napari has reported."""
        return (self.folder / "errors").read_text().splitlines()

    def blocks(self) -> list[dict[str, Any]]:
        """Return the blocks of the event loop since the last call that are too long."""
        lines = (self.folder / "blocks").read_text().splitlines()
        blocks = [json.loads(line) for line in lines[self._n_blocks :]]
        self._n_blocks = len(lines)
        blocks = [one for one in blocks if not one["is_import"]]
        return [one for one in blocks if one["cpu"] > MAX_BLOCK * (1 + one["n_layers"])]


def line_of(pipe: IO[bytes]) -> bytes:
    """Return the next line of a process, or nothing if it does not come."""
    ready, _, _ = select.select([pipe], [], [], PATIENCE)
    return pipe.readline() if ready else b""
