"""What was done to a table as a script that needs no viewer."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np

import centroid_encoder as ce

if TYPE_CHECKING:
    from centroid_encoder.viewer.data.tables import Table
    from centroid_encoder.viewer.session.provenance import MadeBy

WIDTH = 88
"""Columns of a line, where it can be broken."""


def as_python(table: Table, made_by: MadeBy | None, check: MadeBy | None = None) -> str:
    """Return a script that trains, checks, draws and saves what the widget did.

    Parameters
    ----------
    table
        What was trained on. Where it is not in a file, the script says how to get one.
    made_by
        What made the map. Arguments that are the default are left out, a `model` is written as a
        call, and a feature mask must be the name of a column. None if there is no map.
    check
        What cross-validated the labels, if they were; one of the two has to be there.

    Raises
    ------
    TypeError
        If an argument is neither a plain value nor a `CentroidEncoder`.
    """
    steps = [step for step in (made_by, check) if step is not None]
    read, stem = _reading(table)
    lines = [f"# Made by centroid-encoder {ce.__version__} in napari."]
    if made_by is None or made_by.stopped_after is None:
        what = "numbers" if made_by is None else "embedding"
        lines += [f"# The same version on the same machine gives the same {what}, bit for bit."]
    else:
        lines += [
            f"# The training in napari was stopped by hand after epoch {made_by.stopped_after}.",
            "# This script trains to the end, so its embedding differs from the one seen there.",
        ]
    lines += ["import anndata as ad", *read[0], "", "import centroid_encoder as ce", "", *read[1]]
    for column in dict.fromkeys(step.label_key for step in steps if step.relabeled):
        lines += [
            f"# obs[{_literal(column)}] holds labels corrected by hand in napari: save the",
            "# table there before you run this, or it will not have that column.",
        ]
    lines.append("")
    for step in steps:
        second = step.label_key
        if step.reference is not None:
            second = step.reference if step.reference.endswith(".h5ad") else "map.h5ad"
            name = PurePath(step.reference).name
            lines += [
                f"# The map is that of the table {_literal(name)}, which has to be",
                "# saved in napari with its map; put the name of that file here.",
            ]
        lines.append(_made(step, second))
    if made_by is not None and _n_components(made_by) <= 3:
        named = [("key", _literal(made_by.key))] if made_by.key != "ce" else []
        lines.append(_call("ce.pl.voronoi", ["adata"], named))
    lines += [f"adata.write_h5ad({_literal(f'{stem}_{steps[0].key}.h5ad')})"]
    return "\n".join(lines) + "\n"


def _n_components(made_by: MadeBy) -> int:
    model = made_by.parameters.get("model") or ce.CentroidEncoder()
    return int(made_by.parameters.get("n_components") or model.n_components)


def _reading(table: Table) -> tuple[tuple[list[str], list[str]], str]:
    """Imports and lines that give `adata`, and a file name to build the result's upon."""
    store = getattr(table.sdata, "path", None)
    if table.path is not None:
        read = "read_zarr" if table.path.suffix.lower() == ".zarr" else "read_h5ad"
        lines = [f"adata = ad.{read}({_literal(table.path)})"]
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


def _made(step: MadeBy, second: str) -> str:
    """Return the call of a step on the table, with the arguments that are not the default."""
    parameters = inspect.signature(getattr(ce.tl, step.function)).parameters
    order = list(parameters)
    named = {
        name: _model(value) if isinstance(value, ce.CentroidEncoder) else _literal(value)
        for name, value in sorted(step.parameters.items(), key=lambda item: order.index(item[0]))
        if name not in ("progress", "copy") and not _same(value, parameters[name].default)
    }
    return _call(f"ce.tl.{step.function}", ["adata", _literal(second)], named.items())


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
