"""The events of a session, to which panels connect."""

from __future__ import annotations

from psygnal import Signal


class Events:
    """Signals that are emitted after all of the state has changed.

    Panels read the state again, and may handle an event in any order.
    """

    said = Signal(object, str)
    """A text or an exception to show, and its kind."""
    failed = Signal(object)
    """An exception that ended an action of the user."""
    table_changed = Signal()
    """Another table is chosen."""
    columns_changed = Signal()
    """The columns of the table may have changed; also emitted after `table_changed`."""
    label_key_changed = Signal()
    result_changed = Signal()
    """The map and the cross-validation were read."""
    check_changed = Signal()
    """The cross-validation alone was read."""
    labels_changed = Signal()
    """Cells were relabelled, or that was undone."""
    labeling_changed = Signal()
    """Labelling by hand has begun or ended."""
    draft_changed = Signal()
    """There is another live map, or none any more."""
    values_changed = Signal()
    """Something else colours the cells of the map."""
    colors_changed = Signal()
    """A class has another colour."""
    selection_changed = Signal()
    zoom_requested = Signal()
    """Show the selected cells in their layers."""
    regions_changed = Signal()
    hidden_changed = Signal()
    mapped = Signal()
    """The cells shown now were placed in the map of others."""
    framed = Signal(object, object, str)
    """A training of the table, its `Report` with an embedding, and the label column."""
