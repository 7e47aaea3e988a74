"""Trainings restore the numbers of threads of torch and BLAS; several may run at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys

SCRIPT = """
import json, threading
import numpy as np, torch
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_info
import centroid_encoder as ce

def state():
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start(); thread.join()
    blas = sorted(p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas")
    return [torch.get_num_threads(), found[0], blas]

torch.set_num_threads(2)
np.ones((300, 300)) @ np.ones((300, 300))
X, y = load_digits(return_X_y=True)
before, results = state(), []

def train():
    model = ce.CentroidEncoder(max_epochs=2, random_state=0).fit(X[:500], y[:500])
    results.append(model.transform(X))

threads = [threading.Thread(target=train) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
same = len(results) == 3 and all((result == results[0]).all() for result in results)
print(json.dumps([before, state(), bool(same)]))
"""


def test_threads_are_as_before_and_results_the_same() -> None:
    """In a process of its own, whose numbers of threads are those of the machine."""
    own = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    own["OMP_WAIT_POLICY"] = "passive"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, env=own
    )
    before, after, same = json.loads(done.stdout.splitlines()[-1])
    assert after == before
    assert same
