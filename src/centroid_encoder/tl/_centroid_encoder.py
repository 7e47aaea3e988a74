"""Train a Centroid-Encoder on an AnnData."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Generator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.constraints import Number, draw_seed
from centroid_encoder.core.confidence import (
    UNCALIBRATED,
    cross_fitted_probabilities,
)
from centroid_encoder.core.fit import Fit
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.quality import Errors, knn_predict, nearest_center
from centroid_encoder.core.reports import Report
from centroid_encoder.core.splits import grouped_holdout, stratified_holdout
from centroid_encoder.errors import InputError, Message, Setting
from centroid_encoder.estimator import CentroidEncoder, crowded_text
from centroid_encoder.tl._cells import Cells, Missing, listed, read_cells
from centroid_encoder.tl._cv_warnings import mixed_sources
from centroid_encoder.tl._folds import calibration_errors
from centroid_encoder.tl._jobs import (
    Job,
    Results,
    as_recorded,
    check_not_replaced,
    configured,
    from_job,
    result_key,
)
from centroid_encoder.tl._matrix import fill_missing
from centroid_encoder.tl._names import check_free
from centroid_encoder.tl._stored import (
    CALIBRATION_ERRORS,
    RULES,
    SPLITS,
    TEST,
    TRAIN,
    Column,
    StoredMap,
    embedding_key,
    obs_key,
)
from centroid_encoder.tl._summary import missing_classes

if TYPE_CHECKING:
    from anndata import AnnData

N_PARTS = 5
"""Parts of the held-out cells, on each of which the calibration of the others is tried."""

logger = logging.getLogger("centroid_encoder")


@from_job
def centroid_encoder(
    adata: AnnData,
    label_key: str,
    *,
    n_components: int | None = None,
    placement: Placement | None = None,
    use_rep: str | None = None,
    layer: str | None = None,
    use_raw: bool = False,
    mask_var: NDArray[np.bool_] | str | None = "auto",
    unlabeled_category: str | None = None,
    missing: Missing = "error",
    test_size: float = 0.2,
    group_key: str | None = None,
    model: CentroidEncoder | None = None,
    key_added: str | None = None,
    random_state: int | np.random.Generator = 0,
    device: str | None = None,
    progress: bool = True,
    copy: bool = False,
) -> Training:
    """Embed cells so that their classes stay together: the Centroid-Encoder of Ghosh & Kirby.

    Networks are trained to map every labeled cell to the mean of its class. Each cell is then laid
    into the Voronoi cell of the class that those take it for which have not seen it, the nearer to
    the border the less sure they are. A part of the labeled cells is held out and never shapes the
    map; the errors counted on it say how much of the picture is real.

    A file opened with ``backed="r"``, a zarr store or a dask array never comes into memory as a
    whole: only the genes that are kept do, at most ``max_features`` of the `model`.

    Parameters
    ----------
    adata
        Annotated data, log-normalised for counts. Standardisation is part of the map.
    label_key
        Column of ``adata.obs`` with the classes: categorical, string, integer or boolean. Cells
        without a label are embedded but not trained on.
    n_components
        Dimension of the embedding. Default: 2; with a `model`, what that says.
    placement
        Where a cell's place comes from: ``"voronoi"``, the Voronoi cell of the class that the
        networks take it for; or ``"bottleneck"``, as in the paper, two units in the middle of one
        network. Default: ``"voronoi"``; with a `model`, what that says.
    use_rep
        Key of ``adata.obsm`` to learn from instead of the expression matrix. Of a DataFrame, the
        columns are told by their names: `ingest` finds them in any order.
    layer
        Key of ``adata.layers`` to learn from instead of ``adata.X``.
    use_raw
        Learn from ``adata.raw`` instead, whose genes may be others than those of ``adata``: a
        `mask_var` is then one of ``adata.raw.var``.
    mask_var
        Variables to learn from: a column of ``adata.var`` or one bool for each variable; a Series
        goes by its index. Default: ``highly_variable`` where there is such a column, like scanpy's
        PCA; None takes all.
    unlabeled_category
        Category of `label_key` that stands for "unlabeled", besides NaN.
    missing
        What to do about cells with NaN or inf: raise an error, leave them out of everything
        (``"drop"``), or put the mean of the training cells in the place of the value (``"mean"``).
    test_size
        Share of the labeled cells to hold out, in [0, 1), stratified by class. Classes with fewer
        than ``1 / test_size`` cells stay in training.
    group_key
        Column of ``adata.obs`` with donors or batches: each goes as a whole to one side, so that
        the held-out error is that of a new donor. Without it, a warning names a column of donors,
        images or wells, if there is one.
    model
        Configured `CentroidEncoder` with other settings than the default. It is not changed.
    key_added
        Name k for the results in ``obsm[k]``, ``uns[k]`` and ``obs["k_…"]``. Default: ``"ce"``;
        the embedding is then in ``obsm["X_ce"]``.
    random_state
        Seed for split and training; the same int gives the same bits on the same machine.
    device
        Where to compute: ``"auto"`` or a torch device. Default: ``"auto"``; with a `model`, what
        that says.
    progress
        Show a progress bar.
    copy
        Return a changed copy instead of changing `adata`.

    Returns
    -------
    AnnData | None
        None, or the copy if ``copy=True``. Sets the following fields:

        ``adata.obsm["X_ce"]`` : :class:`numpy.ndarray` (dtype ``float32``)
            The embedding of all cells, n_obs × n_components; NaN for cells left out by
            ``missing="drop"``.
        ``adata.obs["ce_split"]`` : :class:`pandas.Series` (dtype ``category``)
            ``"train"``, ``"test"`` or ``"unlabeled"``.
        ``adata.obs["ce_label"]`` : :class:`pandas.Series` (dtype ``category``)
            Predicted class of every cell, with the categories of `label_key`: the one in whose
            Voronoi cell it lies; with ``placement="bottleneck"`` the one whose centroid is nearest
            to the decoder's output.
        ``adata.obs["ce_confidence"]`` : :class:`pandas.Series` (dtype ``float32``)
            Its probability, which tells doubt between the classes. It is calibrated on the
            held-out cells, so that of the cells with 0.8, four in five are right; with
            ``test_size=0`` on the training cells, each judged by a network that was not trained on
            it. A single network is then not calibrated, and is too sure.
        ``adata.obs["ce_novelty"]`` : :class:`pandas.Series` (dtype ``float32``)
            The other doubt: how unlike anything seen in training the cell is. Share of the
            training cells, each judged by the others, that are less novel; NaN with fewer than ten
            training cells.
        ``adata.uns["ce"]`` : :class:`dict`
            ``params``; ``classes`` and their ``centers`` (n_classes × n_components, what the
            Voronoi cells are about; with ``placement="bottleneck"`` means of the embedded training
            cells); ``history`` (a DataFrame, one row an epoch); ``quality``
            (``train`` and ``test`` errors as shares in [0, 1], and a DataFrame ``per_class``; of
            the held-out cells also the expected ``calibration_error`` of their confidence, the
            ends of its 95 % interval, ``calibration_error_low`` and ``calibration_error_high``, and
            what it was before calibration, ``uncalibrated_error``);
            ``model`` (the fitted map, see `fitted_model`).

    Raises
    ------
    KeyError
        If a key does not exist.
    TypeError
        If the label column holds measurements rather than classes, or if an argument is of
        another kind, such as the path of a file.
    ValueError
        If the data cannot be used as they are; the message says where and what to do. `adata` is
        then as it was.

    Notes
    -----
    The *k-NN error* (k = 5) is the paper's measure: neighbours among the embedded training cells.
    For the training cells themselves the cell is not its own neighbour.

    Ctrl-C keeps the best state so far, with a warning; before the first epoch is over it leaves
    `adata` as it was.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> import scanpy as sc
    >>> adata = sc.datasets.pbmc68k_reduced()
    >>> ce.tl.centroid_encoder(adata, "bulk_labels", progress=False)
    >>> adata.obsm["X_ce"].shape
    (700, 2)
    """
    del progress, copy  # of these `from_job` takes care
    key = result_key(key_added)
    check_free(adata, key)
    check_not_replaced(label_key, obs_key(key, "label"), obs_key(key, "split"))
    estimator = configured(model, n_components=n_components, placement=placement, device=device)
    alone = estimator.placement == "bottleneck" or estimator.n_networks == 1
    if group_key is not None and alone and not test_size:
        one = "placement" if estimator.placement == "bottleneck" else "n_networks"
        names = {"group_key": group_key, "test_size": 0, one: getattr(estimator, one)}
        raise InputError("{} has no effect with {} and {}", *map(Setting, names, names.values()))
    if not test_size and estimator.random_state is not None and random_state != 0:
        named = Setting("random_state"), Setting("test_size", 0), Setting("model")
        raise InputError("{} has no effect with {} and a {} that has its own seed", *named)
    cells = read_cells(
        adata,
        label_key,
        use_rep,
        layer,
        use_raw,
        mask_var,
        unlabeled_category,
        missing,
        group_key,
        by_parts=True,
    )
    job = Training(cells, estimator, key, test_size=test_size, random_state=random_state)
    if test_size or not alone:
        job.notices += mixed_sources(adata, cells)
    return job


class Training(Job):
    """One training.

    Parameters are those of `centroid_encoder`; the estimator is given a seed if it has none.

    Attributes
    ----------
    classes, codes, kept
        As in `Cells`.
    obsm_key
        Where the embedding will be.
    train, held_out
        (n_obs,) masks.
    """

    _cells: Cells

    def __init__(
        self,
        cells: Cells,
        estimator: CentroidEncoder,
        key: str,
        *,
        test_size: Any,
        random_state: int | np.random.Generator,
    ) -> None:
        super().__init__(cells, key, cells.notices)
        Number(0, below=1).check("test_size", test_size)
        self.obsm_key = embedding_key(key)
        self.classes, self.codes, self.kept = cells.classes, cells.codes, cells.kept
        self._params = {**cells.params, "test_size": float(test_size), **as_recorded(random_state)}
        self._estimator = estimator
        self.held_out = self._hold_out(cells, float(test_size), draw_seed(random_state))
        if estimator.random_state is None:
            estimator.set_params(random_state=draw_seed(random_state))
        self.train = (self.codes >= 0) & ~self.held_out
        self._cells = replace(cells, X=fill_missing(cells.X, self.train[self.kept]))
        logger.info(
            "    %d classes; %d training, %d held-out, %d unlabeled cells",
            len(self.classes),
            int(self.train.sum()),
            int(self.held_out.sum()),
            int((self.codes < 0).sum()),
        )

    def _hold_out(self, cells: Cells, test_size: float, seed: int) -> NDArray[np.bool_]:
        """(n_obs,) mask of the held-out cells."""
        group_key = cells.params.get("group_key")
        labeled = cells.codes >= 0
        held_out = np.zeros(len(labeled), dtype=bool)
        codes = cells.codes[labeled]
        if test_size and cells.groups is not None:
            groups = cells.groups[labeled]
            held_out[labeled] = grouped_holdout(codes, groups, test_size, seed)
        elif test_size:
            held_out[labeled] = stratified_holdout(codes, test_size, seed)
        n_train, n_test = (
            np.bincount(cells.codes[labeled & mask], minlength=len(cells.classes))
            for mask in (~held_out, held_out)
        )
        if not n_train.all():
            raise InputError(
                "every choice of held-out groups of obs[{!r}] takes all cells of a class, here of "
                "{}; leave out {}, or mark that class as unlabeled",
                group_key,
                listed(cells.classes[n_train == 0]),
                Setting("group_key"),
            )
        if test_size and not n_test.all():
            by = "" if group_key is None else f" by obs[{group_key!r}]"
            absent = listed(cells.classes[n_test == 0])
            text = "no cell of {} is held out: too few cells to split{}"
            self.notices.append(Message(text, absent, by))
        return held_out

    def _compute(
        self, stop: Callable[[], bool], snapshot: Callable[[], bool]
    ) -> Generator[Report, None, Results]:
        cells = self._cells
        fit = yield from self._estimator.fit_codes_steps(
            cells.X,
            np.where(self.train, self.codes, -1)[self.kept],
            cells.class_labels,
            feature_names=None if cells.names is None else cells.names.astype(str),
            groups=None if cells.groups is None else cells.groups[self.kept],
            novelty=True,
            stop=stop,
            snapshot=snapshot,
        )
        for message, category in fit.outcome.notices:
            warnings.warn(str(message), category, stacklevel=2)
        held_out = np.flatnonzero(self.held_out[self.kept])
        fit.calibrate(held_out, cells.kept_codes[held_out])
        if not (len(held_out) or fit.is_calibrated):
            text = "no cell is held out, so that confidence is not calibrated: raise {}"
            self.notices.append(Message(text, Setting("test_size")))
        if (crowded := fit.crowded_group()) is not None:
            group = f"{cells.params['group_key']} {str(cells.group_names[crowded[0]])!r}"
            self.notices.append(Message(crowded_text(group, crowded[1])))
        return self._found(fit)

    def _found(self, fit: Fit) -> Results:
        cells, estimator, map_ = self._cells, self._estimator, fit.map
        embedding, predicted, confidence = map_.decide(fit.judge(), int(self.kept.sum()))
        novelty = fit.novelty()
        split = np.where(self.held_out, 1, np.where(self.train, 0, 2))
        columns: dict[Column, Any] = {
            "split": pd.Categorical.from_codes(np.where(self.kept, split, -1), SPLITS),
            "label": cells.labels_of(predicted),
            "confidence": cells.spread(confidence),
            "novelty": cells.spread(novelty),
        }
        config, arrays = estimator.to_state()
        stored = StoredMap(
            params=self._params,
            classes=cells.classes,
            centers=map_.centers,
            history=pd.DataFrame(estimator.history_),
            quality=self._quality(fit, embedding, predicted),
            model={"config": json.dumps(config), "arrays": arrays},
        )
        return {
            "obs": {obs_key(self.key, name): column for name, column in columns.items()},
            "obsm": {self.obsm_key: cells.spread(embedding)},
            "uns": {self.key: stored.to_uns()},
        }

    def _quality(
        self, fit: Fit, embedding: NDArray[np.float32], predicted: NDArray[np.intp]
    ) -> dict[str, Any]:
        codes, n_classes = self._cells.kept_codes, len(self.classes)
        train, held_out = self.train[self.kept], self.held_out[self.kept]
        quality: dict[str, Any] = {}
        per_class: dict[str, object] = {"class": [str(name) for name in self.classes]}
        for name, mask in ((TRAIN, train), (TEST, held_out)):
            asked = None if name == TRAIN else embedding[mask]
            errors = Errors.count(
                codes[mask],
                knn=knn_predict(embedding[train], codes[train], asked),
                voronoi=nearest_center(embedding[mask], fit.map.centers),
                decoder=predicted[mask],
                largest_class=int(np.bincount(codes[train]).argmax()),
                n_classes=n_classes,
            )
            quality[name] = {"n": errors.n}
            for field, value in asdict(errors).items():
                if isinstance(value, float):
                    quality[name][f"{field}_error"] = value
            per_class[f"n_{name}"] = errors.class_n
            for rule in RULES[:3]:
                per_class[f"{name}_{rule}_error"] = getattr(errors, f"class_{rule}")
        quality[TEST]["at_chance"] = errors.at_chance()
        distances = fit.distances(np.flatnonzero(held_out))
        quality[TEST] |= _calibration_errors(distances, codes[held_out])
        nearest = nearest_center(embedding, fit.map.centers)
        for name, found in (("n_predicted", predicted), ("n_in_cell", nearest)):
            per_class[name] = np.bincount(found, minlength=n_classes)
        quality["per_class"] = pd.DataFrame(per_class)
        self.notices += missing_classes(quality["per_class"], "the map takes")
        return quality


def _calibration_errors(
    distances: NDArray[np.float32], codes: NDArray[np.intp]
) -> dict[str, float]:
    """Expected calibration error of the held-out cells, after and before calibration.

    The calibration was fitted to these cells, so it is fitted anew to four fifths of them to count
    it on the others.
    """
    if len(codes) < N_PARTS:
        return dict.fromkeys(CALIBRATION_ERRORS, np.nan)
    parts = np.random.default_rng(0).permutation(len(codes)) % N_PARTS
    right = distances.argmin(axis=1) == codes
    probabilities = cross_fitted_probabilities(distances, codes, parts)
    before = UNCALIBRATED.probabilities(distances)
    return calibration_errors(probabilities.max(axis=1), before.max(axis=1), right)
