"""The plugin as npe2 finds it; `make release-check` installs a wheel and checks its files."""

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
NAME = "centroid-encoder"
BINDINGS = {"pyqt5", "pyqt6", "pyside2", "pyside6", "pyside6-essentials"}


def run(*args: str) -> str:
    command, env = [sys.executable, *args], os.environ | {"PYTHONUTF8": "1"}
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, encoding="utf-8")
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


FOUND = """
import json
from importlib.resources import files
from npe2 import PluginManager

manager = PluginManager()
manager.discover()
manifest = manager.get_manifest("centroid-encoder")
package, icon = manifest.icon.split(":")
mine = {command.id for command in manifest.contributions.commands}
print(json.dumps({
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


def test_npe2_finds_all_contributions():
    found = json.loads(run("-c", FOUND))
    assert found["version"] == version(NAME)
    assert found["widgets"] == [found["display name"]] == ["Centroid-Encoder"]
    assert found["readers"] == ["centroid-encoder.read_h5ad"]
    assert found["samples"] == ["centroid-encoder.tissue", "centroid-encoder.pbmc"]
    for commands in found["menus"].values():
        assert "centroid-encoder.widget" in commands
    assert found["icon"] == "<svg"


@pytest.mark.slow
def test_every_name_in_the_manifest_can_be_imported():
    assert "Invalid" not in run("-m", "npe2", "validate", "--imports", NAME)


OPENED = """
import sys
from napari.components import ViewerModel
from qtpy.QtWidgets import QApplication
from centroid_encoder.viewer import CentroidEncoderWidget

app = QApplication([])
widget = CentroidEncoderWidget(ViewerModel())
print("torch" in sys.modules)
"""


@pytest.mark.slow
def test_the_widget_is_made_without_torch():
    assert run("-W", "ignore", "-c", OPENED).strip() == "False"


def test_manifest_is_linked_from_the_top():
    link = ROOT / "napari.yaml"
    # On Windows, a checked-out link is a file that contains its target.
    target = Path(os.readlink(link) if link.is_symlink() else link.read_text().strip())
    assert not target.is_absolute()
    assert (ROOT / target).resolve() == ROOT / "src" / "centroid_encoder" / "napari.yaml"


def test_the_user_chooses_the_qt_binding():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in (project["dependencies"], project["optional-dependencies"]["napari"]):
        wanted = {x.name.lower(): x.extras for x in map(Requirement, extra)}
        assert BINDINGS.isdisjoint(wanted)
        assert wanted.get("napari", set()) == set()
    assert "napari[all]" in project["optional-dependencies"]["all"]
