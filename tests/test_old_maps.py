"""Maps of all formats that a release has written give the results that were stored with them."""

from __future__ import annotations

import warnings
from pathlib import Path

import anndata as ad
import numpy as np
import pytest

import centroid_encoder as ce
from tests.data.make_maps import ingested, results

DATA = Path(__file__).parent / "data"
FORMATS = [path.stem for path in sorted(DATA.glob("format_*.h5ad"))]
MODELS = [path.stem for path in sorted(DATA.glob("*.safetensors"))]


def assert_as_stored(found: dict[str, np.ndarray], version: str, name: str) -> None:
    with np.load(DATA / f"format_{version}.npz") as stored:
        for key, value in found.items():
            expected = stored[f"{name} {key}"]
            if key == "labels":
                assert value.tolist() == expected.tolist()
            else:
                np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5)


def new_cells(version: str) -> np.ndarray:
    with np.load(DATA / f"format_{version}.npz") as stored:
        return stored["X"]


@pytest.mark.parametrize("stem", MODELS)
def test_a_model_file_of_an_older_release_gives_the_same_results(stem: str) -> None:
    _, version, name = stem.split("_")
    model = ce.load(DATA / f"{stem}.safetensors", device="cpu")
    assert_as_stored(results(model, new_cells(version)), version, name)


@pytest.mark.parametrize("stem", FORMATS)
def test_a_table_of_an_older_release_places_new_cells_as_before(stem: str) -> None:
    version = stem.removeprefix("format_")
    assert_as_stored(ingested(new_cells(version), DATA / f"{stem}.h5ad"), version, "table")


@pytest.mark.parametrize("stem", FORMATS)
def test_a_map_with_arguments_that_are_gone_is_like_others(stem: str, tmp_path: Path) -> None:
    """The release candidate had `use_unlabeled` and `neighbors_key`, and stored them."""
    adata = ad.read_h5ad(DATA / f"{stem}.h5ad")
    gone = {"use_unlabeled": "good", "neighbors_key": "neighbors", "unlabeled_used": True}
    adata.uns["ce"]["params"] |= gone
    adata.write_h5ad(tmp_path / "old.h5ad")
    version, old = stem.removeprefix("format_"), ad.read_h5ad(tmp_path / "old.h5ad")
    assert_as_stored(ingested(new_cells(version), tmp_path / "old.h5ad"), version, "table")
    assert "held-out" in ce.pl.voronoi(old, show=False)[1].get_title()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the map 'ce' has other settings")
        ce.tl.cross_validate(old, "cell_type", n_folds=2, progress=False)


@pytest.mark.parametrize("stem", FORMATS)
def test_the_results_in_a_table_of_an_older_release_can_be_drawn(stem: str) -> None:
    adata = ad.read_h5ad(DATA / f"{stem}.h5ad")
    left, right = ce.pl.voronoi(adata, show=False)
    assert left.get_title()
    assert right.get_title()
    assert ce.tl.fitted_model(adata).classes_.tolist() == ["B", "NK", "T"]
