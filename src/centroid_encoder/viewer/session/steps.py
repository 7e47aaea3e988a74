"""Steps that can be undone and redone."""

from __future__ import annotations

from typing import Generic, TypeVar

S = TypeVar("S")


class Steps(Generic[S]):
    """Steps that can be undone, each with a description; the owner of the list changes the data."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, S]] = []
        self._n_taken = 0

    @property
    def texts(self) -> tuple[str, str]:
        """Descriptions of the last step and of the one that was undone last; empty for none."""
        texts = ["", *(text for text, _ in self._steps), ""]
        return texts[self._n_taken], texts[self._n_taken + 1]

    @property
    def last(self) -> S | None:
        """The last step that was taken and not undone."""
        return self._steps[self._n_taken - 1][1] if self._n_taken else None

    @property
    def undone(self) -> S | None:
        """The step that was undone last."""
        return self._steps[self._n_taken][1] if self._n_taken < len(self._steps) else None

    def add(self, text: str, step: S) -> None:
        """Add a step that was taken; steps that were undone are forgotten."""
        self._steps[self._n_taken :] = [(text, step)]
        self._n_taken += 1

    def move(self, by: int) -> None:
        """Count the last step as undone (−1), or the next one as redone (1)."""
        self._n_taken += by

    def clear(self) -> None:
        """Forget all steps."""
        self._steps, self._n_taken = [], 0
