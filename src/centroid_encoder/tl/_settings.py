"""The settings of a map and of a cross-validation, compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from centroid_encoder.tl._result import StoredMap


def is_of_same_labels(mapped: StoredMap, label_key: str) -> bool:
    """Whether a complete map was trained on these cells with these labels."""
    of_training = mapped.ingested_from is None and mapped.model is not None
    return of_training and mapped.label_key == label_key


def differing_settings(mapped: StoredMap, params: Mapping[str, Any], model: str | None) -> str:
    """Settings of a map that differ from those of a cross-validation, as text; empty if none do."""
    ours, theirs = (dict(given) for given in (mapped.params, params))
    # Options that were None are not stored, nor is a mask that is an array.
    names = ["label_key", "use_rep", "layer", "use_raw", "unlabeled_category"]
    names += sorted({"mask_var", "missing"} & set(ours) & set(theirs))
    if model is not None and mapped.model is not None:
        fitted = json.loads(mapped.model["config"])["estimator"]["params"]
        checked = json.loads(model)
        names += sorted((set(fitted) & set(checked)) - {"random_state", "device"})
        ours, theirs = ours | fitted, theirs | checked
    values = [(name, ours.get(name), theirs.get(name)) for name in names]
    return ", ".join(f"{name}={a!r} against {b!r}" for name, a, b in values if a != b)
