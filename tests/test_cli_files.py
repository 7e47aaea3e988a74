"""Files on the command line: full disks, and outputs that are no new files."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import anndata as ad
import pytest
from click.testing import CliRunner

from centroid_encoder.cli import cli

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
FIT = ("fit", "in.h5ad", "--label-key", "cell_type", "--max-epochs", "1", "-q", "-o", "out.h5ad")
VALIDATE = ("cross-validate", "in.h5ad", "--label-key", "cell_type", "-o", "out.h5ad")


@pytest.fixture
def folder(cells: ad.AnnData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with cells in ``in.h5ad``."""
    cells.write_h5ad(tmp_path / "in.h5ad")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("output", ["out.h5ad", "out.zarr"])
def test_a_full_disk_is_one_line_and_leaves_the_old_files(
    output: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*FIT[:-1], output, "--model-out", "m.safetensors"]
    assert CliRunner().invoke(cli, command).exit_code == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))

    result = CliRunner().invoke(cli, command)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {output} was not written: the disk is too full: about")
    assert result.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((*FIT, "--model-out", "map.safetensors"), "map.safetensors is an input; name another"),
        ((*VALIDATE, "--mislabeled", "cells.csv"), "cells.csv is an input; name another file"),
        (("plot", "voronoi", "in.h5ad", "-o", "page.pdf"), "page.pdf is an input; name another"),
        ((*VALIDATE, "--mislabeled", "rows.csv"), "rows.csv and out.h5ad are one file"),
        ((*FIT, "--model-out", "null.safetensors"), "null.safetensors is a device, a pipe or"),
        ((*FIT[:-1], "a" * 252 + ".h5ad"), "File name too long"),
    ],
)
def test_outputs_are_refused_before_the_work(
    command: tuple[str, ...], said: str, folder: Path, device: Path
) -> None:
    for link in ("map.safetensors", "cells.csv", "page.pdf"):
        Path(link).symlink_to("in.h5ad")
    Path("rows.csv").symlink_to("out.h5ad")
    Path("null.safetensors").symlink_to(device)
    before = sorted(os.listdir(folder))

    result = CliRunner().invoke(cli, list(command))

    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert sorted(os.listdir(folder)) == before
