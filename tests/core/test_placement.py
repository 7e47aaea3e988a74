"""Places in the Voronoi cells of classes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scanpy as sc
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import orthogonal_procrustes
from scipy.optimize import minimize
from scipy.spatial.distance import cdist, pdist, squareform
from scipy.special import softmax
from scipy.stats import rankdata
from sklearn.datasets import load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GroupKFold,
    StratifiedKFold,
    cross_val_score,
    train_test_split,
)

import centroid_encoder as ce
from centroid_encoder.core.discriminant import Discriminant
from centroid_encoder.core.inputs import project
from centroid_encoder.core.layout import PLACED, Layout
from centroid_encoder.core.placement import BETWEEN_WEIGHT, Placer, Scatter

SEEDS = st.integers(0, 2**32 - 1)


def gauges(layout: Layout, places: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Gauge of each place towards the nearest border."""
    found = []
    for place, j in zip(places.astype(float), own, strict=True):
        y, others = place - layout.positions[j], np.delete(layout.positions, j, axis=0)
        step_factors = others - layout.positions[j]
        found.append(max(2 * (step_factors @ y) / np.square(step_factors).sum(axis=1)))
    return np.array(found)


class TestLayout:
    @pytest.mark.parametrize("n_components", [1, 2, 3])
    @pytest.mark.parametrize("n_classes", [2, 3, 40])
    def test_equal_classes_have_different_positions(
        self, n_classes: int, n_components: int
    ) -> None:
        positions = Layout.fit(np.zeros((n_classes, 5)), n_components).positions
        assert positions.shape == (n_classes, n_components)
        assert pdist(positions).min() > 1e-3

    def test_an_outlier_leaves_room_to_the_others(self) -> None:
        centroids = np.random.default_rng(2).normal(size=(10, 4))
        centroids[0] += 1000
        apart = cdist(*[Layout.fit(centroids, 2).positions] * 2)
        assert apart.max() < 10 * np.sort(apart + 1e9 * np.eye(10), axis=1)[:, 0].min()

    @given(SEEDS, st.integers(2, 12), st.integers(1, 3))
    def test_a_sample_lies_in_the_cell_of_its_most_probable_class(
        self, seed: int, n_classes: int, n_components: int
    ) -> None:
        rng = np.random.default_rng(seed)
        layout = Layout.fit(rng.normal(size=(n_classes, 6)), n_components)
        logits = rng.normal(size=(50, n_classes)) * 10 ** rng.uniform(-3, 3, size=(50, 1))
        components = rng.normal(size=(50, n_classes, n_components))
        components *= 10 ** rng.uniform(-2, 2, size=(50, 1, 1))
        places = layout.place(logits, components)
        own = logits.argmax(axis=1)
        assert_array_equal(cdist(places, layout.positions).argmin(axis=1), own)
        assert_array_equal(layout.distances(places).argmin(axis=1), own)
        assert (gauges(layout, places, own) < PLACED[1] + 1e-3).all()

    def test_without_scatter_a_place_is_the_weighted_mean_of_the_positions(
        self,
    ) -> None:
        layout = Layout(np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.8]]))
        probabilities = np.array([[0.8, 0.15, 0.05], [0.1, 0.7, 0.2], [0.05, 0.05, 0.9]])
        places = layout.place(np.log(probabilities), np.zeros((3, 3, 2)))
        assert_allclose(places, probabilities @ layout.positions, atol=1e-5)

    @pytest.mark.parametrize("n_components", [1, 2, 3])
    def test_places_are_continuous_between_classes(self, n_components: int) -> None:
        """With even odds, a sample lies near the border on either side of it."""
        rng = np.random.default_rng(3)
        layout = Layout.fit(rng.normal(size=(2, 4)), n_components)
        components = rng.normal(size=(1, 2, n_components))
        left, right = (layout.place(np.array([[0.0, odds]]), components) for odds in (-1e-4, 1e-4))
        assert np.linalg.norm(left - right) < 0.06
        # The third class becomes the second most probable one, and places do not jump.
        layout = Layout.fit(rng.normal(size=(3, 4)), n_components)
        components = rng.normal(size=(1, 3, n_components))
        below, above = (
            layout.place(np.array([[1.0, 0.0, odds]]), components) for odds in (-1e-4, 1e-4)
        )
        assert np.linalg.norm(below - above) < 1e-3

    def test_squared_distances_of_places_are_log_odds(self) -> None:
        """Squared, because most samples have scatter, which makes their odds look more even."""
        layout = Layout.fit(np.array([[0.0, 0.0], [1.0, 0.0]]), 2)
        logits = np.column_stack([np.linspace(0.2, 2.5, 20), np.zeros(20)])
        places = layout.place(logits, np.zeros((20, 2, 2)))
        assert_allclose(np.square(layout.distances(places))[:, 1], 2 * logits[:, 0], rtol=1e-3)


class TestScatter:
    def test_components_have_large_variance_or_lead_to_the_other_class(self) -> None:
        rng = np.random.default_rng(0)
        codes = np.arange(4000) % 2
        X = rng.normal(size=(4000, 5)) + np.outer(codes, [0, 0, 3, 0, 0])
        X[codes == 0] *= [4, 2, 1, 0.5, 0.2]
        X[codes == 1] *= [0.2, 0.5, 1, 2, 4]
        centroids = np.stack([X[codes == j].mean(axis=0) for j in range(2)])
        scatter = Scatter.fit(torch.tensor(X - centroids[codes]).float(), codes, centroids, 2)
        found = scatter.components(project(torch.tensor(X).float(), scatter.axes))
        way = centroids[1] - centroids[0]
        for j in range(2):
            own = X[codes == j] - centroids[j]
            covariance = np.cov(own.T)
            between = np.outer(way, way) / (way @ way) * np.trace(covariance)
            expected = own @ np.linalg.eigh(covariance + BETWEEN_WEIGHT * between)[1][:, :-3:-1]
            for axis in range(2):
                shown = found[codes == j, j, axis]
                assert abs(np.corrcoef(shown, expected[:, axis])[0, 1]) > 0.999
            assert_allclose(found[codes == j, j, 0].std(), 1, rtol=0.02)

    def test_a_wide_class_has_a_larger_scatter(self) -> None:
        rng = np.random.default_rng(0)
        codes = np.arange(3000) % 3
        X = rng.normal(size=(3000, 4)) * np.array([1, 4, 9])[codes, None]
        centroids = np.stack([X[codes == j].mean(axis=0) for j in range(3)])
        scatter = Scatter.fit(torch.tensor(X - centroids[codes]).float(), codes, centroids, 2)
        found = scatter.components(project(torch.tensor(X).float(), scatter.axes))
        deviations = [found[codes == j, j, 0].std() for j in range(3)]
        assert_allclose(deviations, [0.5, 1, 1.5], rtol=0.1)

    def test_components_are_turned_to_the_positions_of_the_classes(self) -> None:
        """The direction to another class in the data is that to its position in the plane."""
        rng = np.random.default_rng(2)
        codes = np.arange(900) % 3
        centroids = np.array([[0.0, 0, 0], [6, 0, 0], [0, 6, 0]])
        X = centroids[codes] + rng.normal(size=(900, 3)) * [2, 1.5, 0.1]
        scatter = Scatter.fit(torch.tensor(X - centroids[codes]).float(), codes, centroids, 2)
        angle = rng.uniform(0, 2 * np.pi)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        for mirror in (1, -1):
            positions = centroids[:, :2] * [1, mirror] @ turn.T
            turned = scatter.turned(positions, np.ones(3))
            found = turned.components(project(torch.tensor(X).float(), turned.axes))
            for j in range(3):
                step_factors = np.delete(positions - positions[j], j, axis=0)
                toward = np.delete(centroids - centroids[j], j, axis=0)
                own = codes == j
                shown = found[own, j] @ step_factors.T
                wanted = (X[own] - centroids[j]) @ toward.T
                for k in range(2):
                    assert np.corrcoef(shown[:, k], wanted[:, k])[0, 1] > 0.95

    def test_scatter_is_zero_for_classes_of_equal_samples(self) -> None:
        codes, centroids = np.arange(20) % 2, np.eye(2)
        scatter = Scatter.fit(torch.zeros((20, 2)), codes, centroids, 2)
        components = scatter.components(project(torch.tensor(centroids).float(), scatter.axes))
        assert_allclose(components[[0, 1], [0, 1]], 0, atol=1e-6)


def placer(targets: np.ndarray) -> Placer:
    """A placer of classes with these targets, whose odds are not fitted."""
    scatter = Scatter(np.eye(1, dtype=np.float32), targets[:, :1], np.ones((len(targets), 1, 1)))
    no_axes = np.zeros((0, 1), np.float32), np.zeros((len(targets), 0))
    return Placer(targets, scatter, Layout.fit(targets, 1), Discriminant(*no_axes))


def with_odds(
    targets: np.ndarray, outputs: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None
) -> Placer:
    """The same placer, with odds from samples without folds."""
    weights = np.ones(len(codes)) if weights is None else weights
    return placer(targets).with_odds(
        outputs, outputs[:, :0], codes, weights, np.full(len(codes), -1)
    )


class TestOdds:
    def test_odds_are_those_of_logistic_regression(self) -> None:
        """For two classes and one output, the logits are linear."""
        rng = np.random.default_rng(0)
        codes = rng.integers(0, 2, 3000)
        targets = np.array([[-1.0], [1.0]])
        outputs = targets[codes] * 0.7 + rng.normal(size=(3000, 1))
        logits = with_odds(targets, outputs, codes).logits(outputs, outputs[:, :0])
        expected = LogisticRegression(C=1e9).fit(outputs, codes).decision_function(outputs)
        assert_allclose(logits[:, 1] - logits[:, 0], expected, atol=0.1)

    def test_a_weight_of_two_is_a_repetition(self) -> None:
        rng = np.random.default_rng(1)
        codes = np.repeat([0, 1], [200, 100])
        outputs = rng.normal(size=(300, 2)) + codes[:, None]
        targets = np.array([[0.0, 0.0], [1.0, 1.0]])
        weighted = with_odds(targets, outputs, codes, np.array([1.0, 2.0])[codes])
        twice = np.append(np.arange(300), np.arange(200, 300))
        repeated = with_odds(targets, outputs[twice], codes[twice])
        # Except for the smoothing, whose effect is smaller with more samples.
        assert_allclose(
            weighted.logits(outputs, outputs[:, :0]),
            repeated.logits(outputs, outputs[:, :0]),
            atol=0.02,
        )

    @pytest.mark.parametrize("n", [10, 100])
    def test_without_errors_the_odds_of_few_samples_stay_finite(self, n: int) -> None:
        codes = np.arange(n) % 2
        outputs = targets = np.array([[-1.0], [1.0]])
        logits = with_odds(targets, outputs[codes], codes).logits(outputs, outputs[:, :0])
        doubt = 1 - softmax(logits, axis=1).max(axis=1)
        assert_allclose(doubt, 0.3 / (n + 2), rtol=0.05)

    def test_odds_of_a_fold_are_those_of_the_other_folds(self) -> None:
        rng = np.random.default_rng(2)
        codes, folds, targets = rng.integers(0, 2, 90), np.arange(90) % 3, np.eye(2)
        outputs = targets[codes] + rng.normal(size=(90, 2))
        # The third fold has wrong labels, and a placer is that of each fold.
        codes[folds == 2] = 1 - codes[folds == 2]
        common = replace(placer(targets), of_folds=(placer(targets),) * 3)
        found = common.with_odds(outputs, outputs[:, :0], codes, np.ones(90), folds)
        for k, of_fold in enumerate(found.of_folds):
            others = folds != k
            expected = with_odds(targets, outputs[others], codes[others])
            logits = expected.logits(outputs, outputs[:, :0])
            assert_allclose(of_fold.logits(outputs, outputs[:, :0]), logits, rtol=0.02, atol=0.02)
        assert found.of_folds[2].sharpness > 2 * found.sharpness
        # Without samples in the other folds, the odds are finite.
        alone = common.with_odds(outputs, outputs[:, :0], codes, np.ones(90), np.zeros(90, int))
        assert np.isfinite(alone.of_folds[0].logits(outputs, outputs[:, :0])).all()


QUICK = {"placement": "voronoi", "hidden": (32,), "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, ...]:
    X, y = load_digits(return_X_y=True)
    return train_test_split(X.astype(np.float32), y, test_size=0.5, random_state=0, stratify=y)


@pytest.fixture(scope="module")
def model(digits: tuple[np.ndarray, ...]) -> ce.CentroidEncoder:
    X, _, y, _ = digits
    return ce.CentroidEncoder(**QUICK).fit(X, y)


class TestEstimator:
    def test_inverse_transform_keeps_the_predicted_class(
        self, model: ce.CentroidEncoder, digits: tuple[np.ndarray, ...]
    ) -> None:
        assert_allclose(model.inverse_transform(model.centers_), model.centroids_, atol=1e-3)
        back = model.inverse_transform(model.transform(digits[1]))
        assert (model.predict(back) == model.predict(digits[1])).mean() > 0.9

    def test_random_values_of_a_sample_give_it_the_mean_of_the_odds(self) -> None:
        X, y = load_iris(return_X_y=True)
        model = ce.CentroidEncoder(max_epochs=10, random_state=0).fit(X, y)
        fitted, (a, b) = model.fitted_map, (X[:100], X[50:])
        odds = [
            softmax(-np.square(distances.astype(float)), axis=1)
            for ((_, distances),) in map(fitted.judge, (a, b))
        ]
        places, distances, probabilities = fitted.judge_draws((a + b) / 2, [a, b])
        wanted = (odds[0] + odds[1]) / 2
        assert_allclose(softmax(-np.square(distances.astype(float)), axis=1), wanted, atol=1e-3)
        assert_allclose(probabilities, (model.predict_proba(a) + model.predict_proba(b)) / 2, 1e-5)
        assert_array_equal(cdist(places, fitted.centers).argmin(axis=1), wanted.argmax(axis=1))
        # Without doubt, the result is that of any sample.
        for found, of_sample in zip(fitted.judge_draws(a, [a, a]), *fitted.judge(a), strict=False):
            assert_allclose(found, of_sample, atol=1e-3)

    def test_classes_of_one_sample(self) -> None:
        X, y = load_iris(return_X_y=True)
        X, y = X[:101], y[:101]
        model = ce.CentroidEncoder(**QUICK).fit(X, y)
        assert np.isfinite(model.transform(X)).all()
        for few in (slice(49, 51), slice(0, 51)):
            assert np.isfinite(ce.CentroidEncoder(**QUICK).fit(X[few], y[few]).transform(X)).all()


@pytest.mark.slow
@pytest.mark.parametrize("of_donors", [False, True])
def test_places_of_training_cells_do_not_depend_on_their_labels(of_donors: bool) -> None:
    """On noise, nothing predicts random labels of cells, or of donors, from the places."""
    scores, folds = [], GroupKFold(5) if of_donors else StratifiedKFold(5)
    donors = np.arange(100) // 5
    for seed in range(24):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(100, 150)), rng.permutation(np.arange(100) % 3)
        if of_donors:
            X += rng.normal(size=(20, 150))[donors]
            y = np.where(rng.random(100) < 0.7, rng.permutation(np.arange(20) % 3)[donors], y)
        groups = donors if of_donors else None
        model = ce.CentroidEncoder(hidden=(16,), max_epochs=10, random_state=seed, device="cpu")
        places, rule = model.fit_transform(X, y, groups=groups), LinearDiscriminantAnalysis()
        scores.append(cross_val_score(rule, places, y, groups=groups, cv=folds).mean())
    assert np.mean(scores) < 1 / 3 + 0.03


def test_a_training_cell_lies_near_its_copy_among_new_cells(
    digits: tuple[np.ndarray, ...],
) -> None:
    """Their scatters are computed from different cells, and near classes are 1 apart."""
    X, _, y, _ = digits
    model = ce.CentroidEncoder(**QUICK)
    places = model.fit_transform(X, y)
    copies = model.transform(X)
    assert np.median(np.linalg.norm(places - copies, axis=1)) < 0.15
    # The scatter within a class has the same directions.
    for j in range(10):
        own = y == j
        turn, _ = orthogonal_procrustes(*(x[own] - x[own].mean(axis=0) for x in (places, copies)))
        assert np.trace(turn) > 1.8


def laid_out(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Positions of classes without a training."""
    z = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    centroids = np.stack([z[y == j].mean(axis=0) for j in range(y.max() + 1)]).astype(float)
    roots, noise = np.sqrt(np.bincount(y)), np.square(z - centroids[y]).mean() / np.bincount(y)
    return Layout.fit(centroids, 2, np.sqrt(roots / roots.mean()), noise).positions


def difference(
    one: np.ndarray, other: np.ndarray, sizes: np.ndarray, *, turned: bool = False
) -> float:
    """Disparity of two layouts that are moved and scaled, and may be turned and mirrored."""
    weights = (np.sqrt(sizes) / np.sqrt(sizes).sum())[:, None]
    one, other = (x - (weights * x).sum(axis=0) for x in (one, other))
    one, other = (x / np.sqrt((weights * np.square(x)).sum()) for x in (one, other))
    if turned:
        other = other @ orthogonal_procrustes(np.sqrt(weights) * other, np.sqrt(weights) * one)[0]
    return float((weights * np.square(one - other)).sum() / 2)


def blood() -> tuple[np.ndarray, np.ndarray]:
    adata = sc.datasets.pbmc68k_reduced()
    return adata.X, adata.obs["bulk_labels"].cat.codes.to_numpy().astype(int)


class TestLayoutOfCells:
    def test_halves_of_the_cells_have_one_layout(self) -> None:
        """In any order of the classes; rarely, one half is turned or mirrored."""
        X, y = blood()
        sizes, found = np.bincount(y), []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            order, rows = rng.permutation(len(sizes)), rng.permutation(len(y))
            one, other = (laid_out(X[half], order[y[half]]) for half in np.array_split(rows, 2))
            found.append(difference(one, other, sizes[order.argsort()]))
        assert np.median(found) < 0.1
        assert np.mean(found) < 0.2

    @pytest.mark.slow
    def test_a_class_of_three_cells_moves_the_others_little(self) -> None:
        X, y = blood()
        moved = []
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(10)
            for rare in range(10):
                z, others = order[y], order[y] != rare
                rows = np.append(np.flatnonzero(others), np.flatnonzero(~others)[:3])
                before = laid_out(X[others], z[others] - (z[others] > rare))
                after = np.delete(laid_out(X[rows], z[rows]), rare, axis=0)
                sizes = np.bincount(z)[np.arange(10) != rare]
                moved.append(difference(before, after, sizes, turned=True))
        assert np.median(moved) < 0.05

    @pytest.mark.parametrize("n_components", [2, 3])
    def test_positions_have_the_least_stress(self, n_components: int) -> None:
        """SciPy finds no better positions near them (formulas of docs/placement.md)."""
        rng, n = np.random.default_rng(0), 30
        centroids, noise = rng.normal(size=(n, 20)), rng.uniform(0.01, 0.3, n)
        room = rng.uniform(0.3, 2, n)
        room /= np.sqrt(np.square(room).mean())
        raw = pdist(centroids, "sqeuclidean") / 20
        i, j = np.triu_indices(n, 1)
        far = np.maximum(raw - noise[i] - noise[j], raw / 4)
        share = (rankdata(far) / len(far) + (far - far.min()) / np.ptp(far)) / 2
        wanted = (room[i] + room[j]) / 2 + np.sqrt(n) * share

        def stress(points: np.ndarray) -> float:
            squares = np.square(pdist(points.reshape(n, n_components)) - wanted)
            return float((room[i] * room[j] * squares).sum())

        found = Layout.fit(centroids, n_components, room, noise).positions
        # The layout is scaled at the end.
        sizes = np.linspace(0.3, 3, 2701)
        found = found * sizes[np.argmin([stress(size * found) for size in sizes])]
        best = minimize(stress, found.ravel())
        assert stress(found) < 1.001 * best.fun

    def test_equal_classes_have_different_positions(self) -> None:
        """Positions that SMACOF starts from are equal, too."""
        for seed in range(20):
            centroids = np.random.default_rng(seed).normal(size=(8, 20))
            centroids[7] = centroids[6]
            found = Layout.fit(centroids, 2).positions
            assert pdist(found).min() > 0.3

    @pytest.mark.parametrize("n_components", [1, 2, 3])
    def test_large_classes_have_more_room(self, n_components: int) -> None:
        """Nine classes with equal differences, and one of them is large."""
        sizes = np.array([10_000, *[16] * 8])
        room = np.sqrt(np.sqrt(sizes) / np.sqrt(sizes).mean())
        apart = squareform(pdist(Layout.fit(np.eye(9), n_components, room).positions))
        np.fill_diagonal(apart, np.inf)
        nearest = apart.min(axis=1)
        assert nearest[0] > 1.3 * np.median(nearest[1:])
