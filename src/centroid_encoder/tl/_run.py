"""One training on an AnnData, from checked input to written results."""

from __future__ import annotations

import json
import logging
import numbers
import time
from collections.abc import Callable, Generator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from centroid_encoder.core.quality import Errors, knn_predict, nearest_center
from centroid_encoder.core.splits import grouped_holdout, stratified_holdout
from centroid_encoder.core.training import Report, never
from centroid_encoder.estimator import CentroidEncoder, draw_seed
from centroid_encoder.tl._input import (
    Labels,
    Missing,
    fill_missing,
    read_features,
    read_groups,
    read_labels,
)

if TYPE_CHECKING:
    from anndata import AnnData

SPLITS = ("train", "test", "unlabeled")

logger = logging.getLogger("centroid_encoder")


class Run:
    """One training on an AnnData, in three steps, of which the second may run in a thread.

    Making it reads and checks the AnnData; `reports` trains and touches no AnnData; `write` puts
    the results in. Until `detach` is called, which the thread may do, the matrix is the AnnData's.
    The parameters are those of `tl.centroid_encoder`.

    Attributes
    ----------
    key, obsm_key
        Where the results will be: ``uns[key]``, ``obs[f"{key}_…"]``, ``obsm[obsm_key]``.
    classes
        Classes in category order; everything stored is in that order.
    codes
        (n_obs,) index into `classes`; −1 for cells without a label or left out.
    train, held_out
        (n_obs,) masks.
    obs_names
        The cells.
    kept
        (n_obs,) mask of the cells that take part: the rows of a report's embedding.
    """

    def __init__(
        self,
        adata: AnnData,
        label_key: str,
        *,
        n_components: int | None = None,
        use_rep: str | None = None,
        layer: str | None = None,
        mask_var: NDArray[np.bool_] | str | None = "auto",
        unlabeled_category: str | None = None,
        missing: Missing = "error",
        test_size: float = 0.2,
        group_key: str | None = None,
        model: CentroidEncoder | None = None,
        key_added: str | None = None,
        random_state: int | np.random.Generator = 0,
        device: str | None = None,
    ) -> None:
        self._start = time.perf_counter()
        test_size = _share(test_size)
        if key_added is not None and "/" in key_added:
            raise ValueError(
                f"key_added must not hold '/', which means nesting on disk: {key_added!r}"
            )
        self.key = key_added or "ce"
        self.obsm_key = key_added or "X_ce"
        labels = read_labels(adata, label_key, unlabeled_category)
        logger.info("computing centroid-encoder of %r", label_key)
        features = read_features(
            adata, use_rep=use_rep, layer=layer, mask_var=mask_var, missing=missing
        )
        self._estimator = _configured(model, n_components, device)
        split_seed = draw_seed(random_state)
        if model is None or model.random_state is None:
            self._estimator.set_params(random_state=draw_seed(random_state))

        self.classes = labels.classes
        self.codes = np.where(features.left_out, -1, labels.codes)
        self.held_out = _hold_out(adata, labels, self.codes, test_size, group_key, split_seed)
        self.train = (self.codes >= 0) & ~self.held_out
        self.kept = ~features.left_out
        self._labels = labels
        self.obs_names = adata.obs_names
        self._names = features.names
        self._X = fill_missing(
            features.X if self.kept.all() else features.X[self.kept], self.train[self.kept]
        )
        params = {
            "label_key": label_key,
            "use_rep": use_rep,
            "layer": layer,
            "mask_var": mask_var if isinstance(mask_var, str) else None,
            "unlabeled_category": unlabeled_category,
            "missing": missing,
            "test_size": test_size,
            "group_key": group_key,
            "random_state": (
                int(random_state) if isinstance(random_state, numbers.Integral) else None
            ),
        }
        # Not every supported anndata writes None.
        self._params = {name: value for name, value in params.items() if value is not None}
        self._results: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] | None = None
        logger.info(
            "    %d classes; %d training, %d held-out, %d unlabeled cells",
            len(self.classes),
            int(self.train.sum()),
            int(self.held_out.sum()),
            int((self.codes < 0).sum()),
        )

    def detach(self) -> None:
        """Train on a copy of the matrix, so that the AnnData may be changed meanwhile."""
        self._X = self._X.copy()

    def reports(
        self, *, stop: Callable[[], bool] = never, snapshot: Callable[[], bool] = never
    ) -> Generator[Report, None, None]:
        """Train, then compute all results; see `CentroidEncoder.fit_reports`."""
        y = np.asarray(self.classes.tolist())[self.codes[self.kept]]
        yield from self._estimator.fit_reports(
            self._X, y, subset=self.train[self.kept], stop=stop, snapshot=snapshot
        )
        self._results = self._compute()

    def write(self, adata: AnnData) -> None:
        """Write all results into `adata`, or, if anything fails, nothing.

        Raises
        ------
        RuntimeError
            If the training has not been run to its end.
        ValueError
            If `adata` no longer has the cells that were read.
        """
        if self._results is None:
            raise RuntimeError("nothing to write: the training has not ended")
        if not adata.obs_names.equals(self.obs_names):
            raise ValueError(
                "the cells of adata have changed since the training began: its results, which "
                "belong to the cells that were there, are not written"
            )
        obs, obsm, uns = self._results
        _write(adata, obs, obsm, uns)
        logger.info(
            "    finished (%.1f s): added\n    %r, embedding (adata.obsm)\n"
            "    %r and %r (adata.obs)\n    %r, errors and map (adata.uns)",
            time.perf_counter() - self._start,
            self.obsm_key,
            *obs,
            self.key,
        )

    def _compute(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        estimator, kept = self._estimator, self.kept
        # The estimator sorts its classes.
        order = self.classes.get_indexer(estimator.classes_)
        centers = np.empty_like(estimator.centers_)
        centers[order] = estimator.centers_
        embedding = np.full((len(kept), centers.shape[1]), np.nan, dtype=np.float32)
        embedding[kept] = estimator.transform(self._X)
        predicted = np.full(len(kept), -1)
        predicted[kept] = order[estimator.decoder_distances(embedding[kept]).argmin(axis=1)]

        split = np.where(self.held_out, 1, np.where(self.train, 0, 2))
        categories = self._labels.categories
        # The last entry serves the cells left out, −1.
        category_of_class = np.append(categories.get_indexer(self.classes), -1)
        obs = {
            f"{self.key}_split": pd.Categorical.from_codes(np.where(kept, split, -1), SPLITS),
            f"{self.key}_label": pd.Categorical.from_codes(
                category_of_class[predicted], categories
            ),
        }
        config, arrays = estimator.to_state()
        if self._names is not None:
            config["estimator"]["feature_names"] = [str(name) for name in self._names]
        uns = {
            "params": self._params,
            "classes": np.asarray(self.classes.tolist()),
            "centers": centers,
            "history": pd.DataFrame(estimator.history_),
            "quality": _quality(
                self.classes, self.codes, self.train, self.held_out, embedding, predicted, centers
            ),
            "model": {"config": json.dumps(config), "arrays": arrays},
        }
        return obs, {self.obsm_key: embedding}, {self.key: uns}


def _share(test_size: Any) -> float:
    if not isinstance(test_size, numbers.Real) or not 0 <= float(test_size) < 1:
        raise ValueError(f"test_size must be a share in [0, 1); got {test_size!r}")
    return float(test_size)


def _configured(
    model: CentroidEncoder | None, n_components: int | None, device: str | None
) -> CentroidEncoder:
    estimator: CentroidEncoder = CentroidEncoder() if model is None else clone(model)
    if n_components is not None:
        estimator.set_params(n_components=n_components)
    if device is not None:
        estimator.set_params(device=device)
    return estimator


def _hold_out(
    adata: AnnData,
    labels: Labels,
    codes: NDArray[np.intp],
    test_size: float,
    group_key: str | None,
    seed: int,
) -> NDArray[np.bool_]:
    """(n_obs,) mask of the held-out cells."""
    labeled = codes >= 0
    held_out = np.zeros(len(codes), dtype=bool)
    if len(np.unique(codes[labeled])) < len(labels.classes):
        empty = labels.classes[~np.isin(np.arange(len(labels.classes)), codes)]
        raise ValueError(f"no cell of {_listed(empty)} is left without missing values")
    if group_key is not None:
        groups = read_groups(adata, group_key, labeled)
        if test_size:
            held_out[labeled] = grouped_holdout(codes[labeled], groups[labeled], test_size, seed)
    elif test_size:
        held_out[labeled] = stratified_holdout(codes[labeled], test_size, seed)
    n_train = np.bincount(codes[labeled & ~held_out], minlength=len(labels.classes))
    n_test = np.bincount(codes[held_out], minlength=len(labels.classes))
    if not n_train.all():
        raise ValueError(
            f"every choice of held-out groups of obs[{group_key!r}] takes all cells of a class, "
            f"here of {_listed(labels.classes[n_train == 0])}; leave out group_key, or mark that "
            "class as unlabeled"
        )
    if test_size and not n_test.all():
        logger.warning(
            "no cell of %s is held out: too few cells to split%s",
            _listed(labels.classes[n_test == 0]),
            "" if group_key is None else f" by obs[{group_key!r}]",
        )
    return held_out


def _listed(classes: pd.Index) -> str:
    names = ", ".join(repr(name) for name in classes[:10])
    return f"{names} and {len(classes) - 10} more" if len(classes) > 10 else names


def _quality(
    classes: pd.Index,
    codes: NDArray[np.intp],
    train: NDArray[np.bool_],
    held_out: NDArray[np.bool_],
    embedding: NDArray[np.float32],
    predicted: NDArray[np.intp],
    centers: NDArray[np.float64],
) -> dict[str, Any]:
    n_classes = len(classes)
    quality: dict[str, Any] = {}
    per_class: dict[str, object] = {"class": [str(name) for name in classes]}
    reference = embedding[train]
    for name, mask in (("train", train), ("test", held_out)):
        errors = Errors.count(
            codes[mask],
            knn=knn_predict(reference, codes[train], None if name == "train" else embedding[mask]),
            voronoi=nearest_center(embedding[mask], centers),
            decoder=predicted[mask],
            largest_class=int(np.bincount(codes[train]).argmax()),
            n_classes=n_classes,
        )
        quality[name] = {
            "n": errors.n,
            **{
                f"{field}_error": value
                for field, value in asdict(errors).items()
                if isinstance(value, float)
            },
        }
        if name == "test":
            quality[name]["at_chance"] = errors.at_chance()
        per_class[f"n_{name}"] = errors.class_n
        for rule in ("knn", "voronoi", "decoder"):
            per_class[f"{name}_{rule}_error"] = getattr(errors, f"class_{rule}")
    quality["per_class"] = pd.DataFrame(per_class)
    return quality


def _write(adata: AnnData, obs: dict[str, Any], obsm: dict[str, Any], uns: dict[str, Any]) -> None:
    """Write all results, or leave `adata` as it was."""
    if adata.is_view:
        # A view becomes a copy when it is written to; here only once the copy is complete.
        actual = adata.copy()
        _write(actual, obs, obsm, uns)
        adata._init_as_actual(actual)
        return
    absent = object()
    written: list[tuple[Any, str, Any]] = []
    try:
        for mapping, values in ((adata.obs, obs), (adata.obsm, obsm), (adata.uns, uns)):
            for name, value in values.items():
                written.append((mapping, name, mapping.get(name, absent)))
                mapping[name] = value
    except BaseException:
        for mapping, name, before in reversed(written):
            if before is not absent:
                mapping[name] = before
            elif name in mapping:
                del mapping[name]
        raise
