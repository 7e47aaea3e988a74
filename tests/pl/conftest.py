"""Results of a cross-validation, written by hand: the figures are tested on what they read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

ERRORS = [
    f"{prefix}{kind}_error"
    for prefix in ("", "balanced_")
    for kind in ("knn", "voronoi", "decoder", "input_knn")
]


@pytest.fixture
def validate() -> Callable[..., ad.AnnData]:
    """Write into cells what `tl.cross_validate` does, and confidences where there is a map."""

    def write(
        adata: ad.AnnData,
        *,
        n_folds: int = 5,
        n_repeats: int = 1,
        group_key: str | None = None,
        n_permutations: int = 99,
        warnings: Sequence[str] = (),
        share_right: float = 0.8,
        confidence: np.ndarray | None = None,
    ) -> ad.AnnData:
        rng = np.random.default_rng(0)
        labels = adata.obs["cell_type"]
        classes = pd.Index(pd.Categorical(labels.dropna()).remove_unused_categories().categories)
        own = classes.get_indexer(labels.astype(object))
        labeled = own >= 0
        n, n_classes = int(labeled.sum()), len(classes)

        wrong = labeled & (rng.random(len(own)) >= share_right)
        predicted = np.where(wrong, (own + 1) % n_classes, own)
        if confidence is None:
            confidence = rng.uniform(1 / n_classes, 1, len(own))
        confidence = np.where(labeled, confidence, np.nan).astype(np.float32)
        adata.obs["ce_cv_label"] = pd.Categorical.from_codes(predicted, classes)
        adata.obs["ce_cv_confidence"] = confidence
        own_share = np.where(wrong, (1 - confidence) / 2, confidence)
        own_share[np.isnan(own_share) & labeled] = 0.5
        adata.obs["ce_cv_own"] = own_share.astype(np.float32)

        confusion = np.zeros((n_classes, n_classes), dtype=np.int64)
        np.add.at(confusion, (own[labeled], predicted[labeled]), 1)
        class_n = confusion.sum(axis=1)
        class_error = 1 - confusion.diagonal() / class_n
        error, chance = float(wrong.sum() / n), float(1 - class_n.max() / n)
        folds = [(repeat, fold) for repeat in range(n_repeats) for fold in range(n_folds)]
        quality: dict[str, Any] = {"n": n, "chance_error": chance, "chance_error_sd": 0.0}
        for i, name in enumerate(ERRORS):
            quality |= {name: error + i / 100, f"{name}_sd": 0.004}
        params: dict[str, Any] = {
            "label_key": "cell_type",
            "n_folds": n_folds,
            "n_repeats": n_repeats,
            "n_permutations": n_permutations,
            "random_state": 0,
        }
        adata.uns["ce_cv"] = {
            "params": params | ({} if group_key is None else {"group_key": group_key}),
            "classes": np.asarray(classes.tolist()),
            "errors": pd.DataFrame(
                {
                    "repeat": [repeat for repeat, _ in folds],
                    "fold": [fold for _, fold in folds],
                    "n": n // n_folds,
                    **dict.fromkeys(ERRORS, error),
                    "chance_error": chance,
                }
            ),
            "per_class": pd.DataFrame(
                {
                    "class": [str(name) for name in classes],
                    "n": class_n,
                    **dict.fromkeys(ERRORS[:4], class_error),
                }
            ),
            "quality": quality
            | {
                "calibration_error": 0.012,
                "calibration_error_low": np.nan,
                "calibration_error_high": np.nan,
                "uncalibrated_error": 0.045,
            },
            "model": "{}",
            "confusion": confusion,
            "warnings": np.array(list(warnings), dtype=str),
        }
        if n_permutations:
            null = np.clip(rng.normal(chance, 0.02, n_permutations), error + 0.01, 1)
            adata.uns["ce_cv"]["permutation"] = {
                "errors": np.round(null * n) / n,
                "observed": error,
                "p_value": 1 / (n_permutations + 1),
            }
        if "ce" in adata.uns:
            values = rng.uniform(1 / n_classes, 1, len(own)).astype(np.float32)
            adata.obs["ce_confidence"] = values
            adata.uns["ce"]["quality"]["test"] |= {
                "calibration_error": 0.023,
                "calibration_error_low": 0.0,
                "calibration_error_high": 0.044,
                "uncalibrated_error": 0.061,
            }
        return adata

    return write
