"""Actions of a random user who labels cells by hand, and a simple model of the labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from anndata import AnnData
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QInputDialog

from centroid_encoder.viewer.session.corrections import mark_key
from centroid_encoder.viewer.session.labeling import Labeling, suggested_column
from centroid_encoder.viewer.session.queue import SUFFIX

CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
PLAIN = Qt.KeyboardModifier.NoModifier
NAMES = ("a", "b", "long name, with a comma", "ä", "a ", "", "5")
COLUMNS = ("", "", "", "second", "cell_type", "no/name")
"""Columns to label in; without a name, the one that is proposed."""
USERS_KEY = "1"
"""A key that the user has bound in a layer."""


@dataclass
class Hand:
    """The labels in a column, as they must be; `journal` are those of a column that was lost."""

    names: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    journal: dict[str, str] = field(default_factory=dict)


class LabelsByHand:
    """The part of the random user that labels; its other parts are in `test_stateful`."""

    def __init__(self) -> None:
        self.hands: dict[tuple[int, str], Hand] = {}
        self.originals: dict[str, pd.DataFrame] = {}
        self.pressed: list[Any] = []
        """Layers in which the user's own key was pressed."""
        self.keymaps: dict[Any, dict[Any, Any]] = {}

    def begin_by_hand(self) -> None:
        """Note what must stay as it is."""
        self.originals = {name: adata.obs.copy() for name, adata in self.adatas.items()}
        self.layers[-1].bind_key(USERS_KEY, self.pressed.append)
        self.keymaps = {place: dict(place.keymap) for place in (*self.layers, self.viewer)}

    @property
    def labeling(self) -> Labeling | None:
        return self.widget.session.state.labeling

    @property
    def hand(self) -> Hand:
        """The model of the labels that are given now."""
        return self.hands[id(self.labeling.adata), self.labeling.column]

    @property
    def selected_cells(self) -> list[str]:
        assert self.adata is not None
        return list(self.adata.obs_names[self.widget.session.state.selected])

    @property
    def is_lasting(self) -> bool:
        """Whether the table is one of these; one of features is made anew when they change."""
        return any(adata is self.adata for adata in self.adatas.values())

    def step_by_hand(self, act: Callable[[], object]) -> list[AnnData]:
        """Do what changes labels or classes; the model has been changed already."""
        act()
        # Edits of the table come later.
        self.qtbot.wait(1)
        return [self.labeling.adata]

    def give(self, cells: Sequence[str], names: Sequence[str]) -> None:
        """Label cells in the model."""
        hand = self.hand
        for name in dict.fromkeys(name.strip() for name in names):
            if name and name not in hand.names:
                hand.names.append(name)
        for cell, name in zip(cells, names, strict=True):
            hand.labels.pop(cell, None)
            if name.strip():
                hand.labels[cell] = name.strip()

    def do_start_labelling(self) -> list[AnnData]:
        if not self.is_lasting or self.labeling is not None:
            return []
        panel, adata, chosen = self.widget.label, self.adata, self.pick(COLUMNS)
        self.widget.show_mode(panel)
        panel.column_line.setText(column := chosen or suggested_column(adata))
        panel.start_button.click()
        if column in ("cell_type", "no/name"):
            assert self.labeling is None
            assert self.widget.message.text()
            return []
        assert self.labeling.column == column
        hand = self.hands.setdefault((id(adata), column), Hand())
        # A label that was given since counts more than that of the journal.
        hand.journal = {x: y for x, y in hand.journal.items() if x not in hand.labels}
        assert self.labeling.unsaved == len(hand.journal)
        if self.pick([True, False]):
            # Enough cells for a live map.
            for name in "ab":
                self.widget.select(np.arange(self.rng.randrange(4, 8)) * 3 + (name == "a"))
                self.give(self.selected_cells, [name] * len(self.selected_cells))
                self.step_by_hand(lambda name=name: panel.label(name))
        return [adata]

    def do_end_labelling(self) -> None:
        if self.labeling is not None:
            self.widget.label.start_button.click()
            assert self.labeling is None

    def do_lose_column(self) -> list[AnnData]:
        """Drop a column and all marks of it, as a crash does; the journal stays."""
        shown = self.adata
        lost = [x for x in self.hands if shown is None or x[0] != id(shown)]
        if not lost:
            return []
        which = self.pick(lost)
        adata = next(x for x in self.adatas.values() if id(x) == which[0])
        hand = self.hands[which]
        if which[1] in adata.obs:
            del adata.obs[which[1]]
            del adata.uns[mark_key(which[1])]
            del adata.uns[f"{which[1]}_colors"]
        self.hands[which] = Hand(journal=hand.labels | hand.journal)
        return [adata]

    def do_restore(self) -> list[AnnData]:
        panel = self.widget.label
        if self.labeling is None or panel.restore_button.isHidden() or not self.hand.journal:
            return []
        hand, journal = self.hand, self.hand.journal
        if self.pick([True, True, False]):
            self.give(list(journal), list(journal.values()))
            changed = self.step_by_hand(panel.restore_button.click)
            # The journal also has classes without cells.
            known = [one.name for one in self.labeling.classes]
            assert [name for name in known if name in hand.names] == hand.names
            hand.names = known
        else:
            changed = self.step_by_hand(panel.discard_button.click)
        hand.journal = {}
        return changed

    def do_add_class(self) -> list[AnnData]:
        if self.labeling is None:
            return []
        name = self.pick([*NAMES, f"class {self.rng.randrange(10**6)}"])
        if name.strip() and name.strip() not in self.hand.names:
            self.hand.names.append(name.strip())
        line = self.widget.label.name_line
        line.setText(name)
        return self.step_by_hand(line.returnPressed.emit)

    def do_rename_class(self) -> list[AnnData]:
        if self.labeling is None or not self.hand.names:
            return []
        row, hand = self.rng.randrange(len(self.hand.names)), self.hand
        name, old = self.pick([*NAMES, f"renamed {self.rng.randrange(10**6)}"]), hand.names[row]
        if (new := name.strip()) and new not in hand.names:
            hand.names[row] = new
            hand.labels = {x: new if y == old else y for x, y in hand.labels.items()}
        return self.choose_in_menu(row, "Rename …", name)

    def do_change_key(self) -> list[AnnData]:
        if self.labeling is None or not self.hand.names:
            return []
        row = self.rng.randrange(len(self.hand.names))
        return self.choose_in_menu(row, "Key …", self.pick(["", "m", "P", "7", "N", "ab", "1"]))

    def choose_in_menu(self, row: int, entry: str, text: str = "") -> list[AnnData]:
        """Choose an entry of the menu of a class, and write into its dialog."""
        actions = {action.text(): action for action in self.widget.classes.menu(row).actions()}
        with patch.object(QInputDialog, "getText", return_value=(text, True)):
            return self.step_by_hand(actions[entry].trigger)

    def do_draw_in_image(self) -> None:
        """Switch the lasso of the image on or off, and draw a triangle or a click."""
        if self.pick([True, False]):
            self.widget.map.canvas.buttons["lasso"].click()
        canvas = self.viewer.window._qt_viewer.canvas.native
        corners = [
            QPoint(self.rng.randrange(canvas.width()), self.rng.randrange(canvas.height()))
            for _ in range(self.pick([1, 3, 4]))
        ]
        keys = self.pick([PLAIN, SHIFT, CTRL])
        self.qtbot.mousePress(canvas, Qt.MouseButton.LeftButton, keys, corners[0])
        for corner in corners[1:]:
            self.qtbot.mouseMove(canvas, corner)
            self.qtbot.wait(1)
        self.qtbot.mouseRelease(canvas, Qt.MouseButton.LeftButton, keys, corners[-1])
        self.qtbot.wait(1)

    def do_remove_class(self) -> list[AnnData]:
        if self.labeling is None or not self.hand.names or self.pick([True, True, False]):
            return []
        row = self.rng.randrange(len(self.hand.names))
        gone = self.hand.names.pop(row)
        self.tell(gone)
        self.hand.labels = {x: y for x, y in self.hand.labels.items() if y != gone}
        return self.choose_in_menu(row, "Remove, with its labels")

    def strike(self, key: Any, modifier: Any = PLAIN) -> None:
        """Press a key on the canvas of napari or in the map, which dispatch it."""
        canvas = self.viewer.window._qt_viewer.canvas.native
        place = self.pick([canvas, canvas, self.widget.map.canvas.canvas])
        self.qtbot.keyClick(place, key, modifier)

    def do_strike_delete(self) -> None:
        """Press a key that removes layers or items if nobody labels."""
        if self.labeling is not None:
            counts = [len(layer.data) for layer in self.layers]
            self.strike(Qt.Key.Key_Delete, self.pick([PLAIN, CTRL]))
            assert [len(layer.data) for layer in self.layers] == counts

    def do_strike_class(self) -> list[AnnData]:
        """Press the key of a class, or that which takes labels back."""
        labeling = self.labeling
        if labeling is None:
            return []
        name, key = self.pick([("", "0"), *((x.name, x.key) for x in labeling.classes if x.key)])
        cells = self.selected_cells
        self.give(cells, [name] * len(cells))
        return self.step_by_hand(lambda: self.strike(Qt.Key[f"Key_{key}"]))

    def do_select_and_strike(self) -> list[AnnData]:
        """Select some cells, or the next one, and label them."""
        if self.adata is None or self.labeling is None:
            return []
        start, n = self.rng.randrange(self.adata.n_obs), self.pick([1, 1, 5, 10])
        self.widget.select(np.arange(start, min(start + n, self.adata.n_obs)))
        return self.do_strike_class()

    def do_undo_and_redo(self) -> list[AnnData]:
        """The steps back and forth again, by keys or buttons, lead to the same labels."""
        labeling, row = self.labeling, self.widget.save_row
        if labeling is None:
            return []
        before, n = state(labeling), 0
        by_key = self.pick([True, False])
        while not row.undo_button.isHidden() and n < 5:
            last = state(labeling)
            self.strike(Qt.Key.Key_Z, CTRL) if by_key else row.undo_button.click()
            assert state(labeling) != last
            n += 1
        for _ in range(n):
            self.strike(Qt.Key.Key_Z, CTRL | SHIFT) if by_key else row.redo_button.click()
        assert state(labeling) == before
        return [labeling.adata]

    def do_suggest(self) -> None:
        if self.labeling is not None:
            self.widget.queue.suggest_button.click()

    def do_accept(self) -> list[AnnData]:
        panel, labeling = self.widget.queue, self.labeling
        if labeling is None:
            return []
        cell = panel.current
        rows = np.flatnonzero(self.widget.session.state.selected).tolist()
        if cell is not None and rows == [cell.row] and cell.label in self.hand.names:
            self.give([labeling.adata.obs_names[cell.row]], [cell.label])
        return self.step_by_hand(lambda: self.strike(Qt.Key.Key_Return))

    def do_skip(self) -> None:
        if self.labeling is not None:
            self.strike(Qt.Key.Key_N)

    def do_apply(self) -> list[AnnData]:
        labeling, session = self.labeling, self.widget.session
        button = self.widget.queue.apply_button
        if labeling is None:
            return []
        assert button.isEnabled() == (session.state.draft is not None)
        before = labeling.adata.obs.columns
        button.click()
        if "Fewer than" in self.widget.message.text():
            button.click()
        if session.state.draft is not None and self.widget.message.text().startswith("Written"):
            found = labeling.adata.obs[f"{labeling.column}{SUFFIX}"]
            assert found.notna().all()
            assert found[list(self.hand.labels)].astype(str).to_dict() == self.hand.labels
            assert set(found) <= {*self.hand.names, "unassigned"}
        else:
            assert before.equals(labeling.adata.obs.columns)
        return [labeling.adata]

    def do_activate_layer(self) -> None:
        self.viewer.layers.selection.active = self.pick([*self.layers, None])

    def do_finish_live_map(self) -> None:
        """Wait for the live map and the queue."""
        self.qtbot.waitUntil(
            lambda: not (self.widget.label.live.is_due or self.widget.queue.is_searching),
            timeout=60_000,
        )

    def check_keymaps(self) -> None:
        for place, keymap in self.keymaps.items():
            assert dict(place.keymap) == keymap, place

    def check_by_hand(self) -> None:
        """Check the labels that are given by hand, and the keys."""
        session, panel = self.widget.session, self.widget.label
        for name, before in self.originals.items():
            pd.testing.assert_frame_equal(self.adatas[name].obs[list(before)], before)
        for (owner, column), hand in self.hands.items():
            adata = next(x for x in self.adatas.values() if id(x) == owner)
            if column in adata.obs:
                labels = adata.obs[column]
                assert list(labels.cat.categories) == hand.names
                assert labels.dropna().astype(str).to_dict() == hand.labels
            else:
                assert not hand.names
        self.check_keymaps()
        labeling = self.labeling
        assert panel.body.isHidden() == (labeling is None)
        if labeling is None:
            # Only a first map, which is never written, may be drawn in place of a stored one.
            assert session.state.draft is None or session.state.result is None
            return
        assert labeling.adata is session.adata
        keys = [one.key for one in labeling.classes if one.key]
        assert len(keys) == len(set(keys))
        assert [(row.name, row.key) for row in self.widget.classes.rows] == [
            (one.name, one.key) for one in labeling.classes
        ]
        assert not self.pressed
        if session.state.draft is not None:
            assert session.state.draft.X is labeling.adata.X
            assert session.state.draft.obs_names.equals(labeling.adata.obs_names)
            assert session.state.drawn.label_key == labeling.column
        rows = [cell.row for cell in self.widget.queue.queue.cells]
        assert len(rows) == len(set(rows))


def state(labeling: Labeling) -> tuple[Any, Any]:
    """Return the classes and the labels of all cells, to be compared."""
    return tuple(tuple(one) for one in labeling.classes), labeling.labels.to_dict()
