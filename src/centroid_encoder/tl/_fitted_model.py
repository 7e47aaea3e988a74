"""The map that is stored in an AnnData."""

from __future__ import annotations

from collections.abc import Mapping

from anndata import AnnData

from centroid_encoder.core.saved import InvalidStateError, parse_config
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._result import read_map


def fitted_model(adata: AnnData, key: str = "ce", *, device: str = "auto") -> CentroidEncoder:
    """Return the fitted estimator that `centroid_encoder` stored in an AnnData.

    Parameters
    ----------
    adata
        Annotated data after `centroid_encoder` or `ingest`, or a file of it that was read.
    key
        Name of the map, as given to `key_added`: a key of ``adata.uns``.
    device
        Device of the networks: ``"auto"`` or a torch device.

    Returns
    -------
    CentroidEncoder
        Its ``transform`` returns the stored embedding of the held-out cells, within rounding.

    Raises
    ------
    KeyError
        If there is no map under that key.
    InvalidStateError
        If what is stored there is not a complete map.
    """
    stored = read_map(adata, key)
    if not isinstance(stored.model, Mapping) or not {"config", "arrays"} <= set(stored.model):
        raise InvalidStateError(f"uns[{key!r}]['model'] lacks 'config' or 'arrays'")
    config = parse_config(stored.model["config"])
    fitted = CentroidEncoder.from_state(config, stored.model["arrays"], device=device)
    if set(stored.classes) != set(fitted.classes_.tolist()) or stored.classes.has_duplicates:
        raise InvalidStateError(f"uns[{key!r}]['classes'] are not the classes of its map")
    return fitted
