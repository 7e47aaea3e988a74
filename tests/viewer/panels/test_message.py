"""Texts in as many lines as there is room for."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot
from qtpy.QtGui import QFont
from qtpy.QtWidgets import QLabel, QWidget

from centroid_encoder.viewer.panels.message import Lines


@pytest.mark.parametrize("size", [7.5, 9, 10, 11.25, 13])
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_no_line_is_cut_off(qtbot: QtBot, n: int, size: float):
    page = QWidget()
    lines = Lines(page)
    qtbot.addWidget(page)
    page.resize(400, 400)
    font = QFont("DejaVu Sans")
    font.setPointSizeF(size)
    lines.setFont(font)
    lines.resize(300, 20)
    with qtbot.waitExposed(page):
        page.show()
    lines.setText("\n".join(["ids_of (all) types"] * n))
    wanted = lines.sizeHint().height()
    lines.resize(300, wanted)
    # What Qt itself asks for with all lines.
    assert QLabel.text(lines).count("\n") == n - 1
    assert QLabel.sizeHint(lines).height() <= wanted <= QLabel.sizeHint(lines).height() + 4
