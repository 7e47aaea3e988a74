"""Errors of several rules, compared with those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from centroid_encoder.tl._judging import error_rates
from sklearn.metrics import balanced_accuracy_score, zero_one_loss

from centroid_encoder.core.quality import at_chance


@pytest.mark.filterwarnings("ignore::UserWarning:sklearn")
@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("n", [1, 4, 60])
def test_errors_are_those_of_scikit_learn(n: int, n_classes: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(n_classes, n, p=rng.dirichlet(np.ones(n_classes)))
    predicted = {
        rule: np.where(rng.uniform(size=n) < p, rng.integers(0, n_classes, n), labels)
        for rule, p in (("knn", 0.2), ("voronoi", 0.5), ("decoder", 0.9))
    }
    wrong = pd.DataFrame({rule: found != labels for rule, found in predicted.items()})
    wrong["chance"] = labels != 1
    errors, per_class = error_rates(wrong, labels, n_classes)
    assert errors["chance_error"] == pytest.approx(np.mean(labels != 1))
    inside = [labels == code for code in range(n_classes)]
    for rule, found in predicted.items():
        assert errors[f"{rule}_error"] == pytest.approx(zero_one_loss(labels, found))
        balanced = 1 - balanced_accuracy_score(labels, found)
        assert errors[f"balanced_{rule}_error"] == pytest.approx(balanced)
        expected = [np.mean(found[i] != labels[i]) if i.any() else np.nan for i in inside]
        np.testing.assert_allclose(per_class[rule], expected)


def test_without_cells_errors_are_nan() -> None:
    none = np.zeros(0, dtype=np.intp)
    wrong = pd.DataFrame({"knn": none != none, "chance": none != none})
    errors, per_class = error_rates(wrong, none, 3)
    assert np.isnan([*errors.values(), *per_class["knn"]]).all()
    assert not at_chance(none, none, 0)
