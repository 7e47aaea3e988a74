"""Too little space, by a limit or on a full disk, is an error of one line; old files stay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such limits")

PROCESS = """
import json, os, resource, sys
from pathlib import Path
{setup}
def contents():
    return {{path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}}

for limit, call in {runs}:
    before = contents()
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.close(write)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            exec(call)
        except OSError as error:
            sys.exit("Error: " + str(error))
        sys.exit(0)
    os.close(write)
    with open(read) as stream:
        output = stream.read()
    status = os.waitstatus_to_exitcode(os.wait()[1])
    print(json.dumps([status, output, contents() == before]), flush=True)
"""
CLI = """
import centroid_encoder.cli, centroid_encoder.tl._size, centroid_encoder.tl._measure
"""
SAVE = """
import anndata, centroid_encoder as ce
from centroid_encoder.viewer._save import save_h5ad, save_model, save_zarr
adata = anndata.read_h5ad("in.h5ad")
ce.tl.centroid_encoder(adata, "kind", model=ce.CentroidEncoder(max_epochs=1), progress=False)
"""
ENOUGH = 10**9
TOO_FULL = "the disk is too full: about "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with inputs and old outputs; ``in.h5ad`` is compressed to a hundredth."""
    monkeypatch.chdir(tmp_path)
    kinds, n_vars = np.arange(90) % 3, 1000
    X = np.zeros((90, n_vars), np.float32)
    X[:, :5] = np.random.default_rng(0).normal(kinds[:, None], size=(90, 5))
    obs = pd.DataFrame({"kind": pd.Categorical(np.array(["a", "b", "c"])[kinds])})
    adata = ad.AnnData(X, obs.set_index(obs.index.astype(str)))
    adata.var["highly_variable"] = np.arange(n_vars) < 5
    adata.write_zarr("in.zarr")
    for i in range(40):
        adata.layers[f"layer {i}"] = X
    adata.write_h5ad("in.h5ad", compression="gzip")
    shutil.copy("in.h5ad", "out.h5ad")
    shutil.copytree("in.zarr", "out.zarr")
    Path("out.safetensors").write_text("old")
    np.save("labels.npy", np.kron(np.arange(400).reshape(20, 20), np.ones((2, 2), int)))
    return tmp_path


def check_runs(setup: str, runs: list[tuple[int, str, str | None]]) -> None:
    """Run code with limits, in bytes, of the size of files.

    Each run has a limit, its code and a part of the error, which is one line. After an error, all
    files are as they were. Without one, a file is new.
    """
    code = PROCESS.format(setup=setup, runs=[run[:2] for run in runs])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=500,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(runs), done.stderr
    for (limit, call, reason), (status, output, unchanged) in zip(runs, found, strict=True):
        case = f"{call} with {limit} bytes: status {status}, {output}"
        assert (status, unchanged) == ((0, False) if reason is None else (1, True)), case
        if reason is not None:
            assert reason in output, case
            assert output.startswith("Error: "), case
            assert output.count("\n") == 1, case


def command(text: str) -> str:
    return f"sys.argv[1:] = {text.split()}; centroid_encoder.cli.main()"


def test_commands_need_space_for_the_copy_and_the_results(folder: Path) -> None:
    size = Path("in.h5ad").stat().st_size
    assert size < 1_000_000 < 4_000_000 < 41 * 90 * 1000 * 4
    fit = "--label-key kind --max-epochs 1 -q -o"
    h5ad, zarr = command(f"fit in.h5ad {fit} out.h5ad"), command(f"fit in.zarr {fit} out.zarr")
    folds = command(f"cross-validate in.h5ad --n-folds 2 {fit} out.h5ad")
    both = command(f"fit in.zarr {fit} out.zarr --model-out out.safetensors")
    measure = command("measure labels.npy -q -o out.h5ad")
    too_full, too_large = f"out.h5ad was not written: {TOO_FULL}", "out.zarr was not written: "
    check_runs(
        CLI,
        [
            # The first limit is too small for a copy of the input, the others for the results.
            *((limit, h5ad, too_full) for limit in (size // 2, size + 1000, size + 100_000)),
            *((limit, folds, too_full) for limit in (size // 2, size + 1000)),
            *((limit, measure, too_full) for limit in (5_000, 40_000)),
            *((limit, zarr, too_large) for limit in (100, 5_000)),
            (1_000_000, both, "out.safetensors was not written: " + TOO_FULL),
            *((4_000_000, call, None) for call in (h5ad, folds, measure, both)),
        ],
    )


def test_save_of_the_widget_needs_space(folder: Path) -> None:
    h5ad, zarr, model = 'save_h5ad(adata, "out.h5ad")', 'save_zarr(adata, "out.zarr")', ""
    model = 'save_model(adata, "ce", "out.safetensors")'
    method = 'ce.tl.fitted_model(adata).save("out.safetensors")'
    check_runs(
        SAVE,
        [
            *((limit, h5ad, f"out.h5ad was not written: {TOO_FULL}") for limit in (10**4, 10**7)),
            *((limit, zarr, "out.zarr was not written: File too large") for limit in (100, 5_000)),
            (5_000, model, f"out.safetensors was not written: {TOO_FULL}"),
            (5_000, method, TOO_FULL),
            (2 * 10**7, h5ad, None),
            *((4_000_000, call, None) for call in (zarr, model)),
        ],
    )


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """Folder of a file system of 1 MB, almost full."""
    disk = folder / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    options = ("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk))
    if mount is None or subprocess.run([mount, *options], capture_output=True).returncode:
        pytest.skip("only root can mount a small file system: the test of a full disk did not run")
    (disk / "filler").write_bytes(bytes(600_000))
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_an_error_of_one_line(small_disk: Path) -> None:
    fit = "--label-key kind --max-epochs 1 -q -o"
    check_runs(
        CLI,
        [
            (ENOUGH, command(f"fit in.h5ad {fit} disk/out.h5ad"), f"written: {TOO_FULL}"),
            (ENOUGH, command(f"fit in.zarr {fit} disk/out.zarr"), "out.zarr was not written: "),
        ],
    )
    assert os.listdir(small_disk) == ["filler"]
