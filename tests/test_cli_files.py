"""Files on the command line: full disks in real processes, and outputs that are no new files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anndata as ad
import pytest
from click.testing import CliRunner

from centroid_encoder.cli import cli

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files and limits")
FIT = ("fit", "in.h5ad", "--label-key", "cell_type", "--max-epochs", "1", "-q", "-o", "out.h5ad")
VALIDATE = ("cross-validate", "in.h5ad", "--label-key", "cell_type", "-o", "out.h5ad")


@pytest.fixture
def folder(cells: ad.AnnData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with cells in ``in.h5ad``."""
    cells.write_h5ad(tmp_path / "in.h5ad")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk with room for the input and little more."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160k", "none", str(disk)]
    if os.geteuid() != 0 or not shutil.which("mount") or subprocess.run(mount).returncode:
        pytest.skip("only root may mount a disk, and not everywhere")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fails_in_one_line(folder: Path, *, largest: int | None = None) -> str:
    """Run `FIT` in a process; return what it says."""

    def limit() -> None:
        import resource

        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))

    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = subprocess.run(
        [sys.executable, "-m", "centroid_encoder", *FIT, "--model-out", "m.safetensors"],
        cwd=folder,
        preexec_fn=limit,
        # Python would leave halves of what it compiles, on which all who import it later stumble.
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (line,) = [line for line in done.stderr.splitlines() if "Warning" not in line]
    return line


@pytest.mark.slow
@pytest.mark.parametrize("beyond", [1_000, 30_000, 300_000])
def test_no_file_may_be_larger(beyond: int, folder: Path) -> None:
    line = fails_in_one_line(folder, largest=(folder / "in.h5ad").stat().st_size + beyond)
    assert line.startswith("Error: ")
    assert line.endswith(" was not written: File too large")


@pytest.mark.slow
def test_a_full_disk(folder: Path, small_disk: Path) -> None:
    shutil.copy("in.h5ad", small_disk)
    line = fails_in_one_line(small_disk)
    assert line == "Error: out.h5ad was not written: No space left on device"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((*FIT, "--model-out", "map.safetensors"), "map.safetensors is an input; name another"),
        ((*VALIDATE, "--mislabeled", "cells.csv"), "cells.csv is an input; name another file"),
        (("plot", "voronoi", "in.h5ad", "-o", "page.pdf"), "page.pdf is an input; name another"),
        ((*VALIDATE, "--mislabeled", "rows.csv"), "rows.csv and out.h5ad are one file"),
        ((*FIT, "--model-out", "null.safetensors"), "null.safetensors is a device, a pipe or"),
        ((*FIT, "--model-out", "twin.safetensors"), "twin.safetensors is one of 2 hard links to"),
        ((*FIT, "--model-out", "loop.safetensors"), "loop.safetensors is a link that leads to its"),
        ((*FIT[:-1], "a" * 252 + ".h5ad"), "is too long; choose a shorter one"),
    ],
)
def test_outputs_are_refused_before_the_work(
    command: tuple[str, ...], said: str, folder: Path, device: Path
) -> None:
    for link in ("map.safetensors", "cells.csv", "page.pdf"):
        Path(link).symlink_to("in.h5ad")
    Path("rows.csv").symlink_to("out.h5ad")
    Path("null.safetensors").symlink_to(device)
    Path("loop.safetensors").symlink_to("loop.safetensors")
    Path("one").touch()
    os.link("one", "twin.safetensors")
    before = sorted(os.listdir(folder))

    result = CliRunner().invoke(cli, list(command))

    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert sorted(os.listdir(folder)) == before
