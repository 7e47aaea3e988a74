"""Embeddings during a training, for a live picture."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_predict
from torch import Tensor

from centroid_encoder.core.arrays import Codes, Singles
from centroid_encoder.core.inputs import Inputs
from centroid_encoder.core.matrix import chunks
from centroid_encoder.core.placement import Placer
from centroid_encoder.core.reports import Frame
from centroid_encoder.core.splits import at_most

N_SHOWN = 2_000  # rows from which the odds are computed during the training
N_FOLDS = 5  # of the regression of the first frame
RIDGE = 0.1  # regularisation of the first frame, relative to the mean variance of the inputs


def first_frame(
    n: int, placer: Placer | None, inputs: Inputs, z: Tensor, rows: Codes, codes: Codes
) -> Frame | None:
    """Return a frame before the training: ridge regression of the targets on a network's axes.

    The output of each of the (b, k) standardised rows `z` is that of a regression on other rows.
    The other parameters are those of `placed_frame`. With a bottleneck, there is no such frame.
    """
    if placer is None:
        return None
    # The other axes and the ramps come from the classes of all rows.
    x = (z @ inputs.of_features[0].T).cpu().numpy()
    ridge, folds = Ridge(RIDGE * len(x) * x.var(axis=0).mean()), min(N_FOLDS, len(x))
    shuffled = KFold(folds, shuffle=True, random_state=0)
    outputs = cross_val_predict(ridge, x, placer.targets[codes], cv=shuffled)
    outputs = outputs.reshape(len(x), -1)  # scikit-learn returns one output without an axis
    along, no_fold = placer.project(z), np.full(len(z), -1)
    return placed_frame(n, placer, rows, codes, no_fold, along, torch.from_numpy(outputs))


def placed_frame(
    n: int,
    placer: Placer | None,
    rows: Codes,
    codes: Codes,
    folds: Codes,
    along: Singles,
    outputs: Tensor,
) -> Frame:
    """Return a frame of n rows; only the (b,) `rows` have a place.

    `codes` and `folds` hold their classes and folds, −1 for none, `along` the result of
    `Placer.project`, and `outputs` the (b, r) outputs of the networks. With a bottleneck, there is
    no placer, and the outputs are the embedding.
    """
    found, positions = outputs.cpu().numpy(), None
    if placer is not None:
        some = at_most(N_SHOWN, np.flatnonzero(codes >= 0))
        known = found[some], along[some], codes[some], np.ones(len(some)), folds[some]
        placer = placer.with_odds(*known, is_new=bool((folds[some] >= 0).all()))
        parts = [(found[p], along[p], folds[p]) for p in chunks(len(found))]
        found = np.concatenate([placer.judge(*part)[0] for part in parts])
        positions = placer.layout.positions
    embedding = np.full((n, found.shape[1]), np.nan, dtype=np.float32)
    embedding[rows] = found
    return embedding, positions
