"""Waiting times in the napari plugin.

    python -m benchmarks.viewer                               # everything
    python -m benchmarks.viewer --only-images --cells 500000  # one table of four images alone

The program opens a window and needs a screen; ``xvfb-run -a`` provides a virtual one. It uses the
Vectra tissue if the data folder has it, and the sample tissue otherwise. It prints

- the time until the widget is open, and until a training has drawn its first picture;
- the latency at rest, while a map is trained, while cells are labelled with keys, and while cells
  are measured: a Qt timer ticks every 5 ms, and its delay is the time for which the window does not
  react;
- the time from Cancel or Stop to the end of the training;
- the time to draw maps of many points, to select a tenth of them, and to find those in a lasso;
- the time to join, colour and select the cells of four large label images in one table.
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
from centroid_encoder.tl._measure import Measurement
from centroid_encoder.viewer.data.reader import read_table
from centroid_encoder.viewer.map.canvas import MapCanvas
from centroid_encoder.viewer.map.scene import Scene
from centroid_encoder.viewer.session.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from centroid_encoder.viewer import CentroidEncoderWidget

TICK = 5
"""Milliseconds between two ticks of the timer."""
N_LABELS = 60
"""Number of keys that are pressed to label cells."""
PER_LABEL = 500, 1500
"""Milliseconds between two keys; in the shorter time, the next label cancels each live map."""
N_CLASSES = 20
"""Classes in the maps of `redraw`."""
SIZE = 700
"""Width and height of these maps in pixels."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--points",
        type=int,
        nargs="*",
        default=[10_000, 100_000, 1_000_000],
        help="numbers of points of the maps that are drawn",
    )
    parser.add_argument(
        "--cells", type=int, nargs="*", default=[500_000], help="numbers of cells in four images"
    )
    parser.add_argument(
        "--only-images", action="store_true", help="measure only the cells in four images"
    )
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
    settle(widget)
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
    """Run the event loop of Qt for some milliseconds."""
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


def settle(widget: CentroidEncoderWidget) -> None:
    """Wait until the first map of the table is drawn."""
    wait(500)
    while widget.label.live.is_due:
        wait(10)


def load(widget: CentroidEncoderWidget) -> None:
    """Open the image, the label image and the table, and print the name of the table."""
    data = data_folder()
    if data is not None and (data / "vectra_6plex").is_dir():
        folder = data / "vectra_6plex"
        from skimage.io import imread

        widget.viewer.add_image(imread(folder / "composite_image.jpg"), rgb=True)
        widget.viewer.add_labels(imread(folder / "labels_nucleus.tif"), name="labels_nucleus")
        widget.catalog.choose(widget.catalog.add(read_table(folder / "cells.h5ad")[0], "cells"))
        widget.form.missing.value = "mean"
    else:
        widget.viewer.open_sample("centroid-encoder", "tissue")
    wait(1000)
    assert widget.catalog.table is not None
    print(f"{widget.catalog.table.name}: {widget.data.joined_text.text()}")


def train(widget: CentroidEncoderWidget) -> None:
    """Press **Train**, and wait until the training has ended."""
    widget.train()
    while widget.training is not None:
        wait(10)


def labelling(widget: CentroidEncoderWidget) -> None:
    """Print the latency while suggested cells are labelled with keys.

    Labelling starts with the nine most frequent classes of the label column. At each time, the key
    for the true class of the suggested cell is pressed, or **N** (skip) if the cell is of another
    class. 400 ms after a label, the plugin begins to train a live map in the background. The next
    label cancels it if it comes soon (500 ms); later (1,500 ms), live maps are finished and drawn.
    Prints both latencies, the number of labelled cells, and the number of live maps.
    """
    session, queue, label_key = widget.session, widget.queue, widget.form.label_key.value
    adata, canvas = session.adata, widget.viewer.window._qt_viewer.canvas.native
    assert adata is not None
    truth = adata.obs[label_key].astype(str)
    widget.show_mode(widget.label)
    session.start_labeling("benchmark")
    for name in truth.value_counts().index[:9]:
        widget.label.name_line.setText(name)
        widget.label.add_class()
    queue.suggest()
    while queue.current is None:
        wait(10)
    labeling = session.state.labeling
    assert labeling is not None
    names = [one.name for one in labeling.classes]
    maps: list[object] = []

    def count_maps(before: State, now: State) -> None:
        if now.draft is not None and now.draft is not before.draft:
            maps.append(now.draft)

    session.show_in(count_maps)

    def label_all(milliseconds: int) -> None:
        for _ in range(N_LABELS):
            if (cell := queue.current) is not None:
                name = truth.iloc[cell.row]
                key = str(1 + names.index(name)) if name in names else "N"
                QTest.keyClick(canvas, Qt.Key(ord(key)))
            wait(milliseconds)

    for milliseconds in PER_LABEL:
        name = f"{N_LABELS} labels by keys, one in {milliseconds} ms"
        latency(widget, name, partial(label_all, milliseconds))
    n_labels, n_maps = len(labeling.labels), len(maps)
    print(f"    {n_labels} cells are labelled; {n_maps} live maps finished")
    widget.label.end()


def measure(widget: CentroidEncoderWidget) -> None:
    """Measure a hundred thousand cells in four channels, and print the seconds."""
    side, pitch = 316, 12
    at = np.arange(side * pitch)
    inside = (at % pitch - pitch / 2) ** 2
    labels = at[:, None] // pitch * side + at // pitch + 1
    labels = np.where(inside[:, None] + inside < 26, labels, 0).astype(np.int32)
    rng = np.random.default_rng(0)
    channels = {str(i): rng.integers(2**16, size=labels.shape, dtype=np.uint16) for i in range(4)}
    spacing = {"cells": (1.0, 1.0)}
    plan = Measurement({"cells": labels}, {"cells": channels}, spacing, "px", time_series=False)
    cpu, started = time.process_time(), time.perf_counter()
    widget.data.measure(plan)
    while widget.data.measuring.task is not None:
        wait(10)
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - started
    print(
        f"{side**2:,} cells measured in {seconds:.1f} s; processor time of the whole program, "
        f"window included, {cpu:.1f} s"
    )


def many_images(widget: CentroidEncoderWidget, n_cells: int) -> None:
    """Print the time to join, colour and select the cells of four images in one table.

    For each action, prints the time until it returns, the processor time, and the longest time
    between two ticks of the timer until everything is drawn; in this time the window does not
    react.
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

    def record(what: str, act: Callable[[], object]) -> None:
        ticks: list[float] = []
        timer = QTimer()
        timer.setTimerType(Qt.TimerType.PreciseTimer)
        timer.timeout.connect(lambda: ticks.append(time.perf_counter()))
        timer.start(TICK)
        cpu, started = time.process_time(), time.perf_counter()
        act()
        QApplication.processEvents()
        used = time.process_time() - cpu, time.perf_counter() - started
        # napari draws later, in its event loop.
        wait(500)
        timer.stop()
        times[what] = *used, float(np.diff([started, *ticks]).max())

    record("join", lambda: widget.show_table(adata, label_key="cell_type"))
    assert len(widget.catalog.joins) == n_images
    settle(widget)
    # The first colouring includes the time in which napari compiles its code for it.
    record("first colour", lambda: widget.cells.color_box.choose("label"))
    record("remove the colours", lambda: widget.cells.color_box.choose("original colours"))
    record("colour", lambda: widget.cells.color_box.choose("label"))
    rows = np.random.default_rng(0).permutation(len(obs))
    record("first selection, 10 %", lambda: widget.select(rows[: len(rows) // 10]))
    record("select 10 %", lambda: widget.select(rows[-len(rows) // 10 :]))
    record("select one", lambda: widget.select(rows[:1]))
    record("select none", lambda: widget.select(rows[:0]))
    pixels = " x ".join(map(str, labels.shape))
    print(f"{len(obs):,} cells in {n_images} images of {pixels} pixels")
    for what, (cpu, wall, gap) in times.items():
        print(f"    {what}: {wall:.2f} s, processor time {cpu:.2f} s, longest gap {gap:.2f} s")
    viewer.layers.clear()


def first_frame(widget: CentroidEncoderWidget, name: str) -> None:
    """Print the time from **Train** to the first picture of the training, and cancel it."""
    loop, session, framed = QEventLoop(), widget.session, []

    def note_frame(before: State, now: State) -> None:
        if now.frame is not None and now.frame is not before.frame:
            framed.append(time.perf_counter())

    def on_drawn(_: object) -> None:
        if framed:
            loop.quit()

    session.show_in(note_frame)
    canvas = widget.map.canvas.canvas
    connection = canvas.mpl_connect("draw_event", on_drawn)
    started, cpu = time.perf_counter(), time.process_time()
    widget.train()
    loop.exec()
    drawn, cpu = time.perf_counter(), time.process_time() - cpu
    canvas.mpl_disconnect(connection)
    print(
        f"{name}: first picture computed after {framed[0] - started:.2f} s, drawn after "
        f"{drawn - started:.2f} s; processor time {cpu:.2f} s"
    )
    widget.cancel()
    wait(1000)


def latency(widget: CentroidEncoderWidget, name: str, act: Callable[[], object]) -> None:
    """Print the delays of a Qt timer while a function runs: quantiles and the maximum, in ms."""
    ticks: list[float] = []
    timer = QTimer(widget)
    timer.setTimerType(Qt.TimerType.PreciseTimer)
    timer.timeout.connect(lambda: ticks.append(time.perf_counter()))
    timer.start(TICK)
    started = time.perf_counter()
    act()
    seconds = time.perf_counter() - started
    timer.stop()
    late = 1000 * np.diff(ticks) - TICK
    quantiles = ", ".join(f"{q} % {np.percentile(late, q):.1f}" for q in (50, 99, 99.9))
    print(
        f"{name}: {seconds:.1f} s, {len(late)} ticks, delays in ms: {quantiles}, "
        f"maximum {late.max():.1f}; {int((late > 50).sum())} above 50 ms"
    )


def ending(widget: CentroidEncoderWidget) -> None:
    """Print the time from Cancel or Stop to the end of the training, the longest of five."""
    for name in ("cancel", "stop"):
        seconds: list[float] = []
        for _ in range(5):
            widget.train()
            assert widget.training is not None
            thread = widget.training
            while not widget.training_panel.progress._stop.isEnabled():
                wait(5)
            started = time.perf_counter()
            getattr(widget, name)()
            while widget.training is not None or thread.is_running:
                wait(1)
            seconds.append(time.perf_counter() - started)
        print(f"{name}: the training thread ends after at most {max(seconds):.2f} s (5 times)")


def redraw(n: int) -> None:
    """Print the median times to draw a map of n points, to select 10 % of them and to lasso."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(-8, 8, (N_CLASSES, 2))
    codes = rng.integers(N_CLASSES, size=n)
    points = (centers[codes] + rng.normal(size=(n, 2))).astype(np.float32)
    limits = np.array([[-12.0, -12.0], [12.0, 12.0]])
    scene = Scene(
        points,
        codes,
        np.arange(n),
        center_regions(centers, limits),
        limits,
        tuple(map(str, range(N_CLASSES))),
        centers,
    )
    colors = [f"C{i % 10}" for i in range(N_CLASSES)]
    canvas = MapCanvas(lambda *_: None, str)
    canvas.resize(SIZE, SIZE)
    canvas.show()
    wait(100)
    canvas.map.show(scene, colors)
    times: dict[str, list[float]] = {"all": [], "selection": [], "lasso": []}
    angles = np.linspace(0, 2 * np.pi, 150)
    lasso = (0.5 + 0.3 * np.column_stack([np.cos(angles), np.sin(angles)])) * SIZE
    outline = Path(canvas.map.ax.transData.inverted().transform(lasso))
    for _ in range(7):
        times["all"].append(timed(canvas.canvas.draw))
        selected = rng.random(n) < 0.1
        times["selection"].append(timed(partial(canvas.map.select, selected)))
        times["lasso"].append(timed(lambda: canvas.map.within(outline)))
    medians = ", ".join(f"{name} {np.median(values):.3f} s" for name, values in times.items())
    print(f"{n:,} points: {medians}")
    canvas.close()


def timed(act: Callable[[], object]) -> float:
    """Return the seconds that a function takes."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
