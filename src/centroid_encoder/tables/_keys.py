"""Names under which an AnnData has the results, and those that files can hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

Column = Literal[
    "label",
    "level",
    "confidence",
    "split",
    "novelty",
    "own",
    "judged",
    "suspect",
    "doubt",
    "map",
    "probabilities",
]


def plain_key(key: str) -> str:
    """Return a key; the name of the embedding of the result "ce" also stands for that result."""
    return "ce" if key == "X_ce" else key


def embedding_key(key: str) -> str:
    """Name in ``obsm`` of the embedding of the result `key`."""
    return "X_ce" if key == "ce" else key


def obs_key(key: str, column: Column) -> str:
    """Name in ``obs`` of a column of the result `key`; see `cv_key` for a cross-validation.

    The probabilities of all classes are in ``obsm``.
    """
    return f"{plain_key(key)}_{column}"


def cv_key(key: str) -> str:
    """Name in ``uns`` of the cross-validation beside the result `key`."""
    return f"{plain_key(key)}_cv"


def colors_key(column: str) -> str:
    """Name in ``uns`` of the colours of a column of ``obs``, as in scanpy."""
    return f"{column}_colors"


def keys_in(columns: Iterable[object]) -> list[str]:
    """Keys of the results whose columns ``…_split`` and ``…_label`` are in ``obs``."""
    names, ending = set(map(str, columns)), obs_key("", "split")
    keys = [name.removesuffix(ending) for name in sorted(names) if name.endswith(ending)]
    return [key for key in keys if obs_key(key, "label") in names]


def result_columns(columns: Iterable[object]) -> set[str]:
    """Those of some columns that results have written, into ``obs`` or, with places, into a table.

    A cross-validation may stand alone.
    """
    names, ending = set(map(str, columns)), obs_key(cv_key(""), "label")
    keys = {*keys_in(names), *(x.removesuffix(ending) for x in names if x.endswith(ending))}
    kinds = get_args(Column)
    found = {obs_key(name, kind) for k in keys for name in (k, cv_key(k)) for kind in kinds}
    return names & (found | {f"{'CE' if k == 'ce' else k}{i}" for k in keys for i in (1, 2, 3)})


def is_key(name: str) -> bool:
    """Return whether a name can be a key in ``.h5ad`` files and zarr stores."""
    data = name.encode(errors="replace")
    own = "", ".", "..", "zarr.json", ".zarray", ".zattrs", ".zgroup"
    is_text = data.decode() == name and len(data) < 256
    return is_text and name not in own and "/" not in name and "\0" not in name
