"""Show the map of a result or of a running training."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QInputDialog,
    QLabel,
    QMenu,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from centroid_encoder.core.quality import class_centers
from centroid_encoder.core.reports import Frame
from centroid_encoder.pl._axes import panel_title, title_rule
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.pl._regions import (
    center_regions,
    class_regions,
    panel_limits,
    plane_centers,
    plane_points,
)
from centroid_encoder.tables import obs_key
from centroid_encoder.tl._result import BY_GROUP, NO_BETTER, QUERY, TEST, TRAIN, Regions, Result
from centroid_encoder.tl._summary import doubt_words, expected_words, group_words, range_words
from centroid_encoder.viewer.latest import Latest
from centroid_encoder.viewer.map.canvas import MapCanvas
from centroid_encoder.viewer.map.colorings import CONFIDENCE, GREY, NOVELTY, shown_values, to_choose
from centroid_encoder.viewer.map.scene import Scene
from centroid_encoder.viewer.panels.fields import Choice, column
from centroid_encoder.viewer.session.draft import HELD_OUT, error_text, held_out_error
from centroid_encoder.viewer.session.planes import (
    COMPONENTS,
    Plane,
    components,
    first_plane,
    plane_of,
    representations,
    title_of,
)
from centroid_encoder.viewer.session.session import SelectionMode, Session
from centroid_encoder.viewer.session.state import State

if TYPE_CHECKING:
    from centroid_encoder.tl._centroid_encoder import Training

REGIONS: tuple[tuple[str, Regions | None], ...] = (
    ("Voronoi cells", "voronoi"),
    ("no regions", None),
    ("decoder regions", "decoder"),
)
"""The last entry is offered for maps with a decoder."""
NO_TABLE = "Drop a table of cells here (.h5ad, .zarr, .csv, …), or choose:"
NO_MAP = "No map yet.\n\nChoose the classes and press Train, or make classes under Label."
NO_DRAFT = "No live map yet.\n\nLabel at least three cells of each of two classes."


class MapPanel(QWidget):
    """All cells above the regions of their classes; held-out cells are rings.

    `regions_box` and `axes_box` choose what is drawn, and `starts` is a row for buttons that is
    shown without a table; the parent lays out the former and fills the latter.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.canvas = MapCanvas(partial(_select, session), partial(_describe, session))
        self.axes_box = Choice("Components of the map", "The two components that are drawn")
        tip = (
            "Voronoi cell: the part of the map nearest to the center of a class. Decoder region: "
            "the part that the decoder of the model assigns to a class"
        )
        self.regions_box = Choice("Regions of the map", tip, lambda x: session.set(regions=x))
        self.regions_box.offer(REGIONS[:2], session.state.regions)
        self.axes_box.currentIndexChanged.connect(self._redraw)
        self.canvas.buttons["held-out"].toggled.connect(self._redraw)
        self.canvas.buttons["lasso"].toggled.connect(lambda on: session.set(lasso=on))
        self._empty, self._hint, self.starts = QWidget(), QLabel(), QVBoxLayout()
        self._hint.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._hint.setWordWrap(True)
        self._start = QWidget()
        self._start.setLayout(self.starts)
        empty = column(self._empty, self._hint)
        empty.addWidget(self._start, alignment=Qt.AlignmentFlag.AlignHCenter)
        empty.insertStretch(0)
        empty.addStretch()
        self._pages = QStackedWidget()
        self._pages.addWidget(self._empty)
        self._pages.addWidget(self.canvas)
        column(self, self._pages)
        self._computing = Latest(self)
        self.menu = QMenu(self)
        self.menu.aboutToShow.connect(self._offer_planes)
        self.canvas.buttons["map"].setMenu(self.menu)
        self.canvas.buttons["map"].setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        session.show_in(self.show_state)

    def _draw_frame(self, run: Training, frame: Frame, label_key: str) -> None:
        """Draw a live frame of a running training."""
        found, centers = frame
        points = np.full((len(run.kept), 2), np.nan, dtype=np.float32)
        points[run.kept] = self._plane(found)
        if centers is None:
            codes, train = run.codes[run.kept], run.train[run.kept]
            centers = class_centers(found[train], codes[train], len(run.classes))
        places = self._plane(plane_centers(centers))
        limits = self._steady(panel_limits(np.concatenate([points[run.kept], places])))
        regions, adata = self._session.state.regions, self._session.adata
        flat = regions is not None and found.shape[1] <= 2
        colors = {}
        if adata is not None and label_key in adata.obs:
            colors = label_colors(adata, label_key)
        scene = Scene(
            points=points,
            codes=run.codes,
            rows=self._rows(run.kept, run.held_out),
            shapes=center_regions(centers, limits) if flat else [],
            limits=limits,
            names=tuple(map(str, run.classes)),
            centers=places,
            hollow=np.flatnonzero(run.held_out),
            soft=regions == "voronoi",
            live=True,
        )
        title = f"{run.train.sum():,} cells in training"
        self._show(scene, [colors.get(name, GREY) for name in run.classes], title, "")

    def _steady(self, limits: NDArray[np.floating]) -> NDArray[np.floating]:
        """Keep the last limits if the cells lie within them and fill at least half of them."""
        before = self.canvas.map.scene
        if not before.live:
            return limits
        (low, high), (least, most) = limits, before.limits
        is_inside = (low >= least).all() and (high <= most).all()
        if is_inside and (high - low).max() > 0.5 * (most - least).max():
            return before.limits
        # Leave room for the next frames.
        middle: NDArray[np.floating] = limits.mean(axis=0)
        return middle + 1.25 * (limits - middle)

    def show_state(self, before: State, now: State) -> None:
        """Draw another map, other colours, or another selection."""
        figure = self.canvas.map
        if now.differs(before, "cells"):
            self._computing.drop()
        parts = "result", "draft", "frame", "labels", "label_key", "labeling", "regions", "cells"
        if now.differs(before, "plane", "components", *parts):
            self._redraw()
        elif now.differs(before, "hidden", "coloring", "columns", "check"):
            values = shown_values(self._session)
            if now.hidden != figure.hidden or values is not figure.values:
                figure.values, figure.hidden = values, now.hidden
                figure.update()
        if now.differs(before, "group"):
            figure.select(now.selected)
        if now.differs(before, "lasso"):
            self.canvas.buttons["lasso"].setChecked(now.lasso)

    def _offer_planes(self) -> None:
        """Fill the menu with what can be drawn."""
        self.menu.clear()
        session, shown = self._session, plane_shown(self._session)
        if (adata := session.adata) is None:
            return
        planes: list[tuple[str, Plane | None]] = [("Centroid-Encoder map", None)]
        planes += [(name, name) for name in (*representations(adata), COMPONENTS)]
        for text, plane in planes:
            action = self.menu.addAction(text, partial(_choose_plane, session, plane))
            action.setCheckable(True)
            action.setChecked(plane == shown)
        self.menu.addAction("Two columns or genes …", self._ask_columns)

    def _ask_columns(self) -> None:
        """Draw two columns or variables that the user chooses."""
        ways = to_choose(self._session)
        names, chosen = [name for way, name in ways.items() if isinstance(way, tuple)], []
        for axis in ("horizontal", "vertical"):
            text = f"Column or gene of the {axis} axis"
            name, is_given = QInputDialog.getItem(self, "Map", text, names, 0, False)
            if not is_given:
                return
            chosen.append(name)
        self._session.set(plane=(chosen[0], chosen[1]))

    def _redraw(self, _: object = None) -> None:
        """Draw the live frame, the live map or the map of the session, or a hint on what to do."""
        now = self._session.state
        result, adata = now.drawn, now.drawn_adata
        plane = plane_shown(self._session)
        if plane is not None and now.adata is not None and self._draw_plane(now.adata, plane):
            return
        if now.frame is not None:
            self._draw_frame(*now.frame)
        elif adata is None or result is None:
            self.canvas.map.show(Scene(), [])
            hint = NO_MAP if now.labeling is None else NO_DRAFT
            self._hint.setText(NO_TABLE if adata is None else hint)
            self._start.setVisible(adata is None)
            self._pages.setCurrentWidget(self._empty)
        else:
            self._draw_result(adata, result)

    def _draw_plane(self, adata: AnnData, plane: Plane) -> bool:
        """Draw the cells without regions; return whether it is or will be possible."""
        session, now = self._session, self._session.state
        if plane == COMPONENTS and now.components is None:
            if not self._computing.is_due:
                self._computing.request(partial(components, adata), self._on_computed)
            return False
        try:
            points = now.components if plane == COMPONENTS else plane_of(adata, plane)
        except (KeyError, ValueError) as error:
            session.set(plane=None)
            session.say(error, "error")
            return False
        if points is None or not (there := np.isfinite(points).all(axis=1)).any():
            return False
        codes, colors = session.shown_codes, session.class_colors
        known = [points[there & (codes == i)] for i in range(len(colors))]
        centers = [np.median(cells, axis=0) if len(cells) else [np.nan] * 2 for cells in known]
        scene = Scene(
            points=points,
            codes=codes,
            rows=np.flatnonzero(there),
            limits=panel_limits(points[there]),
            names=tuple(map(str, colors)),
            centers=np.reshape(centers, (-1, 2)),
            bold=now.labeling is not None,
        )
        self.canvas.buttons["held-out"].hide()
        self._show(scene, list(colors.values()), title_of(plane), "")
        return True

    def _on_computed(self, found: NDArray[np.floating] | None, error: Exception | None) -> None:
        if error is not None:
            self._session.say(error, "warning")
            found = np.full((len(self._session.state.selected), 2), np.nan)
        self._session.set(components=found)

    def _draw_result(self, adata: AnnData, result: Result) -> None:
        session, now = self._session, self._session.state
        is_draft = now.draft is not None
        has_decoder = result.stored.has_decoder
        self.regions_box.offer(REGIONS if has_decoder else REGIONS[:2], now.regions)
        codes, n_classes = session.shown_codes, len(session.class_colors)
        points = self._plane(result.embedding)
        centers = self._plane(plane_centers(result.centers))
        behind = self._behind(result)
        of = result, self.axes_box.value
        limits = map_limits(*of, behind) if len(behind) else session.of(map_limits, *of)
        if is_draft:
            limits = self._steady(limits)
        # A class that was named after the training has no center: take the mean of its cells.
        named = [points[result.embedded & (codes == i)] for i in range(len(centers), n_classes)]
        centers = np.vstack([centers, *(cells.mean(axis=0) for cells in named)])
        held_out = (result.split == TEST).to_numpy()
        if is_draft and HELD_OUT in adata.obs:
            held_out = adata.obs[HELD_OUT].to_numpy()
        shown = result.embedded
        if result.is_query:
            shown &= (result.split == QUERY).to_numpy()
        scene = Scene(
            points=points,
            codes=codes,
            rows=self._rows(shown, held_out),
            shapes=session.of(class_regions, adata, result, now.regions, limits),
            limits=limits,
            names=tuple(map(str, session.class_colors)),
            centers=centers,
            reference=behind,
            hollow=np.flatnonzero(held_out),
            soft=now.regions == "voronoi",
            bold=is_draft and now.labeling is not None,
            live=is_draft,
        )
        title, tip = headline(result, now.regions, len(behind))
        column = session.corrected(result.label_key)
        labels = None if session.adata is None else session.adata.obs.get(column)
        if is_draft and labels is not None:
            kind = "draft" if now.labeling is None else "live map"
            title, tip = f"{kind}: {error_text(*held_out_error(adata, labels))}", ""
        self._show(scene, list(session.class_colors.values()), title, tip)

    def _rows(self, shown: NDArray[np.bool_], held_out: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Return the rows to draw: all that are shown, or only those that are held out."""
        button = self.canvas.buttons["held-out"]
        button.setVisible(bool(held_out.any()))
        only = button.isChecked() and held_out.any()
        return np.flatnonzero(shown & held_out if only else shown)

    def _behind(self, result: Result) -> NDArray[np.floating]:
        """Return the positions of training cells that are drawn behind new cells."""
        if not result.is_query:
            return np.empty((0, 2))
        others = result.embedded & (result.split != QUERY).to_numpy()
        if not others.any() and (reference := self._session.reference) is not None:
            result, others = reference, reference.embedded
        return self._plane(result.embedding[others])

    def _plane(self, points: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the two chosen components of points."""
        pairs = list(combinations(range(points.shape[1]), 2)) or [(0, 1)]
        if self.axes_box.count() != len(pairs):
            entries = [(f"components {i + 1}, {j + 1}", (i, j)) for i, j in pairs]
            self.axes_box.offer(entries, (0, 1))
        # Regions are drawn only in two dimensions.
        self.axes_box.setEnabled(len(pairs) > 1)
        self.regions_box.setEnabled(len(pairs) == 1)
        return plane_points(points)[:, self.axes_box.value]

    def _show(self, scene: Scene, colors: list[str], title: str, tip: str) -> None:
        self._pages.setCurrentWidget(self.canvas)
        self.canvas.title.setText(title)
        self.canvas.title.setToolTip(tip)
        figure, now = self.canvas.map, self._session.state
        figure.values, figure.hidden = shown_values(self._session), now.hidden
        figure.show(scene, colors, now.selected)
        self.canvas.names_action.setChecked(figure.named)


def map_limits(
    result: Result, axes: tuple[int, int], *behind: NDArray[np.floating]
) -> NDArray[np.floating]:
    """Return the limits of a map along two axes; (n, 2) positions `behind` it lie within them."""
    of_map = result.embedding[result.embedded], plane_centers(result.centers)
    return panel_limits(np.concatenate([*(plane_points(x)[:, axes] for x in of_map), *behind]))


def plane_shown(session: Session) -> Plane | None:
    """Return the plane that is drawn in place of a map: the chosen one, or one without a map."""
    now = session.state
    if now.frame is not None or now.plane is not None or now.adata is None:
        return None if now.frame is not None else now.plane
    if now.drawn is not None or (now.labeling is None and (session.shown_codes >= 0).any()):
        return None
    return first_plane(now.adata)


def _choose_plane(session: Session, plane: Plane | None) -> None:
    session.set(plane=plane)


def _select(session: Session, rows: NDArray[np.intp], mode: SelectionMode, tool: str) -> None:
    plane = plane_shown(session)
    is_place = isinstance(plane, str) and plane.startswith("spatial")
    how = f"{tool} in the {'map' if plane is None else plane}"
    session.select(rows, mode, how=how, uses_features=not is_place)


def _describe(session: Session, row: int) -> str:
    """Describe a cell by the map that is drawn, unless other code has changed the cells."""
    result = session.state.drawn if session.state.frame is None else None
    return "\n".join(describe(session, row, result)) if session.catalog.check_cells() else ""


def headline(result: Result, regions: Regions | None, n_behind: int = 0) -> tuple[str, str]:
    """Return what is most important to know about a map, and a longer text."""
    if result.is_query:
        placed = result.embedded & (result.split == QUERY).to_numpy()
        n, also = int(placed.sum()), f"; pale: {n_behind:,} reference cells"
        text = panel_title(result, QUERY, regions) + also * bool(n_behind)
        expected = expected_words(result.stored, n)
        title = f"{n:,} cells placed{expected and ', '}{expected or ' in this map'}"
        return title + "\ngrey: reference cells" * bool(n_behind), text
    stored, rule = result.stored, title_rule(result, regions)[0]
    errors = stored.errors(stored.held_out)
    if not errors["n"]:
        return f"{int((result.split == TRAIN).sum()):,} cells, none held out", ""
    n_wrong = np.nan_to_num(errors[f"{rule}_error"] * errors["n"])
    text = error_text(round(n_wrong), errors, digits=1)
    if stored.held_out == BY_GROUP:
        text = f"{100 * errors[f'{rule}_error']:.1f} % wrong for a new {stored.params['group_key']}"
        more = range_words(errors, f"{rule}_error"), group_words(errors, stored.params)
        text += "\n" + ", ".join(filter(None, more))
        text += f"\n{doubt_words(errors)[1]}".rstrip()
    if np.isfinite(errors["panel_error"]):
        text = f"{100 * errors['panel_error']:.1f} % wrong out of fold with such panels"
    elif errors[NO_BETTER] == 1 and "\n" not in text:
        text += "\nno better than the largest class"
    return text, "\n".join(panel_title(result, split, regions) for split in (TEST, TRAIN))


def describe(session: Session, row: int, result: Result | None) -> list[str]:
    """Return the name of a cell, its label and the prediction of a result, as short texts."""
    if (adata := session.adata) is None:
        return []
    obs, label_key = adata.obs, session.label_key if result is None else result.label_key
    lines = [str(obs.index[row])]
    if label_key in obs:
        column = session.corrected(label_key)
        label = obs[column].iloc[row]
        lines.append(f"{column}: {'no label' if pd.isna(label) else label}")
    if result is not None and (drawn := session.state.drawn_adata) is not None:
        obs, code = drawn.obs, result.predicted[row]
        lines.append(f"predicted: {result.classes[code] if code >= 0 else '–'}")
        for name in (CONFIDENCE, NOVELTY):
            column = obs_key(result.key, name)
            if column in obs and np.isfinite(obs[column].iloc[row]):
                lines.append(f"{name}: {obs[column].iloc[row]:.2f}")
    return lines
