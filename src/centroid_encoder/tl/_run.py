"""One training on an AnnData, from checked input to written results."""

from __future__ import annotations

import json
import logging
import numbers
import warnings
from collections.abc import Callable, Generator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.constraints import draw_seed
from centroid_encoder.core.confidence import (
    UNCALIBRATED,
    cross_fitted_probabilities,
    expected_calibration_error,
)
from centroid_encoder.core.novelty import LEAST
from centroid_encoder.core.quality import CHUNK, Errors, knn_predict, nearest_center
from centroid_encoder.core.splits import grouped_holdout, stratified_holdout
from centroid_encoder.core.training import Report, never
from centroid_encoder.errors import Message
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._cells import Labels, Missing, fill_missing, read_groups
from centroid_encoder.tl._jobs import Results, Task, listed
from centroid_encoder.tl._stored import embedding_key

if TYPE_CHECKING:
    from anndata import AnnData

SPLITS = ("train", "test", "unlabeled")
N_PARTS = 5
"""Parts of the held-out cells, on each of which the calibration of the others is tried."""

logger = logging.getLogger("centroid_encoder")


class Run(Task):
    """One training.

    Attributes
    ----------
    obsm_key
        Where the embedding will be.
    train, held_out
        (n_obs,) masks.
    """

    WRITES = ("label", "split")

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
        test_size = _share(test_size)
        super().__init__(
            adata,
            label_key,
            n_components=n_components,
            use_rep=use_rep,
            layer=layer,
            mask_var=mask_var,
            unlabeled_category=unlabeled_category,
            missing=missing,
            model=model,
            key_added=key_added,
            random_state=random_state,
            device=device,
            test_size=test_size,
            group_key=group_key,
        )
        self.obsm_key = embedding_key(self.key)
        split_seed = draw_seed(random_state)
        if model is None or model.random_state is None:
            self._estimator.set_params(random_state=draw_seed(random_state))
        self.held_out = _hold_out(adata, self._labels, self.codes, test_size, group_key, split_seed)
        self._warn_of_classes_without_test(test_size, group_key)
        self.train = (self.codes >= 0) & ~self.held_out
        self._X = fill_missing(self._X, self.train[self.kept])
        logger.info(
            "    %d classes; %d training, %d held-out, %d unlabeled cells",
            len(self.classes),
            int(self.train.sum()),
            int(self.held_out.sum()),
            int((self.codes < 0).sum()),
        )

    def steps(
        self, *, stop: Callable[[], bool] = never, snapshot: Callable[[], bool] = never
    ) -> Generator[Report, None, None]:
        """Train, then compute all results; see `CentroidEncoder.fit_reports`."""
        y = np.asarray(self.classes.tolist())[self.codes[self.kept]]
        outcome = yield from self._estimator.fit_reports(
            self._X, y, subset=self.train[self.kept], stop=stop, snapshot=snapshot
        )
        for message, category in outcome.notices:
            warnings.warn(str(message), category, stacklevel=2)
        if self.held_out.any():
            unseen = self.held_out[self.kept]
            self._estimator.calibrate(self._X[unseen], y[unseen])
        if self.train.sum() >= LEAST:
            self._estimator.fit_novelty(self._X, y, subset=self.train[self.kept])
        self._results = self._compute()

    def _warn_of_classes_without_test(self, test_size: float, group_key: str | None) -> None:
        n_test = np.bincount(self.codes[self.held_out], minlength=len(self.classes))
        if test_size and not n_test.all():
            self.notices.append(
                Message(
                    "no cell of {} is held out: too few cells to split{}",
                    listed(self.classes[n_test == 0]),
                    "" if group_key is None else f" by obs[{group_key!r}]",
                )
            )

    def _compute(self) -> Results:
        estimator, kept = self._estimator, self.kept
        # The estimator sorts its classes.
        order = self.classes.get_indexer(estimator.classes_)
        centers = np.empty_like(estimator.centers_)
        centers[order] = estimator.centers_
        embedding = np.full((len(kept), centers.shape[1]), np.nan, dtype=np.float32)
        embedding[kept] = estimator.transform(self._X)
        predicted = np.full(len(kept), -1)
        confidence = np.full(len(kept), np.nan, dtype=np.float32)
        predicted[kept], confidence[kept] = decisions(estimator, embedding[kept])
        predicted[kept] = order[predicted[kept]]

        novelty = np.full(len(kept), np.nan, dtype=np.float32)
        if self.train.sum() >= LEAST:
            novelty[kept] = estimator.novelty(self._X)

        split = np.where(self.held_out, 1, np.where(self.train, 0, 2))
        categories = self._labels.categories
        # The last entry serves the cells left out, −1.
        category_of_class = np.append(categories.get_indexer(self.classes), -1)
        obs = {
            f"{self.key}_split": pd.Categorical.from_codes(np.where(kept, split, -1), SPLITS),
            f"{self.key}_label": pd.Categorical.from_codes(
                category_of_class[predicted], categories
            ),
            f"{self.key}_confidence": confidence,
            f"{self.key}_novelty": novelty,
        }
        config, arrays = estimator.to_state()
        if self._names is not None:
            config["estimator"]["feature_names"] = [str(name) for name in self._names]
        quality = _quality(
            self.classes, self.codes, self.train, self.held_out, embedding, predicted, centers
        )
        quality["test"] |= self._calibration_errors(embedding, order)
        uns = {
            "params": self._params,
            "classes": np.asarray(self.classes.tolist()),
            "centers": centers,
            "history": pd.DataFrame(estimator.history_),
            "quality": quality,
            "model": {"config": json.dumps(config), "arrays": arrays},
        }
        return {"obs": obs, "obsm": {self.obsm_key: embedding}, "uns": {self.key: uns}}

    def _calibration_errors(
        self, embedding: NDArray[np.float32], order: NDArray[np.intp]
    ) -> dict[str, float]:
        """Expected calibration error of the held-out cells, after and before calibration.

        The calibration was fitted to these cells, so it is fitted anew to four fifths of them to
        count it on the others.
        """
        labels = self.codes[self.held_out]
        if len(labels) < N_PARTS:
            return {"calibration_error": np.nan, "uncalibrated_error": np.nan}
        distances = self._estimator.decoder_distances(embedding[self.held_out])[
            :, np.argsort(order)
        ]
        parts = np.random.default_rng(0).permutation(len(labels)) % N_PARTS
        right = distances.argmin(axis=1) == labels
        return {
            name: expected_calibration_error(probabilities.max(axis=1), right)
            for name, probabilities in (
                ("calibration_error", cross_fitted_probabilities(distances, labels, parts)),
                ("uncalibrated_error", UNCALIBRATED.probabilities(distances)),
            )
        }


def decisions(
    estimator: CentroidEncoder, embedding: NDArray[np.float32]
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """(n,) predicted classes of embedded cells, as indices into `classes_`, and their probability.

    In chunks, since probabilities of all classes take a multiple of the memory.
    """
    predicted = np.empty(len(embedding), dtype=np.intp)
    confidence = np.empty(len(embedding), dtype=np.float32)
    for start in range(0, len(embedding), CHUNK):
        part = slice(start, start + CHUNK)
        distances = estimator.decoder_distances(embedding[part])
        predicted[part] = distances.argmin(axis=1)
        confidence[part] = estimator.calibration_.probabilities(distances).max(axis=1)
    return predicted, confidence


def _share(test_size: Any) -> float:
    if not isinstance(test_size, numbers.Real) or not 0 <= float(test_size) < 1:
        raise ValueError(f"test_size must be a share in [0, 1); got {test_size!r}")
    return float(test_size)


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
    if group_key is not None:
        groups = read_groups(adata, group_key, labeled)
        if test_size:
            held_out[labeled] = grouped_holdout(codes[labeled], groups[labeled], test_size, seed)
    elif test_size:
        held_out[labeled] = stratified_holdout(codes[labeled], test_size, seed)
    n_train = np.bincount(codes[labeled & ~held_out], minlength=len(labels.classes))
    if not n_train.all():
        raise ValueError(
            f"every choice of held-out groups of obs[{group_key!r}] takes all cells of a class, "
            f"here of {listed(labels.classes[n_train == 0])}; leave out group_key, or mark that "
            "class as unlabeled"
        )
    return held_out


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
