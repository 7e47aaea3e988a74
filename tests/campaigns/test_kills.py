"""Commands killed at any moment leave the old file or the new one, and no litter for long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anndata as ad
import numpy as np
import pytest

import centroid_encoder as ce
from tests.campaigns.outcomes import Outcomes
from tests.cases import cases

N_KILLS = cases(330)
FORKING = """
import os, signal, sys, time
import anndata, h5py, torch
import centroid_encoder.tl._centroid_encoder
from centroid_encoder.cli import main

sys.argv[0] = "centroid-encoder"
for line in sys.stdin:
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        try:
            main()
        finally:
            os._exit(1)
    if line != "\\n":
        time.sleep(float(line))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(time.perf_counter() - started, flush=True)
"""
"""For each line on standard input, runs the command of its arguments, and kills it after so many
seconds; never if the line is empty.

A process of its own: where threads have computed, as in the process of the tests, a forked one may
wait for them for ever.
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
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
    with commands(arguments) as run:
        took = [run() for _ in range(3)][-1]
        if target == "new":
            for path in outputs:
                path.unlink()
        before = {path: path.read_bytes() for path in outputs if path.exists()}
        rng = np.random.default_rng(0)
        for kill in range(N_KILLS // 3):
            # Files are written near the end.
            delay = rng.uniform(0.5 if kill % 2 else 0, 1.2) * took
            run(delay)
            case = f"{target} {kill}: after {delay:.3f} of {took:.3f} s"
            try:
                for path in outputs:
                    if path.exists() and path.read_bytes() != before.get(path):
                        read(path)
            except Exception as error:
                outcomes.count("other", case, f"{path} is damaged: {error}")
            else:
                outcomes.count("fine", case)
        run()
    expected = sorted({"in.h5ad", *map(str, outputs)})
    assert sorted(os.listdir()) == expected, "a later run has not cleared what the dead ones left"
    outcomes.check()


@contextmanager
def commands(arguments: list[str]) -> Iterator[Callable[..., float]]:
    """Yield what runs a command, kills it if asked, and returns how long it took."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORKING, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    to, told = process.stdin, process.stdout

    def run(delay: float | None = None) -> float:
        print("" if delay is None else delay, file=to, flush=True)
        return float(told.readline())

    try:
        yield run
    finally:
        process.kill()
        process.communicate()


def read(path: Path) -> None:
    """Read a file whole."""
    if path.suffix == ".safetensors":
        ce.load(path)
    else:
        assert "X_ce" in ad.read_h5ad(path).obsm
