"""`CentroidEncoder`: the scikit-learn face of the core."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags, check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from centroid_encoder.checks import (
    RandomState,
    check_effects,
    check_parameters,
    classes_of,
    draw_seed,
    plain,
    resolve_device,
)
from centroid_encoder.core import saved
from centroid_encoder.core.calibration import Calibration
from centroid_encoder.core.features import Scale
from centroid_encoder.core.fit import Fit, fit
from centroid_encoder.core.map import FittedMap
from centroid_encoder.core.matrix import Codes, Lazy, Matrix, looks_whole
from centroid_encoder.core.network import Activation
from centroid_encoder.core.novelty import LEAST, Novelty
from centroid_encoder.core.optimization import Optimizer, Schedule
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.quality import nearest_center
from centroid_encoder.core.reports import Callback
from centroid_encoder.core.saved import Arrays
from centroid_encoder.core.targets import Output
from centroid_encoder.errors import InputError
from centroid_encoder.recipes import RECIPES, resolved

HISTORY = ("stage", "epoch", "loss", "validation_loss", "validation_error")
"""Columns of the history: fields of `Report`."""


class CentroidEncoder(
    ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator
):
    """Supervised, parametric embedding that maps every sample to the centroid of its class.

    Networks are trained to map each sample to the mean of its class, as in [1]_. The embedding
    shows the predicted class and its certainty. New samples can be mapped as well.

    Parameters
    ----------
    n_components : int, default=2
        Dimension m of the embedding.
    placement : {"bottleneck", "voronoi"}, default="voronoi"
        How the embedding is computed. ``"bottleneck"`` is the paper's: an autoencoder-shaped
        network has a bottleneck of `n_components` linear units, whose output is the embedding.
        ``"voronoi"`` trains without the bottleneck, which costs accuracy, and lays out the
        embedding afterwards: classes have positions whose distances follow those of their
        centroids; a sample lies at the mean of these positions, weighted by its probabilities, plus
        its scatter along the leading components of the classes, and always in the Voronoi cell of
        its most probable class. `predict`, `predict_voronoi` and `decoder_distances` then agree.
        With more than a hundred features the networks learn from as many principal axes, with
        Gaussian noise of the covariance that `dropout` of the features has.
    n_networks : int or "auto", default="auto"
        With ``placement="voronoi"``, number of networks. Each is trained on all but one fold of the
        samples, and weights and chooses features by its own samples; a training sample is placed by
        the network that was not trained on it, and a new sample by all networks, weighted by their
        numbers of training samples. 1 trains one network on everything; its probabilities for these
        samples are too high. ``"auto"`` takes 4 for up to 5,000 training samples, 3 for up to
        50,000, else 2.
    hidden : sequence of int or "auto", default="auto"
        Widths of the encoder's hidden layers; the decoder mirrors them. ``"auto"`` takes
        (500, 250, 125); without a bottleneck, for up to 5,000 training samples, (300, 200, 100),
        or (250, 150, 75) with more than 100 features.
    activation : {"relu", "tanh"}, default="relu"
        Non-linearity of the hidden layers. Bottleneck and output are linear.
    batch_norm : bool or "auto", default="auto"
        Whether the encoder's hidden layers are batch-normalised [2]_ in training; the fitted map
        has plain layers. It needs a fraction of the epochs and makes rounder classes; ``"auto"``
        uses it with a bottleneck from 4,000 training samples on, since fewer are then overfitted.
    output : {"span", "full"}, default="span"
        Coordinates of the decoder's output: an orthonormal basis of the centroids' affine span (at
        most n_classes − 1 numbers, the same minimum at a fraction of the cost), or the paper's
        n_features numbers.
    compactness : float, default=0.1
        Weight, beside the distance to the centroids, of the share of the embedding's scatter that
        is within classes. It keeps classes together, so that Voronoi cells separate them as well
        as neighbours do; 0 is the paper's loss.
    scale : {"supervised", "feature", "global"}, default="supervised"
        Standardisation, learned from the training samples and part of the fitted map: by each
        feature's own standard deviation and times its correlation ratio with the classes
        (``"supervised"``, so that uninformative features do not hide the others), by each feature's
        own standard deviation, or by one for all features (pixels).
    max_features : int or None, default=2000
        With ``scale="supervised"``, the largest number of features to learn from: those of largest
        weight; None keeps all. It bounds the cost of whole transcriptomes. Each of several networks
        chooses its own.
    clip : float or None, default=10.0
        Largest absolute z-score. It bounds nearly constant features in new data.
    dropout : float or "auto", default="auto"
        Share of input values set to zero in each training step, in [0, 1). ``"auto"`` grows with
        the number k of features, 1/2 − 50 / k. It is at least 0.02, and for n < 1,250 training
        samples at least 25 / n, up to 0.15: in so few samples, single features are mostly chance.
    class_weight : "sqrt", "balanced", dict or None, default="sqrt"
        Weight of each class's samples in the loss: by one over the square root of their number
        (``"sqrt"``, so that small classes count and large ones still count for more), by one over
        their number (``"balanced"``), by given numbers, as in scikit-learn; or all the same.
    max_samples : int or None, default=1_000_000
        Largest number of samples to train on; None trains on all. A stratified sample of more
        samples trains, so that memory and time of the training stop growing. The others are placed
        by networks that were not trained on them.
    pretrain_epochs : int or "auto", default="auto"
        Epochs for each stage of the paper's layer-freeze pre-training; 0 skips it. ``"auto"`` takes
        half as many as of training with more than 15 classes and a bottleneck, and otherwise 0.
    max_epochs : int, "auto" or "few", default="auto"
        Epochs of training. ``"auto"`` takes as many as make 300,000 samples seen, between 20 and
        60, and twice as many with more than 15 classes; but never more than make 1,200,000 samples
        seen, or 5. With ``placement="voronoi"`` at most 60, and 30 with more than 100 features.
        ``"few"``, for a first look, takes as many as make 120,000 samples seen, between 2 and 8.
    validation_fraction : float, default=0.0
        Share of each class's samples that does not train, in [0, 1); the weights with the smallest
        loss on it are kept. 0 trains on everything for `max_epochs`.
    patience : int or None, default=None
        Stop when the validation loss has not fallen for that many epochs; None never does.
    merge_epochs : int, default=0
        Epochs of further training with the validation samples merged back (the paper's last step).
    batch_size : int or "auto", default="auto"
        Samples per step. ``"auto"`` makes 32 steps of an epoch, or 16 without a bottleneck, of 16
        to 256 samples, or 512 with batch normalisation.
    optimizer : {"adamw", "amsgrad"}, default="adamw"
        AdamW, or AMSGrad with its weight decay on the loss.
    learning_rate : float or "auto", default="auto"
        Peak (``"one_cycle"``) or constant learning rate. ``"auto"`` is 0.007 without a bottleneck,
        0.003 with one, and 0.006 with batch normalisation.
    weight_decay : float or "auto", default="auto"
        Weight decay of the optimiser. ``"auto"`` is k / (2 M) for k features and M classes, up to
        1, and at most 20,000 / n for n > 20,000 training samples.
    schedule : {"one_cycle", "constant"}, default="one_cycle"
        Course of the learning rate over each stage.
    device : str, default="auto"
        ``"auto"`` takes the first available of CUDA, MPS and the CPU; else a torch device.
    random_state : int, Generator, RandomState or None, default=None
        Source of all randomness. An int gives the same bits on the same machine each time; None
        differs between calls. No global random state is read or changed.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    centroids_ : ndarray of shape (n_classes, n_features), float32
        Targets of the training: class means in input space, in the units of X. Values beyond
        `clip` count as clipped; features left out have the mean of all classes.
    centers_ : ndarray of shape (n_classes, n_components), float64
        Class means of the embedded training samples; positions of the classes with
        ``placement="voronoi"``.
    feature_weights_ : ndarray of shape (n_features,), float64
        What each feature's z-score is multiplied by: 1 on root mean square average, 0 for features
        left out.
    history_ : dict of str to list
        One entry an epoch: ``stage``, ``epoch``, ``loss``, ``validation_loss``,
        ``validation_error``.
    trained_on_counts_ : bool
        Whether the training data are whole numbers of at least 0, as counts are.
    n_epochs_ : int
        Epochs run after pre-training, merging included.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Feature names, where X had some.

    References
    ----------
    .. [1] T. Ghosh and M. Kirby, "Supervised Dimensionality Reduction and Visualization using
       Centroid-Encoder", Journal of Machine Learning Research 23(20), 2022.
    .. [2] S. Ioffe and C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by
       Reducing Internal Covariate Shift", ICML 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from centroid_encoder import CentroidEncoder
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CentroidEncoder(random_state=0).fit(X, y)
    >>> model.transform(X).shape
    (150, 2)
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        placement: Placement = "voronoi",
        n_networks: int | Literal["auto"] = "auto",
        hidden: Sequence[int] | Literal["auto"] = "auto",
        activation: Activation = "relu",
        batch_norm: bool | Literal["auto"] = "auto",
        output: Output = "span",
        compactness: float = 0.1,
        scale: Scale = "supervised",
        max_features: int | None = 2000,
        clip: float | None = 10.0,
        dropout: float | Literal["auto"] = "auto",
        class_weight: Literal["sqrt", "balanced"] | Mapping[Any, float] | None = "sqrt",
        max_samples: int | None = 1_000_000,
        pretrain_epochs: int | Literal["auto"] = "auto",
        max_epochs: int | Literal["auto", "few"] = "auto",
        validation_fraction: float = 0.0,
        patience: int | None = None,
        merge_epochs: int = 0,
        batch_size: int | Literal["auto"] = "auto",
        optimizer: Optimizer = "adamw",
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float | Literal["auto"] = "auto",
        schedule: Schedule = "one_cycle",
        device: str = "auto",
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.placement = placement
        self.n_networks = n_networks
        self.hidden = hidden
        self.activation = activation
        self.batch_norm = batch_norm
        self.output = output
        self.compactness = compactness
        self.scale = scale
        self.max_features = max_features
        self.clip = clip
        self.dropout = dropout
        self.class_weight = class_weight
        self.max_samples = max_samples
        self.pretrain_epochs = pretrain_epochs
        self.max_epochs = max_epochs
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.merge_epochs = merge_epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.device = device
        self.random_state = random_state

    @classmethod
    def from_recipe(cls, name: str, **overrides: Any) -> Self:
        """Return an unfitted estimator with settings that have a name.

        Parameters
        ----------
        name
            ``"draft"`` for a first look, in a fraction of the time: one small network, few epochs,
            at most 400 features. It errs more, and its confidence in samples that it was trained on
            is not that of a network that was not. Or the paper's network and settings for one of
            its experiments: ``"paper-mnist"``, ``"paper-usps"``, ``"paper-letter"``,
            ``"paper-landsat"``, ``"paper-phoneme"``, ``"paper-iris"`` or ``"paper-sonar"``.
        overrides
            Parameters to set differently.

        Raises
        ------
        ValueError
            If there is no such recipe.
        """
        if name not in RECIPES:
            raise ValueError(f"unknown recipe {name!r}; there are {', '.join(RECIPES)}")
        return cls(**(RECIPES[name] | overrides))

    def fit(
        self,
        X: ArrayLike | Matrix,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Train the network.

        Ctrl-C during training keeps the best state so far, with a warning; before the end of the
        first epoch it leaves the estimator as it was.

        Parameters
        ----------
        X : {array-like, sparse matrix, DataFrame} of shape (n_samples, n_features)
            Training data. Sparse data stay sparse.
        y : array-like of shape (n_samples,)
            Class labels; at least two classes.
        groups : array-like of shape (n_samples,) or None, default=None
            Donor or batch of each sample. With ``placement="voronoi"`` and several networks, a
            training sample is placed by a network that was trained on no sample of its group,
            unless all samples are of one group.
        callback : callable or None, default=None
            Called with a `Report` after every epoch (and once before the first), and with None
            before every batch. If it returns True, the training ends and keeps the best state so
            far. ``report.frame()`` computes the embedding at that moment.

        Raises
        ------
        ValueError
            If the data hold NaN or inf, if there is only one class, if a parameter is not valid, or
            if `groups` has missing values or no effect.
        StoppedTooEarly
            If `callback` ended the training before its first epoch was over.
        """
        check_consistent_length(X, y, groups)
        classes, codes = classes_of(y)
        names, of_samples = (None, None) if groups is None else self._groups(groups)
        done = self.fit_codes(X, codes, classes, groups=of_samples, callback=callback)
        for text, category in done.outcome.notices:
            warnings.warn(text, category, stacklevel=2)
        if names is not None and (crowded := done.crowded_group()) is not None:
            text = crowded_text(f"group {str(names[crowded[0]])!r}", crowded[1])
            warnings.warn(text, stacklevel=2)
        return self

    def _groups(self, groups: ArrayLike) -> tuple[NDArray[Any], Codes]:
        """Names of the groups, and (n_samples,) indices of them."""
        codes, names = pd.factorize(column_or_1d(groups), sort=False)
        if (codes < 0).any():
            raise ValueError(f"groups has {(codes < 0).sum()} missing values")
        for name, value in (("placement", "bottleneck"), ("n_networks", 1)):
            if getattr(self, name) == value:
                text = f"groups has no effect with {name}={value!r}: one network is trained on all "
                raise InputError(f"{text}samples", "groups")
        return names, codes.astype(np.intp)

    def fit_codes(
        self,
        X: ArrayLike | Matrix | Lazy,
        codes: Codes,
        classes: NDArray[Any],
        *,
        feature_names: ArrayLike | None = None,
        groups: Codes | None = None,
        novelty: bool = False,
        callback: Callback | None = None,
    ) -> Fit:
        """Train the network on class indices, and return all that is known of the rows of X.

        Parameters
        ----------
        X
            As in `fit`. Or a `Lazy` matrix of finite numbers, which is not in memory.
        codes
            (n_samples,) indices into `classes`; −1 for samples that are not trained on.
        classes
            (n_classes,) labels, all different and sorted. Those without a sample are not among
            `classes_`.
        feature_names
            (n_features,) names of the features, if X has none; they become `feature_names_in_`.
        groups
            (n_samples,) indices of donors or batches, as in `fit`.
        novelty
            Whether to do what `fit_novelty` does, too, where there are enough samples for it.
        callback
            As in `fit`.
        """
        check_parameters(self)
        check_effects(self)
        before, params = dict(vars(self)), self.get_params(deep=False)
        try:
            if isinstance(X, Lazy):
                self._checked(X[:1], reset=True)
            else:
                X = self._checked(X, reset=True)
            if feature_names is not None:
                self.feature_names_in_ = np.asarray(feature_names, dtype=object)
            device, seed = resolve_device(self.device), draw_seed(self.random_state)
            options: dict[str, Any] = {"groups": groups, "novelty": novelty, "callback": callback}
            done = fit(X, codes, classes, params, resolved, device, seed, **options)
            self.trained_on_counts_ = looks_whole(X)
            reports = done.outcome.reports
            self.history_ = {name: [getattr(one, name) for one in reports] for name in HISTORY}
            self._set_map(done.map, classes[done.known])
        except BaseException as error:
            self.__dict__ = before
            if isinstance(error, torch.OutOfMemoryError):
                text = "the device has too little memory; pass a smaller batch_size or max_samples"
                raise InputError(f"{text}, or device='cpu'", "device") from error
            raise
        return done

    @property
    def fitted_map(self) -> FittedMap:
        """The fitted map; its classes are those of `classes_`."""
        check_is_fitted(self)
        return self._map

    def calibrate(self, X: ArrayLike | Matrix, y: ArrayLike) -> Self:
        """Fit `predict_proba` to samples that the training has not seen.

        Neither embedding nor predictions change. Without this it is fitted to the training samples,
        each judged by a network that was not trained on it. One network alone has such samples only
        where validation samples were not merged; otherwise its probabilities are not calibrated.

        Parameters
        ----------
        X, y
            As in `fit`; the labels are among `classes_`.

        Raises
        ------
        ValueError
            If there are no samples, or if a label is not among `classes_`.
        """
        X, codes = self._labeled(X, y)
        self.fitted_map.calibration = Calibration.fit(self._distances(X), codes)
        return self

    def transform(self, X: ArrayLike | Matrix) -> NDArray[np.float32]:
        """Embed samples, which `X` holds as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_components), float32
        """
        return self.fitted_map.embed(self._checked(X))

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """Map (n_samples, n_components) points of the embedding back to the features.

        Through the decoder; with ``placement="voronoi"``, along the leading components of the class
        in whose cell a point lies.

        Returns
        -------
        ndarray of shape (n_samples, n_features), float32, in the units of the training data
        """
        return self.fitted_map.decode(self._points(X))

    def decoder_distances(self, X: ArrayLike) -> NDArray[np.float32]:
        """Distances of points of the embedding to the classes, by which the model decides.

        `X` holds (n_samples, n_components) points of the embedding.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), float32
            Distances of the decoder's output to the centroids, proportional to ‖h(z) − c_j‖ in the
            standardised input space; with ``placement="voronoi"``, roots of the log odds that the
            place suggests: 0 for the class in whose cell it lies. The smallest is the model's
            decision; over the plane, it draws the decoder regions.
        """
        return self.fitted_map.distances(self._points(X))

    def predict(self, X: ArrayLike | Matrix) -> NDArray[Any]:
        """Predict the class whose centroid is nearest to the decoder's output; `X` is as in `fit`.

        With ``placement="voronoi"``, the class in whose cell a sample lies.

        Returns
        -------
        ndarray of shape (n_samples,), with values of `classes_`
        """
        nearest = self._distances(self._checked(X)).argmin(axis=1)
        return cast(NDArray[Any], self.classes_[nearest])

    def predict_proba(self, X: ArrayLike | Matrix) -> NDArray[np.float32]:
        """Probability of each class: the softmax of −(d_j / T)^a.

        The distances d_j are those of `decoder_distances` for the embedded samples, temperature T
        and exponent a those of `calibration_`. With ``placement="voronoi"`` they are what the
        networks say of all classes; a place shows the likeliest two of them. The probabilities tell
        doubt between the classes of the map; of samples unlike anything seen in training they know
        nothing. `X` is as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), float32, in the order of `classes_`
        """
        distances = self._distances(self._checked(X))
        return self.calibration_.probabilities(distances).astype(np.float32)

    def _distances(self, X: Matrix) -> NDArray[np.float32]:
        return np.concatenate([distances for _, distances in self.fitted_map.judge(X)])

    def fit_novelty(self, X: ArrayLike | Matrix, y: ArrayLike) -> Self:
        """Learn the distribution of the training samples, for `novelty`.

        `fit` does not do this: it can take as long as the training.

        Parameters
        ----------
        X, y
            Those of the training; of the training samples about 2,000 are used, and kept.

        Raises
        ------
        ValueError
            If there are fewer than ten samples, or if classes are missing or unknown.
        """
        X, codes = self._labeled(X, y)
        if len(codes) < LEAST:
            raise ValueError(f"novelty needs at least {LEAST} samples, but got {len(codes)}")
        if len(np.unique(codes)) < len(self.classes_):
            raise ValueError("y lacks classes of the map: it must be that of the training")
        standardizer = self.fitted_map.standardizer
        self.fitted_map.novelty, *_ = Novelty.fit(X, np.arange(len(codes)), codes, standardizer)
        return self

    def novelty(self, X: ArrayLike | Matrix) -> NDArray[np.float32]:
        """How unlike anything seen in training samples are.

        The score adds two distances in the first 20 principal components of the z-scores of all
        features: to the nearest training samples, relative to their distances from each other, and
        to the nearest class in units of its own spread. `X` is as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,), float32
            Share of the training samples, each judged by the others, that are less novel: of
            samples like them, one in twenty has more than 0.95.

        Raises
        ------
        NotFittedError
            If `fit_novelty` has not been called.
        """
        if self.fitted_map.novelty is None:
            raise NotFittedError("call fit_novelty with the training samples first")
        return self.fitted_map.novelty.quantiles(self._checked(X), self.fitted_map.standardizer)

    def predict_voronoi(self, X: ArrayLike | Matrix) -> NDArray[Any]:
        """Predict the class in whose Voronoi cell a sample lands: the class of the nearest center.

        `X` is as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,), with values of `classes_`
        """
        return self.classes_[nearest_center(self.fitted_map.embed(self._checked(X)), self.centers_)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted map to a ``.safetensors`` file; `load` reads it.

        The file holds arrays and JSON, nothing that can run. It is written beside the target and
        then renamed, so that a failure leaves the old file as it was.

        Parameters
        ----------
        path
            File to write; its folder must exist.
        """
        saved.save(path, *self.to_state())

    def to_state(self) -> tuple[dict[str, Any], Arrays]:
        """Return the fitted map as a JSON-able config and plain arrays."""
        config, arrays = saved.to_arrays(self.fitted_map)
        saved.check_labels(self.classes_)
        names = getattr(self, "feature_names_in_", None)
        described = {
            "params": saved.params_to(self.get_params(deep=False)),
            "feature_names": None if names is None else names.tolist(),
            "trained_on_counts": self.trained_on_counts_,
            # JSON has no NaN.
            "history": {
                name: [None if value != value else value for value in values]
                for name, values in self.history_.items()
            },
        }
        return config | {"estimator": described | saved.labels_to(self.classes_)}, arrays

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, device: str = "auto"
    ) -> Self:
        """Return a fitted estimator; the inverse of `to_state`.

        Raises
        ------
        InvalidStateError
            If config and arrays are not those of a fitted map, are damaged, or were written by a
            newer release.
        """
        where = resolve_device(device)
        fitted = saved.from_arrays(config, arrays, where)
        with saved.refusing_damage(config):
            stored = config["estimator"]
            self = cls(**saved.params_from(stored["params"], cls().get_params()))
            check_parameters(self)
            draw_seed(self.random_state)
            classes = saved.labels_from(stored, len(fitted.centers))
            self.n_features_in_ = len(fitted.standardizer.mean)
            if (names := stored["feature_names"]) is not None:
                if len(names) != self.n_features_in_:
                    raise ValueError(f"{len(names)} names for {self.n_features_in_} features")
                self.feature_names_in_ = np.array(names, dtype=object)
            self.trained_on_counts_ = bool(stored["trained_on_counts"])
            self.history_ = {
                name: [np.nan if value is None else value for value in stored["history"][name]]
                for name in HISTORY
            }
            self._set_map(fitted, classes)
        return self

    def _set_map(self, fitted: FittedMap, classes: NDArray[Any]) -> None:
        self._map, self.classes_ = fitted, classes
        self.centroids_, self.centers_ = fitted.centroids(), fitted.centers
        self.feature_weights_ = fitted.standardizer.weight
        stages = self.history_["stage"]
        self.n_epochs_ = sum(not stage.startswith("pretrain") for stage in stages)

    @property
    def calibration_(self) -> Calibration:
        """How distances to the centroids become probabilities."""
        return self.fitted_map.calibration

    @property
    def _n_features_out(self) -> int:
        return self.fitted_map.n_components

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # The embedding is float32 whatever comes in.
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _checked(self, X: ArrayLike | Matrix, *, reset: bool = False) -> Matrix:
        if not reset:
            check_is_fitted(self)
        return cast(Matrix, validate_data(self, plain(X), reset=reset, accept_sparse="csr"))

    def _labeled(self, X: ArrayLike | Matrix, y: ArrayLike) -> tuple[Matrix, Codes]:
        """Check samples and labels; return the samples, and indices into `classes_`."""
        X = self._checked(X)
        check_consistent_length(X, y)
        labels = column_or_1d(plain(y), warn=True)
        codes = pd.Index(self.classes_).get_indexer(labels)
        if (codes < 0).any():
            unknown = labels[codes < 0].tolist()[0]
            raise ValueError(f"y holds {unknown!r}, which is not among the classes of the map")
        return X, codes

    def _points(self, Z: ArrayLike) -> NDArray[np.floating]:
        """Check points of the embedding."""
        Z = cast(NDArray[np.floating], check_array(plain(Z), dtype=[np.float32, np.float64]))
        if Z.shape[1] != self._n_features_out:
            raise ValueError(
                f"X has {Z.shape[1]} columns, but the embedding has {self._n_features_out}"
            )
        return Z


def crowded_text(group: str, share: float) -> str:
    """Return a warning that a group holds so large a share of the training data."""
    if share == 1:
        return f"all training samples are of {group}: networks trained on others of it place them"
    return (
        f"{group} holds {100 * share:.0f} % of the training samples: they are placed by a network "
        "that is trained on the others alone, and less well than new samples will be"
    )


def load(path: str | os.PathLike[str], *, device: str = "auto") -> CentroidEncoder:
    """Read a fitted `CentroidEncoder` from a ``.safetensors`` file.

    Parameters
    ----------
    path
        File written by `CentroidEncoder.save`. Nothing in it is executed, whoever wrote it. The map
        in a ``.h5ad`` file is read by `tl.fitted_model`.
    device
        Where to put the network: ``"auto"`` or a torch device.

    Returns
    -------
    CentroidEncoder
        Fitted; its `transform` gives the same bits as before on the same machine.

    Raises
    ------
    InvalidStateError
        If the file is truncated, of another kind, or of an unknown format version.
    FileNotFoundError
        If there is no such file.
    """
    return CentroidEncoder.from_state(*saved.load(path), device=device)
