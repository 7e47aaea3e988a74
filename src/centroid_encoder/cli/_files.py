"""Reading of ``.h5ad`` files and zarr stores, and writing of all results or none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from centroid_encoder import tables
from centroid_encoder.errors import check
from centroid_encoder.files import check_space

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.tl._run import Results

Write = Callable[[Path], object]


@contextmanager
def read_cells(path: Path, roles: Mapping[str, Any] | None = None) -> Iterator[AnnData]:
    """Open a ``.h5ad`` file or a ``.zarr`` store, whose matrices stay on disk, or a table.

    `roles` are those of columns of the table.

    An OSError is raised if it may not be read, is damaged or of another kind, or contains a link.
    """
    import anndata as ad

    if tables.is_table(path):
        yield tables.read_table(path, roles=roles)
        return
    check(not roles, f"--role has no effect: {path} is no table", "roles")
    with ExitStack() as stack:
        with tables.reading(path):
            file = stack.enter_context(tables.opened(path))
            # anndata 0.7 and earlier wrote no kind of the whole file.
            is_old = path.is_file() and not file.attrs.get("encoding-type")
            adata = ad.read_h5ad(path) if is_old else _read(file)
        yield adata


def _read(file: Any) -> AnnData:
    """Read an AnnData; X, that of ``raw``, layers, obsm and obsp stay on disk."""
    from anndata.experimental import read_dispatched
    from anndata.io import sparse_dataset

    def read(func: Callable[[Any], Any], name: str, part: Any, *, iospec: Any) -> Any:
        name = name.strip("/")
        if name in ("X", "raw/X") or name.startswith(("layers/", "obsm/", "obsp/")):
            if iospec.encoding_type in ("csr_matrix", "csc_matrix"):
                return sparse_dataset(part)
            if iospec.encoding_type == "array":
                return part
        return func(part)

    # This raises a KeyError if one of the two is missing. AnnData would create a new one.
    file["obs"], file["var"]
    return cast("AnnData", read_dispatched(file, read))


def with_results(source: Path, adata: AnnData, results: Results) -> Write:
    """Return a function that writes a copy of `source` with the results of a job in `adata`."""
    import h5py
    import zarr
    from anndata.io import write_elem

    # Files of old versions are read as a whole, and written in the new layout.
    is_whole = not (adata.X is None or tables.is_lazy(adata.X))

    def put(target: Any) -> None:
        for slot in ("obs", "var"):
            if slot in results:
                write_elem(target, slot, tables.writable_frame(getattr(adata, slot), slot))
        for slot in ("obsm", "uns"):
            if slot not in target:
                write_elem(target, slot, {})
            for key, value in results.get(slot, {}).items():
                if value is not None:
                    # With the colours of its classes, which follow later.
                    write_elem(target[slot], key, getattr(adata, slot)[key])
            # Such as colours or probabilities of an earlier result.
            for key in set(target[slot]) - set(getattr(adata, slot)):
                del target[slot][key]

    def write(new: Path) -> None:
        if source.is_dir():
            try:
                shutil.copytree(source, new)
            except shutil.Error as error:  # It lists all files that were not copied.
                raise OSError(error.args[0][0][-1]) from error
            store = zarr.open_group(new, mode="r+", use_consolidated=False)
            put(store)
            zarr.consolidate_metadata(store.store)
        elif is_whole:
            tables.writable(adata).write_h5ad(new)
        else:
            more = tables.size_of({**results, "obs": adata.obs})
            check_space(new.parent, source.stat().st_size + more)
            shutil.copyfile(source, new)
            with h5py.File(new, "a") as file:
                put(file)

    return write
