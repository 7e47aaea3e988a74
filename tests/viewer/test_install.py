"""The plugin as npe2 finds it, installed from this checkout and from a wheel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
NAME = "centroid-encoder"
PACKAGE = ROOT / "src" / "centroid_encoder"
BINDINGS = {"pyqt5", "pyqt6", "pyside2", "pyside6", "pyside6-essentials"}


def run(*args: Any, **env: str) -> str:
    result = subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=ROOT,
        env=os.environ | {"PYTHONUTF8": "1"} | env,
        capture_output=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@dataclass
class Install:
    package: Path
    python: Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run("-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module", params=["editable", pytest.param("wheel", marks=pytest.mark.slow)])
def install(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Install:
    if request.param == "editable":
        return Install(PACKAGE, run)
    folder = tmp_path_factory.mktemp("site")
    wheel = request.getfixturevalue("wheel")
    run("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", folder, wheel)
    # `-S` leaves out the link from site-packages to src; the dependencies are on the path.
    path = os.pathsep.join([str(folder), *map(sysconfig.get_path, ("purelib", "platlib"))])
    return Install(folder / PACKAGE.name, partial(run, "-S", PYTHONPATH=path))


FOUND = """
import json
from importlib.resources import files
import centroid_encoder
from npe2 import PluginManager

manager = PluginManager()
manager.discover()
manifest = manager.get_manifest("centroid-encoder")
package, icon = manifest.icon.split(":")
mine = {command.id for command in manifest.contributions.commands}
print(json.dumps({
    "package": centroid_encoder.__file__,
    "version": manifest.package_version,
    "display name": manifest.display_name,
    "widgets": [w.display_name for w in manager.iter_widgets() if w.command in mine],
    "readers": [r.command for r in manager.iter_compatible_readers(["a/cells.h5ad"])],
    "samples": [s.command for s in manifest.contributions.sample_data],
    "menus": {
        menu: [item.command for item in manager.iter_menu(f"napari/layers/{menu}")]
        for menu in ("visualize", "classify")
    },
    "icon": files(package).joinpath(icon).read_text()[:4],
}))
"""


def test_npe2_finds_all_contributions(install: Install):
    found = json.loads(install.python("-c", FOUND))
    assert Path(found["package"]).parent == install.package
    assert found["version"] == version(NAME)
    assert found["display name"] == "Centroid-Encoder"
    assert found["widgets"] == ["Centroid-Encoder"]
    assert found["readers"] == ["centroid-encoder.read_h5ad"]
    assert found["samples"] == ["centroid-encoder.tissue", "centroid-encoder.pbmc"]
    for commands in found["menus"].values():
        assert "centroid-encoder.widget" in commands
    assert found["icon"] == "<svg"


@pytest.mark.slow
def test_every_name_in_the_manifest_can_be_imported(install: Install):
    assert "Invalid" not in install.python("-m", "npe2", "validate", "--imports", NAME)


OPENED = """
import sys
from napari.components import ViewerModel
from qtpy.QtWidgets import QApplication
from centroid_encoder.viewer import CentroidEncoderWidget

app = QApplication([])
widget = CentroidEncoderWidget(ViewerModel())
print("torch" in sys.modules)
"""


def test_the_widget_is_made_without_torch(install: Install):
    assert install.python("-W", "ignore", "-c", OPENED).strip() == "False"


def test_manifest_is_linked_from_the_top():
    link = ROOT / "napari.yaml"
    # On Windows, a checked-out link is a file that contains its target.
    target = Path(os.readlink(link) if link.is_symlink() else link.read_text().strip())
    assert not target.is_absolute()
    assert (ROOT / target).resolve() == PACKAGE / "napari.yaml"


def test_the_wheel_has_all_files_and_metadata_for_the_hub_and_pypi(wheel: Path):
    files = {"napari.yaml", "py.typed", "viewer/icon.svg"}
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        assert {f"centroid_encoder/{file}" for file in files} <= set(names)
        name = next(name for name in names if name.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    assert "Framework :: napari" in metadata.get_all("Classifier", [])
    assert metadata["License-Expression"] == "BSD-3-Clause"
    addresses = re.findall(r"\]\(([^)]+)\)", metadata.get_payload())
    assert addresses
    assert all(address.startswith("https://") for address in addresses)
    for extra in ("", "napari"):
        # The user chooses the Qt binding, except in `all`.
        wanted = requirements(metadata, extra)
        assert BINDINGS.isdisjoint(wanted)
        assert wanted.get("napari", set()) == set()
        assert ("napari" in wanted) == (extra == "napari")
    assert "all" in requirements(metadata, "all")["napari"]


def requirements(metadata: Message, extra: str) -> dict[str, set[str]]:
    """Return the requirements of an install with this extra: names, each with its extras."""
    asked: dict[str, set[str]] = {}
    for requirement in map(Requirement, metadata.get_all("Requires-Dist", [])):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            asked.setdefault(requirement.name.lower(), set()).update(requirement.extras)
    return asked
