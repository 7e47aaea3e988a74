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
assert logger.level == 0 and logger.propagate
"""
INFO = "computing centroid-encoder of 'x'"
WARNING = "cells of the same 'donor' are on both sides"
SCANPY = "import scanpy; scanpy.settings.verbosity = "


@pytest.mark.parametrize(
    ("before", "out", "err", "logged"),
    [
        (f"{SCANPY}3", 0, 2, False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("", 0, 0, False),
                (f"{SCANPY}'warning'", 0, 0, False),
                (f"{SCANPY}3; scanpy.settings.logfile = sys.stdout", 2, 0, False),
                (f"{SCANPY}3; logging.basicConfig(level='INFO')", 0, 2, True),
                (f"{SCANPY}3; logging.basicConfig()", 0, 2, True),
                ("logging.basicConfig(level='INFO', stream=sys.stdout)", 2, 0, True),
            ]
        ),
    ],
)
def test_messages_are_never_shown_twice(before, out, err, logged):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.count(INFO), done.stderr.count(INFO)) == (out, err)
    # Python shows the warning of each function; so does a configured log.
    assert (done.stdout + done.stderr).count(WARNING) == 2 * (1 + logged)
