"""What was done to a table as a script that needs no viewer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

import centroid_encoder as ce

if TYPE_CHECKING:
    from centroid_encoder.viewer.data.tables import Table
    from centroid_encoder.viewer.panels.save import Recipe

WIDTH = 88
"""Columns of a line, where it can be broken."""


def as_python(
    table: Table,
    label_key: str,
    arguments: Mapping[str, Any] | None,
    *,
    relabeled: str | None = None,
    stopped_after: int | None = None,
    check: Recipe | None = None,
    mapped_by: str | None = None,
) -> str:
    """Return a script that trains, checks, draws and saves what the widget did.

    Parameters
    ----------
    table
        What was trained on. Where it is not in a file, the script says how to get one.
    label_key
        Column of the labels.
    arguments
        Keyword arguments of `tl.centroid_encoder`; those that are the default are left out. A
        `model` is written as a call, a feature mask must be the name of a column. None if there is
        no map.
    relabeled
        Column with labels that were corrected by hand, which no script can know.
    stopped_after
        Number of epochs after which the training was stopped by hand, if it was.
    check
        How the labels were cross-validated, if they were.
    mapped_by
        File or name of the table whose map the cells were sent through, if they were not trained
        on; `arguments` are then those of `tl.ingest`.

    Raises
    ------
    TypeError
        If an argument is neither a plain value nor a `CentroidEncoder`.
    """
    trained, checked = arguments or {}, {} if check is None else check.parameters
    key = trained.get("key_added") or trained.get("key") or checked.get("key_added") or "ce"
    read, name = _reading(table)
    lines = [f"# Made by centroid-encoder {ce.__version__} in napari."]
    if stopped_after is None:
        what = "embedding" if arguments is not None else "numbers"
        lines += [f"# The same version on the same machine gives the same {what}, bit for bit."]
    else:
        lines += [
            f"# The training in napari was stopped by hand after epoch {stopped_after}. This",
            "# script trains to the end, so its embedding differs from the one seen there.",
        ]
    lines += ["import anndata as ad", *read[0], "", "import centroid_encoder as ce", "", *read[1]]
    corrected = [relabeled, check.label_key if check is not None and check.relabeled else None]
    for column in dict.fromkeys(column for column in corrected if column is not None):
        lines += [
            f"# obs[{_literal(column)}] holds labels corrected by hand in napari: save the",
            "# table there before you run this, or it will not have that column.",
        ]
    lines.append("")
    if arguments is not None and mapped_by is not None:
        file = mapped_by if mapped_by.endswith(".h5ad") else "map.h5ad"
        lines += [
            f"# The map is that of the table {_literal(PurePath(mapped_by).name)}, which has to be",
            "# saved in napari with its map; put the name of that file here.",
            _done(ce.tl.ingest, file, arguments),
        ]
    elif arguments is not None:
        lines.append(_done(ce.tl.centroid_encoder, label_key, arguments))
    if check is not None:
        lines.append(_done(ce.tl.cross_validate, check.label_key, checked))
    model = trained.get("model") or ce.CentroidEncoder()
    if arguments is not None and (trained.get("n_components") or model.n_components) <= 3:
        named = [("key", _literal(key))] if key != "ce" else []
        lines.append(_call("ce.pl.voronoi", ["adata"], named))
    lines += [f"adata.write_h5ad({_literal(f'{name}_{key}.h5ad')})"]
    return "\n".join(lines) + "\n"


def _reading(table: Table) -> tuple[tuple[list[str], list[str]], str]:
    """Imports and lines that give `adata`, and a file name to build the result's upon."""
    store = getattr(table.sdata, "path", None)
    if table.path is not None:
        lines = [f"adata = ad.read_h5ad({_literal(table.path)})"]
        return ([], lines), str(table.path.with_suffix(""))
    if store is not None:
        lines = [
            f"sdata = sd.read_zarr({_literal(store)})",
            f"adata = sdata.tables[{_literal(table.table_name)}]",
        ]
        return (["import spatialdata as sd"], lines), str(table.table_name)
    features = "made of the layer's features and " if table.origin == "features" else ""
    lines = [
        f"# The table {_literal(table.name)} was {features}in no file: save it in napari as .h5ad,",
        "# and put the name of that file here.",
        'adata = ad.read_h5ad("table.h5ad")',
    ]
    return ([], lines), "table"


def _done(function: Callable[..., Any], second: str, arguments: Mapping[str, Any]) -> str:
    """Return a call on the table, with the arguments that are not the default."""
    parameters = inspect.signature(function).parameters
    order = list(parameters)
    named = {
        name: _model(value) if isinstance(value, ce.CentroidEncoder) else _literal(value)
        for name, value in sorted(arguments.items(), key=lambda item: order.index(item[0]))
        if name not in ("progress", "copy") and not _same(value, parameters[name].default)
    }
    return _call(f"ce.tl.{function.__name__}", ["adata", _literal(second)], named.items())


def _model(model: ce.CentroidEncoder) -> str:
    defaults = ce.CentroidEncoder().get_params(deep=False)
    params = {
        name: _literal(value)
        for name, value in model.get_params(deep=False).items()
        if not _same(value, defaults[name])
    }
    return _call("ce.CentroidEncoder", [], params.items(), indent=4)


def _same(value: object, default: object) -> bool:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(default, tuple):
        return isinstance(value, list | tuple | np.ndarray) and tuple(value) == default
    return isinstance(value, int | float | str | None) and value == default


def _call(
    function: str, positional: list[str], named: Iterable[tuple[str, str]], indent: int = 0
) -> str:
    """Return a call, on one line or with an argument on each."""
    arguments = [*positional, *(f"{name}={value}" for name, value in named)]
    line = f"{function}({', '.join(arguments)})"
    if indent + len(line) + len("model=,") <= WIDTH and "\n" not in line:
        return line
    inner = " " * (indent + 4)
    return "\n".join([f"{function}(", *(f"{inner}{a}," for a in arguments), " " * indent + ")"])


def _literal(value: object) -> str:
    """Return a plain value as Python that evaluates to it; a str cannot end its quotes or line."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str):
        text = repr(value)
        # repr changes to double quotes for strings with single ones; formatters want them always.
        return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text else text
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    raise TypeError(
        f"a {type(value).__name__} cannot be written as Python: give a plain value, or the name of "
        "a column"
    )
