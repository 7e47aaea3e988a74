"""Rivals from maintained libraries with their default settings, and the tables of all rivals.

No rival here standardises its features; the caller does. The rivals that are written from their
papers are in the other modules.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.manifold import TSNE, Isomap, SpectralEmbedding
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.preprocessing import LabelEncoder

from benchmarks.rivals.contrastive import Cebra
from benchmarks.rivals.forests import ForestPHATE
from benchmarks.rivals.linear import (
    LargeMargin,
    LinearCentroidEncoder,
    LocalFisher,
    RelevanceLVQ,
    ScreenedPCA,
)
from benchmarks.rivals.manifold import (
    LocallyLinear,
    MetricMDS,
    PairwiseControlled,
    SelfOrganizingMap,
    StochasticNeighbors,
    SupervisedLaplacian,
    SupervisedLLE,
)
from benchmarks.rivals.neighbors import MultipleRelationalEmbedding, NeRV, SupervisedNeRV
from benchmarks.rivals.posteriors import ParametricEmbedding
from benchmarks.rivals.selection import Array, Inductive, Labels, Transductive
from benchmarks.rivals.spectral import (
    MVU,
    ColoredMVU,
    KernelSupervisedPCA,
    SupervisedIsomap,
    SupervisedPCA,
)


def pca(n_components: int = 2, random_state: int | None = None) -> Inductive:
    """Return principal component analysis, which is unsupervised."""
    model: Inductive = PCA(n_components, random_state=random_state)
    return model


def nca(n_components: int = 2, random_state: int | None = None) -> Inductive:
    """Return linear neighbourhood components analysis (Goldberger et al. 2004).

    scikit-learn starts from LDA, or from PCA if there are too few classes.
    """
    model: Inductive = NeighborhoodComponentsAnalysis(
        n_components, max_iter=200, random_state=random_state
    )
    return model


class DiscriminantAnalysis(BaseEstimator):
    """Fisher's linear discriminant analysis, always with ``n_components`` columns.

    M classes have at most M − 1 discriminant directions. Columns beyond these are 0, which does not
    change distances; this is the second column if there are two classes.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Not used: nothing is random.
    """

    def __init__(self, n_components: int = 2, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        self.model_ = LinearDiscriminantAnalysis().fit(X, y)
        return self

    def transform(self, X: Array) -> Array:
        """Return the (n, n_components) projection of (n, d) samples."""
        Z: Array = self.model_.transform(X)[:, : self.n_components]
        return np.pad(Z, ((0, 0), (0, self.n_components - Z.shape[1])))

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Fit and project the training data."""
        return self.fit(X, y).transform(X)


@contextmanager
def _broken_graphs_allowed() -> Iterator[None]:
    """Ignore warnings about a neighbour graph in several parts, which is part of the method."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of connected components")
        warnings.filterwarnings("ignore", "Graph is not fully connected")
        # scikit-learn joins the parts in a sparse format that is slow to change.
        warnings.filterwarnings("ignore", "Changing the sparsity structure")
        yield


class GeodesicMap(BaseEstimator):
    """Isomap (Tenenbaum et al. 2000) of scikit-learn, unsupervised.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Not used: nothing is random.
    """

    def __init__(self, n_components: int = 2, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels | None = None) -> Self:
        """Fit to data; labels are ignored."""
        with _broken_graphs_allowed():
            self.model_ = Isomap(n_components=self.n_components).fit(X)
        return self

    def transform(self, X: Array) -> Array:
        """Place new points by their geodesic distances to the training points."""
        return np.asarray(self.model_.transform(X), dtype=np.float64)

    def fit_transform(self, X: Array, y: Labels | None = None) -> Array:
        """Return the embedding of the training points."""
        return np.asarray(self.fit(X).model_.embedding_, dtype=np.float64)


class JointEmbedding(BaseEstimator):
    """An unsupervised method that cannot place new points.

    It embeds training and test points together, without labels. Therefore it has no `transform`.

    Parameters
    ----------
    method
        ``"tsne"`` (van der Maaten & Hinton 2008) or ``"laplacian"`` (Belkin & Niyogi 2003), at the
        defaults of scikit-learn.
    n_components
        Columns of the embedding.
    random_state
        Seed.
    """

    def __init__(
        self, method: str = "tsne", n_components: int = 2, random_state: int | None = None
    ) -> None:
        self.method = method
        self.n_components = n_components
        self.random_state = random_state

    def fit_transform_both(self, X: Array, y: Labels, X_test: Array) -> tuple[Array, Array]:
        """Return the embeddings of training and test points; ``y`` is ignored."""
        kinds = {"tsne": TSNE, "laplacian": SpectralEmbedding}
        model = kinds[self.method](n_components=self.n_components, random_state=self.random_state)
        with _broken_graphs_allowed():
            Z = np.asarray(model.fit_transform(np.vstack([X, X_test])), dtype=np.float64)
        return Z[: len(X)], Z[len(X) :]


class UniformManifold(BaseEstimator):
    """UMAP (McInnes et al. 2018) of umap-learn at its defaults, with labels or without.

    Parameters
    ----------
    supervised
        Whether the labels take part in `fit`.
    n_components
        Columns of the embedding.
    random_state
        Seed.
    """

    def __init__(
        self, supervised: bool = True, n_components: int = 2, random_state: int | None = None
    ) -> None:
        self.supervised = supervised
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to data, and to labels if supervised."""
        from umap import UMAP  # slow to import

        # With a seed, UMAP runs one job, and warns if more are allowed.
        self.model_ = UMAP(
            n_components=self.n_components, random_state=self.random_state, n_jobs=1
        ).fit(X, LabelEncoder().fit_transform(y) if self.supervised else None)
        return self

    def transform(self, X: Array) -> Array:
        """Place new points; the training points do not move."""
        return np.asarray(self.model_.transform(X), dtype=np.float64)

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Return the embedding of the training points."""
        return np.asarray(self.fit(X, y).model_.embedding_, dtype=np.float64)


Rival = Callable[[int | None], Inductive | Transductive]
"""Function of a seed that returns a rival with two components."""

SUPERVISED: dict[str, Rival] = {
    "supervised UMAP": lambda seed: UniformManifold(supervised=True, random_state=seed),
    "RF-PHATE": lambda seed: ForestPHATE(random_state=seed),
    "CEBRA": lambda seed: Cebra(random_state=seed),
    "SNeRV": lambda seed: SupervisedNeRV(random_state=seed),
    "parametric embedding": lambda seed: ParametricEmbedding(random_state=seed),
    "supervised Isomap": lambda seed: SupervisedIsomap(random_state=seed),
    "supervised LLE": lambda seed: SupervisedLLE(random_state=seed),
    "supervised Laplacian eigenmaps": lambda seed: SupervisedLaplacian(random_state=seed),
    "GMLVQ": lambda seed: RelevanceLVQ(random_state=seed),
    "NCA": lambda seed: nca(random_state=seed),
    "LMNN": lambda seed: LargeMargin(random_state=seed),
    "LDA": lambda seed: DiscriminantAnalysis(random_state=seed),
    "LFDA": lambda seed: LocalFisher(random_state=seed),
    "linear centroid-encoder": lambda seed: LinearCentroidEncoder(random_state=seed),
    "MUHSIC": lambda seed: ColoredMVU(random_state=seed),
    "multiple relational embedding": lambda seed: MultipleRelationalEmbedding(random_state=seed),
    "kernel supervised PCA": lambda seed: KernelSupervisedPCA(random_state=seed),
    "supervised PCA": lambda seed: SupervisedPCA(random_state=seed),
    "supervised PCA of Bair": lambda seed: ScreenedPCA(random_state=seed),
}

UNSUPERVISED: dict[str, Rival] = {
    "UMAP": lambda seed: UniformManifold(supervised=False, random_state=seed),
    "PaCMAP": lambda seed: PairwiseControlled(random_state=seed),
    "t-SNE": lambda seed: JointEmbedding("tsne", random_state=seed),
    "SNE": lambda seed: StochasticNeighbors(random_state=seed),
    "NeRV": lambda seed: NeRV(random_state=seed),
    "Isomap": lambda seed: GeodesicMap(random_state=seed),
    "LLE": lambda seed: LocallyLinear(random_state=seed),
    "Laplacian eigenmaps": lambda seed: JointEmbedding("laplacian", random_state=seed),
    "MVU": lambda seed: MVU(random_state=seed),
    "MDS": lambda seed: MetricMDS(random_state=seed),
    "SOM": lambda seed: SelfOrganizingMap(random_state=seed),
    "PCA": lambda seed: pca(random_state=seed),
}
