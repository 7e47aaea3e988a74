"""Class indices of a caller whose order is not that of the map."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.datasets import load_iris

import centroid_encoder as ce
from centroid_encoder.core.fit import Fit
from centroid_encoder.core.map import CodedMap
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.quality import nearest_center
from tests.threads import threads

CLASSES = np.array(["virginica", "of nothing", "setosa", "versicolor"])


def model(**params: object) -> ce.CentroidEncoder:
    return ce.CentroidEncoder(hidden=(16,), max_epochs=8, random_state=0, **params)


def drained(reports: object) -> Fit:
    while True:
        try:
            next(reports)
        except StopIteration as end:
            return end.value


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return load_iris(return_X_y=True)[0]


@pytest.fixture(scope="module")
def codes() -> np.ndarray:
    """Setosa, versicolor, virginica; every third sample is not trained on."""
    return np.where(np.arange(150) % 3, np.array([2, 3, 0])[load_iris(return_X_y=True)[1]], -1)


@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
@pytest.mark.parametrize("params", [{}, {"class_weight": {"setosa": 2.0, "of nothing": 3.0}}])
def test_the_map_is_that_of_labels_in_any_order(
    X: np.ndarray, codes: np.ndarray, params: dict, placement: str
) -> None:
    labels = CLASSES[codes]
    train = codes >= 0
    other = {"class_weight": {"setosa": 2.0}} if params else {}
    expected = model(placement=placement, **other)
    list(expected.fit_reports(X, labels, subset=train))

    coded = model(placement=placement, **params)
    fit = drained(coded.fit_codes(X, codes, CLASSES))

    assert_array_equal(coded.classes_, ["setosa", "versicolor", "virginica"])
    assert_array_equal(coded.transform(X), expected.transform(X))
    assert_array_equal(coded.predict(X), expected.predict(X))
    # Training samples may be placed by the network that has not seen them: `transform` has no such.
    same = ~train if placement == "voronoi" else np.full(len(X), True)
    assert_array_equal(fit.embed()[same], expected.transform(X[same]))
    assert_array_equal(fit.embed(np.array([9, 3])), expected.transform(X[[9, 3]]))
    assert_array_equal(fit.standardized(np.array([7, 3])), expected.standardize(X[[7, 3]]))
    check_against(fit.map, expected, X)


def check_against(coded: CodedMap, expected: ce.CentroidEncoder, X: np.ndarray) -> None:
    embedding = expected.transform(X)
    places, predicted, confidence = coded.decide(coded.judge(X), len(X))
    assert_array_equal(places, embedding)
    assert_array_equal(CLASSES[predicted], expected.predict(X))
    assert_array_equal(confidence, expected.predict_proba(X).max(axis=1))
    assert_array_equal(
        CLASSES[nearest_center(embedding, coded.centers)], expected.predict_voronoi(X)
    )
    distances = coded.distances(embedding)
    assert np.isinf(distances[:, 1]).all()
    assert_array_equal(distances[:, [2, 3, 0]], expected.decoder_distances(embedding))


@pytest.mark.parametrize("n_threads", [1, 2])
def test_calibration_and_novelty_are_those_of_the_estimator(
    n_threads: int, X: np.ndarray, codes: np.ndarray
) -> None:
    labels, train = CLASSES[codes], codes >= 0
    labels[:] = np.array(["setosa", "versicolor", "virginica"])[np.arange(150) // 50]
    unseen = np.flatnonzero(~train)
    of_unseen = np.array([2, 3, 0])[unseen // 50]

    estimator = model()
    with threads(n_threads):
        fit = drained(estimator.fit_codes(X, codes, CLASSES, novelty=True))
    fit.calibrate(unseen, of_unseen)

    expected = model().fit(X[train], labels[train])
    expected.calibrate(X[unseen], labels[unseen])
    assert estimator.calibration_ == expected.calibration_
    expected.fit_novelty(X, labels, subset=train)
    assert_array_equal(fit.novelty()[unseen], expected.novelty(X)[unseen])
    # Samples that it was learned from are ranked among themselves.
    assert fit.novelty()[train].mean() == pytest.approx(0.5, abs=0.01)
    assert_array_equal(estimator.novelty(X), expected.novelty(X))
    check_against(expected.in_order(CLASSES), expected, X)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_what_keeps_it_from_learning_what_is_usual_is_raised(
    n_threads: int, X: np.ndarray, codes: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("no room for what is usual")

    monkeypatch.setattr(Novelty, "fit", fail)
    estimator = model()
    with threads(n_threads), pytest.raises(MemoryError, match="no room for what is usual"):
        drained(estimator.fit_codes(X, codes, CLASSES, novelty=True))
    assert not hasattr(estimator, "n_features_in_")


def test_of_fewer_than_ten_samples_nothing_is_usual(X: np.ndarray) -> None:
    codes = np.full(150, -1)
    codes[[0, 1, 2, 50, 51, 52]] = [2, 2, 2, 3, 3, 3]
    with threads(2):
        fit = drained(model().fit_codes(X, codes, CLASSES, novelty=True))
    assert fit.map.fitted.novelty is None
    assert np.isnan(fit.novelty()).all()


def test_names_of_features_are_those_of_the_estimator(X: np.ndarray, codes: np.ndarray) -> None:
    estimator = model()
    drained(estimator.fit_codes(X, codes, CLASSES, feature_names=list("abcd")))
    assert_array_equal(estimator.feature_names_in_, list("abcd"))
    assert estimator.to_state()[0]["estimator"]["feature_names"] == list("abcd")


def test_one_class_is_too_few(X: np.ndarray) -> None:
    estimator = model()
    with pytest.raises(ValueError, match=r"at least two classes, but got one class \(setosa\)"):
        drained(estimator.fit_codes(X, np.full(150, 2), CLASSES))
    assert not hasattr(estimator, "n_features_in_")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_what_is_decided_keeps_no_memory_of_what_it_comes_from():
    """Small arrays between larger ones that go would keep the memory of these: here 0.1 GB."""
    X = np.random.default_rng(0).normal(size=(60, 5))
    model = ce.CentroidEncoder(placement="bottleneck", hidden=(8,), max_epochs=1, device="cpu")
    coded = model.fit(X, np.arange(60) % 3).in_order(model.classes_)

    def judged(n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for _ in range(n):
            inputs = torch.ones(4096, 2000)
            hidden = torch.relu(inputs[:, :500] @ torch.ones(500, 500))
            code = torch.relu(hidden[:, :125] + 1)
            places = code[:, :2].contiguous()
            distances = torch.cdist(code[:, :5], torch.ones(3, 5))
            del inputs, hidden, code
            yield places.numpy(), distances.numpy()

    coded.decide(judged(3), 3 * 4096)
    before = resident()
    decided = coded.decide(judged(60), 60 * 4096)
    assert resident() - before < sum(array.nbytes for array in decided) + 4e7


def resident() -> int:
    """Bytes of memory that this process has."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])
