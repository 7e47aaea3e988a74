"""`CentroidEncoder`, the scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
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
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import Tags, check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from centroid_encoder import checks
from centroid_encoder.checks import RandomState, plain
from centroid_encoder.core import saved
from centroid_encoder.core.arrays import Codes
from centroid_encoder.core.calibration import Calibration
from centroid_encoder.core.fit import Fit, fit
from centroid_encoder.core.inputs import Scale
from centroid_encoder.core.map import FittedMap
from centroid_encoder.core.matrix import Lazy, Matrix, looks_whole
from centroid_encoder.core.network import Activation
from centroid_encoder.core.novelty import LEAST, Novelty
from centroid_encoder.core.optimization import Optimizer, Schedule
from centroid_encoder.core.placement import Placement
from centroid_encoder.core.quality import nearest_center
from centroid_encoder.core.reports import Callback
from centroid_encoder.core.saved import Arrays
from centroid_encoder.core.targets import Output
from centroid_encoder.core.threads import one_thread
from centroid_encoder.errors import InputError, InputTypeError, check
from centroid_encoder.recipes import RECIPES

HISTORY = "stage", "epoch", "loss", "validation_loss", "validation_error"  # fields of `Report`


# The fields are the parameters; `eq` and `repr` are those of scikit-learn.
@dataclass(eq=False, repr=False)
class CentroidEncoder(
    ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator
):
    """Supervised, parametric embedding that maps every sample to the centroid of its class.

    Networks are trained to map each sample to the mean of its class, as in [1]_. The embedding
    shows the predicted class of a sample and how certain it is. New samples can be embedded, too.

    Parameters
    ----------
    n_components : int, default=2
        Dimension m of the embedding.
    placement : {"bottleneck", "voronoi"}, default="voronoi"
        How the embedding is computed. ``"bottleneck"`` is the method of the paper: the network has
        the shape of an autoencoder, and the output of its bottleneck of `n_components` linear units
        is the embedding. ``"voronoi"`` trains networks without a bottleneck, which are more
        accurate, and computes the embedding from their outputs. Each class has a position; the
        distances between positions follow those between centroids. A sample lies at the mean of
        these positions, weighted by its probabilities, plus its scatter along the leading
        components of the classes, and always in the Voronoi cell of its most probable class.
        The probabilities are those of the networks and of a linear discriminant analysis together,
        each with a weight that is learned from samples that neither has seen. `predict`,
        `predict_voronoi` and `decoder_distances` then agree. If there are more than 100 features,
        the inputs of the networks are 100 principal axes. In training, Gaussian noise is added to
        them instead of dropout, with the covariance that `dropout` would cause. With at most 100
        features, at least ten training samples for each and at most 10,000 in all, discriminant
        axes and piecewise linear ramps of the features are further inputs.
    n_networks : int or "auto", default="auto"
        Number of networks with ``placement="voronoi"``. Each is trained on all folds of the samples
        but one; the weights of its features are computed from the same samples. A training sample
        is placed by the network that was not trained on it, a new sample by all networks, weighted
        by their numbers of training samples. 1 trains one network on all samples; its probabilities
        for these samples are too high. ``"auto"`` is 4 for up to 5,000 training samples, 3 for up
        to 50,000, and 2 for more.
    hidden : sequence of int or "auto", default="auto"
        Widths of the encoder's hidden layers; the decoder has the same in reverse order. ``"auto"``
        is (500, 250, 125). Without a bottleneck and for up to 5,000 training samples it is
        (300, 200, 100), or (250, 150, 75) with more than 100 features.
    activation : {"relu", "tanh"}, default="relu"
        Non-linearity of the hidden layers. Bottleneck and output are linear.
    batch_norm : bool or "auto", default="auto"
        Whether the encoder's hidden layers are batch-normalised [2]_ during training; the fitted
        map has plain layers. Batch normalisation needs fewer epochs and makes rounder classes.
        ``"auto"`` uses it with a bottleneck and at least 4,000 training samples; with fewer, it
        overfits.
    output : {"span", "full"}, default="span"
        Coordinates of the decoder's output. ``"span"``: coordinates in an orthonormal basis of the
        centroids' affine span, at most n_classes − 1 numbers. The loss has the same minimum as
        with ``"full"``, at a fraction of the cost. ``"full"``: n_features numbers, as in the paper.
    compactness : float, default=0.1
        Weight of a second term of the loss: the share of the embedding's scatter that is within
        classes. It keeps the samples of a class together, so that a classification by Voronoi cells
        is as accurate as one by nearest neighbours. 0 is the loss of the paper.
    scale : {"auto", "supervised", "feature", "global"}, default="auto"
        Standardisation of the features, computed from the training samples and stored in the map.
        ``"feature"`` divides each feature by its standard deviation. ``"supervised"`` also
        multiplies it by its correlation ratio with the classes, so that uninformative features do
        not hide the others. ``"auto"`` does so, but with at most 100 features, no more than
        `max_features`, and fewer than 1,000 training samples in several folds only if the classes
        of five neighbours, out of fold, are then more alike by two standard errors. ``"global"``
        divides all features by one number; use it for pixels.
    max_features : int or None, default=2000
        Largest number of features to train on with weighted features: those with the largest
        weights; None keeps all. It bounds the cost of whole transcriptomes. Each of several
        networks chooses its own features.
    clip : float or None, default=10.0
        Largest absolute z-score; larger ones are clipped. This limits the influence of nearly
        constant features in new data.
    dropout : float or "auto", default="auto"
        Share of input values set to zero in each training step, in [0, 1). ``"auto"`` is
        1/2 − 50 / k for k features, but at least 0.02. For n < 1,250 training samples it is also at
        least min(25 / n, 0.15), since single features are unreliable then.
    class_weight : "sqrt", "balanced", dict or None, default="sqrt"
        Weight of each sample in the loss. ``"sqrt"``: one over the square root of the number of
        samples of its class, so that large classes count for more than small ones, but not in
        proportion to their size. ``"balanced"``: one over that number. A dict holds a number for
        each class, as in scikit-learn. None: all the same.
    max_samples : int or None, default=1_000_000
        Largest number of samples to train on; None trains on all. If there are more, the
        networks are trained on a stratified sample, which bounds the memory and time of the
        training. All networks place the others, like new samples.
    pretrain_epochs : int or "auto", default="auto"
        Epochs for each stage of the paper's layer-freeze pre-training; 0 skips it. With a
        bottleneck and more than 15 classes, ``"auto"`` is half of the epochs of the training;
        otherwise it is 0.
    max_epochs : int, "auto" or "few", default="auto"
        Epochs of training. With n training samples, ``"auto"`` is 300,000 / n, clipped to 20 to 60.
        With a bottleneck and more than 15 classes, this number is doubled. It is never above
        max(1,200,000 / n, 5), and with ``placement="voronoi"`` and more than 100 features never
        above 30. ``"few"``, for a first look, is 120,000 / n, clipped to 2 to 8.
    validation_fraction : float, default=0.0
        Share of each class's samples that is not trained on, in [0, 1). The weights with the
        smallest loss on these samples are kept. 0 trains on all samples for `max_epochs`.
    patience : int or None, default=None
        Number of epochs without a smaller validation loss after which the training stops; None
        never stops it.
    merge_epochs : int, default=0
        Epochs of further training with the validation samples merged back (the paper's last step).
    batch_size : int or "auto", default="auto"
        Samples in each step. ``"auto"`` gives 32 steps per epoch, or 16 without a bottleneck. A
        step has at least 16 and at most 256 samples, or 512 with batch normalisation.
    optimizer : {"adamw", "amsgrad"}, default="adamw"
        AdamW, or AMSGrad with the weight decay as a term of the loss.
    learning_rate : float or "auto", default="auto"
        Largest (``"one_cycle"``) or constant learning rate. ``"auto"`` is 0.007 without a
        bottleneck, 0.003 with one, and 0.006 with batch normalisation.
    weight_decay : float or "auto", default="auto"
        Weight decay of the optimiser. ``"auto"`` is k / (2 M) for k features and M classes, up to
        1, and at most 20,000 / n for n > 20,000 training samples.
    schedule : {"one_cycle", "constant"}, default="one_cycle"
        Course of the learning rate over each stage. ``"one_cycle"`` rises to the largest rate and
        falls to 0.
    device : str, default="auto"
        Torch device; ``"auto"`` is the first available of CUDA, MPS and the CPU.
    random_state : int, Generator, RandomState or None, default=None
        Source of all randomness. An int gives the same bits on the same machine each time; with
        None the results differ between calls. No global random state is read or changed.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    centroids_ : ndarray of shape (n_classes, n_features), float32
        Targets of the training: class means in input space, in the units of X, computed from
        clipped z-scores. Features of weight 0 have the mean of all samples. With
        ``placement="voronoi"``, they are computed from a sample of at most about 10,000.
    centers_ : ndarray of shape (n_classes, n_components), float64
        Class means of the embedded training samples; positions of the classes with
        ``placement="voronoi"``.
    feature_weights_ : ndarray of shape (n_features,), float64
        Factor of each feature's z-score; 0 for features that are not trained on. The root mean
        square of the others is 1.
    history_ : dict of str to list
        ``stage``, ``epoch``, ``loss``, ``validation_loss`` and ``validation_error`` of each epoch.
    trained_on_counts_ : bool
        Whether the training data are whole numbers of at least 0, as counts are.
    n_epochs_ : int
        Number of epochs after pre-training, merging included.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Feature names, if X had some.

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

    n_components: int = 2
    _: KW_ONLY
    placement: Placement = "voronoi"
    n_networks: int | Literal["auto"] = "auto"
    hidden: Sequence[int] | Literal["auto"] = "auto"
    activation: Activation = "relu"
    batch_norm: bool | Literal["auto"] = "auto"
    output: Output = "span"
    compactness: float = 0.1
    scale: Scale = "auto"
    max_features: int | None = 2000
    clip: float | None = 10.0
    dropout: float | Literal["auto"] = "auto"
    class_weight: Literal["sqrt", "balanced"] | Mapping[Any, float] | None = "sqrt"
    max_samples: int | None = 1_000_000
    pretrain_epochs: int | Literal["auto"] = "auto"
    max_epochs: int | Literal["auto", "few"] = "auto"
    validation_fraction: float = 0.0
    patience: int | None = None
    merge_epochs: int = 0
    batch_size: int | Literal["auto"] = "auto"
    optimizer: Optimizer = "adamw"
    learning_rate: float | Literal["auto"] = "auto"
    weight_decay: float | Literal["auto"] = "auto"
    schedule: Schedule = "one_cycle"
    device: str = "auto"
    random_state: RandomState = None

    @classmethod
    def from_recipe(cls, name: str, **overrides: Any) -> Self:
        """Return an unfitted estimator with the settings of a recipe.

        Parameters
        ----------
        name
            ``"draft"`` is for a first look, in a fraction of the time: one small network, few
            epochs, and at most 400 features. It makes more errors, and its confidence in samples
            that it was trained on is too high. The others are the paper's network and settings for
            one of its experiments: ``"paper-mnist"``, ``"paper-usps"``, ``"paper-letter"``,
            ``"paper-landsat"``, ``"paper-phoneme"``, ``"paper-iris"`` and ``"paper-sonar"``.
        overrides
            Parameters that differ from the recipe.

        Raises
        ------
        ValueError
            If there is no such recipe.
        """
        check(name in RECIPES, f"unknown recipe {name!r}; there are {', '.join(RECIPES)}")
        return cls(**(RECIPES[name] | overrides))

    def fit(
        self,
        X: ArrayLike | Matrix,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Train the networks.

        Ctrl-C during training keeps the best state so far, with a warning. Before the end of the
        first epoch, it leaves the estimator as it was.

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
            Called with a `Report` once before the first epoch and after every epoch, and with None
            before every batch. If it returns True, the training ends and keeps the best state so
            far. ``report.frame()`` computes the embedding at that time.

        Raises
        ------
        ValueError
            If X has NaN or inf, if there is only one class, if a parameter is not valid, or if
            `groups` has missing values or no effect.
        StoppedTooEarly
            If `callback` ended the training before its first epoch was over.
        """
        self._fit(X, y, groups, callback)
        return self

    def fit_transform(
        self,
        X: ArrayLike | Matrix,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        callback: Callback | None = None,
    ) -> NDArray[np.float32]:
        """Train the networks, and embed each training sample by a network that has not seen it.

        The result differs from that of ``fit(X, y).transform(X)``, in which the networks place the
        samples that they were trained on, so that noise looks separated. In a pipeline, the next
        step is fitted to the cross-fitted places, as with scikit-learn's `TargetEncoder`.

        With one network (``n_networks=1``, ``placement="bottleneck"``) there is nothing to
        cross-fit: the places are those of `transform`, and a warning is issued. Samples beyond
        `max_samples` are placed by all networks, like new samples. So are samples of a class of
        one sample or of one group: no network has seen their class without them.

        Parameters
        ----------
        X, y, groups, callback
            As in `fit`, with the same errors.

        Returns
        -------
        ndarray of shape (n_samples, n_components), float32
        """
        done = self._fit(X, y, groups, callback)
        if done.division.n_networks == 1:
            text = "one network places the samples that it was trained on: they look too separated"
            warnings.warn(f"{text}. n_networks='auto' places each by another one", stacklevel=2)
        return done.embed()

    def _fit(
        self,
        X: ArrayLike | Matrix,
        y: ArrayLike,
        groups: ArrayLike | None,
        callback: Callback | None,
    ) -> Fit:
        _check_no_anndata(X)
        is_swapped = getattr(X, "ndim", 2) == 1 and getattr(y, "ndim", 1) == 2
        check(not is_swapped, "X has one dimension, and y two: X comes first, as in fit(X, y)", "X")
        check_consistent_length(X, y, groups)
        classes, codes = checks.classes_of(y)
        of_samples, names = _group_codes(groups)
        for name, value in (("placement", "bottleneck"), ("n_networks", 1)):
            text = f"groups has no effect with {name}={value!r}: one network is trained on all"
            check(groups is None or getattr(self, name) != value, f"{text} samples", "groups")
        done = self.fit_codes(X, codes, classes, groups=of_samples, callback=callback)
        if done.run.interrupted:
            warnings.warn(done.run.notice, ConvergenceWarning, stacklevel=3)
        if (crowded := done.crowded_group()) is not None:
            text = crowded_text(f"group {str(names[crowded[0]])!r}", crowded[1])
            warnings.warn(text, stacklevel=3)
        return done

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
        """Train the networks on class indices, and return the map together with its training data.

        Parameters
        ----------
        X
            As in `fit`, or a `Lazy` matrix of finite numbers.
        codes
            (n_samples,) indices into `classes`; −1 for samples that are not trained on.
        classes
            (n_classes,) labels, all different and sorted. Those without a sample are left out of
            `classes_`.
        feature_names
            (n_features,) names of the features, if X has none; they become `feature_names_in_`.
        groups
            (n_samples,) indices of donors or batches, as in `fit`.
        novelty
            Whether to call `fit_novelty` as well, if there are enough samples.
        callback
            As in `fit`.
        """
        checks.check_parameters(self)
        checks.check_effects(self)
        before, params = dict(vars(self)), self.get_params(deep=False)
        try:
            if isinstance(X, Lazy):
                self._checked(X[:1], reset=True)
            else:
                X = self._checked(X, reset=True)
            if feature_names is not None:
                self.feature_names_in_ = np.asarray(feature_names, dtype=object)
            device, seed = checks.resolve_device(self.device), checks.draw_seed(self.random_state)
            training = X, codes, classes, params, device, seed
            with one_thread():
                done = fit(*training, groups=groups, novelty=novelty, callback=callback)
            self.trained_on_counts_ = looks_whole(X)
            reports = done.run.reports
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
        """Calibrate `predict_proba` with samples that were not trained on.

        Neither embedding nor predictions change. The probability of the predicted class becomes
        right for samples like these; the others keep the class frequencies of the training samples.
        `fit` calibrates with the training samples, each with the network that was not trained on
        it. If there is only one network, it uses the validation samples; without any, or if they
        were merged, it does not calibrate.

        Parameters
        ----------
        X, y
            As in `fit`; the labels must be among `classes_`.

        Raises
        ------
        ValueError
            If there are no samples, or if a label is not among `classes_`.
        """
        X, codes = self._labeled(X, y)
        offsets = self.calibration_.offsets
        self.fitted_map.calibration = Calibration.fit(self._distances(X), codes, offsets)
        return self

    @one_thread()
    def transform(self, X: ArrayLike | Matrix) -> NDArray[np.float32]:
        """Embed samples. `X` is as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_components), float32
        """
        return self.fitted_map.embed(self._checked(X))

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """Map (n_samples, n_components) points of the embedding back to the features.

        The decoder computes them. With ``placement="voronoi"`` they are the centroid of the class
        in whose cell a point lies, plus the point's components along the scatter of the class.

        Returns
        -------
        ndarray of shape (n_samples, n_features), float32, in the units of the training data
        """
        return self.fitted_map.decode(self._points(X))

    def decoder_distances(self, X: ArrayLike) -> NDArray[np.float32]:
        """Distances of points of the embedding to the classes.

        The class with the smallest distance is the model's decision; the decoder regions are the
        regions of these decisions. `X` holds (n_samples, n_components) points of the embedding.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), float32
            Distances of the decoder's output to the centroids, proportional to ‖h(z) − c_j‖ in the
            standardised input space. With ``placement="voronoi"``, square roots of the log odds of
            the most probable class against each, estimated from the point's place: 0 for the class
            in whose cell it lies.
        """
        return self.fitted_map.distances(self._points(X))

    def predict(self, X: ArrayLike | Matrix) -> NDArray[Any]:
        """Predict the class whose centroid is nearest to the decoder's output. `X` is as in `fit`.

        With ``placement="voronoi"`` it is the class in whose cell a sample lies.

        Returns
        -------
        ndarray of shape (n_samples,), with values of `classes_`
        """
        nearest = self._distances(self._checked(X)).argmin(axis=1)
        return cast(NDArray[Any], self.classes_[nearest])

    def predict_proba(self, X: ArrayLike | Matrix) -> NDArray[np.float32]:
        """Probability of each class under the class frequencies of the training samples.

        It is the softmax of b_j + c_j [j is predicted] − (d_j / T)^a. The distances d_j are those
        of `decoder_distances` for the embedded samples; with ``placement="voronoi"`` they come from
        the networks' outputs, which contain more than the place in the plane. `calibration_` has
        the temperature T, the exponent a, the offsets b_j and the terms c_j.

        `predict` gives small classes more weight (`class_weight`). For them, it is therefore not
        always the class of the largest probability. The probabilities express doubt between the
        classes of the map. A sample unlike all training samples can have a high one; `novelty`
        finds it. If the classes of new samples have other frequencies, the probabilities are
        wrong. `X` is as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), float32, in the order of `classes_`
        """
        distances = self._distances(self._checked(X))
        return self.calibration_.probabilities(distances).astype(np.float32)

    @one_thread()
    def _distances(self, X: Matrix) -> NDArray[np.float32]:
        return np.concatenate([distances for _, distances in self.fitted_map.judge(X)])

    def fit_novelty(
        self, X: ArrayLike | Matrix, y: ArrayLike, *, groups: ArrayLike | None = None
    ) -> Self:
        """Learn the distribution of the training samples, for `novelty`.

        `fit` does not call it, because it can take as long as the training.

        Parameters
        ----------
        X, y
            Training samples and labels. About 2,000 samples are used and become part of the map.
        groups
            Group of each sample, such as its donor. The novelty of a sample of a new group is then
            its rank among samples of groups that were left out. Without `groups`, most samples of a
            new group are novel if groups differ. With fewer than five groups, novelty is rough.

        Raises
        ------
        ValueError
            If there are fewer than ten samples, if classes are missing or unknown, or if `groups`
            has missing values.
        """
        check_consistent_length(X, y, groups)
        of_samples, _ = _group_codes(groups)
        X, codes = self._labeled(X, y)
        n, n_found = len(codes), len(np.unique(codes))
        check(n >= LEAST, f"novelty needs at least {LEAST} samples, but got {n}")
        text = "y lacks classes of the map; pass the labels of the training"
        check(n_found == len(self.classes_), text)
        training = X, np.arange(n), codes, self.fitted_map.standardizer, of_samples
        self.fitted_map.novelty, *_ = Novelty.fit(*training)
        return self

    @one_thread()
    def novelty(self, X: ArrayLike | Matrix) -> NDArray[np.float32]:
        """Novelty of samples: how different they are from all training samples. `X` is as in `fit`.

        The score adds the logarithms of two distances in the first 20 principal components of the
        z-scores of all features: the distance to the nearest training samples, relative to their
        distances from each other, and the distance to the nearest class in units of its spread.

        Returns
        -------
        ndarray of shape (n_samples,), float32
            Share of the training samples with a smaller score, where each training sample is
            scored by the others, or by those of other groups. One in twenty samples like them has
            more than 0.95.

        Raises
        ------
        NotFittedError
            If `fit_novelty` has not been called.
        """
        if self.fitted_map.novelty is None:
            raise NotFittedError("call fit_novelty with the training samples first")
        return self.fitted_map.novelty.quantiles(self._checked(X))

    def predict_voronoi(self, X: ArrayLike | Matrix) -> NDArray[Any]:
        """Predict the class of the nearest center, in whose Voronoi cell a sample lies.

        `X` is as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,), with values of `classes_`
        """
        return self.classes_[nearest_center(self.transform(X), self.centers_)]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted map to a ``.safetensors`` file; `load` reads it.

        The file holds arrays and JSON, and no code. It is written beside `path` and then renamed,
        so that after a failure the old file is as it was.

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
            "classes": self.classes_.tolist(),
            "classes_dtype": self.classes_.dtype.str,
        }
        return config | {"estimator": described}, arrays

    @classmethod
    def from_state(
        cls, config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, device: str = "auto"
    ) -> Self:
        """Return the fitted estimator of a config and arrays; the inverse of `to_state`.

        Raises
        ------
        InvalidStateError
            If they are not those of a fitted map, are damaged, or were written by a newer release.
        """
        where = checks.resolve_device(device)
        fitted = saved.from_arrays(config, arrays, where)
        with saved.refusing_damage(config):
            stored = config["estimator"]
            self = cls(**saved.params_from(stored["params"], cls().get_params()))
            checks.check_parameters(self)
            checks.draw_seed(self.random_state)
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
        """Parameters by which distances to the classes become probabilities."""
        return self.fitted_map.calibration

    @property
    def _n_features_out(self) -> int:
        return self.fitted_map.n_components

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # The embedding is float32 for input of any dtype.
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _checked(self, X: ArrayLike | Matrix, *, reset: bool = False) -> Matrix:
        if not reset:
            check_is_fitted(self)
        _check_no_anndata(X)
        return cast(Matrix, validate_data(self, plain(X), reset=reset, accept_sparse="csr"))

    def _labeled(self, X: ArrayLike | Matrix, y: ArrayLike) -> tuple[Matrix, Codes]:
        """Check samples and labels; return the samples, and the labels as indices of `classes_`."""
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
        if (n := self._n_features_out) != Z.shape[1]:
            raise ValueError(f"X has {Z.shape[1]} columns, but the embedding has {n}")
        return Z


def _group_codes(groups: ArrayLike | None) -> tuple[Codes | None, Any]:
    if groups is None:
        return None, None
    codes, names = pd.factorize(column_or_1d(groups))
    check((codes >= 0).all(), f"groups has {(codes < 0).sum()} missing values")
    return codes, names


def _check_no_anndata(X: object) -> None:
    """Raise an InputTypeError for an AnnData."""
    text = f"X must be an array or a DataFrame, not {type(X).__name__}; pass adata.X, or call"
    text += " ce.tl.centroid_encoder to train a map and ce.tl.ingest to place new cells"
    check(not hasattr(X, "obs_names"), text, "X", InputTypeError)


def crowded_text(group: str, share: float) -> str:
    """Return the text of a warning that a group holds a large share of the training samples."""
    if share == 1:
        return f"all training samples are of {group}: networks trained on the same group place them"
    return (
        f"{group} holds {100 * share:.0f} % of the training samples: the network that places them "
        "was trained on the few others alone, and places them less well than new samples"
    )


def load(path: str | os.PathLike[str], *, device: str = "auto") -> CentroidEncoder:
    """Read a fitted `CentroidEncoder` from a ``.safetensors`` file.

    Parameters
    ----------
    path
        File written by `CentroidEncoder.save`. No part of it is executed, so that files of unknown
        origin are safe. `tl.fitted_model` reads the map in a ``.h5ad`` file.
    device
        Device of the networks: ``"auto"`` or a torch device.

    Returns
    -------
    CentroidEncoder
        Fitted. On the same machine, its `transform` gives the same bits as the saved one.

    Raises
    ------
    InvalidStateError
        If the file is truncated, of another kind, or of an unknown format version.
    FileNotFoundError
        If there is no such file.
    """
    return CentroidEncoder.from_state(*saved.load(path), device=device)
