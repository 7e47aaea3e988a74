"""Too little space, by a limit or on a full disk, is an error of one line; old files stay."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import centroid_encoder as ce
from centroid_encoder.cli import cli

resource = pytest.importorskip("resource", reason="Windows has no such limits")
FIT = "--label-key kind --max-epochs 1 -q -o"
TOO_FULL = "was not written: the disk is too full: about "
TOO_LARGE = "was not written: File too large"
ENOUGH = 10**9


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
    for i in range(15):
        adata.layers[f"layer {i}"] = X
    adata.write_h5ad("in.h5ad", compression="gzip")
    shutil.copy("in.h5ad", "out.h5ad")
    shutil.copytree("in.zarr", "out.zarr")
    Path("out.safetensors").write_text("old")
    np.save("labels.npy", np.kron(np.arange(400).reshape(20, 20), np.ones((2, 2), int)))
    return tmp_path


@contextmanager
def limit(n_bytes: int) -> Iterator[None]:
    """Limit the size of the files that this process writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def contents() -> dict[Path, bytes | bool]:
    return {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}


def command(text: str) -> Callable[[], None]:
    """Return a function that runs a command; its error of one line is raised as an OSError."""

    def run() -> None:
        result = CliRunner(catch_exceptions=False).invoke(cli, text.split())
        if result.exit_code:
            assert result.output.startswith("Error: ")
            assert result.output.count("\n") == 1
            raise OSError(result.output)

    return run


def check(call: Callable[[], object], n_bytes: int, words: str | None) -> None:
    """Run a call with a limit. After an error, all files are as they were."""
    before = contents()
    with limit(n_bytes):
        if words is None:
            call()
        else:
            with pytest.raises(OSError, match=words):
                call()
    assert (contents() == before) == (words is not None)


@pytest.mark.slow
def test_commands_need_space_for_the_copy_and_the_results(folder: Path) -> None:
    size = Path("in.h5ad").stat().st_size
    assert size < 1_000_000 < 4_000_000 < 16 * 90 * 1000 * 4
    h5ad, zarr = command(f"fit in.h5ad {FIT} out.h5ad"), command(f"fit in.zarr {FIT} out.zarr")
    folds = command(f"cross-validate in.h5ad --n-folds 2 {FIT} out.h5ad")
    both = command(f"fit in.zarr {FIT} out.zarr --model-out out.safetensors")
    measure = command("measure labels.npy -q -o out.h5ad")
    # The first limit is too small for a copy of the input, the others for the results.
    for call, n_bytes, words in (
        (h5ad, size // 2, f"out.h5ad {TOO_FULL}"),
        (h5ad, size + 1000, f"out.h5ad {TOO_FULL}"),
        (folds, size + 1000, f"out.h5ad {TOO_FULL}"),
        (measure, 40_000, f"out.h5ad {TOO_FULL}"),
        (zarr, 5_000, "out.zarr was not written: "),
        (both, 1_000_000, f"out.safetensors {TOO_FULL}"),
        *((call, 4_000_000, None) for call in (h5ad, folds, measure, both)),
    ):
        check(call, n_bytes, words)


@pytest.mark.slow
def test_save_of_the_widget_needs_space(folder: Path) -> None:
    from centroid_encoder.viewer._save import save_h5ad, save_model, save_zarr

    adata = ad.read_h5ad("in.h5ad")
    ce.tl.centroid_encoder(adata, "kind", model=ce.CentroidEncoder(max_epochs=1), progress=False)
    for call, n_bytes, words in (
        (lambda: save_h5ad(adata, "out.h5ad"), 3_000_000, f"out.h5ad {TOO_FULL}"),
        (lambda: save_zarr(adata, "out.zarr"), 5_000, f"out.zarr {TOO_LARGE}"),
        (lambda: save_model(adata, "ce", "out.safetensors"), 5_000, f"safetensors {TOO_FULL}"),
        (lambda: ce.tl.fitted_model(adata).save("out.safetensors"), 5_000, "too full"),
        (lambda: save_h5ad(adata, "out.h5ad"), 10_000_000, None),
        (lambda: save_zarr(adata, "out.zarr"), 4_000_000, None),
        (lambda: save_model(adata, "ce", "out.safetensors"), 4_000_000, None),
    ):
        check(call, n_bytes, words)


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
    check(command(f"fit in.h5ad {FIT} disk/out.h5ad"), ENOUGH, TOO_FULL)
    check(command(f"fit in.zarr {FIT} disk/out.zarr"), ENOUGH, "out.zarr was not written: ")
    assert os.listdir(small_disk) == ["filler"]
