"""Results that are written by hand, as input of the figures."""

from __future__ import annotations

from collections.abc import Callable

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from centroid_encoder.tl._result import StoredCrossValidation, StoredPanel


@pytest.fixture
def validate() -> Callable[..., ad.AnnData]:
    """Return a function that writes results like those of `tl.cross_validate` into cells."""

    def write(
        adata: ad.AnnData, *, share_right: float = 0.8, confidence: np.ndarray | None = None
    ) -> ad.AnnData:
        rng = np.random.default_rng(0)
        labels = pd.Categorical(adata.obs["cell_type"]).remove_unused_categories()
        own, classes = labels.codes, labels.categories
        labeled, n_classes = own >= 0, len(classes)
        wrong = labeled & (rng.random(len(own)) >= share_right)
        predicted = np.where(wrong, (own + 1) % n_classes, own)
        if confidence is None:
            confidence = rng.uniform(1 / n_classes, 1, len(own))
        adata.obs["ce_cv_label"] = pd.Categorical.from_codes(predicted, classes)
        adata.obs["ce_cv_confidence"] = np.where(labeled, confidence, np.nan).astype(np.float32)
        adata.obs["ce_cv_own"] = np.where(labeled, 0.5, np.nan).astype(np.float32)
        adata.obs["ce_cv_judged"] = adata.obs["cell_type"]

        confusion = np.zeros((n_classes, n_classes), dtype=np.int64)
        np.add.at(confusion, (own[labeled], predicted[labeled]), 1)
        n = confusion.sum(axis=1)
        error, largest = float(wrong.sum() / n.sum()), float(1 - n.max() / n.sum())
        interval = {"calibration_error_low": 0.004, "calibration_error_high": 0.031}
        calibration = {"calibration_error": 0.012, "uncalibrated_error": 0.045, **interval}
        rules = ("voronoi", "balanced_voronoi", "knn", "input_knn")
        errors = {f"{rule}_error": error for rule in rules}
        for rule in rules[:2]:
            errors |= {f"{rule}_error_low": error - 0.01, f"{rule}_error_high": error + 0.02}
        errors |= {"voronoi_error_sd": 0.004, "largest_class_error": largest}
        errors |= {"n_unjudged": 0, "n_unjudged_classes": 0}
        shuffled = rng.normal(1 / n_classes, 0.02, 99).clip(0, 0.9).round(2)
        of_class = {"voronoi_error": 1 - confusion.diagonal() / n}
        of_class |= {"voronoi_error_low": 0.0, "voronoi_error_high": 1.0}
        of_class |= {"n_predicted": confusion.sum(axis=0), "confidence": 0.5, "right": 0.5}
        of_class |= {"right_low": 0.0, "right_high": 1.0}
        adata.uns["ce_cv"] = StoredCrossValidation(
            params={"label_key": "cell_type", "n_folds": 5},
            classes=classes,
            confusion=confusion,
            quality={"n": int(n.sum()), **errors, **calibration},
            per_class=pd.DataFrame({"class": list(classes), "n": n, **of_class}),
            errors=pd.DataFrame({"fold": range(5), "voronoi_error": error}),
            warnings=np.array(["Class 'a' has 3 cells.", "Donor 2 is alone."]),
            permutation={"observed": 0.95, "shuffled": shuffled, "p_value": 0.01},
            model="{}",
            reason="",
        ).to_uns()
        if "ce" in adata.uns:
            adata.uns["ce"]["quality"]["test"] |= calibration
        return adata

    return write


@pytest.fixture
def add_panel() -> Callable[[ad.AnnData], ad.AnnData]:
    """Return a function that writes results like those of `tl.feature_panel` into cells."""

    def write(adata: ad.AnnData) -> ad.AnnData:
        table = pd.DataFrame(
            [(size, judge) for size in (2, 5, 8) for judge in ("map", "input_knn", "forest")],
            columns=["size", "judge"],
        )
        table["n"] = 120
        for name, start in (("error", 0.2), ("balanced_error", 0.3)):
            table[name] = start + 0.01 * np.arange(9)[::-1]
            table[f"{name}_low"], table[f"{name}_high"] = table[name] - 0.05, table[name] + 0.05
        features = pd.DataFrame({"rank": [1, 2], "n_folds_2": [5, 4]}, index=["gene1", "gene3"])
        params = {"label_key": "cell_type", "n_folds": 5, "sizes": np.array([2, 5])}
        cells = adata.obs_names.to_numpy().astype(object)
        classes = pd.Index(["type 0", "type 1", "type 2"])
        stored = StoredPanel(params, classes, errors=table, features=features, chosen_from=cells)
        adata.uns["feature_panel"] = stored.to_uns()
        return adata

    return write
