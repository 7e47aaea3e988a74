"""How far a check says that a map of these labels can be believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from qtpy.QtWidgets import QVBoxLayout, QWidget

from centroid_encoder.pl._permutation_test import permutation_words
from centroid_encoder.pl._unseen import fold_words
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


def verdict(stored: Mapping[str, Any]) -> str:
    """Return what `tl.cross_validate` found, in a sentence or two."""
    return " ".join(_sentences(stored))


def doubts(stored: Mapping[str, Any]) -> str:
    """Return what makes it say less than it seems to; the advice is for Python."""
    return " ".join(sentence(str(text)) for text in np.atleast_1d(stored.get("warnings", [])))


def _sentences(stored: Mapping[str, Any]) -> Iterator[str]:
    quality = stored["quality"]
    spread = quality["knn_error_sd"]
    error = _percent(quality["knn_error"], spread if np.isfinite(spread) else None)
    text = (
        f"{stored['params']['label_key']}, out of fold: 5-NN error {error} "
        f"({fold_words(stored)}, n\u00a0=\u00a0{int(quality['n']):,})"
    )
    if np.isfinite(quality["input_knn_error"]):
        text += f"; in the full input space {_percent(quality['input_knn_error'])}"
    yield f"{text}; always naming the largest class {_percent(quality['chance_error'])}."
    if "permutation" in stored:
        test = stored["permutation"]
        words = permutation_words(float(test["p_value"]), len(np.asarray(test["errors"])))
        yield f"Against shuffled labels {words}.".replace("\n", ", ")


def _percent(share: float, spread: float | None = None) -> str:
    text = f"{100 * share:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")
    # Not to be parted at the end of a line.
    return f"{text} %".replace(" ", "\u00a0")
