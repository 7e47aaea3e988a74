"""Everything a user can do to the widget, in random order.

A run of 250 steps is a part of the suite. ``VIEWER_STEPS`` makes it more, in a new viewer after
every 250, and ``VIEWER_SEED`` begins elsewhere:

    VIEWER_STEPS=5000 VIEWER_SEED=100 pytest tests/viewer/test_stateful.py

What fails is told with the steps that led there; the seed in the test's name repeats them.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from matplotlib.colors import to_hex
from napari.layers import Labels, Layer, Points, Shapes
from napari.utils.notifications import ErrorNotification, notification_manager
from qtpy.QtCore import QItemSelectionModel, QPoint, Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication

from centroid_encoder.pl._colors import label_colors
from centroid_encoder.tl import mislabeled, misplaced
from centroid_encoder.viewer.data.ids import ItemLayer
from centroid_encoder.viewer.data.measuring import plan
from centroid_encoder.viewer.data.tables import is_drawn
from centroid_encoder.viewer.map.overlay import HIGHLIGHT
from centroid_encoder.viewer.session.misplaced import OUT_OF_FOLD, SOURCES
from tests.viewer.seen import seen_colors

if TYPE_CHECKING:
    from napari import Viewer
    from pytestqt.qtbot import QtBot

    from centroid_encoder.viewer import CentroidEncoderWidget
    from centroid_encoder.viewer.data.regions import Region
    from centroid_encoder.viewer.data.tables import Table

SHORT, STEPS = 40, 250
FIRST = int(os.environ.get("VIEWER_SEED", "0"))
SEEDS = range(FIRST, FIRST + max(1, round(int(os.environ.get("VIEWER_STEPS", STEPS)) / STEPS)))
LABELS = ("cell_type", "donor", "sparse", "number", "none")


@pytest.mark.parametrize(
    ("seed", "n_steps"),
    [(FIRST, SHORT), *(pytest.param(seed, STEPS, marks=pytest.mark.slow) for seed in SEEDS)],
)
def test_any_order_of_steps(
    seed: int,
    n_steps: int,
    viewer: Viewer,
    qtbot: QtBot,
    open_widget: Callable[[], CentroidEncoderWidget],
    make_cells: Callable[..., AnnData],
    image_of: Callable[..., Any],
    unchanged: Any,
):
    user = User(viewer, qtbot, open_widget, unchanged)
    with user.watched():
        user.bring(make_cells, image_of)
        user.check()
        for number in range(n_steps):
            user.step(random.Random(f"{seed} {number}"))
        user.leave()


class User:
    """Somebody who does anything at any time, and remembers what should have come of it."""

    def __init__(
        self,
        viewer: Viewer,
        qtbot: QtBot,
        open_widget: Callable[[], CentroidEncoderWidget],
        unchanged: Any,
    ) -> None:
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
        self.names = 0
        self.sent: Table | None = None
        """Whose cells have just been sent through a map."""
        self.endless = False
        """Whether the check that runs, if one does, would never end."""
        self.moves = [name for name in dir(self) if name.startswith("do_")]
        often = ("train", "check", "lasso", "color_by", "wait", "choose_table", "finish", "stop")
        self.moves += [f"do_{name}" for name in often] * 2

    def bring(self, make_cells: Callable[..., AnnData], image_of: Callable[..., Any]) -> None:
        """Add layers and tables of every kind."""
        # Nothing is asked of what napari draws, and Mesa's software renderer does not survive
        # thousands of labels layers that come, go and change colours, with or without the widget.
        self.viewer.window._qt_viewer.canvas.native.setUpdatesEnabled(False)
        for i, name in enumerate(("attached", "partly", "notebook", "points", "shapes", "study")):
            adata = make_cells(n_classes=3 + i % 2, n_obs=60 + 10 * i)
            n = adata.n_obs
            image = image_of(adata, i)
            adata.obs["donor"] = pd.Categorical(np.array(["a", "b", "c"])[np.arange(n) % 3])
            # Some have no label, one class has no cell.
            codes = np.where(np.arange(n) % 4, np.arange(n) % 2, -1)
            adata.obs["sparse"] = pd.Categorical.from_codes(codes, ["x", "y", "empty"])
            adata.obs["number"] = np.arange(n) % 2 + 5
            adata.obs["none"] = pd.Categorical([None] * n)
            adata.obs["rank"] = np.random.default_rng(i).permutation(n)
            adata.obs["twice"] = np.arange(n) // 2
            self.adatas[name] = adata
            if name == "attached":
                self._add(Labels(image, name=name, metadata={"adata": adata}))
            if name == "partly":
                image[np.isin(image, adata.obs["cell_id"].iloc[::5])] = 0
                adata.obs.loc[adata.obs_names[3], "cell_id"] = 0
                self._add(Labels(image, name=name, metadata={"adata": adata}))
            if name == "points":
                places = np.random.default_rng(0).uniform(0, 60, (n - 5, 2))
                features = pd.DataFrame({"cell": adata.obs_names[: n - 5][::-1]})
                self._add(Points(places, name=name, features=features, metadata={"adata": adata}))
            if name == "shapes":
                corners = np.array([[0, 0], [0, 3], [3, 3], [3, 0]])
                outlines = [5 * np.array(divmod(j, 8)) + corners for j in range(n)]
                features = pd.DataFrame({"cell": adata.obs_names[::-1]})
                of = {"features": features, "metadata": {"adata": adata}}
                self._add(Shapes(outlines, shape_type="polygon", name=name, **of))
            if name == "study":
                # Two images, whose ids begin anew.
                adata.obs["image"] = pd.Categorical(np.where(np.arange(n) % 2, "A", "B"))
                of_cell = dict(zip(adata.obs["cell_id"], np.arange(n), strict=True))
                adata.obs["cell_id"] = np.arange(n) // 2 + 1
                row = np.vectorize(lambda label, of_cell=of_cell: of_cell.get(label, -1))(image)
                for one in ("A", "B"):
                    here = (row >= 0) & (row % 2 == (one == "A"))
                    mask = np.where(here, row // 2 + 1, 0).astype(np.int32)
                    self._add(Labels(mask, name=f"{one}_mask"))
                self.widget.show_table(adata, name="study")
        adata = self.adatas["points"]
        image = image_of(adata.copy(), 3)
        features = pd.DataFrame(adata.X, columns=adata.var_names).assign(
            index=adata.obs["cell_id"].to_numpy(), donor=adata.obs["donor"].to_numpy()
        )
        self._add(Labels(image, name="measured", features=features))
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
        """Do anything, and look whether all is well."""
        self.rng = rng
        name = rng.choice(self.moves)
        self.done.append(f"{len(self.done)} {name.removeprefix('do_')}")
        before = self.widget.training
        trained = self.widget.trainer.table
        sent, mapped = self.widget.new_data.worker, self.widget.new_data.table
        checks = {}
        with ExitStack() as stack:
            for table, adata in self.adatas.items():
                checks[table] = self.unchanged(adata)
                checks[table].__enter__()
            changed = getattr(self, name)() or ()
            self.settle()
            if before is not None and self.widget.training is not before and trained is not None:
                changed = [*changed, trained.adata]
            if self.widget.new_data.worker is not sent or self.sent is not None:
                changed = [*changed, *(t.adata for t in (mapped, self.sent) if t is not None)]
                self.sent = None
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
        self.qtbot.waitUntil(
            lambda: not (data._refresh.isActive() or data._rejoin.isActive()), timeout=20_000
        )
        QApplication.processEvents()

    @property
    def adata(self) -> AnnData | None:
        table = self.widget.catalog.table
        return None if table is None else table.adata

    # -- what can be done ------------------------------------------------------------------------

    def do_choose_table(self) -> None:
        box = self.widget.data.table_box
        if box.count():
            box.setCurrentIndex(self.pick(range(box.count())))
            self.tell(box.currentText())

    def do_choose_layer(self) -> None:
        box = self.widget.data.layer_box
        box.setCurrentIndex(self.pick(range(box.count())))

    def do_choose_ids(self) -> None:
        box = self.widget.data.instance_box
        if self.widget.catalog.layer is not None and box.count():
            box.setCurrentIndex(self.pick(range(box.count())))
            self.tell(box.currentText())

    def do_choose_region(self) -> None:
        """Show an image of the table in another layer, or in none."""
        images, layers = self.widget.catalog.images(), self.widget.catalog.layers
        if images:
            image = self.pick([*images, None])
            layer = self.pick([None, *layers])
            self.widget.data.images_table.layer_chosen.emit(image and image.region, layer)

    def do_choose_regions(self) -> None:
        box = self.widget.data.region_box
        if box.isVisible() and box.count():
            box.setCurrentIndex(self.pick(range(box.count())))
            self.tell(box.currentText())

    def do_keep_or_mend(self) -> None:
        """Press what is offered below the link."""
        if not self.widget.data.better_button.isHidden():
            self.widget.data.better_button.click()

    def do_measure(self) -> None:
        data, labels = self.widget.data, self.widget.catalog.measurable[0]
        tables = self.widget.catalog.tables
        if not labels or len(tables) > 12 or data.measuring.worker is not None:
            return
        chosen = labels if self.pick([True, False]) else [self.pick(labels)]
        data.measuring.begin(plan(chosen, [], time_series=False))
        if self.pick([True, True, False]):
            self.qtbot.waitUntil(lambda: data.measuring.worker is None, timeout=60_000)

    def do_cancel_measuring(self) -> None:
        self.widget.data.measuring.cancel()
        assert self.widget.data.measuring.worker is None

    def do_choose_labels(self) -> None:
        choices = [name for name in self.widget.form.label_key.choices if name is not None]
        if choices:
            self.widget.form.label_key.value = self.pick(choices)

    def do_choose_key(self) -> None:
        self.widget.form.key_added.value = self.pick(["ce", "mine"])

    def do_choose_features(self) -> None:
        choices = self.widget.form.features.choices
        if choices:
            self.widget.form.features.value = self.pick(choices)

    def do_train(self) -> None:
        form = self.widget.form
        form.max_epochs.value = self.pick([1, 3, 100_000])
        form.test_size.value = self.pick([0.0, 0.2])
        running = self.widget.training
        self.widget.trainer.train_button.click()
        assert running is None or self.widget.training is running

    def do_check(self) -> None:
        form = self.widget.form
        form.max_epochs.value = self.pick([1, 1, 100_000])
        form.n_folds.value = self.pick([2, 3])
        form.n_permutations.value = self.pick([0, 0, 1])
        running = self.widget.training
        self.widget.trainer.check_button.click()
        assert running is None or self.widget.training is running
        if running is None:
            self.endless = int(form.max_epochs.value) > 3

    def do_choose_source(self) -> None:
        source = self.pick(SOURCES)
        button = self.widget.misplaced.source_buttons[source]
        button.click()
        assert (self.widget.misplaced.source is source) or not button.isEnabled()

    def do_map_new_data(self) -> None:
        panel = self.widget.new_data
        if not panel.map_button.isEnabled():
            panel.map_cells()
            return
        panel.table_box.setCurrentIndex(self.pick(range(panel.table_box.count())))
        panel.form.min_confidence.value = self.pick([0, 0.6])
        panel.form.missing.value = self.pick(panel.form.missing.choices)
        panel.form.key_added.value = self.pick(["ce", "mine"])
        panel.map_button.click()
        self.sent = panel.table
        if self.pick([True, False]):
            self.qtbot.waitUntil(lambda: panel.worker is None, timeout=60_000)

    def do_forget_new_data(self) -> None:
        with ExitStack() as stack:
            for adata in self.adatas.values():
                stack.enter_context(self.unchanged(adata))
            self.widget.new_data.progress._cancel.click()
        assert self.widget.new_data.worker is None

    def do_stop(self) -> None:
        if self.widget.trainer.progress._stop.isEnabled():
            self.widget.trainer.progress._stop.click()

    def do_cancel(self) -> None:
        training = self.widget.training
        adatas = list(self.adatas.values())
        with ExitStack() as stack:
            for adata in adatas:
                stack.enter_context(self.unchanged(adata))
            self.widget.trainer.progress._cancel.click()
        assert self.widget.training is None
        if training is not None:
            self.qtbot.waitUntil(lambda: not training._worker.is_running, timeout=20_000)

    def do_wait(self) -> None:
        self.qtbot.wait(self.pick([1, 30, 250]))

    def do_finish(self) -> None:
        """Wait for the end of the training, or of the check if it comes."""
        widget = self.widget
        if widget.trainer.checking:
            if self.endless:
                widget.cancel()
            self.qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
        elif widget.training is not None:
            self.qtbot.waitUntil(
                lambda: widget.trainer.progress._stop.isEnabled() or widget.training is None,
                timeout=60_000,
            )
            widget.stop()
            self.qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)

    def do_lasso(self) -> None:
        canvas = self.widget.map.canvas
        if not canvas.map.axes:
            return
        canvas.set_tool(self.pick(["lasso", "rectangle"]))
        key = self.pick([Qt.NoModifier, Qt.ShiftModifier, Qt.ControlModifier])
        box = self.pick(canvas.map.axes).get_window_extent()
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

    def do_hover(self) -> None:
        canvas = self.widget.map.canvas.canvas
        for _ in range(3):
            x, y = self.rng.random(), self.rng.random()
            QTest.mouseMove(canvas, QPoint(int(x * canvas.width()), int(y * canvas.height())))

    def do_navigate(self) -> None:
        canvas = self.widget.map.canvas
        canvas.set_tool(self.pick(["pan", "zoom"]))
        middle = canvas.canvas.rect().center()
        QTest.mousePress(canvas.canvas, Qt.LeftButton, Qt.NoModifier, middle)
        QTest.mouseMove(canvas.canvas, middle + QPoint(20, 9))
        QTest.mouseRelease(canvas.canvas, Qt.LeftButton, Qt.NoModifier, middle + QPoint(20, 9))
        if self.pick([True, False]):
            canvas.map.home()

    def do_pick_in_layer(self) -> None:
        layer, join = self.widget.catalog.layer, self.widget.catalog.join
        if join is None or not join.joined.any():
            return
        label = int(self.pick(join.ids[join.joined]))
        if isinstance(layer, ItemLayer):
            layer.selected_data = {label}
        else:
            self.widget.cells._on_picked(join.rows([label]))
        (row,) = np.flatnonzero(self.widget.session.selected)
        assert join.ids[row] == label

    def do_select_nothing(self) -> None:
        self.widget.cells.clear_button.click()

    def do_zoom_to(self) -> None:
        self.widget.cells.show_button.click()

    def do_color_by(self) -> None:
        box = self.widget.cells.color_box
        box.setCurrentIndex(self.pick(range(box.count())))
        self.tell(box.currentText())

    def do_switch_class(self) -> None:
        classes = self.widget.classes
        if classes.rows:
            state = self.pick([Qt.CheckState.Checked, Qt.CheckState.Unchecked])
            classes.view.item(self.pick(range(len(classes.rows))), 0).setCheckState(state)

    def do_isolate_class(self) -> None:
        if self.widget.classes.rows:
            self.widget.classes.isolate(self.pick(range(len(self.widget.classes.rows))))

    def do_recolor_class(self) -> list[AnnData]:
        if not self.widget.classes.rows:
            return []
        code = self.pick(range(len(self.widget.classes.rows)))
        color = self.pick(["#112233", "#aabbcc", "#ff0000"])
        self.widget.session.recolor_class(code, color)
        assert self.widget.classes.rows[code].color == color
        return [self.adata]

    def do_relabel(self) -> list[AnnData]:
        if not self.widget.misplaced.relabel_button.isEnabled():
            return []
        box = self.widget.misplaced.label_box
        box.setCurrentText(self.pick([*(box.itemText(i) for i in range(box.count())), "5", ""]))
        before = self.adata.obs[self.widget.form.label_key.value].copy()
        self.widget.misplaced.relabel_button.click()
        if not self.widget.form.label_key.value.endswith("_relabeled"):
            assert self.adata.obs[before.name].equals(before)
        return [self.adata]

    def do_undo(self) -> list[AnnData]:
        self.widget.misplaced.undo_button.click()
        return [self.adata]

    def do_redo(self) -> list[AnnData]:
        self.widget.misplaced.redo_button.click()
        return [self.adata]

    def do_choose_misplaced(self) -> None:
        table = self.widget.misplaced
        self.widget.misplaced.view.sortByColumn(
            self.pick(range(5)), self.pick([Qt.AscendingOrder, Qt.DescendingOrder])
        )
        if table.model.rowCount():
            row = self.pick(range(table.model.rowCount()))
            # `selectRow` asks which keys are held down, and Qt keeps those of the last lasso.
            table.view.selectionModel().select(
                table.model.index(row, 0),
                QItemSelectionModel.SelectionFlag.ClearAndSelect
                | QItemSelectionModel.SelectionFlag.Rows,
            )
            name = table.model.table["cell"].iloc[row]
            assert self.adata.obs_names[self.widget.session.selected].tolist() == [name]

    def do_regions(self) -> None:
        box = self.widget.map.regions_box
        box.setCurrentIndex(self.pick(range(box.count())))

    def do_panels(self) -> None:
        box = self.widget.map.panels_box
        box.setCurrentIndex(self.pick(range(box.count())))

    def do_theme(self) -> None:
        self.viewer.theme = self.pick(["light", "dark"])

    def do_remove_layer(self) -> None:
        if self.layers:
            layer = self.pick(self.layers)
            self.layers.remove(layer)
            self.aside.append(layer)
            self.viewer.layers.remove(layer)

    def do_add_layer(self) -> None:
        if self.aside:
            layer = self.pick(self.aside)
            self.aside.remove(layer)
            self.layers.append(layer)
            self.viewer.layers.append(layer)

    def do_move_layer(self) -> None:
        if len(self.viewer.layers) > 1:
            self.viewer.layers.move(self.pick(range(len(self.viewer.layers))), 0)

    def do_rename_layer(self) -> None:
        if self.layers:
            self.names += 1
            self.pick(self.layers).name = f"layer {self.names}"

    def do_replace_features(self) -> None:
        layer = next((layer for layer in self.layers if "gene0" in layer.features), None)
        if layer is not None:
            some = layer.features.sample(frac=0.95, random_state=self.rng.randrange(100))
            layer.features = some if len(some) > 30 else layer.features.copy()

    def do_add_a_feature(self) -> None:
        if self.layers:
            layer = self.pick(self.layers)
            layer.features = layer.features.assign(note="theirs")

    def do_paint(self) -> None:
        images = [layer for layer in self.layers if isinstance(layer, Labels)]
        if images:
            layer = self.pick(images)
            place = self.rng.randrange(layer.data.shape[0]), self.rng.randrange(layer.data.shape[1])
            layer.fill(place, self.pick([0, 1, 1000]))

    def do_filter_cells(self) -> list[AnnData]:
        adata = self.adata
        if adata is None or adata.n_obs < 40 or not any(adata is a for a in self.adatas.values()):
            return []
        keep = np.random.default_rng(self.rng.randrange(100)).random(adata.n_obs) > 0.1
        adata._inplace_subset_obs(keep)
        self.pick(
            [self.widget.cells.clear_button.click, self.widget.cells._recolor, self.do_hover]
        )()
        self.widget.select(np.array([0]))
        self.widget.select(np.array([0]))
        return [adata]

    def do_float(self) -> None:
        self._dock().setFloating(self.pick([True, False]))
        self.qtbot.wait(50)

    def do_close_dock(self) -> None:
        self.leave()
        self.widget = self.open_widget()

    def do_hide_dock(self) -> None:
        dock = self._dock()
        dock.setVisible(self.pick([True, False]))

    def do_copy_script(self) -> None:
        if self.widget.keep.copy_button.isEnabled():
            self.widget.keep.copy_button.click()
            assert self.widget.keep.message.text().startswith("Copied.")

    def leave(self) -> None:
        """Close the dock; everything is as it was before it was opened."""
        training, widget = self.widget.training, self.widget
        sent = widget.new_data.worker
        with ExitStack() as stack:
            for adata in self.adatas.values():
                stack.enter_context(self.unchanged(adata))
            self.viewer.window.remove_dock_widget(self._dock())
            if training is not None:
                self.qtbot.waitUntil(lambda: not training._worker.is_running, timeout=20_000)
            if sent is not None:
                self.qtbot.waitUntil(lambda: not sent._worker.is_running, timeout=20_000)
            QApplication.processEvents()
        assert widget.training is None
        assert widget.new_data.worker is None
        assert set(self.viewer.layers) == set(self.layers)
        for layer in [*self.layers, *self.aside]:
            assert self._has_own_colors(layer), layer.name
        self.check_exceptions()

    def _dock(self) -> Any:
        docks = self.viewer.window._wrapped_dock_widgets.values()
        return next(dock for dock in docks if dock.inner_widget() is self.widget)

    # -- what must be true -----------------------------------------------------------------------

    def check(self) -> None:
        """Look whether all is well."""
        self.check_exceptions()
        self.check_table()
        self.check_join()
        self.check_layers()
        self.check_colors()
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
        for button in (widget.trainer.train_button, widget.trainer.check_button):
            assert button.isEnabled() == (table is not None and widget.training is None)
        assert widget.trainer.progress.isHidden() == (widget.training is None)
        if table is not None:
            assert widget.session.selected.shape == (table.adata.n_obs,)
            assert widget.cells.clear_button.isEnabled() == widget.session.selected.any()

    def check_join(self) -> None:
        catalog, data = self.widget.catalog, self.widget.data
        for link, join in catalog.joins.items():
            # Nothing is ever attributed to the wrong image.
            rows = np.flatnonzero(join.joined)
            by_hand = joined_by_hand(link.table.adata, link.layer, link.id_column, link.region)
            assert dict(zip(join.ids[rows].tolist(), rows.tolist(), strict=True)) == by_hand
        layers = [link.layer for link in catalog.joins]
        assert len(set(layers)) == len(layers)
        if catalog.table is None or catalog.link is None:
            assert catalog.join is None
            return
        expected = joined_by_hand(
            catalog.table.adata, catalog.link.layer, data.instance_box.value[0], catalog.link.region
        )
        assert (catalog.join is None) == (expected is None)
        if expected is None:
            assert data.message.text()
            return
        join = catalog.join
        found = {int(i): int(row) for row, i in enumerate(join.ids) if join.joined[row]}
        assert found == expected
        ids = [*expected, 0, 5, 10**6]
        wanted = [expected.get(i, -1) for i in ids]
        assert join.rows(ids).tolist() == wanted

    def check_layers(self) -> None:
        widget = self.widget
        drawn = [layer for layer in self.viewer.layers if is_drawn(layer)]
        assert {layer for layer in self.viewer.layers if not is_drawn(layer)} == set(self.layers)
        for layer in self.layers:
            features = set(layer.features)
            if "gene0" not in features:
                # Not the table's own.
                assert features <= {"cell", "note"}
        wanted = []
        for link, join in widget.catalog.joins.items():
            marked = {int(i) for i in join.ids[join.joined & widget.session.selected]}
            if isinstance(link.layer, ItemLayer):
                assert set(link.layer.selected_data) == marked
            elif marked:
                wanted.append((link.layer, marked))
        marks = [other for other in drawn if other.name.startswith(HIGHLIGHT)]
        assert len(marks) == len(wanted)
        for mark in marks:
            beneath = self.viewer.layers[self.viewer.layers.index(mark) - 1]
            found = [set(layer.data[np.asarray(mark.data) > 0]) for layer, _ in wanted]
            assert any(one == marked for one, (_, marked) in zip(found, wanted, strict=True)), (
                beneath
            )

    def check_colors(self) -> None:
        widget = self.widget
        mode, layer, join = (
            widget.cells.color_box.currentText(),
            widget.catalog.layer,
            widget.catalog.join,
        )
        linked = [link.layer for link in widget.catalog.joins]
        for other in [*self.layers, *self.aside]:
            if other not in linked or mode == "as it was":
                assert self._has_own_colors(other), other.name
        label_key = widget.form.label_key.value
        if self.adata is None or label_key is None:
            return
        colors = label_colors(self.adata, label_key)
        if widget.result is not None:
            colors_of_result = label_colors(self.adata, widget.result.label_key)
            legend = {row.name: row.color for row in widget.classes.rows}
            for name in set(map(str, widget.result.classes)) & set(map(str, colors_of_result)):
                assert legend[name] == {str(k): v for k, v in colors_of_result.items()}[name]
        if mode == "label" and join is not None:
            for row in np.flatnonzero(join.joined)[::7]:
                name = self.adata.obs[label_key].iloc[row]
                if isinstance(layer, Shapes) and widget.session.selected[row]:
                    assert self._color_of(layer, int(join.ids[row])) == "#ffffff"
                    continue
                shown = self._color_of(layer, int(join.ids[row]))
                assert shown == ("nothing" if pd.isna(name) else colors[name])

    def check_map(self) -> None:
        widget, scene = self.widget, self.widget.map.canvas.map.scene
        if widget.result is not None and not widget.map._unfolds:
            key = "X_ce" if widget.result.key == "ce" else widget.result.key
            assert np.array_equal(scene.points, self.adata.obsm[key], equal_nan=True)
        self.check_suspects()
        if scene is not None:
            assert len(scene.points) == self.adata.n_obs
            legend = {row.name: on for row, on in zip(*self._legend(), strict=True)}
            drawn = dict(zip(widget.map.class_names, widget.map.canvas.map.shown, strict=True))
            assert len(drawn) == scene.n_classes
            assert drawn == (legend if list(legend) == list(drawn) else dict.fromkeys(drawn, True))

    def check_suspects(self) -> None:
        widget, key = self.widget, self.widget.form.key
        checked = self.adata is not None and f"{key}_cv" in self.adata.uns
        assert widget.verdict.isHidden() != checked
        if widget.misplaced.source is OUT_OF_FOLD and checked:
            said = "labels are given a probability of 5 % or less"
            try:
                cells = list(mislabeled(self.adata, key=key).index)
            except KeyError as error:
                cells, said = [], error.args[0]
            assert said in widget.misplaced.summary.text()
        elif widget.result is not None and not widget.result.is_query:
            cells = misplaced(self.adata, key=key, regions=widget.session.misplaced_by).index
        else:
            cells = []
        assert set(widget.misplaced.model.table["cell"]) == set(cells)

    def _legend(self) -> tuple[Any, Any]:
        return self.widget.classes.rows, self.widget.classes.shown

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


def joined_by_hand(
    adata: AnnData, layer: Layer, key: str | None, region: Region | None
) -> dict[int, int] | None:
    """Row of each id in a layer; None if the ids do not say."""
    if key is None:
        return None
    column = adata.obs[key] if key in adata.obs else pd.Series(adata.obs_names)
    rows = range(adata.n_obs)
    if region is not None and region.value is not None:
        rows = [i for i in rows if str(adata.obs[region.column].iloc[i]) == str(region.value)]
    if isinstance(layer, ItemLayer):
        if key not in adata.obs:
            there = {name: i for i, name in enumerate(layer.features["cell"])}
        elif key in layer.features or "index" in layer.features:
            raise AssertionError("no such points here")
        else:
            return None
        pairs = [(there[column.iloc[i]], i) for i in rows if column.iloc[i] in there]
        return dict(pairs)
    texts = [str(column.iloc[i]) for i in rows]
    # Names of measured cells are that of their image and a number: mask_12.
    prefixes = {re.sub(r"\d+$", "", text) for text in texts}
    try:
        prefix = min(prefixes) if len(prefixes) == 1 else ""
        values = [int(text.removeprefix(prefix)) for text in texts]
    except ValueError:
        return None
    nonzero = [value for value in values if value != 0]
    if len(set(nonzero)) < len(nonzero):
        return None
    present = set(np.unique(layer.data).tolist()) - {0}
    return {value: i for value, i in zip(values, rows, strict=True) if value in present}
