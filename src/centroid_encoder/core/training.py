"""One training loop: a generator of per-epoch reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from centroid_encoder.core.network import Network
from centroid_encoder.core.objective import Batch, Objective
from centroid_encoder.core.optimization import (
    Adam,
    TrainingConfig,
    flushed_denormals,
    learning_rate_share,
)
from centroid_encoder.core.reports import Outcome, Report, Shown, StoppedTooEarly, never
from centroid_encoder.core.rows import Rows
from centroid_encoder.core.steps import Steps
from centroid_encoder.errors import DivergedError, Setting

MIN_NORMALIZED = 3
"""Smallest batch size with batch normalisation: no batch is then of one row."""


@dataclass(frozen=True)
class TrainingData:
    """Rows with class indices, and which of them train and which validate. Nothing is copied."""

    rows: Rows
    labels: Tensor
    """(n_rows,) class index of every row; rows outside `train` and `validation` are ignored."""
    train: Tensor
    """Indices of the rows that shape the weights."""
    validation: Tensor
    """Indices of the rows that only say when to stop, until they are merged back."""
    weights: Tensor | None = None
    """(n_classes,) weight of a class's samples, mean 1 over the training rows."""
    folds: Tensor | None = None
    """(n_rows,) for networks side by side, which of them is not trained on a row; −1 for none."""


def _as_it_is(codes: Tensor) -> Shown:
    return codes.cpu().numpy(), None


def train(
    network: Network,
    objective: Objective,
    data: TrainingData,
    config: TrainingConfig,
    generator: torch.Generator,
    *,
    stop: Callable[[], bool] = never,
    snapshot: Callable[[], bool] = never,
    place: Callable[[Tensor], Shown] = _as_it_is,
) -> Generator[Report, None, Outcome]:
    """Train `network` in place, yielding one report per epoch.

    Layer-freeze pre-training (if any), training, and training on with the validation rows merged
    back (if any), as in the paper. When the generator returns, the network carries
    the weights of the epoch with the smallest validation loss, or the last ones where there are no
    validation rows; also when `stop` said so, or when a KeyboardInterrupt arrived.

    Parameters
    ----------
    network
        Initialised network on the device of `data`; left in evaluation mode.
    objective
        What to minimise.
    data, config
        What to train on, and how.
    generator
        CPU generator: the only source of randomness.
    stop
        Asked before every batch, and while noise is made; True ends the training and keeps the best
        state.
    snapshot
        Asked after every epoch in which there is an embedding: of training, merge and the last
        stage of pre-training. True puts it into the report.
    place
        Makes what is shown of what the encoder says of all rows; by default, that is the embedding.

    Returns
    -------
    Outcome
        The value of the generator (of ``yield from``).

    Raises
    ------
    StoppedTooEarly
        `stop` said so before the first training epoch was over.
    KeyboardInterrupt
        If it arrived before the first training epoch was over.
    DivergedError
        If the loss is not finite: training diverged.
    """
    loop = _Loop(network, objective, data, config, generator, stop, snapshot, place)
    if config.pretrain_epochs:
        for depth in range(network.n_stages):
            yield from loop.pretrain(depth)
    yield from loop.train()
    if config.merge_epochs and len(data.validation) and not loop.stopped:
        yield from loop.merge()
    return Outcome(loop.reports, loop.interrupted, config.batch_size)


@dataclass
class _Loop:
    """What the stages of one training share."""

    network: Network
    objective: Objective
    data: TrainingData
    config: TrainingConfig
    generator: torch.Generator
    stop: Callable[[], bool]
    snapshot: Callable[[], bool]
    place: Callable[[Tensor], Shown]
    stopped: bool = False
    interrupted: bool = False
    reports: list[Report] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network.eval()
        config = self.config
        self.batch_size = config.batch_size
        n_merge = config.merge_epochs if len(self.data.validation) else 0
        self.n_steps = config.pretrain_epochs * self.network.n_stages + config.max_epochs + n_merge
        # Dropout masks are drawn where the data are.
        seed = int(torch.randint(2**62, (), generator=self.generator))
        self.noise = torch.Generator(self.data.rows.device).manual_seed(seed)

    def pretrain(self, depth: int) -> Iterator[Report]:
        """Train the two layers that stage `depth` adds, everything older frozen."""
        trained = self.network.stage_parameters(depth)
        self.network.requires_grad_(False)
        for parameter in trained:
            parameter.requires_grad_(True)
        # The frozen encoder always says the same: ask it once.
        codes = self._codes(depth - 1) if depth else None
        try:
            yield from self._stage(
                f"pretrain {depth + 1}",
                self.config.pretrain_epochs,
                trained,
                self.data.train,
                self.data.validation,
                depth,
                codes,
            )
        finally:
            self.network.requires_grad_(True)
        if self.stopped:
            raise StoppedTooEarly

    def train(self) -> Iterator[Report]:
        """Train all layers."""
        yield from self._keep_best("train", self.config.max_epochs, self.data.train)

    def merge(self) -> Iterator[Report]:
        """Train on with the validation rows among the training rows."""
        everything = torch.cat([self.data.train, self.data.validation])
        yield from self._keep_best("merge", self.config.merge_epochs, everything)

    def _keep_best(self, stage: str, n_epochs: int, train: Tensor) -> Iterator[Report]:
        """Run a stage on all layers and leave the network with the stage's best weights."""
        validation = self.data.validation if stage == "train" else train[:0]
        parameters = list(self.network.parameters())
        # What makes the map: with batch normalisation, its running statistics too.
        state = [*parameters, *self.network.buffers()]
        best_loss, since_best = math.inf, 0
        # What a merge that is cut short in its first epoch goes back to.
        best = None if stage == "train" else _copied(state)
        depth = self.network.n_stages - 1
        try:
            for report in self._stage(stage, n_epochs, parameters, train, validation, depth):
                # Without validation rows the latest epoch is the best.
                if not len(validation) or report.validation_loss < best_loss:
                    best_loss, since_best = report.validation_loss, 0
                    best = _copied(state)
                else:
                    since_best += 1
                yield report
                if since_best == self.config.patience:
                    break
        except KeyboardInterrupt:
            if best is None:
                raise
            self.stopped = self.interrupted = True
        if best is None:
            raise StoppedTooEarly
        _copy(best, state)

    def _stage(
        self,
        name: str,
        n_epochs: int,
        parameters: list[torch.nn.Parameter],
        train: Tensor,
        validation: Tensor,
        depth: int,
        codes: Tensor | None = None,
    ) -> Iterator[Report]:
        """Minimise the objective over `parameters` with encoder and decoder meeting at `depth`."""
        adam = Adam(parameters, self.config)
        first = 0 if codes is None else depth
        gradients = partial(self._gradients, adam, first, depth)
        fixed = codes is not None or self.data.rows.fixed
        gather = partial(self._inputs, codes)
        step = Steps(gather, gradients, adam.step, self.noise, fixed=fixed)
        own = self._of_networks(train)
        for epoch in range(n_epochs):
            with flushed_denormals():
                loss = self._epoch(adam, step, epoch / n_epochs, n_epochs, own)
                if self.stopped:
                    return
                report = self._report(name, epoch, n_epochs, loss, validation, depth)
            yield report

    def _report(
        self, name: str, epoch: int, n_epochs: int, loss: float, validation: Tensor, depth: int
    ) -> Report:
        """Validate, after an epoch, and keep what is to be told of it."""
        validation_loss, validation_error = self._validate(validation, depth)
        if not math.isfinite(loss + (validation_loss if len(validation) else 0)):
            raise DivergedError(
                "training diverged in epoch {} of {}: the loss is not finite; a smaller {} helps",
                epoch + 1,
                repr(name),
                Setting("learning_rate"),
            )
        report = Report(
            stage=name,
            epoch=epoch + 1,
            n_epochs=n_epochs,
            step=len(self.reports) + 1,
            n_steps=self.n_steps,
            loss=loss,
            validation_loss=validation_loss,
            validation_error=validation_error,
            batch_size=self.batch_size,
        )
        self.reports.append(report)
        if depth < self.network.n_stages - 1 or not self.snapshot():
            return report
        embedding, centers = self.place(self._codes(depth))
        return replace(report, embedding=embedding, centers=centers)

    def _epoch(
        self,
        adam: Adam,
        step: Callable[[Tensor], Tensor],
        progress: float,
        n_epochs: int,
        own: list[Tensor],
    ) -> float:
        """One pass over the rows of each network in random order; return the mean loss."""
        self.network.train()
        try:
            order, done = self._order(own), 0
            total = torch.zeros((), device=order.device)
            for batch in self._draw(order):
                share = learning_rate_share(
                    progress + done / order.shape[-1] / n_epochs, self.config
                )
                adam.learning_rate = self.config.learning_rate * share
                try:
                    if self.stop():
                        self.stopped = True
                        break
                    loss = step(batch)
                except torch.OutOfMemoryError:
                    size = batch.shape[-1]
                    if size < 2 * (MIN_NORMALIZED if self.network.norms else 1):
                        raise
                    self.batch_size = size // 2
                    continue
                total += loss * batch.shape[-1]
                done += batch.shape[-1]
            return float(total) / max(done, 1)
        finally:
            self.network.eval()

    def _of_networks(self, train: Tensor) -> list[Tensor]:
        """Of the rows `train`, those that each of K networks side by side is trained on."""
        if self.data.folds is None:
            return [train]
        folds = self.data.folds[train]
        return [train[folds != k] for k in range(self.network.n_networks)]

    def _order(self, own: list[Tensor]) -> Tensor:
        """(n,) rows of a network in random order.

        For K networks side by side (K, n): each has an order of its own, and as many rows as the
        network with the most. A network with fewer sees its own again, in a new order.
        """
        most = max(map(len, own))
        orders = []
        for rows in own:
            passes = [self._shuffled(rows) for _ in range(math.ceil(most / len(rows)))]
            orders.append(torch.cat(passes)[:most])
        return orders[0] if self.data.folds is None else torch.stack(orders)

    def _shuffled(self, rows: Tensor) -> Tensor:
        return rows[torch.randperm(len(rows), generator=self.generator).to(rows.device)]

    def _draw(self, order: Tensor) -> Iterator[Tensor]:
        """Draw the batches of an epoch in the (n,) or (K, n) order of its rows.

        A batch after which `batch_size` is smaller did not fit, and is drawn again in parts.
        """
        n, done = order.shape[-1], 0
        while done < n:
            asked = self.batch_size
            # Batches of nearly equal size: a last batch of one row would shake the weights.
            n_left = n - done
            batch = order[..., done : done + math.ceil(n_left / math.ceil(n_left / asked))]
            yield batch
            if self.batch_size == asked:
                done += batch.shape[-1]

    def _inputs(self, codes: Tensor | None, rows: Tensor) -> Tensor:
        """Inputs of a batch: its rows with noise, or the frozen encoder's output for them."""
        if codes is not None:
            return codes[rows]
        return self.data.rows.noisy(rows, self.config.dropout, self.noise)

    def _gradients(
        self, adam: Adam, first: int, depth: int, rows: Tensor, inputs: Tensor
    ) -> Tensor:
        """Leave the gradients of a batch with the parameters and return its loss."""
        adam.zero_grad()
        code = self.network.encode(inputs, first=first, depth=depth)
        output = self.network.decode(code, depth=depth)
        loss = self.objective.loss(self._batch(rows, code, output))
        loss.backward()
        return loss.detach()

    def _batch(self, rows: Tensor, code: Tensor, output: Tensor) -> Batch:
        labels = self.data.labels[rows]
        weights = None if self.data.weights is None else self.data.weights[labels]
        return Batch(rows, labels, weights, code, output)

    @torch.no_grad()
    def _validate(self, rows: Tensor, depth: int) -> tuple[float, float]:
        """Loss and share of rows that are nearest to another class's centroid."""
        if not len(rows):
            return math.nan, math.nan
        loss, wrong, decided = 0.0, 0, True
        for part, inputs in self.data.rows.batches(rows):
            code = self._code(inputs, depth)
            batch = self._batch(part, code, self.network.decode(code, depth=depth))
            loss += float(self.objective.loss(batch)) * len(part)
            distances = self.objective.distances(batch.output)
            if distances is None:
                decided = False
            else:
                wrong += int((distances.argmin(dim=1) != batch.labels).sum())
        return loss / len(rows), wrong / len(rows) if decided else math.nan

    @torch.no_grad()
    def _codes(self, depth: int) -> Tensor:
        """Encoder output at `depth` for all rows, without input noise."""
        folds = self.data.folds
        return torch.cat(
            [
                self._code(inputs, depth, None if folds is None else folds[part])
                for part, inputs in self.data.rows.batches()
            ]
        )

    def _code(self, inputs: Tensor, depth: int, folds: Tensor | None = None) -> Tensor:
        if self.network.n_networks > 1:
            return self.network.outputs(inputs, folds)
        return self.network.encode(inputs, depth=depth)


def _copied(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


@torch.no_grad()
def _copy(values: list[Tensor], tensors: list[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
