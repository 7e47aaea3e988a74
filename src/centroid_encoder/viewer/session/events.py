"""The events of a session, which panels connect to."""

from __future__ import annotations

from psygnal import Signal


class Events:
    """Signals that are emitted after the whole state has changed.

    Panels then read the state again; the order of the panels does not matter.
    """

    said = Signal(object, str)
    """A text or an exception to show, and its kind."""
    failed = Signal(object)
    """The exception that ended an action of the user."""
    table_changed = Signal()
    """Another table was chosen."""
    columns_changed = Signal()
    """The columns of the table may have changed; also emitted after `table_changed`."""
    label_key_changed = Signal()
    result_changed = Signal()
    """The map and the cross-validation were read again."""
    check_changed = Signal()
    """Only the cross-validation was read again."""
    labels_changed = Signal()
    """Cells were labelled, or this was undone or redone."""
    labeling_changed = Signal()
    """Labelling by hand was started or ended."""
    draft_changed = Signal()
    """The live map was replaced or removed."""
    values_changed = Signal()
    """The points of the map are coloured by other values."""
    colors_changed = Signal()
    """A class has another colour."""
    selection_changed = Signal()
    zoom_requested = Signal()
    """The camera is to move to the selected cells."""
    regions_changed = Signal()
    hidden_changed = Signal()
    mapped = Signal()
    """The shown cells were placed in the map of another table."""
    framed = Signal(object, object, str)
    """The `Training` of the table, a live `Frame` of it, and the label column."""
