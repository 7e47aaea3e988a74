"""Check a release before it is made: ``make release-check``.

Builds the sdist and, from it, the wheel; checks the files in both; and installs the wheel into
new environments: without napari, and with napari and each Qt binding. By default their dependencies
are those of .venv, so that no network is needed; with ``--fresh``, pip installs them. Everything is
written to ``build/release``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from email.parser import Parser
from importlib.metadata import distributions
from pathlib import Path
from zipfile import ZipFile

import yaml
from notes import notes
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "release"
DIST = BUILD / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RELEASED = Version(PROJECT["version"]).base_version  # 0.1.0 of 0.1.0.dev0 and 0.1.0rc1
BINDINGS = {
    "pyside6": ("pyside6-essentials", "shiboken6"),
    "pyqt6": ("pyqt6", "pyqt6-qt6", "pyqt6-sip"),
}
PLUGIN = ("napari", "npe2", "qtpy", "superqt", "magicgui", "psygnal", "vispy")
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
IMPORT_SECONDS = 0.3  # of the processor, so that a busy machine does not count
LARGEST_WHEEL = 2_000_000


def main() -> None:
    """Run all checks; exit with the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="let pip install the dependencies")
    parser.add_argument("--tag", help="the tag that is released, as v0.1.0")
    parser.add_argument("--quick", action="store_true", help="only compare files, in a second")
    arguments = parser.parse_args()
    check_version(arguments.tag)
    check_registries()
    if arguments.quick:
        return
    shutil.rmtree(BUILD, ignore_errors=True)
    wheel = build()
    check_files(wheel)
    for binding in (None, *BINDINGS):
        check_install(wheel, binding, arguments.fresh)
    print(f"All is well. What would be uploaded is in {DIST.relative_to(ROOT)}")


def say(*words: object) -> None:
    print(*words, flush=True)


def need(condition: object, otherwise: str) -> None:
    if not condition:
        raise SystemExit(f"release-check: {otherwise}")


def run(*command: str | Path, cwd: Path = ROOT, **env: str) -> str:
    """Return what a command prints; end with all of it where the command fails."""
    result = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | env,
        capture_output=True,
        text=True,
    )
    need(result.returncode == 0, f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


def check_version(tag: str | None) -> None:
    version = PROJECT["version"]
    notes("Unreleased" if Version(version).is_devrelease else version)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    need(citation["version"] == RELEASED, f"CITATION.cff is not of {RELEASED}")
    if tag is None:
        say(f"CHANGELOG.md describes version {version}")
        return
    need(tag == f"v{version}", f"the tag {tag} is not the version of pyproject.toml, {version}")
    need("date-released" in citation, "CITATION.cff lacks date-released")
    say(f"Version {version} is that of the tag, and CHANGELOG.md describes it")


def check_registries() -> None:
    """Compare the files for the registries with pyproject.toml."""
    scverse = yaml.safe_load((ROOT / "packaging/scverse/meta.yaml").read_text(encoding="utf-8"))
    conda = (ROOT / "packaging/conda/recipe.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(re.sub(r"\$\{\{ (\w+) \}\}", r"\1", conda.replace("name[0]", "name")))
    need("version" not in scverse, "scverse/meta.yaml: the registry reads the version from PyPI")
    version = recipe["context"]["version"]
    need(version == RELEASED, f"conda/recipe.yaml is of {version}, not of {RELEASED}")
    for name, licence in (
        ("scverse/meta.yaml", scverse["license"]),
        ("conda/recipe.yaml", recipe["about"]["license"]),
    ):
        need(licence == PROJECT["license"], f"packaging/{name} names another licence")
    extras = PROJECT["optional-dependencies"]
    for section, ours in (("run", PROJECT["dependencies"]), ("run_constraints", extras["napari"])):
        theirs = {r for r in recipe["requirements"][section] if not r.startswith("python ")}
        wanted = {conda_name(requirement) for requirement in ours}
        need(theirs == wanted, f"conda/recipe.yaml, {section}: {sorted(theirs ^ wanted)} differ")
    say("The files for scverse and conda-forge agree with pyproject.toml")


def conda_name(requirement: str) -> str:
    parsed = Requirement(requirement)
    return f"{CONDA_NAMES.get(parsed.name, parsed.name)} {parsed.specifier}"


def build() -> Path:
    say("Building the sdist, and the wheel from it ...")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST)
    (wheel,) = DIST.glob("*.whl")
    # Renders the README as PyPI does, and finds what PyPI would refuse.
    run(sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir())
    say(f"twine check --strict passes for {', '.join(sorted(p.name for p in DIST.iterdir()))}")
    return wheel


def check_files(wheel: Path) -> None:
    """Check that the wheel and the sdist have all files of the package, and no others."""
    tracked = set(run("git", "ls-files").splitlines())
    package = {path.removeprefix("src/") for path in tracked if path.startswith("src/")}
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        folder = metadata.removesuffix("METADATA")
        about = Parser().parsestr(archive.read(metadata).decode())
        licence = archive.read(f"{folder}licenses/LICENSE")
    stray = {name for name in names - package if not name.startswith(folder)}
    need(not stray, f"the wheel holds what is not tracked: {sorted(stray)}")
    need(package <= names, f"the wheel lacks {sorted(package - names)}")
    need(licence == (ROOT / "LICENSE").read_bytes(), "the licence in the wheel is another")
    need(about["License-Expression"] == PROJECT["license"], "the wheel names another licence")
    need(wheel.stat().st_size < LARGEST_WHEEL, f"the wheel has {wheel.stat().st_size:,} bytes")
    (sdist,) = DIST.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {m.name.partition("/")[2] for m in archive.getmembers() if not m.isdir()}
    stray = names - tracked - {"PKG-INFO"}
    need(not stray, f"the sdist holds what is not tracked: {sorted(stray)}")
    need({"LICENSE", "README.md", "CHANGELOG.md"} <= names, "the sdist lacks a file")
    pictures = re.findall(r"/main/(docs/images/[^)\s]+)\)", str(about.get_payload()))
    need(pictures, "the README shows no picture")
    missing = set(pictures) - tracked
    need(not missing, f"the README shows what is not tracked: {sorted(missing)}")
    size = f"{wheel.stat().st_size / 1000:.0f} kB"
    say(f"The wheel, {size}, holds the package, its licence and nothing else")


WITHOUT_NAPARI = """
import warnings
warnings.simplefilter("error")
import centroid_encoder as ce
try:
    ce.viewer.open
except ModuleNotFoundError as error:
    assert "pip install" in str(error), error
else:
    raise AssertionError("napari is not hidden")
"""

MAP = """
import scanpy as sc, centroid_encoder as ce
adata = sc.datasets.pbmc68k_reduced()
ce.tl.centroid_encoder(adata, "bulk_labels", model=ce.CentroidEncoder(max_epochs=2))
ce.pl.voronoi(adata, show=False, save="map.png")
adata.write_h5ad("map.h5ad")
"""

WINDOW = """
import napari, centroid_encoder as ce
from npe2 import PluginManager
from qtpy import API_NAME
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication
manager = PluginManager.instance()
manager.discover()
manifest = manager.get_manifest("centroid-encoder")
assert manifest.contributions.widgets and manifest.contributions.sample_data
viewer = napari.Viewer(show={show})
viewer.open_sample("centroid-encoder", "tissue")
widget = ce.viewer.open(viewer=viewer)
QTest.qWait(500)
widget.train()
for _ in range(6000):
    if widget.training is None:
        break
    QTest.qWait(100)
adata = widget.catalog.table.adata
assert "X_ce" in adata.obsm, list(adata.obsm)
print(API_NAME, ce.__file__)
viewer.close()
"""


def check_install(wheel: Path, binding: str | None, fresh: bool) -> None:
    """Install the wheel with its dependencies only, and use it."""
    home = BUILD / (binding or "without-napari")
    say(
        f"Installing the wheel, {f'with napari and {binding}' if binding else 'without napari'} ..."
    )
    venv.create(home, with_pip=fresh, symlinks=True)
    python = home / "bin" / "python"
    if fresh:
        pip = (python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt")
        extras = f"{wheel}[napari]" if binding else str(wheel)
        run(*pip, extras, *((BINDINGS[binding][0],) if binding else ()))
    else:
        borrow(python, hidden_from(binding))
        pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q")
        run(*pip, "--no-index", "--no-deps", wheel)
    command = home / "bin" / "centroid-encoder"
    work = home / "work"
    work.mkdir()

    seconds = import_seconds(python, work)
    need(seconds < IMPORT_SECONDS, f"import centroid_encoder takes {seconds:.2f} s")
    need(PROJECT["version"] in run(command, "--version", cwd=work), "--version says another one")
    run(python, "-c", MAP, cwd=work, MPLBACKEND="agg")
    run(command, "plot", "voronoi", "map.h5ad", "-o", "again.png", cwd=work)
    if binding is None:
        run(python, "-c", WITHOUT_NAPARI, cwd=work)
        say(f"  import {1000 * seconds:.0f} ms; a map and its figure, on the command line as well")
        return
    run(python, "-m", "npe2", "validate", "--imports", PROJECT["name"], cwd=work)
    screen = ("xvfb-run", "--auto-servernum") if shutil.which("xvfb-run") else ()
    window = WINDOW.format(show=bool(screen))
    platform = {} if screen else {"QT_QPA_PLATFORM": "offscreen"}
    said = run(
        *screen, python, "-c", window, cwd=work, QT_API=binding, LP_NUM_THREADS="0", **platform
    )
    api, file = said.split()[-2:]
    need(api.lower() == binding, f"the window was one of {api}")
    need(Path(file).is_relative_to(home), f"the package was that of {file}")
    say(
        f"  import {1000 * seconds:.0f} ms; manifest valid and seen; a tissue opened and trained on"
    )


def import_seconds(python: Path, work: Path) -> float:
    code = "from time import process_time as t; s = t(); import centroid_encoder; print(t() - s)"
    return statistics.median(float(run(python, "-c", code, cwd=work)) for _ in range(5))


def hidden_from(binding: str | None) -> set[str]:
    others = {name for key, names in BINDINGS.items() if key != binding for name in names}
    return {PROJECT["name"], *others, *(PLUGIN if binding is None else ())}


def borrow(python: Path, hidden: set[str]) -> None:
    """Link the packages of this environment into another one, except for hidden distributions."""
    normal = {re.sub(r"[-_.]+", "-", name).lower() for name in hidden}
    skipped = {"__pycache__", "bin"}
    for distribution in distributions():
        if re.sub(r"[-_.]+", "-", distribution.name).lower() in normal:
            skipped |= {Path(file).parts[0] for file in distribution.files or ()}
    target = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name not in skipped and not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry)


if __name__ == "__main__":
    main()
