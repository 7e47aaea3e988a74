"""Which table, which layer, and how the two are joined."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import Qt, QTimer
from qtpy.QtGui import QDragEnterEvent, QDropEvent
from qtpy.QtWidgets import (
    QFileDialog,
    QLabel,
    QMenu,
    QPushButton,
    QSizePolicy,
    QWidget,
)
from superqt.utils import create_worker

from centroid_encoder.viewer.data.folder import ImageFiles, list_images
from centroid_encoder.viewer.data.guesses import ONE_IMAGE
from centroid_encoder.viewer.data.ids import may_be_ids
from centroid_encoder.viewer.data.images import TableImage, region_column, region_columns
from centroid_encoder.viewer.data.join import OBS_NAMES
from centroid_encoder.viewer.data.measuring import UNLABELED
from centroid_encoder.viewer.panels.fields import (
    Choice,
    column,
    form_label,
    form_layout,
    menu_button,
    side_by_side,
)
from centroid_encoder.viewer.panels.images import ImageTable
from centroid_encoder.viewer.panels.measure import MeasureDialog, MeasureRow
from centroid_encoder.viewer.panels.message import Kind, Lines, Message, sentence
from centroid_encoder.viewer.panels.opening import TABLES, Opening

if TYPE_CHECKING:
    from anndata import AnnData
    from napari.layers import Layer

    from centroid_encoder.viewer.data.catalog import Catalog
    from centroid_encoder.viewer.data.join import Link
    from centroid_encoder.viewer.data.measuring import Measuring
    from centroid_encoder.viewer.data.tables import Table

EMPTY = (
    "Open a .h5ad or a .zarr, drop one here, measure the cells of a Labels layer, or attach an "
    "AnnData to a layer (layer.metadata['adata'] = adata)."
)
LABEL_THEM = (
    "Click one in the image and name it under Misplaced cells, or write labels into "
    f"obs[{UNLABELED!r}] in a notebook."
)
NO_MASKS = (
    "No mask of an image of the table is in {}. A mask is called like its image, with a word such "
    "as mask or labels in its name or in that of its folder: A_mask.tif, masks/A.tif."
)
NO_LAYER = "none"
NO_REGIONS = "one image"
MEND = "Join the table to the labels where its cells are"
PAUSE = 300
"""Milliseconds without a stroke after which painted labels are joined anew."""


class DataPanel(QWidget):
    """Pick a table, the layers that show its cells, and the columns that join them.

    A table of several images has a list of them, with the layer of each.

    Parameters
    ----------
    catalog
        What there is to choose from, and what is chosen.
    """

    def __init__(self, catalog: Catalog, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAcceptDrops(True)
        self.catalog = catalog
        self._refresh = QTimer(self, interval=0, singleShot=True)
        self._refresh.timeout.connect(catalog.refresh)
        self._rejoin = QTimer(self, interval=PAUSE, singleShot=True)
        self._rejoin.timeout.connect(catalog.join_again)

        self.table_box = Choice("Table", "Tables of cells that were found in napari")
        self.table_box.currentIndexChanged.connect(self._on_table)
        menu = QMenu(self)
        menu.addAction("File (.h5ad, .csv) …", self._ask_file)
        menu.addAction("AnnData folder (.zarr) …", self._ask_folder)
        menu.addSeparator()
        self.images_action = menu.addAction("Folder of images and masks …", self._ask_images)
        self.open_button = menu_button(
            "Open …", "Read a .h5ad, .zarr or .csv; or drop it here", menu
        )
        self.opening = Opening()
        self.opening.opened.connect(self._on_opened)
        self.opening.failed.connect(self._on_failed)
        self.measure_button = QPushButton("Measure …")
        self.measure_button.setToolTip("Make a table of the cells of Labels and Image layers")
        self.measure_button.clicked.connect(self._ask_layers)
        self.measuring = MeasureRow()
        self.measuring.measured.connect(self._on_measured)
        self.measuring.failed.connect(self._on_failed)
        self._dialog: MeasureDialog | None = None
        self._listing: tuple[_Listing, Any] | None = None
        self.layer_box = Choice(
            "Layer of the cells", "Layer whose labels, points or shapes are the cells of the table"
        )
        self.layer_box.currentIndexChanged.connect(self._on_layer)
        self.instance_box = Choice(
            "Column of ids", "Column of obs that holds each cell's id in the layer"
        )
        self.instance_box.currentIndexChanged.connect(self._on_ids)
        self.region_box = Choice(
            "Column of images", "Column of obs that says which image a cell is in"
        )
        self.region_box.currentIndexChanged.connect(self._on_regions)
        self.images_table = ImageTable()
        self.images_table.layer_chosen.connect(self._on_image)
        self.joined_text = Lines()
        self.joined_text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.message = Message()
        self.better_button = QPushButton()
        self.better_button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.better_button.clicked.connect(self._on_better)

        self._by, self._in = form_label("joined by"), QLabel("in")
        form = form_layout()
        tables = side_by_side(self.table_box, self.open_button, self.measure_button)
        form.addRow(form_label("Table"), tables)
        self._cells_in = form_label("Cells in")
        form.addRow(self._cells_in, self.layer_box)
        form.addRow(self._by, side_by_side(self.instance_box, self._in, self.region_box))
        above = self.images_table, self.opening, self.measuring
        column(self, form, *above, self.joined_text, self.message, self.better_button)
        catalog.listed.connect(self._show_lists)
        catalog.link_changed.connect(self._show_link)
        catalog.stirred.connect(self._on_stirred)
        catalog.painted.connect(self._on_painted)

    def stop(self) -> None:
        """Put nothing more off: the viewer is followed no longer."""
        self._refresh.stop()
        self._rejoin.stop()
        self.opening.cancel()
        self.measuring.cancel()
        self._listing = None
        if self._dialog is not None:
            self._dialog.reject()

    def open_file(self, path: Path) -> Table | None:
        """Read a .h5ad or a .zarr and choose it; what goes wrong is said in the panel."""
        self.message.say("")
        try:
            table = self.catalog.open(path)
        except OSError as error:
            self.message.say(sentence(error), "error")
            return None
        self.catalog.choose(table)
        return table

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Take files of tables; napari takes all others."""
        event.setAccepted(bool(_dropped(event)))

    def dropEvent(self, event: QDropEvent) -> None:
        """Open them."""
        self.opening.read(*_dropped(event))

    # -- what the user chooses -------------------------------------------------------------------

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, "Open a table", "", TABLES)
        if name:
            self.opening.read(Path(name))

    def _ask_folder(self) -> None:
        name = QFileDialog.getExistingDirectory(self, "Open a table: choose its .zarr folder")
        if name:
            self.opening.read(Path(name))

    def _ask_images(self) -> None:
        name = QFileDialog.getExistingDirectory(self, "Folder of the table's images and masks")
        if name:
            self.list_folder(Path(name))

    def list_folder(self, folder: Path) -> None:
        """List the images of the table in a folder; each is opened when a cell of it is gone to.

        Folders of another computer answer slowly, so that is done in a thread.
        """
        table, names = self.catalog.table, [image.region for image in self.catalog.images()]
        if table is None:
            return
        self.message.say(f"Looking for masks in {folder.name} …")
        listing = _Listing(table, folder, [name for name in names if name is not None])
        worker = create_worker(listing.run, _start_thread=False, _ignore_errors=True)
        worker.returned.connect(self._on_listed)
        worker.errored.connect(self._on_failed)
        self._listing = listing, worker
        worker.start()

    def _on_listed(self, listing: _Listing) -> None:
        if self._listing is None or listing is not self._listing[0]:
            return
        self._listing = None
        table, folder, found = listing.table, listing.folder, listing.found
        if table not in self.catalog.tables:
            return
        self.catalog.add_files(table, found)
        if table is not self.catalog.table:
            return
        if found:
            self.message.say(
                f"Masks of {len(found)} of {len(listing.names)} images found in {folder.name}. "
                "Each is opened when you go to a cell of it, by Zoom to or under Misplaced cells."
            )
        else:
            self.message.say(NO_MASKS.format(folder.name), "warning")

    def _ask_layers(self) -> None:
        dialog = self._dialog = MeasureDialog(*self.catalog.measurable, self)
        dialog.text.set_colors(self.message.colors)
        dialog.finished.connect(self._on_chosen)
        # Not exec: that has an event loop of its own.
        dialog.open()

    def _on_chosen(self, accepted: int) -> None:
        dialog, self._dialog = self._dialog, None
        if dialog is None:
            return
        if accepted and dialog.plan is not None:
            self.message.say("")
            self.measuring.measure(dialog.plan)
        dialog.deleteLater()

    def _on_measured(self, job: Measuring, name: str) -> None:
        if job.adata is None:
            return
        self.catalog.choose(self.catalog.add(job.adata, name))
        if self.catalog.problem is not None or self.catalog.misfit is not None:
            return
        said = f"{job.adata.n_vars} variables; no cell has a label yet. {LABEL_THEM}"
        notices = " ".join(sentence(notice) for notice in job.notices)
        self.message.say(notices or said, "warning" if notices else "info")

    def _on_opened(self, adata: AnnData, path: Path) -> None:
        self.message.say("")
        self.catalog.choose(self.catalog.add(adata, path.name, path=path))

    def _on_failed(self, error: Exception) -> None:
        self.message.say(sentence(error), "error")

    def _on_table(self, _: int) -> None:
        self.catalog.choose(self.table_box.value)

    def _on_layer(self, _: int) -> None:
        self.catalog.choose_layer(self.layer_box.value)

    def _on_ids(self, _: int) -> None:
        self.catalog.choose_ids(*self.instance_box.value)

    def _on_regions(self, _: int) -> None:
        self.catalog.choose_region_column(self.region_box.value)

    def _on_image(self, region: object, layer: Layer | None) -> None:
        self.catalog.show_region(region, layer)

    def _on_better(self) -> None:
        if self.catalog.lost is not None:
            self.catalog.keep_lost()
            return
        misfit = self.catalog.misfit
        if misfit is not None and misfit.better is not None:
            self.catalog.choose_link(misfit.better)

    def _on_stirred(self) -> None:
        self._refresh.start()

    def _on_painted(self) -> None:
        self._rejoin.start()

    # -- what is chosen --------------------------------------------------------------------------

    def _show_lists(self) -> None:
        catalog = self.catalog
        tables = [(table.name, table) for table in catalog.tables]
        self.table_box.offer(tables, catalog.table)
        self.table_box.setEnabled(bool(tables))
        layers = [(layer.name, layer) for layer in catalog.layers]
        self.layer_box.offer([(NO_LAYER, None), *layers], catalog.layer)
        self.layer_box.setEnabled(catalog.table is not None)
        self.measure_button.setEnabled(bool(catalog.measurable[0]))
        if not tables:
            self.table_box.setPlaceholderText("no table found")
            if catalog.lost is None:
                self.message.say(EMPTY)
        elif self.message.text() == EMPTY:
            self.message.say("")

    def _show_link(self) -> None:
        self._rejoin.stop()
        catalog = self.catalog
        images = catalog.images()
        self._offer_keys(catalog.link, bool(images))
        self._show_images(images)
        text = ""
        if catalog.link is None:
            text = catalog.absence()
        elif images:
            text = summary(images)
        elif catalog.join is not None:
            text = str(catalog.join)
        self.joined_text.setText(text)
        self.joined_text.setVisible(bool(text))
        self._show_problem(bool(images))
        self._show_lists()

    def _show_problem(self, of_several: bool) -> None:
        """Say what is wrong, and offer what mends it."""
        catalog = self.catalog
        link, misfit = next(iter(catalog.misfits.items()), (None, None))
        said: list[str] = []
        kind: Kind = "warning"
        if catalog.lost is not None:
            table, layer = catalog.lost
            said.append(f"{layer} was removed, and with it the table {table.name}.")
        if catalog.problem is not None:
            said.append(sentence(catalog.problem))
            kind = "error"
        elif link is not None and misfit is not None:
            said.append((f"{link.layer.name}: " if of_several else "") + misfit.text)
        elif not said:
            said += list(catalog.scales.values())[:1]
            kind = "info"
        self.message.say(" ".join(said), kind)
        better = None if misfit is None else misfit.better
        text = tip = ""
        if catalog.lost is not None:
            text, tip = (
                "Keep the table",
                "List it again, without its layer; save it to keep it longer",
            )
        elif link is not None and better is not None:
            text, tip = f"Join by {better.ids_name}", MEND
            if better.region is not None and better.region != link.region:
                text = f"{link.layer.name} shows {better.region.value}"
        self.better_button.setText(text)
        self.better_button.setToolTip(tip)
        self.better_button.setVisible(bool(text))

    def _show_images(self, images: list[TableImage]) -> None:
        """List the images, and last, where no layer shows all of them, that one could."""
        for widget in (self._cells_in, self.layer_box):
            widget.setVisible(not images)
        self.images_table.setVisible(bool(images))
        if self.images_action is not None:
            self.images_action.setEnabled(bool(images))
        if images and images[0].region is not None:
            images = [*images, TableImage(None, sum(image.n_cells for image in images))]
        self.images_table.show_images(images, self.catalog.layers)

    def _offer_keys(self, link: Link | None, several: bool) -> None:
        """Offer the columns that may hold ids, and those that may tell images apart."""
        table = self.catalog.table
        if table is not None:
            obs = table.adata.obs
            ids: dict[str, tuple[str | None, int]] = {
                str(name): (str(name), 0) for name in obs if may_be_ids(obs[name])
            }
            ids.setdefault(OBS_NAMES, (OBS_NAMES, 0))
            if link is None or link.id_column is None:
                ids = {"choose …": (None, 0), **ids}
            else:
                shifted = f" {link.shift:+}" if link.shift else ""
                ids.setdefault(f"{link.id_column}{shifted}", (link.id_column, link.shift))
            chosen = (None, 0) if link is None else (link.id_column, link.shift)
            self.instance_box.offer(ids.items(), chosen)
            regions = [(name, name) for name in region_columns(obs)]
            known = self.catalog.region_column or ONE_IMAGE
            self.region_box.offer([(NO_REGIONS, ONE_IMAGE), *regions], known)
        for widget in (self._by, self.instance_box):
            widget.setVisible(table is not None and (several or link is not None))
        # Without a word on images, a table is of one, unless its ids say something else.
        may_be = table is not None and region_column(table.adata.obs) is not None
        is_asked = several or (link is not None and (may_be or self.catalog.problem is not None))
        for widget in (self._in, self.region_box):
            widget.setVisible(is_asked and self.region_box.count() > 1)


class _Listing:
    """A folder in which a thread looks for the images of a table."""

    def __init__(self, table: Table, folder: Path, names: list[object]) -> None:
        self.table, self.folder, self.names = table, folder, names
        self.found: dict[str, ImageFiles] = {}

    def run(self) -> _Listing:
        """Look for them; runs in the thread."""
        self.found = list_images(self.folder, self.names)
        return self


def summary(images: list[TableImage]) -> str:
    """Say how many of the images are joined, and what is missing."""
    joined = [image for image in images if image.join is not None]
    whole = [image for image in joined if image.region is None]
    if whole:
        return str(whole[0].join)
    n_images = sum(image.region is not None for image in images)
    missing = sum(x.join.n_rows - x.join.n_joined for x in joined if x.join is not None)
    others = sum(x.join.n_unmatched_ids for x in joined if x.join is not None)
    return (
        f"{len(joined)} of {n_images} images open; {missing:,} of their cells not found; "
        f"{others:,} label{'s' * (others != 1)} without a row"
    )


def _dropped(event: QDropEvent) -> list[Path]:
    """The tables among what is dropped."""
    data = event.mimeData()
    paths = [Path(url.toLocalFile()) for url in data.urls()] if data is not None else []
    return [path for path in paths if path.suffix.lower() in (".h5ad", ".zarr", ".csv")]
