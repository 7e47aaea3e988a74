"""The observed error among those of shuffled labels, and the p value in words."""

from __future__ import annotations

from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from numpy.testing import assert_allclose

import centroid_encoder as ce


def draw(adata: Any, **kwargs: Any) -> Axes:
    return ce.pl.permutation_test(adata, **({"show": False} | kwargs))


def lines(ax: Axes) -> dict[str, float]:
    """Position of each line by its name in the legend."""
    return {line.get_label(): line.get_xdata()[0] for line in ax.lines}


def with_test(adata: ad.AnnData, errors: Any, observed: float, p_value: float) -> ad.AnnData:
    adata.uns["ce_cv"]["permutation"] = {
        "errors": np.array(errors, dtype=float),
        "observed": observed,
        "p_value": p_value,
    }
    return adata


def test_draws_all_permutations_and_the_observed_error(cells, validate):
    adata = validate(cells)
    ax = draw(adata)
    test = adata.uns["ce_cv"]["permutation"]
    assert sum(bar.get_height() for bar in ax.patches) == 99
    last = ax.patches[-1]
    ends = [*(bar.get_x() for bar in ax.patches), last.get_x() + last.get_width()]
    counts, _ = np.histogram(100 * test["errors"], ends)
    assert_allclose([bar.get_height() for bar in ax.patches], counts)
    observed = 100 * test["observed"]
    assert_allclose(list(lines(ax).values()), [observed, 100 * 2 / 3])
    assert list(lines(ax)) == [f"observed: {observed:.1f} %", "always the largest class: 66.7 %"]
    assert [line.get_linestyle() for line in ax.lines] == ["-", ":"]
    named = [text.get_text() for text in ax.get_legend().get_texts()]
    assert named == ["with shuffled labels", *lines(ax)]
    left, right = ax.get_xlim()
    assert left == 0
    assert right > max(*ends, *lines(ax).values())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("out-of-fold 5-NN error (%)", "permutations")


def test_names_the_call_to_make_first(cells, validate, unchanged):
    with (
        unchanged(cells),
        pytest.raises(KeyError, match=r"cross_validate\(adata, label_key, n_permutations=99\)"),
    ):
        draw(cells)
    validate(cells, n_permutations=0)
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
def test_the_title_has_p_and_what_it_could_be(cells, validate, n, p_value, title):
    errors = np.random.default_rng(0).uniform(0.5, 0.7, n)
    assert draw(with_test(validate(cells), errors, 0.6, p_value)).get_title() == title
    assert draw(cells, title="mine").get_title() == "mine"
