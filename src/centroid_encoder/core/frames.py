"""Embeddings during a training, for a live picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.utils import gen_batches
from torch import Tensor

from centroid_encoder.core.inputs import Inputs
from centroid_encoder.core.matrix import CHUNK, Codes
from centroid_encoder.core.placement import Placer
from centroid_encoder.core.reports import Frame
from centroid_encoder.core.splits import at_most

N_SHOWN = 2_000  # rows from which the odds are computed during the training
N_FOLDS = 5  # of the regression of the first frame
RIDGE = 0.1  # regularisation of the first frame, relative to the mean variance of the inputs


@dataclass
class Frames:
    """Embeddings of n rows; some rows may have no place."""

    n: int
    placer: Placer | None
    """Places rows; None with a bottleneck, whose output is the embedding."""

    def start(self, z: Tensor, inputs: Inputs, rows: Codes, codes: Codes) -> Frame | None:
        """Return a frame before the training: ridge regression of the targets on a network's axes.

        The output of each of the (b, k) rows `z` is that of a regression on other rows.
        """
        if self.placer is None:
            return None
        # The other axes and the ramps come from the classes of all rows.
        x = (z @ inputs.of_features[0].T).cpu().numpy()
        ridge, folds = Ridge(RIDGE * len(x) * x.var(axis=0).mean()), min(N_FOLDS, len(x))
        shuffled = KFold(folds, shuffle=True, random_state=0)
        outputs = cross_val_predict(ridge, x, self.placer.targets[codes], cv=shuffled)
        outputs = outputs.reshape(len(x), -1)  # scikit-learn returns one output without an axis
        along, no_fold = self.placer.project(z), np.full(len(z), -1)
        return self.frame(rows, codes, no_fold, along, torch.from_numpy(outputs))

    def frame(
        self, rows: Codes, codes: Codes, folds: Codes, along: NDArray[np.float32], outputs: Tensor
    ) -> Frame:
        """Return the frame of (b,) rows.

        `codes` holds their (b,) classes, −1 for none, `folds` their (b,) folds, −1 for none,
        `along` the result of `Placer.project`, and `outputs` the (b, r)
        outputs of the networks.
        """
        found, positions = outputs.cpu().numpy(), None
        if self.placer is not None:
            some = at_most(N_SHOWN, np.flatnonzero(codes >= 0))
            weights = np.ones(len(some))
            known = found[some], along[some], codes[some], weights, folds[some]
            placer = self.placer.with_odds(*known, is_new=bool((folds[some] >= 0).all()))
            parts = [(found[p], along[p], folds[p]) for p in gen_batches(len(found), CHUNK)]
            found = np.concatenate([placer.judge(*part)[0] for part in parts])
            positions = placer.layout.positions
        embedding = np.full((self.n, found.shape[1]), np.nan, dtype=np.float32)
        embedding[rows] = found
        return embedding, positions
