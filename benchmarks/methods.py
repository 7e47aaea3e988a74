"""All methods of the tables: centroid-encoder, rivals, and classifiers of all features.

A method is a function of an experiment's name, training data, class indices, test data and a seed.
It returns the predicted classes of the test samples by one or more rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.rivals import classical, contrastive, networks
from benchmarks.rivals.selection import embed
from centroid_encoder import CentroidEncoder
from centroid_encoder.core import train
from centroid_encoder.core.placement import Placer
from centroid_encoder.core.quality import knn_predict, nearest_center
from centroid_encoder.recipes import RECIPES

Decisions = dict[str, NDArray[np.intp]]
"""(n_test,) predicted class indices by rule: ``"knn"``, ``"voronoi"`` or ``"decoder"``."""
Run = Callable[[str, NDArray[Any], NDArray[np.intp], NDArray[Any], int], Decisions]
"""Function of experiment, (n, d) training data, (n,) class indices, test data and seed."""


ONE_SCALE = ("mnist", "usps", "usps-1000", "cells")
"""Experiments whose features have the same unit: pixels, and principal components of cells."""


@dataclass(frozen=True)
class Method:
    """One row of the tables."""

    name: str
    run: Run
    kind: str
    """Group of the method, such as ``"supervised"``."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Experiments that the method is not run on, and the reasons."""


def decide(train: NDArray[Any], codes: NDArray[np.intp], test: NDArray[Any]) -> Decisions:
    """Classify embedded test samples by the five nearest training samples and nearest center."""
    centers = np.array([train[codes == c].mean(axis=0) for c in range(codes.max() + 1)])
    return {"knn": knn_predict(train, codes, test), "voronoi": nearest_center(test, centers)}


BOTTLENECK: dict[str, Any] = {"placement": "bottleneck", "class_weight": None}
"""Parameters of a network with a bottleneck and without class weights, the former default."""


PROCEDURE: dict[str, Any] = {
    name: RECIPES["paper-letter"][name]
    for name in ("validation_fraction", "patience", "max_epochs", "merge_epochs")
}
"""Parameters of the training in the paper's text: validation, early stopping, and a merge.

The recipes for MNIST and USPS follow the published program, which has a number of epochs and no
validation. The numbers of epochs are missing in the text; ours are in `centroid_encoder.recipes`.
"""
SAME_RECIPE = ("letter", "landsat", "phoneme", "iris", "sonar")
"""Experiments whose recipe is this procedure."""


def centroid_encoder(*, recipe: bool = False, **params: Any) -> Run:
    """Return a run of the estimator, with the paper's recipe for the experiment if wanted.

    The paper has no settings for USPS-1000, so that experiment has those of USPS.
    """

    def run(
        experiment: str, X: NDArray[Any], codes: NDArray[np.intp], X_test: NDArray[Any], seed: int
    ) -> Decisions:
        if recipe:
            name = f"paper-{experiment.removesuffix('-1000')}"
            model = CentroidEncoder.from_recipe(name, random_state=seed, **params)
        else:
            model = CentroidEncoder(random_state=seed, **params)
        fit = model.fit_codes(X, codes, np.arange(codes.max() + 1))
        test = model.transform(X_test)
        return {
            # `fit.embed` places each training sample by a network that was not trained on it;
            # `model.transform` would place it as a new sample.
            "knn": knn_predict(fit.embed(), codes, test),
            "voronoi": nearest_center(test, model.centers_),
            "decoder": model.decoder_distances(test).argmin(axis=1),
        }

    return run


@contextmanager
def without_linear_score() -> Iterator[None]:
    """Train without the linear discriminant analysis beside the networks."""
    with_odds = Placer._with_odds

    def alone(placer: Placer, squared: Any, likelihoods: Any, *known: Any) -> Placer:
        return with_odds(placer, squared, np.zeros_like(likelihoods), *known)

    with patch.object(Placer, "_with_odds", alone):
        yield


def in_float32() -> AbstractContextManager[Any]:
    """Train with products in float32 on every processor."""
    return patch.object(train, "has_bfloat16", lambda: False)


def standardized(
    experiment: str, X: NDArray[Any], X_test: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return z-scores of training and test data, from the training data.

    The experiments in `ONE_SCALE` have one mean and one standard deviation for all features. Pixels
    at the rim hardly vary: UMAP's error on MNIST is 4 % with one standard deviation, and 6 % with
    one for each pixel.
    """
    X, X_test = X.astype(np.float64), X_test.astype(np.float64)
    if experiment in ONE_SCALE:
        return (X - X.mean()) / X.std(), (X_test - X.mean()) / X.std()
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_test)


def classical_rival(make: classical.Rival) -> Run:
    """Return the run of a rival whose inputs are z-scores."""

    def run(
        experiment: str,
        X: NDArray[Any],
        codes: NDArray[np.intp],
        X_test: NDArray[Any],
        seed: int,
    ) -> Decisions:
        z, z_test = standardized(experiment, X, X_test)
        train, test = embed(make(seed), z, codes, z_test)
        return decide(train, codes, test)

    return run


def network_rival(kind: type[networks.NetworkRival], **params: Any) -> Run:
    """Return the run of a rival that trains the network of this project with its own loss."""

    def run(
        _: str, X: NDArray[Any], codes: NDArray[np.intp], X_test: NDArray[Any], seed: int
    ) -> Decisions:
        model = kind(random_state=seed, **params).fit(X, codes)
        return decide(model.transform(X), codes, model.transform(X_test))

    return run


def in_full_space(make: Callable[[int], Any]) -> Run:
    """Return the run of a classifier of z-scores of all features, without an embedding."""

    def run(
        experiment: str,
        X: NDArray[Any],
        codes: NDArray[np.intp],
        X_test: NDArray[Any],
        seed: int,
    ) -> Decisions:
        z, z_test = standardized(experiment, X, X_test)
        return {"knn": np.asarray(make(seed).fit(z, codes).predict(z_test))}

    return run


def rbf_svm(seed: int) -> GridSearchCV:
    """Return an SVM whose C and gamma are chosen by cross-validation on the training samples."""
    del seed
    grid = {"C": [1, 10, 100], "gamma": ["scale", 0.03, 0.1, 0.3]}
    return GridSearchCV(SVC(), grid, cv=3)


PAIRS = {
    "mnist": "memory grows with the square of the samples: pairs of 60,000 would take 29 GB",
    "usps": "time grows with the square of the samples or faster: from 1,050 to 8,000, 60-fold at "
    "the least, which is hours for ten runs",
}
MEMORY = {"mnist": PAIRS["mnist"]}
TIME = {"mnist": "time grows faster than the samples: minutes for a run of 8,000, hours of 60,000"}
MISSING: dict[str, Mapping[str, str]] = {
    **dict.fromkeys(("t-SNE", "Laplacian eigenmaps", "RF-PHATE"), MEMORY),
    **dict.fromkeys(("LMNN", "SNE"), TIME),
    **dict.fromkeys(
        (
            *("SNeRV", "parametric embedding", "supervised Isomap", "supervised LLE"),
            *("supervised Laplacian eigenmaps", "NCA", "MUHSIC", "multiple relational embedding"),
            *("kernel supervised PCA", "NeRV", "Isomap", "LLE", "MVU", "MDS"),
        ),
        PAIRS,
    ),
}
"""For each method, the experiments that would need too much time or memory, and the reasons.

`benchmarks.render` writes the reasons into docs/benchmarks.md.
"""


NETWORKS: dict[str, type[networks.NetworkRival]] = {
    "dt-MCML": networks.DeepTMCML,
    "dG-MCML": networks.DeepGaussianMCML,
    "HOPE": networks.HOPE,
    "GerDA": networks.GerDA,
    "supervised contrastive": contrastive.SupervisedContrastive,
    "proxy anchor": contrastive.ProxyAnchor,
    "dt-NCA": networks.DeepTNCA,
    "dG-NCA": networks.DeepGaussianNCA,
    "nonlinear NCA": networks.NonlinearNCA,
    "MCML": networks.LinearMCML,
    "parametric t-SNE": networks.ParametricTSNE,
    "autoencoder": networks.Autoencoder,
}


def _rows() -> list[Method]:
    ours = [
        Method("centroid-encoder", centroid_encoder(), "centroid-encoder"),
        Method("centroid-encoder, bottleneck", centroid_encoder(**BOTTLENECK), "centroid-encoder"),
        *(
            Method(
                f"centroid-encoder, the paper's {name}{ending}",
                centroid_encoder(recipe=True, **params, **pretraining),
                "centroid-encoder",
                missing,
            )
            for name, params, missing in (
                ("recipe", {}, {}),
                ("procedure", PROCEDURE, dict.fromkeys(SAME_RECIPE, "the recipe is the same")),
            )
            for ending, pretraining in {
                "": {},
                ", not pre-trained": {"pretrain_epochs": 0},
            }.items()
        ),
    ]
    deep = [
        Method(name, network_rival(kind), "trained on this project's network")
        for name, kind in NETWORKS.items()
    ]
    return [
        *ours,
        *deep,
        *(
            Method(name, classical_rival(make), kind, MISSING.get(name, {}))
            for kind, rivals in (
                ("supervised", classical.SUPERVISED),
                ("unsupervised", classical.UNSUPERVISED),
            )
            for name, make in rivals.items()
        ),
        Method("5-NN", in_full_space(lambda _: KNeighborsClassifier(5)), "in the full input space"),
        Method(
            "RBF SVM",
            in_full_space(rbf_svm),
            "in the full input space",
            {"mnist": "60,000 samples: the search for its settings is too slow for us"},
        ),
        Method(
            "extra trees",
            in_full_space(lambda seed: ExtraTreesClassifier(500, n_jobs=-1, random_state=seed)),
            "in the full input space",
        ),
    ]


METHODS = {method.name: method for method in _rows()}
