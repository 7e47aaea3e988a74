"""Trainings on data and class indices, through `CentroidEncoder.fit_codes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from sklearn.datasets import make_blobs
from sklearn.model_selection import StratifiedKFold

import centroid_encoder as ce
from centroid_encoder.core import fit as core
from centroid_encoder.core.fit import Fit
from centroid_encoder.core.quality import nearest_center
from centroid_encoder.core.reports import Report
from tests.stored_rows import StoredRows

CLASSES = np.array(["a", "of nothing", "b", "c", "d"])
N, N_UNLABELED = 400, 80
BOTTLENECK = {"placement": "bottleneck"}


@dataclass
class Trained:
    """A model, the result of its training, and the reports of the callback with their frames."""

    model: ce.CentroidEncoder
    fit: Fit
    reports: list[Report]
    frames: list[Any]


@pytest.fixture(scope="module")
def X() -> NDArray[np.float64]:
    return make_blobs(N, 12, centers=4, cluster_std=3.0, random_state=0)[0]


@pytest.fixture(scope="module")
def codes() -> NDArray[np.intp]:
    """Indices into `CLASSES`: one class has no rows, and every fifth row is unlabelled."""
    labels = make_blobs(N, 12, centers=4, cluster_std=3.0, random_state=0)[1]
    return np.where(np.arange(N) % 5, np.array([0, 2, 3, 4])[labels], -1)


def trained(X: Any, codes: NDArray[np.intp], **params: Any) -> Trained:
    options = {name: params.pop(name) for name in ("groups", "novelty") if name in params}
    defaults = {"hidden": (16,), "max_epochs": 6, "random_state": 0}
    model, reports, frames = ce.CentroidEncoder(**(defaults | params)), [], []

    def callback(report: Report | None) -> bool:
        if report is not None:
            reports.append(report)
            frames.append(report.frame())
        return False

    fit = model.fit_codes(X, codes, CLASSES, callback=callback, **options)
    return Trained(model, fit, reports, frames)


@pytest.fixture(scope="module")
def voronoi(X: NDArray[Any], codes: NDArray[np.intp]) -> Trained:
    return trained(X, codes, novelty=True)


@pytest.fixture(scope="module")
def bottleneck(X: NDArray[Any], codes: NDArray[np.intp]) -> Trained:
    return trained(X, codes, **BOTTLENECK)


def test_a_fit_on_codes_equals_the_estimator_on_labelled_rows(
    X: Any, codes: Any, voronoi: Trained
) -> None:
    known, fit = codes >= 0, voronoi.fit
    assert_array_equal(voronoi.model.classes_, ["a", "b", "c", "d"])
    assert_array_equal(CLASSES[fit.known], voronoi.model.classes_)
    expected = ce.CentroidEncoder(hidden=(16,), max_epochs=6, random_state=0)
    expected.fit(X[known], CLASSES[codes[known]])
    assert_allclose(voronoi.model.transform(X), expected.transform(X), atol=1e-5)
    embedding, predicted, confidence = fit.map.decide(fit.map.judge(X), N)
    assert_array_equal(CLASSES[fit.known[predicted]], expected.predict(X))
    probabilities = expected.predict_proba(X)[np.arange(N), predicted]
    assert_allclose(confidence, probabilities, rtol=1e-4)
    assert_array_equal(nearest_center(embedding, fit.map.centers), predicted)
    index = np.array([9, 3])
    assert_allclose(fit.embed(index), fit.embed()[index], atol=1e-5)
    assert fit.embed(index[:0]).shape == (0, 2)


def test_a_row_is_placed_by_the_network_that_is_not_trained_on_it(
    X: Any, codes: Any, voronoi: Trained
) -> None:
    fit, known = voronoi.fit, codes >= 0
    folds = fit.division.folds
    assert_array_equal(folds >= 0, known)
    n = fit.division.n_networks
    for k in range(n):
        rows = np.flatnonzero(folds == k)
        counts = np.bincount(codes[rows], minlength=5) - np.bincount(codes[known], minlength=5) / n
        assert np.abs(counts).max() <= 1
        alone = fit.map.network.encode(fit.run.data.inputs[:, rows])[k].detach().numpy()
        placer = fit.map.placer.of_folds[k]
        places, _ = placer.judge_logits(placer.logits(alone, fit.along[rows]), fit.along[rows])
        assert_allclose(fit.embed(rows), places, atol=1e-4)
    own, of_all = (
        np.concatenate([distances for _, distances in judged])
        for judged in (fit.judge(), fit.map.judge(X))
    )
    differs = np.abs(own - of_all).max(axis=1) > 1e-3
    assert_array_equal(differs, known)


@pytest.mark.slow
@pytest.mark.parametrize("params", [{}, BOTTLENECK, {"n_networks": 1}])
def test_a_stratified_sample_trains_if_there_are_more_rows_than_max_samples(
    X: Any, codes: Any, params: dict[str, Any]
) -> None:
    stored, n_labeled = StoredRows(X), N - N_UNLABELED
    few = trained(stored, codes, max_samples=100, max_epochs=30, **params)
    division, labeled = few.fit.division, np.flatnonzero(codes >= 0)
    assert_array_equal(division.in_memory, division.train)
    counts = np.bincount(codes[division.train], minlength=5)
    expected = 100 * np.bincount(codes[labeled], minlength=5) / n_labeled
    assert np.abs(counts - expected).max() <= 1
    assert len(few.fit.run.data.labels) == len(division.train) == counts.sum()
    # All rows have a place; all networks place the rows that were not trained on.
    embedding = few.fit.embed()
    assert_allclose(embedding[division.train], few.fit.embed(division.train), atol=1e-4)
    others = np.setdiff1d(np.arange(N), division.train)
    assert_allclose(embedding[others], few.model.transform(X)[others], atol=1e-4)
    assert np.isfinite(embedding).all()
    right = nearest_center(embedding, few.fit.map.centers) == np.searchsorted(few.fit.known, codes)
    assert right[labeled].mean() > 0.8
    if not params:
        assert_array_equal(np.flatnonzero(division.folds >= 0), division.train)
    same = trained(X, codes, max_samples=n_labeled, **params)
    full = trained(X, codes, max_samples=None, **params)
    assert_allclose(same.model.transform(X), full.model.transform(X), atol=1e-5)


def test_statistics_of_a_sample_are_close_to_those_of_all(
    X: Any, codes: Any, monkeypatch: pytest.MonkeyPatch, bottleneck: Trained
) -> None:
    monkeypatch.setattr(core, "N_SAMPLE", 200)
    found = trained(X, codes, **BOTTLENECK)
    # But centroids are the means of all rows.
    assert_allclose(found.model.centroids_, bottleneck.model.centroids_, rtol=1e-4)
    assert_allclose(found.model.transform(X), bottleneck.model.transform(X), atol=1e-2)


@pytest.mark.parametrize("placement", ["voronoi", "bottleneck"])
def test_frames_show_all_rows_from_the_start(codes: Any, placement: str, request: Any) -> None:
    found: Trained = request.getfixturevalue(placement)
    known = codes >= 0
    assert [report.stage for report in found.reports] == ["start"] + ["train"] * 6
    # Before the training, a bottleneck has no embedding.
    n_first = 0 if placement == "voronoi" else 1
    assert found.frames[:n_first] == [None] * n_first
    reports, frames = found.reports[n_first:], found.frames[n_first:]
    for report, frame in zip(reports, frames, strict=True):
        embedding, centers = frame
        assert embedding.shape == (N, 2)
        assert embedding.dtype == np.float32
        assert np.isfinite(embedding[known if report.stage == "start" else ...]).all()
        if centers is not None and report in (reports[0], reports[-1]):
            right = nearest_center(embedding, centers) == np.searchsorted(found.fit.known, codes)
            assert right[known].mean() > 0.95
            assert_allclose(centers, found.fit.map.centers)
    assert_allclose(embedding, found.fit.embed(), atol=0.5 if placement == "voronoi" else 1e-4)


def test_rows_of_a_group_are_in_one_fold(X: Any, codes: Any) -> None:
    groups = StratifiedKFold(8).split(X, codes)
    of_rows = np.empty(N, dtype=np.intp)
    for group, (_, rows) in enumerate(groups):
        of_rows[rows] = group
    found = trained(X, codes, groups=of_rows, max_epochs=1, max_samples=200).fit
    of_train = np.isin(np.arange(N), found.division.train)
    for group in range(8):
        assert len(np.unique(found.division.folds[(of_rows == group) & of_train])) == 1
    assert found.crowded_group() is None
    crowded = np.where(np.arange(N) % 40 == 1, 1, 0)
    assert trained(X, codes, groups=crowded, max_epochs=1).fit.crowded_group()[0] == 0
    alone = trained(X, codes, groups=np.zeros(N, dtype=np.intp), max_epochs=1).fit
    assert alone.crowded_group() == (0, 1.0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_unsuitable_labels_and_data_are_errors(X: Any, codes: Any) -> None:
    with pytest.raises(ValueError, match=r"at least two classes, but got one class \(b\)"):
        trained(X, np.full(N, 2))
    with pytest.raises(ValueError, match="at least two classes, but got no samples"):
        trained(X, np.full(N, -1))
    with pytest.raises(ValueError, match="too large"):
        trained(X * 1e200, codes)


def test_the_first_frame_does_not_separate_classes_of_noise() -> None:
    """Each row is placed by a regression on the other rows."""
    X, codes = np.random.default_rng(0).normal(size=(300, 90)), np.arange(300) % 3
    embedding, centers = trained(X, codes, max_epochs=1, scale="feature").frames[0]
    assert (nearest_center(embedding, centers) == codes).mean() < 0.45


def test_each_epoch_has_a_frame_also_with_groups() -> None:
    """Also if the classes differ so much between the groups that the error of new ones is large."""
    rng = np.random.default_rng(0)
    codes, groups = rng.integers(0, 4, 600), np.arange(600) % 6
    X = rng.normal(size=(4, 12))[codes] + 2.5 * rng.normal(size=(6, 4, 12))[groups, codes]
    frames = trained(X, codes, groups=groups, max_epochs=5).frames
    assert len(frames) == 6
    assert all(frame is not None for frame in frames)


def test_novelty_is_that_of_the_estimator(X: Any, codes: Any, voronoi: Trained) -> None:
    known, novelty = codes >= 0, voronoi.fit.novelty()
    assert_array_equal(novelty[~known], voronoi.model.novelty(X)[~known])
    # The rows that novelty was learned from are scored by each other.
    assert novelty[known].mean() == pytest.approx(0.5, abs=0.01)
    few = np.where(np.arange(N) < 10, codes, -1)
    assert np.isnan(trained(X, few, novelty=True).fit.novelty()).all()
