"""The result of a cross-validation in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from qtpy.QtWidgets import QWidget

from centroid_encoder.tl._result import StoredCrossValidation, fold_words
from centroid_encoder.tl._summary import permutation_words
from centroid_encoder.viewer.panels.fields import column
from centroid_encoder.viewer.panels.message import Message, sentence

if TYPE_CHECKING:
    from centroid_encoder.viewer.session.session import Session


class Verdict(QWidget):
    """Result of a cross-validation and its warnings; hidden without one.

    Parameters
    ----------
    session
        Session with the result.

    Attributes
    ----------
    found, doubts
        Labels with the result and the warnings.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.found, self.doubts = Message(), Message()
        column(self, self.found, self.doubts)
        for changed in (session.result_changed, session.check_changed):
            changed.connect(self.show_check)
        self.show_check()

    def show_check(self) -> None:
        """Show the result of the session."""
        check = self._session.check
        self.setVisible(check is not None)
        if check is not None:
            self.found.say(verdict(check))
            self.doubts.say(" ".join(map(sentence, check.warnings)), "warning")


def verdict(check: StoredCrossValidation) -> str:
    """Return the result of `tl.cross_validate` in a sentence or two."""
    return " ".join(_sentences(check))


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
    # No-break spaces keep number and sign on one line.
    return f"{text} %".replace(" ", "\u00a0")
