"""Hostile command lines: results, or one line that says what is wrong; no other file is touched."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import anndata as ad
import numpy as np
import pytest
from click.testing import CliRunner

import centroid_encoder as ce
from centroid_encoder.cli import cli
from tests.campaigns.outcomes import Outcomes
from tests.cases import cases

N_LINES, SHARE = cases(600), 100
"""How many there are, and how many one test takes."""
VALUES = [
    "",
    "0",
    "-1",
    "3",
    "1e9",
    "nan",
    "cell_type",
    "donor",
    "x" * 300,
    "..",
    "\x07",
    "é",
    "ce",
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform == "win32", reason="has links, FIFOs and devices")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("first", range(0, N_LINES, SHARE))
def test_command_lines(
    first: int,
    cells: ad.AnnData,
    device: Path,
    record_property: Callable[[str, object], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes = Outcomes(record_property)
    for seed in range(first, min(first + SHARE, N_LINES)):
        rng = np.random.default_rng(seed)
        folder = tmp_path / str(seed)
        paths = furnish(folder, cells, device)
        monkeypatch.chdir(folder)
        line = draw(rng, paths)
        case = f"{seed}: {' '.join(line)[:200]}"
        before = contents(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = CliRunner().invoke(cli, line, prog_name="centroid-encoder")
        error = result.exception
        changed = {
            name for name, content in contents(folder).items() if before.get(name) != content
        }
        changed |= before.keys() - contents(folder).keys()
        asked = targets(line) if result.exit_code == 0 else set()
        if changed - asked:
            outcomes.count("other", case, f"changed: {sorted(changed - asked)}")
        elif error is not None and not isinstance(error, SystemExit):
            outcomes.count("unclear", case, repr(error)[:300])
        elif result.exit_code == 0:
            outcomes.count("fine", case)
        elif result.exit_code in (1, 2) and f"\n{result.stderr}".count("\nError: ") == 1:
            outcomes.count("clear", case)
        else:
            outcomes.count("unclear", case, f"exit {result.exit_code}: {result.stderr[-300:]}")
    outcomes.check()


def furnish(folder: Path, cells: ad.AnnData, device: Path) -> list[str]:
    """Make a folder with good files and odd ones, and return the names of all."""
    folder.mkdir()
    adata = cells.copy()
    adata.obs["donor"] = ["a", "b"] * (adata.n_obs // 2)
    adata.write_h5ad(folder / "in.h5ad")
    model = ce.CentroidEncoder(hidden=(4,), max_epochs=1)
    ce.tl.centroid_encoder(adata, "cell_type", model=model, progress=False)
    adata.write_h5ad(folder / "mapped.h5ad")
    ce.tl.fitted_model(adata).save(folder / "map.safetensors")
    whole = (folder / "mapped.h5ad").read_bytes()
    (folder / "half.h5ad").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.h5ad").touch()
    (folder / "text.h5ad").write_text("cells")
    (folder / "folder.h5ad").mkdir()
    (folder / "read only").mkdir()
    (folder / "protected.h5ad").write_bytes(whole)
    (folder / "protected.h5ad").chmod(0o444)
    os.symlink("in.h5ad", folder / "link.h5ad")
    os.link(folder / "mapped.h5ad", folder / "hard link.h5ad")
    os.symlink("loop.h5ad", folder / "loop.h5ad")
    os.symlink("nowhere.h5ad", folder / "dangling.h5ad")
    os.symlink(device, folder / "device.h5ad")
    os.mkfifo(folder / "fifo.h5ad")
    np.save(folder / "labels.npy", np.kron(np.arange(9).reshape(3, 3), np.ones((4, 4), int)))
    np.save(folder / "image.npy", np.random.default_rng(0).normal(size=(12, 12)))
    (folder / "half.tif").write_bytes(b"II*\0" + bytes(9))
    names = sorted(path.name for path in folder.iterdir())
    long = [f"{'n' * n}.h5ad" for n in (235, 245, 249, 250, 300)]
    return [
        *names,
        *long,
        "new.h5ad",
        "no folder/new.h5ad",
        "new.csv",
        "new.safetensors",
        "new.png",
    ]


def draw(rng: np.random.Generator, paths: list[str]) -> list[str]:
    """Return a command with some good and some odd arguments."""
    command = str(rng.choice(["measure", "fit", "cross-validate", "ingest", "plot"]))
    good = {
        "measure": ["labels.npy", "image.npy", "--output", "new.h5ad"],
        "fit": ["in.h5ad", "--label-key", "cell_type", "--max-epochs", "1", "--output", "new.h5ad"],
        "cross-validate": [
            *("in.h5ad", "--label-key", "cell_type", "--max-epochs", "1", "--n-folds", "2"),
            *("--output", "new.h5ad"),
        ],
        "ingest": ["in.h5ad", "mapped.h5ad", "--output", "new.h5ad"],
        "plot": ["voronoi", "mapped.h5ad", "--output", "new.png"],
    }[command]
    line = [command, *good]
    for place in range(2, len(line)):
        is_path = line[place] in paths
        if not line[place].startswith("--") and rng.random() < (0.35 if is_path else 0.08):
            line[place] = str(rng.choice(paths if is_path else VALUES))
    options = {
        "measure": ["--spacing", "--unit", "--channels", "--quantiles", "--channel-axis"],
        "fit": ["--model-out", "--use-rep", "--layer", "--group-key", "--test-size", "--key-added"],
        "cross-validate": ["--mislabeled", "--group-key", "--n-permutations", "--key-added"],
        "ingest": ["--key", "--missing", "--key-added"],
        "plot": ["--key", "--no-such"],
    }[command]
    for option in options:
        if rng.random() < 0.12:
            is_path = option in ("--model-out", "--mislabeled")
            line += [option, str(rng.choice(paths if is_path else VALUES))]
    if rng.random() < 0.1:
        line.pop(rng.integers(len(line)))
    return line


def targets(line: list[str]) -> set[str]:
    """Return what a command was asked to write, links followed."""
    options = ("--output", "--model-out", "--mislabeled")
    named = [value for name, value in pairwise(line) if name in options]
    followed = [os.path.relpath(os.path.realpath(name)) for name in named]
    return {*named, *followed}


def contents(folder: Path) -> dict[str, bytes | str]:
    """Return what is in a folder: of files the bytes, of all else of what kind it is."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"link to {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = f"mode {path.stat().st_mode:o}"
    return found
