"""Training of the networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import embedding

from centroid_encoder.core.matrix import CHUNK
from centroid_encoder.core.network import Network
from centroid_encoder.core.optimization import Adam, TrainingConfig, captured, learning_rate_share
from centroid_encoder.core.reports import Callback, Frame, Outcome, Report, StoppedTooEarly
from centroid_encoder.core.targets import Batch, Objective
from centroid_encoder.errors import DivergedError

MIN_NORMALIZED = 3  # smallest batch size with batch normalisation: no batch may have one row


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

    def noisy(self, rows: Tensor, share: float, generator: torch.Generator) -> Tensor:
        """Inputs with noise: (K, b, k) for (K, b) rows, or (b, k) for (b,) rows.

        `share` is the share of values that dropout sets to zero.
        """
        if self.inputs.dim() == 2:
            return dropped(self.inputs[rows], share, generator)
        n_networks, n, width = self.inputs.shape
        first = torch.arange(n_networks, device=rows.device)[:, None] * n
        # `embedding` selects rows in a third of the time of indexing with two tensors.
        inputs = embedding(rows + first, self.inputs.view(-1, width))
        if self.noise is None:
            return dropped(inputs, share, generator)
        drawn = torch.randn(inputs.shape, device=inputs.device, generator=generator)
        return torch.baddbmm(inputs, drawn, self.noise.mT)


def dropped(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Set a share of the values to zero, and scale the others to keep the expectation."""
    if not share:
        return x
    # Four random numbers are taken from each word, in a quarter of the time of four floats.
    words = torch.empty(math.ceil(x.numel() / 4), dtype=torch.int64, device=x.device)
    words.random_(-(2**63), None, generator=generator)
    noise = words.view(torch.int16)[: x.numel()].view_as(x)
    return x * (noise >= round(2**16 * share) - 2**15) * (1 / (1 - share))


def train(
    network: Network,
    objective: Objective,
    data: TrainingData,
    config: TrainingConfig,
    generator: torch.Generator,
    *,
    callback: Callback = lambda report: False,
    frame: Callable[[Tensor], Frame | None] = lambda outputs: (outputs.cpu().numpy(), None),
) -> Outcome:
    """Train `network` in place.

    The stages are those of the paper: layer-freeze pre-training (if any), training, and training
    with the validation rows merged back (if any). In the end the network has the weights of the
    epoch with the smallest validation loss, or those of the last epoch if there are no validation
    rows. This also holds if `callback` or a KeyboardInterrupt ends the training.

    The network must be initialised, and on the device of the data. The CPU `generator` is the only
    source of randomness. `frame` computes the embedding in reports from the encoder's output for
    all rows; by default, it is the output.

    Raises
    ------
    StoppedTooEarly, KeyboardInterrupt
        If `callback` or Ctrl-C ends the training before the end of its first epoch.
    DivergedError
        If the loss is not finite.
    """
    run = _Run(network, objective, data, config, generator, callback, frame)
    try:
        for depth in range(len(network.encoder) if config.pretrain_epochs else 0):
            run.pretrain(depth)
        run.train("train", config.max_epochs, data.train, data.validation)
        if run.n_merge and not run.stopped:
            everything = torch.cat([data.train, data.validation])
            run.train("merge", config.merge_epochs, everything, everything[:0])
    finally:
        network.eval()
    return Outcome(run.reports, run.interrupted, run.stopped)


@dataclass
class _Run:
    """State of a training across its stages."""

    network: Network
    objective: Objective
    data: TrainingData
    config: TrainingConfig
    generator: torch.Generator
    callback: Callback
    frame: Callable[[Tensor], Frame | None]
    stopped: bool = False
    interrupted: bool = False
    reports: list[Report] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.config
        self.n_merge = config.merge_epochs if len(self.data.validation) else 0
        n_pretrain = len(self.network.encoder) * config.pretrain_epochs
        self.n_steps = n_pretrain + config.max_epochs + self.n_merge
        # Noise is drawn on the device of the data.
        seed = int(torch.randint(2**62, (), generator=self.generator))
        self.noise = torch.Generator(self.data.inputs.device).manual_seed(seed)

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
        config, data, network, noise = self.config, self.data, self.network, self.noise
        network.eval()
        parameters = (
            list(network.parameters()) if depth is None else network.stage_parameters(depth)
        )
        adam, first, codes = Adam(parameters, config), 0, None
        if depth:
            # The output of the earlier layers does not change, so it is computed once.
            first, codes = depth, self.codes(depth - 1)

        def step(batch: Tensor) -> Tensor:
            inputs = data.noisy(batch, config.dropout, noise) if codes is None else codes[batch]
            loss = self.loss(batch, network.encode(inputs, first=first, depth=depth), depth)[0]
            adam.step(torch.autograd.grad(loss, parameters))
            return loss.detach()

        take = captured(step, noise)
        of_networks = [rows]
        if network.n_networks > 1 and data.folds is not None:
            folds = data.folds[rows]
            of_networks = [rows[folds != k] for k in range(network.n_networks)]
        for epoch in range(n_epochs):
            network.train()
            order, total = self.order(of_networks), torch.zeros((), device=rows.device)
            # Batches of nearly equal size, because the gradient of a small one is mostly noise.
            batches = order.tensor_split(math.ceil(order.shape[-1] / config.batch_size), dim=-1)
            for i, batch in enumerate(batches):
                if self.callback(None):
                    self.stopped = True
                    return
                share = learning_rate_share((epoch + i / len(batches)) / n_epochs, config)
                adam.learning_rate.fill_(config.learning_rate * share)
                total += take(batch) * batch.shape[-1]
            network.eval()
            loss = float(total) / order.shape[-1]
            validation_loss, error = self.validate(validation, depth)
            if not math.isfinite(loss + (validation_loss if len(validation) else 0)):
                raise DivergedError(
                    f"training diverged in epoch {epoch + 1} of {stage!r}: the loss is not finite; "
                    "a smaller learning_rate helps",
                    parameter="learning_rate",
                )
            progress = stage, epoch + 1, n_epochs, len(self.reports) + 1, self.n_steps
            report = Report(*progress, loss, validation_loss, error)
            self.reports.append(report)
            if depth is None:
                report = replace(report, frame=lambda: self.frame(self.codes()))
            yield report

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
