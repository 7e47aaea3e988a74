"""The map that is stored in an AnnData, and errors if it is damaged."""

from __future__ import annotations

import copy

import anndata as ad
import pytest

import centroid_encoder as ce
from centroid_encoder.core.saved import InvalidStateError


@pytest.fixture
def trained(embed):
    return embed(placement="bottleneck")


@pytest.mark.parametrize(
    ("stored", "key"), [(None, "ce"), ("text of another program", "ce"), (None, "other")]
)
def test_a_missing_map_is_a_key_error(cells, stored, key):
    if stored is not None:
        cells.uns[key] = stored
    with pytest.raises(KeyError, match=f"no result '{key}'; run ce.tl.centroid_encoder"):
        ce.tl.fitted_model(cells, key)


BROKEN = {
    "no config": (lambda model: model.pop("config"), "lacks 'config' or 'arrays'"),
    "config of no JSON": (lambda model: model.update(config="{"), "not valid JSON"),
    "weights missing": (lambda model: model["arrays"].pop("encoder_0_weight"), "is missing"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_map_is_an_error(trained, name):
    adata = ad.AnnData(obs=trained.obs, uns={"ce": copy.deepcopy(trained.uns["ce"])})
    change, words = BROKEN[name]
    change(adata.uns["ce"]["model"])
    with pytest.raises(InvalidStateError, match=words):
        ce.tl.fitted_model(adata)
