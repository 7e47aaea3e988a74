"""Commands killed at any moment leave the old file or the new one, and no litter for long."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anndata as ad
import numpy as np
import pytest

import centroid_encoder as ce
from centroid_encoder.cli import main
from tests.campaigns.outcomes import Outcomes

N_KILLS = 330


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
@pytest.mark.parametrize("target", ["new", "old", "input"])
def test_killed_commands(
    target: str,
    cells: ad.AnnData,
    record_property: Callable[[str, object], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    outcomes = Outcomes(record_property)
    cells.write_h5ad("in.h5ad")
    outputs = [Path("in.h5ad" if target == "input" else "out.h5ad"), Path("map.safetensors")]
    arguments = ["fit", "in.h5ad", "--label-key", "cell_type", "--max-epochs", "1", "--quiet"]
    arguments += ["--output", str(outputs[0]), "--model-out", str(outputs[1]), "--overwrite"]
    # The first run imports what the others then have, and tells how long one takes.
    took = [run(arguments) for _ in range(3)][-1]
    if target == "new":
        for path in outputs:
            path.unlink()
    before = {path: path.read_bytes() for path in outputs if path.exists()}
    rng = np.random.default_rng(0)
    for kill in range(N_KILLS // 3):
        # Files are written near the end.
        delay = rng.uniform(0.5 if kill % 2 else 0, 1.2) * took
        run(arguments, delay)
        case = f"{target} {kill}: after {delay:.3f} of {took:.3f} s"
        try:
            for path in outputs:
                if path.exists() and path.read_bytes() != before.get(path):
                    read(path)
        except Exception as error:
            outcomes.count("other", case, f"{path} is damaged: {error}")
        else:
            outcomes.count("fine", case)
    run(arguments)
    expected = sorted({"in.h5ad", *map(str, outputs)})
    assert sorted(os.listdir()) == expected, "a later run has not cleared what the dead ones left"
    outcomes.check()


def run(arguments: list[str], delay: float | None = None) -> float:
    """Run a command in a forked process, kill it if asked, and return how long it took."""
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        try:
            sys.argv = ["centroid-encoder", *arguments]
            main()
        finally:
            os._exit(1)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return time.perf_counter() - started


def read(path: Path) -> None:
    """Read a file whole."""
    if path.suffix == ".safetensors":
        ce.load(path)
    else:
        assert "X_ce" in ad.read_h5ad(path).obsm
