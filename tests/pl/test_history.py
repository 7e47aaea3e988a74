"""The curves of a training, and its stages."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from numpy.testing import assert_allclose, assert_array_equal

import centroid_encoder as ce


def curves(ax: Axes) -> dict[str, np.ndarray]:
    lines = [line for axes in ax.figure.axes for line in axes.lines]
    return {
        line.get_label(): np.column_stack(line.get_data())
        for line in lines
        if not line.get_label().startswith("_")
    }


def test_without_validation_there_is_one_curve(embed):
    adata = embed()
    ax = ce.pl.history(adata, show=False)
    (name,) = drawn = curves(ax)
    assert name == "training loss"
    loss = adata.uns["ce"]["history"]["loss"]
    assert_array_equal(drawn[name], np.column_stack([np.arange(1, 9), loss]))
    assert len(ax.figure.axes) == 1
    assert not ax.texts, "there is only one stage"


def test_validation_has_curves_and_stages_are_marked(cells):
    model = ce.CentroidEncoder(
        placement="bottleneck",
        hidden=(16, 8),
        pretrain_epochs=4,
        max_epochs=6,
        validation_fraction=0.2,
        merge_epochs=2,
    )
    ce.tl.centroid_encoder(cells, "cell_type", model=model, progress=False)

    ax = ce.pl.history(cells, show=False)

    table, drawn = cells.uns["ce"]["history"], curves(ax)
    assert set(drawn) == {"training loss", "validation loss", "validation error"}
    assert_array_equal(drawn["validation loss"][:, 1], table["validation_loss"])
    assert_allclose(drawn["validation error"][:, 1], 100 * table["validation_error"])
    # One legend for both axes.
    legends = [axes.get_legend() for axes in ax.figure.axes if axes.get_legend()]
    assert [len(legend.get_texts()) for legend in legends] == [3]
    # Three steps of four epochs, six of training, two of merging.
    ends = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 2]
    assert ends == [4.5, 8.5, 12.5, 18.5]
    named = {text.get_text().strip(): text.get_position()[0] for text in ax.texts}
    assert named == {"pretrain 1–3": 0.5, "train": 12.5, "merge": 18.5}
