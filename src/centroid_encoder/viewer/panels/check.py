"""How far a check says that a map of these labels can be believed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from qtpy.QtWidgets import QVBoxLayout, QWidget

from centroid_encoder.tl._stored import StoredCrossValidation
from centroid_encoder.tl._summary import fold_words, permutation_words
from centroid_encoder.viewer.panels.message import Message, sentence


class Verdict(QWidget):
    """What a check found, and what makes that say less than it seems to; gone without one.

    Attributes
    ----------
    found, doubts
        Its two texts.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.found, self.doubts = Message(), Message()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.found)
        layout.addWidget(self.doubts)
        self.say("", "")

    def say(self, found: str, doubts: str) -> None:
        """Show the two texts, or nothing."""
        self.found.say(found)
        self.doubts.say(doubts, "warning")
        self.setVisible(bool(found or doubts))


def verdict(stored: StoredCrossValidation) -> str:
    """Return what `tl.cross_validate` found, in a sentence or two."""
    return " ".join(_sentences(stored))


def doubts(stored: StoredCrossValidation) -> str:
    """Return what makes it say less than it seems to; the advice is for Python."""
    return " ".join(sentence(text) for text in stored.warnings)


def _sentences(stored: StoredCrossValidation) -> Iterator[str]:
    quality = stored.quality
    spread = quality["knn_error_sd"]
    error = _percent(quality["knn_error"], spread if np.isfinite(spread) else None)
    text = (
        f"{stored.label_key}, out of fold: 5-NN error {error} "
        f"({fold_words(stored)}, n\u00a0=\u00a0{int(quality['n']):,})"
    )
    if np.isfinite(quality["input_knn_error"]):
        text += f"; in the full input space {_percent(quality['input_knn_error'])}"
    yield f"{text}; always naming the largest class {_percent(quality['chance_error'])}."
    if stored.permutation is not None:
        words = permutation_words(stored.permutation)
        yield f"Against shuffled labels {words}.".replace("\n", ", ")


def _percent(share: float, spread: float | None = None) -> str:
    text = f"{100 * share:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")
    # Not to be parted at the end of a line.
    return f"{text} %".replace(" ", "\u00a0")
