"""The noise of an epoch, made between epochs or during the one before."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

import centroid_encoder as ce
from centroid_encoder.core import rows as rows_of
from centroid_encoder.core.axes import principal_axes
from centroid_encoder.core.network import Network
from centroid_encoder.core.noise import PATIENCE, Noise
from centroid_encoder.core.optimization import shared_threads
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.core.rows import ProjectedRows, standardized
from centroid_encoder.core.standardization import Standardizer
from centroid_encoder.core.threads import each, threads_for
from tests.threads import threads

TRAIN = torch.arange(40)
N_EPOCHS = 5

Drop = Callable[[torch.Tensor], torch.Tensor]
"""What is left of rows."""


def projected() -> ProjectedRows:
    X = np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32)
    ones = np.ones(20)
    rows = standardized(X, Standardizer(0 * ones, ones, ones, np.inf), torch.device("cpu"))
    folds = torch.where(torch.arange(50) < 40, torch.arange(50) % 3, -1)
    return ProjectedRows(rows, TRAIN, folds, None, 10)


def noise_of(rows: ProjectedRows, drop: Drop, generator: torch.Generator | None = None) -> Noise:
    return Noise(rows, TRAIN, drop, torch.Generator() if generator is None else generator)


def seeded(generator: torch.Generator | None = None) -> Drop:
    generator = torch.Generator() if generator is None else generator
    generator.manual_seed(0)

    def drop(inputs: torch.Tensor) -> torch.Tensor:
        return inputs * torch.rand(inputs.shape, generator=generator)

    return drop


def epochs(n_threads: int, drop: Drop) -> list[torch.Tensor]:
    """The noise of each epoch, read twice: it must not change while the next is made."""
    rows, found = projected(), []
    index = torch.stack([TRAIN] * 3)
    with noise_of(rows, drop) as noise:
        for epoch in range(N_EPOCHS):
            for _ in noise.renewed(n_threads, again=epoch + 1 < N_EPOCHS):
                pass
            first = rows.noisy(index, drop)
            time.sleep(0.02)
            assert torch.equal(first, rows.noisy(index, drop))
            found.append(first)
    return found


def test_noise_is_the_same_whenever_it_is_made() -> None:
    between, ahead = epochs(0, seeded()), epochs(1, seeded())

    assert all(torch.equal(*pair) for pair in zip(between, ahead, strict=True))
    assert not torch.equal(between[0], between[1])


def test_that_of_the_next_epoch_is_made_in_another_thread_and_none_after_the_last() -> None:
    drop, made_in = seeded(), []

    def watched(inputs: torch.Tensor) -> torch.Tensor:
        made_in.append(threading.current_thread())
        return drop(inputs)

    epochs(1, watched)

    main = threading.current_thread()
    assert made_in[0] is main
    assert len(made_in) == N_EPOCHS
    assert len(set(made_in[1:])) == 1
    assert main not in made_in[1:]
    made_in[1].join(10)
    assert not made_in[1].is_alive()


def test_whoever_waits_is_asked_whether_to_go_on() -> None:
    drop, go_on = seeded(), threading.Event()

    def slow(inputs: torch.Tensor) -> torch.Tensor:
        if threading.current_thread() is not threading.main_thread():
            go_on.wait(30)
        return drop(inputs)

    with noise_of(projected(), slow) as noise:
        list(noise.renewed(1, again=True))
        waiting = noise.renewed(1, again=False)
        next(waiting)
        next(waiting)
        go_on.set()
        assert len(list(waiting)) <= 1 + 10 / PATIENCE


def test_what_was_made_for_an_epoch_that_does_not_come_is_as_good_as_not_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows_of, "CHUNK", 4)
    generator, begun, n_made = torch.Generator(), threading.Event(), []
    drop = seeded(generator)

    def counted(inputs: torch.Tensor) -> torch.Tensor:
        inputs = drop(inputs)
        if threading.current_thread() is not threading.main_thread():
            n_made.append(len(inputs))
            begun.set()
            time.sleep(0.05)
        return inputs

    with noise_of(projected(), counted, generator) as noise:
        list(noise.renewed(1, again=True))
        begun.wait(30)
    expected = torch.Generator()
    list(projected().renew(TRAIN, seeded(expected)))
    assert torch.equal(generator.get_state(), expected.get_state())
    n_made_by_then = len(n_made)
    assert 0 < n_made_by_then < 10
    time.sleep(0.2)
    assert len(n_made) == n_made_by_then


def test_an_error_of_the_other_thread_is_raised() -> None:
    drop = seeded()

    def failing(inputs: torch.Tensor) -> torch.Tensor:
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError("no room for noise")
        return drop(inputs)

    with pytest.raises(MemoryError, match="no room for noise"):
        epochs(1, failing)


@pytest.mark.parametrize(
    "params",
    [
        {"max_epochs": 4},
        # Ends for want of patience, with noise made for an epoch that does not come.
        {"max_epochs": 40, "patience": 2, "validation_fraction": 0.2, "merge_epochs": 3},
    ],
)
def test_a_map_is_the_same_to_the_bit_however_its_noise_is_made(
    params: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing to learn: what validates soon says so.
    X = np.random.default_rng(0).normal(size=(240, 600)).astype(np.float32)
    codes = np.arange(240) % 3
    n_ahead, turn = [], ProjectedRows.turn

    def turned(self: ProjectedRows) -> None:
        n_ahead.append(1)
        turn(self)

    monkeypatch.setattr(ProjectedRows, "turn", turned)
    found = []
    for n_threads in (1, 2):
        # So small that its steps are taken in one thread whatever else there is to do.
        model = ce.CentroidEncoder(hidden=(20,), random_state=0, **params)
        with threads(n_threads):
            found.append(model.fit_transform(X, codes))
        assert bool(n_ahead) == (n_threads > 1)
    np.testing.assert_array_equal(*found)
    stages = model.history_["stage"]
    assert "patience" not in params or (stages.count("train") < 40 and stages.count("merge") == 3)


@pytest.mark.parametrize(
    ("n_threads", "share_of_noise", "expected"),
    [
        (1, 0.9, (1, 0)),
        (2, 0.0, (2, 0)),
        (2, 0.2, (2, 0)),
        (2, 0.4, (1, 1)),
        (2, 0.9, (1, 1)),
        (8, 0.4, (3, 3)),
        (8, 0.05, (3, 0)),
    ],
)
def test_noise_gets_its_share_of_the_threads(
    n_threads: int, share_of_noise: float, expected: tuple[int, int]
) -> None:
    network = Network(1000, (), 1000, 0, "relu")
    n_weights = sum(parameter.numel() for parameter in network.parameters())
    n_renewed = round(3 * n_weights * share_of_noise / (1 - share_of_noise))

    with threads(n_threads):
        # 6 · 10⁶ weights · 40 rows: two threads and a bit.
        assert shared_threads(network, 40, n_renewed) == expected


@pytest.mark.parametrize(("n_rows", "expected"), [(10_000, 1), (10_001, 3)])
def test_few_rows_are_asked_of_a_map_in_one_thread(n_rows: int, expected: int) -> None:
    def fail() -> None:
        with threads_for(n_rows):
            assert torch.get_num_threads() == expected
            raise KeyError

    with threads(3):
        with pytest.raises(KeyError):
            fail()
        assert torch.get_num_threads() == 3


def n_of_blas() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_blas_has_its_threads_again_after_a_training_that_was_stopped_at_once() -> None:
    X = np.random.default_rng(0).normal(size=(240, 2_000)).astype(np.float32)
    codes = np.arange(240) % 3
    model = ce.CentroidEncoder(max_epochs=2, random_state=0)
    with threads(2), threadpool_limits(2, user_api="blas"):
        for _ in range(3):
            reports = model.fit_codes(X, codes, np.arange(3), novelty=True, stop=lambda: True)
            with pytest.raises(StoppedTooEarly):
                next(reports)
            assert set(n_of_blas()) == {2}
        for _ in model.fit_codes(X, codes, np.arange(3), novelty=True):
            pass
        assert set(n_of_blas()) == {2}


@pytest.mark.parametrize("n_threads", [0, 1, 2, 9])
def test_each_item_has_its_result_at_its_place(n_threads: int) -> None:
    seen: set[int] = set()

    def square(i: int) -> int:
        seen.add(threading.get_ident())
        assert torch.get_num_threads() == (1 if n_threads > 1 else 3)
        assert set(n_of_blas()) == ({1} if n_threads > 1 else {2})
        time.sleep(0.01)
        return i * i

    with threads(3), threadpool_limits(2, user_api="blas"):
        assert each(square, range(5), n_threads) == [0, 1, 4, 9, 16]
        assert set(n_of_blas()) == {2}
    assert len(seen) == max(1, min(n_threads, 5))
    assert not each(square, [], n_threads)


def test_an_error_of_one_item_is_raised_when_no_thread_is_left() -> None:
    before = threading.active_count()

    def fail(i: int) -> None:
        time.sleep(0.01)
        if i == 1:
            raise KeyError(i)

    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(KeyError):
            each(fail, range(6), 3)
        assert set(n_of_blas()) == {2}
    assert threading.active_count() == before


def test_a_training_that_is_still_going_on_when_the_process_ends_comes_to_its_end() -> None:
    script = """
import threading, time
import numpy as np
import torch
import centroid_encoder as ce

torch.set_num_threads(2)
X, codes = np.random.default_rng(0).normal(size=(240, 600)), np.arange(240) % 3
begun = threading.Event()

def train():
    reports = ce.CentroidEncoder(max_epochs=3, random_state=0).fit_reports(X, codes)
    begun.set()
    threading.main_thread().join()
    time.sleep(0.1)
    print(len(list(reports)), "epochs")

threading.Thread(target=train).start()
begun.wait()
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout == "3 epochs\n", ended.stderr


@pytest.mark.parametrize("searched", [0, 2**27])
def test_axes_are_the_same_one_after_the_other_and_at_once(
    searched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_of, "SEARCHED", searched)
    found: set[int] = set()

    def watched(*arguments: Any) -> torch.Tensor:
        found.add(threading.get_ident())
        return principal_axes(*arguments)

    monkeypatch.setattr(rows_of, "principal_axes", watched)
    with threads(2):
        axes = projected().axes
    with threads(1):
        assert torch.equal(axes, projected().axes)
    assert len(found) == (3 if searched else 1)


def test_what_is_tidied_up_in_the_other_thread_does_not_wait_for_itself() -> None:
    drop, contexts = seeded(), []

    def tidying(inputs: torch.Tensor) -> torch.Tensor:
        if threading.current_thread() is not threading.main_thread():
            contexts[0].__exit__()
        return drop(inputs)

    with noise_of(projected(), tidying) as noise:
        contexts.append(noise)
        list(noise.renewed(1, again=True))
        waiting = noise.renewed(1, again=False)
        assert len(list(waiting)) <= 1 + 10 / PATIENCE
