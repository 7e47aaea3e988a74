from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import Tensor

from centroid_encoder.core import train
from centroid_encoder.core.network import Network
from centroid_encoder.core.optimization import Adam, TrainingConfig
from centroid_encoder.core.reports import Callback, Report
from centroid_encoder.core.targets import Batch, CentroidTargets
from centroid_encoder.core.threads import in_threads, one_thread
from centroid_encoder.core.train import Run, TrainingData, dropped
from tests.threads import threads

Weights = list[Tensor]
CPU = torch.device("cpu")


@dataclass
class Objective:
    """Centroid targets that record each training batch."""

    targets: CentroidTargets
    batches: list[Tensor] = field(default_factory=list)

    def loss(self, batch: Batch) -> Tensor:
        if torch.is_grad_enabled():
            self.batches.append(batch.rows.clone())
        return self.targets.loss(batch)

    def distances(self, output: Tensor) -> Tensor:
        return self.targets.distances(output)


@dataclass
class Problem:
    """Arguments of `Run`. Every tenth row validates, and every tenth is not used at all."""

    network: Network
    objective: Objective
    data: TrainingData
    config: TrainingConfig

    def train(self, callback: Callback = lambda report: False, seed: int = 0) -> Run:
        generator = torch.Generator().manual_seed(seed)
        arguments = self.network, self.objective, self.data, self.config, generator
        return Run(*arguments, callback).start()

    def weights(self) -> Weights:
        state = [*self.network.parameters(), *self.network.buffers()]
        return [tensor.detach().clone() for tensor in state]

    def watched(self) -> tuple[list[Report], list[Weights]]:
        """Train, and return the reports and the weights after each epoch."""
        reports, weights = [], []

        def callback(report: Report | None) -> bool:
            if report is not None:
                reports.append(report)
                weights.append(self.weights())
            return False

        self.train(callback)
        return reports, weights

    @torch.no_grad()
    def output(self, rows: Tensor) -> Tensor:
        return self.network.decode(self.network.encode(self.data.inputs[rows]))


def make(
    hidden: Sequence[int] = (6, 5),
    *,
    n: int = 100,
    m: int = 2,
    wrong: bool = False,
    device: torch.device = CPU,
    batch_norm: bool = False,
    **config: Any,
) -> Problem:
    """Four classes in 8 features. With wrong labels, the validation loss soon rises."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(n) % 4
    X = (2 * rng.normal(size=(4, 8))[labels] + rng.normal(size=(n, 8))).astype(np.float32)
    tenth = np.arange(n) % 10
    means = np.stack([X[(tenth > 1) & (labels == label)].mean(axis=0) for label in range(4)])
    labels = np.where(wrong & (tenth == 1), (labels + 1) % 4, labels)
    of_data = X, labels, np.flatnonzero(tenth > 1), np.flatnonzero(tenth == 1)
    data = TrainingData(*(torch.from_numpy(array).to(device) for array in of_data))
    targets = CentroidTargets.fit(means, "span", device)
    generator = torch.Generator().manual_seed(0)
    network = Network(8, hidden, m, 3, "tanh", generator, batch_norm=batch_norm).to(device)
    defaults = TrainingConfig(batch_size=16, max_epochs=3, learning_rate=0.01)
    return Problem(network, Objective(targets), data, replace(defaults, **config))


def without_validation(problem: Problem) -> Problem:
    data = replace(problem.data, validation=problem.data.validation[:0])
    return replace(problem, data=data)


def same(one: Weights, other: Weights) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def after(n: int, answer: Callable[[], bool] = lambda: True) -> Callback:
    """Return a callback that stops or raises an error before batch n."""
    left = iter(range(n))
    return lambda report: report is None and next(left, None) is None and answer()


def interrupt() -> bool:
    raise KeyboardInterrupt


def test_reports_count_epochs_of_the_stage_and_steps_of_all_stages() -> None:
    problem = make((6, 5), pretrain_epochs=2, max_epochs=3, merge_epochs=1)
    reports, _ = problem.watched()
    assert [(r.stage, r.epoch, r.n_epochs, r.step) for r in reports] == [
        *((f"pretrain {i + 1}", j + 1, 2, 2 * i + j + 1) for i in range(3) for j in range(2)),
        *(("train", j + 1, 3, j + 7) for j in range(3)),
        ("merge", 1, 1, 10),
    ]
    assert {report.n_steps for report in reports} == {10}
    for report in reports:
        assert math.isfinite(report.loss)
        assert math.isnan(report.validation_loss) == (report.stage == "merge")
        assert math.isnan(report.validation_error) == (report.stage == "merge")
    outcome = without_validation(make(merge_epochs=3)).train()
    assert [report.stage for report in outcome.reports] == ["train"] * 3
    assert not outcome.interrupted


@pytest.mark.parametrize(
    ("hidden", "optimizer", "batch_norm"), [((), "amsgrad", False), ((6, 5, 4), "adamw", True)]
)
def test_pretraining_changes_two_layers_and_no_other_bit(
    hidden: tuple[int, ...], optimizer: str, batch_norm: bool
) -> None:
    # Weight decay changes weights without gradients.
    config = {"optimizer": optimizer, "weight_decay": 0.1, "dropout": 0.2, "pretrain_epochs": 2}
    problem = make(hidden, batch_norm=batch_norm, **config)
    network, before = problem.network, {}
    before |= {name: value.clone() for name, value in network.state_dict().items()}

    def callback(report: Report | None) -> bool:
        if report is not None and report.epoch == 2 and report.stage != "train":
            depth = int(report.stage.removeprefix("pretrain ")) - 1
            state = network.state_dict()
            changed = {
                name.rpartition(".")[0] for name in state if not state[name].equal(before[name])
            }
            norm = {f"norms.{depth}"} if batch_norm and depth < len(hidden) else set()
            assert changed == {f"encoder.{depth}", f"decoder.{len(hidden) - depth}"} | norm
            before.update({name: value.clone() for name, value in state.items()})
        return False

    problem.train(callback)
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not any(
        network.state_dict()[name].equal(before[name]) for name in before if "weight" in name
    )


def test_after_early_stopping_the_merge_starts_from_the_best_weights_with_all_rows() -> None:
    config = {"max_epochs": 40, "learning_rate": 0.02, "patience": 3, "merge_epochs": 2}
    problem = make(wrong=True, **config)
    history, at_start = [], []

    def callback(report: Report | None) -> bool:
        if report is None:
            at_start.append(problem.weights())
            return False
        rows = [problem.data.train]
        rows += [problem.data.validation] if report.stage == "merge" else []
        seen = torch.cat(problem.objective.batches).sort().values
        assert torch.equal(seen, torch.cat(rows).sort().values)
        problem.objective.batches.clear()
        history.append((report, problem.weights(), at_start[0]))
        at_start.clear()
        return False

    problem.train(callback)
    losses = [report.validation_loss for report, *_ in history if report.stage == "train"]
    best, n = int(np.argmin(losses)), len(losses)
    assert n - 1 - best == 3
    assert [report.stage for report, *_ in history[n:]] == ["merge"] * 2
    assert same(history[n][2], history[best][1])
    # Without validation rows, a merge keeps its last epoch.
    assert same(problem.weights(), history[-1][1])


@pytest.mark.parametrize("answer", [lambda: True, interrupt])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_stop_within_an_epoch_keeps_the_best_complete_epoch(answer: Any, wrong: bool) -> None:
    problem = make(wrong=wrong, max_epochs=30, learning_rate=0.02, merge_epochs=5)
    problem = problem if wrong else without_validation(problem)
    weights, stop = [], after(5 * 15 + 2, answer)

    def callback(report: Report | None) -> bool:
        weights.extend([problem.weights()] if report is not None else [])
        return stop(report)

    outcome = problem.train(callback)
    assert len(problem.objective.batches) == 5 * 15 + 2
    assert len(outcome.reports) == 15
    assert outcome.interrupted == (answer is interrupt)
    losses = [report.validation_loss for report in outcome.reports]
    assert same(problem.weights(), weights[int(np.argmin(losses)) if wrong else -1])


@pytest.mark.parametrize(("n", "batch_size"), [(1, 5), (7, 3), (70, 16), (31, 40), (29, 4)])
def test_batches_are_nearly_equal_and_hold_every_row_once(n: int, batch_size: int) -> None:
    problem = make(max_epochs=2, batch_size=batch_size)
    problem.data = replace(problem.data, train=problem.data.train[:n])
    problem.train()
    batches = problem.objective.batches
    sizes = [len(rows) for rows in batches]
    assert len(sizes) == 2 * math.ceil(n / batch_size)
    assert max(sizes) - min(sizes) <= 1
    half = len(batches) // 2
    first, second = torch.cat(batches[:half]), torch.cat(batches[half:])
    assert n == 1 or not torch.equal(first, second)
    for order in (first, second):
        assert torch.equal(order.sort().values, problem.data.train)


def several(folds: Tensor, hidden: tuple[int, ...] = (6,), **config: Any) -> Problem:
    """Networks side by side, each with its own inputs."""
    problem = without_validation(make(schedule="constant", **config))
    n_networks, generator = int(folds.max()) + 1, torch.Generator().manual_seed(0)
    network = Network(8, hidden, 3, 0, "relu", generator, n_networks=n_networks)
    factors = torch.linspace(0.5, 1.5, n_networks)[:, None, None]
    inputs = factors * problem.data.inputs
    data = replace(problem.data, inputs=inputs, folds=folds, train=torch.arange(100))
    return replace(problem, network=network, data=data)


def test_networks_trained_together_equal_networks_trained_alone(monkeypatch) -> None:
    monkeypatch.setattr(train, "has_bfloat16", lambda: False)
    folds = torch.arange(100) % 4
    # A batch holds all rows, so that their order does not matter.
    together = several(folds, max_epochs=8, batch_size=100)
    initial = [value.clone() for value in together.network.parameters()]
    together.train()
    for k in range(4):
        own = torch.nonzero(folds != k)[:, 0]
        data = replace(together.data, inputs=together.data.inputs[k], folds=None, train=own)
        alone = Network(8, (6,), 3, 0, "relu")
        with torch.no_grad():
            for parameter, value in zip(alone.parameters(), initial, strict=True):
                parameter.copy_(
                    value[k].mT if value.dim() == 3 and parameter.dim() == 2 else value[k]
                )
        replace(together, network=alone, data=data).train()
        for one, all_of in zip(alone.parameters(), together.network.parameters(), strict=True):
            expected = one.mT if one.dim() == 2 else one
            torch.testing.assert_close(all_of[k], expected, rtol=1e-3, atol=1e-5)


def test_products_in_bfloat16_change_the_training_by_their_rounding(monkeypatch) -> None:
    found = []
    for is_short in (False, True):
        monkeypatch.setattr(train, "has_bfloat16", lambda is_short=is_short: is_short)
        problem = several(torch.arange(100) % 4, (32, 16), max_epochs=20, batch_size=64)
        reports = problem.train().reports
        assert {value.dtype for value in problem.network.parameters()} == {torch.float32}
        found.append([report.loss for report in reports])
    assert found[0] != found[1]
    assert_allclose(*found, rtol=0.02)


def test_a_network_depends_on_no_row_of_its_fold() -> None:
    folds = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    noise = torch.eye(8).expand(3, 8, 8)
    plain, altered = several(folds), several(folds)
    inputs = altered.data.inputs.clone()
    inputs[:, folds == 1] += 100
    altered.data = replace(altered.data, inputs=inputs, noise=noise)
    plain.data = replace(plain.data, noise=noise)
    plain.train()
    altered.train()
    for one, other in zip(plain.network.parameters(), altered.network.parameters(), strict=True):
        assert torch.equal(one[1], other[1])
        assert not torch.equal(one[0], other[0])
        assert not torch.equal(one[2], other[2])
    # All networks receive the same number of rows; networks with fewer repeat them.
    epoch = torch.cat(plain.objective.batches[: math.ceil(90 / 16)], dim=1)
    assert epoch.shape == (3, 90)
    for k, rows in enumerate(epoch):
        assert_array_equal(np.unique(rows), torch.nonzero(folds != k)[:, 0])


@pytest.mark.parametrize("n", [2, 3])
def test_networks_in_several_threads_are_those_in_one(n: int) -> None:
    folds = torch.arange(100) % 4
    one, many = several(folds, dropout=0.2), several(folds, dropout=0.2)
    with threads(n):
        many.train()
        assert torch.get_num_threads() == n
        with one_thread():
            one.train()
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == n
    for a, b in zip(one.weights(), many.weights(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_results_of_threads_are_in_order_and_few_items_are_read_before() -> None:
    read, found, n_threads = list[int](), list[int](), set[int]()

    def items() -> Iterator[int]:
        for item in range(1, 21):
            read.append(item)
            yield item

    def work(item: int) -> int:
        n_threads.add(torch.get_num_threads())
        time.sleep(0.02 if item % 2 else 0)
        if item == 15:
            raise ValueError("fault")
        return item

    def collect() -> None:
        for result in in_threads(work, items(), 3):
            found.append(result)
            assert len(read) <= result + 3

    with pytest.raises(ValueError, match="fault"):
        collect()
    assert found == list(range(1, 15))
    assert n_threads == {1}
    # A loop that ends early ends the threads.
    n_before, results = threading.active_count(), in_threads(work, items(), 3)
    assert next(results) == 1
    results.close()  # type: ignore[attr-defined]
    assert threading.active_count() == n_before


@pytest.mark.parametrize("answer", [lambda: True, interrupt])
def test_a_stop_ends_the_networks_of_all_threads(answer: Any) -> None:
    problem, weights = several(torch.arange(100) % 4, max_epochs=9), list[Weights]()
    stop = after(5 * 5 + 2, answer)

    def callback(report: Report | None) -> bool:
        weights.extend([problem.weights()] if report is not None else [])
        return stop(report)

    with threads(2):
        outcome = problem.train(callback)
    assert len(outcome.reports) == len(weights) == 5
    assert same(problem.weights(), weights[-1])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.999])
def test_dropout_zeroes_its_share_and_keeps_the_mean(share: float) -> None:
    ones, generators = torch.ones(1, 4000, 13), [torch.Generator().manual_seed(0)]
    found, again = (dropped(ones, share, generators)[0] for _ in range(2))
    deviation = math.sqrt(share * (1 - share) / ones.numel())
    assert float((found == 0).double().mean()) == pytest.approx(share, abs=5 * deviation)
    assert float(found.double().mean()) == pytest.approx(1, abs=1e-6 + 5 * deviation / (1 - share))
    assert torch.equal(found, again) == (share == 0)
    if 0 < share < 0.9:
        correlation = np.corrcoef(found.T.numpy()) - np.eye(13)
        assert np.abs(correlation).max() < 5 / math.sqrt(4000)


@pytest.mark.parametrize("optimizer", ["adamw", "amsgrad"])
def test_steps_are_those_of_torch_optim(optimizer: Any) -> None:
    config = TrainingConfig(1, 1, optimizer=optimizer, learning_rate=0.05, weight_decay=0.1)
    start, generator = torch.randn(20), torch.Generator().manual_seed(0)
    own, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    kind = torch.optim.AdamW if optimizer == "adamw" else torch.optim.Adam
    reference = kind([theirs], lr=0.05, weight_decay=0.1, amsgrad=optimizer == "amsgrad")
    adam = Adam([own], config)
    for i in range(20):
        rate = 0.05 * (i + 1) / 20
        own.grad = torch.randn(20, generator=generator) * (10 if i == 3 else 1)
        theirs.grad = own.grad.clone()
        adam.learning_rate.fill_(rate)
        reference.param_groups[0]["lr"] = rate
        adam.step([own.grad])
        reference.step()
    torch.testing.assert_close(own, theirs)


def test_a_linear_network_reaches_the_weighted_least_squares_optimum() -> None:
    weights = (0.1, 0.4, 2.0, 1.5)
    problem = make((), n=200, m=3, batch_size=200, max_epochs=600, learning_rate=0.1)
    everything = torch.arange(200)
    changes = {"train": everything, "validation": everything[:0], "weights": torch.tensor(weights)}
    problem.data = replace(problem.data, **changes)
    problem.train()
    labels, X = problem.data.labels.numpy(), problem.data.inputs.double().numpy()
    w, Y = np.array(weights)[labels], problem.objective.targets.coordinates.numpy()[labels]
    root, design = np.sqrt(w)[:, None], np.column_stack([X, np.ones(200)])
    best = design @ np.linalg.lstsq(root * design, root * Y, rcond=None)[0]
    found = problem.output(everything).numpy()
    losses = [np.mean(w[:, None] * (f - Y) ** 2) for f in (found, best)]
    assert losses[1] * (1 - 1e-5) <= losses[0] <= losses[1] * 1.001 + 1e-6


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_the_cpu_and_with_itself() -> None:
    config = {"n": 200, "pretrain_epochs": 2, "max_epochs": 20, "merge_epochs": 2}
    cuda = torch.device("cuda")
    problems = [make(**config), *(make(device=cuda, **config) for _ in range(2))]
    one, other, again = (problem.train().reports for problem in problems)
    assert same(problems[1].weights(), problems[2].weights())
    assert [report.loss for report in other] == [report.loss for report in again]
    assert_allclose([r.loss for r in other], [r.loss for r in one], rtol=0.02)
    noisy = make(device=cuda, dropout=0.3, max_epochs=20)
    assert noisy.train().reports[-1].loss < 1
