"""The queue of suggested cells, and the labels of the live map for all others."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from centroid_encoder.viewer.session.draft import draft_job, new_draft
from centroid_encoder.viewer.session.queue import Queue, Suggestion, apply_to_all, suggestions
from centroid_encoder.viewer.session.session import Session

COLUMN = "mine"


@pytest.fixture
def session(table) -> Session:
    """A labelling of cells of three kinds, in ``obs["truth"]``."""
    session = Session()
    session.catalog.choose(session.catalog.add(table, "cells"))
    session.start_labeling(COLUMN)
    return session


def label(session: Session, rows: Any) -> None:
    """Give cells their true labels."""
    adata = session.adata
    for row in rows:
        name = adata.obs["truth"].iloc[row]
        assert session.change_labels(lambda labels, r=row, x=name: labels.assign([r], x))


def train(session: Session) -> None:
    draft = new_draft(session.state.labeling)
    job = draft_job(draft, COLUMN, {})
    job.run(lambda _: False)
    job.write(draft)
    session.show_draft(draft)


def queue_of(*rows: int, novel: tuple[int, ...] = ()) -> Queue:
    reason = dict.fromkeys(novel, "novel")
    return Queue(tuple(Suggestion(row, reason.get(row, "typical")) for row in rows))


def codes(*labelled: int, n: int = 50) -> Any:
    return np.where(np.isin(np.arange(n), labelled), 0, -1)


def rows(cells: Iterable[Suggestion]) -> list[int]:
    return [cell.row for cell in cells]


def test_the_next_cell_is_the_first_without_a_label():
    queue = queue_of(7, 3, 9)
    assert queue.text(codes()).startswith("1 of 3")
    assert rows(queue.open(codes(7))) == [3, 9]
    skipped = queue.skip(3)
    assert rows(skipped.open(codes(7))) == [9]
    assert skipped.text(codes(7)).startswith("3 of 3")
    # The label of the first cell was undone.
    assert rows(skipped.open(codes())) == [7, 9]
    assert skipped.text(codes(7, 9)) == ""


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Suggestion(3, "unsure", "NK", 0.7, "B", 0.2), "unsure: NK 70 %, else B 20 %"),
        (Suggestion(3, "unsure", "NK", 0.9, "B", 0.05), "least sure: NK 90 %"),
        (Suggestion(3, "unsure", "NK", 0.998), "NK 100 %"),
        (Suggestion(3, "novel", "NK", 0.998), "novel: unlike all labelled cells; perhaps NK 100 %"),
    ],
)
def test_a_reason_calls_no_sure_cell_unsure(cell, text):
    assert cell.text == text


def test_a_chosen_cell_comes_first_and_the_others_keep_their_order():
    queue = queue_of(*range(10, 16))
    queue = queue.begin_with(queue.cells[4], codes(10))
    assert rows(queue.cells) == [10, 14, 11, 12, 13, 15]
    assert rows(queue.open(codes(10, 14))) == [11, 12, 13, 15]


def test_later_suggestions_are_replaced_without_duplicates_and_novel_cells_stay():
    queue = queue_of(7, 3, 9, 5, novel=(9,))
    found = [Suggestion(7, "unsure"), Suggestion(3, "typical"), *queue_of(9, 20, 21).cells]
    proposals = pd.DataFrame({"label": ["NK"] * 50, "confidence": 0.6})
    renewed = queue.renewed(found, codes(7), proposals)
    assert rows(renewed.cells) == [7, 3, 9, 20]
    # A cell that stays has the class and the probability of the new map.
    assert renewed.cells[1] == Suggestion(3, "typical", "NK", 0.6)
    assert renewed.cells[3].label is None
    # At the end come as many as were found.
    found = [Suggestion(30, "unsure"), Suggestion(31, "unsure")]
    renewed = renewed.renewed(found, codes(7, 3, 9, 20), None)
    assert rows(renewed.cells) == [7, 3, 9, 20, 30, 31]
    assert rows(renewed.open(codes(7, 3, 9, 20))) == [30, 31]


def test_the_live_map_proposes_labels(session):
    label(session, range(30))
    train(session)
    before = suggestions(session, (), {"layer": "no such layer"})()
    assert {cell.label for cell in before} <= {one.name for one in session.state.labeling.classes}
    assert all(cell.probability >= cell.runner_up_probability for cell in before)
    assert (session.state.labeling.codes[[cell.row for cell in before]] < 0).all()


def test_no_labelled_or_skipped_cell_is_suggested(session, unchanged):
    with unchanged(session.adata):
        found = suggestions(session, [], {"missing": "mean"})()
    assert {cell.reason for cell in found} == {"typical"}
    assert all(cell.label is None for cell in found)
    rows = [cell.row for cell in found]
    assert len(set(rows)) == 20
    label(session, rows[:15])
    again = suggestions(session, rows[15:], {})()
    assert not {cell.row for cell in again} & set(rows)


def test_cells_are_spread_over_the_images(session):
    n = session.adata.n_obs
    session.adata.obs["sample"] = np.where(np.arange(n) < n // 10, "small", "large")
    session.catalog.choose_image_column("sample")
    rows = [cell.row for cell in suggestions(session, [], {})()]
    assert (np.array(rows) < n // 10).sum() >= 5


def test_predictions_fill_a_column_of_their_own(session):
    adata, labeling = session.adata, session.state.labeling
    with pytest.raises(ValueError, match="no live map"):
        apply_to_all(session)
    label(session, [cell.row for cell in suggestions(session, [], {})()])
    train(session)
    # A wrong label stays as it was given.
    row = int(np.flatnonzero(labeling.codes == 0)[0])
    session.change_labels(lambda labels: labels.assign([row], labeling.classes[1].name))
    by_hand = labeling.labels
    name, _ = apply_to_all(session, 0.5)
    assert name == f"{COLUMN}_predicted"
    column = adata.obs[name]
    assert (column[by_hand.index] == by_hand).all()
    assert column.notna().all()
    assert (column == adata.obs["truth"]).mean() > 0.8
    assert list(column.cat.categories) == [*(one.name for one in labeling.classes), "unassigned"]
    assert list(adata.uns[f"{name}_colors"])[:-1] == [one.color for one in labeling.classes]
    assert session.label_key == COLUMN
    apply_to_all(session, 1.0)
    assert (adata.obs[name] == "unassigned").sum() > (column == "unassigned").sum()
    assert labeling.labels.equals(by_hand)


def test_apply_refuses_a_column_of_the_user_and_an_outdated_map(session):
    adata = session.adata
    label(session, [cell.row for cell in suggestions(session, [], {})()])
    train(session)
    column = f"{COLUMN}_predicted"
    adata.obs[column] = "mine"
    with pytest.raises(ValueError, match="another column"):
        apply_to_all(session)
    assert (adata.obs[column] == "mine").all()
    del adata.obs[column]
    old = adata.obs["truth"].iloc[0]
    session.change_labels(lambda labels: labels.rename_class(old, "another name"))
    with pytest.raises(ValueError, match="older"):
        apply_to_all(session)
    assert column not in adata.obs
