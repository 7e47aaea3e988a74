"""The queue of suggested cells, and the labels of the live map for all others."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from centroid_encoder.tl._telling_features import TellingFeatures
from centroid_encoder.viewer.session.draft import new_draft, training_job
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
    draft = new_draft(session.labeling)
    job = training_job(draft, COLUMN, {})
    job.run(lambda _: False)
    job.write(draft)
    session.show_draft(draft)


def queue_of(*rows: int, novel: tuple[int, ...] = ()) -> Queue:
    queue = Queue()
    reason = dict.fromkeys(novel, "novel")
    queue.renew([Suggestion(row, reason.get(row, "typical")) for row in rows], 0)
    return queue


def codes(*labelled: int, n: int = 50) -> Any:
    return np.where(np.isin(np.arange(n), labelled), 0, -1)


def current(queue: Queue) -> int | None:
    return None if queue.current is None else queue.current.row


def test_each_cell_is_labelled_or_skipped_and_steps_are_taken_back():
    queue = queue_of(7, 3, 9)
    assert queue.text.startswith("1 of 3")
    queue.follow(codes(7))
    assert current(queue) == 3
    queue.skip(codes(7))
    assert (current(queue), queue.skipped) == (9, {3})
    assert queue.back() == 3
    assert (current(queue), queue.skipped) == (3, set())
    # The queue also goes back to a cell whose label was undone.
    queue.follow(codes(7, 3))
    queue.follow(codes(7))
    assert current(queue) == 3
    assert queue.back() == 7
    assert current(queue) == 7
    assert queue.back() is None


def test_cells_before_a_chosen_cell_of_the_page_follow_later():
    queue = queue_of(*range(10, 30))
    assert queue.page(12) == range(12)
    queue.place = 5
    queue.follow(codes(15))
    assert current(queue) == 16
    queue.follow(codes(*range(15, 30)))
    assert current(queue) == 10
    queue.place = 19
    assert queue.page(12) == range(12, 20)


def test_later_suggestions_are_replaced_without_duplicates_and_novel_cells_stay():
    queue = queue_of(7, 3, 9, 5, novel=(9,))
    queue.follow(codes(7))
    now = Suggestion(3, "typical", None, 0.6, "NK", 0.3)
    queue.renew([Suggestion(7, "unsure"), now, *queue_of(9, 20, 21).cells], keep=2)
    assert [cell.row for cell in queue.cells] == [7, 3, 9, 20]
    # A cell that stays has the probabilities of the new map.
    assert queue.cells[1] == now
    assert current(queue) == 3
    queue.follow(codes(7, 3, 9, 20))
    queue.renew([Suggestion(30, "unsure"), Suggestion(31, "unsure")], keep=4)
    queue.follow(codes(7, 3, 9, 20))
    assert (current(queue), len(queue.cells)) == (30, 6)


def test_the_live_map_proposes_labels_and_runners_up(session):
    label(session, range(30))
    train(session)
    before = suggestions(session, (), {"layer": "no such layer"})()
    assert {cell.label for cell in before} <= {one.name for one in session.labeling.classes}
    assert all(cell.probability >= cell.runner_up_probability for cell in before)
    assert (session.labeling.codes[[cell.row for cell in before]] < 0).all()
    label(session, range(30, 33))
    train(session)
    result = session.drawn
    after = {cell.row: cell for cell in suggestions(session, (), {}, before)()[-len(before) :]}
    features = TellingFeatures(session.draft, result)
    for cell in before:
        if cell.label == result.classes[result.predicted[cell.row]]:
            assert after[cell.row].label == cell.label
            # The same as in the panel of the features.
            assert after[cell.row].runner_up == features.of_cell(cell.row, 1)["other"].iloc[0]


def test_cells_without_a_proposal_or_with_an_outdated_one_get_a_new_one():
    queue = queue_of(1, 0)
    queue.cells.append(Suggestion(2, "unsure", "B", 0.5, "T", 0.4))
    queue.cells.append(Suggestion(3, "unsure", "old name", 0.5, "T", 0.4))
    queue.propose(pd.Series(["T", None, "T", "B"], dtype="category"))
    assert [cell.label for cell in queue.cells] == [None, "T", "B", "B"]


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
    adata, labeling = session.adata, session.labeling
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
