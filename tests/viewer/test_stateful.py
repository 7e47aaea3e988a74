"""Actions of a user in random order: ``VIEWER_STEPS`` sets their number, ``VIEWER_SEED`` the seed.

    VIEWER_STEPS=1000 VIEWER_SEED=7 pytest tests/viewer/test_stateful.py

A failure lists the steps before it. With ``-s``, the memory at each tenth is printed.
"""

import gc
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
from anndata import AnnData
from matplotlib.colors import to_hex
from napari import Viewer
from napari.layers import Image, Labels, Layer, Points
from napari.utils.notifications import ErrorNotification, notification_manager
from pytestqt.qtbot import QtBot
from qtpy.QtCore import QItemSelectionModel, QPoint, Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QMessageBox

from centroid_encoder.pl._colors import label_colors
from centroid_encoder.tl import misplaced
from centroid_encoder.viewer.data.ids import ItemLayer
from centroid_encoder.viewer.data.tables import Table, is_drawn
from centroid_encoder.viewer.map.colorings import FAINT
from centroid_encoder.viewer.map.overlay import HIGHLIGHT
from centroid_encoder.viewer.session.corrections import corrected
from centroid_encoder.viewer.session.labeling import Labeling
from centroid_encoder.viewer.session.misplaced import REGIONS
from tests.viewer.by_hand import LabelsByHand
from tests.viewer.seen import give_label, outlined, seen_colors

DEFAULTS = ("STEPS", "250"), ("SEED", "0")
STEPS, SEED = (int(os.environ.get(f"VIEWER_{x}", default)) for x, default in DEFAULTS)


@pytest.mark.timeout(60 + 5 * STEPS)
@pytest.mark.parametrize("n_steps", [15, pytest.param(STEPS, marks=pytest.mark.slow)])
def test_any_order_of_steps(n_steps, viewer, qtbot, open_widget, make_cells, image_of, unchanged):
    user = User(viewer, qtbot, open_widget, unchanged)
    memory = []
    with user.watched():
        user.bring(make_cells, image_of)
        user.check()
        for number in range(n_steps):
            if number % max(1, n_steps // 10) == 0:
                gc.collect()
                memory.append(psutil.Process().memory_info().rss >> 20)
            user.step(random.Random(f"{SEED} {number}"))
        user.leave()
    print(f"{n_steps} steps; memory at each tenth, in MB: {memory}")


class User(LabelsByHand):
    """Does anything at any time, and checks the results."""

    def __init__(self, viewer: Viewer, qtbot: QtBot, open_widget: Any, unchanged: Any) -> None:
        super().__init__()
        self.viewer, self.qtbot = viewer, qtbot
        self.open_widget, self.unchanged = open_widget, unchanged
        self.widget = open_widget()
        self.done: list[str] = []
        self.problems: list[Any] = []
        self.adatas: dict[str, AnnData] = {}
        self.layers: list[Layer] = []
        self.aside: list[Layer] = []
        """Layers that were removed."""
        self.own: dict[Layer, Any] = {}
        """Colours of the layers before anything was done to them."""
        self.endless = False
        """Whether the check that runs, if one does, would never end."""
        self.moves = [name for name in dir(self) if name.startswith("do_")]
        often = ("train", "check", "lasso", "color_by", "relabel", "choose_table", "finish", "stop")
        self.moves += [f"do_{name}" for name in often] * 2
        self.moves_by_hand = [name for name in vars(LabelsByHand) if name.startswith("do_")]
        often = ("select_and_strike", "finish_live_map", "suggest", "accept", "add_class")
        self.moves_by_hand += [f"do_{name}" for name in often] * 3
        # Each of them does nothing before labelling begins.
        self.moves = [name for name in self.moves if name not in self.moves_by_hand]
        self.moves += ["do_start_labelling"] * 6 + ["do_lose_column"]

    def bring(self, make_cells: Callable[..., AnnData], image_of: Callable[..., Any]) -> None:
        """Add tables and layers of several kinds."""
        # Mesa's software renderer crashes after thousands of changes of labels layers.
        self.viewer.window._qt_viewer.canvas.native.setUpdatesEnabled(False)
        for i, name in enumerate(("attached", "points", "notebook")):
            adata = make_cells(n_classes=3 + i % 2, n_obs=60 + 10 * i)
            n = adata.n_obs
            image = image_of(adata, i)
            adata.obs["donor"] = pd.Categorical(np.array(["a", "b", "c"])[np.arange(n) % 3])
            # Some cells have no label, one class has no cell.
            codes = np.where(np.arange(n) % 4, np.arange(n) % 2, -1)
            adata.obs["sparse"] = pd.Categorical.from_codes(codes, ["x", "y", "empty"])
            adata.obs["number"] = np.arange(n) % 2 + 5
            self.adatas[name] = adata
            if name == "attached":
                self._add(Image(image.astype(np.float32), name="image"))
                self._add(Labels(image, name=name, metadata={"adata": adata}))
            if name == "points":
                places = np.random.default_rng(0).uniform(0, 60, (n - 5, 2))
                features = pd.DataFrame({"cell": adata.obs_names[: n - 5][::-1]})
                self._add(Points(places, name=name, features=features, metadata={"adata": adata}))
        self.begin_by_hand()
        self.widget.show_table(self.adatas["notebook"])
        self.settle()

    def _add(self, layer: Layer) -> None:
        self.layers.append(layer)
        self.own[layer] = self._colors(layer)
        self.viewer.layers.append(layer)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what goes wrong where nobody could catch it."""

        def note(notification: Any) -> None:
            # Ours are no exceptions.
            if isinstance(notification, ErrorNotification):
                self.problems.append(notification)

        notification_manager.notification_ready.connect(note)
        try:
            with self.qtbot.capture_exceptions() as exceptions:
                self.exceptions = exceptions
                yield
        except Exception as error:
            error.add_note("after\n" + "\n".join(self.done))
            raise
        finally:
            notification_manager.notification_ready.disconnect(note)

    def step(self, rng: random.Random) -> None:
        """Do anything, and check the state."""
        self.rng = rng
        labeling = self.labeling
        by_hand = labeling is not None and rng.random() < 0.9
        name = rng.choice(self.moves_by_hand if by_hand else self.moves)
        self.done.append(f"{len(self.done)} {name.removeprefix('do_')}")
        before, trained = self.widget.training, self.widget.training_panel.table
        checks = {}
        with ExitStack() as stack:
            for table, adata in self.adatas.items():
                checks[table] = self.unchanged(adata)
                checks[table].__enter__()
            changed = getattr(self, name)() or ()
            if before is None:  # what began in this step may end in it, too
                before, trained = self.widget.training, self.widget.training_panel.table
            self.settle()
            if before is not None and self.widget.training is not before and trained is not None:
                changed = [*changed, trained.adata]
            if labeling is not None and labeling is not self.labeling:
                # A column without classes is taken away again.
                changed = [*changed, labeling.adata]
            for table, adata in self.adatas.items():
                if not any(adata is other for other in changed):
                    stack.callback(checks[table].__exit__, None, None, None)
        self.check()

    def tell(self, text: object) -> None:
        self.done[-1] += f" {text}"

    def pick(self, choices: Sequence[Any]) -> Any:
        chosen = choices[int(self.rng.random() * len(choices))]
        self.tell(getattr(chosen, "name", chosen))
        return chosen

    def settle(self) -> None:
        """Let Qt and napari do what they have put off."""
        data = self.widget.data
        self.qtbot.waitUntil(lambda: not data._refresh.isActive(), timeout=20_000)
        QApplication.processEvents()
        # A thread may have selected a cell just now.
        self.qtbot.waitUntil(lambda: not self.widget.cells.tissue.due)

    @property
    def adata(self) -> AnnData | None:
        table = self.widget.catalog.table
        return None if table is None else table.adata

    def do_choose_table(self) -> None:
        box = self.widget.data.table_box
        if box.count():
            box.setCurrentIndex(self.pick(range(box.count())))
            self.tell(box.currentText())

    def do_close_table(self) -> None:
        """Close the table of the notebook if it is chosen; the others go with their layers."""
        answers = QMessageBox.StandardButton
        answer = self.pick([answers.Yes, answers.No])
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(QMessageBox, "question", lambda *_: answer)
            self.widget.data.close_action.trigger()

    def do_open_table(self) -> None:
        self.widget.show_table(self.adatas["notebook"])

    def do_choose_in_form(self) -> None:
        field = self.pick([self.widget.form.label_key, self.widget.form.features])
        choices = [x for x in field.choices if x]
        if choices:
            field.value = self.pick(choices)

    def do_train(self) -> None:
        form, running = self.widget.form, self.widget.training
        form.max_epochs.value = self.pick([1, 3, 100_000])
        form.test_size.value = self.pick([0.0, 0.2])
        self.widget.training_panel.train_button.click()
        assert running is None or self.widget.training is running

    def do_check(self) -> None:
        form, running = self.widget.form, self.widget.training
        form.max_epochs.value = self.pick([1, 1, 100_000])
        form.n_folds.value = self.pick([2, 3])
        form.n_permutations.value = self.pick([0, 0, 1])
        self.widget.training_panel.check_action.trigger()
        assert running is None or self.widget.training is running
        if running is None:
            self.endless = int(form.max_epochs.value) > 3

    def do_stop(self) -> None:
        if self.widget.training_panel.progress._stop.isEnabled():
            self.widget.training_panel.progress._stop.click()

    def do_cancel(self) -> None:
        training = self.widget.training
        with ExitStack() as stack:
            for adata in self.adatas.values():
                stack.enter_context(self.unchanged(adata))
            self.widget.training_panel.progress._cancel.click()
        assert self.widget.training is None
        if training is not None:
            self.qtbot.waitUntil(lambda: not training.is_running, timeout=20_000)

    def do_finish(self) -> None:
        """Wait for the end of the training, or of the check if it comes."""
        widget, panel = self.widget, self.widget.training_panel
        if panel.checking:
            if self.endless:
                widget.cancel()
        elif widget.training is not None:
            stop = panel.progress._stop
            self.qtbot.waitUntil(lambda: stop.isEnabled() or not widget.training, timeout=60_000)
            widget.stop()
        self.qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)

    def do_lasso(self) -> None:
        canvas = self.widget.map.canvas
        if canvas.isHidden():
            return
        self.pick(canvas.tools.actions()[:2]).trigger()
        key = self.pick([Qt.NoModifier, Qt.ShiftModifier, Qt.ControlModifier])
        box = canvas.map.ax.get_window_extent()
        height = canvas.canvas.height()

        def at(x: float, y: float) -> QPoint:
            return QPoint(int(box.x0 + x * box.width), int(height - (box.y0 + y * box.height)))

        first = at(self.rng.random(), self.rng.random())
        QTest.mousePress(canvas.canvas, Qt.LeftButton, key, first)
        last = first
        for _ in range(self.pick([0, 1, 4])):
            last = at(self.rng.random(), self.rng.random())
            QTest.mouseMove(canvas.canvas, last)
        QTest.mouseRelease(canvas.canvas, Qt.LeftButton, key, last)

    def do_select_nothing(self) -> None:
        self.widget.select(np.empty(0, dtype=np.intp))

    def do_color_by(self) -> None:
        box = self.widget.cells.color_box
        box.setCurrentIndex(self.pick(range(box.count())))
        self.tell(box.currentText())

    def do_switch_class(self) -> None:
        """Hide or show a class, show it alone, or select its cells."""
        view = self.widget.classes.view
        if not view.count():
            return
        item = view.item(self.pick(range(view.count())))
        how = self.pick(["tick", "alone", "select"])
        if how == "tick":
            hidden = item.checkState() == Qt.Unchecked
            item.setCheckState(Qt.Checked if hidden else Qt.Unchecked)
        elif how == "alone":
            view.itemDoubleClicked.emit(item)
        else:
            item.setSelected(True)
            view.itemClicked.emit(item)

    def do_merge_class(self) -> list[AnnData]:
        """Give the cells of a class another class, or its name."""
        names, session = [row.name for row in self.widget.classes.rows], self.widget.session
        if self.labeling is not None or not names:
            return []
        before = self.adata.obs[session.label_key].copy()
        change = self.pick([session.rename_class, session.merge_class])
        change(self.pick(names), self.pick([*names, "renamed"]))
        assert self.adata.obs[session.label_key].equals(before)
        return [self.adata]

    def do_recolor_class(self) -> list[AnnData]:
        if not self.widget.classes.rows:
            return []
        code = self.pick(range(len(self.widget.classes.rows)))
        color = self.pick(["#112233", "#aabbcc", "#ff0000"])
        if self.labeling is None:
            self.widget.session.recolor_class(code, color)
        else:
            name = self.widget.classes.rows[code].name
            recolor = partial(Labeling.recolor_class, name=name, color=color)
            self.step_by_hand(lambda: self.widget.session.change_labels(recolor))
        assert self.widget.classes.rows[code].color == color
        return [self.adata]

    def do_relabel(self) -> list[AnnData]:
        """Give the selected cells a known or a new label, or none."""
        widget, button = self.widget, self.widget.misplaced.label_button
        if not button.isEnabled():
            return []
        known = widget.session.new_labels
        name = self.pick([*known, f"class {self.rng.randrange(10**6)}", "7", "8", ""])
        if self.labeling is not None:
            self.give(self.selected_cells, [name] * len(self.selected_cells))
            return self.step_by_hand(lambda: give_label(button, name))
        has_map = widget.result is not None
        before = self.adata.obs[widget.result.label_key].copy() if has_map else None
        give_label(button, name)
        if has_map:
            assert self.adata.obs[widget.result.label_key].equals(before)
        return [self.adata]

    def do_undo_or_redo(self) -> list[AnnData]:
        """Take a step of the corrections back, or forward again."""
        row = self.widget.save_row
        if self.labeling is not None or self.adata is None:
            return []
        self.pick([row.undo_button, row.redo_button]).click()
        return [self.adata]

    def do_choose_misplaced(self) -> None:
        table, order = self.widget.misplaced, [Qt.AscendingOrder, Qt.DescendingOrder]
        table.view.sortByColumn(self.pick(range(5)), self.pick(order))
        if table.model.rowCount():
            row = self.pick(range(table.model.rowCount()))
            # `selectRow` asks which keys are held down, and Qt keeps those of the last lasso.
            how = QItemSelectionModel.SelectionFlag
            table.view.selectionModel().select(
                table.model.index(row, 0), how.ClearAndSelect | how.Rows
            )
            name = table.model.table["cell"].iloc[row]
            assert self.adata.obs_names[self.widget.session.state.selected].tolist() == [name]

    def do_regions(self) -> None:
        box = self.widget.map.regions_box
        box.setCurrentIndex(self.pick(range(box.count())))

    def do_remove_or_add_layer(self) -> None:
        adds = self.pick([True, False])
        here, there = (self.aside, self.layers) if adds else (self.layers, self.aside)
        if here:
            layer = self.pick(here)
            here.remove(layer)
            there.append(layer)
            (self.viewer.layers.append if adds else self.viewer.layers.remove)(layer)

    def do_rename_layer(self) -> None:
        if self.layers:
            self.pick(self.layers).name = f"layer {self.rng.randrange(100)}"

    def do_place_layer(self) -> None:
        """Move, scale, turn, hide or show a layer; what is drawn on it goes with it."""
        if self.layers:
            layer = self.pick(self.layers)
            how = self.pick(["translate", "scale", "rotate", "visible"])
            values = {"translate": [3.0, -2.0], "scale": [0.5, 0.5], "rotate": 30.0}
            setattr(layer, how, not layer.visible if how == "visible" else values[how])

    def do_move_layer(self) -> None:
        layers = self.viewer.layers
        if len(layers) > 1:
            layers.move(self.pick(range(len(layers))), self.pick(range(len(layers))))

    def do_look(self) -> None:
        """Switch the 3-D view or the grid."""
        if self.pick(["3-D", "grid"]) == "grid":
            grid = self.viewer.canvas.grid
            grid.enabled = not grid.enabled
        else:
            self.viewer.dims.ndisplay = 5 - self.viewer.dims.ndisplay

    def do_delete_drawn_layer(self) -> None:
        """Delete a layer that the widget draws; it is there again with the next choice."""
        drawn = [layer for layer in self.viewer.layers if is_drawn(layer)]
        if drawn:
            self.viewer.layers.remove(self.pick(drawn))
            self.do_color_by()
            self.widget.select(np.flatnonzero(self.widget.session.state.selected)[::-1])

    def do_paint(self) -> None:
        """Enlarge a label with napari's brush, and perhaps undo it."""
        labels = [layer for layer in self.layers if isinstance(layer, Labels)]
        if labels and np.ndim(labels[0].data) == self.viewer.dims.ndisplay == 2:
            layer = self.pick(labels)
            place = np.argwhere(np.asarray(layer.data) > 0)[self.rng.randrange(20)]
            with layer.block_history():
                layer.paint(place, layer.data[tuple(place)])
            if self.pick([True, False]):
                layer.undo()

    def do_edit_features(self) -> None:
        points = [layer for layer in self.layers if isinstance(layer, Points)]
        if points:
            layer = self.pick(points)
            layer.features = layer.features.assign(more=self.rng.random())

    def do_drop_cells(self) -> list[AnnData]:
        """Remove cells of the chosen table in place, as a notebook can, and go on."""
        adata, by_hand = self.adata, {owner for owner, _ in self.hands}
        is_busy = self.labeling is not None or self.widget.training is not None
        if not self.is_lasting or is_busy or adata.n_obs < 50 or id(adata) in by_hand:
            return []
        adata._inplace_subset_obs(np.arange(adata.n_obs - 1))
        name = next(name for name, one in self.adatas.items() if one is adata)
        before = self.originals[name].iloc[:-1]
        self.originals[name] = adata.obs[list(before)].copy()
        assert self.originals[name].astype(str).equals(before.astype(str))
        self.do_color_by()
        return [adata]

    def do_close_dock(self) -> None:
        self.leave()
        self.widget = self.open_widget()

    def leave(self) -> None:
        """Close the dock; everything is as it was before it was opened."""
        training, widget = self.widget.training, self.widget
        # A column of labels by hand without classes is taken away.
        self.do_end_labelling() if self.rng.random() < 0.5 else None
        labeling = self.labeling
        with ExitStack() as stack:
            for adata in self.adatas.values():
                if labeling is None or labeling.adata is not adata:
                    stack.enter_context(self.unchanged(adata))
            self.viewer.window.remove_dock_widget(self._dock())
            if training is not None:
                self.qtbot.waitUntil(lambda: not training.is_running, timeout=20_000)
            QApplication.processEvents()
        assert widget.training is None
        assert widget.session.state.labeling is None
        self.check_keymaps()
        assert set(self.viewer.layers) == set(self.layers)
        for layer in [*self.layers, *self.aside]:
            assert self._has_own_colors(layer), layer.name
        self.check_exceptions()

    def _dock(self) -> Any:
        docks = self.viewer.window._wrapped_dock_widgets.values()
        return next(dock for dock in docks if dock.inner_widget() is self.widget)

    def check(self) -> None:
        """Check the whole state."""
        self.check_exceptions()
        self.check_by_hand()
        self.check_table()
        self.check_layers()
        self.check_labels()
        self.check_map()

    def check_exceptions(self) -> None:
        for _, error, _ in self.exceptions:
            raise AssertionError("an exception in Qt's event loop") from error
        assert not self.problems

    def check_table(self) -> None:
        widget, table = self.widget, self.widget.catalog.table
        known: list[Table] = widget.catalog.tables
        assert table in known if known else table is None
        assert widget.data.table_box.currentText() == ("" if table is None else table.name)
        for act in (widget.training_panel.train_button, widget.training_panel.check_action):
            assert act.isEnabled() == (table is not None and widget.training is None)
        assert widget.training_panel.progress.isHidden() == (widget.training is None)
        if table is not None:
            assert widget.session.state.selected.shape == (table.adata.n_obs,)

    def check_layers(self) -> None:
        widget = self.widget
        drawn = [layer for layer in self.viewer.layers if is_drawn(layer)]
        assert {layer for layer in self.viewer.layers if not is_drawn(layer)} == set(self.layers)
        marked = []
        for link, join in widget.catalog.joins.items():
            ids = {int(i) for i in join.ids[join.joined & widget.session.state.selected]}
            if isinstance(link.layer, ItemLayer):
                assert set(link.layer.selected_data) == ids
            elif ids and link.layer.visible and not self.viewer.canvas.grid.enabled:
                marked.append((link.layer, ids))
        marks = [x for x in drawn if x.name.startswith(HIGHLIGHT) and x.visible and np.any(x.data)]
        assert len(marks) == len(marked)
        for mark in marks:
            beneath = self.viewer.layers[self.viewer.layers.index(mark) - 1]
            shown = partial(outlined, self.viewer, marks=mark)
            found = [set(layer.data[shown(layer=layer) > 0]) for layer, _ in marked]
            assert any(one == ids for one, (_, ids) in zip(found, marked, strict=True)), beneath

    def check_labels(self) -> None:
        """Corrected labels are those of the layer, the legend and the counts."""
        widget, label_key = self.widget, self.widget.form.label_key.value
        mode, layer, join = (
            widget.cells.color_box.currentText(),
            widget.catalog.layer,
            widget.catalog.join,
        )
        linked = [link.layer for link in widget.catalog.joins]
        for other in [*self.layers, *self.aside]:
            if other not in linked or mode == "original colours":
                assert self._has_own_colors(other), other.name
        if self.adata is None or label_key is None:
            return
        labeling = self.labeling
        shown = corrected(self.adata, widget.session.shown_labels)
        shown = shown if labeling is None else labeling.column
        legend = {row.name: (row.color, row.n) for row in widget.classes.rows}
        counts, of_map = self.adata.obs[shown].value_counts(), {}
        if labeling is None:
            # A class has the colour that it had before the corrections.
            of_map = label_colors(self.adata, widget.session.shown_labels)
        for name, color in label_colors(self.adata, shown).items():
            if str(name) in legend:
                assert legend[str(name)] == (of_map.get(name, color), counts.get(name, 0))
            else:
                # Nothing but a class without cells is missing.
                assert not counts.get(name, 0)
        if mode == "label" and join is not None and layer.visible:
            column = corrected(self.adata, label_key)
            colors, hidden = label_colors(self.adata, column), widget.session.state.hidden
            colors |= label_colors(self.adata, label_key)
            # Cells without a label are seen while one labels.
            unlabelled = "nothing" if widget.session.state.labeling is None else FAINT[:7]
            for row in np.flatnonzero(join.joined)[::7]:
                name = self.adata.obs[column].iloc[row]
                found = self._color_of(layer, int(join.ids[row]))
                expected = unlabelled if pd.isna(name) else colors[name]
                is_hidden = str(self.adata.obs[shown].iloc[row]) in hidden
                assert found == ("nothing" if is_hidden else expected)

    def check_map(self) -> None:
        widget, scene = self.widget, self.widget.map.canvas.map.scene
        if widget.session.state.drawn is not None and widget.session.state.frame is None:
            drawn, key = widget.session.state.drawn_adata, widget.session.state.drawn.key
            key = "X_ce" if key == "ce" else key
            assert np.array_equal(scene.points, drawn.obsm[key], equal_nan=True)
            if self.labeling is None:
                assert list(scene.names) == [row.name for row in widget.classes.rows]
        # A column that is labelled by hand may have classes that its map lacks.
        if widget.result is not None and widget.result.label_key not in {x for _, x in self.hands}:
            cells = misplaced(
                self.adata, key=widget.session.state.key, regions=widget.session.misplaced_by
            )
            key = widget.result.stored.params.get("compared_with", widget.result.label_key)
            now = self.adata.obs[corrected(self.adata, key)].astype(str)
            # Cells whose label was corrected are decided.
            is_open = now[cells.index] == cells["label"].astype(str)
            if widget.misplaced.source is REGIONS and self.labeling is None:
                assert set(widget.misplaced.model.table["cell"]) == set(cells.index[is_open])
        if not widget.map.canvas.isHidden():
            assert len(scene.points) == self.adata.n_obs
            shown = [name not in widget.session.state.hidden for name in scene.names]
            assert list(widget.map.canvas.map.shown) == shown
        checked = self.adata is not None and f"{widget.session.state.key}_cv" in self.adata.uns
        assert widget.misplaced.found.isHidden() != checked

    def _colors(self, layer: Layer) -> Any:
        return layer.face_color.copy() if isinstance(layer, ItemLayer) else layer.opacity

    def _has_own_colors(self, layer: Layer) -> bool:
        if isinstance(layer, ItemLayer):
            return np.array_equal(layer.face_color, self.own[layer])
        return bool(layer.opacity == self.own[layer])

    def _color_of(self, layer: Layer, label: int) -> str:
        items = isinstance(layer, ItemLayer)
        color = layer.face_color[label] if items else seen_colors(self.viewer, layer, label)[0]
        return to_hex(color) if color[3] else "nothing"
