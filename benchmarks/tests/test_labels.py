"""Choice of typical cells as in scikit-activeml, and number of labels that reach an error."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from benchmarks.labels import needed
from centroid_encoder.core.suggestion import N_NEIGHBORS, typical


@pytest.mark.parametrize("n", [1, 3])
def test_typical_cells_are_those_of_scikit_activeml(rng, n):
    from skactiveml.pool import TypiClust

    codes = np.repeat([0, 1, 2, 3], [200, 100, 60, 40])
    points = np.array([[0.0, 0], [20, 0], [0, 20], [20, 20]])[codes] + rng.normal(size=(400, 2))
    labels = np.full(400, np.nan)
    labels[0] = 0
    expected = TypiClust(random_state=0, k=N_NEIGHBORS).query(points, labels, batch_size=n)
    found = typical(points, ~np.isnan(labels), np.zeros(400, dtype=int), n, seed=0)
    assert_array_equal(found, expected)


def test_number_of_labels_that_reach_an_error():
    errors = pd.Series([0.4, 0.2, 0.1], index=[20, 100, 200])
    assert needed(errors, 0.3) == pytest.approx(60)
    assert needed(errors, 0.1) == pytest.approx(200)
    assert needed(errors, 0.5) == 20
    assert np.isnan(needed(errors, 0.05))
