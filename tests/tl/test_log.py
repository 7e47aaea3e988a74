"""Messages in a fresh process: shown where scanpy shows its own, and never twice."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import logging, sys
{before}
import anndata as ad, numpy as np, pandas as pd
import centroid_encoder as ce
labels = pd.Categorical(["a", "b"] * 30)
adata = ad.AnnData(np.random.default_rng(0).normal(size=(60, 4)), pd.DataFrame({{"x": labels}}))
adata.obs["donor"] = np.repeat(list("cde"), 20)
for function in (ce.tl.centroid_encoder, ce.tl.cross_validate):
    function(adata, "x", model=ce.CentroidEncoder(max_epochs=1), progress=False)
logger = logging.getLogger("centroid_encoder")
assert not logger.handlers and logger.level == 0 and logger.propagate
"""
INFO = "computing centroid-encoder of 'x'"
WARNING = "cells of the same 'donor' are on both sides"


def said(before: str) -> tuple[str, str]:
    """stdout and stderr of a process that trains, after these lines."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, done.stderr


SCANPY = "import scanpy; scanpy.settings.verbosity = "


def test_messages_are_shown_as_those_of_scanpy():
    stdout, stderr = said(f"{SCANPY}3")
    assert (stdout.count(INFO), stderr.count(INFO)) == (0, 2)
    # Once by each of the two functions.
    assert (stdout + stderr).count(WARNING) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "out", "err"),
    [
        ("", 0, 0),
        ("import scanpy", 0, 0),
        (f"{SCANPY}'warning'", 0, 0),
        (f"{SCANPY}4", 0, 2),
        (f"{SCANPY}3; scanpy.settings.logfile = sys.stdout", 2, 0),
        (f"{SCANPY}3; logging.basicConfig(level='INFO')", 0, 2),
        (f"{SCANPY}3; logging.basicConfig()", 0, 2),
        ("logging.basicConfig(level='INFO', stream=sys.stdout)", 2, 0),
    ],
)
def test_messages_are_never_shown_twice(before, out, err):
    stdout, stderr = said(before)
    assert (stdout.count(INFO), stderr.count(INFO)) == (out, err)
    # Once by each of the two functions.
    assert (stdout + stderr).count(WARNING) == 2
