"""Relabelling: every step can be undone, and the original labels stay as they are."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import centroid_encoder as ce
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.viewer._save import save_h5ad
from centroid_encoder.viewer.session.relabeling import Relabeling

Unchanged = Callable[[ad.AnnData], Any]

COLORS = ["#ff0000", "#00ff00", "#0000ff"]


def table(labels: Any = ("a", "b", "c", "a", None, "b")) -> ad.AnnData:
    labels = labels if isinstance(labels, pd.Categorical) else list(labels)
    names = [f"cell{i}" for i in range(len(labels))]
    adata = ad.AnnData(obs=pd.DataFrame({"kind": labels}, index=names))
    if isinstance(labels, list) and "a" in labels:
        adata.obs["kind"] = pd.Categorical(labels, categories=["c", "a", "b"])
        adata.uns["kind_colors"] = list(COLORS)
    return adata


def values(column: pd.Series) -> list[Any]:
    return [None if pd.isna(value) else value for value in column]


# One step


def test_a_step_goes_into_a_new_column_and_the_original_stays() -> None:
    adata = table()
    before = adata.obs["kind"].copy()

    assert Relabeling(adata, "kind").relabel(np.array([0, 5]), "c")

    assert values(adata.obs["kind_relabeled"]) == ["c", "b", "c", "a", None, "c"]
    assert list(adata.obs["kind_relabeled"].cat.categories) == ["c", "a", "b"]
    assert adata.uns["kind_relabeled_colors"] == COLORS
    pd.testing.assert_series_equal(adata.obs["kind"], before)
    assert adata.uns["kind_colors"] == COLORS


def test_everything_undone_is_everything_as_it_was(unchanged: Unchanged) -> None:
    adata = table()
    with unchanged(adata):
        relabeling = Relabeling(adata, "kind")
        relabeling.relabel([0], "b")
        relabeling.relabel([0, 1], "new")
        relabeling.relabel([4], "a")
        relabeling.relabel([2], None)
        while relabeling.steps[0]:
            relabeling.undo()

    while relabeling.steps[1]:
        relabeling.redo()
    assert values(adata.obs["kind_relabeled"]) == ["new", "new", None, "a", "a", "b"]


def test_a_label_can_be_given_and_taken_away() -> None:
    adata = table()
    relabeling = Relabeling(adata, "kind")

    relabeling.relabel([4], "b")
    relabeling.relabel([0, 1], None)

    assert values(adata.obs["kind_relabeled"]) == [None, None, "c", "a", "b", "b"]
    relabeling.undo()
    assert values(adata.obs["kind_relabeled"]) == ["a", "b", "c", "a", "b", "b"]


def test_steps_say_what_they_do() -> None:
    relabeling = Relabeling(table(), "kind")

    relabeling.relabel([0, 3], "b")
    assert relabeling.steps[0] == "Relabel 2 cells as b"
    relabeling.relabel([0], None)
    assert relabeling.steps[0] == "Take the label of 1 cell away"


@pytest.mark.parametrize(("cells", "label"), [([], "b"), ([0, 3], "a"), ([4], None)])
def test_what_changes_nothing_is_no_step(
    cells: list[int], label: str | None, unchanged: Unchanged
) -> None:
    adata = table()
    with unchanged(adata):
        relabeling = Relabeling(adata, "kind")
        assert not relabeling.relabel(cells, label)
    assert not relabeling.steps[0]


def test_rows_may_repeat_and_those_with_the_label_are_not_counted() -> None:
    relabeling = Relabeling(table(), "kind")
    relabeling.relabel(np.array([1, 1, 0, 3]), "a")
    assert relabeling.steps[0] == "Relabel 1 cell as a"


@pytest.mark.parametrize(
    ("cells", "label", "error", "words"),
    [
        ([6], "b", IndexError, "6 rows; there is no row 6"),
        ([-1, 0], "b", IndexError, "no row -1"),
        ([True] * 6, "b", TypeError, "bool"),
        ([0], "  ", ValueError, "needs a name"),
    ],
)
def test_a_step_that_cannot_be_is_an_error_and_changes_nothing(
    cells: Any, label: str, error: type[Exception], words: str, unchanged: Unchanged
) -> None:
    adata = table()
    relabeling = Relabeling(adata, "kind")
    relabeling.relabel([0], "b")

    with unchanged(adata), pytest.raises(error, match=words):
        relabeling.relabel(cells, label)

    relabeling.undo()
    assert "kind_relabeled" not in adata.obs


# Categories


def test_a_new_label_is_the_last_category_and_has_a_color_of_its_own() -> None:
    adata = table()
    relabeling = Relabeling(adata, "kind")

    relabeling.relabel([0], " doublet ")
    relabeling.relabel([1], "debris")

    column = adata.obs["kind_relabeled"]
    assert list(column.cat.categories) == ["c", "a", "b", "doublet", "debris"]
    colors = adata.uns["kind_relabeled_colors"]
    assert colors[:3] == COLORS
    assert len(set(colors)) == 5
    relabeling.undo()
    assert list(adata.obs["kind_relabeled"].cat.categories) == ["c", "a", "b", "doublet"]
    assert adata.uns["kind_relabeled_colors"] == colors[:4]


def test_the_color_of_a_new_label_is_not_one_of_those_in_use() -> None:
    adata = table()
    adata.uns["kind_colors"] = ["C0", "tab:orange", "#2ca02c"]
    relabeling = Relabeling(adata, "kind")
    relabeling.relabel([0], "new")
    assert adata.uns["kind_relabeled_colors"] == ["#1f77b4", "#ff7f0e", "#2ca02c", "#e69f00"]


def test_colors_follow_those_of_the_labels_and_keep_that_of_a_new_one() -> None:
    adata = table()
    relabeling = Relabeling(adata, "kind")
    relabeling.relabel([0], "new")
    adata.uns["kind_colors"] = ["#111111", "#222222", "#333333"]
    adata.uns["kind_relabeled_colors"][3] = "#abcdef"

    relabeling.relabel([1], "new")

    assert adata.uns["kind_relabeled_colors"] == ["#111111", "#222222", "#333333", "#abcdef"]


@pytest.mark.parametrize("stored", [None, ["#ff0000"], ["no color"] * 3])
def test_without_colors_that_fit_they_are_those_that_are_drawn(stored: list[str] | None) -> None:
    adata = table()
    del adata.uns["kind_colors"]
    if stored is not None:
        adata.uns["kind_colors"] = stored
    drawn = label_colors(adata, "kind")

    Relabeling(adata, "kind").relabel([0], "new")

    colors = adata.uns["kind_relabeled_colors"]
    assert colors[:3] == list(drawn.values())
    assert len(set(colors)) == 4
    assert adata.uns.get("kind_colors") == stored


def test_order_and_unused_categories_are_kept() -> None:
    kinds = pd.Categorical(["lo", "hi", "lo"], categories=["lo", "mid", "hi"], ordered=True)
    adata = table(kinds)
    Relabeling(adata, "kind").relabel([0], "hi")

    column = adata.obs["kind_relabeled"]
    assert column.cat.ordered
    assert list(column.cat.categories) == ["lo", "mid", "hi"]


@pytest.mark.parametrize(
    ("labels", "text", "expected"),
    [
        ([3, 1, 1, 3], "1", [1, 1, 1, 3]),
        ([3, 1, 1, 3], "7", [7, 1, 1, 3]),
        ([3.0, 1.0, np.nan, 3.0], "7", [7, 1, None, 3]),
        ([True, False, False, True], "False", [False, False, False, True]),
        (["x", "y", None, "x"], "z", ["z", "y", None, "x"]),
    ],
)
def test_labels_of_any_kind_can_be_typed_trained_on_and_saved(
    labels: list[Any], text: str, expected: list[Any], tmp_path: Path
) -> None:
    adata = table(labels)
    Relabeling(adata, "kind").relabel([0], text)

    column = adata.obs["kind_relabeled"]
    assert values(column) == expected
    kind = pd.Index([value for value in expected if value is not None]).dtype
    assert str(column.cat.categories.dtype).lower() == str(kind)
    save_h5ad(adata, tmp_path / "cells.h5ad")
    assert values(ad.read_h5ad(tmp_path / "cells.h5ad").obs["kind_relabeled"]) == expected
    trained = ad.concat([adata] * 10, index_unique="-", uns_merge="same")
    trained.obsm["X_pca"] = np.random.default_rng(0).normal(size=(40, 3))
    model = ce.CentroidEncoder(hidden=(4,), max_epochs=1)
    ce.tl.centroid_encoder(
        trained, "kind_relabeled", use_rep="X_pca", model=model, test_size=0, progress=False
    )
    assert set(trained.uns["ce"]["classes"].tolist()) == set(expected) - {None}


# pandas 3 takes text for str where it may choose.
@pytest.mark.parametrize(
    ("dtype", "kinds"), [("object", {"object", "str"}), ("string", {"string"})]
)
def test_text_stays_the_kind_of_text_it_was(dtype: str, kinds: set[str]) -> None:
    adata = table(pd.Categorical(pd.Series(["x", "y", "x"], dtype=dtype)))
    Relabeling(adata, "kind").relabel([0], "z")
    assert str(adata.obs["kind_relabeled"].cat.categories.dtype) in kinds


@pytest.mark.parametrize(
    ("labels", "label", "words"),
    [
        ([3, 1, 1, 3], "three", "whole numbers"),
        ([True, False, True, False], "maybe", "True or False"),
    ],
)
def test_a_new_label_of_another_kind_is_refused(labels: list[Any], label: str, words: str) -> None:
    adata = table(labels)
    with pytest.raises(ValueError, match=words):
        Relabeling(adata, "kind").relabel([0], label)
    assert list(adata.obs) == ["kind"]


def test_measurements_are_no_labels() -> None:
    with pytest.raises(TypeError, match="fractional"):
        Relabeling(table([0.5, 1.0, 2.0]), "kind").relabel([0], "1")


def test_more_categories_than_fit_into_a_byte() -> None:
    adata = table(pd.Categorical([f"k{i:03}" for i in range(125)]))
    relabeling = Relabeling(adata, "kind")
    for i in range(6):
        relabeling.relabel([i], f"new{i}")
    expected = [*(f"new{i}" for i in range(6)), "k006"]
    assert list(adata.obs["kind_relabeled"][:7]) == expected
    for _ in range(5):
        relabeling.undo()
    assert list(adata.obs["kind_relabeled"][:2]) == ["new0", "k001"]


# Which column


def test_a_column_that_is_not_ours_is_left_alone() -> None:
    adata = table()
    adata.obs["kind_relabeled"] = "theirs"
    relabeling = Relabeling(adata, "kind")
    # The second name is taken after we have chosen it.
    adata.obs["kind_relabeled_2"] = "theirs as well"

    relabeling.relabel([0], "b")

    assert relabeling.column == "kind_relabeled_3"
    assert adata.obs["kind_relabeled_3"].iloc[0] == "b"
    assert set(adata.obs["kind_relabeled"]) == {"theirs"}
    assert set(adata.obs["kind_relabeled_2"]) == {"theirs as well"}


@pytest.mark.parametrize("convert", [pd.Series.astype, lambda column, _: column])
def test_a_column_to_go_on_with_comes_back_as_it_was(
    convert: Callable[[pd.Series, str], pd.Series], unchanged: Unchanged
) -> None:
    adata = table()
    adata.obs["mine"] = convert(adata.obs["kind"], "str")
    adata.obs.loc["cell1", "mine"] = "a"
    adata.uns["mine_colors"] = ["#000000"]
    with unchanged(adata):
        relabeling = Relabeling(adata, "kind", column="mine")
        relabeling.relabel([0], "c")
        assert list(adata.obs["mine"])[:3] == ["c", "a", "c"]
        relabeling.undo()


def test_a_column_to_go_on_with_may_change_before_the_first_step(unchanged: Unchanged) -> None:
    adata = table()
    adata.obs["mine"] = [1, 2, 3, 1, 2, 3]
    relabeling = Relabeling(adata, "kind", column="mine")
    adata.obs["mine"].array[1] = 3

    with unchanged(adata):
        relabeling.relabel([0], 2)
        assert list(adata.obs["mine"]) == [2, 3, 3, 1, 2, 3]
        relabeling.undo()


def test_the_original_is_no_column_to_go_on_with() -> None:
    with pytest.raises(ValueError, match="original labels"):
        Relabeling(table(), "kind", column="kind")


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match="did you mean 'kind'"):
        Relabeling(table(), "knd")
    with pytest.raises(KeyError, match="no column 'mine'"):
        Relabeling(table(), "kind", column="mine")


def test_a_view_becomes_a_copy_and_its_parent_stays(unchanged: Unchanged) -> None:
    whole = table()
    with unchanged(whole):
        view = whole[[0, 1, 3]]
        relabeling = Relabeling(view, "kind")
        relabeling.relabel([2], "b")
        assert values(view.obs["kind_relabeled"]) == ["a", "b", "b"]
        assert view.uns["kind_relabeled_colors"] == COLORS[1:]
        relabeling.undo()
        assert "kind_relabeled" not in view.obs


def test_a_view_of_a_file_is_an_error(tmp_path: Path) -> None:
    adata = table()
    adata = ad.AnnData(np.ones((6, 2), np.float32), obs=adata.obs)
    save_h5ad(adata, tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    relabeling = Relabeling(backed[:3], "kind")

    with pytest.raises(ValueError, match="to_memory"):
        relabeling.relabel([0], "b")
    assert not relabeling.steps[0]
    whole = Relabeling(backed, "kind")
    whole.relabel([0], "b")
    assert backed.obs["kind_relabeled"].iloc[0] == "b"
    backed.file.close()


# Somebody else


def delete(adata: ad.AnnData) -> None:
    del adata.obs["kind_relabeled"]


def change(adata: ad.AnnData) -> None:
    adata.obs.iloc[3, adata.obs.columns.get_loc("kind_relabeled")] = "c"


def reorder(adata: ad.AnnData) -> None:
    column = adata.obs["kind_relabeled"]
    adata.obs["kind_relabeled"] = column.cat.reorder_categories(["a", "b", "c"])


def measure(adata: ad.AnnData) -> None:
    adata.obs["kind_relabeled"] = 0.5


def filter_cells(adata: ad.AnnData) -> None:
    adata._inplace_subset_obs([0, 2, 5])


def rename_cells(adata: ad.AnnData) -> None:
    adata.obs_names = adata.obs_names[::-1]


@pytest.mark.parametrize("step", ["relabel", "undo", "redo"])
@pytest.mark.parametrize("disturb", [delete, change, reorder, measure, filter_cells, rename_cells])
def test_a_change_by_somebody_else_is_an_error_once_and_stays(
    disturb: Callable[[ad.AnnData], None], step: str, unchanged: Unchanged
) -> None:
    adata = table()
    relabeling = Relabeling(adata, "kind")
    relabeling.relabel([0], "b")
    relabeling.relabel([1], "c")
    if step == "redo":
        relabeling.undo()
    disturb(adata)

    with unchanged(adata), pytest.raises(RuntimeError, match="Relabel once more to go on from"):
        relabeling.relabel([0], "c") if step == "relabel" else getattr(relabeling, step)()

    assert relabeling.steps == ("", "")
    if disturb is measure:
        with pytest.raises(TypeError, match="fractional"):
            relabeling.relabel([0], "c")
        return
    with unchanged(adata):
        relabeling.relabel([0], "c")
        assert adata.obs["kind_relabeled"].iloc[0] == "c"
        relabeling.undo()


def test_labels_that_changed_while_no_step_was_in_force_begin_anew() -> None:
    adata = table()
    relabeling = Relabeling(adata, "kind")
    relabeling.relabel([0], "new")
    relabeling.undo()
    adata.obs["kind"] = pd.Categorical(["x", "y"] * 3)

    with pytest.raises(RuntimeError, match=r"obs\['kind'\] has been changed"):
        relabeling.redo()
    relabeling.relabel([0], "y")

    assert values(adata.obs["kind_relabeled"]) == ["y", "y", "x", "y", "x", "y"]


def test_labels_that_are_gone_are_an_error() -> None:
    adata = table()
    relabeling = Relabeling(adata, "kind")
    relabeling.relabel([0], "b")
    relabeling.undo()
    del adata.obs["kind"]

    with pytest.raises(RuntimeError, match=r"obs\['kind'\] has been changed"):
        relabeling.redo()
    with pytest.raises(KeyError, match="no column 'kind'"):
        relabeling.relabel([0], "b")


def test_steps_go_on_without_the_labels_they_began_with() -> None:
    adata = table()
    relabeling = Relabeling(adata, "kind")
    relabeling.relabel([0], "b")
    del adata.obs["kind"]

    relabeling.relabel([1], "c")
    relabeling.undo()
    assert values(adata.obs["kind_relabeled"]) == ["b", "b", "c", "a", None, "b"]
    relabeling.undo()
    assert list(adata.obs) == []


def test_what_is_no_longer_used_is_freed() -> None:
    gc.disable()
    try:
        relabeling = Relabeling(table(), "kind")
        relabeling.relabel([0], "b")
        freed = weakref.ref(relabeling)
        del relabeling
        assert freed() is None
    finally:
        gc.enable()


# Anything, in any order

N = 5
LABELS = ["a", "b", "c", "new", "newer", None]


class Relabeled(RuleBasedStateMachine):
    """Compare with lists: one for every state that undo and redo can reach."""

    @initialize(
        labels=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=N, max_size=N),
        n_theirs=st.integers(0, 2),
    )
    def begin(self, labels: list[str | None], n_theirs: int) -> None:
        names = [f"cell{i}" for i in range(N)]
        kinds = pd.Categorical(labels, categories=["a", "b", "c"])
        self.adata = ad.AnnData(obs=pd.DataFrame({"kind": kinds}, index=names))
        self.adata.uns["kind_colors"] = list(COLORS)
        for name in ["kind_relabeled", "kind_relabeled_2"][:n_theirs]:
            self.adata.obs[name] = "theirs"
        self.relabeling = Relabeling(self.adata, "kind")
        self.labels = labels
        self.theirs = list(self.adata.obs)[1:]
        self.states: list[list[str | None] | None] = [None]
        self.index = 0
        self.disturbed = False

    @property
    def state(self) -> list[str | None]:
        return self.states[self.index] or self.labels

    @rule(rows=st.lists(st.integers(0, N - 1)), label=st.sampled_from(LABELS))
    def relabel(self, rows: list[int], label: str | None) -> None:
        if self._fails(lambda: self.relabeling.relabel(rows, label), self.index > 0):
            return
        new = [label if i in rows else old for i, old in enumerate(self.state)]
        if new != self.state:
            self.states[self.index + 1 :] = [new]
            self.index += 1

    @rule()
    def undo(self) -> None:
        if not self._fails(self.relabeling.undo, self.index > 0):
            self.index = max(self.index - 1, 0)

    @rule()
    def redo(self) -> None:
        if not self._fails(self.relabeling.redo, self.index < len(self.states) - 1):
            self.index = min(self.index + 1, len(self.states) - 1)

    @precondition(lambda self: self.index > 0 and not self.disturbed)
    @rule(row=st.integers(0, N - 1))
    def somebody_changes(self, row: int) -> None:
        column = self.adata.obs[self.relabeling.column]
        value = next(name for name in column.cat.categories if name != column.iloc[row])
        self.adata.obs.iloc[row, self.adata.obs.columns.get_loc(column.name)] = value
        changed = list(self.state)
        changed[row] = value
        self._disturb(changed)

    @precondition(lambda self: self.index > 0 and not self.disturbed)
    @rule()
    def somebody_deletes(self) -> None:
        del self.adata.obs[self.relabeling.column]
        self._disturb(None)

    @invariant()
    def original_is_as_it_was(self) -> None:
        assert values(self.adata.obs["kind"]) == self.labels
        assert self.adata.uns["kind_colors"] == COLORS
        assert all((self.adata.obs[name] == "theirs").all() for name in self.theirs)

    @invariant()
    def column_is_that_of_the_lists(self) -> None:
        ours = [name for name in self.adata.obs if name not in ("kind", *self.theirs)]
        state = self.after if self.disturbed else self.states[self.index]
        assert ours == ([] if state is None else [self.relabeling.column])
        if state is None:
            return
        column = self.adata.obs[self.relabeling.column]
        assert values(column) == state
        assert list(column.cat.categories[:3]) == ["a", "b", "c"]
        if not self.disturbed:
            colors = self.adata.uns[f"{column.name}_colors"]
            assert len(colors) == len(set(colors)) == len(column.cat.categories)
            assert colors[:3] == COLORS

    @invariant()
    def steps_are_known(self) -> None:
        if not self.disturbed:
            assert bool(self.relabeling.steps[0]) == (self.index > 0)
            assert bool(self.relabeling.steps[1]) == (self.index < len(self.states) - 1)

    def _disturb(self, after: list[str | None] | None) -> None:
        self.disturbed, self.after = True, after

    def _fails(self, step: Callable[[], Any], loses: bool) -> bool:
        """Take a step; return whether it had to fail because of somebody else."""
        if not self.disturbed:
            step()
            return False
        self.disturbed = False
        self.states, self.index = [self.after], 0
        if loses:
            with pytest.raises(RuntimeError, match="Relabel once more"):
                step()
        else:
            step()
        return loses


TestRelabeled = Relabeled.TestCase
TestRelabeled.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
