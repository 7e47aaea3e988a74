"""``centroid-encoder ingest`` goes on where a run was that was killed, to the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import centroid_encoder as ce
from centroid_encoder.cli import cli
from centroid_encoder.tl import _judge
from centroid_encoder.tl._journal import Journal

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX"),
    pytest.mark.filterwarnings("ignore:zarr v3 autosharding", "ignore:Consolidated metadata"),
]

N_CELLS, AT_ONCE = 300, 16
KILLED = """
import os, sys
import centroid_encoder.tl._ingest
from centroid_encoder.cli import main
from centroid_encoder.tl import _journal, _judge

def add(self, start, part, write=_journal.Journal.add):
    if start >= {cell}:
        with self.path.open("ab") as file:
            file.write(part.tobytes()[:{torn}])
        os.kill(os.getpid(), 9)
    write(self, start, part)

_judge.CHUNK, _journal.Journal.add = {at_once}, add
sys.argv[0] = "centroid-encoder"
main()
"""
"""A command that is killed while it writes what it has found of the cells from some number on."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A map, and new cells in a store and in a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_judge, "CHUNK", AT_ONCE)
    rng = np.random.default_rng(0)

    def table(n: int) -> ad.AnnData:
        codes = np.arange(n) % 3
        X = np.float32(2 * codes[:, None] + rng.normal(size=(n, 5)))
        obs = pd.DataFrame({"kind": np.array(["a", "b", "c"])[codes]})
        obs.index = [f"cell {i}" for i in range(n)]
        return ad.AnnData(X, obs=obs, obsm={"pca": X[:, :2]})

    known = table(90)
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=2, device="cpu")
    ce.tl.centroid_encoder(known, "kind", model=model, progress=False)
    ce.tl.fitted_model(known).save("map.safetensors")
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=2, device="cpu", random_state=1)
    ce.tl.centroid_encoder(known, "kind", model=model, progress=False)
    ce.tl.fitted_model(known).save("other.safetensors")
    new = table(N_CELLS)
    new.write_zarr("in.zarr")
    new.write_h5ad("in.h5ad")
    return tmp_path


def arguments(source: str, output: str, *more: str, by: str = "map.safetensors") -> list[str]:
    return ["ingest", source, "--reference", by, "-o", output, *more]


def run(*given: str, by: str = "map.safetensors", status: int = 0) -> Result:
    result = CliRunner().invoke(cli, arguments(*given, by=by))
    assert result.exit_code == status, result.output
    return result


def kill(*given: str, torn: int) -> None:
    """Begin, and be killed in the middle of a part."""
    code = KILLED.format(cell=208, torn=torn, at_once=AT_ONCE)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments(*given)],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == -9, done.stderr


def interrupt(monkeypatch: pytest.MonkeyPatch, *given: str) -> None:
    """Begin, and press Ctrl-C when 208 cells are through."""

    def add(self: Journal, start: int, part: np.ndarray) -> None:
        if start >= 208:
            raise KeyboardInterrupt
        write(self, start, part)

    write = Journal.add
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add", add)
        run(*given, status=1)


def read(path: str) -> dict[str, np.ndarray]:
    adata = ad.read_zarr(path) if path.endswith(".zarr") else ad.read_h5ad(path)
    columns = {name: np.asarray(adata.obs[name]) for name in adata.obs}
    return {"X_ce": adata.obsm["X_ce"], "X": adata.X, "pca": adata.obsm["pca"], **columns}


def assert_same_bits(one: str, other: str) -> None:
    for (name, found), (also, expected) in zip(read(one).items(), read(other).items(), strict=True):
        assert name == also
        np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.parametrize(
    ("source", "output", "torn"),
    [
        ("in.zarr", "out.zarr", 50),
        pytest.param("in.zarr", "out.zarr", 0, marks=pytest.mark.slow),
        pytest.param("in.h5ad", "out.h5ad", 319, marks=pytest.mark.slow),
    ],
)
def test_a_killed_command_goes_on(source: str, output: str, torn: int, folder: Path) -> None:
    expected = "expected" + Path(output).suffix
    run(source, expected)
    before = sorted(os.listdir())
    kill(source, output, torn=torn)
    assert sorted(os.listdir()) == sorted([*before, f"{output}.unfinished"])
    # 13 parts of 16 cells, and of the next one what was written when it was killed.
    assert (folder / f"{output}.unfinished").stat().st_size == 68 + 13 * (16 * 20 + 4) + torn

    said = run(source, output).stderr

    assert "going on after 208 of 300 cells" in said
    assert sorted(os.listdir()) == sorted([*before, output])
    assert_same_bits(output, expected)


def test_what_another_run_left_is_not_taken_for_this_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, "in.zarr", "out.zarr")
    left = (folder / "out.zarr.unfinished").read_bytes()

    def anew(*options: str, by: str = "map.safetensors") -> None:
        (folder / "out.zarr.unfinished").write_bytes(left)
        result = run("in.zarr", "out.zarr", "--json", *options, by=by)
        assert "going on" not in result.stderr
        assert "all cells are placed anew" in str(json.loads(result.stdout)["warnings"])
        assert not (folder / "out.zarr.unfinished").exists()

    anew(by="other.safetensors")
    run("in.zarr", "expected.zarr", by="other.safetensors")
    assert_same_bits("out.zarr", "expected.zarr")
    anew("--align")
    new = ad.read_zarr("in.zarr")
    new.X = new.X[::-1].copy()
    new.write_zarr("in.zarr")
    anew()
    run("in.zarr", "expected.zarr")
    assert_same_bits("out.zarr", "expected.zarr")
    # What is read of the cells is the same: thresholds are applied to what is found.
    interrupt(monkeypatch, "in.zarr", "out.zarr")
    assert "going on" in run("in.zarr", "out.zarr", "--min-confidence", "0.5").stderr


def test_a_part_that_a_disk_has_lost_is_found_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, "in.zarr", "out.zarr")
    with (folder / "out.zarr.unfinished").open("r+b") as file:
        file.seek(68 + 3 * 324 + 10)
        file.write(b"\0\0\0\0")
    assert "going on after 48 of 300 cells" in run("in.zarr", "out.zarr").stderr
    run("in.zarr", "expected.zarr")
    assert_same_bits("out.zarr", "expected.zarr")


def test_a_file_of_somebody_else_is_left_alone(folder: Path) -> None:
    (folder / "out.zarr.unfinished").write_text("my notes")
    assert "out.zarr.unfinished is in the way" in run("in.zarr", "out.zarr", status=1).stderr
    assert (folder / "out.zarr.unfinished").read_text() == "my notes"


def test_cells_that_cannot_be_placed_leave_nothing(folder: Path) -> None:
    new = ad.read_zarr("in.zarr")
    new.X[250, 2] = np.nan
    new.write_zarr("in.zarr")
    before = sorted(os.listdir())
    assert "of cell 'cell 250'" in run("in.zarr", "out.zarr", status=1).stderr
    assert sorted(os.listdir()) == before


def test_few_cells_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_judge, "CHUNK", N_CELLS)
    monkeypatch.setattr("centroid_encoder.tl._journal.Journal.add", None)
    run("in.zarr", "out.zarr")
