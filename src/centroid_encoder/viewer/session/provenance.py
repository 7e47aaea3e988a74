"""How results were made: what a script needs to make them again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from centroid_encoder.tl._result import cv_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anndata import AnnData

    from centroid_encoder.estimator import CentroidEncoder
    from centroid_encoder.viewer.data.tables import Table

Function = Literal["centroid_encoder", "cross_validate", "ingest"]


@dataclass(frozen=True)
class MadeBy:
    """A call of a function of `tl` that made a result."""

    function: Function
    label_key: str
    parameters: Mapping[str, Any]
    """Keyword arguments other than its defaults."""
    relabeled: bool = False
    """Whether the labels were corrected by hand."""
    stopped_after: int | None = None
    """Number of epochs after which the training was stopped by hand, if it was."""
    reference: str | None = None
    """Of `ingest`, the file or the name of the table whose map the cells were sent through."""

    @property
    def key(self) -> str:
        """Name of the result."""
        return self.parameters.get("key_added") or self.parameters.get("key") or "ce"


class Provenance:
    """How the maps and cross-validations of each table were made."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Table, dict[tuple[str, bool], MadeBy]] = WeakKeyDictionary()

    def remember(self, table: Table, key: str, made_by: MadeBy) -> None:
        """Know how the result `key` of a table was made."""
        is_check = made_by.function == "cross_validate"
        self._known.setdefault(table, {})[key, is_check] = made_by

    def of_map(self, table: Table, key: str) -> MadeBy:
        """Return how a map was made: as remembered, else as it says of itself."""
        known = self._known.get(table, {}).get((key, False))
        return known or _stored_map(table.adata, key)

    def of_check(self, table: Table, key: str) -> MadeBy:
        """Return how labels were cross-validated: as remembered, else as the result says."""
        known = self._known.get(table, {}).get((key, True))
        return known or _stored_check(table.adata, key)


def _stored_map(adata: AnnData, key: str) -> MadeBy:
    from sklearn.base import clone

    from centroid_encoder import tl

    parameters = dict(adata.uns[key]["params"])
    label_key, reference = str(parameters.pop("label_key")), parameters.get("ingested_from")
    if reference is not None:
        kept = {name: parameters[name] for name in ("min_confidence", "max_novelty")}
        return MadeBy("ingest", label_key, kept | _named(key), reference=str(reference))
    model = clone(tl.fitted_model(adata, key, device="cpu"))
    return MadeBy("centroid_encoder", label_key, _arguments(parameters, model) | _named(key))


def _stored_check(adata: AnnData, key: str) -> MadeBy:
    from centroid_encoder.core.saved import params_from
    from centroid_encoder.estimator import CentroidEncoder

    stored = adata.uns[cv_key(key)]
    parameters = dict(stored["params"])
    label_key = str(parameters.pop("label_key"))
    known = set(CentroidEncoder().get_params())
    model = CentroidEncoder(**params_from(json.loads(stored["model"]), known))
    return MadeBy("cross_validate", label_key, _arguments(parameters, model) | _named(key))


def _arguments(parameters: dict[str, Any], model: CentroidEncoder) -> dict[str, Any]:
    """Return the parameters with the model, if it is not the default."""
    if model.random_state == parameters.get("random_state"):
        # The model has it from there.
        model.set_params(random_state=None)
    is_default = model.get_params() == type(model)().get_params()
    return parameters if is_default else parameters | {"model": model}


def _named(key: str) -> dict[str, Any]:
    return {} if key == "ce" else {"key_added": key}
