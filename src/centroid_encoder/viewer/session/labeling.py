"""Labels that are given or corrected by hand, in a column of their own, with undo and redo."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.colors import is_color_like, to_hex
from numpy.typing import ArrayLike, NDArray

from centroid_encoder.errors import check
from centroid_encoder.files import check_target, replacing
from centroid_encoder.pl._colors import default_palette, label_colors
from centroid_encoder.pl._values import MAX_CATEGORIES
from centroid_encoder.tables import colors_key
from centroid_encoder.tl._result import label_categories
from centroid_encoder.viewer.data.measuring import UNLABELED
from centroid_encoder.viewer.session.corrections import (
    are_right,
    as_categories,
    mark_key,
    note_right,
)
from centroid_encoder.viewer.session.journal import (
    journal_path,
    note_labels,
    read_journal,
    read_labels,
)

CHANGED = "the column {!r} was changed elsewhere; earlier labelling cannot be undone or redone"
NEW_COLUMN = "cell_type_by_hand"
KEYS = "123456789GHJKQUW"
"""Keys of new classes: napari itself uses none of these letters in a layer or the viewer."""
RESERVED_KEYS = "0N"
"""Keys that mean something else while one labels."""
STORED = ("classes", "keys")
"""Names of the arrays in ``uns[mark_key(column)]``; the colours are stored separately."""
N_ALWAYS_TRAIN = 3
"""Cells of each class that are never held out."""
HELD_OUT_EVERY = 5
"""One of every five labelled cells is held out."""

Codes = NDArray[np.intp]


class HandClass(NamedTuple):
    """A class that was made by hand."""

    name: str
    color: str
    key: str
    """The key that labels cells, or empty."""


State = tuple[tuple[HandClass, ...], Codes]
"""All classes, and the indices of the classes of some cells."""


class Change(NamedTuple):
    """A step: what it does, the rows that it changes, and their state before and after."""

    text: str
    rows: Codes
    before: State
    after: State
    is_note: bool = False
    """Whether it notes that the labels are right, and changes none."""


class Labeling:
    """Labels that are given by hand, in ``obs[column]``.

    If the column does not exist, it is made. If it is from an earlier labelling, it is continued.
    The keys of the classes are in ``uns[f"{column}_by_hand"]``, which marks such a column; the
    colours are those of scanpy.
    Columns that were not made by hand are never changed, except ``"cell_type"`` of a measured table
    while it is empty.

    The labels are also written into a journal in the user data folder after each step. `fault` is
    the error if that was not possible. A view becomes a copy with the first step.

    With `original`, the column holds corrections: the first step makes it, as a copy of the column
    `original`. It has no keys and no journal.

    A ValueError if `column` has labels that were not given here, or if the cells have no names.
    """

    def __init__(
        self, adata: AnnData, column: str = NEW_COLUMN, original: str | None = None
    ) -> None:
        self.adata, self.column, self._original = adata, column, original
        self._done: list[Change] = []
        self._undone: list[Change] = []
        self._colors: dict[str, str] = {}
        """Last colours of corrected classes: another colour is no step of corrections."""
        self.fault: Exception | None = None
        if original is None:
            self._begin()

    def _begin(self) -> None:
        """Make the column, or continue in it, and read the journal."""
        adata = self.adata
        column = self.column = self.column.strip()
        check(column and "/" not in column, "the column needs a name without '/'")
        text = "several cells have the same name; each needs its own to be labelled"
        check(adata.obs_names.is_unique, text)
        there = column in adata.obs
        self._marked = there and mark_key(column) in adata.uns
        is_empty = there and column == UNLABELED and bool(adata.obs[column].isna().all())
        text = f"the column {column!r} has values that were not given by hand, and is not changed;"
        check(not there or self._marked or is_empty, f"{text} choose another name")
        if not there or is_empty:
            self._write((), np.full(adata.n_obs, -1))
        self._is_new = not there
        self._journal = journal_path(adata, column)
        self._lost = pd.Series(dtype=object)
        """Labels that only the journal had at the start, until restored or discarded."""
        self._lost_classes: list[HandClass] = []
        try:
            found, classes = read_journal(self._journal)
            self._lost_classes = [HandClass(*one) for one in classes]
            here = found[self._rows_of(found) >= 0]
            # Only labels that the table lacks now are lost. If the user removes a label later, it
            # is not offered for restoring.
            self._lost = here[self._now(here) != here]
        except FileNotFoundError:
            pass
        except (OSError, TypeError, ValueError) as error:
            self.fault = error

    @property
    def source(self) -> str:
        """The column that holds the labels: before the first step of corrections, the original."""
        original = self._original
        return self.column if original is None or self.column in self.adata.obs else original

    @property
    def is_there(self) -> bool:
        """Whether the column is still there; something else may have deleted it."""
        column = self.adata.obs.get(self.column)
        is_category = column is not None and isinstance(column.dtype, pd.CategoricalDtype)
        return is_category or self._original is not None

    @property
    def classes(self) -> tuple[HandClass, ...]:
        """The classes in their order."""
        colors = label_colors(self.adata, self.source)
        stored = self.adata.uns.get(mark_key(self.column), {})
        keys = dict(zip(*(map(str, stored.get(name, ())) for name in STORED), strict=True))
        return tuple(
            HandClass(str(name), color, keys.get(str(name), "")) for name, color in colors.items()
        )

    @property
    def codes(self) -> Codes:
        """(n_obs,) index of the class of each cell; −1 for none."""
        return np.asarray(as_categories(self.adata.obs[self.source]).codes, dtype=np.intp)

    @property
    def labels(self) -> pd.Series:
        """Labels of the labelled cells."""
        return self.adata.obs[self.column].dropna().astype(str)

    @property
    def steps(self) -> tuple[str, str]:
        """Descriptions of the steps that `undo` and `redo` would take; empty for none."""
        done, undone = (steps[-1].text if steps else "" for steps in (self._done, self._undone))
        return done, undone

    def _position(self, name: str) -> int:
        """Return the position of a class; a KeyError if there is none."""
        names = [one.name for one in self.classes]
        if name not in names:
            raise KeyError(f"there is no class {name!r}")
        return names.index(name)

    def add_class(self, name: str) -> None:
        """Add a class, with the first free colour and key."""
        self._step(f"Add class {name}", self._with_class(self.classes, name))

    def rename_class(self, name: str, new: str) -> None:
        """Give a class another name."""
        if new.strip() != name:
            self._change_class(name, f"Rename {name} to {new}", name=self._checked_name(new))

    def recolor_class(self, name: str, color: str) -> None:
        """Give a class another colour."""
        check(is_color_like(color), f"{color!r} is no colour")
        self._change_class(name, f"Recolour {name}", color=to_hex(color))

    def set_key(self, name: str, key: str) -> None:
        """Give a class another key: a letter, a digit, or none."""
        key = key.strip().upper()
        is_one = not key or (len(key) == 1 and key.isascii() and key.isalnum())
        check(is_one, f"the key of a class must be a letter or a digit, not {key!r}")
        text = f"the key {key} has another meaning; choose another letter or digit"
        check(not key or key not in RESERVED_KEYS, text)
        for one in self.classes:
            is_free = not key or one.key != key or one.name == name
            check(is_free, f"{key} is the key of {one.name}; choose another one")
        self._change_class(name, f"Change the key of {name}", key=key)

    def merge_class(self, name: str, into: str) -> None:
        """Give all cells of a class another class, and remove it."""
        if name != into:
            self._remove(name, self._position(into), f"Merge {name} into {into}")

    def remove_class(self, name: str) -> None:
        """Remove a class; its cells have no label then."""
        self._remove(name, -1, f"Remove class {name}")

    def assign(self, rows: ArrayLike, name: str | None) -> None:
        """Label rows of the AnnData, as one step; with None, their labels are removed.

        A name that is not a class yet adds one.
        """
        rows = np.asarray(rows, dtype=np.intp)
        cells = f"{len(rows):,} cell{'s' * (len(rows) != 1)}"
        text = f"Label {cells} as {name}" if name else f"Remove the label of {cells}"
        self._assign(rows, np.full(rows.shape, name or "", dtype=object), text)

    def confirm(self, rows: ArrayLike) -> None:
        """Note that the labels of rows of the AnnData are right, as one step."""
        rows = np.setdiff1d(rows, np.flatnonzero(are_right(self.adata, self.source)))
        rows = rows[self.codes[rows] >= 0].astype(np.intp)
        state = self.classes, self.codes[rows]
        text = f"Keep the label of {len(rows):,} cell{'s' * (len(rows) != 1)}"
        if len(rows):
            self._do(Change(text, rows, state, state, is_note=True))

    def undo(self) -> None:
        """Undo the last step; a RuntimeError if something else has changed these labels."""
        if self._done:
            self._go(self._done[-1], back=True)
            self._undone.append(self._done.pop())

    def redo(self) -> None:
        """Redo the step that was undone last; a RuntimeError as in `undo`."""
        if self._undone:
            self._go(self._undone[-1])
            self._done.append(self._undone.pop())

    def held_out(self) -> NDArray[np.bool_]:
        """(n_obs,) mask of the labelled cells that the live map does not learn from."""
        return held_out(self._hashes, self.codes)

    @property
    def unsaved(self) -> int:
        """Number of cells whose label in the journal of an earlier session is missing here."""
        return int((self._now(self._lost) != self._lost).sum()) if len(self._lost) else 0

    def restore(self) -> None:
        """Give the cells the labels of the journal and their classes, as one step."""
        lost, classes = self._lost, self.classes
        for one in self._lost_classes:
            if one.name not in [known.name for known in classes]:
                key = one.key if one.key not in [known.key for known in classes] else None
                classes = self._with_class(classes, one.name, one.color, key)
        text = f"Restore the labels of {len(lost):,} cells"
        self._assign(self._rows_of(lost), lost.to_numpy(object), text, classes)
        self._lost = lost[:0]

    def discard(self) -> None:
        """Forget the labels of the journal of an earlier session."""
        self._lost = self._lost[:0]
        self._note(np.flatnonzero(self.codes >= 0), replacing)

    def to_csv(self, path: Path) -> None:
        """Write the labelled cells and their labels, in the columns ``cell`` and ``label``."""
        with replacing(check_target(path, ".csv")) as beside:
            self.labels.rename_axis("cell").rename("label").to_csv(beside)

    def read_csv(self, path: Path) -> int:
        """Read labels from a file, as one step; return how many of its cells the table lacks.

        The columns are ``cell`` and ``label``; other cells keep their labels. A ValueError if a
        column is missing, a cell is there twice, or the table has none of the cells.
        """
        found = read_labels(path)
        rows = self._rows_of(found)
        known = rows >= 0
        text = f"none of the {len(found):,} labelled cells of {path.name} is in this table"
        check(known.any(), text)
        self._assign(rows[known], found.to_numpy(object)[known], f"Import {path.name}")
        return int((~known).sum())

    def close(self) -> None:
        """End the labelling; if it has no class, remove its column and its entries in ``uns``."""
        if self.is_there and not self.classes and not self._marked:
            for name in (mark_key(self.column), colors_key(self.column)):
                self.adata.uns.pop(name, None)
            if self._is_new:
                del self.adata.obs[self.column]

    @cached_property
    def _hashes(self) -> NDArray[np.uint64]:
        return np.asarray(pd.util.hash_array(self.adata.obs_names.to_numpy(object)))

    def _now(self, labels: pd.Series) -> pd.Series:
        """Return the current labels of the cells in the index of `labels`."""
        return self.adata.obs[self.column].astype(object).reindex(labels.index)

    def _rows_of(self, labels: pd.Series) -> Codes:
        return np.asarray(self.adata.obs_names.get_indexer(labels.index), dtype=np.intp)

    def _assign(
        self,
        rows: Codes,
        names: NDArray[np.object_],
        text: str,
        classes: tuple[HandClass, ...] | None = None,
    ) -> None:
        """Label rows; an empty name takes the label back, and an unknown one is a new class."""
        codes, classes = self.codes, self.classes if classes is None else classes
        wanted = dict.fromkeys(str(name).strip() for name in names)
        for name in wanted:
            if name and name not in [one.name for one in classes]:
                classes = self._with_class(classes, name)
        place = {one.name: i for i, one in enumerate(classes)} | {"": -1}
        codes[rows] = [place[str(name).strip()] for name in names]
        self._step(text, classes, codes)

    def _with_class(
        self,
        classes: tuple[HandClass, ...],
        name: str,
        color: str | None = None,
        key: str | None = None,
    ) -> tuple[HandClass, ...]:
        used = {one.key for one in classes}
        free = next((one for one in KEYS if one not in used), "")
        color = color or self._color_of(name.strip(), classes)
        made = HandClass(self._checked_name(name), color, free if key is None else key)
        return (*classes, made)

    def _color_of(self, name: str, classes: tuple[HandClass, ...]) -> str:
        """Return the colour of a class of this name in another column, or else a free one."""
        used, others = {one.color for one in classes}, dict[str, str]()
        for column, values in self.adata.obs.items():
            if column != self.column and isinstance(values.dtype, pd.CategoricalDtype):
                found = label_colors(self.adata, str(column))
                if len(found) <= MAX_CATEGORIES:
                    others = {str(one): color for one, color in found.items()} | others
        color = others.get(name)
        if color is None or color in used:
            used |= {*others.values()}
            color = next(one for one in default_palette(len(used) + 1) if one not in used)
        return color

    def _change_class(self, which: str, text: str, **changed: str) -> None:
        classes, i = list(self.classes), self._position(which)
        classes[i] = classes[i]._replace(**changed)
        self._step(text, tuple(classes))

    def _remove(self, name: str, target: int, text: str) -> None:
        """Remove a class, and give its cells the class at the position `target`, or none."""
        gone, classes = self._position(name), self.classes
        codes = np.where(self.codes == gone, target, self.codes)
        self._step(text, (*classes[:gone], *classes[gone + 1 :]), codes - (codes > gone))

    def _checked_name(self, name: str) -> str:
        name = name.strip()
        check(name, "a class needs a name")
        names = [one.name for one in self.classes]
        check(name not in names, f"there is a class {name!r} already")
        return name

    def _step(self, text: str, classes: tuple[HandClass, ...], codes: Codes | None = None) -> None:
        """Change the classes and the labels, unless they are so already."""
        before, now = self.classes, self.codes
        codes = now if codes is None else codes
        if self._original is not None:
            # Drop new labels without cells; keep all original labels.
            known = set(map(str, label_categories(self.adata.obs[self._original])))
            kept = [i for i, x in enumerate(classes) if x.name in known or (codes == i).any()]
            codes = np.append(pd.Index(kept).get_indexer(range(len(classes))), -1)[codes]
            classes = tuple(classes[i] for i in kept)
        # The journal holds names: a renamed class changes its cells, too.
        place = pd.Index([one.name for one in before])
        place_before = np.append(place.get_indexer([one.name for one in classes]), -1)
        rows = np.flatnonzero((codes != now) | (place_before[codes] != now))
        if len(rows) or classes != before:
            self._do(Change(text, rows, (before, now[rows]), (classes, codes[rows])))

    def _do(self, step: Change) -> None:
        """Take a step that can be undone."""
        self._go(step)
        self._done.append(step)
        self._undone.clear()

    def _go(self, step: Change, *, back: bool = False) -> None:
        """Take a step, or take it `back`; raise a RuntimeError if the labels are others by now."""
        rows, before, after = step.rows, step.before, step.after
        before, after = (after, before) if back else (before, after)
        same = self.is_there and [x.name for x in self.classes] == [x.name for x in before[0]]
        if not same or not np.array_equal(self.codes[rows[rows < self.adata.n_obs]], before[1]):
            self._done.clear()
            self._undone.clear()
            raise RuntimeError(CHANGED.format(self.column))
        if step.is_note:
            labels = pd.Series(_names_of(after[1], after[0]), self.adata.obs_names[rows])
            note_right(self.adata, self.column, labels, on=not back)
            return
        codes = self.codes
        codes[rows] = after[1]
        self._write(after[0], codes)
        self._note(rows)

    def _write(self, classes: tuple[HandClass, ...], codes: Codes) -> None:
        adata, column = self.adata, self.column
        names, colors = [one.name for one in classes], [one.color for one in classes]
        dtype = pd.CategoricalDtype(pd.Index(names, dtype=object))
        if self._original is not None:
            dtype = _with_categories(names, as_categories(adata.obs[self._original]).dtype)
            # The user may have changed colours since the step, or before it was undone.
            self._colors |= {one.name: one.color for one in self.classes}
            colors = [self._colors.get(one.name, one.color) for one in classes]
        if adata.is_view:
            # Otherwise anndata does this below, with a warning.
            adata._init_as_actual(adata.copy())
        adata.obs[column] = pd.Categorical.from_codes(cast("list[int]", codes), dtype=dtype)
        adata.uns[colors_key(column)] = colors
        if self._original is not None:
            return
        marks = names, [one.key for one in classes]
        adata.uns[mark_key(column)] = {
            name: np.array(x, object) for name, x in zip(STORED, marks, strict=True)
        }

    def _note(
        self,
        rows: Codes,
        opened: Callable[[Path], AbstractContextManager[Path]] = nullcontext,
    ) -> None:
        """Add the labels of rows and the classes to the journal, or replace it by them."""
        if self._original is not None:
            return
        self.fault, classes = None, self.classes
        labels = pd.Series(_names_of(self.codes[rows], classes), self.adata.obs_names[rows])
        try:
            with opened(self._journal) as file:
                note_labels(labels, classes, file)
        except OSError as error:
            self.fault = error


def _names_of(codes: Codes, classes: tuple[HandClass, ...]) -> NDArray[np.object_]:
    """Return the name of the class of each cell; empty for none."""
    return np.array([*(one.name for one in classes), ""], dtype=object)[codes]


def suggested_column(adata: AnnData) -> str:
    """Return the column to label in: one that was begun, that of a measured table, or a new one."""
    begun = [str(name) for name in adata.obs if mark_key(str(name)) in adata.uns]
    if begun:
        return begun[-1]
    if UNLABELED in adata.obs and adata.obs[UNLABELED].isna().all():
        return UNLABELED
    names = chain([NEW_COLUMN], (f"{NEW_COLUMN}_{i}" for i in count(2)))
    return next(name for name in names if name not in adata.obs)


def held_out(hashes: NDArray[np.uint64], codes: Codes) -> NDArray[np.bool_]:
    """(n_obs,) mask of held-out cells: those whose hash is in the lowest fifth of all numbers.

    The three labelled cells of each class with the largest hashes are not held out. Only while a
    class has so few labelled cells can a cell change between held out and training.
    """
    is_low = hashes < np.uint64(2**64 // HELD_OUT_EVERY)
    found = is_low & (codes >= 0)
    n_high = np.bincount(codes[~is_low & (codes >= 0)], minlength=codes.max(initial=-1) + 1)
    for code in np.flatnonzero(n_high < N_ALWAYS_TRAIN):
        rows = np.flatnonzero(found & (codes == code))
        largest = np.argsort(hashes[rows])[n_high[code] - N_ALWAYS_TRAIN :]
        found[rows[largest]] = False
    return found


def _with_categories(names: list[str], known: pd.CategoricalDtype) -> pd.CategoricalDtype:
    """Return the type of a column with other categories, which are of the same kind."""
    by_text = {str(name): name for name in known.categories}
    is_integer = pd.api.types.is_integer_dtype(known.categories.dtype)
    found: list[object] = []
    for name in names:
        if name not in by_text and is_integer and name.removeprefix("-").isdecimal():
            found.append(int(name))
        elif name not in by_text and not all(isinstance(x, str) for x in known.categories):
            raise ValueError(f"the labels are not text, and {name!r} is not one of them")
        else:
            found.append(by_text.get(name, name))
    return pd.CategoricalDtype(pd.Index(found, dtype=known.categories.dtype), known.ordered)
