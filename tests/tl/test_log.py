"""Messages of a new process: none is shown twice."""

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
"""
INFO = "computing centroid-encoder of 'x'"
WARNING = "cells of the same 'donor' are on both sides"
LOGGED = "logging.basicConfig(level='INFO', stream=sys.stdout)"


@pytest.mark.parametrize(
    ("before", "out", "logged"),
    [("", 0, False), pytest.param(LOGGED, 2, True, marks=pytest.mark.slow)],
)
def test_messages_are_never_shown_twice(before, out, logged):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.count(INFO), done.stderr.count(INFO)) == (out, 0)
    # Python shows the warning of each function once; with logging, the log shows it as well.
    assert (done.stdout + done.stderr).count(WARNING) == 2 * (1 + logged)
