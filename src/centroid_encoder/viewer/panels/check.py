"""Describe the result of a cross-validation in sentences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from centroid_encoder.errors import InputError
from centroid_encoder.tl._result import LARGEST, StoredCrossValidation, fold_words
from centroid_encoder.tl._summary import (
    group_words,
    permutation_words,
    range_words,
    unjudged_words,
)
from centroid_encoder.viewer.panels.message import sentence
from centroid_encoder.viewer.session.provenance import by_image
from centroid_encoder.viewer.session.session import Session

ERRORS = {
    "voronoi": "in the region of another class",
    "decoder": "in the region of another class",
    "knn": "whose nearest five cells are of another class",
}
"""The error by each rule, in words."""


def verdict(session: Session) -> tuple[str, str]:
    """Return sentences on the result of a cross-validation, and its warnings."""
    adata, check = session.adata, session.state.check
    if check is None or adata is None:
        return "", ""
    doubts = " ".join(map(sentence, check.warnings))
    try:
        of_images = StoredCrossValidation.read(adata, by_image(session.state.key))
        is_grouped = check.params.get("group_key") is not None
        if of_images is not None and (is_grouped or of_images.label_key != check.label_key):
            of_images = None
        found = " ".join(_sentences(check, of_images, session.rule))
        if of_images is not None:
            # Leave out the warning that the error on new images is likely to be larger.
            answered = f"group_key={of_images.params['group_key']!r}"
            left = [text for text in check.warnings if answered not in text]
            doubts = " ".join(map(sentence, left))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # An `InputError` names the damaged entry of uns; all others come from its values.
        named = isinstance(error, InputError)
        text = sentence(error) if named else f"The stored check is damaged: {error!r}."
        return "", f"{text} Press Check labels to make it again."
    return found, doubts


def _sentences(
    check: StoredCrossValidation, of_images: StoredCrossValidation | None, rule: tuple[str, str]
) -> Iterator[str]:
    """Yield sentences on the result, and on that with whole images held out, if there is one."""
    quality, name = check.quality, f"{check.label_key}: held-out cells {ERRORS[rule[0]]}"
    if of_images is None:
        yield f"{name}: {_error(check, rule)}."
    else:
        yield (
            f"{name}, on images that the networks have seen: {_error(check, rule)}; on images that "
            f"they have not seen: {_error(of_images, rule)}. Quote the second for new images."
        )
    if quality["n_unjudged"]:
        yield sentence(unjudged_words(quality))
    text = f"Error of always predicting the largest class: {_percent(quality[f'{LARGEST}_error'])}"
    if np.isfinite(quality["input_knn_error"]):
        error = _percent(quality["input_knn_error"])
        text += f"; of the nearest five cells by all features: {error}"
    yield f"{text}."
    if check.permutation is not None:
        words = permutation_words(check.permutation).replace("\n", ", ")
        yield f"Probability of the own class against shuffled labels: {words}."


def _error(check: StoredCrossValidation, rule: tuple[str, str]) -> str:
    """Return the error by a rule with its interval and the number of folds; see `Session.rule`."""
    error = f"{rule[0]}_error"
    words = [range_words(check.quality, error).replace(" ", "\u00a0"), fold_words(check)]
    words += [group_words(check.quality, check.params), f"n = {int(check.quality['n']):,}"]
    words = [text.replace("n = ", "n\u00a0=\u00a0") for text in words if text]
    return f"{_percent(check.quality[error])} ({', '.join(words)})"


def _percent(share: float) -> str:
    # A no-break space keeps the number and its sign on one line.
    return f"{100 * share:.1f}\u00a0%"
