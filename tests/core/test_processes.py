"""Trainings in several real processes: the same as in one, and no process waits for ever."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.core import together
from tests.torchrun import ended, torchrun

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="torchrun does not start programs on every Windows"
)
QUICK = (
    "gradients",
    "normalized",
    "voronoi",
    "memory forward",
    "stop",
    "failure",
    "values",
    "well",
)

Results = list[dict[str, Any]]


def run(folder: Path, n: int, *names: str) -> Results:
    """What each of n processes has found."""
    status, _, told = ended(torchrun(n, together.__file__, folder, *names), 240)
    assert status == 0, told
    return [json.loads((folder / f"{rank}.json").read_text("utf-8")) for rank in range(n)]


def check(results: Results) -> None:
    """Assert that what several processes have found is what one finds."""
    first = results[0]
    for name in first:
        found = [one[name] for one in results]
        CHECKS.get(name, check_same)(found)


def check_same(found: list[Any]) -> None:
    """The same bits in all processes."""
    assert all(one == found[0] for one in found)
    assert np.isfinite(found[0]["embedding"]).all()


def check_alone(found: list[Any]) -> None:
    check_same([one["together"] for one in found])
    alone, shared = found[0]["alone"], found[0]["together"]
    np.testing.assert_allclose(shared["loss"][0], alone["loss"][0], rtol=1e-5)
    # What one process rounds in another way grows.
    np.testing.assert_allclose(shared["loss"], alone["loss"], rtol=1e-2)
    assert shared["stages"] == alone["stages"]
    assert len(shared["validation_loss"]) == len(alone["validation_loss"])


def check_gradients(found: list[float]) -> None:
    assert max(found) < 1e-11


def check_halved(found: list[Any]) -> None:
    check_same(found)
    # Once or twice, by how many rows a process had of a batch.
    assert set(found[0]["sizes"]) <= {7, 14}


def check_stopped(found: list[Any]) -> None:
    check_same(found)
    assert len(found[0]["sizes"]) == 2
    assert not found[0]["interrupted"]


def check_interrupted(found: list[Any]) -> None:
    check_same(found)
    assert len(found[0]["sizes"]) == 2
    assert found[0]["interrupted"]


def check_failure(found: list[str]) -> None:
    assert found[1] == "ArithmeticError: broken"
    del found[1]
    assert all(one.startswith("WorkerError: another process") for one in found)


def check_refused(found: list[str]) -> None:
    assert all(one == found[0] for one in found)
    assert found[0].startswith("InputError: the processes that train together differ in their ")
    assert "random_state" in found[0]


CHECKS = {
    "gradients": check_gradients,
    **dict.fromkeys(together.KINDS, check_alone),
    **{f"memory {where}": check_halved for where in ("forward", "backward", "gather")},
    "stop": check_stopped,
    "stop early": lambda found: check_all(found, "StoppedTooEarly: "),
    "interrupt": check_interrupted,
    "interrupt early": lambda found: check_all(found, "KeyboardInterrupt: "),
    "handler": lambda found: check_all(found, True),
    "failure": check_failure,
    **dict.fromkeys(("seeds", "labels", "values", "parameters"), check_refused),
    "one alone": lambda found: check_all(found[1:], *range(1, len(found))),
}


def check_all(found: list[Any], *expected: object) -> None:
    assert found == list(expected) * (len(found) // len(expected))


def test_two_processes_train_as_one_and_agree_on_what_goes_wrong(tmp_path: Path) -> None:
    check(run(tmp_path, 2, *QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4])
def test_so_do_more_in_all_that_can_happen(tmp_path: Path, n: int) -> None:
    check(run(tmp_path, n, *together.WORK))
