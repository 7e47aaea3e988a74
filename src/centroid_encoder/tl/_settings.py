"""Whether a map and a cross-validation are of the same labels and the same settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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
        checked = json.loads(model)
        # A parameter that only one of them has was at its default in the other.
        for name in sorted((set(stored) & set(checked)) - set(NO_SETTINGS)):
            pairs[name] = stored[name], checked[name]
    differing = [
        Message("{} against {}", Setting(name, ours), Value(name, theirs))
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    ]
    return Message(", ".join(["{}"] * len(differing)), *differing) if differing else None
