"""Messages are shown once, and warnings only if the user wants them."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pandas as pd
import pytest
import scanpy as sc

import centroid_encoder as ce

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


@pytest.mark.slow
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


def test_warnings_follow_the_verbosity_of_scanpy(cells, fast, tmp_path):
    """0 shows errors only."""
    cells.obs["donor"] = pd.Categorical.from_codes([i % 3 for i in range(cells.n_obs)], list("abc"))
    pd.DataFrame({"Class": list("aabb"), "x": [1.0, 2, 3, 4]}).to_csv(tmp_path / "cells.csv")
    options = {"model": fast, "progress": False}

    def n_shown(verbosity: int) -> list[int]:
        sc.settings.verbosity, counts = verbosity, []
        for call in (
            lambda: ce.tl.centroid_encoder(cells, "cell_type", **options),
            lambda: ce.tl.cross_validate(cells, "cell_type", n_folds=2, **options),
            lambda: ce.tl.mislabeled(cells, max_own=0.0),
            lambda: ce.read_table(tmp_path / "cells.csv"),
        ):
            with warnings.catch_warnings(record=True) as shown:
                warnings.simplefilter("always")
                call()
            counts.append(len(shown))
        return counts

    before = sc.settings.verbosity
    try:
        assert n_shown(0) == [0, 0, 0, 0]
        assert all(n_shown(1))
    finally:
        sc.settings.verbosity = before
