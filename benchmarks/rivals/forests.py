"""Rivals that use the proximities of a random forest, written from their papers."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy import linalg, sparse
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.manifold import smacof

from benchmarks.rivals.selection import Array, Labels
from benchmarks.rivals.spectral import classical_mds


class GapProximities:
    """Proximities that preserve the geometry and accuracy of a random forest: RF-GAP.

    Rhodes, Cutler & Moon (2023), "Geometry- and accuracy-preserving random forest proximities",
    IEEE TPAMI 45:

        p(i, j) = 1/|S_i| Σ_{t ∈ S_i} c_j(t) · [j is in the leaf of i] / |M_i(t)|,

    where S_i are the trees for which i is out of bag, c_j(t) is how many times the bootstrap sample
    of tree t has j, and |M_i(t)| is the number of samples of this bootstrap sample in the leaf of
    i. The rows sum to 1, and Σ_j p(i, j) y_j is the out-of-bag vote of the forest. For new samples,
    S_i are all trees.

    Parameters
    ----------
    n_trees
        Trees of the forest.
    random_state
        Seed.
    """

    def __init__(self, n_trees: int = 500, random_state: int | None = None) -> None:
        self.forest = RandomForestClassifier(
            n_trees, oob_score=True, n_jobs=-1, random_state=random_state
        )

    def fit(self, X: Array, y: Labels) -> Self:
        """Grow the forest."""
        self.forest.fit(X, y)
        n, leaves = len(X), self.forest.apply(X)
        # Nodes of all trees are numbered consecutively.
        sizes = [tree.tree_.node_count for tree in self.forest.estimators_]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])
        times = np.zeros(leaves.shape)
        for t, rows in enumerate(self.forest.estimators_samples_):
            times[:, t] = np.bincount(rows, minlength=n)
        places = leaves + self.offsets[:-1]
        in_leaf = np.bincount(places.ravel(), times.ravel(), self.offsets[-1])
        self.shares = self._sparse(places, times / np.maximum(in_leaf[places], 1)).T.tocsr()
        out = (times == 0).astype(float)
        self.out_of_bag = self._sparse(places, out / np.maximum(out.sum(axis=1, keepdims=True), 1))
        return self

    def _sparse(self, places: Array, values: Array) -> sparse.csr_array:
        rows = np.repeat(np.arange(len(places)), places.shape[1])
        shape = len(places), int(self.offsets[-1])
        return sparse.csr_array((values.ravel(), (rows, places.ravel())), shape=shape)

    def training(self) -> Array:
        """Return the (n, n) proximities of the training samples; the diagonal is 0."""
        return np.asarray((self.out_of_bag @ self.shares).todense())

    def new(self, X: Array) -> Array:
        """Return the (k, n) proximities of new samples to the training samples."""
        leaves = self.forest.apply(X)
        every = np.full(leaves.shape, 1 / leaves.shape[1])
        return np.asarray((self._sparse(leaves + self.offsets[:-1], every) @ self.shares).todense())


def knee(values: Array) -> int:
    """Return the index at which two straight lines, before and after it, fit the values best."""

    def misfit(part: slice) -> float:
        x, y = np.arange(len(values))[part], values[part]
        return float(np.sum((y - np.polyval(np.polyfit(x, y, 1), x)) ** 2))

    at = range(2, len(values) - 2)
    return at[int(np.argmin([misfit(slice(0, i + 1)) + misfit(slice(i, None)) for i in at]))]


def diffusion_time(operator: Array, longest: int = 100) -> int:
    """Return the number of steps of PHATE (Moon et al. 2019) for a diffusion operator.

    It is the `knee` of the von Neumann entropy of the powers t = 1, 2, … of the operator. The
    entropy is that of the singular values to the power t, divided by their sum.
    """
    spectrum = linalg.svdvals(operator)
    entropies = []
    for t in range(1, longest + 1):
        shares = spectrum**t / np.sum(spectrum**t)
        shares = shares[shares > 0]
        entropies.append(-float(np.sum(shares * np.log(shares))))
    return knee(np.array(entropies)) + 1


class ForestPHATE(BaseEstimator):
    """RF-PHATE: PHATE on the proximities of a random forest.

    Rhodes, Aumon, Morin et al. (2026), "Gaining biological insights through supervised data
    visualization", Nature Computational Science: `GapProximities`, with a diagonal of 1, are
    symmetrised and normalised to a diffusion operator. With the probability 1 − β, a step leads to
    any sample. The operator is raised to the power `diffusion_time`, and the rows of −log of the
    result are embedded by metric multidimensional scaling, which starts from classical scaling.

    At most 2,000 random training samples are embedded in this way, the landmarks. All others, and
    new samples, are placed at the mean of the landmarks, weighted by the proximities.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Seed of the forest.
    """

    beta = 0.9
    n_landmarks = 2000

    def __init__(self, n_components: int = 2, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        self.proximities_ = GapProximities(random_state=self.random_state).fit(X, y)
        everything = self.proximities_.training()
        chosen = np.random.default_rng(self.random_state).permutation(len(X))[: self.n_landmarks]
        self.landmarks_ = np.sort(chosen)
        p = everything[np.ix_(self.landmarks_, self.landmarks_)]
        np.fill_diagonal(p, 1)
        p = (p + p.T) / 2
        diffusion = self.beta * p / p.sum(axis=1, keepdims=True) + (1 - self.beta) / len(p)
        power = np.linalg.matrix_power(diffusion, diffusion_time(diffusion))
        potential = -np.log(power + 1e-7)
        distances = cdist(potential, potential)
        self.places_ = smacof(
            distances,
            n_components=self.n_components,
            init=classical_mds(distances, self.n_components),
            n_init=1,
            normalized_stress=False,
        )[0]
        self.embedding_ = self._placed(everything)
        self.embedding_[self.landmarks_] = self.places_
        return self

    def _placed(self, proximities: Array) -> Array:
        """Return the weighted means of the landmarks.

        A sample without proximity to any landmark is placed at the mean of all landmarks.
        """
        near = proximities[:, self.landmarks_] + 1e-12
        return np.asarray(near @ self.places_ / near.sum(axis=1, keepdims=True))

    def transform(self, X: Array) -> Array:
        """Place new samples by their proximities to the landmarks."""
        return self._placed(self.proximities_.new(X))

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Return the embedding of the training points."""
        return self.fit(X, y).embedding_
