"""Real files with unusual content; the tests are skipped if there is no data folder."""

from __future__ import annotations

from pathlib import Path

import anndata as ad
import pytest

import centroid_encoder as ce
from benchmarks.datasets import data_folder


@pytest.fixture
def folder() -> Path:
    found = data_folder()
    if found is None:
        pytest.skip("no folder of data sets: set CE_DATA to where they lie (benchmarks/datasets)")
    return found


@pytest.fixture
def fast() -> ce.CentroidEncoder:
    return ce.CentroidEncoder(hidden=(64,), max_epochs=10)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::anndata.OldFormatWarning")
@pytest.mark.filterwarnings("ignore:Moving element from .uns:FutureWarning")
def test_file_of_anndata_before_0_8_with_classes_of_one_cell(
    folder, fast, unchanged, caplog, tmp_path
):
    adata = ad.read_h5ad(folder / "scimap_example" / "example_data.h5ad")
    counts = adata.obs["phenotype"].value_counts()
    assert (counts.min(), len(counts)) == (1, 25)
    with unchanged(adata):
        result = ce.tl.centroid_encoder(adata, "phenotype", model=fast, progress=False, copy=True)
    small = counts.index[counts < 5]
    assert (result.obs["ce_split"][result.obs["phenotype"].isin(small)] == "train").all()
    assert "too few cells to split" in caplog.text
    assert all(repr(name) in caplog.text for name in small)
    ce.pl.voronoi(result, show=False, save=tmp_path / "voronoi.png")
    assert not result.uns["ce"]["quality"]["test"]["no_better_than_largest_class"]
