"""Fixtures of the walk: a user before a screen with a window manager, and the files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.day.data import Files, make_files
from tests.day.user import User

FOLDER = Path("build/day").absolute() / os.environ["QT_API"]
"""Folder of the pictures of each part, and of the user's files and settings."""


@pytest.fixture(scope="module")
def user() -> Iterator[User]:
    """A user, with openbox as the window manager."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with subprocess.Popen(["openbox"], stderr=subprocess.DEVNULL) as manager:
        user = User(FOLDER)
        yield user
        user.end()
        manager.terminate()


@pytest.fixture(scope="module")
def files(user: User) -> Files:
    """Three images with masks, and one table of their cells."""
    return make_files(FOLDER / "data", "ABC", seed=1)


@pytest.fixture(scope="module")
def next_files(user: User) -> Files:
    """The next image, with a table of its own."""
    return make_files(FOLDER / "data", "D", seed=9)


@pytest.fixture(scope="module")
def stained_files(user: User) -> Files:
    """One more image, whose stains are stronger or weaker."""
    return make_files(FOLDER / "data", "E", seed=13, gain=1)


@pytest.fixture(scope="module")
def decided() -> dict[str, str]:
    """The reviewed cells, with their new labels; empty for a label that is right."""
    return {}


@pytest.fixture(autouse=True)
def _part(request: pytest.FixtureRequest, user: User) -> Iterator[None]:
    """Keep a picture of the end of each part; check for errors and blocks of napari."""
    yield
    name = request.node.name.removeprefix("test_")
    Image.fromarray(user.screen()).save(FOLDER / f"{name}.png")
    assert user.faults() == []
