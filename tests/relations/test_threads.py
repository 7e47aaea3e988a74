"""Trainings leave torch and BLAS the threads they had."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, threading, warnings
import numpy as np, torch
from threadpoolctl import threadpool_info
import scanpy as sc
import centroid_encoder as ce

def state():
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start(); thread.join()
    blas = sorted(p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas")
    return [torch.get_num_threads(), found[0], blas]

torch.set_num_threads(2)
np.ones((300, 300)) @ np.ones((300, 300))
warnings.simplefilter("ignore")
adata = sc.datasets.pbmc68k_reduced()
model = ce.CentroidEncoder(hidden=(16,), max_epochs=6)
before = state()

def train():
    mine = adata.copy()
    ce.tl.centroid_encoder(mine, "bulk_labels", model=model, progress=False)
    ce.tl.ingest(adata.copy(), mine, progress=False)

threads = [threading.Thread(target=train) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps([before, state()]))
"""


@pytest.mark.slow
def test_threads_are_as_before() -> None:
    """The process has the default numbers of threads."""
    own = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=own
    )
    before, after = json.loads(done.stdout.splitlines()[-1])
    assert after == before
