"""The dock widget: its parts and their layout."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import napari
import numpy as np
from napari.qt import QtViewer
from napari.utils.notifications import show_info
from napari.utils.theme import get_theme
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, QObject, QPoint, QSize, Qt, QTimer
from qtpy.QtGui import QDragEnterEvent, QDropEvent
from qtpy.QtWidgets import (
    QAbstractSpinBox,
    QComboBox,
    QDockWidget,
    QHBoxLayout,
    QMainWindow,
    QMenu,
    QMessageBox,
    QScrollArea,
    QSizePolicy,
    QTabBar,
    QToolButton,
    QWidget,
)

from centroid_encoder.tl._check import check_read
from centroid_encoder.tl._result import Result
from centroid_encoder.viewer.data.ids import CellLayer
from centroid_encoder.viewer.data.join import Misfit
from centroid_encoder.viewer.map import colorings
from centroid_encoder.viewer.map.overlay import compile_colors
from centroid_encoder.viewer.map.picture import on_screen
from centroid_encoder.viewer.map.scene import Style, blend, readable
from centroid_encoder.viewer.panels.cells import CellsPanel
from centroid_encoder.viewer.panels.classes import ClassList
from centroid_encoder.viewer.panels.data import DataPanel, dropped
from centroid_encoder.viewer.panels.fields import button, column, delayed, form_label, side_by_side
from centroid_encoder.viewer.panels.label import LabelPanel
from centroid_encoder.viewer.panels.map import MapPanel
from centroid_encoder.viewer.panels.misplaced import MisplacedTable
from centroid_encoder.viewer.panels.new_data import NewDataPanel
from centroid_encoder.viewer.panels.notes import Notes
from centroid_encoder.viewer.panels.save import SaveRow
from centroid_encoder.viewer.panels.training import TrainingPanel
from centroid_encoder.viewer.panels.why import WhyPanel
from centroid_encoder.viewer.session.misplaced import OUT_OF_FOLD
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State, Version
from centroid_encoder.viewer.task import Task

if TYPE_CHECKING:
    from anndata import AnnData

PLUGIN, SAMPLE = "centroid-encoder", "tissue"
IMPORT_DELAY = 200
"""Milliseconds after which the widget is on the screen."""
LOADING = "Loading PyTorch …"
SHARE = 0.375
"""Share of the window that the dock takes at first."""
CARD = 123
"""Least height of the card below the map in pixels; the map is a square if there is room."""
READABLE = 4.5
"""Least contrast between a text and its ground, as WCAG 2 requires."""
TISSUE = 0.35
"""Share of the window that the tissue keeps beside a map in a dock of its own."""
FLOATING = 0.9
"""Share of the screen that a floating map takes."""
TITLE = 30
"""Height of the title of a dock in pixels."""


class CentroidEncoderWidget(QWidget):
    """Train a map of labelled cells, watch it unfold, and link it to the image.

    Parameters
    ----------
    napari_viewer
        The viewer whose layers hold the cells.

    Attributes
    ----------
    viewer
        That viewer.
    session, catalog
        State that the parts observe; tables and layers to choose from.
    """

    def __init__(self, napari_viewer: napari.Viewer) -> None:
        super().__init__()
        self.setAcceptDrops(True)
        # napari gives plugins a proxy of the viewer.
        self.viewer: napari.Viewer = getattr(napari_viewer, "__wrapped__", napari_viewer)
        self.session = Session(self.viewer.layers)
        self._decided = True
        """Whether table, layers and classes are known."""
        self._full: QDockWidget | None = None
        """The dock that shows the map, if it is a dock of its own."""
        self._width = 0
        """Width of this dock before the map got one of its own; 0 at first."""
        self._sizing = delayed(self, 0, self._size_docks)
        self._loading = delayed(self, IMPORT_DELAY, self._load)
        self.catalog = self.session.catalog
        self._make_parts()
        self.label.keys.watch(self.map.canvas.canvas, self.classes.view)
        # A method would keep a closed widget in memory.
        self.save_row.picture = partial(on_screen, self.viewer, self.map.canvas, self.session)
        self.misplaced.train_button.clicked.connect(self._on_train_corrected)
        self.session.show_in(self.show_state)
        self.map.canvas.buttons["full"].clicked.connect(self.show_full)
        self.viewer.events.theme.connect(self._on_theme)
        self._on_theme()
        self.catalog.connect()
        Task(lambda _: compile_colors(), lambda *_: None, self, daemon=True)
        self._sizing.start()
        if "torch" not in sys.modules:
            self.message.say(LOADING)
        self.session.read()

    def _make_parts(self) -> None:
        session, viewer = self.session, self.viewer
        self.picture = QWidget()
        """The map with its colours and classes."""
        self.data = DataPanel(session)
        self.map = MapPanel(session)
        self.cells = CellsPanel(session, viewer)
        self.classes = ClassList(session)
        self.misplaced = MisplacedTable(session, WhyPanel(session, viewer, "Review"))
        self.new_data = NewDataPanel(session)
        self.save_row = SaveRow(session)
        self.training_panel = TrainingPanel(session)
        self.form, self.message = self.training_panel.form, self.training_panel.message
        self.label = LabelPanel(session, self.form, viewer)
        self.queue = self.label.queue
        self.modes = {
            "Explore": self.cells,
            "Label": self.label,
            "Review": self.misplaced,
            "New data": self.new_data,
        }
        self.cards = _Cards(self.modes.values())
        jobs = self.data.opening, self.data.measuring, self.new_data.opening
        progress = self.training_panel.progress, self.new_data.progress
        cures = {
            self.data.message: QWidget(),
            self.save_row.message: self.save_row.without_button,
            self.new_data.message: self.new_data.cures,
            self.message: self.training_panel.cures,
        }
        self.notes = Notes((*jobs, *progress), cures)
        self._lay_out()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Accept dropped tables, also with images beside them; napari opens all other files."""
        event.setAccepted(bool(dropped(event)[0]))

    def dropEvent(self, event: QDropEvent) -> None:
        """Open dropped tables and images."""
        tables, others = dropped(event)
        for path in others:
            self.viewer.open(path)
        self.data.read(*tables)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Let the wheel scroll, and change no field without the focus; ask before napari closes."""
        kind = event.type()
        if watched is self._full and kind == QEvent.Type.Close:
            self._bring_back()
        elif watched in (self.map, self.data, self.notes):
            if kind in (QEvent.Type.Resize, QEvent.Type.LayoutRequest):
                self._lay_over()
        elif isinstance(watched, QWidget) and kind == QEvent.Type.Wheel and not watched.hasFocus():
            event.ignore()
            return True
        elif isinstance(watched, QMainWindow) and kind == QEvent.Type.Close and has_canvas(watched):
            names = ", ".join(table.name for table in self.catalog.tables if table.unsaved)
            text = f"The labels and maps in {names} are not saved"
            text += f"{', and a training runs' * (self.training is not None)}. Close napari anyway?"
            yes = QMessageBox.StandardButton.Yes
            if names and QMessageBox.question(self, "Close napari", text) != yes:
                event.ignore()
                return True
        return super().eventFilter(watched, event)

    def event(self, event: QEvent) -> bool:
        """Let the map be a square if the card below it keeps its least height."""
        done = super().event(event)
        if event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest) and self._full is None:
            room = self.map.height() + self.cards.height()
            wanted = max(CARD, room - self.map.width())
            if wanted != self.cards.wanted:
                self.cards.wanted = wanted
                self.cards.updateGeometry()
        return done

    def _lay_over(self) -> None:
        """Keep the details at the upper edge of the map, and the messages at the lower one."""
        width, height = self.map.width(), self.map.height()
        for part, at_top in ((self.data, True), (self.notes, False)):
            wraps, hint = part.hasHeightForWidth(), part.sizeHint().height()
            needed = part.heightForWidth(width) if wraps else hint
            part.setGeometry(0, 0 if at_top else height - needed, width, needed)
            part.raise_()

    def show_table(
        self,
        adata: AnnData,
        *,
        name: str = "notebook",
        layer: CellLayer | None = None,
        label_key: str | None = None,
        instance_key: str | None = None,
    ) -> None:
        """Choose an AnnData and, if given, its layer and columns; see `viewer.open`."""
        for key in (label_key, instance_key):
            if key is not None and key not in adata.obs:
                raise KeyError(f"obs has no column {key!r}")
        is_shown = adata is self.session.adata
        self.catalog.open(adata, name)
        if is_shown:  # Columns may have been added meanwhile.
            self.session.set(columns=Version())
        if label_key is not None:
            self.session.choose_labels(label_key)
        if layer is not None:
            self.catalog.choose_layer(layer)
        if instance_key is not None:
            self.catalog.choose_ids(instance_key)

    def select(self, rows: NDArray[np.intp]) -> None:
        """Select cells: rows of the AnnData that is chosen."""
        self.session.select(rows)

    @property
    def result(self) -> Result | None:
        """The map that is drawn, or None."""
        return self.session.state.result

    @property
    def training(self) -> Task | None:
        """The training that runs, of one map or of all those of a check, or None."""
        return self.training_panel.task

    def train(self) -> None:
        """Train on the chosen table, unless a training runs."""
        self.training_panel.run()

    def _on_train_corrected(self) -> None:
        """Train on the column with the corrections of the chosen labels."""
        self.session.choose_labels(self.session.corrected(self.session.label_key))
        self.train()

    def stop(self) -> None:
        """End the training and keep the best map so far."""
        self.training_panel.progress.stop()

    def cancel(self) -> None:
        """End the training or the check and leave everything as it was."""
        self.training_panel.progress.cancel()

    def show_state(self, before: State, now: State) -> None:
        """Show what can be done now, and what the last function of `tl` has found."""
        parts = "cells", "result", "check", "labels", "labeling", "label_key"
        if now.differs(before, "mode", *parts) or now.differs(before, "links", "regions"):
            self._on_shown()
        function = now.written.function if now.written and now.differs(before, "written") else ""
        if function == "cross_validate":
            self.misplaced.choose(OUT_OF_FOLD)
            self.show_mode(self.misplaced)
            self.misplaced.say_verdict(self.message)
        elif function == "ingest":
            self.session.set(coloring=colorings.PREDICTED)

    def show_mode(self, card: QWidget) -> None:
        """Show the card of a mode below the map."""
        self.tabs.setCurrentIndex(list(self.modes.values()).index(card))

    def _on_tab(self) -> None:
        # A hidden card needs no room: the map gets it.
        for i, card in enumerate(self.modes.values()):
            card.setVisible(i == self.tabs.currentIndex() and self.session.table is not None)
        self.session.set(mode=list(self.modes)[self.tabs.currentIndex()])
        self.cards.verticalScrollBar().setValue(0)

    def _on_shown(self) -> None:
        """Offer what can be done with a map, and count the cells to review."""
        has_map, has_table = self.session.state.result is not None, self.session.table is not None
        train_button = self.training_panel.train_button
        for part in (train_button, self.cells.colors, self.cards, self.tabs):
            part.setVisible(has_table)
        self._on_tab()
        review, new_data = list(self.modes).index("Review"), list(self.modes).index("New data")
        is_free = self.session.state.labeling is None
        self.tabs.setTabVisible(
            review, is_free and (has_map or self.session.state.check is not None)
        )
        self.tabs.setTabVisible(new_data, is_free and has_map)
        n = len(self.misplaced.model.table) if self.misplaced.source is not None else 0
        self.tabs.setTabText(review, f"Review {n:,}" if n else "Review")
        self._fold()

    def _fold(self) -> None:
        """Show the details when something is to be decided, and hide them when nothing is."""
        there = self.session.table is not None
        if not there:
            self.data.hide()
        links = bool(self.catalog.joins) or self.catalog.layer is None
        faults = self.catalog.faults.values()
        links &= not any(isinstance(x, Misfit) and x.better for x in faults)
        decided = not there or (self.session.label_key is not None and links)
        if decided != self._decided:
            self._decided = decided
            self.data.setVisible(not decided)

    @property
    def _window(self) -> QMainWindow | None:
        """The window of the viewer, if the widget is in a dock of it."""
        window = self.window()
        return window if isinstance(window, QMainWindow) else None

    def _own_dock(self) -> QDockWidget | None:
        parent = self.parentWidget()
        while parent is not None and not isinstance(parent, QDockWidget):
            parent = parent.parentWidget()
        return parent

    def _size_docks(self) -> None:
        """Take a share of the window at first, and later the width of before.

        Beside a dock of the map, take the least width.
        """
        window, dock, full = self._window, self._own_dock(), self._full
        if window is not None:
            window.installEventFilter(self)  # There is none before the dock is made.
        if window is not None and dock is not None and full is not None:
            least = dock.minimumSizeHint().width()
            width = self._width_of_docks(window, dock, full)
            window.resizeDocks([dock, full], [least, width - least], Qt.Orientation.Horizontal)
        elif window is not None and dock is not None and not dock.isFloating():
            width = self._width or round(SHARE * window.width())
            window.resizeDocks([dock], [width], Qt.Orientation.Horizontal)
        # Not earlier: the delay would be over before the dock is painted.
        self._loading.start()

    def show_full(self) -> None:
        """Show the map in a dock of its own beside this one, or bring it back.

        Where the window has no room for a larger map, the dock floats.
        """
        window, dock = self._window, self._own_dock()
        if self._full is not None:
            self._bring_back()
        elif window is not None and dock is not None:
            canvas, self._width = self.map.canvas, dock.width()
            others = self.picture.height() - canvas.height()
            side = min(canvas.width(), canvas.height())
            self._full = full = QDockWidget("Centroid-Encoder: map", window)
            full.setObjectName("centroid-encoder map")
            full.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            full.setWidget(self.picture)
            self._parts.setStretchFactor(self.cards, 1)
            full.installEventFilter(self)
            window.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, full)
            room = self._width_of_docks(window, dock) - dock.minimumSizeHint().width()
            if min(room, dock.height() - others - TITLE) > side:
                window.splitDockWidget(dock, full, Qt.Orientation.Horizontal)
                # The new dock has to be laid out first.
                self._sizing.start()
            else:
                screen = window.screen().availableGeometry()
                most = round(FLOATING * min(screen.width(), screen.height() - others))
                # Beside this dock, whose title, card and tabs are not to be covered.
                start = dock.mapToGlobal(QPoint(0, 0)).x()
                end = start + dock.width()
                left, right = start - screen.left(), screen.right() - end
                side = max(side, min(most, max(left, right)))
                x = max(start - side, screen.left()) if left > right else end
                full.setFloating(True)
                full.resize(side, side + others)
                full.move(x, screen.center().y() - full.height() // 2)

    def _width_of_docks(self, window: QMainWindow, *docks: QDockWidget) -> int:
        """Return the width that leaves the tissue its share, of some docks side by side."""
        widgets = [*docks, *filter(None, [window.centralWidget()])]
        return round(sum(one.width() for one in widgets) - TISSUE * window.width())

    def _bring_back(self) -> None:
        """Bring the map back into this dock."""
        full, self._full = self._full, None
        if full is not None:
            full.removeEventFilter(self)
            self._parts.insertWidget(1, self.picture, stretch=1)
            self._parts.setStretchFactor(self.cards, 0)
            self.picture.show()
            full.close()
            # The dock has to be gone first.
            self._sizing.start()

    def changeEvent(self, event: QEvent) -> None:
        """Detach from the viewer and delete the widget when its dock is closed."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange and self.parent() is None:
            self._detach()
            self.deleteLater()
            # The timer keeps the widget until Qt has deleted it. Before 6.12, PySide6 would delete
            # parts that Python's garbage collector finds while others still use them.
            QTimer.singleShot(0, lambda: self)

    def _load(self) -> None:
        """Import PyTorch once the widget is on the screen, before Train is pressed."""
        Task(lambda _: None, self._on_loaded, self)

    def _on_loaded(self, _: object, error: Exception | None) -> None:
        if error is not None:
            self.message.say(f"PyTorch cannot be loaded: {error}", "error")
        elif self.message.text() == LOADING:
            self.message.say("")

    def _detach(self) -> None:
        if self.training is not None:
            what = "check" if self.training_panel.checking else "training"
            show_info(f"Centroid-Encoder was closed; its {what} is cancelled.")
        self.cancel()
        self.label.end()
        self.new_data.opening.cancel()
        self.new_data.progress.cancel()
        self.cells.tissue.close()
        self._bring_back()
        self.catalog.disconnect()
        self.data.stop()
        self.viewer.events.theme.disconnect(self._on_theme)

    def _on_theme(self, _: Any = None) -> None:
        theme = get_theme(self.viewer.theme)
        style = Style(
            page=theme.background.as_hex("long"),
            panel=theme.canvas.as_hex("long"),
            ink=theme.text.as_hex("long"),
            unlabeled=blend(theme.text.as_hex("long"), theme.canvas.as_hex("long"), 0.6),
        )
        self.map.canvas.set_style(style, theme.icon.as_hex("long"))
        # The grounds are those of a message and of a button.
        ground, colors = theme.foreground.as_hex("long"), ("#e3b617", "#ff6b6b")
        warning, error = (readable(color, ground, style.ink, READABLE) for color in colors)
        sheet = (
            f'Message[kind="warning"] {{ color: {warning}; }}'
            f'Message[kind="error"] {{ color: {error}; }}'
            f"Fold {{ color: {warning}; text-align: left; padding-left: 4px; }}"
            f"#over {{ background: {style.page}; }}"
            "#over > Message { padding: 2px 6px; }"
            "Strip { background: transparent; }"
            f"#change {{ background: {ground}; }}"
            "#change { border: none; padding: 4px 20px 4px 6px; }"
            f"#headline {{ color: {style.ink}; font-size: 14px; font-weight: bold; }}"
        )
        # napari styles no window of its own, such as the list below a field.
        self.cells.color_box.matches.setStyleSheet(f"background: {ground}; color: {style.ink};")
        # The map can be in a dock of its own.
        for part in (self, self.picture):
            part.setStyleSheet(sheet)

    def _make_menu(self) -> QToolButton:
        made = QToolButton()
        made.setText("☰")
        made.setAccessibleName("Menu")
        made.setToolTip("Open tables, check labels, and settings")
        made.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu, training, save = QMenu(self), self.training_panel, self.save_row
        menu.setToolTipsVisible(True)
        for actions in (self.data.menu, training.menu):
            menu.addActions(actions.actions())
            menu.addSeparator()
        menu.insertAction(training.check_action, self.label.import_action)
        save.menu.insertAction(save.copy_action, self.label.export_action)
        menu.addActions(self.map.canvas.tools.actions())
        menu.addSeparator()
        menu.addAction(self.map.canvas.names_action)
        made.setMenu(menu)
        return made

    def _make_bar(self) -> QHBoxLayout:
        """Return the tabs of the modes, and the buttons beside them."""
        self.tabs = QTabBar()
        self.tabs.setShape(QTabBar.Shape.RoundedSouth)
        self.tabs.setUsesScrollButtons(False)
        self.tabs.setAccessibleName("Modes")
        for name in self.modes:
            self.tabs.addTab(name)
        self.tabs.currentChanged.connect(self._on_tab)
        self.log_button = QToolButton()
        self.log_button.setText("Log")
        self.log_button.setToolTip("All messages")
        self.log_button.clicked.connect(self.notes.log.show)
        bar = side_by_side(self.tabs, self.log_button, self.save_row)
        bar.insertStretch(1)
        return bar

    def _lay_out(self) -> None:
        """Lay out one line, the map with the classes, and the card of the chosen mode."""
        training, data = self.training_panel, self.data
        data.below.addWidget(training)
        self.menu_button = self._make_menu()
        training.of_map.addRow(form_label("Regions"), self.map.regions_box)
        training.of_map.addRow(form_label("Components"), self.map.axes_box)
        training.of_new_data.addWidget(self.new_data.form)
        named = (data.table_box, 2), (self.cells.images, 3), (data.fold, 3), data.positions_button
        begin = self.new_data.place_button, training.train_button
        header = side_by_side(*named, *begin, self.menu_button)
        # Without a table, the menu stays at the right.
        header.insertStretch(4)
        # A method would keep a closed widget in memory.
        open_sample = partial(self.viewer.open_sample, PLUGIN, SAMPLE)
        self.map.starts.addWidget(button("Open table …", "", data.open_action.trigger))
        self.map.starts.addWidget(button("Measure cells …", "", data.measure_action.trigger))
        self.map.starts.addWidget(button("Sample tissue", "", open_sample))
        shown = self.map, self.cells.colors, self.classes
        column(self.picture, *shown).setStretchFactor(self.map, 1)
        for part in (self.notes, data):
            part.setObjectName("over")
            part.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
            part.setParent(self.map)
        for watched in (self.map, self.notes, data):
            watched.installEventFilter(self)
        # napari would add a stretch if no part took all the room.
        self.picture.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self._parts = column(self, header, self.picture, self.cards, self._make_bar())
        self._parts.setContentsMargins(6, 2, 6, 2)
        self._parts.setStretchFactor(self.picture, 1)
        for kind in (QComboBox, QAbstractSpinBox):
            for field in self.findChildren(kind):
                # Otherwise the wheel itself gives the field the focus.
                field.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
                field.installEventFilter(self)
        self._on_shown()


def has_canvas(window: QMainWindow) -> bool:
    """Return whether a window of napari shows its canvas; ``viewer.close()`` closes this first."""
    canvas = window.findChild(QtViewer)
    return canvas is not None and not canvas.isHidden()


class _Cards(QScrollArea):
    """Cards that scroll up and down; they are as wide as their content needs.

    `wanted` is the height in pixels, if there is room.
    """

    wanted = CARD

    def __init__(self, cards: Iterable[QWidget]) -> None:
        super().__init__()
        inner = QWidget()
        column(inner, *cards).addStretch()
        # The map keeps its size, whatever there is in a card.
        self.setWidget(inner)
        self.setWidgetResizable(True)
        self.setMinimumHeight(CARD)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setFrameShape(QScrollArea.Shape.NoFrame)

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), self.wanted)

    def minimumSizeHint(self) -> QSize:
        content, bar = self.widget(), self.verticalScrollBar()
        least = super().minimumSizeHint()
        if content is not None and bar is not None:
            frame = self.width() - self.maximumViewportSize().width()
            least.setWidth(content.minimumSizeHint().width() + bar.sizeHint().width() + frame)
        return least

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Take another width when the content needs one, as with another style."""
        if event.type() == QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return bool(super().eventFilter(watched, event))


def open(
    adata: AnnData | None = None,
    *,
    viewer: napari.Viewer | None = None,
    labels: CellLayer | str | None = None,
    label_key: str | None = None,
    instance_key: str | None = None,
    name: str = "notebook",
) -> CentroidEncoderWidget:
    """Open the dock widget in napari, on an AnnData of a notebook.

    Parameters
    ----------
    adata
        Annotated data; results are written into this very object. None opens the widget alone.
    viewer
        Viewer to dock the widget in. Default: the current one, or a new one.
    labels
        Labels, Points or Shapes layer whose labels, points or shapes are the cells, or its name.
    label_key
        Column of ``adata.obs`` with the classes.
    instance_key
        Column of ``adata.obs`` that holds the cells' ids in the layer. Default: a guess, which is
        shown in the widget.
    name
        What to call the table in the widget.

    Returns
    -------
    CentroidEncoderWidget
        The widget; ``widget.viewer`` is the viewer.

    Raises
    ------
    KeyError
        If there is no such layer or column.
    TypeError
        If `adata` is no AnnData, such as a path.
    ValueError
        If the layer holds no labels, points or shapes, or is not in the viewer.
    """
    if adata is not None:
        check_read(adata)
    viewer = viewer or napari.current_viewer() or napari.Viewer()
    layer = viewer.layers[labels] if isinstance(labels, str) else labels
    if layer is not None and not (layer in viewer.layers and isinstance(layer, CellLayer)):
        raise ValueError(f"{layer} is no Labels, Points or Shapes layer of this viewer")
    widget: CentroidEncoderWidget
    _, widget = viewer.window.add_plugin_dock_widget(PLUGIN)
    if adata is not None:
        widget.show_table(
            adata, name=name, layer=layer, label_key=label_key, instance_key=instance_key
        )
    return widget
