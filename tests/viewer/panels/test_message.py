"""Messages of several lines."""

import pytest

from centroid_encoder.errors import MissingKeyError
from centroid_encoder.viewer.panels.message import sentence


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
def test_sentences(said, text):
    assert sentence(said) == text
