"""An input that is no file of cells gives an error of one line, and nothing is written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anndata as ad
import h5py
import pytest
from click.testing import CliRunner

from centroid_encoder.cli import cli

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")

NO_FILE = "is a device, a pipe or a socket, not a file"
DAMAGED = "cannot be read: it is damaged, incomplete, or no AnnData file ("
INPUTS = {
    "": (2, "does not exist"),
    ".": (2, "is a directory, but no zarr store"),
    "n" * 300: (2, "does not exist"),
    "loop.h5ad": (2, "does not exist"),
    "pipe.h5ad": (2, NO_FILE),
    "/dev/null": (2, NO_FILE),
    "folder.h5ad": (2, "is a directory, but no zarr store"),
    "damaged.zarr": (1, "it is a folder, but no zarr store"),
    "empty.h5ad": (1, DAMAGED),
    "text.h5ad": (1, DAMAGED),
    "truncated.h5ad": (1, DAMAGED),
    "no obs.h5ad": (1, DAMAGED),
    "unknown.h5ad": (1, DAMAGED),
}


@pytest.fixture
def folder(cells: ad.AnnData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    cells.write_h5ad("in.h5ad")
    os.symlink("loop2.h5ad", "loop.h5ad")
    os.symlink("loop.h5ad", "loop2.h5ad")
    os.mkfifo("pipe.h5ad")
    Path("folder.h5ad").mkdir()
    Path("damaged.zarr").mkdir()
    Path("damaged.zarr/zarr.json").write_text("[]")
    Path("empty.h5ad").touch()
    Path("text.h5ad").write_text("cells")
    Path("truncated.h5ad").write_bytes(Path("in.h5ad").read_bytes()[:3000])
    for name in ("no obs", "unknown"):
        shutil.copy("in.h5ad", f"{name}.h5ad")
        with h5py.File(f"{name}.h5ad", "r+") as file:
            if name == "no obs":
                del file["obs"]
            else:
                file["obs"].attrs["encoding-type"] = "nonsense"
    return tmp_path


@pytest.mark.parametrize("path", INPUTS)
def test_odd_inputs(path: str, folder: Path) -> None:
    status, said = INPUTS[path]
    before = sorted(os.listdir())
    for command in (
        ("fit", path, "--label-key", "cell_type", "-o", "out.h5ad"),
        ("plot", "voronoi", path, "-o", "out.png"),
        ("ingest", path, "--reference", "in.h5ad", "-o", "out.h5ad"),
    ):
        result = CliRunner().invoke(cli, command)
        assert isinstance(result.exception, SystemExit), command
        assert result.exit_code == status, result.stderr
        assert said in result.stderr
        assert result.stdout == ""
        assert sorted(os.listdir()) == before
