"""How long the napari plugin keeps the user waiting.

``python -m benchmarks.viewer`` opens a window, so it needs a screen (``xvfb-run -a`` makes one).
Latency is by how much a Qt timer of 5 ms comes late, on the Vectra field where it is at hand, else
on the sample tissue.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import TYPE_CHECKING

import napari
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.path import Path
from qtpy.QtCore import QEventLoop, Qt, QTimer
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication

import centroid_encoder as ce
from benchmarks.datasets import data_folder
from centroid_encoder.pl._regions import center_regions
from centroid_encoder.viewer.data.measuring import Measuring
from centroid_encoder.viewer.data.reader import read_adata
from centroid_encoder.viewer.map.canvas import MapCanvas
from centroid_encoder.viewer.map.scene import Panel, Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from centroid_encoder.viewer import CentroidEncoderWidget

TICK = 5
"""Milliseconds between two ticks of the timer."""
N_LABELS = 60
"""Cells that are labelled by keys."""
PER_LABEL = 500, 1500
"""Milliseconds for each cell. In the shorter time, each live map is dropped by the next label."""
N_CLASSES = 20
SIZE = 700


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--cells", type=int, nargs="*", default=[500_000])
    parser.add_argument("--only-images", action="store_true", help="leave all but --cells out")
    arguments = parser.parse_args()
    points = arguments.points
    viewer = napari.Viewer()
    started = time.perf_counter()
    widget = ce.viewer.open(viewer=viewer)
    wait(0)
    print(f"widget open after {time.perf_counter() - started:.2f} s")
    if arguments.only_images:
        for n in arguments.cells:
            many_images(widget, n)
        viewer.close()
        return
    load(widget)
    # PyTorch is imported in the background.
    wait(5000)
    latency(widget, "at rest", lambda: wait(3000))
    for name in ("first training", "second training"):
        first_frame(widget, name)
    latency(widget, "first training", lambda: train(widget))
    latency(widget, "training", lambda: train(widget))
    ending(widget)
    labelling(widget)
    latency(widget, "measuring", lambda: measure(widget))
    for n in points:
        redraw(n)
    for n in arguments.cells:
        many_images(widget, n)
    viewer.close()


def wait(milliseconds: int) -> None:
    """Let Qt run for a while."""
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


def load(widget: CentroidEncoderWidget) -> None:
    """Open image, labels and table."""
    data = data_folder()
    if data is not None and (data / "vectra_6plex").is_dir():
        folder = data / "vectra_6plex"
        from skimage.io import imread

        widget.viewer.add_image(imread(folder / "composite_image.jpg"), rgb=True)
        widget.viewer.add_labels(imread(folder / "labels_nucleus.tif"), name="labels_nucleus")
        widget.catalog.choose(widget.catalog.add(read_adata(folder / "cells.h5ad"), "cells"))
        widget.form.missing.value = "mean"
    else:
        widget.viewer.open_sample("centroid-encoder", "tissue")
    wait(1000)
    assert widget.catalog.table is not None
    print(f"{widget.catalog.table.name}: {widget.data.joined_text.text()}")


def train(widget: CentroidEncoderWidget) -> None:
    """Train to the end."""
    widget.train()
    while widget.training is not None:
        wait(10)


def labelling(widget: CentroidEncoderWidget) -> None:
    """Print the latency while suggested cells are labelled by keys and the live map follows."""
    session, queue, label_key = widget.session, widget.queue, widget.form.label_key.value
    adata, canvas = session.adata, widget.viewer.window._qt_viewer.canvas.native
    assert adata is not None
    truth = adata.obs[label_key].astype(str)
    widget.tabs.setCurrentWidget(widget.label)
    session.start_labeling("benchmark")
    for name in truth.value_counts().index[:9]:
        widget.label.name_line.setText(name)
        widget.label.add_class()
    queue.suggest()
    while queue.queue.current is None:
        wait(10)
    names = [one.name for one in widget.label.classes]
    maps: list[object] = []
    session.draft_changed.connect(lambda: maps.append(session.draft))

    def label_all(milliseconds: int) -> None:
        for _ in range(N_LABELS):
            if (cell := queue.queue.current) is not None:
                name = truth.iloc[cell.row]
                key = str(1 + names.index(name)) if name in names else "N"
                QTest.keyClick(canvas, Qt.Key(ord(key)))
            wait(milliseconds)

    for milliseconds in PER_LABEL:
        name = f"{N_LABELS} labels by keys, one in {milliseconds} ms"
        latency(widget, name, partial(label_all, milliseconds))
    assert session.labeling is not None
    print(f"    {len(session.labeling.labels)} cells are labelled; {len(maps)} live maps")
    widget.label.end()


def measure(widget: CentroidEncoderWidget) -> None:
    """Measure a hundred thousand cells in four channels."""
    side, pitch = 316, 12
    at = np.arange(side * pitch)
    inside = (at % pitch - pitch / 2) ** 2
    labels = at[:, None] // pitch * side + at // pitch + 1
    labels = np.where(inside[:, None] + inside < 26, labels, 0).astype(np.int32)
    rng = np.random.default_rng(0)
    channels = {str(i): rng.integers(2**16, size=labels.shape, dtype=np.uint16) for i in range(4)}
    spacing = {"cells": (1.0, 1.0)}
    plan = Measuring({"cells": labels}, {"cells": channels}, spacing, "px", time_series=False)
    cpu, started = time.process_time(), time.perf_counter()
    widget.data.measuring.begin(lambda: plan, "Measuring cells")
    while widget.data.measuring.task is not None:
        wait(10)
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - started
    print(f"{side**2:,} cells measured in {seconds:.1f} s, {cpu:.1f} s of CPU with the window's")


def many_images(widget: CentroidEncoderWidget, n_cells: int) -> None:
    """Print how long it takes to join, colour and select cells of four images in one table.

    The longest gap is the longest time in which Qt answers nothing, until all is drawn.
    """
    viewer, n_images = widget.viewer, 4
    viewer.layers.clear()
    side = int(np.ceil((n_cells / n_images) ** 0.5))
    ids = np.arange(1, side * side + 1).reshape(side, side)
    ids[ids > n_cells // n_images] = 0
    stamp = np.pad(np.ones((8, 8), dtype=np.int32), ((0, 2), (0, 2)))
    labels = np.kron(ids.astype(np.int32), stamp)
    n = n_cells // n_images
    obs = pd.DataFrame(
        {
            "image": pd.Categorical(np.repeat(list("ABCD"), n)),
            "cell_id": np.tile(np.arange(1, n + 1), n_images),
            "cell_type": pd.Categorical.from_codes(
                np.arange(n * n_images) % 10, list("abcdefghij")
            ),
        },
        index=np.arange(n * n_images).astype(str),
    )
    for i, name in enumerate("ABCD"):
        layer = viewer.add_labels(labels.copy(), name=f"{name}_mask")
        layer.translate = divmod(i, 2) * np.array(labels.shape)
    adata = AnnData(np.zeros((len(obs), 2), np.float32), obs=obs)
    times = {}

    def measure(what: str, act: Callable[[], object]) -> None:
        ticks: list[float] = []
        timer = QTimer()
        timer.setTimerType(Qt.TimerType.PreciseTimer)
        timer.timeout.connect(lambda: ticks.append(time.perf_counter()))
        timer.start(TICK)
        cpu, started = time.process_time(), time.perf_counter()
        act()
        QApplication.processEvents()
        used = time.process_time() - cpu, time.perf_counter() - started
        # napari draws when it is next asked to.
        wait(500)
        timer.stop()
        times[what] = *used, float(np.diff([started, *ticks]).max())

    measure("join", lambda: widget.show_table(adata, label_key="cell_type"))
    assert len(widget.catalog.joins) == n_images
    # The first colours of a kind compile napari's code for them.
    measure("first colour", lambda: widget.cells.color_box.setCurrentText("label"))
    measure("take away", lambda: widget.cells.color_box.setCurrentText("as it was"))
    measure("colour", lambda: widget.cells.color_box.setCurrentText("label"))
    rows = np.random.default_rng(0).permutation(len(obs))
    measure("select first 10 %", lambda: widget.select(rows[: len(rows) // 10]))
    measure("select 10 %", lambda: widget.select(rows[-len(rows) // 10 :]))
    measure("select one", lambda: widget.select(rows[:1]))
    measure("select none", widget.cells.clear)
    pixels = " x ".join(map(str, labels.shape))
    print(f"{len(obs):,} cells in {n_images} images of {pixels} pixels")
    for what, (cpu, wall, gap) in times.items():
        print(f"    {what}: {wall:.2f} s, of the processors {cpu:.2f} s, longest gap {gap:.2f} s")
    viewer.layers.clear()


def first_frame(widget: CentroidEncoderWidget, name: str) -> None:
    """Print how long it takes from **Train** to the first picture of the training."""
    loop, session, framed = QEventLoop(), widget.session, []

    def on_framed(*_: object) -> None:
        framed.append(time.perf_counter())

    def on_drawn(_: object) -> None:
        if framed:
            loop.quit()

    session.framed.connect(on_framed)
    canvas = widget.map.canvas.canvas
    connection = canvas.mpl_connect("draw_event", on_drawn)
    started, processors = time.perf_counter(), time.process_time()
    widget.train()
    loop.exec()
    drawn, processors = time.perf_counter(), time.process_time() - processors
    session.framed.disconnect(on_framed)
    canvas.mpl_disconnect(connection)
    print(
        f"{name}: first frame computed after {framed[0] - started:.2f} s, drawn after "
        f"{drawn - started:.2f} s; of the processors {processors:.2f} s"
    )
    widget.cancel()
    wait(1000)


def latency(widget: CentroidEncoderWidget, name: str, act: object) -> None:
    """Print by how much a timer is late while something goes on."""
    ticks: list[float] = []
    timer = QTimer(widget)
    timer.setTimerType(Qt.TimerType.PreciseTimer)
    timer.timeout.connect(lambda: ticks.append(time.perf_counter()))
    timer.start(TICK)
    started = time.perf_counter()
    act()  # type: ignore[operator]
    seconds = time.perf_counter() - started
    timer.stop()
    late = 1000 * np.diff(ticks) - TICK
    quantiles = ", ".join(f"{q} % {np.percentile(late, q):.1f}" for q in (50, 99, 99.9))
    print(
        f"{name}: {seconds:.1f} s, {len(late)} ticks, late by {quantiles}, "
        f"at most {late.max():.1f} ms; {int((late > 50).sum())} above 50 ms"
    )


def ending(widget: CentroidEncoderWidget) -> None:
    """Print how soon Stop and Cancel are answered."""
    for name in ("cancel", "stop"):
        seconds: list[float] = []
        for _ in range(5):
            widget.train()
            assert widget.training is not None
            thread = widget.training
            while not widget.trainer.progress._stop.isEnabled():
                wait(5)
            started = time.perf_counter()
            getattr(widget, name)()
            while widget.training is not None or thread.is_running:
                wait(1)
            seconds.append(time.perf_counter() - started)
        print(f"{name}: thread and widget at rest after {max(seconds):.2f} s at most (5 times)")


def redraw(n: int) -> None:
    """Print how long one panel takes to be drawn."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(-8, 8, (N_CLASSES, 2))
    codes = rng.integers(N_CLASSES, size=n)
    points = (centers[codes] + rng.normal(size=(n, 2))).astype(np.float32)
    limits = np.array([[-12.0, -12.0], [12.0, 12.0]])
    scene = Scene(
        points,
        codes,
        (Panel(f"n = {n:,}", np.arange(n)),),
        center_regions(centers, limits),
        limits,
        tuple(map(str, range(N_CLASSES))),
        centers,
    )
    colors = [f"C{i % 10}" for i in range(N_CLASSES)]
    canvas = MapCanvas()
    canvas.resize(SIZE, SIZE)
    canvas.show()
    wait(100)
    canvas.map.show(scene, colors)
    times: dict[str, list[float]] = {"all": [], "selection": [], "lasso": []}
    ax = canvas.map.axes[0]
    angles = np.linspace(0, 2 * np.pi, 150)
    lasso = (0.5 + 0.3 * np.column_stack([np.cos(angles), np.sin(angles)])) * SIZE
    outline = Path(ax.transData.inverted().transform(lasso))
    for _ in range(7):
        times["all"].append(timed(canvas.canvas.draw))
        selected = rng.random(n) < 0.1
        times["selection"].append(timed(lambda selected=selected: canvas.map.select(selected)))
        times["lasso"].append(timed(lambda: canvas.map.within(ax, outline)))
    medians = ", ".join(f"{name} {np.median(values):.3f} s" for name, values in times.items())
    print(f"{n:,} points: {medians}")
    canvas.close()


def timed(act: object) -> float:
    """Seconds that something takes."""
    started = time.perf_counter()
    act()  # type: ignore[operator]
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
