"""Whether a map and a cross-validation are of the same labels and the same settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from centroid_encoder.core.description import BEFORE
from centroid_encoder.core.saved import parse_config
from centroid_encoder.errors import Message, Setting, Value
from centroid_encoder.tl._stored import StoredMap


def is_of_same_labels(mapped: StoredMap, label_key: str) -> bool:
    """Tell whether a map was trained on these cells, for these labels, and is complete."""
    return (
        mapped.ingested_from is None and mapped.model is not None and mapped.label_key == label_key
    )


SOURCES = ("use_rep", "layer", "use_raw", "unlabeled_category")
"""Parameters that say what is learned from; one that is not stored was None."""
NO_SETTINGS = ("random_state", "device")


def differing_settings(
    mapped: StoredMap, params: Mapping[str, Any], model: str | None
) -> Message | None:
    """Say in which settings a map and a cross-validation differ; None if in none that is known.

    Parameters
    ----------
    mapped
        The map.
    params, model
        Of the cross-validation.
    """
    pairs: dict[str, tuple[Any, Any]] = {}
    # A mask that is an array is not stored.
    both = {"mask_var", "missing"} & set(mapped.params) & set(params)
    for name in (*SOURCES, *sorted(both)):
        pairs[name] = mapped.params.get(name), params.get(name)
    if model is not None and mapped.model is not None and "config" in mapped.model:
        stored = parse_config(mapped.model["config"]).get("estimator", {}).get("params", {})
        of_map, of_check = BEFORE | stored, BEFORE | json.loads(model)
        # What only one of them knows had its default in the other.
        for name in sorted((set(of_map) & set(of_check)) - set(NO_SETTINGS)):
            pairs[name] = of_map[name], of_check[name]
    differing = [
        Message("{} against {}", Setting(name, ours), Value(name, theirs))
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    ]
    return Message(", ".join(["{}"] * len(differing)), *differing) if differing else None
