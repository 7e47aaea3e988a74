"""How layers were joined to a table: by the user's choice, which is kept, or by a guess."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from napari.layers import Labels, Layer

from centroid_encoder.viewer.data.guesses import Columns
from centroid_encoder.viewer.data.ids import digest
from centroid_encoder.viewer.data.join import Link

if TYPE_CHECKING:
    from centroid_encoder.viewer.data.regions import Region
    from centroid_encoder.viewer.data.tables import Table

Identity = tuple[str, tuple[int, ...], int]


@dataclass(frozen=True)
class How:
    """What joins a layer to a table: a `Link` without these two, which it would keep alive."""

    region: Region | None
    id_column: str | None
    shift: int
    undecided: tuple[str | None, ...]
    unclear: bool

    @classmethod
    def of(cls, link: Link) -> How:
        """Take them from a link."""
        return cls(link.region, link.id_column, link.shift, link.undecided, link.unclear)

    def link(self, table: Table, layer: Layer) -> Link:
        """Make a link of them."""
        return Link(
            table, self.region, layer, self.id_column, self.shift, self.undecided, self.unclear
        )


class Memory:
    """What is known of the joins of one table.

    A choice lasts: for the layer under whatever name, and for the same file or the same pixels when
    they are opened again.

    Attributes
    ----------
    columns
        The columns that the user chose last, for layers of which nothing is known.
    """

    def __init__(self) -> None:
        self.columns: Columns | None = None
        self._chosen: WeakKeyDictionary[Layer, How | None] = WeakKeyDictionary()
        self._guessed: WeakKeyDictionary[Layer, tuple[str, How]] = WeakKeyDictionary()
        self._closed: dict[Identity, How | None] = {}
        # Layers that are none of those.
        self._strangers: WeakSet[Layer] = WeakSet()

    def choose(self, layer: Layer, how: How | None) -> None:
        """Keep what the user chose for a layer; None shows none of the cells in it."""
        self._keep(layer, how)
        if how is not None and how.id_column is not None:
            before = None if self.columns is None else self.columns.regions
            regions = before if how.region is None else how.region.column
            self.columns = Columns(how.id_column, how.shift, regions)
            self._guess_anew()

    def allow(self, layer: Layer) -> None:
        """Show cells in a layer again, if the user wanted none there."""
        if self.is_chosen(layer) and self._chosen[layer] is None:
            del self._chosen[layer]
            self._closed.pop(_identity(layer), None)
            self._strangers.clear()

    def choose_columns(self, columns: Columns) -> None:
        """Use other columns for all layers."""
        self.columns = columns
        self._guess_anew()
        for layer, how in list(self._chosen.items()):
            if how is None:
                continue
            same = how.region is None or how.region.column == columns.regions
            if not same:
                del self._chosen[layer]
                self._closed.pop(_identity(layer), None)
            elif columns.ids is not None:
                ids = replace(how, id_column=columns.ids, shift=columns.shift, undecided=())
                self._keep(layer, ids)

    def is_chosen(self, layer: Layer) -> bool:
        """Tell whether the user chose what a layer shows, or one that was closed."""
        if layer not in self._chosen and layer not in self._strangers:
            # The pixels are looked at only where the name or the file is one that was chosen.
            known = _place(layer) in {place for place, _, _ in self._closed}
            if known and (key := _identity(layer)) in self._closed:
                self._chosen[layer] = self._closed[key]
            else:
                self._strangers.add(layer)
        return layer in self._chosen

    def chosen(self, layer: Layer) -> How | None:
        """What the user chose for a layer."""
        return self._chosen[layer]

    def guessed(self, layer: Layer) -> How | None:
        """What was guessed for a layer of this name."""
        name, how = self._guessed.get(layer, ("", None))
        return how if name == layer.name else None

    def keep_guess(self, layer: Layer, how: How) -> How:
        """Keep a guess, and return what is known now.

        A layer that is given a name which tells nothing shows what it showed before.
        """
        before = self._guessed.get(layer, ("", None))[1]
        if before is not None and _is_clear(before) and not _is_clear(how):
            how = before
        self._guessed[layer] = layer.name, how
        return how

    def _keep(self, layer: Layer, how: How | None) -> None:
        self._chosen[layer] = self._closed[_identity(layer)] = how
        self._strangers.clear()

    def _guess_anew(self) -> None:
        """Guess once more, knowing these columns."""
        regions = None if self.columns is None else self.columns.regions
        for layer, (_, how) in list(self._guessed.items()):
            if how.region is None or how.region.column != regions:
                del self._guessed[layer]
            else:
                self._guessed[layer] = "", how

    def forget_guesses(self) -> None:
        """Guess anew where it was not clear what a layer shows."""
        for layer, (_, how) in list(self._guessed.items()):
            if not _is_clear(how):
                del self._guessed[layer]


def _is_clear(how: How) -> bool:
    shows_one = how.region is None or how.region.value is not None
    return how.id_column is not None and shows_one


def _place(layer: Layer) -> str:
    """The file of a layer, else its name."""
    return str(layer.source.path or layer.name)


def _identity(layer: Layer) -> Identity:
    """What tells whether a layer is one that was there before.

    Many a layer is called "mask", and a file may hold several: it is for the pixels to say.
    """
    data = layer.data[0] if getattr(layer, "multiscale", False) else layer.data
    pixels = digest(data) if isinstance(layer, Labels) else 0
    return _place(layer), tuple(getattr(data, "shape", ())), pixels
