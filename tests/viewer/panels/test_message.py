"""Texts in as many lines as there is room for."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot
from qtpy.QtCore import Qt
from qtpy.QtGui import QFont
from qtpy.QtWidgets import QLabel, QWidget

from centroid_encoder.viewer.panels.fields import column
from centroid_encoder.viewer.panels.message import Lines, Message


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


def test_above_the_map_a_notice_is_short_until_it_is_clicked(qtbot: QtBot):
    page = QWidget()
    column(page, message := Message(folded=2)).addStretch()
    qtbot.addWidget(page)
    page.resize(300, 600)
    with qtbot.waitExposed(page):
        page.show()

    def shown() -> list[str]:
        qtbot.wait(1)
        return [line.strip() for line in QLabel.text(message).split("\n")]

    text = " ".join(f"word{i}" for i in range(60))
    message.say(text, "warning")
    low = message.sizeHint().height()
    assert len(shown()) == 2
    assert shown()[1].endswith("… (more)")
    assert message.text() == message.toolTip() == text
    click = Qt.MouseButton.LeftButton
    qtbot.mouseClick(message, click)
    assert len(shown()) > 4
    assert " ".join(shown()) == text
    assert message.sizeHint().height() > 2 * low
    qtbot.mouseClick(message, click)
    assert len(shown()) == 2
    # The next one is short again; what is wrong has to be read.
    qtbot.mouseClick(message, click)
    message.say(text + " more", "info")
    assert len(shown()) == 2
    message.say(text, "error")
    assert " ".join(shown()) == text
    qtbot.mouseClick(message, click)
    assert " ".join(shown()) == text
    # A short one has nothing more.
    message.say("two\nlines")
    assert shown() == ["two", "lines"]
