"""Warnings of columns such as donor or image: cells of one source on both sides of a split."""

from __future__ import annotations

import anndata as ad
import numpy as np

import centroid_encoder as ce

WARNING = (
    "cells of the same {!r} are on both sides of every split; errors for a new one are likely to "
    "be larger: pass group_key={!r}"
)
SOURCES = ["image", "ImageNb", "region", "core", "tile", "well", "mouse", "fov", "patientID"]
NO_SOURCES = ["n_image_pixels", "nImages", "library_size", "area_section", "score", "masked"]


def doubts(adata: ad.AnnData, label_key: str, **kwargs) -> list[str]:
    """Return the warnings of a job about cells on both sides of a split."""
    notices = ce.tl.centroid_encoder.job(adata, label_key, **kwargs).notices
    return [text for text in map(str, notices) if "both sides" in text]


def found(adata: ad.AnnData, names: list[str]) -> list[str]:
    """Return those of the names that make a cross-validation warn, each as the only column."""
    warned = []
    for name in names:
        adata.obs[name] = np.resize([3, 5, 8], adata.n_obs)
        notices = list(map(str, ce.tl.cross_validate.job(adata, "bulk_labels").notices))
        del adata.obs[name]
        warned += [name] * (WARNING.format(name, name) in notices)
    return warned


def test_a_source_is_found_by_its_name(pbmc):
    assert found(pbmc, SOURCES) == SOURCES


def test_counts_and_other_words_are_no_source(pbmc):
    assert found(pbmc, NO_SOURCES) == []


def test_true_and_false_or_one_donor_of_all_labeled_cells_are_no_source(pbmc):
    pbmc.obs["in_sample"] = np.resize([True, False], pbmc.n_obs)
    assert not doubts(pbmc, "bulk_labels")
    pbmc.obs["donor"] = np.where(np.arange(pbmc.n_obs) < 600, "a", "b")
    pbmc.obs.loc[pbmc.obs_names[600:], "bulk_labels"] = np.nan
    assert not doubts(pbmc, "bulk_labels")


def test_a_training_that_splits_by_donor_does_not_warn(pbmc):
    pbmc.obs["donor"] = np.resize(["a", "b", "c"], pbmc.n_obs)
    assert doubts(pbmc, "bulk_labels")
    assert not doubts(pbmc, "bulk_labels", group_key="donor")


def test_a_training_without_held_out_cells_warns_where_a_group_would_matter(pbmc):
    pbmc.obs["donor"] = np.resize(["a", "b", "c"], pbmc.n_obs)
    # The networks that place a cell have been trained on others of its donor.
    assert doubts(pbmc, "bulk_labels", test_size=0) == [WARNING.format("donor", "donor")]
    assert not doubts(pbmc, "bulk_labels", test_size=0, placement="bottleneck")
