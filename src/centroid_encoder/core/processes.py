"""The processes that train a network together: all have all rows, each takes a part of a batch.

Each draws the same batches. What the network says of a batch is put together before its loss is
computed, so that any loss is that of the whole batch; gradients are summed. Both are sums over
processes (`torch.distributed.all_reduce`), and so is all else that they tell each other.
"""

from __future__ import annotations

import re
import signal
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Any, Self, cast

import torch
import torch.distributed as dist
from torch import Tensor

from centroid_encoder.errors import Advice, InputError, Setting, WorkerError

FAILED, INTERRUPTED, STOPPED, TOO_LARGE = range(4)
"""Why a step is not taken. The first that any process has a reason for counts for all."""
N_REASONS = 4
HEARD = timedelta(seconds=1)
"""How long a process waits for the others before it hears signals."""
ALIKE = 1e-3
"""Relative difference of numbers that other processors may compute in other digits."""


class _NotTaken(Exception):
    """The processes have told each other that this step is not taken."""

    def __init__(self, reason: int) -> None:
        super().__init__(reason)
        self.reason = reason


class Processes:
    """What a training has to know of the processes that share it.

    A process that cannot go on with a step must not leave the others waiting: it takes part in the
    sums that are left of the step, with no rows, and tells them. So all halve a batch that is too
    large for one of them, all stop, and all fail.

    Attributes
    ----------
    rank, size
        Number of this process, and how many there are.
    """

    def __init__(self, device: torch.device) -> None:
        self.rank, self.size, self._device = dist.get_rank(), dist.get_world_size(), device
        self._interrupted = False
        # Of the step that is being taken: why it should not be, the sums so far, how many of them
        # the others have had with this process already, whether it takes no rows, and whether all
        # sums are through.
        self._reason: int | None = None
        self._n_sums = self._n_had = 0
        self._without_rows = self._complete = False

    @classmethod
    def found(cls, device: torch.device) -> Self | None:
        """Return those of the default group of `torch.distributed`; None if there are not several.

        Raises
        ------
        InputError
            If they cannot exchange what is on the device.
        """
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return None
        if device.type not in ("cpu", "cuda"):
            raise InputError(
                "several processes train on processors or on CUDA, not on {}; {}",
                device.type,
                Advice("device", "cpu"),
            )
        return cls(device)

    def part(self, n: int) -> slice:
        """Which of the n rows of a batch this process takes."""
        if self._without_rows:
            return slice(0, 0)
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def take(self, step: Callable[[], Tensor], *, stop: bool) -> Tensor | None:
        """Take a step, all processes or none.

        Parameters
        ----------
        step
            Computes with `part` of a batch; ends with `sum_gradients` and what follows from it.
        stop
            Whether this process wants to stop.

        Returns
        -------
        Tensor | None
            What the step returns; None if a process wants to stop.

        Raises
        ------
        torch.OutOfMemoryError, KeyboardInterrupt
            If a process has run out of memory or was interrupted; in all processes.
        WorkerError
            If another process has failed or is gone.
        """
        reason = INTERRUPTED if self._interrupted else STOPPED if stop else None
        try:
            return self._attempt(step, reason)
        except _NotTaken as told:
            reason = told.reason
        except WorkerError:
            raise
        except torch.OutOfMemoryError:
            reason = None
        except Exception:
            # What it says counts, not what becomes of the others.
            with suppress(Exception):
                self._go_along(step, FAILED)
            raise
        if reason is None:
            # Only here, where the exception no longer keeps what is in memory.
            reason = self._go_along(step, TOO_LARGE)
        if reason == STOPPED:
            return None
        if reason == INTERRUPTED:
            raise KeyboardInterrupt
        if reason == TOO_LARGE:
            raise torch.OutOfMemoryError
        raise WorkerError("another process of this training has failed, and says why")

    def _attempt(self, step: Callable[[], Tensor], reason: int | None, *, n_had: int = 0) -> Tensor:
        self._reason, self._n_sums, self._n_had = reason, 0, n_had
        self._complete = False
        return step()

    def _go_along(self, step: Callable[[], Tensor], reason: int) -> int:
        """Take part in the sums that are left of a step, and return why no process takes it."""
        if self._complete:
            raise WorkerError(
                "the device ran out of memory when the other processes had taken the step already; "
                "a smaller {} helps",
                Setting("batch_size"),
            )
        self._without_rows = True
        try:
            self._attempt(step, reason, n_had=self._n_sums)
        except _NotTaken as told:
            return told.reason
        finally:
            self._without_rows = False
        raise AssertionError("a step without rows was taken")

    def whole(self, own: Tensor, n: int) -> Tensor:
        """(…, n, c) outputs for all n rows of a batch, given those for this process's `part`.

        The gradient is that of the part: whatever is computed of the whole, gradients of the
        weights have to be summed over processes, and are then those of one process.
        """
        part = self.part(n)
        placed = own.new_zeros((*own.shape[:-2], n, own.shape[-1]))
        placed[..., part, :] = own.detach()
        (whole,) = self._sum_and_heed([placed])
        return torch.cat([whole[..., : part.start, :], own, whole[..., part.stop :, :]], dim=-2)

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Give each parameter that has a gradient the sum of those of all processes."""
        moved = [one for one in parameters if one.grad is not None]
        sums = self._sum_and_heed([cast(Tensor, one.grad) for one in moved])
        self._complete = True
        for one, gradient in zip(moved, sums, strict=True):
            one.grad = gradient

    def sum(self, own: Tensor) -> Tensor:
        """Sum of a tensor over processes, through which gradients go back."""
        return cast(Tensor, _Sum.apply(own, self))  # type: ignore[no-untyped-call]

    def moments(self, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Number, means and variances of the (n, c) rows of all processes, given this one's.

        Gradients go back through them.
        """
        n_own = len(own)
        mean = own.sum(dim=0) / max(n_own, 1)
        scatter = (own - mean).square().sum(dim=0)
        # Beside each other, not added up: sums of squares would lose digits where means are large.
        placed = own.new_zeros((self.size, 3, own.shape[1]))
        placed[self.rank] = torch.stack([torch.full_like(mean, n_own), mean, scatter])
        counts, means, scatters = self.sum(placed).unbind(dim=1)
        n = counts.sum(dim=0)
        mean = (counts * means).sum(dim=0) / n
        scatter = (scatters + counts * (means - mean).square()).sum(dim=0)
        return n, mean, scatter / n

    def of_first(self, tensors: Iterable[Tensor]) -> None:
        """Put into tensors what they hold in the first process.

        It is the same already where all processors round in the same way.
        """
        tensors = list(tensors)
        parts = [one.detach().double() for one in tensors]
        if self.rank:
            parts = [torch.zeros_like(one) for one in parts]
        for one, part in zip(tensors, self._summed(parts), strict=True):
            one.detach().copy_(part)

    def check_alike(self, same: Mapping[str, bytes], alike: Mapping[str, float]) -> None:
        """Refuse to train on what is not the same in all processes, or, of numbers, nearly so."""
        own = torch.tensor([*map(zlib.crc32, same.values()), *alike.values()], dtype=torch.float64)
        found = torch.zeros((self.size, len(own)), dtype=torch.float64, device=self._device)
        found[self.rank] = own
        (found,) = self._summed([found])
        for name, values in zip((*same, *alike), found.cpu().T, strict=True):
            margin = ALIKE * float(values[0].abs()) if name in alike else 0.0
            if not bool(((values - values[0]).abs() <= margin).all()):
                raise InputError(
                    "the processes that train together differ in their {}: each needs the same "
                    "data, the same parameters, and the same int as {}",
                    name,
                    Setting("random_state"),
                )

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let Ctrl-C wait until the processes can tell each other; a second one does not wait."""
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        ):
            yield
            return

        def wait(number: int, frame: FrameType | None) -> None:
            self._interrupted = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        signal.signal(signal.SIGINT, wait)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _sum_and_heed(self, parts: list[Tensor]) -> list[Tensor]:
        """Sums over processes; with them goes whether the step is to be taken at all."""
        reasons = parts[0].new_zeros(N_REASONS)
        if self._reason is not None:
            reasons[self._reason] = 1
        *sums, reasons = self._summed([*parts, reasons])
        given = [reason for reason, n in enumerate(reasons.tolist()) if n]
        if given and self._n_sums > self._n_had:
            raise _NotTaken(given[0])
        return sums

    def _summed(self, parts: list[Tensor]) -> list[Tensor]:
        """Sums over processes, as one tensor: each call takes its time."""
        flat = torch.cat([part.reshape(-1) for part in parts])
        pieces = self._in_place(flat).split([part.numel() for part in parts])
        return [piece.view_as(part) for piece, part in zip(pieces, parts, strict=True)]

    def _in_place(self, tensor: Tensor) -> Tensor:
        if self._n_sums >= self._n_had:
            try:
                _sum_in_place(tensor)
            except RuntimeError as error:
                raise WorkerError(
                    "the processes of this training have lost each other: one of them has ended, "
                    "or its machine cannot be reached ({})",
                    # Without the line of its program before it, and its guesses after it.
                    re.sub(r"^\[[^\]]*\] |\. This is .*|\n.*", "", str(error), flags=re.DOTALL),
                ) from error
        self._n_sums += 1
        return tensor


def _sum_in_place(tensor: Tensor) -> None:
    """Put the sum over processes into a tensor, and hear signals while the others are awaited.

    Torch waits for processors in C++, where Python hears nothing: of a process that hangs, or has
    ended without gloo's noticing it, one would hear only after the time limit of the group.
    """
    if tensor.device.type != "cpu":
        dist.all_reduce(tensor)
        return
    work = dist.all_reduce(tensor, async_op=True)
    while not work.is_completed():
        with suppress(RuntimeError):  # The time is over, or it has failed, as is told below.
            work.wait(HEARD)
    work.wait()


class _Sum(torch.autograd.Function):
    """All processes have the sum; each gradient is thus the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, processes: Processes) -> Tensor:
        ctx.processes = processes
        return processes._in_place(own.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        whole = ctx.processes._in_place(gradient.clone(memory_format=torch.contiguous_format))
        return whole, None
