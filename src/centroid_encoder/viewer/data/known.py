"""What is known of tables and layers: ids that were read, choices of the user, and guesses."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from napari.layers import Layer

from centroid_encoder.viewer.data.guesses import guess
from centroid_encoder.viewer.data.join import LayerIds, Link
from centroid_encoder.viewer.data.memory import How, Memory
from centroid_encoder.viewer.data.tables import Table


class Known:
    """Ids of layers and links of tables, found once and kept as long as they hold."""

    def __init__(self) -> None:
        self._memories: WeakKeyDictionary[Table, Memory] = WeakKeyDictionary()
        self._ids: WeakKeyDictionary[Layer, LayerIds] = WeakKeyDictionary()

    def read(self, layer: Layer) -> LayerIds:
        """Ids of a layer, read once as long as it does not change."""
        if layer not in self._ids:
            self._ids[layer] = LayerIds.of(layer)
        return self._ids[layer]

    def forget(self, layer: Layer) -> None:
        """Read the ids of a layer anew when they are next asked for."""
        self._ids.pop(layer, None)

    def forget_guesses(self) -> None:
        """Guess anew where it was not clear what a layer shows."""
        for memory in self._memories.values():
            memory.forget_guesses()

    def memory(self, table: Table) -> Memory:
        """How layers were joined to a table."""
        return self._memories.setdefault(table, Memory())

    def guess(self, table: Table, layer: Layer) -> Link | None:
        """Return the link that was chosen for a layer, or a guess, which is kept as well.

        None if the user wants no cells of the table there.
        """
        memory = self.memory(table)
        if memory.is_chosen(layer):
            how = memory.chosen(layer)
        else:
            how = memory.guessed(layer)
            if how is None:
                guessed = guess(table, layer, self.read, memory.columns)
                how = memory.keep_guess(layer, How.of(guessed))
        return None if how is None else how.link(table, layer)
