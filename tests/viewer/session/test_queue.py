"""The queue of suggested cells, and the labels of the live map for all others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest

from centroid_encoder.tl._telling_features import TellingFeatures
from centroid_encoder.viewer.session.draft import new_draft, training_job
from centroid_encoder.viewer.session.queue import Queue, Suggestion, apply_to_all, suggestions
from centroid_encoder.viewer.session.session import Session

COLUMN = "mine"


@pytest.fixture(autouse=True)
def _no_journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CENTROID_ENCODER_JOURNALS", str(tmp_path / "journals"))


@pytest.fixture
def session(make_cells: Callable[..., ad.AnnData]) -> Session:
    """A labelling of cells of three kinds, in ``obs["truth"]``."""
    cells = make_cells()
    cells.obs["truth"] = cells.obs.pop("cell_type").astype(str)
    session = Session()
    session.catalog.choose(session.catalog.add(cells, "cells"))
    session.start_labeling(COLUMN)
    return session


def label(session: Session, rows: Any) -> None:
    """Give cells their true labels."""
    adata = session.adata
    assert adata is not None
    for row in rows:
        name = adata.obs["truth"].iloc[row]
        assert session.change_labels(lambda labels, r=row, x=name: labels.assign([r], x))


def train(session: Session) -> None:
    assert session.labeling is not None
    draft = new_draft(session.labeling)
    assert draft is not None
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


def test_each_cell_is_labelled_or_skipped_and_steps_are_taken_back() -> None:
    queue = queue_of(7, 3, 9)
    assert queue.text.startswith("1 of 3")
    queue.follow(codes(7))
    assert current(queue) == 3
    queue.skip(codes(7))
    assert (current(queue), queue.skipped) == (9, {3})
    assert queue.back() == 3
    assert (current(queue), queue.skipped) == (3, set())
    assert queue.back() == 7
    assert current(queue) == 7
    assert queue.back() is None


def test_the_queue_goes_back_to_a_cell_whose_label_was_undone() -> None:
    queue = queue_of(7, 3, 9)
    queue.follow(codes(7))
    queue.follow(codes(7, 3))
    queue.follow(codes(7))
    assert current(queue) == 3
    queue.follow(codes())
    assert current(queue) == 7


def test_cells_before_a_chosen_cell_of_the_page_follow_later() -> None:
    queue = queue_of(*range(10, 30))
    assert queue.page(12) == range(12)
    queue.place = 5
    queue.follow(codes(15))
    assert current(queue) == 16
    queue.follow(codes(*range(15, 30)))
    assert current(queue) == 10
    queue.place = 19
    assert queue.page(12) == range(12, 20)


def test_later_suggestions_are_replaced_without_duplicates_and_novel_cells_stay() -> None:
    queue = queue_of(7, 3, 9, 5, novel=(9,))
    queue.follow(codes(7))
    queue.renew([Suggestion(row, "unsure") for row in (7, 3, 20, 21, 22)], keep=2)
    assert [cell.row for cell in queue.cells] == [7, 3, 9, 20]
    assert current(queue) == 3
    queue.follow(codes(7, 3, 9, 20))
    queue.renew([Suggestion(30, "unsure"), Suggestion(31, "unsure")], keep=4)
    queue.follow(codes(7, 3, 9, 20))
    assert (current(queue), len(queue.cells)) == (30, 6)


def test_cells_that_stay_have_the_probabilities_of_the_new_map() -> None:
    queue = Queue()
    queue.renew([Suggestion(1, "unsure", "B", 0.5, "T", 0.4), Suggestion(2, "typical")], 0)
    now = Suggestion(1, "unsure", "B", 0.6, "NK", 0.3)
    queue.renew([Suggestion(5, "unsure", "T", 0.5, "B", 0.4), now], 1)
    assert queue.cells[0] == now
    assert [cell.row for cell in queue.cells] == [1, 5]


def test_the_runner_up_is_that_of_the_telling_features(session: Session) -> None:
    label(session, range(30))
    train(session)
    before = suggestions(session, (), {})()
    label(session, range(30, 33))
    train(session)
    result, draft = session.drawn, session.draft
    assert result is not None
    assert draft is not None
    after = {cell.row: cell for cell in suggestions(session, (), {}, before)()[-len(before) :]}
    features = TellingFeatures(draft, result)
    for cell in before:
        if cell.label == result.classes[result.predicted[cell.row]]:
            assert after[cell.row].label == cell.label
            assert after[cell.row].runner_up == features.of_cell(cell.row, 1)["other"].iloc[0]


def test_cells_without_a_proposal_or_with_an_outdated_one_get_a_new_one() -> None:
    queue = queue_of(1, 0)
    queue.cells.append(Suggestion(2, "unsure", "B", 0.5, "T", 0.4))
    queue.cells.append(Suggestion(3, "unsure", "old name", 0.5, "T", 0.4))
    queue.propose(pd.Series(["T", None, "T", "B"], dtype="category"))
    assert [cell.label for cell in queue.cells] == [None, "T", "B", "B"]


def test_no_labelled_or_skipped_cell_is_suggested(session: Session, unchanged: Any) -> None:
    assert session.adata is not None
    with unchanged(session.adata):
        found = suggestions(session, [], {"missing": "mean"})()
    assert {cell.reason for cell in found} == {"typical"}
    assert all(cell.label is None for cell in found)
    rows = [cell.row for cell in found]
    assert len(set(rows)) == 20
    label(session, rows[:15])
    again = suggestions(session, rows[15:], {})()
    assert not {cell.row for cell in again} & set(rows)


def test_the_live_map_proposes_labels_for_unlabelled_cells(session: Session) -> None:
    label(session, [cell.row for cell in suggestions(session, [], {})()])
    train(session)
    assert session.draft is not None
    assert session.labeling is not None
    assert session.draft.obs["held_out"].any()
    with_map = suggestions(session, [], {"layer": "no such layer"})
    found = with_map()
    names = {one.name for one in session.labeling.classes}
    assert {cell.label for cell in found} <= names
    assert all(cell.probability >= cell.runner_up_probability for cell in found)
    assert (session.labeling.codes[[cell.row for cell in found]] < 0).all()


def test_cells_are_spread_over_the_images(session: Session) -> None:
    assert session.adata is not None
    n = session.adata.n_obs
    session.adata.obs["sample"] = np.where(np.arange(n) < n // 10, "small", "large")
    session.catalog.choose_image_column("sample")
    rows = [cell.row for cell in suggestions(session, [], {})()]
    assert (np.array(rows) < n // 10).sum() >= 5


def test_predictions_fill_a_column_of_their_own(session: Session) -> None:
    adata, labeling = session.adata, session.labeling
    assert adata is not None
    assert labeling is not None
    with pytest.raises(ValueError, match="no live map"):
        apply_to_all(session)
    label(session, [cell.row for cell in suggestions(session, [], {})()])
    train(session)
    # A wrong label stays as it was given.
    row = int(np.flatnonzero(labeling.codes == 0)[0])
    other = labeling.classes[1].name
    session.change_labels(lambda labels: labels.assign([row], other))
    by_hand = labeling.labels
    column, text = apply_to_all(session, 0.5)
    assert column in session.adata.obs
    column = adata.obs[f"{COLUMN}_predicted"]
    assert (column[by_hand.index] == by_hand).all()
    assert column.notna().all()
    assert (column == adata.obs["truth"]).mean() > 0.8
    assert f"{int((column == other).sum()):,}" in text
    names = [one.name for one in labeling.classes]
    assert list(column.cat.categories) == [*names, "unassigned"]
    colors = adata.uns[f"{COLUMN}_predicted_colors"]
    assert list(colors)[: len(names)] == [one.color for one in labeling.classes]
    assert len(colors) == len(names) + 1
    assert session.label_key == COLUMN

    apply_to_all(session, 1.0)
    unsure = (adata.obs[f"{COLUMN}_predicted"] == "unassigned").sum()
    assert unsure > (column == "unassigned").sum()
    assert labeling.labels.equals(by_hand)


def test_apply_refuses_a_column_of_the_user_and_an_outdated_map(session: Session) -> None:
    adata = session.adata
    assert adata is not None
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
