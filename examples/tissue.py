"""Open the tissue sample in napari, train a map, and select cells in the map and in the image.

With ``--screenshot PATH`` a picture of the window is saved, and the window closes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import napari
import numpy as np
from qtpy.QtCore import QEventLoop, QTimer

import centroid_encoder as ce

SIZE = 1500, 950


def main() -> None:
    """Train a map, and select 20 misplaced cells."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--screenshot", type=Path, help="file for a picture of the window")
    path = arguments.parse_args().screenshot

    viewer = napari.Viewer()
    viewer.window.resize(*SIZE)
    viewer.open_sample("centroid-encoder", "tissue")
    widget = ce.viewer.open(viewer=viewer)
    wait(200)
    widget.train()
    while widget.training is not None:
        wait(50)
    adata = widget.catalog.table.adata
    error = adata.uns["ce"]["quality"]["test"]["knn_error"]
    print(f"{adata.n_obs} cells; held-out 5-NN error {100 * error:.1f} %")
    suspects = ce.tl.misplaced(adata).index[:20]
    widget.select(np.asarray(adata.obs_names.get_indexer(suspects)))
    if path is None:
        napari.run()
        return
    wait(2000)
    path.parent.mkdir(exist_ok=True)
    viewer.screenshot(str(path), canvas_only=False, flash=False)
    print(f"Wrote {path}")
    viewer.close()


def wait(milliseconds: int) -> None:
    """Run the event loop of napari for some milliseconds."""
    loop = QEventLoop()
    QTimer.singleShot(milliseconds, loop.quit)
    loop.exec()


if __name__ == "__main__":
    main()
