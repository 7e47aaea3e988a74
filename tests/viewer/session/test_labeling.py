"""Labels by hand: every step can be undone, no old column is written to, a crash loses nothing."""

from typing import Any

import anndata as ad
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from centroid_encoder.viewer._save import save_h5ad
from centroid_encoder.viewer.session.journal import journal_path
from centroid_encoder.viewer.session.labeling import Labeling, held_out

N = 8


def table(n: int = N) -> ad.AnnData:
    names = [f"cell{i}" for i in range(n)]
    return ad.AnnData(np.ones((n, 2), dtype=np.float32), obs=pd.DataFrame(index=names))


def values(adata: ad.AnnData, column: str = "mine") -> list[Any]:
    return [None if pd.isna(value) else value for value in adata.obs[column]]


def test_labels_lie_in_a_new_column_with_the_colours_of_scanpy():
    adata = table()
    labeling = Labeling(adata, "mine")
    labeling.add_class("B cell")
    labeling.add_class("T cell")
    labeling.recolor_class("T cell", "red")
    labeling.set_key("T cell", "q")
    labeling.assign([0, 2], "B cell")
    labeling.assign([1], "new")
    labeling.assign([2], None)
    assert values(adata)[:4] == ["B cell", "new", None, None]
    assert list(adata.obs["mine"].cat.categories) == ["B cell", "T cell", "new"]
    assert adata.uns["mine_colors"] == [one.color for one in labeling.classes]
    assert [one.key for one in labeling.classes] == ["1", "Q", "2"]
    assert labeling.classes[1].color == "#ff0000"
    for i in range(14):
        labeling.add_class(f"class {i}")
    # There are sixteen keys.
    assert [bool(one.key) for one in labeling.classes] == [True] * 16 + [False]
    assert len({one.key for one in labeling.classes}) == 17
    assert len({one.color for one in labeling.classes}) == 17


def test_classes_that_cannot_be_made_are_refused():
    labeling = Labeling(table(), "mine")
    labeling.add_class("B cell")
    labeling.add_class("T cell")
    for change, words in [
        (lambda: labeling.add_class(" B cell "), "already"),
        (lambda: labeling.add_class(" "), "needs a name"),
        (lambda: labeling.rename_class("T cell", "B cell"), "already"),
        (lambda: labeling.recolor_class("T cell", "no colour"), "no colour"),
        (lambda: labeling.set_key("T cell", "1"), "key of B cell"),
        (lambda: labeling.set_key("T cell", "n"), "another meaning"),
        (lambda: labeling.set_key("T cell", "+"), "letter or a digit"),
    ]:
        with pytest.raises(ValueError, match=words):
            change()
    with pytest.raises(KeyError, match="no class"):
        labeling.remove_class("C cell")
    assert [one.key for one in labeling.classes] == ["1", "2"]


@pytest.mark.parametrize(
    ("column", "labels", "words"),
    [
        ("old", ["a"] * N, "not given by hand"),
        ("empty", [np.nan] * N, "not given by hand"),
        ("cell_type", ["a", *[None] * (N - 1)], "not given by hand"),
        ("", None, "needs a name"),
        ("a/b", None, "needs a name"),
    ],
)
def test_no_other_column_is_written_to(column, labels, words, unchanged):
    adata = table()
    if labels is not None:
        adata.obs[column] = labels
    with unchanged(adata), pytest.raises(ValueError, match=words):
        Labeling(adata, column)


def test_labels_of_a_measured_table_go_to_its_empty_column(unchanged):
    adata = table()
    adata.obs["cell_type"] = pd.Categorical([None] * N, pd.Index([], dtype=object))
    # Nothing is left of a labelling without classes.
    with unchanged(adata):
        labeling = Labeling(adata, "cell_type")
        labeling.assign([0], "a")
        labeling.undo()
        labeling.close()
    Labeling(adata, "cell_type").assign([0], "a")
    assert values(adata, "cell_type")[:2] == ["a", None]
    adata.obs_names = ["a"] * N
    with pytest.raises(ValueError, match="several cells have the same name"):
        Labeling(adata, "mine")


def test_labels_are_continued_after_saving_and_reopening(tmp_path):
    adata = table()
    labeling = Labeling(adata, "mine")
    save_h5ad(adata, tmp_path / "none.h5ad")
    assert Labeling(ad.read_h5ad(tmp_path / "none.h5ad"), "mine").classes == ()
    labeling.add_class("a/b")
    labeling.recolor_class("a/b", "#123456")
    labeling.set_key("a/b", "W")
    labeling.add_class("no cells")
    labeling.assign([3], "a/b")
    for save in (save_h5ad, lambda adata, path: adata.write_h5ad(path)):
        save(adata, tmp_path / "cells.h5ad")
        again = ad.read_h5ad(tmp_path / "cells.h5ad")
        continued = Labeling(again, "mine")
        assert continued.classes == labeling.classes
        continued.assign([0], "no cells")
        assert values(again)[:4] == ["no cells", None, None, "a/b"]


def test_the_journal_brings_labels_back_after_a_crash():
    labeling = Labeling(table(), "mine")
    labeling.assign([0, 1], "a")
    labeling.assign([2], "NA")
    del labeling

    adata = table()
    again = Labeling(adata, "mine")
    assert again.unsaved == 3
    # Labels given before the choice do not cost those of the journal.
    again.assign([5], "b")
    assert Labeling(table(), "mine").unsaved == 4
    again.restore()
    assert values(adata)[:6] == ["a", "a", "NA", None, None, "b"]
    assert again.unsaved == 0
    again.undo()
    assert values(adata)[:6] == [None, None, None, None, None, "b"]
    again.redo()
    assert Labeling(adata, "mine").unsaved == 0
    assert Labeling(table(), "other").unsaved == 0


def test_a_restored_labelling_has_its_classes_with_their_keys_and_colors():
    labeling = Labeling(table(), "mine")
    labeling.add_class("z")
    labeling.recolor_class("z", "#123456")
    labeling.set_key("z", "Q")
    labeling.add_class("no cells")
    labeling.assign([3], "b")
    classes = labeling.classes
    # Classes that were made before the choice keep their keys.
    other = Labeling(table(), "mine")
    other.add_class("new")
    other.restore()
    assert [one.name for one in other.classes] == ["new", *(one.name for one in classes)]
    assert other.classes[1] == classes[0]
    assert len({one.key for one in other.classes}) == 4


def test_a_step_only_appends_to_the_journal_and_a_cut_line_is_ignored():
    adata = table()
    labeling, path = Labeling(adata, "mine"), journal_path(adata, "mine")
    labeling.assign(range(N), "CD8 T")
    before = path.read_text()
    labeling.assign([1], None)
    labeling.assign([2], "b")
    labeling.undo()
    after = path.read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) - len(before.splitlines()) <= 6
    path.write_text(after + "cell1,CD")
    fresh = table()
    again = Labeling(fresh, "mine")
    again.restore()
    assert values(fresh) == ["CD8 T", None, *["CD8 T"] * (N - 2)]
    again.discard()
    assert Labeling(fresh, "mine").unsaved == 0
    assert Labeling(table(), "mine").unsaved == N - 1


def test_a_class_has_the_color_that_it_has_in_another_column():
    adata = table()
    adata.obs["phenotype"] = pd.Categorical(["CK+", "CD8+"] * (N // 2))
    adata.uns["phenotype_colors"] = ["#00ff00", "#0000ff"]
    labeling = Labeling(adata, "mine")
    for name in ("new", "CK+", "CD8+"):
        labeling.add_class(name)
    new, *known = (one.color for one in labeling.classes)
    assert known == ["#0000ff", "#00ff00"]
    assert new not in known


def test_the_journal_has_new_names_of_classes_and_labels_that_were_taken_back():
    adata = table()
    labeling = Labeling(adata, "mine")
    labeling.assign([0, 1], "a")
    labeling.assign([2], "b")
    labeling.rename_class("a", "new")
    # After a restart, a label that is taken back is not taken for a lost one.
    again = Labeling(adata, "mine")
    again.assign([2], None)
    assert again.unsaved == Labeling(adata, "mine").unsaved == 0
    crashed = table()
    Labeling(crashed, "mine").restore()
    assert values(crashed)[:4] == ["new", "new", None, None]


def test_no_label_is_lost_if_a_discard_stops_halfway(monkeypatch):
    Labeling(table(), "mine").assign([0, 1], "a")
    adata = table()
    again = Labeling(adata, "mine")
    again.assign([2], "b")

    def stop(*_: object) -> None:
        raise OSError("no power")

    with monkeypatch.context() as patches:
        patches.setattr("os.replace", stop)
        again.discard()
    assert isinstance(again.fault, OSError)
    assert Labeling(table(), "mine").unsaved == 3
    again.discard()
    assert again.fault is None
    assert Labeling(table(), "mine").unsaved == 1


def test_tables_with_the_same_names_in_other_places_have_their_own_journals():
    here, there = table(), table()
    here.obsm["spatial"] = np.zeros((N, 2))
    there.obsm["spatial"] = np.ones((N, 2))
    Labeling(here, "mine").assign([0], "a")
    assert Labeling(there, "mine").unsaved == 0


def test_steps_succeed_if_the_journal_cannot_be_written_or_read(tmp_path, monkeypatch):
    file = tmp_path / "a file"
    file.touch()
    monkeypatch.setenv("CENTROID_ENCODER_JOURNALS", str(file / "folder"))
    adata = table()
    labeling = Labeling(adata, "mine")
    labeling.assign([0], "a")
    assert values(adata)[0] == "a"
    assert isinstance(labeling.fault, OSError)
    monkeypatch.setenv("CENTROID_ENCODER_JOURNALS", str(tmp_path))
    journal_path(adata, "mine").write_text("no,table\n")
    assert isinstance(Labeling(table(), "mine").fault, ValueError)


def test_labels_travel_as_csv(tmp_path):
    labeling = Labeling(table(), "mine")
    labeling.assign([0, 1], "a, b")
    labeling.assign([2], "NA")
    labeling.to_csv(tmp_path / "labels.csv")
    assert list(pd.read_csv(tmp_path / "labels.csv")) == ["cell", "label"]

    adata = table(2)
    other = Labeling(adata, "mine")
    other.assign([1], "c")
    assert other.read_csv(tmp_path / "labels.csv") == 1
    assert values(adata) == ["a, b", "a, b"]
    other.undo()
    assert values(adata) == [None, "c"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cell,label\ncell1,a\ncell1,b\n", "'cell1' twice"),
        ("name,label\ncell1,a\n", "no column 'cell'"),
        ("cell,label\nother,a\n", "none of the 1 labelled cells"),
        ("cell,label\ncell1,\n", "no labelled cell"),
        ("", "no CSV file"),
    ],
)
def test_csv_of_something_else_is_refused(text, words, tmp_path, unchanged):
    adata = table()
    labeling = Labeling(adata, "mine")
    (tmp_path / "labels.csv").write_text(text)
    with unchanged(adata), pytest.raises(ValueError, match=words):
        labeling.read_csv(tmp_path / "labels.csv")


def test_cell_names_alone_decide_which_fifth_is_held_out():
    names, rng = pd.Index([f"cell{i}" for i in range(5000)]), np.random.default_rng(0)
    hashes, codes = pd.util.hash_array(names.to_numpy(object)), rng.integers(-1, 3, 5000)
    out = held_out(hashes, codes)
    assert not out[codes < 0].any()
    assert 0.17 < out[codes >= 0].mean() < 0.23
    # In another order and with more labels, a cell stays on its side.
    order = rng.permutation(5000)
    np.testing.assert_array_equal(held_out(hashes[order], codes[order]), out[order])
    more = np.where(codes < 0, 2, codes)
    np.testing.assert_array_equal(held_out(hashes, more)[codes >= 0], out[codes >= 0])
    # Three cells of each class always train.
    lowest = np.argsort(hashes)[:7]
    codes[:] = -1
    codes[lowest[:5]], codes[lowest[5:]] = 0, 1
    assert set(np.flatnonzero(held_out(hashes, codes))) == set(lowest[:2])


class Labelled(RuleBasedStateMachine):
    """Compare with a list of all states that undo and redo can reach."""

    @initialize(labels=st.none() | st.lists(st.sampled_from("abc"), min_size=N, max_size=N))
    def begin(self, labels: list[str] | None) -> None:
        """Label in a new column, or correct a column in a copy."""
        self.adata, self.labels = table(), labels
        if labels is not None:
            self.adata.obs["kind"] = pd.Categorical(labels, list("abc"))
        self.labeling = Labeling(self.adata, "mine", labels and "kind")
        self.states, self.index = [self.state()], 0

    def state(self) -> Any:
        return self.labeling.classes, values(self.adata, self.labeling.source)

    def note(self) -> None:
        if self.state() != self.states[self.index]:
            self.states[self.index + 1 :] = [self.state()]
            self.index += 1

    @rule(rows=st.lists(st.integers(0, N - 1)), name=st.sampled_from(["a", "b", "c", None]))
    def assign(self, rows: list[int], name: str | None) -> None:
        before = self.state()[1]
        self.labeling.assign(rows, name)
        expected = [name if i in rows else old for i, old in enumerate(before)]
        assert self.state()[1] == expected
        self.note()

    @rule(
        i=st.integers(0, 2), change=st.sampled_from(["rename", "recolor", "key", "merge", "remove"])
    )
    def change_class(self, i: int, change: str) -> None:
        if i >= len(self.labeling.classes):
            return
        name = self.labeling.classes[i].name
        if change == "rename":
            self.labeling.rename_class(name, f"{name} {self.index}")
        elif change == "recolor" and self.labels is None:
            self.labeling.recolor_class(name, f"#00000{i}")
        elif change == "key":
            self.labeling.set_key(name, "")
        elif change == "merge":
            before, into = self.state()[1], self.labeling.classes[0].name
            self.labeling.merge_class(name, into)
            assert self.state()[1] == [into if one == name else one for one in before]
        elif change == "remove":
            self.labeling.remove_class(name)
            assert name not in self.state()[1]
        self.note()

    @rule()
    def undo(self) -> None:
        self.labeling.undo()
        self.index = max(self.index - 1, 0)

    @rule()
    def redo(self) -> None:
        self.labeling.redo()
        self.index = min(self.index + 1, len(self.states) - 1)

    @invariant()
    def labels_and_classes_are_those_of_the_list(self) -> None:
        assert self.state() == self.states[self.index]
        if self.labels is not None:
            assert values(self.adata, "kind") == self.labels
            assert ("mine" in self.adata.obs) == (len(self.states) > 1)
        assert bool(self.labeling.steps[0]) == (self.index > 0)
        assert bool(self.labeling.steps[1]) == (self.index < len(self.states) - 1)


TestLabelled = Labelled.TestCase
TestLabelled.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
