"""Errors and calibration by class, compared with scikit-learn, scipy and brute force."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.metrics import balanced_accuracy_score, zero_one_loss

from centroid_encoder.core.quality import share_intervals
from centroid_encoder.tl._evaluation import evaluate, evaluate_confidence

NAMES = ("voronoi_error", "balanced_voronoi_error")


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
    wrong["largest_class"] = labels != 1
    quality, per_class = evaluate(wrong, labels, n_classes)
    assert quality["n"] == n
    assert quality["largest_class_error"] == pytest.approx(np.mean(labels != 1))
    inside = [labels == code for code in range(n_classes)]
    for rule, found in predicted.items():
        assert quality[f"{rule}_error"] == pytest.approx(zero_one_loss(labels, found))
        balanced = 1 - balanced_accuracy_score(labels, found)
        assert quality[f"balanced_{rule}_error"] == pytest.approx(balanced)
        expected = [np.mean(found[i] != labels[i]) if i.any() else np.nan for i in inside]
        np.testing.assert_allclose(per_class[f"{rule}_error"], expected)
        for i, low, high in zip(
            inside, per_class[f"{rule}_error_low"], per_class[f"{rule}_error_high"], strict=True
        ):
            if i.any():
                test = binomtest(int((found[i] != labels[i]).sum()), int(i.sum()))
                assert (low, high) == pytest.approx(test.proportion_ci(method="wilson"), abs=1e-6)


def test_without_cells_errors_are_nan() -> None:
    none = np.zeros(0, dtype=np.intp)
    wrong = pd.DataFrame({"knn": none != none, "largest_class": none != none})
    quality, per_class = evaluate(wrong, none, 3)
    assert quality.pop("n") == 0
    assert np.isnan([*quality.values(), *per_class["knn_error"]]).all()


def test_a_rare_class_that_is_never_predicted_is_wrong_in_one_half_of_the_classes() -> None:
    """The rare class has cells in two of five donors, so a mean over donors would be 0.2."""
    labels = np.repeat([0, 1], [1000, 40])
    donors = np.r_[np.repeat(np.arange(5), 200), np.repeat([0, 1], 20)]
    quality, _ = evaluate(pd.DataFrame({"voronoi": labels == 1}), labels, 2, donors)
    assert quality["balanced_voronoi_error"] == 0.5
    assert quality["voronoi_error"] == pytest.approx(40 / 1040)


@pytest.mark.parametrize("n_donors", [1, 2])
def test_cells_of_one_or_two_groups_have_no_interval(n_donors: int) -> None:
    """Fewer than three donors show nothing about the differences between donors."""
    labels, wrong = np.arange(100) % 2, np.arange(100) % 7 == 0
    donors = np.arange(100) % n_donors
    quality, per_class = evaluate(pd.DataFrame({"voronoi": wrong}), labels, 2, donors)
    errors, table = evaluate_confidence(labels, np.full(100, 0.9), wrong, ~wrong, 2, donors)
    ends = ("_low", "_high")
    for name in NAMES:
        assert np.isnan([quality[name + end] for end in ends]).all()
    assert per_class[["voronoi_error_low", "voronoi_error_high"]].isna().all(axis=None)
    assert table[["right_low", "right_high"]].isna().all(axis=None)
    assert np.isnan([errors["calibration_error" + end] for end in ends]).all()
    assert errors["calibration_error"] > 0
    assert quality["voronoi_error"] == 0.15


@pytest.mark.parametrize("error", [0.0, 1.0])
def test_cells_that_agree_do_not_give_an_interval_of_one_value(error: float) -> None:
    """None of 20 cells of four donors is wrong, or all are."""
    wrong, labels = pd.DataFrame({"voronoi": np.full(20, error)}), np.arange(20) % 2
    for donors, n in ((None, 20), (np.arange(20) // 5, 4)):
        quality, per_class = evaluate(wrong, labels, 2, donors)
        expected = binomtest(int(error * n), n).proportion_ci(method="wilson")
        found = quality["voronoi_error_low"], quality["voronoi_error_high"]
        assert found == pytest.approx(expected, abs=1e-6)
        for end in ("low", "high"):
            is_end = end == ("high" if error else "low")
            values = [quality[f"balanced_voronoi_error_{end}"], *per_class[f"voronoi_error_{end}"]]
            assert (np.abs(np.subtract(values, error)) > 0.1).tolist() == [not is_end] * 3


@pytest.mark.parametrize("n_donors", [3, 4, 6, 10])
def test_intervals_of_few_donors_are_wide_enough(n_donors: int) -> None:
    """Errors of all cells, of each class and of each prediction, for 10 cells a class or more."""
    covered, donors = [], np.repeat(np.arange(n_donors), 60)
    rng = np.random.default_rng(n_donors)
    for _ in range(150):
        labels = rng.choice(3, len(donors), p=[0.6, 0.25, 0.15])
        rates = rng.beta(2.4, 9.6, n_donors)  # their mean is 0.2
        wrong = rng.random(len(donors)) < rates[donors]
        quality, per_class = evaluate(pd.DataFrame({"voronoi": wrong}), labels, 3, donors)
        table = evaluate_confidence(labels, np.full(len(wrong), 0.8), wrong, ~wrong, 3, donors)[1]
        for low, high in (
            *((quality[f"{name}_low"], quality[f"{name}_high"]) for name in NAMES),
            *per_class[["voronoi_error_low", "voronoi_error_high"]].to_numpy(),
            *(1 - table[["right_high", "right_low"]].to_numpy()),
        ):
            covered.append(low <= 0.2 <= high)
    of_each = np.reshape(covered, (150, -1)).mean(axis=0)
    assert of_each.min() >= 0.87
    assert 0.92 <= of_each.mean() < 0.995


@pytest.mark.parametrize("sizes", [(1800, *9 * [133]), (1000, 500, 250, 125, 62, 31)])
def test_donors_of_unequal_sizes_count_as_fewer(sizes: tuple[int, ...]) -> None:
    donors, covered, rng = np.repeat(np.arange(len(sizes)), sizes), 0, np.random.default_rng(0)
    for _ in range(150):
        wrong = rng.random(len(donors)) < rng.beta(2, 18, len(sizes))[donors]  # their mean is 0.1
        low, high = share_intervals(wrong.astype(float), donors * 0, 1, donors)[0]
        covered += low <= 0.1 <= high
    assert covered >= 138
    # One donor with nearly all cells shows nothing about other donors.
    donors = np.repeat([0, 1, 2], [1900, 50, 50])
    assert np.isnan(share_intervals(donors / 2, donors * 0, 1, donors)[0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, 60, 400])
@pytest.mark.parametrize("rate", [0.02, 0.2])
def test_intervals_of_cells_cover_as_often_as_they_say(n: int, rate: float) -> None:
    rng, covered = np.random.default_rng(n), []
    for _ in range(400):
        labels = rng.choice(3, n, p=[0.6, 0.25, 0.15])
        quality, _ = evaluate(pd.DataFrame({"voronoi": rng.random(n) < rate}), labels, 3)
        covered.append([quality[f"{x}_low"] <= rate <= quality[f"{x}_high"] for x in NAMES])
    assert np.mean(covered, axis=0) == pytest.approx([0.955, 0.955], abs=0.035)


@pytest.mark.parametrize("by_group", [False, True])
def test_intervals_cover_the_error_of_new_cells(by_group: bool) -> None:
    """The errors of the cells of a donor are alike, so that only intervals over donors cover."""
    covered = dict.fromkeys(("cells", "groups"), 0)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        donors = np.repeat(np.arange(25), 20)
        rates = rng.beta(2, 6, 25) if by_group else np.full(25, 0.25)
        wrong = pd.DataFrame({"voronoi": rng.random(500) < rates[donors]})
        for kind, units in (("cells", None), ("groups", donors)):
            quality, _ = evaluate(wrong, donors % 2, 2, units)
            for name in NAMES:
                covered[kind] += quality[f"{name}_low"] <= 0.25 <= quality[f"{name}_high"]
    # There are 200 intervals; those of cells are too narrow if the errors of a donor are alike.
    assert covered["groups"] >= 174
    assert (covered["cells"] < 165) == by_group


def test_the_calibration_of_each_predicted_class_is_its_own() -> None:
    """Confidence is right on average, but that of the rare prediction is 30 points too high."""
    predicted = np.repeat([0, 1, 2], [900, 100, 5])
    confidence = np.repeat([0.9, 0.7, 0.8], [900, 100, 5])
    right = np.r_[np.arange(900) < 840, np.arange(100) < 40, np.arange(5) < 4]
    errors, table = evaluate_confidence(predicted, confidence, confidence, right, 4)
    assert errors["calibration_error"] < 0.1
    assert table["n_predicted"].tolist() == [900, 100, 5, 0]
    np.testing.assert_allclose(table["confidence"], [0.9, 0.7, 0.8, np.nan])
    np.testing.assert_allclose(table["right"], [840 / 900, 0.4, 0.8, np.nan])
    interval = binomtest(40, 100).proportion_ci(method="wilson")
    assert (table["right_low"][1], table["right_high"][1]) == pytest.approx(interval, abs=1e-6)
    assert table["rough"].tolist() == [False, False, True, True]
