"""The calls of `tl` that made the results, and a script of these calls: "Copy as Python"."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import centroid_encoder as ce
from centroid_encoder.tables import CHOSEN, ROLES, is_table, keys_in, unpacked
from centroid_encoder.tl._result import Result, StoredCrossValidation, StoredMap, read_result
from centroid_encoder.viewer.data.catalog import FOLLOWS
from centroid_encoder.viewer.data.tables import Table
from centroid_encoder.viewer.session.corrections import SUFFIX, mark_key

Function = Literal["centroid_encoder", "cross_validate", "ingest"]
WIDTH = 88
"""A longer call is written with one argument per line."""


@dataclass(frozen=True)
class Call:
    """A call of a function of `tl`."""

    function: Function
    label_key: str
    parameters: Mapping[str, Any]
    """Keyword arguments that differ from the defaults."""

    @property
    def key(self) -> str:
        """Name of the result."""
        return self.parameters.get("key_added") or self.parameters.get("key") or "ce"


def by_image(key: str) -> str:
    """Return the name of the second check of `key`, with whole images held out."""
    return f"{key}_images"


def find_reference(tables: Iterable[Table], stored: StoredMap) -> Result | None:
    """Return the map of another table in which cells were placed, or None."""
    for adata in (table.adata for table in tables):
        for key in keys_in(adata.obs):
            with suppress(KeyError, ValueError):  # The other map may be damaged.
                found = read_result(adata, key)
                if not found.is_query and np.array_equal(found.stored.centers, stored.centers):
                    return found
    return None


def as_python(table: Table, key: str, tables: Iterable[Table] = ()) -> str:
    """Return a script that makes the results `key` of a table again.

    It reads the file of the table, trains or places the cells, validates, draws and saves. The
    arguments are those stored with the results. The map in which cells were placed may be in one of
    the other `tables`.
    """
    adata = table.adata
    imports, lines, stem = _reading(table)
    mapped = StoredMap.read(adata, key)
    checks = {name: StoredCrossValidation.read(adata, name) for name in (key, by_image(key))}
    label_keys = {stored.label_key for stored in (mapped, checks[key]) if stored is not None}
    for column in sorted(label_keys):
        if column.endswith(SUFFIX) or mark_key(column) in adata.uns:
            lines.append(f"# obs[{column!r}] holds labels made by hand: save the table first.")
    if mapped is not None and (origin := mapped.ingested_from) is not None:
        paths = (x.path for x in tables if x.path is not None and x.path.name == origin)
        if not (file := str(next(paths, ""))):
            file = origin if origin.endswith((".h5ad", ".zarr")) else "map.h5ad"
            lines.append(f"# The map belongs to the table {origin!r}: insert the name of its file.")
        lines.append(_step("ingest", file, mapped.params, None, key))
    elif mapped is not None and mapped.model is not None:
        model = json.loads(mapped.model["config"])["estimator"]["params"]
        lines.append(_step("centroid_encoder", mapped.label_key, mapped.params, model, key))
    for name, check in checks.items():
        if check is not None:
            model = json.loads(check.model or "{}")
            lines.append(_step("cross_validate", check.label_key, check.params, model, name))
    if mapped is not None and mapped.centers.shape[1] <= 2:
        lines.append(_call("ce.pl.voronoi", ["adata"], {} if key == "ce" else {"key": repr(key)}))
    lines.append(f"adata.write_h5ad({f'{stem}_{key}.h5ad'!r})")
    head = f"# Made by centroid-encoder {ce.__version__} in napari."
    return "\n".join([head, "import anndata as ad", *imports, "", *lines]) + "\n"


def _reading(table: Table) -> tuple[list[str], list[str], str]:
    """Return the imports, the lines that read the table, and the stem of the new file."""
    own, store = "import centroid_encoder as ce", getattr(table.sdata, "path", None)
    if table.path is not None:
        read, named = "ad.read_h5ad", {}
        if table.path.suffix.lower() == ".zarr":
            read = "ad.read_zarr"
        elif is_table(table.path):
            roles = table.adata.uns[ROLES].set_index("column")
            roles = roles["role"][roles["reason"].isin([CHOSEN, FOLLOWS])].to_dict()
            read, named = "ce.read_table", {"roles": repr(roles)} if roles else {}
        line = f"adata = {_call(read, [repr(str(table.path))], named)}"
        return [own], [line], str(unpacked(table.path).with_suffix(""))
    if store is not None:
        name = str(table.table_name)
        lines = [f"adata = sd.read_zarr({str(store)!r}).tables[{name!r}]"]
        return ["import spatialdata as sd", own], lines, name
    remark = f"# The table {table.name!r} is in no file: save it, and insert the name of the file."
    return [own], [remark, "adata = ad.read_h5ad('table.h5ad')"], "table"


def _step(function: Function, second: str, params: Mapping[str, Any], model: Any, key: str) -> str:
    """Return a call of a function of `tl` with the arguments that differ from its defaults."""
    known = inspect.signature(getattr(ce.tl, function)).parameters
    chosen = {name: params[name] for name in params if name in known and name != "label_key"}
    named = _differing(chosen, {name: known[name].default for name in chosen})
    if key != "ce":
        named["key_added"] = repr(key)
    if model is not None:
        if isinstance(weights := model.get("class_weight"), Mapping):
            model = model | {"class_weight": dict(weights["weights"])}
        settings = _differing(model, ce.CentroidEncoder().get_params())
        if model.get("random_state") == params.get("random_state"):
            # The model gets the seed of the call.
            settings.pop("random_state", None)
        if settings:
            named["model"] = _call("ce.CentroidEncoder", [], settings)
    return _call(f"ce.tl.{function}", ["adata", repr(second)], named)


def _differing(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that differ from their defaults, as Python expressions."""
    plain = {k: v.tolist() if isinstance(v, np.generic) else v for k, v in values.items()}
    return {name: repr(value) for name, value in plain.items() if value != defaults.get(name)}


def _call(function: str, positional: list[str], named: Mapping[str, str]) -> str:
    """Return a call on one line, or with one argument per line."""
    arguments = [*positional, *(f"{name}={value}" for name, value in named.items())]
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= WIDTH:
        return line
    return f"{function}(\n" + "".join(f"    {argument},\n" for argument in arguments) + ")"
