"""Training of the networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from centroid_encoder.core.matrix import CHUNK
from centroid_encoder.core.network import Network
from centroid_encoder.core.optimization import Adam, TrainingConfig, captured, learning_rate_share
from centroid_encoder.core.reports import Callback, Frame, Report, StoppedTooEarly
from centroid_encoder.core.targets import Batch, Objective
from centroid_encoder.core.threads import one_thread
from centroid_encoder.errors import DivergedError, check


@dataclass(frozen=True)
class TrainingData:
    """Inputs of the networks, labels, and the rows that train and validate."""

    inputs: Tensor
    """(n, k) float32, or (K, n, k) for K networks side by side."""
    labels: Tensor
    """(n,) class index of each row; rows outside `train` and `validation` are ignored."""
    train: Tensor
    """(n_train,) rows that are trained on."""
    validation: Tensor
    """(n_validation,) rows by which the best epoch is chosen, until they are merged back."""
    weights: Tensor | None = None
    """(n_classes,) weight of the samples of each class, mean 1 over the training rows."""
    folds: Tensor | None = None
    """(n,) for each row the one of K networks that is not trained on it, or −1; None for K = 1."""
    noise: Tensor | None = None
    """(K, k, k) matrices L of Gaussian noise with covariance L Lᵀ; None for dropout."""

    def noisy(self, rows: Tensor, share: float, generators: Sequence[torch.Generator]) -> Tensor:
        """Inputs with noise: (K, b, k) for (K, b) rows, or (b, k) for (b,) rows.

        `share` is the share of values that dropout sets to zero. Each network has a generator of
        its own.
        """
        if self.inputs.dim() == 2:
            return dropped(self.inputs[rows][None], share, generators)[0]
        n_networks, n, width = self.inputs.shape
        first = torch.arange(n_networks, device=rows.device)[:, None] * n
        # `embedding` selects rows in a third of the time of indexing with two tensors.
        inputs = embedding(rows + first, self.inputs.view(-1, width))
        if self.noise is None:
            return dropped(inputs, share, generators)
        drawn = torch.empty_like(inputs)
        for of_network, generator in zip(drawn, generators, strict=True):
            of_network.normal_(generator=generator)
        return torch.baddbmm(inputs, drawn, self.noise.mT)


def dropped(x: Tensor, share: float, generators: Sequence[torch.Generator]) -> Tensor:
    """Set a share of (K, b, k) values to zero, and scale the others to keep the expectation."""
    if not share:
        return x
    # Four random numbers are taken from each word, in a quarter of the time of four floats.
    n = x[0].numel()
    words = torch.empty((len(x), math.ceil(n / 4)), dtype=torch.int64, device=x.device)
    for of_network, generator in zip(words, generators, strict=True):
        of_network.random_(-(2**63), None, generator=generator)
    noise = words.view(torch.int16)[:, :n].view_as(x)
    return x * (noise >= round(2**16 * share) - 2**15) * (1 / (1 - share))


SHORT_FROM = 64
"""Smallest batch with products in bfloat16; for fewer rows, its conversions take too long."""


def has_bfloat16() -> bool:
    """Whether the processor has instructions for products of bfloat16 matrices.

    They take at most half the time of products in float32. Early versions of PyTorch do not list
    the instructions.
    """
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(found.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


@dataclass
class Run:
    """A training of `network` in place; `start` begins it.

    The stages are those of the paper: layer-freeze pre-training (if any), training, and training
    with the validation rows merged back (if any). In the end the network has the weights of the
    epoch with the smallest validation loss, or those of the last epoch if there are no validation
    rows. This also holds if `callback` or a KeyboardInterrupt ends the training.

    The network must be initialised, and on the device of the data. The CPU `generator` is the only
    source of randomness. `frame` computes the embedding in reports from the encoder's output for
    all rows; by default, it is the output.

    On a CPU, networks are trained in as many threads as PyTorch and the process may use, and each
    of them computes in one thread. Threads that share a step wait for each other at every
    operation, which takes ten times as long when other programs use the cores as well. The number
    of threads changes the results by rounding only.

    On a CPU that has instructions for it, the matrix products of several networks are computed in
    bfloat16; the loss, the weights and their changes are float32. The inputs have noise that is
    larger than this rounding, and held-out errors are the same (docs/benchmarks.md). `autocast`
    would leave a global state behind if Ctrl-C came while it is set.
    """

    network: Network
    objective: Objective
    data: TrainingData
    config: TrainingConfig
    generator: torch.Generator
    callback: Callback = lambda report: False
    frame: Callable[[Tensor], Frame | None] = lambda outputs: (outputs.cpu().numpy(), None)
    reports: list[Report] = field(default_factory=list)
    """One report for each epoch."""
    stopped: bool = False
    """Whether it was ended early."""
    interrupted: bool = False
    """Whether a KeyboardInterrupt ended it early."""

    def start(self) -> Run:
        """Train, and return the run itself.

        Raises
        ------
        StoppedTooEarly, KeyboardInterrupt
            If `callback` or Ctrl-C ends the training before the end of its first epoch.
        DivergedError
            If the loss is not finite.
        """
        config, data, n_networks = self.config, self.data, self.network.n_networks
        n_stages = len(self.network.encoder) if config.pretrain_epochs else 0
        n_merge = config.merge_epochs if len(data.validation) else 0
        self.n_steps = n_stages * config.pretrain_epochs + config.max_epochs + n_merge
        # Noise is drawn on the device of the data.
        device = data.inputs.device
        seeds = torch.randint(2**62, (n_networks,), generator=self.generator)
        self.noise = [torch.Generator(device).manual_seed(seed) for seed in seeds.tolist()]
        with one_thread() as n_threads:
            n_parts = min(n_threads, n_networks) if device.type == "cpu" else 1
            ends = np.linspace(0, n_networks, n_parts + 1).astype(int).tolist()
            self.parts = [slice(*part) for part in pairwise(ends)] if n_parts > 1 else [slice(None)]
            try:
                for depth in range(n_stages):
                    self.pretrain(depth)
                self.train("train", config.max_epochs, data.train, data.validation)
                if n_merge and not self.stopped:
                    everything = torch.cat([data.train, data.validation])
                    self.train("merge", config.merge_epochs, everything, everything[:0])
            finally:
                self.network.eval()
        return self

    @property
    def notice(self) -> str:
        """Text of a warning that the training was interrupted."""
        epochs = f"{self.reports[-1].step} of {self.reports[-1].n_steps} epochs"
        return f"training was interrupted after {epochs}; the best state so far is kept"

    def pretrain(self, depth: int) -> None:
        """Train the two layers that stage `depth` adds; all other layers stay as they are."""
        stage, n_epochs = f"pretrain {depth + 1}", self.config.pretrain_epochs
        data = self.data
        for report in self.epochs(stage, n_epochs, data.train, data.validation, depth):
            self.stopped = self.callback(report)
            if self.stopped:
                break
        if self.stopped:
            raise StoppedTooEarly

    def train(self, stage: str, n_epochs: int, rows: Tensor, validation: Tensor) -> None:
        """Train all layers; in the end, the network has the best weights of the stage."""
        # Buffers hold the running statistics of batch normalisation.
        state = [*self.network.parameters(), *self.network.buffers()]
        best_loss, since_best = math.inf, 0
        # After an interruption in its first epoch, a merge returns to the state before.
        best = None if stage == "train" else _copied(state)
        try:
            for report in self.epochs(stage, n_epochs, rows, validation):
                since_best += 1
                if not len(validation) or report.validation_loss < best_loss:
                    best_loss, since_best, best = report.validation_loss, 0, _copied(state)
                self.stopped = self.callback(report)
                if self.stopped or since_best == self.config.patience:
                    break
        except KeyboardInterrupt:
            if best is None:
                raise
            self.stopped = self.interrupted = True
        if best is None:
            raise StoppedTooEarly
        with torch.no_grad():
            for tensor, value in zip(state, best, strict=True):
                tensor.copy_(value)

    def epochs(
        self, stage: str, n_epochs: int, rows: Tensor, validation: Tensor, depth: int | None = None
    ) -> Iterator[Report]:
        """Train all layers or, in pre-training, those that stage `depth` adds.

        Yields a report after each epoch.
        """
        config, data, network = self.config, self.data, self.network
        network.eval()
        runs = [self.trained(part, depth) for part in self.parts]
        folds = torch.full_like(rows, -1) if data.folds is None else data.folds[rows]
        of_networks = [rows[folds != k] for k in range(network.n_networks)]
        for epoch in range(n_epochs):
            network.train()
            order = self.order(of_networks)
            # Batches of nearly equal size, because the gradient of a small one is mostly noise.
            batches = order.tensor_split(math.ceil(order.shape[-1] / config.batch_size), dim=-1)
            shares = [
                learning_rate_share((epoch + i / len(batches)) / n_epochs, config)
                for i in range(len(batches))
            ]
            totals = self.side_by_side([partial(run, batches, shares) for run in runs])
            if self.stopped:
                return
            network.eval()
            loss = float(sum(totals)) / order.shape[-1]
            validation_loss, error = self.validate(validation, depth)
            fits = math.isfinite(loss + (validation_loss if len(validation) else 0))
            text = f"training diverged in epoch {epoch + 1} of {stage!r}: the loss is not finite"
            check(fits, f"{text}; a smaller learning_rate helps", "learning_rate", DivergedError)
            progress = stage, epoch + 1, n_epochs, len(self.reports) + 1, self.n_steps
            report = Report(*progress, loss, validation_loss, error)
            self.reports.append(report)
            if depth is None:
                report = replace(report, frame=lambda: self.frame(self.codes()))
            yield report

    def trained(
        self, part: slice, depth: int | None
    ) -> Callable[[Sequence[Tensor], list[float]], Tensor]:
        """Return a function that trains a part of the networks on batches.

        It is called with the rows of the batches of all networks, and with their shares of the
        learning rate. It returns the sum of the losses of all rows.
        """
        config, network, data, noise = self.config, self.network, self.data, self.noise[part]
        if len(self.parts) > 1:
            noises = None if data.noise is None else data.noise[part]
            data = replace(data, inputs=data.inputs[part], noise=noises)
            network = network.some(part)
        parameters = (
            list(network.parameters()) if depth is None else network.stage_parameters(depth)
        )
        adam, share_of_all = Adam(parameters, config), len(noise) / self.network.n_networks
        # The output of the earlier layers does not change, so it is computed once.
        codes = self.codes(depth - 1) if depth else None
        is_short = config.batch_size >= SHORT_FROM and data.inputs.device.type == "cpu"
        is_short &= self.network.n_networks > 1 and has_bfloat16()

        def step(batch: Tensor) -> Tensor:
            inputs = data.noisy(batch, config.dropout, noise) if codes is None else codes[batch]
            inputs = inputs.bfloat16() if is_short else inputs
            code = network.encode(inputs, first=depth or 0, depth=depth).float()
            loss = share_of_all * self.loss(batch, code, depth)[0]
            adam.step(torch.autograd.grad(loss, parameters))
            return loss.detach()

        take, stops = captured(step, noise), part == self.parts[0]

        def run(batches: Sequence[Tensor], shares: list[float]) -> Tensor:
            total = torch.zeros((), device=noise[0].device)
            for batch, share in zip(batches, shares, strict=True):
                if stops and self.callback(None):
                    self.stopped = True
                if self.stopped:
                    break
                adam.learning_rate.fill_(config.learning_rate * share)
                total += take(batch[part]) * batch.shape[-1]
            return total

        return run

    def side_by_side(self, runs: list[Callable[[], Tensor]]) -> list[Tensor]:
        """Run the first function here and the others in threads, each with one thread of torch."""
        first, *others = runs
        limit: Any = {"initializer": torch.set_num_threads, "initargs": (1,)}
        with ThreadPoolExecutor(max(len(others), 1), **limit) as pool:
            started = [pool.submit(run) for run in others]
            try:
                return [first(), *(one.result() for one in started)]
            except BaseException:
                self.stopped = True
                raise

    def order(self, of_networks: list[Tensor]) -> Tensor:
        """(n,) rows of a network in random order, or (K, n) rows of K networks.

        In an epoch, all networks receive as many rows as the network with the most has. A network
        with fewer rows repeats them in a new order.
        """
        most, orders = max(map(len, of_networks)), []
        for rows in of_networks:
            passes = [
                rows[torch.randperm(len(rows), generator=self.generator).to(rows.device)]
                for _ in range(math.ceil(most / len(rows)))
            ]
            orders.append(torch.cat(passes)[:most])
        return orders[0] if self.network.n_networks == 1 else torch.stack(orders)

    def loss(self, rows: Tensor, code: Tensor, depth: int | None) -> tuple[Tensor, Batch]:
        """Loss of rows with a code at encoder layer `depth`, and their batch."""
        labels = self.data.labels[rows]
        weights = None if self.data.weights is None else self.data.weights[labels]
        batch = Batch(rows, labels, weights, code, self.network.decode(code, depth=depth))
        return self.objective.loss(batch), batch

    @torch.no_grad()
    def validate(self, rows: Tensor, depth: int | None) -> tuple[float, float]:
        """Loss of rows, and the share of them that are nearest to another class's centroid."""
        if not len(rows):
            return math.nan, math.nan
        total, n_wrong = 0.0, 0
        for part in rows.split(CHUNK):
            loss, batch = self.loss(part, self.codes(depth, part), depth)
            total += float(loss) * len(part)
            nearest = self.objective.distances(batch.output).argmin(dim=1)
            n_wrong += int((nearest != batch.labels).sum())
        return total / len(rows), n_wrong / len(rows)

    @torch.no_grad()
    def codes(self, depth: int | None = None, rows: Tensor | None = None) -> Tensor:
        """Output of encoder layer `depth`, by default the last, without noise.

        Without `rows`, of all rows; each row then has the output of the network of its fold.
        """
        parts, folds = [], None if rows is not None else self.data.folds
        index = torch.arange(len(self.data.labels), device=self.data.labels.device)
        for part in (index if rows is None else rows).split(CHUNK):
            inputs = self.data.inputs[..., part, :]
            if self.network.n_networks == 1:
                parts.append(self.network.encode(inputs, depth=depth))
            else:
                parts.append(self.network.outputs(inputs, None if folds is None else folds[part]))
        return torch.cat(parts)


def _copied(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]
