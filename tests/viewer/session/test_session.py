"""Results, labels and classes of a session."""

import anndata as ad
import numpy as np
import pytest

from centroid_encoder.viewer.session.session import Session


@pytest.fixture
def session() -> Session:
    return Session()


def show(session: Session, adata: ad.AnnData) -> None:
    session.catalog.choose(session.catalog.add(adata, "cells"))
    session.choose_labels("cell_type")


def test_results_of_any_name_are_shown(session, embed, cells):
    named = embed(key_added="second")
    for column in ("label", "split"):
        named.obs[f"first_{column}"] = named.obs[f"second_{column}"]
    named.obsm["first"], named.uns["first"] = named.obsm["second"], named.uns["second"]
    # Without results of the last name or of "ce", the first ones are shown.
    for adata, key in ((named, "first"), (embed(), "ce"), (cells, "ce")):
        show(session, adata)
        assert session.state.key == key
        assert (session.state.result is not None) == (key in adata.uns)


def test_a_column_of_measurements_is_not_taken_for_corrections(session, embed):
    cells = embed()
    scores = np.linspace(0, 1, cells.n_obs)
    cells.obs["cell_type_relabeled"] = scores
    show(session, cells)
    assert session.state.result is not None
    assert list(session.class_colors) == ["type 0", "type 1", "type 2"]
    # The user's column does not change.
    session.select(np.array([0]))
    session.label_selected("type 1")
    said, kind = session.state.message
    assert kind == "error"
    assert "fractional" in str(said)
    assert cells.obs["cell_type_relabeled"].tolist() == scores.tolist()


def test_relabelling_keeps_the_new_name_of_a_renamed_class(session, embed):
    cells = embed()
    cells.uns["cell_type_by_hand"] = {
        "classes": [f"type {i}" for i in range(3)],
        "keys": ["1", "2", "3"],
    }
    show(session, cells)
    session.start_labeling("cell_type")
    session.change_labels(lambda labels: labels.rename_class("type 0", "renamed"))
    session.end_labeling()
    session.select(np.array([0]))
    session.label_selected("type 1")
    labels = cells.obs["cell_type_relabeled"]
    named, classes = session.shown_codes >= 0, np.asarray(list(session.class_colors))
    assert (classes[session.shown_codes[named]] == labels[named]).all()
    assert labels[~named].isna().all()
    assert (labels == "renamed").sum() > 1


def test_a_class_is_renamed_or_merged_in_a_copy_of_the_column(session, embed):
    cells = embed()
    show(session, cells)
    original = cells.obs["cell_type"].copy()

    def labels() -> list[str]:
        shown = np.asarray(list(session.class_colors))[session.shown_codes]
        assert shown.tolist() == cells.obs["cell_type_relabeled"].tolist()
        return shown.tolist()

    session.rename_class("type 0", "T cell")
    renamed = original.astype(str).replace("type 0", "T cell").tolist()
    assert labels() == renamed
    session.merge_class("type 1", "T cell")
    assert labels() == [name if name == "type 2" else "T cell" for name in renamed]
    assert session.state.message[0].startswith("Written to the column 'cell_type_relabeled'")
    assert session.state.message[0].endswith("Train on corrections, under Review, trains with it.")
    # Each is one step, and the original stays.
    session.undo()
    assert labels() == renamed
    session.undo()
    assert labels() == original.tolist()
    assert cells.obs["cell_type"].equals(original)
    # A renamed class keeps its colour, which is no step.
    session.rename_class("type 0", "T cell")
    session.recolor_class(list(session.class_colors).index("T cell"), "#ff00ff")
    session.undo()
    assert labels() == original.tolist()
    session.redo()
    assert labels() == renamed
    assert session.class_colors["T cell"] == "#ff00ff"
    session.undo()
    # Without a map, there is no such button.
    session.set(result=None)
    session.merge_class("type 1", "type 0")
    assert session.state.message[0].endswith("☰ ▸ Cells, classes and features.")
    session.undo()
    # A name that is taken is refused.
    session.rename_class("type 0", "type 1")
    assert "already" in str(session.state.message[0])
    assert labels() == original.tolist()
