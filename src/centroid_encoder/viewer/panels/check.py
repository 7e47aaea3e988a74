"""How far a check says that a map of these labels can be believed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from qtpy.QtWidgets import QWidget

from centroid_encoder.tl._result import StoredCrossValidation, fold_words
from centroid_encoder.tl._summary import permutation_words
from centroid_encoder.viewer.panels.fields import column
from centroid_encoder.viewer.panels.message import Message, sentence

if TYPE_CHECKING:
    from centroid_encoder.errors import Face
    from centroid_encoder.viewer.session.session import Session


class Verdict(QWidget):
    """What a check found, and what makes that say less than it seems to; gone without one.

    Parameters
    ----------
    session
        What has been checked.
    face
        What parameters are called in the widget.

    Attributes
    ----------
    found, doubts
        Its two texts.
    """

    def __init__(self, session: Session, face: Face) -> None:
        super().__init__()
        self._session, self._face = session, face
        self.found, self.doubts = Message(), Message()
        column(self, self.found, self.doubts)
        for changed in (session.result_changed, session.check_changed):
            changed.connect(self.show_check)
        self.show_check()

    def show_check(self) -> None:
        """Show what the session knows."""
        adata, check = self._session.adata, self._session.check
        self.setVisible(check is not None)
        if adata is not None and check is not None:
            self.found.say(verdict(check))
            self.doubts.say(doubts(check, map(str, adata.obs.columns), self._face), "warning")


def verdict(check: StoredCrossValidation) -> str:
    """Return what `tl.cross_validate` found, in a sentence or two."""
    return " ".join(_sentences(check))


def doubts(check: StoredCrossValidation, columns: Iterable[str], face: Face) -> str:
    """Return what makes a check say less than it seems to.

    Parameters
    ----------
    check
        What was found; its warnings are for Python.
    columns
        Those of obs. Advice to group by one of them is given in the words of the widget.
    face
        What parameters are called there.
    """
    return " ".join(sentence(text, face) for text in check.warnings)


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
