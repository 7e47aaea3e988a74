"""The map that an AnnData carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from centroid_encoder.core.saved import InvalidStateError, parse_config
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._result import read_map

if TYPE_CHECKING:
    from anndata import AnnData


def fitted_model(adata: AnnData, key: str = "ce", *, device: str = "auto") -> CentroidEncoder:
    """Return the fitted estimator that `centroid_encoder` stored in an AnnData.

    Parameters
    ----------
    adata
        Annotated data, fresh or read from disk.
    key
        Key of ``adata.uns``.
    device
        Where to put the network: ``"auto"`` or a torch device.

    Returns
    -------
    CentroidEncoder
        Its ``transform`` gives the stored embedding of the held-out cells, within rounding.

    Raises
    ------
    KeyError
        If there is no map under that key.
    InvalidStateError
        If what is stored there is not a complete map.
    """
    stored = read_map(adata, key)
    model = stored.model
    parts = model if isinstance(model, Mapping) else {}
    if "config" not in parts or not isinstance(parts.get("arrays"), Mapping):
        raise InvalidStateError(f"uns[{key!r}]['model'] lacks 'config' or 'arrays'")
    config = parse_config(parts["config"])
    fitted = CentroidEncoder.from_state(config, parts["arrays"], device=device)
    if set(stored.classes) != set(fitted.classes_.tolist()) or stored.classes.has_duplicates:
        raise InvalidStateError(f"uns[{key!r}]['classes'] are not the classes of its map")
    return fitted
