"""Places in the Voronoi cells of classes, and the networks that say them."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import anndata as ad
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.spatial.distance import cdist, pdist
from scipy.special import softmax
from scipy.stats import spearmanr
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import smacof
from sklearn.model_selection import train_test_split

import centroid_encoder as ce
from centroid_encoder.core.network import Network
from centroid_encoder.core.objective import CentroidTargets
from centroid_encoder.core.placement import (
    CERTAIN,
    DOUBTFUL,
    SURE,
    Layout,
    Odds,
    Scatter,
    _scaled_down,
)
from centroid_encoder.core.reports import Report
from centroid_encoder.core.rows import ProjectedRows, dropped, standardized
from centroid_encoder.core.saved import InvalidStateError
from centroid_encoder.core.standardization import Standardizer

SEEDS = st.integers(0, 2**32 - 1)


def gauges(layout: Layout, places: np.ndarray, own: np.ndarray) -> np.ndarray:
    """How far each place is on the way from its position to the nearest border, one by one."""
    found = []
    for place, j in zip(places.astype(float), own, strict=True):
        y, others = place - layout.positions[j], np.delete(layout.positions, j, axis=0)
        ways = others - layout.positions[j]
        found.append(max(2 * (ways @ y) / np.square(ways).sum(axis=1)))
    return np.array(found)


class TestLayout:
    @pytest.mark.parametrize("n_components", [1, 2, 3])
    def test_scales_down_as_scikit_learn_does_from_the_same_start(self, n_components: int) -> None:
        wanted = cdist(*[np.random.default_rng(0).normal(size=(12, 6))] * 2)
        points = _scaled_down(wanted, n_components)
        _, best = smacof(
            wanted, n_components=n_components, n_init=20, max_iter=2000, eps=1e-9,
            random_state=0, normalized_stress=False,
        )  # fmt: skip
        stress = np.square(pdist(points) - wanted[np.triu_indices(12, 1)]).sum()
        # From random starts twenty times; in one dimension there are many minima.
        assert stress < best * (1.02 if n_components > 1 else 2)

    def test_keeps_the_order_of_distances(self) -> None:
        plane = np.random.default_rng(1).normal(size=(15, 2))
        centroids = np.hstack([plane, np.zeros((15, 30))])
        order = spearmanr(pdist(Layout.fit(centroids, 2).positions), pdist(centroids))[0]
        assert order > 0.95

    @pytest.mark.parametrize("n_components", [1, 2, 3])
    @pytest.mark.parametrize("n_classes", [2, 3, 40])
    def test_positions_differ_even_of_classes_that_are_the_same(
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
    @settings(max_examples=60, deadline=None)
    def test_a_sample_lies_in_the_cell_of_its_most_probable_class(
        self, seed: int, n_classes: int, n_components: int
    ) -> None:
        rng = np.random.default_rng(seed)
        layout = Layout.fit(rng.normal(size=(n_classes, 6)), n_components)
        logits = rng.normal(size=(50, n_classes)) * 10 ** rng.uniform(-3, 3, size=(50, 1))
        components = rng.normal(size=(50, n_components)) * 10 ** rng.uniform(-2, 2, size=(50, 1))
        places = layout.place(logits, components)
        own = logits.argmax(axis=1)
        assert_array_equal(cdist(places, layout.positions).argmin(axis=1), own)
        assert_array_equal(layout.distances(places).argmin(axis=1), own)
        assert (gauges(layout, places, own) < max(SURE, DOUBTFUL) + 1e-3).all()

    def test_odds_can_be_read_off_the_plane(self) -> None:
        layout = Layout.fit(np.array([[0.0, 0.0], [1.0, 0.0]]), 2)
        odds = np.linspace(0.01, 4, 20)
        places = layout.place(np.column_stack([odds, np.zeros(20)]), np.zeros((20, 2)))
        # Softmax of the squares is what the network has said; a plane is never quite sure.
        said = softmax(np.column_stack([odds, np.zeros(20)]), axis=1)
        squares = np.square(layout.distances(places).astype(float))
        assert_allclose(softmax(-squares, axis=1), said, atol=0.01)
        sure = layout.distances(layout.positions.astype(np.float32))
        # On the way to the border in doubt no odds are better, and all classes may be meant a bit.
        best = np.exp(-DOUBTFUL * layout.steepness) + np.exp(-CERTAIN)
        assert_allclose(softmax(-np.square(sure.astype(float)), axis=1)[0, 1], best, rtol=0.05)

    def test_the_surer_the_farther_from_the_border(self) -> None:
        layout = Layout.fit(np.random.default_rng(3).normal(size=(6, 4)), 2)
        logits = np.zeros((40, 6))
        logits[:, 2] = np.linspace(0.1, 30, 40)
        logits[:, 4] = 0.05
        places = layout.place(logits, np.zeros((40, 2)))
        assert (np.diff(gauges(layout, places, np.full(40, 2))) < 1e-6).all()

    def test_what_is_sure_comes_back(self) -> None:
        layout = Layout.fit(np.random.default_rng(4).normal(size=(5, 4)), 2)
        components = np.random.default_rng(5).uniform(-1.5, 1.5, size=(30, 2))
        own = np.arange(30) % 5
        logits = np.full((30, 5), -1e3)
        logits[np.arange(30), own] = 0
        back, codes = layout.components(layout.place(logits, components))
        assert_array_equal(codes, own)
        assert_allclose(back, components, rtol=1e-3, atol=1e-3)

    def test_of_many_classes_is_read_in_the_memory_of_few(self) -> None:
        """A small file has positions for more classes than their pairs fit in memory."""
        layout = Layout(np.random.default_rng(0).normal(size=(20_000, 2)))
        assert peak(lambda: layout.distances(layout.positions[:4])) < 50e6


def peak(do: Callable[[], object]) -> int:
    """Bytes that it takes at most."""
    tracemalloc.start()
    try:
        do()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class TestScatter:
    def test_of_a_large_class_is_its_principal_components(self) -> None:
        rng = np.random.default_rng(0)
        codes = np.arange(4000) % 2
        X = rng.normal(size=(4000, 5))
        X[codes == 0] *= [4, 2, 1, 0.5, 0.2]
        X[codes == 1] *= [0.2, 0.5, 1, 2, 4]
        centroids = np.stack([X[codes == j].mean(axis=0) for j in range(2)])
        scatter = Scatter.fit(torch.tensor(X - centroids[codes]).float(), codes, centroids, 2)
        for j in range(2):
            own = X[codes == j]
            found = scatter.components(
                scatter.project(torch.tensor(own).float()), np.full(len(own), j)
            )
            expected = PCA(2).fit_transform(own)
            for axis in range(2):
                assert abs(np.corrcoef(found[:, axis], expected[:, axis])[0, 1]) > 0.999
            assert_allclose(found[:, 0].std(), 1, rtol=0.01)

    def test_is_reversed_where_the_components_are_all_there_is(self) -> None:
        rng = np.random.default_rng(1)
        codes = np.arange(60) % 3
        centroids = rng.normal(size=(3, 2))
        X = centroids[codes] + rng.normal(size=(60, 2))
        scatter = Scatter.fit(torch.tensor(X - centroids[codes]).float(), codes, centroids, 2)
        components = scatter.components(scatter.project(torch.tensor(X).float()), codes)
        assert_allclose(centroids[codes] + scatter.inverse(components, codes), X, atol=1e-4)

    def test_of_classes_without_any_is_zero(self) -> None:
        codes, centroids = np.arange(20) % 2, np.eye(2)
        scatter = Scatter.fit(torch.zeros((20, 2)), codes, centroids, 2)
        components = scatter.components(
            scatter.project(torch.tensor(centroids[codes]).float()), codes
        )
        assert_allclose(components, 0, atol=1e-6)


class TestOdds:
    def test_are_those_of_logistic_regression(self) -> None:
        """Of two classes and one output, the logits are linear in it."""
        rng = np.random.default_rng(0)
        codes = rng.integers(0, 2, 3000)
        targets = np.array([[-1.0], [1.0]])
        outputs = targets[codes] * 0.7 + rng.normal(size=(3000, 1))
        logits = Odds.fit(outputs, targets, codes).logits(outputs, targets)
        expected = LogisticRegression(C=1e9).fit(outputs, codes).decision_function(outputs)
        assert_allclose(logits[:, 1] - logits[:, 0], expected, atol=0.1)

    def test_weights_count_as_often(self) -> None:
        rng = np.random.default_rng(1)
        codes = np.repeat([0, 1], [200, 100])
        outputs = rng.normal(size=(300, 2)) + codes[:, None]
        targets = np.array([[0.0, 0.0], [1.0, 1.0]])
        weighted = Odds.fit(outputs, targets, codes, np.array([1.0, 2.0])[codes])
        twice = np.append(np.arange(300), np.arange(200, 300))
        repeated = Odds.fit(outputs[twice], targets, codes[twice])
        assert_allclose(
            weighted.logits(outputs, targets), repeated.logits(outputs, targets), atol=1e-3
        )


class TestNetworks:
    def test_side_by_side_are_as_apart(self) -> None:
        generator = torch.Generator().manual_seed(0)
        networks = Network(6, (5, 4), 3, 0, "relu", generator, n_networks=3)
        x = torch.randn(7, 6, generator=generator)
        outputs = networks.encode(x)
        for k in range(3):
            one = Network(6, (5, 4), 3, 0, "relu")
            one.load_state_dict({name: v[k] for name, v in networks.named_parameters()})
            assert_allclose(outputs[k].detach(), one.encode(x).detach(), atol=1e-6)
        folds = torch.tensor([0, 1, 2, -1, 0, 1, 2])
        asked = networks.outputs(x, folds)
        for row in (0, 1, 2, 4, 5, 6):
            own = outputs[folds[row], row]
            assert_allclose(asked[row].detach(), own.detach(), atol=1e-6)
        assert_allclose(asked[3].detach(), outputs[:, 3].mean(dim=0).detach(), atol=1e-6)
        networks.votes = torch.tensor([0.7, 0.3, 0.0])
        voted = 0.7 * outputs[0] + 0.3 * outputs[1]
        assert_allclose(networks.outputs(x).detach(), voted.detach(), atol=1e-6)

    @pytest.mark.parametrize("n_networks", [1, 3])
    def test_take_features_through_the_axes_that_they_learned_from(self, n_networks: int) -> None:
        generator = torch.Generator().manual_seed(0)
        axes = torch.randn(n_networks, 4, 9, generator=generator)
        axes = axes if n_networks > 1 else axes[0]
        network = Network(4, (5,), 3, 0, "relu", generator, n_networks=n_networks)
        x = torch.randn(7, 9, generator=generator)
        asked = None if n_networks == 1 else torch.arange(7) % 4 - 1
        expected = network.outputs(x @ axes.mT, asked).detach()
        whole = Network(9, (5,), 3, 0, "relu", n_networks=n_networks, n_axes=4)
        whole.load_state_dict(network.state_dict() | {"axes": axes})
        # Few rows are multiplied by another kernel than many are.
        assert_allclose(whole.outputs(x, asked).detach(), expected, atol=1e-5)

    @pytest.mark.parametrize("n_axes", [6, 30])
    @pytest.mark.parametrize("n_networks", [1, 3])
    def test_learn_from_axes_with_noise_like_that_of_dropout(
        self, n_networks: int, n_axes: int
    ) -> None:
        X = np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32)
        ones = np.ones(20)
        rows = standardized(X, Standardizer(0 * ones, ones, ones, np.inf), torch.device("cpu"))
        train, shares, folds = torch.arange(40), None, None
        index = torch.tensor([3, 41])
        if n_networks > 1:
            shares = np.random.default_rng(1).uniform(size=(3, 20))
            folds = torch.where(torch.arange(50) < 40, torch.arange(50) % 3, -1)
        projected = ProjectedRows(rows, train, folds, shares, n_axes, 0.25)
        axes = projected.axes.numpy()
        assert projected.n_inputs == axes.shape[-2] == min(n_axes, 20)
        for k in range(n_networks):
            of_network = (axes[k] / shares[k] if shares is not None else axes).reshape(-1, 20)
            assert_allclose(of_network @ of_network.T, np.eye(len(of_network)), atol=1e-5)
        clean = projected.gather(index)
        assert_allclose(clean, X[[3, 41]] @ np.swapaxes(axes, -1, -2), atol=1e-5)

        # All training rows, many times: the covariance of the noise is that of dropped features.
        generator = torch.Generator().manual_seed(0)
        every = torch.arange(40).repeat(500)
        asked = every if n_networks == 1 else every.expand(3, -1)
        noise = projected.noisy(asked, 0.25, generator) - projected.gather(every)
        generator.manual_seed(0)
        dropout = dropped(torch.from_numpy(X)[every], 0.25, generator) - torch.from_numpy(X)[every]
        for k in range(n_networks):
            found = np.cov(noise.reshape(n_networks, len(every), -1)[k].T)
            wanted = np.cov((dropout @ torch.from_numpy(axes.reshape(-1, *axes.shape[-2:])[k]).T).T)
            assert_allclose(found, wanted, atol=0.05 * np.abs(wanted).max())

    def test_weigh_features_and_find_axes_without_their_own_folds(self) -> None:
        rng = np.random.default_rng(0)
        codes, folds = rng.integers(0, 3, 900), rng.permutation(np.arange(900) % 3)
        X = rng.normal(size=(900, 40)).astype(np.float32)
        X[:, :4] += codes[:, None]
        index, one = np.arange(900), folds == 1

        def learned(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            standardizer = Standardizer.fit(X, index, codes, "supervised", np.inf, 10, folds)
            weights = standardizer.of_networks
            assert weights is not None
            kept = standardizer.kept
            shares = weights[:, kept] / standardizer.weight[kept]
            rows = standardized(X, standardizer, torch.device("cpu"))
            projected = ProjectedRows(
                rows, torch.from_numpy(index), torch.from_numpy(folds), shares, 5, 0.0
            )
            axes = np.zeros((3, 5, 40))
            axes[:, :, kept] = projected.axes.numpy() * standardizer.weight[kept]
            return weights, axes

        weights, axes = learned(codes)
        # As of the others alone, but for means and variances that know no classes.
        alone = Standardizer.fit(X, index[~one], codes[~one], "supervised", np.inf, 10).weight
        assert_allclose(weights[1, :4], alone[:4], rtol=0.05)
        assert ((weights > 0).sum(axis=1) == 10).all()
        shuffled = codes.copy()
        shuffled[one] = rng.permutation(codes[one])
        weights_after, axes_after = learned(shuffled)
        assert_allclose(weights_after[1], weights[1], rtol=1e-9)
        assert_allclose(axes_after[1], axes[1], atol=0.01)
        assert np.abs(weights_after[0] - weights[0]).max() > 1e-3

    def test_make_no_classes_where_there_are_none(self) -> None:
        """Of 3,000 features of noise, some tell the classes of the cells they are chosen by."""
        errors = []
        for seed in range(3):
            rng = np.random.default_rng(seed)
            X, y = rng.normal(size=(150, 3000)), rng.integers(0, 3, 150)
            settings = QUICK | {"max_epochs": 10, "random_state": seed}
            model = ce.CentroidEncoder(**settings)
            places = run(model, X.astype(np.float32), y).embed()
            errors.append((cdist(places, model.centers_).argmin(axis=1) != y).mean())
        assert np.mean(errors) > 0.55

    def test_none_learns_from_its_own_fold(self) -> None:
        """Other values in a fold change the networks of the other folds alone."""
        X, y = load_iris(return_X_y=True)
        X = X.astype(np.float32)
        model = ce.CentroidEncoder(
            placement="voronoi",
            hidden=(8,),
            max_epochs=2,
            scale="none",
            random_state=0,
            n_networks=3,
        )
        fit = run(model, X, y)
        assert fit.problem.data.folds is not None
        fold = fit.problem.data.folds.cpu().numpy() == 1
        changed = X.copy()
        # Within a class: its mean, which is the target of all, stays.
        for j in range(3):
            inside = np.flatnonzero(fold & (y == j))
            changed[inside[0]] += 1
            changed[inside[1]] -= 1
        again = run(model, changed, y)
        before, after = (
            one.map.fitted.network.encoder[0].weight.detach().numpy() for one in (fit, again)
        )
        assert_allclose(after[1], before[1], atol=1e-5)
        assert np.abs(after[0] - before[0]).max() > 1e-3


def run(model: ce.CentroidEncoder, X: np.ndarray, y: np.ndarray):
    reports = model.fit_codes(X, y, np.unique(y))
    while True:
        try:
            next(reports)
        except StopIteration as end:
            return end.value


class TestTargets:
    def test_squared_distances_are_the_distances_of_the_centroids(self) -> None:
        centroids = np.random.default_rng(0).normal(size=(9, 3))
        targets = CentroidTargets.spread_out(centroids, torch.device("cpu")).coordinates.numpy()
        assert targets.shape == (9, 8)
        ratio = np.square(pdist(targets)) / pdist(centroids)
        assert_allclose(ratio, ratio[0], rtol=1e-4)
        assert_allclose(np.square(targets).mean(), 1, rtol=1e-5)

    def test_of_many_classes_and_features_take_little_memory(self) -> None:
        centroids = np.random.default_rng(0).normal(size=(300, 500))
        assert peak(lambda: CentroidTargets.spread_out(centroids, torch.device("cpu"))) < 50e6

    def test_of_one_place_are_finite(self) -> None:
        targets = CentroidTargets.spread_out(np.ones((4, 3)), torch.device("cpu"))
        assert targets.coordinates.shape == (4, 1)
        assert torch.isfinite(targets.coordinates).all()


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
    def test_is_better_than_a_bottleneck(
        self, model: ce.CentroidEncoder, digits: tuple[np.ndarray, ...]
    ) -> None:
        X, X_test, y, y_test = digits
        squeezed = ce.CentroidEncoder(**QUICK | {"placement": "bottleneck"}).fit(X, y)
        assert model.score(X_test, y_test) > 0.95
        assert model.score(X_test, y_test) > squeezed.score(X_test, y_test)

    def test_has_one_rule(self, model: ce.CentroidEncoder, digits: tuple[np.ndarray, ...]) -> None:
        X_test = digits[1]
        predicted = model.predict(X_test)
        assert_array_equal(predicted, model.predict_voronoi(X_test))
        assert_array_equal(predicted, model.classes_[model.predict_proba(X_test).argmax(axis=1)])
        Z = model.transform(X_test)
        assert_array_equal(predicted, model.classes_[cdist(Z, model.centers_).argmin(axis=1)])

    def test_comes_back_to_the_bit(
        self, model: ce.CentroidEncoder, digits: tuple[np.ndarray, ...], tmp_path: Path
    ) -> None:
        X_test = digits[1]
        model.save(tmp_path / "map.safetensors")
        again = ce.load(tmp_path / "map.safetensors", device="cpu")
        assert again.get_params() == model.get_params()
        for say in ("transform", "predict_proba"):
            assert_array_equal(getattr(again, say)(X_test), getattr(model, say)(X_test))
        Z = model.transform(X_test)
        assert_array_equal(again.inverse_transform(Z), model.inverse_transform(Z))

    def test_the_way_back_leads_to_the_same_class(
        self, model: ce.CentroidEncoder, digits: tuple[np.ndarray, ...]
    ) -> None:
        assert_allclose(model.inverse_transform(model.centers_), model.centroids_, atol=1e-3)
        back = model.inverse_transform(model.transform(digits[1]))
        assert (model.predict(back) == model.predict(digits[1])).mean() > 0.9

    def test_the_way_back_takes_the_memory_of_its_result(self, model: ce.CentroidEncoder) -> None:
        places = np.repeat(model.centers_, 10_000, axis=0)
        n_bytes = 4 * len(places) * model.n_features_in_
        assert peak(lambda: model.inverse_transform(places)) < 2 * n_bytes

    def test_sparse_is_as_dense(self, digits: tuple[np.ndarray, ...]) -> None:
        X, X_test, y, _ = digits
        settings = QUICK | {"max_epochs": 2}
        dense = ce.CentroidEncoder(**settings).fit(X, y).transform(X_test)
        csr = sparse.csr_matrix(X)
        found = ce.CentroidEncoder(**settings).fit(csr, y).transform(X_test)
        assert_allclose(found, dense, atol=1e-3)

    @pytest.mark.parametrize("n_components", [1, 3])
    @pytest.mark.parametrize("n_classes", [2, 3])
    def test_of_other_dimensions_and_few_classes(self, n_components: int, n_classes: int) -> None:
        X, y = load_iris(return_X_y=True)
        X, y = X[y < n_classes], y[y < n_classes]
        model = ce.CentroidEncoder(n_components, **QUICK).fit(X, y)
        assert model.transform(X).shape == (len(X), n_components)
        assert model.score(X, y) > 0.9

    def test_classes_of_one_sample(self) -> None:
        X, y = load_iris(return_X_y=True)
        X, y = X[:101], y[:101]
        model = ce.CentroidEncoder(**QUICK).fit(X, y)
        assert np.isfinite(model.transform(X)).all()
        for few in (slice(49, 51), slice(0, 51)):
            assert np.isfinite(ce.CentroidEncoder(**QUICK).fit(X[few], y[few]).transform(X)).all()

    def test_many_features(self, tmp_path: Path) -> None:
        """Of more features than axes are learned from, dense or sparse, nothing is different."""
        rng = np.random.default_rng(0)
        y = np.arange(400) % 4
        X = np.maximum(rng.normal(size=(4, 300))[y] + rng.normal(size=(400, 300)), 0)
        X = X.astype(np.float32)
        X, X_test, y, y_test = X[:300], X[300:], y[:300], y[300:]
        model = ce.CentroidEncoder(**QUICK).fit(X, y)
        assert model.score(X_test, y_test) > 0.95
        model.save(tmp_path / "map.safetensors")
        again = ce.load(tmp_path / "map.safetensors", device="cpu")
        assert_array_equal(again.transform(X_test), model.transform(X_test))
        of_sparse = ce.CentroidEncoder(**QUICK).fit(sparse.csr_matrix(X), y)
        assert (of_sparse.predict(X_test) == model.predict(X_test)).mean() > 0.97

    def test_three_hundred_classes(self) -> None:
        rng = np.random.default_rng(0)
        y = np.arange(1200) % 300
        X = rng.normal(size=(300, 20))[y] * 3 + rng.normal(size=(1200, 20))
        model = ce.CentroidEncoder(**QUICK | {"max_epochs": 10}).fit(X, y)
        assert model.transform(X).shape == (1200, 2)
        assert_array_equal(model.predict(X), model.predict_voronoi(X))

    @pytest.mark.parametrize(
        "wrong", [{"batch_norm": True}, {"pretrain_epochs": 5}, {"n_networks": 0}]
    )
    def test_what_it_does_not_need_is_refused(self, wrong: dict[str, object]) -> None:
        X, y = load_iris(return_X_y=True)
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ce.CentroidEncoder(**QUICK | wrong).fit(X, y)

    def test_validation_samples_may_watch_and_be_merged(
        self, digits: tuple[np.ndarray, ...]
    ) -> None:
        X, X_test, y, y_test = digits
        settings = {"validation_fraction": 0.2, "merge_epochs": 2, "max_epochs": 8, "patience": 3}
        model = ce.CentroidEncoder(**QUICK | settings).fit(X, y)
        assert model.history_["stage"][-2:] == ["merge", "merge"]
        assert model.history_["validation_error"][0] > 0
        assert model.score(X_test, y_test) > 0.9

    def test_a_class_of_weight_is_predicted_more_often(
        self, digits: tuple[np.ndarray, ...]
    ) -> None:
        X, X_test, y, _ = digits
        light, heavy = (
            ce.CentroidEncoder(**QUICK | {"max_epochs": 3, "class_weight": {8: weight}}).fit(X, y)
            for weight in (0.01, 100)
        )
        assert (heavy.predict(X_test) == 8).sum() > (light.predict(X_test) == 8).sum()

    @pytest.mark.parametrize(
        ("name", "make", "words"),
        [
            ("placement_axes", lambda a: a[:, 1:], "placement_axes"),
            ("placement_targets", lambda a: a[1:], "placement_targets"),
            ("placement_offsets", lambda a: np.full_like(a, np.nan), "not finite"),
            ("encoder_0_weight", lambda a: a[1:], "encoder_0_weight"),
        ],
    )
    def test_damaged_arrays_are_refused(
        self, model: ce.CentroidEncoder, name: str, make: object, words: str
    ) -> None:
        config, arrays = model.to_state()
        arrays[name] = make(arrays[name])  # type: ignore[operator]
        with pytest.raises(InvalidStateError, match=words):
            ce.CentroidEncoder.from_state(config, arrays)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"placement": "elsewhere"}, "cannot read the model's placement 'elsewhere'"),
            ({"n_networks": 10**9}, "has shape"),
            ({"placement": "bottleneck"}, "bottleneck|shape|belong"),
        ],
    )
    def test_damaged_architectures_are_refused(
        self, model: ce.CentroidEncoder, changes: dict[str, object], words: str
    ) -> None:
        config, arrays = model.to_state()
        config = json.loads(json.dumps(config))
        config["architecture"] |= changes
        with pytest.raises(InvalidStateError, match=words):
            ce.CentroidEncoder.from_state(config, arrays)


class TestCells:
    def test_of_the_training_are_placed_by_networks_that_have_not_seen_them(
        self, make_cells: object
    ) -> None:
        """Of noise, a bottleneck shows classes where there are none; this does not."""
        cells: ad.AnnData = make_cells(distance=0.0, n_obs=300, n_vars=60)  # type: ignore[operator]
        errors = {}
        for placement in ("bottleneck", "voronoi"):
            # Weights of features that know all labels would say more than chance.
            model = ce.CentroidEncoder(
                hidden=(64, 32), dropout=0.0, random_state=0, scale="feature"
            )
            ce.tl.centroid_encoder(
                cells, "cell_type", placement=placement, model=model, progress=False
            )
            errors[placement] = cells.uns["ce"]["quality"]["train"]["voronoi_error"]
        assert errors["bottleneck"] < 0.45
        assert errors["voronoi"] > 0.55

    def test_of_a_donor_are_placed_by_networks_that_have_seen_none_of_it(
        self, cells: ad.AnnData
    ) -> None:
        """A donor whose labels are all turned round is told as what the others say it is."""
        cells.obs["donor"] = [f"donor {i // 3 % 8}" for i in range(cells.n_obs)]
        turned = (cells.obs["donor"] == "donor 3").to_numpy()
        names = list(cells.obs["cell_type"].cat.categories)
        true = cells.obs["cell_type"].astype(str).to_numpy()
        given = [
            names[(names.index(t) + 1) % 3] if bad else t
            for t, bad in zip(true, turned, strict=True)
        ]
        cells.obs["cell_type"] = given
        ce.tl.centroid_encoder(
            cells, "cell_type", group_key="donor", test_size=0, placement="voronoi", progress=False
        )
        assert (cells.obs["ce_label"][turned].astype(str) == true[turned]).mean() > 0.8

    def test_that_are_new_are_placed_by_all(self, cells: ad.AnnData) -> None:
        ce.tl.centroid_encoder(cells, "cell_type", placement="voronoi", progress=False)
        held_out = cells[cells.obs["ce_split"] == "test"].copy()
        query = ad.AnnData(held_out.X, obs=held_out.obs[[]], var=held_out.var)
        ce.tl.ingest(query, cells, progress=False)
        assert_array_equal(query.obsm["X_ce"], held_out.obsm["X_ce"])
        assert_array_equal(query.obs["ce_confidence"], held_out.obs["ce_confidence"])

    def test_unfold_where_they_will_be(self, cells: ad.AnnData) -> None:
        # In another order than that of their names, in which a map has them.
        cells.obs["cell_type"] = cells.obs["cell_type"].cat.reorder_categories(
            ["type 2", "type 0", "type 1"]
        )
        job = ce.tl.centroid_encoder.job(cells, "cell_type", placement="voronoi")
        reports = [one for one in job.steps(snapshot=lambda: True) if isinstance(one, Report)]
        shown = [report.embedding for report in reports if report.embedding is not None]
        assert all(np.isfinite(one).all() and one.shape == (120, 2) for one in shown)
        assert len(shown) > 3
        # The classes have their positions from the start: the last picture is that of the map.
        job.write(cells)
        assert_allclose(shown[-1], cells.obsm["X_ce"], atol=0.05)
        for report in reports:
            assert_array_equal(report.centers, cells.uns["ce"]["centers"])

    def test_labels_are_checked_with_it(self, cells: ad.AnnData) -> None:
        model = ce.CentroidEncoder(hidden=(16,), max_epochs=8)
        ce.tl.cross_validate(
            cells, "cell_type", placement="voronoi", model=model, n_folds=3, progress=False
        )
        assert cells.uns["ce_cv"]["errors"]["voronoi_error"].max() < 0.1
