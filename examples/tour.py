"""Use the plugin on the sample tissue and take the pictures of the tutorial.

    xvfb-run -a -s '-screen 0 1600x1000x24' python examples/tour.py docs/images

writes ``tour-*.png``, and ``unfolding.gif``, an animation of the map during the training beside the
tissue.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import napari
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from qtpy.QtCore import QEventLoop, QPoint, QTimer
from qtpy.QtWidgets import QWidget
from superqt.utils import qimage_to_array

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget

SIZE = 1500, 950
SMALL = 900, 570
FRAME = 150
"""Milliseconds for which a frame of the animation is shown."""
STILL = 2500
"""Milliseconds for which its last frame is shown."""
COLORS = 255
"""Number of colours of the animation."""


def main() -> None:
    """Open the sample, train, and review a cell, with a picture after each step."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("folder", type=Path, help="folder for the pictures")
    folder: Path = arguments.parse_args().folder
    folder.mkdir(exist_ok=True, parents=True)

    viewer = napari.Viewer()
    viewer.window.resize(*SIZE)
    viewer.open_sample("centroid-encoder", "tissue")
    widget = ce.viewer.open(viewer=viewer)
    wait(1000)
    while widget.label.live.is_due:
        wait(100)
    write(window(viewer), folder / "tour-open.png")

    frames = [*unfold(viewer, widget)]
    wait(1500)
    trained = window(viewer)
    write(trained, folder / "tour-trained.png")
    animate([*frames, trained], folder / "unfolding.gif")

    widget.show_mode(widget.misplaced)
    labels = widget.misplaced.model.table["label"].tolist()
    widget.misplaced.view.selectRow(labels.index("macrophage"))
    widget.misplaced.turn()
    wait(1500)
    write(window(viewer), folder / "tour-misplaced.png")
    viewer.close()


def unfold(viewer: napari.Viewer, widget: CentroidEncoderWidget) -> list[NDArray[np.uint8]]:
    """Train, and return a picture of the window after each change of the map."""
    widget.train()
    frames: list[NDArray[np.uint8]] = []
    still = window(viewer)
    while widget.training is not None:
        wait(200)
        # A picture of the whole window takes as long as an epoch, so only the dock is pasted into
        # the first picture.
        frame = still.copy()
        paste(frame, widget, viewer)
        if not frames or (frame != frames[-1]).any():
            frames.append(frame)
    return frames


def paste(frame: NDArray[np.uint8], part: QWidget, viewer: napari.Viewer) -> None:
    """Paste a picture of a widget into a picture of the window."""
    pixels = qimage_to_array(part.grab().toImage())[..., :3]
    at = part.mapTo(viewer.window._qt_window, QPoint(0, 0))
    height, width = frame[at.y() :, at.x() :].shape[:2]
    pixels = pixels[:height, :width]
    frame[at.y() : at.y() + pixels.shape[0], at.x() : at.x() + pixels.shape[1]] = pixels


def window(viewer: napari.Viewer) -> NDArray[np.uint8]:
    """Return a picture of the whole window."""
    return viewer.screenshot(canvas_only=False, flash=False)[..., :3]


def write(pixels: NDArray[np.uint8], path: Path) -> None:
    """Save a picture in 256 colours, which need a quarter of the space and look the same."""
    image = Image.fromarray(pixels).quantize(256, dither=Image.Dither.NONE)
    image.save(path, optimize=True)
    print(f"Wrote {path}, {path.stat().st_size / 1e6:.1f} MB")


def animate(frames: list[NDArray[np.uint8]], path: Path) -> None:
    """Save pictures as an animation, in the colours of the last picture."""
    small = [Image.fromarray(frame).resize(SMALL, Image.Resampling.LANCZOS) for frame in frames]
    palette = small[-1].quantize(COLORS)
    shown = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small]
    times = [FRAME] * (len(shown) - 1) + [STILL]
    shown[0].save(
        path, save_all=True, append_images=shown[1:], duration=times, loop=0, optimize=True
    )
    print(f"Wrote {path}, {len(shown)} frames, {path.stat().st_size / 1e6:.1f} MB")


def wait(milliseconds: int) -> None:
    """Run the event loop of napari for some milliseconds."""
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


if __name__ == "__main__":
    main()
