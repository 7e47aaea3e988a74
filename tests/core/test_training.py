from __future__ import annotations

import math
import random
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from centroid_encoder.core import training
from centroid_encoder.core.network import Network
from centroid_encoder.core.objective import Batch, CentroidTargets, Objective
from centroid_encoder.core.optimization import (
    TrainingConfig,
    learning_rate_share,
)
from centroid_encoder.core.reports import Outcome, Report, StoppedTooEarly
from centroid_encoder.core.rows import CHUNK, Rows, class_means, standardized
from centroid_encoder.core.standardization import Standardizer
from centroid_encoder.core.training import TrainingData, train
from tests.threads import threads

Array = NDArray[np.float64]
Weights = list[Tensor]

CPU = torch.device("cpu")


@dataclass
class Problem:
    """All that `train` takes. Every tenth row validates, every tenth is not used at all."""

    network: Network
    objective: Any
    data: TrainingData
    config: TrainingConfig
    X: NDArray[np.float32]

    def train(
        self,
        *,
        seed: int = 0,
        stop: Callable[[], bool] = training.never,
        snapshot: Callable[[], bool] = training.never,
    ) -> Generator[Report, None, Outcome]:
        generator = torch.Generator().manual_seed(seed)
        return train(
            self.network,
            self.objective,
            self.data,
            self.config,
            generator,
            stop=stop,
            snapshot=snapshot,
        )

    def weights(self) -> Weights:
        return [parameter.detach().clone() for parameter in self.network.parameters()]

    def output(self, rows: Tensor) -> Tensor:
        with torch.no_grad():
            return self.network.decode(self.network.encode(self.data.rows.gather(rows)))


def rows_of(X: NDArray[np.floating], device: torch.device = CPU) -> Rows:
    zeros, ones = np.zeros(X.shape[1]), np.ones(X.shape[1])
    return standardized(X, Standardizer(zeros, ones, ones, np.inf), device)


def make(
    hidden: Sequence[int] = (6, 5),
    *,
    n: int = 100,
    d: int = 8,
    m: int = 2,
    n_classes: int = 4,
    n_outputs: int | None = None,
    seed: int = 0,
    device: torch.device = CPU,
    batch_norm: bool = False,
    **config: Any,
) -> Problem:
    rng = np.random.default_rng(seed)
    labels = rng.permutation(n) % n_classes
    X = 2 * rng.normal(size=(n_classes, d))[labels] + rng.normal(size=(n, d))
    X = X.astype(np.float32)
    rows = rows_of(X, device)
    tenth = torch.arange(n, device=device) % 10
    data = TrainingData(
        rows,
        torch.from_numpy(labels).to(device),
        torch.nonzero(tenth > 1)[:, 0],
        torch.nonzero(tenth == 1)[:, 0],
    )
    centroids = class_means(rows, data.train, data.labels, n_classes)
    objective = CentroidTargets.fit(centroids, "span", device)
    if n_outputs is None:
        n_outputs = objective.n_outputs
    generator = torch.Generator().manual_seed(seed)
    network = Network(d, hidden, m, n_outputs, "tanh", generator, batch_norm=batch_norm)
    network = network.to(device)
    defaults = TrainingConfig(batch_size=16, max_epochs=3, learning_rate=0.01)
    return Problem(network, objective, data, replace(defaults, **config), X)


def without_validation(problem: Problem) -> Problem:
    return replace(
        problem, data=replace(problem.data, validation=torch.empty(0, dtype=torch.int64))
    )


def drain(
    reports: Generator[Report, None, Outcome], each: Callable[[Report], object] = lambda _: None
) -> Outcome:
    while True:
        try:
            each(next(reports))
        except StopIteration as end:
            return end.value


def same(one: Weights, other: Weights) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@dataclass
class Spy:
    """An objective that hands every training batch to `look` before it passes it on."""

    objective: Objective
    look: Callable[[Batch], None]

    @property
    def n_outputs(self) -> int:
        return self.objective.n_outputs

    def loss(self, batch: Batch) -> Tensor:
        if torch.is_grad_enabled():
            self.look(batch)
        return self.objective.loss(batch)

    def distances(self, output: Tensor) -> Tensor | None:
        return self.objective.distances(output)


@dataclass
class Seen:
    """Rows of every training batch."""

    batches: list[list[int]] = field(default_factory=list)

    def __call__(self, batch: Batch) -> None:
        self.batches.append(batch.rows.tolist())

    def take(self) -> list[int]:
        """Rows since the last time, sorted."""
        rows = sorted(row for batch in self.batches for row in batch)
        self.batches.clear()
        return rows


class Interrupt:
    """Raises KeyboardInterrupt at the n-th training batch."""

    def __init__(self, n: int) -> None:
        self.left = n

    def __call__(self, batch: Batch) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def after(n: int) -> Callable[[], bool]:
    """Return a `stop` that lets n batches pass."""
    left = iter(range(n))
    return lambda: next(left, None) is None


# Reports


def test_reports_count_epochs_within_the_stage_and_steps_over_all_stages() -> None:
    problem = make((6, 5), pretrain_epochs=2, max_epochs=3, merge_epochs=1, batch_size=16)

    reports: list[Report] = []
    outcome = drain(problem.train(), reports.append)

    assert [(r.stage, r.epoch, r.n_epochs, r.step) for r in reports] == [
        ("pretrain 1", 1, 2, 1),
        ("pretrain 1", 2, 2, 2),
        ("pretrain 2", 1, 2, 3),
        ("pretrain 2", 2, 2, 4),
        ("pretrain 3", 1, 2, 5),
        ("pretrain 3", 2, 2, 6),
        ("train", 1, 3, 7),
        ("train", 2, 3, 8),
        ("train", 3, 3, 9),
        ("merge", 1, 1, 10),
    ]
    assert {(r.n_steps, r.batch_size) for r in reports} == {(10, 16)}
    assert [math.isnan(r.validation_loss) for r in reports] == [False] * 9 + [True]
    assert [math.isnan(r.validation_error) for r in reports] == [False] * 9 + [True]
    assert outcome.reports == reports
    assert not outcome.interrupted


def test_without_validation_rows_there_is_nothing_to_merge() -> None:
    problem = without_validation(make(max_epochs=2, merge_epochs=3))

    reports = list(problem.train())

    assert [report.stage for report in reports] == ["train", "train"]
    assert reports[0].n_steps == 2
    assert all(math.isnan(report.validation_loss) for report in reports)


def test_loss_is_the_mean_over_all_rows_though_batches_differ_in_size() -> None:
    problem = make(batch_size=27, max_epochs=1, learning_rate=0.0)  # 80 rows: 27 + 27 + 26

    (report,) = problem.train()

    output, labels = problem.output(problem.data.train), problem.data.labels[problem.data.train]
    square = (output - problem.objective.coordinates[labels]).square()
    assert report.loss == pytest.approx(float(square.mean()), rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_validation_is_over_all_chunks(weighted: bool) -> None:
    problem = make(n=10 * (CHUNK + 50), max_epochs=1, batch_size=20_000, n_classes=3)
    weights = torch.tensor([0.2, 1.0, 1.8]) if weighted else None
    problem.data = replace(problem.data, weights=weights)

    (report,) = problem.train()

    rows = problem.data.validation
    assert len(rows) == CHUNK + 50
    output, labels = problem.output(rows), problem.data.labels[rows]
    square = (output - problem.objective.coordinates[labels]).square().mean(dim=1)
    if weighted:
        square = square * weights[labels]
    nearest = torch.cdist(output, problem.objective.coordinates).argmin(dim=1)
    assert report.validation_loss == pytest.approx(float(square.mean()), rel=1e-5)
    assert report.validation_error == pytest.approx(float((nearest != labels).float().mean()))


def test_embeddings_are_reported_on_request_only_and_are_those_of_the_network() -> None:
    problem = make((6, 5), pretrain_epochs=1, max_epochs=4, merge_epochs=1)
    wishes = iter([True, False, True, True, False, True])
    everything = torch.arange(100)

    reports = problem.train(snapshot=lambda: next(wishes))
    found = []
    for report in reports:
        found.append(report.embedding is not None)
        if report.embedding is not None:
            with torch.no_grad():
                z = problem.network.encode(problem.data.rows.gather(everything)).numpy()
            assert report.embedding.dtype == np.float32
            # Of the rows that are not trained on, too.
            np.testing.assert_array_equal(report.embedding, z)

    # Nobody asks while there is no bottleneck yet: in pre-training but for its last stage.
    assert found == [False, False, True, False, True, True, False, True]


def test_outcome_does_not_hold_on_to_embeddings() -> None:
    outcome = drain(make().train(snapshot=lambda: True))

    assert [report.embedding for report in outcome.reports] == [None] * 3


# Pre-training


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "amsgrad"])
@pytest.mark.parametrize("hidden", [(), (6,), (6, 5, 4)])
def test_each_pretraining_stage_moves_its_two_layers_and_no_other_bit(
    hidden: tuple[int, ...], optimizer: str
) -> None:
    # With weight decay, which moves weights that have no gradient.
    problem = make(hidden, pretrain_epochs=2, optimizer=optimizer, weight_decay=0.1, dropout=0.2)
    network = problem.network
    reports = problem.train()

    for depth in range(len(hidden) + 1):
        before = {name: value.clone() for name, value in network.state_dict().items()}
        assert [next(reports).stage for _ in range(2)] == [f"pretrain {depth + 1}"] * 2
        moved = {
            name for name, value in network.state_dict().items() if not value.equal(before[name])
        }
        assert moved == {
            f"{layer}.{part}"
            for layer in (f"encoder.{depth}", f"decoder.{len(hidden) - depth}")
            for part in ("weight", "bias")
        }

    before = problem.weights()
    assert next(reports).stage == "train"
    assert not any(torch.equal(a, b) for a, b in zip(before, problem.weights(), strict=True))


def test_pretraining_trains_the_shallow_network_of_the_stage() -> None:
    # As if the layers in between were not there: 8 → 6 → 3, then 8 → 6 → 5 → 6 → 3.
    problem = make((6, 5), pretrain_epochs=1)
    network, depths = problem.network, iter([0] * 5 + [1] * 5 + [2] * 5)

    def look(batch: Batch) -> None:
        depth = next(depths)
        with torch.no_grad():
            code = network.encode(problem.data.rows.gather(batch.rows), depth=depth)
            torch.testing.assert_close(batch.code, code)
            torch.testing.assert_close(batch.output, network.decode(code, depth=depth))

    problem.objective = Spy(problem.objective, look)
    reports = problem.train()
    for _ in range(3):
        next(reports)
    assert next(depths, None) is None


def test_cached_codes_are_what_the_encoder_says_without_dropout() -> None:
    problem = make((6, 5), pretrain_epochs=3, dropout=0.5, learning_rate=0.05)
    network, seen = problem.network, []

    def look(batch: Batch) -> None:
        with torch.no_grad():
            x = problem.data.rows.gather(batch.rows)
            codes = [network.encode(x, depth=depth) for depth in range(3)]
        seen.append([torch.allclose(batch.code, c) for c in codes if c.shape == batch.code.shape])

    problem.objective = Spy(problem.objective, look)
    reports = problem.train()
    for _ in range(9):
        next(reports)

    # The inputs of the first stage are noisy, the codes of the others are not.
    assert [match for (match,) in seen] == [False] * 15 + [True] * 30


def test_leaving_pretraining_thaws_all_weights() -> None:
    problem = make(pretrain_epochs=2)
    reports = problem.train()
    next(reports)
    assert not all(parameter.requires_grad for parameter in problem.network.parameters())

    reports.close()

    assert all(parameter.requires_grad for parameter in problem.network.parameters())


# Best weights, patience, merge


def misleading(problem: Problem) -> Problem:
    """Give the validation rows wrong labels: soon, to train is to make their loss worse."""
    labels = problem.data.labels.clone()
    labels[problem.data.validation] = (labels[problem.data.validation] + 1) % 4
    return replace(problem, data=replace(problem.data, labels=labels))


def validation_loss(problem: Problem) -> float:
    rows = problem.data.validation
    square = problem.output(rows) - problem.objective.coordinates[problem.data.labels[rows]]
    return float(square.square().mean())


def test_weights_of_the_smallest_validation_loss_are_kept() -> None:
    problem = misleading(make(max_epochs=12, learning_rate=0.02))

    reports, weights = [], []
    for report in problem.train():
        reports.append(report)
        weights.append(problem.weights())

    losses = [report.validation_loss for report in reports]
    best = int(np.argmin(losses))
    assert 0 < best < 11
    assert same(problem.weights(), weights[best])
    assert validation_loss(problem) == pytest.approx(losses[best], rel=1e-5)


def test_without_validation_rows_the_last_weights_are_kept() -> None:
    problem = without_validation(make(max_epochs=4, learning_rate=0.3, schedule="constant"))

    weights = [problem.weights() for _ in problem.train()]

    assert same(problem.weights(), weights[-1])


@pytest.mark.parametrize("patience", [1, 3])
def test_patience_counts_epochs_since_the_best(patience: int) -> None:
    problem = misleading(make(max_epochs=40, learning_rate=0.01, patience=patience))

    losses = [report.validation_loss for report in problem.train()]

    since_best, expected = 0, len(losses)
    for epoch, loss in enumerate(losses):
        since_best = 0 if loss == min(losses[: epoch + 1]) else since_best + 1
        if since_best == patience:
            expected = epoch + 1
            break
    assert len(losses) == expected < 40


def test_merge_trains_on_with_the_validation_rows_from_the_best_weights() -> None:
    problem = misleading(make(max_epochs=12, learning_rate=0.02, merge_epochs=2, patience=3))
    seen, stage, at_start = Seen(), ["train"], []

    def look(batch: Batch) -> None:
        if stage[-1] == "over":
            at_start.append(problem.weights())
            stage.append("merge")
        seen(batch)

    problem.objective = Spy(problem.objective, look)
    losses, weights = [], []
    train_rows = problem.data.train.tolist()
    everything = sorted(train_rows + problem.data.validation.tolist())
    reports = problem.train()
    for report in reports:
        assert seen.take() == (train_rows if report.stage == "train" else everything)
        if report.stage == "train":
            losses.append(report.validation_loss)
            weights.append(problem.weights())
            since_best = len(losses) - 1 - int(np.argmin(losses))
            if since_best == 3:
                stage.append("over")

    assert stage == ["train", "over", "merge"]
    assert report.stage == "merge"
    assert report.epoch == 2
    assert same(at_start[0], weights[int(np.argmin(losses))])
    # Nothing says which merged epoch is best: the last one stays.
    assert not same(problem.weights(), at_start[0])


# Stop, interrupt, close


def test_stop_is_asked_before_every_batch_and_keeps_the_last_whole_epoch() -> None:
    problem = without_validation(make(max_epochs=9))  # 80 rows: 5 batches an epoch
    seen = Seen()
    problem.objective = Spy(problem.objective, seen)

    weights: list[Weights] = []
    outcome = drain(problem.train(stop=after(13)), lambda _: weights.append(problem.weights()))

    assert len(seen.batches) == 13
    assert len(weights) == len(outcome.reports) == 2
    assert same(problem.weights(), weights[-1])
    assert not outcome.interrupted


def test_stop_keeps_the_best_weights_where_rows_validate() -> None:
    problem = misleading(make(max_epochs=30, learning_rate=0.02, merge_epochs=5))
    losses, weights = [], []

    for report in problem.train(stop=after(5 * 15 + 2)):
        losses.append(report.validation_loss)
        weights.append(problem.weights())

    assert len(losses) == 15  # and no merge
    assert np.argmin(losses) < 14
    assert same(problem.weights(), weights[int(np.argmin(losses))])


@pytest.mark.parametrize("n_batches", [0, 3, 5 * 6, 5 * 6 + 2])
def test_stopped_before_the_first_epoch_of_training_there_is_nothing_to_keep(
    n_batches: int,
) -> None:
    problem = make((6, 5), pretrain_epochs=2)
    asked, enough = [], after(n_batches)

    def stop() -> bool:
        asked.append(enough())
        return asked[-1]

    with pytest.raises(StoppedTooEarly):
        drain(problem.train(stop=stop))

    assert asked == [False] * n_batches + [True]
    assert all(parameter.requires_grad for parameter in problem.network.parameters())


@pytest.mark.parametrize("how", ["stop", "interrupt"])
def test_a_merge_cut_short_in_its_first_epoch_leaves_no_trace(how: str) -> None:
    problem = make(max_epochs=3, merge_epochs=2)
    n_batches = 5 * 3 + 3
    if how == "interrupt":
        problem.objective = Spy(problem.objective, Interrupt(n_batches + 1))

    weights: list[Weights] = []
    outcome = drain(
        problem.train(stop=after(n_batches if how == "stop" else 999)),
        lambda _: weights.append(problem.weights()),
    )

    losses = [report.validation_loss for report in outcome.reports]
    assert len(losses) == 3
    assert same(problem.weights(), weights[int(np.argmin(losses))])
    assert outcome.interrupted == (how == "interrupt")


@pytest.mark.parametrize("merge_epochs", [0, 2])
def test_ctrl_c_between_epochs_keeps_the_best_weights(merge_epochs: int) -> None:
    problem = misleading(make(max_epochs=30, learning_rate=0.02, merge_epochs=merge_epochs))
    seen = Seen()
    problem.objective = Spy(problem.objective, seen)
    reports = problem.train()
    losses, weights = [], []
    for _ in range(15):
        losses.append(next(reports).validation_loss)
        weights.append(problem.weights())

    with pytest.raises(StopIteration) as end:
        reports.throw(KeyboardInterrupt())

    outcome = end.value.value
    assert outcome.interrupted
    assert len(outcome.reports) == 15
    assert len(seen.batches) == 15 * 5
    assert np.argmin(losses) < 14
    assert same(problem.weights(), weights[int(np.argmin(losses))])


def test_ctrl_c_within_an_epoch_keeps_the_last_whole_one() -> None:
    problem = without_validation(make(max_epochs=9))
    problem.objective = Spy(problem.objective, Interrupt(13))
    reports = problem.train()
    next(reports)
    next(reports)
    weights = problem.weights()

    with pytest.raises(StopIteration) as end:
        next(reports)

    assert end.value.value.interrupted
    assert same(problem.weights(), weights)


@pytest.mark.parametrize("n", [1, 12, 17])
def test_ctrl_c_before_the_first_epoch_of_training_is_passed_on(n: int) -> None:
    problem = make((6, 5), pretrain_epochs=1)  # 15 batches
    problem.objective = Spy(problem.objective, Interrupt(n))

    with pytest.raises(KeyboardInterrupt):
        drain(problem.train())

    assert all(parameter.requires_grad for parameter in problem.network.parameters())


def test_ctrl_c_at_a_report_of_pretraining_is_passed_on() -> None:
    reports = make(pretrain_epochs=2).train()
    next(reports)

    with pytest.raises(KeyboardInterrupt):
        reports.throw(KeyboardInterrupt())


def test_closing_early_is_quiet() -> None:
    for n in (0, 1, 7):
        reports = make(pretrain_epochs=1, max_epochs=9).train()
        for _ in range(n):
            next(reports)
        reports.close()
        assert next(reports, None) is None


# Divergence and memory


class Diverging:
    """Centroid targets, but from the n-th call on, the loss of training or validation is NaN."""

    def __init__(self, objective: CentroidTargets, n: int, *, validation: bool) -> None:
        self.objective, self.left, self.validation = objective, n, validation
        self.n_outputs, self.distances = objective.n_outputs, objective.distances

    def loss(self, batch: Batch) -> Tensor:
        loss = self.objective.loss(batch)
        if self.validation == torch.is_grad_enabled():
            return loss
        self.left -= 1
        return loss * (1 if self.left > 0 else math.nan)


@pytest.mark.parametrize(
    ("n", "validation", "epoch"), [(1, True, 1), (3, True, 3), (1, False, 1), (8, False, 2)]
)
def test_a_loss_that_is_not_finite_is_an_error(n: int, validation: bool, epoch: int) -> None:
    problem = make(max_epochs=9)
    if not validation:
        problem = without_validation(problem)
    problem.objective = Diverging(problem.objective, n, validation=validation)

    with pytest.raises(FloatingPointError, match=rf"in epoch {epoch} of 'train'.*learning_rate"):
        drain(problem.train())


def test_an_absurd_learning_rate_diverges() -> None:
    problem = make(max_epochs=30, learning_rate=1e30)

    with pytest.raises(FloatingPointError, match="learning_rate"):
        drain(problem.train())


class Scarce:
    """A device that cannot hold more than `limit` rows, forward or backward."""

    def __init__(self, objective: CentroidTargets, limit: int, *, backward: bool) -> None:
        self.objective, self.limit, self.backward = objective, limit, backward
        self.n_outputs, self.distances = objective.n_outputs, objective.distances
        self.seen = Seen()
        self.failed: weakref.ref[Tensor] | None = None

    def loss(self, batch: Batch) -> Tensor:
        if not torch.is_grad_enabled():
            return self.objective.loss(batch)
        assert self.failed is None or self.failed() is None, "the failed batch is still in memory"
        if len(batch.rows) <= self.limit:
            self.failed = None
            self.seen(batch)
            return self.objective.loss(batch)
        self.failed = weakref.ref(batch.code)  # which the graph needs for the decoder's gradient
        if not self.backward:
            raise torch.OutOfMemoryError
        loss = self.objective.loss(batch)
        loss.register_hook(self._fail)
        return loss

    @staticmethod
    def _fail(gradient: Tensor) -> None:
        raise torch.OutOfMemoryError


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("pretrain_epochs", [0, 1])
def test_out_of_memory_makes_batches_smaller_and_skips_no_row(
    backward: bool, pretrain_epochs: int
) -> None:
    problem = make(batch_size=64, max_epochs=3, pretrain_epochs=pretrain_epochs)
    scarce = Scarce(problem.objective, 12, backward=backward)
    problem.objective = scarce

    for report in problem.train():
        # 80 rows: 40 at once, halved to 20, halved to 10.
        assert report.batch_size == 10
        assert {len(batch) for batch in scarce.seen.batches} == {10}
        assert scarce.seen.take() == problem.data.train.tolist()


def test_out_of_memory_in_the_middle_of_an_epoch_skips_no_row() -> None:
    problem = make(batch_size=20, max_epochs=1)
    scarce = Scarce(problem.objective, 99, backward=True)
    problem.objective = scarce

    def stop() -> bool:
        scarce.limit = 99 if len(scarce.seen.batches) < 2 else 7
        return False

    (report,) = problem.train(stop=stop)

    assert [len(batch) for batch in scarce.seen.batches] == [20, 20] + [5] * 8
    assert scarce.seen.take() == problem.data.train.tolist()
    assert report.batch_size == 5


def test_out_of_memory_for_a_single_row_is_passed_on() -> None:
    problem = make()
    problem.objective = Scarce(problem.objective, 0, backward=False)

    with pytest.raises(torch.OutOfMemoryError):
        drain(problem.train())


# Batches, dropout, schedule


@given(st.integers(1, 70), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_batches_are_nearly_equal_and_hold_every_row_once(n: int, batch_size: int) -> None:
    problem = make((), n=100, max_epochs=1, batch_size=batch_size)
    problem.data = replace(problem.data, train=problem.data.train[:n])
    seen = Seen()
    problem.objective = Spy(problem.objective, seen)

    drain(problem.train())

    sizes = [len(batch) for batch in seen.batches]
    assert len(sizes) == math.ceil(n / batch_size)
    # So there is no batch of one row but where batches of two and one row are all there can be.
    assert max(sizes) - min(sizes) <= 1
    assert seen.take() == problem.data.train.tolist()


def test_the_order_of_rows_differs_between_epochs() -> None:
    problem = make(max_epochs=3)
    seen = Seen()
    problem.objective = Spy(problem.objective, seen)

    drain(problem.train())

    first, second, third = (seen.batches[i : i + 5] for i in (0, 5, 10))
    assert first != second != third != first


class Codes:
    """Without a decoder and with an encoder that is the identity, shows what the network is fed."""

    n_outputs = 0

    def __init__(self) -> None:
        self.trained: list[Tensor] = []
        self.validated: list[Tensor] = []

    def loss(self, batch: Batch) -> Tensor:
        (self.trained if torch.is_grad_enabled() else self.validated).append(batch.code.detach())
        return batch.code.mean()

    def distances(self, output: Tensor) -> None:
        return None


@pytest.mark.parametrize(
    ("dropout", "share"),
    [(0.0, 0), (0.3, 77 / 256), (0.5, 0.5), (0.9, 230 / 256), (0.9999, 255 / 256)],
)
def test_dropout_zeroes_its_share_of_inputs_and_keeps_their_mean(
    dropout: float, share: float
) -> None:
    d = 13  # not a multiple of the eight bytes that are drawn at once
    problem = make((), n=5000, d=d, m=d, n_outputs=0)
    problem.objective = Codes()
    problem.config = TrainingConfig(
        batch_size=700, max_epochs=2, dropout=dropout, learning_rate=0.0
    )
    with torch.no_grad():
        problem.network.encoder[0].weight.copy_(torch.eye(d))
        problem.network.encoder[0].bias.zero_()
    problem.data = replace(problem.data, rows=rows_of(np.ones((5000, d), np.float32)))

    drain(problem.train())

    fed = torch.cat(problem.objective.trained).double()
    assert len(fed) == 2 * 4000
    n = fed.numel()
    noise = 5 * math.sqrt(share * (1 - share) / n)
    assert float((fed == 0).double().mean()) == pytest.approx(share, abs=noise)
    assert torch.allclose(fed[fed != 0], torch.tensor(1 / (1 - share)).double())
    assert float(fed.mean()) == pytest.approx(1, abs=noise / (1 - share) + 1e-6)
    # No two features, rows or epochs share their noise.
    masks = (fed == 0).double()
    if 0 < share < 0.99:
        correlation = np.corrcoef(masks.T.numpy()) - np.eye(d)
        assert np.abs(correlation).max() < 5 / math.sqrt(len(masks))
        assert not torch.equal(masks[:4000], masks[4000:])
    assert torch.cat(problem.objective.validated).eq(1).all()


@pytest.mark.parametrize("warmup", [0.1, 0.3])
def test_one_cycle_rises_to_the_peak_and_falls_to_nothing(warmup: float) -> None:
    config = TrainingConfig(batch_size=1, max_epochs=1, warmup=warmup)
    progress = np.linspace(0, 1, 1001)[:-1]
    shares = np.array([learning_rate_share(p, config) for p in progress])

    assert shares[0] == pytest.approx(0.04)
    assert shares.max() == pytest.approx(1)
    assert progress[shares.argmax()] == pytest.approx(warmup)
    assert shares[-1] < 1e-4
    assert (shares > 0).all()
    steps = np.diff(shares)
    assert (steps[: shares.argmax()] > 0).all()
    assert (steps[shares.argmax() :] < 0).all()
    constant = replace(config, schedule="constant")
    assert {learning_rate_share(p, constant) for p in progress} == {1.0}


@pytest.mark.parametrize("schedule", ["one_cycle", "constant"])
def test_every_stage_has_a_learning_rate_course_of_its_own(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make(
        (6,), pretrain_epochs=4, max_epochs=8, merge_epochs=4, schedule=schedule, learning_rate=0.02
    )
    optimizers: list[training.Adam] = []

    class Remembered(training.Adam):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            optimizers.append(self)

    monkeypatch.setattr(training, "Adam", Remembered)
    rates: list[tuple[int, float]] = []
    problem.objective = Spy(
        problem.objective,
        lambda _: rates.append((len(optimizers), optimizers[-1].learning_rate)),
    )

    drain(problem.train())

    # 80 rows are 5 batches, 90 with the validation rows are 6.
    for stage, n_steps in enumerate([20, 20, 40, 24], start=1):
        of_stage = [rate for number, rate in rates if number == stage]
        progress = np.arange(n_steps) / n_steps
        expected = [0.02 * learning_rate_share(p, problem.config) for p in progress]
        np.testing.assert_allclose(of_stage, expected, rtol=0.05, atol=1e-4)


def test_optimizers_differ() -> None:
    def weights(optimizer: str) -> Weights:
        problem = make(max_epochs=20, optimizer=optimizer, weight_decay=0.01)
        drain(problem.train())
        return problem.weights()

    adamw, adam, amsgrad = (weights(name) for name in ("adamw", "adam", "amsgrad"))

    assert not same(adamw, adam)
    assert not same(adam, amsgrad)


def test_weight_decay_of_adam_is_a_penalty_on_the_loss() -> None:
    # The published program adds ½ λ Σ θ² to the loss.
    decayed, penalised = (make(max_epochs=5, optimizer="amsgrad") for _ in range(2))
    decayed.config = replace(decayed.config, weight_decay=0.1)
    objective, network = penalised.objective, penalised.network

    class Penalised(CentroidTargets):
        def __init__(self) -> None:
            self.n_outputs = objective.n_outputs
            self.coordinates = objective.coordinates
            self.compactness = 0.0

        def loss(self, batch: Batch) -> Tensor:
            return super().loss(batch) + 0.05 * sum(
                parameter.square().sum() for parameter in network.parameters()
            )

    penalised.objective = Penalised()
    start = decayed.weights()
    drain(without_validation(decayed).train())
    drain(without_validation(penalised).train())

    for a, b in zip(decayed.weights(), penalised.weights(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert not same(decayed.weights(), start)


# Optima that are known


def reduced_rank_optimum(X: Array, Y: Array, rank: int, weights: Array | None = None) -> Array:
    """Float64 fit of Y by an affine map of X of at most this rank: SVD of the full fit."""
    root = np.sqrt(np.ones(len(X)) if weights is None else weights)[:, None]
    design = np.column_stack([X, np.ones(len(X))])
    # The offset is free, so the rank is that of the fit to centred data.
    mean_y = np.average(Y, axis=0, weights=root[:, 0] ** 2)
    fitted = design @ np.linalg.lstsq(root * design, root * Y, rcond=None)[0]
    centred = root * (fitted - mean_y)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    return mean_y + (fitted - mean_y) @ directions[:rank].T @ directions[:rank]


def full_batch(problem: Problem, **changes: Any) -> Problem:
    n = len(problem.X)
    config = TrainingConfig(batch_size=n, max_epochs=800, learning_rate=0.02)
    everything = torch.arange(n)
    problem.data = replace(problem.data, train=everything, validation=everything[:0], **changes)
    problem.config = config
    return problem


@pytest.mark.parametrize(("m", "output"), [(1, "span"), (2, "span"), (3, "span"), (2, "full")])
def test_a_linear_network_reaches_the_reduced_rank_least_squares_optimum(
    m: int, output: str
) -> None:
    problem = full_batch(make((), m=m, n=200, n_outputs=8 if output == "full" else 3))
    rows, labels = problem.data.rows, problem.data.labels
    centroids = class_means(rows, problem.data.train, labels, 4)
    problem.objective = CentroidTargets.fit(centroids, output, CPU)

    drain(problem.train())

    Y = problem.objective.coordinates.double().numpy()[labels]
    best = reduced_rank_optimum(problem.X.astype(float), Y, m)
    loss = np.square(problem.output(problem.data.train).numpy() - Y).mean()
    optimum = np.square(best - Y).mean()
    assert optimum * (1 - 1e-5) <= loss <= optimum * 1.001 + 1e-6


def test_class_weights_move_the_result_to_the_weighted_least_squares_optimum() -> None:
    class_weights = torch.tensor([0.1, 0.4, 2.0, 1.5])  # mean 1: the classes have equal sizes
    problem = full_batch(make((), m=2, n=200), weights=class_weights)
    labels = problem.data.labels
    problem.X += 0.8 * np.random.default_rng(1).normal(size=problem.X.shape).astype(np.float32)
    problem.data = replace(problem.data, rows=rows_of(problem.X))

    drain(problem.train())

    Y = problem.objective.coordinates.double().numpy()[labels]
    X, weights = problem.X.astype(float), class_weights.double().numpy()[labels]
    weighted = reduced_rank_optimum(X, Y, 2, weights)
    unweighted = reduced_rank_optimum(X, Y, 2)
    output = problem.output(problem.data.train).numpy()
    assert np.abs(output - weighted).max() < 0.1 * np.abs(unweighted - weighted).max()

    def loss(fitted: Array) -> float:
        return float((weights[:, None] * np.square(fitted - Y)).mean())

    assert loss(output) < loss(weighted) * 1.001 < loss(unweighted)


# What training leaves alone


def denormals_are_flushed() -> bool:
    return float(torch.tensor(torch.finfo(torch.float32).tiny) * 0.5) == 0


@contextmanager
def flush_denormal(on: bool) -> Iterator[None]:
    before = denormals_are_flushed()
    if not torch.set_flush_denormal(on):
        pytest.skip("this processor cannot flush denormals")
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def surroundings() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return (
        torch.get_num_threads(),
        denormals_are_flushed(),
        random.getstate(),
        (name, keys.tobytes(), *rest),
        torch.get_rng_state().numpy().tobytes(),
        torch.is_grad_enabled(),
    )


@pytest.mark.parametrize("flushed", [False, True])
def test_threads_denormals_and_global_random_states_are_as_before(flushed: bool) -> None:
    within = []
    problem = make(pretrain_epochs=1, max_epochs=2, merge_epochs=1, dropout=0.3)
    problem.objective = Spy(
        problem.objective,
        lambda _: within.append((torch.get_num_threads(), denormals_are_flushed())),
    )

    with threads(2), flush_denormal(flushed):
        before = surroundings()
        for _ in problem.train(snapshot=lambda: True):
            assert surroundings() == before
        assert surroundings() == before

    assert set(within) == {(2, True)}


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("pretrain_epochs", [0, 1])
def test_errors_leave_everything_as_before(
    error: type[BaseException], pretrain_epochs: int
) -> None:
    def fail(batch: Batch) -> None:
        raise error

    problem = make(pretrain_epochs=pretrain_epochs, dropout=0.3)
    problem.objective = Spy(problem.objective, fail)

    with threads(2), flush_denormal(False):
        before = surroundings()
        with pytest.raises(error):
            drain(problem.train())
        assert surroundings() == before


def test_the_same_seed_gives_the_same_bits() -> None:
    def run(seed: int) -> tuple[list[Report], Weights]:
        problem = make(
            pretrain_epochs=1, max_epochs=3, merge_epochs=1, dropout=0.3, weight_decay=0.01
        )
        return list(problem.train(seed=seed)), problem.weights()

    (reports, weights), (again, same_weights), (_, other) = run(1), run(1), run(2)

    assert [replace(r, validation_loss=0.0, validation_error=0.0) for r in reports] == [
        replace(r, validation_loss=0.0, validation_error=0.0) for r in again
    ]
    assert same(weights, same_weights)
    assert not same(weights, other)


def test_asking_for_snapshots_or_stopping_does_not_change_the_result() -> None:
    plain, watched = make(dropout=0.3), make(dropout=0.3)

    drain(plain.train())
    drain(watched.train(snapshot=lambda: True, stop=lambda: False))

    assert same(plain.weights(), watched.weights())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_the_cpu() -> None:
    settings = {"pretrain_epochs": 2, "max_epochs": 20, "merge_epochs": 2, "batch_size": 20}
    on_cpu = make(n=200, **settings)
    on_cuda = make(n=200, device=torch.device("cuda"), **settings)
    assert all(parameter.is_cuda for parameter in on_cuda.network.parameters())

    one, other = list(on_cpu.train()), list(on_cuda.train(snapshot=lambda: True))

    assert isinstance(other[-1].embedding, np.ndarray)
    for a, b in zip(one, other, strict=True):
        assert (a.stage, a.epoch) == (b.stage, b.epoch)
        assert b.loss == pytest.approx(a.loss, rel=1e-2)
        assert b.validation_loss == pytest.approx(a.validation_loss, rel=1e-2, nan_ok=True)
    everything = torch.arange(200)
    torch.testing.assert_close(
        on_cuda.output(everything.cuda()).cpu(), on_cpu.output(everything), rtol=0.05, atol=0.05
    )
    again = make(n=200, device=torch.device("cuda"), **settings)
    drain(again.train())
    assert same(again.weights(), on_cuda.weights())
    # Dropout draws its noise on the device.
    noisy = make(n=200, device=torch.device("cuda"), dropout=0.3)
    assert list(noisy.train())[-1].loss < 2


# --- batch normalisation -------------------------------------------------------------------------


def statistics(network: Network) -> Weights:
    return [buffer.detach().clone() for buffer in network.buffers()]


def test_reports_and_validation_use_running_statistics() -> None:
    problem = make(batch_norm=True, max_epochs=2)
    for report in (reports := problem.train(snapshot=lambda: True)):
        before = statistics(problem.network)
        assert not problem.network.training
        everything = problem.data.rows.gather(torch.arange(100))
        with torch.no_grad():
            one_by_one = torch.cat([problem.network.encode(x[None]) for x in everything])
        np.testing.assert_allclose(report.embedding, one_by_one, atol=1e-5)
        assert same(before, statistics(problem.network))
    reports.close()


def test_the_best_epoch_keeps_its_statistics() -> None:
    problem = make(batch_norm=True, max_epochs=6, learning_rate=0.3, seed=3)
    seen: list[tuple[float, Weights, Weights]] = []
    drain(
        problem.train(),
        lambda report: seen.append(
            (report.validation_loss, problem.weights(), statistics(problem.network))
        ),
    )
    _, weights, buffers = min(seen, key=lambda entry: entry[0])
    assert not same(buffers, seen[-1][2]), "the last epoch is the best: nothing is tested"
    assert same(problem.weights(), weights)
    assert same(statistics(problem.network), buffers)


def test_frozen_layers_keep_their_statistics() -> None:
    problem = make(batch_norm=True, pretrain_epochs=2, max_epochs=1)
    kept: list[Weights] = []

    def look(report: Report) -> None:
        if report.stage in ("pretrain 2", "pretrain 3"):
            kept.append([b.clone() for b in problem.network.norms[0].buffers()])

    drain(problem.train(), look)
    assert len(kept) == 4
    assert all(same(kept[0], later) for later in kept[1:])


def test_no_batch_of_one_row_is_normalised() -> None:
    for n_rows in range(3, 30):
        seen = Seen()
        problem = make(n=100, batch_norm=True, batch_size=3, max_epochs=1)
        train = problem.data.train[:n_rows]
        problem = replace(
            problem,
            data=replace(problem.data, train=train),
            objective=Spy(problem.objective, seen),
        )
        drain(problem.train())
        assert min(map(len, seen.batches)) >= 2
        assert seen.take() == sorted(train.tolist())
