"""Label nuclei in napari with simulated clicks and keys, and make the film of docs/labelling.md.

    xvfb-run -a -s '-screen 0 1600x1000x24' python examples/labelling_film.py

This takes some minutes. The image is a sample of scikit-image.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

# Keep the settings of napari and the journals of labels out of the user's folders.
os.environ["NAPARI_CONFIG"] = ""
os.environ["CENTROID_ENCODER_JOURNALS"] = tempfile.mkdtemp()

import napari
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from qtpy.QtCore import QPoint, Qt
from qtpy.QtGui import QKeySequence
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QWidget
from scipy import ndimage
from scipy.spatial.distance import cdist
from skimage import color, data, feature, filters, measure, segmentation

import centroid_encoder as ce
from centroid_encoder.viewer.panels.measure import MeasureDialog

PATH = Path("docs/images/labelling.webp")
WIDTH, HEIGHT, BAR = 1500, 900, 44
"""Size of the window, and height of the bar with the caption above it, in pixels."""
FONT, YELLOW = ImageFont.load_default(22), "#ffd166"
LEFT = Qt.MouseButton.LeftButton
TURNS = np.linspace(0, 2 * np.pi, 30)
"""Angles of the points of a lasso."""
CLASSES = "stroma", "gland", "fragment"
FRAGMENT = 60
"""Area in pixels of the largest object in a gland that is called a fragment of a nucleus."""


class Film:
    """Simulated clicks and keys in napari, and pictures of the window with captions.

    A caption is shown in all pictures until there is a new one.
    """

    def __init__(self, viewer: napari.Viewer) -> None:
        self.window, self.caption = viewer.window._qt_window, ""
        self.image: QWidget = viewer.window._qt_viewer.canvas.native
        self.widget = ce.viewer.open(viewer=viewer)
        self.pictures, self.times = list[Image.Image](), list[int]()

    def settle(self) -> None:
        """Wait for measurements, trainings, suggestions and their pictures."""
        widget, queue = self.widget, self.widget.queue
        QTest.qWait(400)
        while (
            (widget.data.measuring.isVisible() or widget.training or widget.save_row.task)
            or (widget.label.live.is_due or queue.is_searching)
            or (queue.strip.isVisible() and None in queue.strip.pictures)
        ):
            QTest.qWait(100)

    def take(self, caption: str = "", seconds: float = 2, at: Any = None, key: str = "") -> None:
        """Take a picture that the film shows for some seconds.

        A ring marks the point ``at`` on the screen, and the caption bar names the ``key``.
        """
        self.settle()
        self.caption = caption or self.caption
        picture = Image.new("RGB", (WIDTH, HEIGHT + BAR))
        draw, origin = ImageDraw.Draw(picture), self.window.mapToGlobal(QPoint(0, -BAR))
        # Dialogs are separate windows; they are drawn over the main window.
        windows = [one for one in QApplication.topLevelWidgets() if one.isVisible()]
        for one in sorted(windows, key=lambda one: one is not self.window):
            place = one.mapToGlobal(QPoint(0, 0)) - origin
            picture.paste(Image.fromqpixmap(one.grab()), (place.x(), place.y()))
        draw.text((16, BAR / 2), self.caption, font=FONT, anchor="lm")
        if key:
            draw.text((WIDTH - 16, BAR / 2), f"key: {key}", YELLOW, FONT, "rm")
        if at is not None:
            draw.circle(((at - origin).x(), (at - origin).y()), 17, outline=YELLOW, width=3)
        self.pictures.append(picture)
        self.times.append(round(1000 * seconds))

    def click(self, place: QWidget, caption: str = "", *, after: float = 0, at: Any = None) -> None:
        """Take a picture, click a point of a widget, and take another picture.

        The second picture is shown for ``after`` seconds; with 0, there is none.
        """
        self.settle()
        at = place.rect().center() if at is None else at
        self.take(caption, 1.5, place.mapToGlobal(at))
        QTest.mouseClick(place, LEFT, pos=at)
        if after:
            self.take(seconds=after)

    def press(self, keys: str, caption: str = "", seconds: float = 0, at: Any = None) -> None:
        """Press a key or a combination of keys in the image, and take a picture if ``seconds``."""
        pressed = QKeySequence(keys)[0]
        QTest.keyClick(self.image, pressed.key(), pressed.keyboardModifiers())
        if seconds:
            self.take(caption, seconds, at, keys)


def main() -> None:
    """Measure, label, suggest, apply, train, check and save, with pictures of each step."""
    image, labels, truth, area = tissue()
    viewer = napari.Viewer(show_welcome_screen=False)
    viewer.window.resize(WIDTH, HEIGHT)
    viewer.add_image(image, rgb=True, name="tissue")
    viewer.add_labels(labels, name="nuclei").contour = 1
    film, keys = Film(viewer), [str(1 + one) for one in truth]
    widget, session, label = film.widget, film.widget.session, film.widget.label
    queue, trainer, tabs = widget.queue, widget.training_panel, widget.tabs
    lasso_button = widget.map.canvas.buttons["lasso"]

    def places() -> np.ndarray:
        camera, middle = viewer.scene.camera, film.image.rect().center()
        offsets = (session.adata.obsm["spatial"] - camera.center[:0:-1]) * camera.zoom
        return np.round(offsets + np.array([middle.x(), middle.y()])).astype(int)

    def lasso(place: QWidget, points: np.ndarray, code: int, caption: str) -> None:
        """Draw a circle around twelve points, all of one class, and press its key."""
        near = cdist(points, points).argsort(axis=1)[:, :12]
        near = near[((truth == code) & (session.state.labeling.codes < 0))[near].all(axis=1)]
        radii = np.linalg.norm(points[near] - points[near[:, :1]], axis=2).max(axis=1)
        i = radii.argsort()[len(near) // 4]
        ring = points[near[i, 0]] + 1.01 * radii[i] * np.transpose([np.cos(TURNS), np.sin(TURNS)])
        way = [QPoint(x, y) for x, y in ring.round().astype(int).tolist()]
        QTest.mousePress(place, LEFT, pos=way[0])
        for at in way:
            QTest.mouseMove(place, at)
            QTest.qWait(10)
        film.take(caption)
        QTest.mouseRelease(place, LEFT, pos=way[-1])
        film.take()
        assert (truth[session.state.selected] == code).all()
        film.press(str(1 + code), "… and press the key of a class: all of them have the label.", 2)

    film.take("A tissue, and a label image of its nuclei. No nucleus has a class yet.", 4)
    viewer.window._qt_viewer.dockLayerControls.hide()
    viewer.window._qt_viewer.dockLayerList.hide()
    film.settle()
    viewer.reset_view()
    measure_button = widget.map.starts.itemAt(1).widget()
    film.click(measure_button, "Measure cells makes a table of sizes, shapes and colours.")
    film.click(widget.data.findChild(MeasureDialog).measure_button, after=3)

    film.click(tabs, "Under Label, press Start labelling.", at=tabs.tabRect(1).center())
    film.click(label.start_button)
    for name in CLASSES:
        QTest.keyClicks(label.name_line, name + "\r")
        film.take("Type the names of the classes. Each gets a colour and a key.", 1.2, key="Enter")
    rng = np.random.default_rng(0)
    clear = [np.flatnonzero((truth == i) & ((area > 2 * FRAGMENT) | (i == 2))) for i in range(3)]
    first, *others = np.transpose([rng.choice(rows, 5, replace=False) for rows in clear]).flat
    film.click(film.image, "Click a nucleus …", after=1.5, at=QPoint(*places()[first].tolist()))
    film.press(keys[first], "… and press the key of its class.", 2)
    for row in others:
        at = QPoint(*places()[row].tolist())
        QTest.mouseClick(film.image, LEFT, pos=at)
        caption = "1 is stroma, 2 is gland, 3 is a fragment of a nucleus."
        film.press(keys[row], caption, 0.8, film.image.mapToGlobal(at))
    film.take("A map is trained in each pause. Each point is a nucleus.", 4)
    plot = widget.map.canvas
    points = plot.map.ax.transData.transform(session.state.drawn.embedding)
    points[:, 1] = plot.canvas.height() - points[:, 1]
    lasso(plot.canvas, points, 1, "Lasso points in the map …")
    film.click(lasso_button, "… or nuclei in the image …", after=1)
    lasso(film.image, places(), 0, "")
    QTest.mouseClick(lasso_button, LEFT)
    for key in ("Ctrl+Z", "Ctrl+Shift+Z"):
        film.press(key, "Undo and redo take every step back and forth.", 1.5)

    film.click(queue.suggest_button, "Suggest shows the nuclei whose labels teach most.", after=2)
    for _ in range(12):
        (row,) = np.flatnonzero(session.state.selected)
        is_right = queue.current.label == CLASSES[truth[row]]
        caption = "Enter accepts the proposed class." if is_right else "Another key corrects it."
        film.take(caption, 1.5, key="Enter" if is_right else keys[row])
        film.press("Return" if is_right else keys[row])
    film.take("Pictures show the next nuclei with their proposals.", 4)
    strip = queue.strip
    place = strip.visualItemRect(strip.item(4)).center()
    QTest.mouseClick(strip.viewport(), LEFT, pos=place)
    film.settle()
    at, row = strip.viewport().mapToGlobal(place), queue.current.row
    film.take("A click on a picture goes to this nucleus.", 3, at)
    film.press(keys[row])
    film.settle()

    viewer.reset_view()
    film.click(queue.apply_button, "Apply to all writes the classes of all others …")
    film.take("… and colours them in the image and in the map.", 4)
    film.click(label.start_button, "Done ends the labelling.")
    film.click(trainer.train_button, "Train makes the map that is stored.", after=3)
    menu = widget.menu_button.menu()
    menu.popup(widget.menu_button.mapToGlobal(QPoint(-200, widget.menu_button.height())))
    at = menu.mapToGlobal(menu.actionGeometry(trainer.check_action).center())
    film.take("Check labels cross-validates, and lists nuclei to review.", 2, at)
    menu.hide()
    trainer.check()
    film.take(seconds=4)
    widget.save_row.save_table(Path(tempfile.mkdtemp(), "cells.h5ad"))
    n = int(session.adata.obs["cell_type"].notna().sum())
    film.take(f"Save keeps {n} labels by hand, and a class for each of {len(truth)} nuclei.", 5)
    first, *others = film.pictures
    options = {"quality": 80, "method": 6, "minimize_size": True, "loop": 0}
    first.save(PATH, save_all=True, append_images=others, duration=film.times, **options)
    print(f"Wrote {PATH}: {len(film.times)} pictures, {sum(film.times) / 1000:.0f} s")
    viewer.close()


def tissue() -> tuple[Any, ...]:
    """Return the image, the label image of nuclei, and the classes and areas of the nuclei.

    The segmentation is that of docs/measure.md. Nuclei that are surrounded by the stain DAB are in
    a gland.
    """
    image = data.immunohistochemistry()
    red, _, blue = np.moveaxis(filters.gaussian(image, sigma=1.5, channel_axis=-1), -1, 0)
    bluer = blue - red > filters.threshold_local(blue - red, block_size=51)
    mask = ndimage.binary_opening(bluer & (red < filters.threshold_otsu(red)), iterations=2)
    depth = filters.gaussian(ndimage.distance_transform_edt(mask), sigma=1.5)
    peaks = feature.peak_local_max(depth, min_distance=4, labels=measure.label(mask))
    seeds = np.zeros(mask.shape, dtype=int)
    seeds[tuple(peaks.T)] = np.arange(1, len(peaks) + 1)
    labels = segmentation.watershed(-depth, seeds, mask=mask)
    ids, area = np.unique(labels[mask], return_counts=True)
    dab = ndimage.mean(filters.gaussian(color.rgb2hed(image)[..., 2], sigma=10), labels, ids)
    in_gland = dab > filters.threshold_otsu(dab)
    return image, labels, np.where(in_gland, np.where(area > FRAGMENT, 1, 2), 0), area


if __name__ == "__main__":
    main()
