"""Guess by names and values which columns hold ids, images or positions, and a layer's image.

The user can choose others in the widget.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from napari.layers import Layer

from centroid_encoder.tables import ID_NAMES, IMAGE_NAMES, MAX_GROUPS
from centroid_encoder.viewer.data.ids import CellLayer, ItemLayer

OBS_NAMES = "obs_names"
"""Value of an id column that stands for the names of the cells."""
ONE_IMAGE = ""
"""Stands for the column of images if the user chose that all cells are in one image."""
EXTENSIONS = re.compile(
    r"\.(ome|tiff?|png|jpe?g|bmp|zarr|h5|hdf5|npy|qptiff|svs|czi|nd2|lif|ndpi|scn|mrxs|mcd)"
    r"(?![^\W_])",
    re.IGNORECASE,
)
"""Extensions of image files."""
NUMBER = r" \[\d+\]$"
"""What napari adds to the names of layers that have the same name."""
GENERAL_WORDS = {
    "mask", "masks", "label", "labels", "seg", "segmentation", "segmentations", "segmented",
    "cellpose", "stardist", "mesmer", "cell", "cells", "nuclei", "nucleus", "nuclear", "image",
    "images", "img",
}  # fmt: skip
"""Words in layer names that do not distinguish images."""


def named(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Return the columns that have one of these names, in the order of the names."""
    plain = {column: re.sub(r"[\W_]", "", str(column)).lower() for column in table}
    return sorted(
        (key for key in plain if plain[key] in names), key=lambda k: names.index(plain[k])
    )


def are_ids(table: pd.DataFrame) -> list[str]:
    """Return the columns with a name of ids and without repeated values; they are no classes."""
    return [name for name in named(table, ID_NAMES) if table[name].dropna().is_unique]


def may_be_ids(column: pd.Series) -> bool:
    """Return whether a column can hold ids: whole numbers or text, with not too many repeats."""
    values, is_float = column.dropna(), pd.api.types.is_float_dtype(column.dtype)
    if not len(values) or pd.api.types.is_bool_dtype(column.dtype):
        return False
    return bool(values.duplicated().mean() <= 0.9 and (not is_float or (values % 1 == 0).all()))


def whole_numbers(column: pd.Series, name: str) -> pd.Series:
    """Return the values as nullable integers with a new index from 0.

    Raises a ValueError if a value is no whole number; the message calls the column `name`.
    """
    column = column.reset_index(drop=True)
    values = column.dropna()
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    numbers = pd.to_numeric(values, errors="coerce")
    floats = numbers.to_numpy(float, na_value=np.nan)
    # Larger floats are not exact. Booleans and dates are no ids.
    limit = 2.0**53 if numbers.dtype.kind == "f" else 2.0**63
    whole = (np.abs(floats) < limit) & (values.dtype.kind not in "bmM")
    whole[whole] = floats[whole] % 1 == 0
    if not whole.all():
        wrong = values[~whole].iloc[0]
        shown = wrong.item() if isinstance(wrong, np.generic) else wrong
        raise ValueError(f"{name} holds {shown!r}, which is no label: labels are whole numbers")
    return numbers.astype("Int64").reindex(column.index)


def name_of(value: object) -> str:
    """Return a value as text; a whole number has no decimals, however it is stored."""
    return re.sub(r"^(-?\d+)\.0+$", r"\1", str(value))


def id_columns(
    obs: pd.DataFrame, image_column: str | None, declared: str | None, *, of_layer: bool
) -> list[str]:
    """Return the columns of ids, the likeliest first.

    The column that SpatialData declares in ``uns["spatialdata_attrs"]`` comes first. Without it,
    usual names whose whole numbers are unique in each image come before the others. `of_layer`
    says whether the table was made of the features of a layer.
    """
    names = named(obs, ID_NAMES)
    if declared in obs:
        return [str(declared), *names]
    return sorted(names, key=lambda name: not _are_labels(obs, name, image_column, of_layer))


def _are_labels(obs: pd.DataFrame, name: str, image_column: str | None, of_layer: bool) -> bool:
    try:
        numbers = whole_numbers(obs[name], name)
    except ValueError:
        return False
    if name == "index" and not of_layer and (numbers == np.arange(len(obs))).all():
        # This is the index that pandas writes: the number of the row.
        return False
    images = np.zeros(len(obs)) if image_column is None else obs[image_column].to_numpy()
    cells = numbers.notna() & (numbers != 0)
    return not pd.DataFrame({"id": numbers[cells], "image": images[cells]}).duplicated().any()


def ids_of(obs: pd.DataFrame, layer: CellLayer, columns: Sequence[str]) -> list[str | None]:
    """Return those of the columns that can hold the ids of a layer, or None if there is none.

    A Points or Shapes layer must have a feature of the same name, or an index; otherwise its
    feature ``"cell"`` is compared with the names of the cells.
    """
    own = layer.metadata.get("instance_key")
    found = list(dict.fromkeys([str(own), *columns] if own in obs else columns))
    if not isinstance(layer, ItemLayer):
        return [*found] or [None]
    has_index = "index" in layer.features or "indices" in layer.metadata
    return [x for x in found if has_index or x in layer.features] or [OBS_NAMES]


def image_columns(obs: pd.DataFrame) -> list[str]:
    """Return the columns that can name the image of a cell, those with a usual name first."""
    others = obs.select_dtypes(exclude=[np.floating, "bool"])
    names = dict.fromkeys([*named(obs, IMAGE_NAMES), *others])
    return [str(name) for name in names if 1 < obs[name].nunique() <= MAX_GROUPS]


def image_column(obs: pd.DataFrame, declared: str | None, layers: Sequence[Layer]) -> str | None:
    """Return the declared column of images, or one with a usual name; None without any.

    Without a declared one, the first column with the name of a layer comes before the others, and
    several images come before one. Names of image files also make a column one of images.
    """
    names = named(obs, IMAGE_NAMES)
    if declared in obs:
        names = [str(declared)]
    else:
        names += [name for name in obs if name not in names and _has_files(obs[name])]
    sizes = {str(name): obs[name].nunique() for name in names}
    names = sorted((x for x in sizes if 1 <= sizes[x] <= MAX_GROUPS), key=lambda x: sizes[x] == 1)
    if len(names) < 2:
        return next(iter(names), None)
    fitting = (x for x in names if images_by_name(layers, obs[x].dropna().unique()))
    return next(fitting, names[0])


def _has_files(column: pd.Series) -> bool:
    """Return whether all values are names of image files."""
    values = column.dropna()
    if pd.api.types.is_numeric_dtype(column.dtype) or not len(values):
        return False
    # Most other columns fail with their first value, and finding all others takes long.
    first = str(values.iloc[0]).lower()
    return EXTENSIONS.search(first) is not None and all(
        EXTENSIONS.search(str(x).lower()) for x in values.unique()
    )


def images_by_name(layers: Iterable[Layer], values: Iterable[object]) -> dict[Layer, object]:
    """Return the image that each layer shows, according to its name.

    Names match if they are equal, or equal without file extensions and words such as "mask":
    ``A_mask`` shows ``A.tiff``. Otherwise, one may have further words at its end, but no numbers:
    ``A_mask`` shows ``A_raw.tiff``. A layer whose name matches several images shows none of them.
    """
    exact = {name_of(value): value for value in values}
    similar: dict[str, list[object]] = {}
    for name, value in exact.items():
        similar.setdefault(_plain(name), []).append(value)
    found: dict[Layer, object] = {}
    longer: dict[Layer, list[object]] = {}
    for layer in layers:
        # napari-spatialdata stores the name of the element in the metadata.
        for name in (str(name) for name in (layer.name, layer.metadata.get("name")) if name):
            alike = similar.get(_plain(name), [])
            if name in exact:
                found[layer] = exact[name]
            elif len(alike) == 1:
                found.setdefault(layer, alike[0])
            elif not alike:
                begin = [x for x in similar if _begins(_plain(name), x) or _begins(x, _plain(name))]
                longer[layer] = [value for x in begin for value in similar[x]]
    seen = list(found.values())
    rest = {x: its[0] for x, its in longer.items() if len(its) == 1 and its[0] not in seen}
    return rest | found


def image_of(layer: Layer, values: Sequence[object]) -> object:
    """Return the image that a layer is a part of, such as a channel; None if no name fits.

    Further words may have numbers here: ``P1 CD3`` is of ``P1``, and of no image ``P``.
    """
    found = images_by_name([layer], values)
    names = {_plain(name_of(value)): value for value in values}
    begin = [x for x in names if re.match(rf"{re.escape(x)} [^\d]", _plain(layer.name))]
    return found[layer] if found else names.get(max(begin, key=len, default=""))


def _begins(short: str, name: str) -> bool:
    """Return whether a plain name begins with another one, and has no number after it."""
    return name.startswith(f"{short} ") and not re.search(r"\d", name[len(short) :])


def _plain(name: str) -> str:
    """Return the words and numbers that distinguish an image or a layer; 007 becomes 7."""
    return image_stem(name) or " ".join(_words(name))


def image_stem(name: str) -> str:
    """Return the words and numbers of a name that are not general; empty if all are."""
    return " ".join(word for word in _words(name) if word not in GENERAL_WORDS)


def _words(name: str) -> list[str]:
    name = re.sub(NUMBER, "", re.split(r"[/\\]", name)[-1]).lower()
    words = re.findall(r"\d+|[^\W\d_]+", EXTENSIONS.sub("", name))
    return [word.lstrip("0") or "0" if word.isdigit() else word for word in words]
