"""The probability of the labels and of shuffled ones, and the p value in the title."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from numpy.testing import assert_allclose

import centroid_encoder as ce


def draw(adata: Any, **kwargs: Any) -> Axes:
    return ce.pl.permutation_test(adata, show=False, **kwargs)


def test_all_permutations_and_the_observed_labels_are_drawn(cells, validate):
    adata = validate(cells)
    ax = draw(adata)
    test = adata.uns["ce_cv"]["permutation"]
    ends = [*(bar.get_x() for bar in ax.patches), ax.patches[-1].get_bbox().x1]
    counts, _ = np.histogram(test["shuffled"], ends)
    assert counts.sum() == 99
    assert_allclose([bar.get_height() for bar in ax.patches], counts)
    assert_allclose([line.get_xdata()[0] for line in ax.lines], [test["observed"]])
    named = [text.get_text() for text in ax.get_legend().get_texts()]
    assert named == ["with shuffled labels", f"observed: {test['observed']:.2f}"]
    left, right = ax.get_xlim()
    assert left < min(ends) < max(*ends, test["observed"]) < right


def test_without_a_test_the_error_names_the_call(cells, validate):
    del validate(cells).uns["ce_cv"]["permutation"]
    with pytest.raises(KeyError, match=r"cross_validate\(adata, 'cell_type', n_permutations=99\)"):
        draw(cells)
    assert not plt.get_fignums()


@pytest.mark.parametrize(
    ("n", "p_value", "title"),
    [
        (1999, 0.0005, "p = 0.0005 (1,999 permutations, the smallest possible)"),
        (99, 0.37, "p = 0.37 (99 permutations)\nno better than chance"),
        (9, 0.1, "p = 0.1 (9 permutations, the smallest possible)\ntoo few to tell"),
    ],
)
def test_the_title_has_the_p_value_and_its_limits(cells, validate, n, p_value, title):
    found = np.random.default_rng(0).uniform(0.3, 0.4, n)
    validate(cells).uns["ce_cv"]["permutation"] |= {"shuffled": found, "p_value": p_value}
    assert draw(cells).get_title() == title
    assert draw(cells, title="mine").get_title() == "mine"
