"""One cross-validation on an AnnData, from checked input to written results."""

from __future__ import annotations

import json
import numbers
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from centroid_encoder.constraints import draw_seed
from centroid_encoder.core.confidence import (
    UNCALIBRATED,
    Calibration,
    cross_fitted_probabilities,
    expected_calibration_error,
)
from centroid_encoder.core.quality import (
    error_rates,
    knn_predict,
    nearest_center,
    permutation_p_value,
)
from centroid_encoder.core.saved import params_to
from centroid_encoder.core.splits import cross_validation_folds, shuffled_labels
from centroid_encoder.core.training import Report, StoppedTooEarly, never
from centroid_encoder.estimator import CentroidEncoder
from centroid_encoder.tl._cells import Missing, fill_missing, read_groups
from centroid_encoder.tl._cv_warnings import doubts
from centroid_encoder.tl._jobs import Task

if TYPE_CHECKING:
    from anndata import AnnData

N_FOLDS = 5
N_COUNTED = 500
"""Held-out cells on which the error of a permutation is counted, where there are as many."""
N_REFERENCE, N_QUERIES = 10_000, 2_000
"""Cells among which, and for which, neighbours are sought in the full input space, at most."""
RULES = ("knn", "voronoi", "decoder", "input_knn")


@dataclass(frozen=True)
class Fold:
    """What a network says of the cells that it has not seen."""

    cells: NDArray[np.intp]
    """(n,) held-out cells, as rows of the matrix."""
    knn: NDArray[np.intp]
    """(n,) class of each by its neighbours in the embedding."""
    voronoi: NDArray[np.intp]
    """(n,) class of the nearest center."""
    distances: NDArray[np.float32]
    """(n, M) distances to the centroids; inf for classes that it was not trained on."""
    unlabeled: NDArray[np.float32]
    """(n_unlabeled, M) the same for cells without a label."""
    asked: NDArray[np.intp]
    """(q,) some of the held-out cells, as indices into `cells`."""
    input_knn: NDArray[np.intp]
    """(q,) class of these by their neighbours in the full input space."""
    largest_class: int
    """The largest class of the training cells."""

    def said(self, rule: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Cells that a rule was asked about, and the class it found for each."""
        if rule == "input_knn":
            return self.cells[self.asked], self.input_knn
        if rule == "decoder":
            return self.cells, self.distances.argmin(axis=1)
        return self.cells, self.knn if rule == "knn" else self.voronoi


class CrossValidation(Task):
    """One cross-validation. Everything that is fitted is fitted to the other folds' cells.

    The seed of each training comes from its place (permutation, repeat, fold) alone: more repeats
    or permutations add to the same ones.
    """

    WRITES = ("cv_label",)

    def __init__(
        self,
        adata: AnnData,
        label_key: str,
        *,
        n_folds: int | None = None,
        n_repeats: int = 1,
        group_key: str | None = None,
        n_permutations: int = 0,
        n_components: int | None = None,
        use_rep: str | None = None,
        layer: str | None = None,
        mask_var: NDArray[np.bool_] | str | None = "auto",
        unlabeled_category: str | None = None,
        missing: Missing = "error",
        model: CentroidEncoder | None = None,
        key_added: str | None = None,
        random_state: int | np.random.Generator = 0,
        device: str | None = None,
    ) -> None:
        for name, number, least in (
            ("n_folds", N_FOLDS if n_folds is None else n_folds, 2),
            ("n_repeats", n_repeats, 1),
            ("n_permutations", n_permutations, 0),
        ):
            if isinstance(number, bool) or not isinstance(number, numbers.Integral):
                raise ValueError(f"{name} must be an integer; got {number!r}")
            if number < least:
                raise ValueError(f"{name} must be at least {least}; got {number}")
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
            n_repeats=int(n_repeats),
            group_key=group_key,
            n_permutations=int(n_permutations),
        )
        self.n_repeats, self.n_permutations = int(n_repeats), int(n_permutations)
        self._seed = draw_seed(random_state)
        self._codes = self.codes[self.kept]
        self._labeled = np.flatnonzero(self._codes >= 0)
        self._groups: NDArray[np.intp] | None = None
        if group_key is not None:
            groups = read_groups(adata, group_key, self.codes >= 0)[self.kept]
            self._groups = groups[self._labeled]
        self.n_folds = self._params["n_folds"] = self._possible_folds(n_folds, group_key)
        self._check_folds(group_key)
        self.warnings = doubts(adata, label_key, self.codes, self.classes, group_key, self.n_folds)
        self.notices += self.warnings

    def steps(
        self, *, stop: Callable[[], bool] = never, snapshot: Callable[[], bool] = never
    ) -> Generator[Report, None, None]:
        """Train all networks, then compute all results.

        Yields
        ------
        Report
            One for every epoch; steps are counted over all trainings.

        Raises
        ------
        StoppedTooEarly
            If `stop` said so: there is no half a cross-validation.
        KeyboardInterrupt
            If it arrived.
        """
        del snapshot
        repeats = []
        for repeat in range(self.n_repeats):
            folds = self._divide(self._codes, 0, repeat)
            outcomes = []
            for i in range(self.n_folds):
                place = (0, repeat, i)
                outcomes.append((yield from self._fold(self._codes, folds == i, place, stop)))
            repeats.append(outcomes)
        null = []
        for permutation in range(1, self.n_permutations + 1):
            codes = self._codes.copy()
            codes[self._labeled] = shuffled_labels(
                codes[self._labeled], self._seed_of(permutation), self._groups
            )
            folds = self._divide(codes, permutation, 0)
            outcomes = []
            for i in range(self._n_counted):
                place = (permutation, 0, i)
                outcomes.append((yield from self._fold(codes, folds == i, place, stop)))
            null.append(_knn_error(outcomes, codes))
        self._compute(repeats, np.array(null))

    def _possible_folds(self, n_folds: int | None, group_key: str | None) -> int:
        most = int(np.bincount(self._codes[self._labeled]).max())
        what = f"the largest class has {most} cells"
        if self._groups is not None:
            most = len(np.unique(self._groups))
            what = f"obs[{group_key!r}] has {most} groups"
        if n_folds is None:
            n_folds = max(2, min(N_FOLDS, most))
        if n_folds > most:
            raise ValueError(f"n_folds={n_folds} is too many: {what}")
        return int(n_folds)

    def _check_folds(self, group_key: str | None) -> None:
        """Find out now whether some training would be left with a single class."""
        for repeat in range(self.n_repeats):
            folds = self._divide(self._codes, 0, repeat)
            for i in range(self.n_folds):
                rest = self._labeled[(folds[self._labeled] != i)]
                if len(np.unique(self._codes[rest])) < 2:
                    by = "" if group_key is None else f" by obs[{group_key!r}]"
                    raise ValueError(
                        f"with {self.n_folds} folds{by}, a training would have cells of one class "
                        "only; too few cells, or groups that are classes"
                    )

    def _divide(self, codes: NDArray[np.intp], permutation: int, repeat: int) -> NDArray[np.intp]:
        """(n_kept,) fold of each cell; −1 for unlabeled cells, which are in no fold."""
        folds = np.full(len(codes), -1)
        # A place that no training has.
        seed = self._seed_of(permutation, repeat, self.n_folds)
        folds[self._labeled] = cross_validation_folds(
            codes[self._labeled], self.n_folds, seed, self._groups
        )
        return folds

    def _seed_of(self, *place: int) -> int:
        sequence = np.random.SeedSequence(self._seed, spawn_key=place)
        return int(sequence.generate_state(1)[0])

    @property
    def _n_counted(self) -> int:
        """Folds on which a permutation's error is counted: enough to tell it, no more."""
        return min(self.n_folds, -(-N_COUNTED * self.n_folds // len(self._labeled)))

    @property
    def _n_trainings(self) -> int:
        return self.n_repeats * self.n_folds + self.n_permutations * self._n_counted

    def _name(self, place: tuple[int, int, int]) -> tuple[str, int]:
        """What a training is called, and how many come before it."""
        permutation, repeat, fold = place
        if permutation:
            before = self.n_repeats * self.n_folds + (permutation - 1) * self._n_counted
            return f"permutation {permutation} of {self.n_permutations}", before + fold
        name = f"fold {fold + 1} of {self.n_folds}"
        if self.n_repeats > 1:
            name = f"repeat {repeat + 1} of {self.n_repeats}, {name}"
        return name, repeat * self.n_folds + fold

    def _fold(
        self,
        codes: NDArray[np.intp],
        held_out: NDArray[np.bool_],
        place: tuple[int, int, int],
        stop: Callable[[], bool],
    ) -> Generator[Report, None, Fold]:
        """Train on the cells that are not held out, and ask about those that are."""
        train = (codes >= 0) & ~held_out
        X = fill_missing(self._X, train)
        estimator: CentroidEncoder = clone(self._estimator)
        estimator.set_params(
            random_state=self._seed_of(*place), class_weight=self._class_weight(codes[train])
        )
        name, n_before = self._name(place)
        reports = estimator.fit_reports(X, codes, subset=train, stop=stop)
        while True:
            try:
                report = next(reports)
            except StopIteration as end:
                outcome = end.value
                break
            yield replace(
                report,
                stage=name,
                step=n_before * report.n_steps + report.step,
                n_steps=self._n_trainings * report.n_steps,
            )
        if outcome.interrupted:
            raise KeyboardInterrupt
        if stop():
            raise StoppedTooEarly
        return self._ask(estimator, X, codes, train, np.flatnonzero(held_out), place)

    def _class_weight(self, codes: NDArray[np.intp]) -> object:
        """Class weights in the terms of a fold: by index, and of the classes that are there."""
        weights = self._estimator.class_weight
        if not isinstance(weights, Mapping):
            return weights
        unknown = [label for label in weights if label not in self.classes]
        if unknown:
            raise ValueError(f"class_weight names {unknown[0]!r}, which is not among the classes")
        names = ((code, self.classes[code]) for code in np.unique(codes))
        return {code: weights[name] for code, name in names if name in weights} or None

    def _ask(
        self,
        estimator: CentroidEncoder,
        X: Any,
        codes: NDArray[np.intp],
        train: NDArray[np.bool_],
        cells: NDArray[np.intp],
        place: tuple[int, int, int],
    ) -> Fold:
        known = estimator.classes_
        reference, embedding = estimator.transform(X[train]), estimator.transform(X[cells])
        asked = input_knn = np.empty(0, dtype=np.intp)
        unlabeled = np.flatnonzero(codes < 0)[: None if place[0] == 0 else 0]
        if place[0] == 0:
            rng = np.random.default_rng(self._seed_of(*place, 1))
            among = _some(np.flatnonzero(train), N_REFERENCE, rng)
            asked = _some(np.arange(len(cells)), N_QUERIES, rng)
            input_knn = knn_predict(
                estimator.standardize(X[among]),
                codes[among],
                estimator.standardize(X[cells[asked]]),
            )

        def distances(embedding: NDArray[np.float32]) -> NDArray[np.float32]:
            to_all = np.full((len(embedding), len(self.classes)), np.inf, dtype=np.float32)
            if len(embedding):
                to_all[:, known] = estimator.decoder_distances(embedding)
            return to_all

        return Fold(
            cells=cells,
            knn=knn_predict(reference, codes[train], embedding),
            voronoi=known[nearest_center(embedding, estimator.centers_)],
            distances=distances(embedding),
            unlabeled=distances(
                estimator.transform(X[unlabeled]) if len(unlabeled) else embedding[:0]
            ),
            asked=asked,
            input_knn=input_knn,
            largest_class=int(np.bincount(codes[train]).argmax()),
        )

    def _compute(self, repeats: list[list[Fold]], null: NDArray[np.float64]) -> None:
        codes, n_classes = self._codes, len(self.classes)
        rows: list[dict[str, Any]] = []
        class_errors = {rule: np.zeros(n_classes) for rule in RULES}
        probabilities = np.zeros((len(codes), n_classes))
        uncalibrated = np.zeros(len(codes))
        unlabeled = codes < 0
        for repeat, folds in enumerate(repeats):
            for i, fold in enumerate(folds):
                rows.append({"repeat": repeat, "fold": i, **_errors(fold, codes, n_classes)})
            for rule in RULES:
                said = [fold.said(rule) for fold in folds]
                asked = np.concatenate([cells for cells, _ in said])
                found = np.concatenate([classes for _, classes in said])
                _, _, class_error = error_rates(codes[asked], found, n_classes)
                class_errors[rule] += class_error / self.n_repeats
            cells = np.concatenate([fold.cells for fold in folds])
            distances = np.concatenate([fold.distances for fold in folds])
            parts = np.repeat(np.arange(len(folds)), [len(fold.cells) for fold in folds])
            probabilities[cells] += cross_fitted_probabilities(distances, codes[cells], parts)
            uncalibrated[cells] += UNCALIBRATED.probabilities(distances).max(axis=1)
            if unlabeled.any():
                calibration = Calibration.fit(distances, codes[cells])
                probabilities[unlabeled] += sum(
                    calibration.probabilities(fold.unlabeled) for fold in folds
                ) / len(folds)
        probabilities /= self.n_repeats
        uncalibrated /= self.n_repeats

        predicted = probabilities.argmax(axis=1)
        confidence = probabilities.max(axis=1)
        own = np.where(unlabeled, np.nan, probabilities[np.arange(len(codes)), codes])
        right = (predicted == codes)[self._labeled]
        errors = pd.DataFrame(rows)
        quality: dict[str, Any] = {"n": len(self._labeled)}
        for name in errors.columns[3:]:
            quality[name] = float(errors[name].mean())
            quality[f"{name}_sd"] = float(errors[name].std(ddof=1))
        quality["calibration_error"] = expected_calibration_error(confidence[self._labeled], right)
        quality["uncalibrated_error"] = expected_calibration_error(
            uncalibrated[self._labeled], right
        )
        confusion = np.zeros((n_classes, n_classes), dtype=np.int64)
        np.add.at(confusion, (codes[self._labeled], predicted[self._labeled]), 1)
        uns: dict[str, Any] = {
            "params": self._params,
            "model": json.dumps(params_to(self._estimator.get_params(deep=False))),
            "classes": np.asarray(self.classes.tolist()),
            "errors": errors,
            "per_class": pd.DataFrame(
                {
                    "class": [str(name) for name in self.classes],
                    "n": np.bincount(codes[self._labeled], minlength=n_classes),
                    **{f"{rule}_error": class_errors[rule] for rule in RULES},
                }
            ),
            "quality": quality,
            "confusion": confusion,
            "warnings": np.array([str(warning) for warning in self.warnings], dtype=str),
        }
        if self.n_permutations:
            observed = _knn_error(repeats[0][: self._n_counted], codes)
            uns["permutation"] = {
                "errors": null,
                "observed": observed,
                "p_value": permutation_p_value(observed, null),
            }
        categories = self._labels.categories
        name = f"{self.key}_cv"
        at = np.full(len(self.kept), -1)
        at[self.kept] = categories.get_indexer(self.classes)[predicted]
        self._results = {
            "obs": {
                f"{name}_label": pd.Categorical.from_codes(at, categories),
                f"{name}_confidence": self._spread(confidence),
                f"{name}_own": self._spread(own),
            },
            "uns": {name: uns},
        }

    def _spread(self, values: NDArray[np.floating]) -> NDArray[np.float32]:
        """Put (n_kept,) values to their cells; NaN for those left out."""
        spread = np.full(len(self.kept), np.nan, dtype=np.float32)
        spread[self.kept] = values
        return spread


def _some(cells: NDArray[np.intp], most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    return cells if len(cells) <= most else np.sort(rng.choice(cells, most, replace=False))


def _knn_error(folds: list[Fold], codes: NDArray[np.intp]) -> float:
    wrong = np.concatenate([fold.knn != codes[fold.cells] for fold in folds])
    return float(wrong.mean())


def _errors(fold: Fold, codes: NDArray[np.intp], n_classes: int) -> dict[str, float]:
    """Errors of one fold by every rule, and of naming the largest class."""
    errors: dict[str, float] = {"n": len(fold.cells)}
    for rule in RULES:
        cells, found = fold.said(rule)
        errors[f"{rule}_error"], errors[f"balanced_{rule}_error"], _ = error_rates(
            codes[cells], found, n_classes
        )
    errors["chance_error"] = float((codes[fold.cells] != fold.largest_class).mean())
    return errors
