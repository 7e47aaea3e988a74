"""The code of the page about measuring makes the map and the errors that the page names."""

import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib.pyplot as plt
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "measure.md"


@pytest.mark.slow
def test_from_an_image_to_a_map(viewer, qtbot, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    blocks = re.findall(r"^```(?:python|{code-cell})\n(.*?)^```", text, re.M | re.S)
    names: dict[str, Any] = {"__name__": "page"}
    with patch("matplotlib.pyplot.show"):
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
    plt.close("all")

    adata, own = names["adata"], names["viewer"]
    quality = adata.uns["ce"]["quality"]["test"]
    error, shapes = quality["voronoi_error"], names["shapes"].uns["shapes"]["quality"]["test"]
    said = [float(share) / 100 for share in re.findall(r"(\d+) %", text)]
    found = [error, quality["largest_class_error"], shapes["voronoi_error"]]
    assert found == pytest.approx(said, abs=0.05)
    # Joined, since the layer has the name of the labels.
    widget = names["widget"]
    qtbot.waitUntil(lambda: widget.catalog.join is not None)
    assert widget.catalog.join.n_joined == adata.n_obs
    with patch.object(own.window._qt_window, "_save_current_window_settings"):
        own.close()
