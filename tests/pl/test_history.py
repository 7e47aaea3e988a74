"""The course of a training, and what it says about its stages."""

from __future__ import annotations

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scanpy as sc
from matplotlib.axes import Axes
from numpy.testing import assert_allclose, assert_array_equal

import centroid_encoder as ce


@pytest.fixture
def staged(cells):
    """Cells after pre-training, training with validation, and merging."""
    model = ce.CentroidEncoder(
        placement="bottleneck",
        hidden=(16, 8),
        pretrain_epochs=4,
        max_epochs=6,
        validation_fraction=0.2,
        merge_epochs=2,
    )
    ce.tl.centroid_encoder(cells, "cell_type", model=model, progress=False)
    return cells


def curves(ax: Axes) -> dict[str, np.ndarray]:
    lines = [line for axes in ax.figure.axes for line in axes.lines]
    return {
        line.get_label(): np.column_stack(line.get_data())
        for line in lines
        if not line.get_label().startswith("_")
    }


def test_draws_the_training_loss_alone_where_nothing_validates(embed):
    adata = embed()
    ax = ce.pl.history(adata, show=False)
    (name,) = drawn = curves(ax)
    assert name == "training loss"
    assert_array_equal(drawn[name][:, 0], np.arange(1, 9))
    assert_array_equal(drawn[name][:, 1], adata.uns["ce"]["history"]["loss"])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("epoch", "loss")
    assert len(ax.figure.axes) == 1
    assert not ax.texts, "there is only one stage"


def test_draws_what_validation_says(staged):
    ax = ce.pl.history(staged, show=False)
    table = staged.uns["ce"]["history"]
    drawn = curves(ax)
    assert set(drawn) == {"training loss", "validation loss", "validation error"}
    assert_array_equal(drawn["validation loss"][:, 1], table["validation_loss"])
    assert_allclose(drawn["validation error"][:, 1], 100 * table["validation_error"])
    _, right = ax.figure.axes
    assert right.get_ylabel() == "validation error (%)"
    assert right.get_ylim()[0] == 0
    # One legend for both axes.
    legends = [axes.get_legend() for axes in ax.figure.axes if axes.get_legend()]
    assert [len(legend.get_texts()) for legend in legends] == [3]


def test_marks_where_stages_begin(staged):
    ax = ce.pl.history(staged, show=False)
    # Three steps of four epochs, six of training, two of merging.
    ends = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 2]
    assert ends == [4.5, 8.5, 12.5, 18.5]
    named = {text.get_text(): text.xy[0] for text in ax.texts}
    assert named == {"pretrain 1–3": 0.5, "train": 12.5, "merge": 18.5}


def test_writes_names_side_by_side(staged):
    ax = ce.pl.history(staged, show=False)
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
    assert all(box.y1 < ax.figure.bbox.y1 for box in boxes)


def test_has_a_readable_scale_for_any_range(embed):
    adata = embed()
    table = adata.uns["ce"]["history"]
    for loss in (np.geomspace(1, 1e-4, 8), np.linspace(0.52, 0.53, 8), np.full(8, 0.3)):
        table["loss"] = loss
        ax = ce.pl.history(adata, show=False)
        ax.figure.canvas.draw()
        low, high = ax.get_ylim()
        ticks = [
            label.get_text()
            for label, tick in zip(ax.get_yticklabels(), ax.get_yticks(), strict=True)
            if low <= tick <= high
        ]
        assert len(ticks) >= 2
        assert len(set(ticks)) == len(ticks)
        assert all("mathdefault" not in tick for tick in ticks)


def test_draws_on_the_axes_given_and_does_not_show_them(staged, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: pytest.fail("it was shown"))
    _, axes = plt.subplots(1, 2)
    assert ce.pl.history(staged, ax=axes[1]) is axes[1]
    assert len(plt.get_fignums()) == 1


def test_shows_and_saves_like_the_other_plots(embed, monkeypatch, tmp_path):
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(True))
    adata = embed(key_added="second")
    assert ce.pl.history(adata, key="second", show=True) is None
    assert shown == [True]
    ce.pl.history(adata, key="second", show=False, save=tmp_path / "loss.svg")
    assert (tmp_path / "loss.svg").exists()
    before, sc.settings.figdir = sc.settings.figdir, tmp_path
    try:
        ce.pl.history(adata, key="second", show=False, save="_second.png")
    finally:
        sc.settings.figdir = before
    assert (tmp_path / "history_second.png").exists()


@pytest.mark.parametrize("stored", [None, {"params": {}}, "text of another program"])
def test_names_the_call_to_make_first(cells, stored):
    if stored is not None:
        cells.uns["ce"] = stored
    with pytest.raises(KeyError, match=r"no result 'ce'; run ce.tl.centroid_encoder"):
        ce.pl.history(cells)


def test_changes_nothing(staged, unchanged):
    with unchanged(staged):
        ce.pl.history(staged, show=False)
