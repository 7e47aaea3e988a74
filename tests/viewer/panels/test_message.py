"""Messages of several lines."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot
from qtpy.QtWidgets import QWidget

from centroid_encoder.errors import MissingKeyError
from centroid_encoder.viewer.panels.fields import column
from centroid_encoder.viewer.panels.message import Message, sentence


@pytest.mark.parametrize("word", ["word ", "a_name_without_any_space_"])
def test_a_long_text_makes_the_dock_higher_and_not_wider(qtbot: QtBot, word: str) -> None:
    page = QWidget()
    column(page, message := Message()).addStretch()
    qtbot.addWidget(page)
    page.resize(300, 600)
    message.say("short")
    with qtbot.waitExposed(page):
        page.show()
    low, narrow = message.height(), page.minimumSizeHint().width()
    message.say(60 * word)
    qtbot.waitUntil(lambda: word[0] == "a" or message.height() > 3 * low)
    assert page.minimumSizeHint().width() == narrow
    message.say("")
    assert message.isHidden()


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (KeyError("no column"), "No column."),
        (MissingKeyError("obs has no column"), "obs has no column."),
        (ValueError(""), "ValueError."),
        (ValueError("obs['a'] and obsm[\"X_b\"] differ"), "Column 'a' and obsm: X_b differ."),
        (ValueError("uns['ce'] is damaged"), "Entry 'ce' (uns) is damaged."),
        ("what now?", "What now?"),
    ],
)
def test_sentences(said: Exception | str, text: str) -> None:
    assert sentence(said) == text
