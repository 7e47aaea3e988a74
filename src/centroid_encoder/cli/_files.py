"""Reading ``.h5ad`` files, and writing several files, all of them or none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from centroid_encoder.files import flush, readable, replacing

if TYPE_CHECKING:
    from anndata import AnnData

Write = Callable[[Path], object]


def read_h5ad(path: Path, *, matrix: bool = True) -> AnnData:
    """Read a ``.h5ad`` file, without its matrix if that is not needed.

    Raises
    ------
    OSError
        If the file may not be read, is damaged, or of another kind.
    """
    import anndata as ad

    try:
        return ad.read_h5ad(path, backed=None if matrix else "r")
    except PermissionError as error:
        raise PermissionError(f"{path} may not be read") from error
    # h5py and anndata raise many kinds of errors for damaged files.
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OSError(
            f"{path} cannot be read: it is damaged, incomplete, or no .h5ad file ({reason})"
        ) from error


def with_results(source: Path, adata: AnnData, *, obsm: list[str], uns: list[str]) -> Write:
    """Return what writes a copy of a ``.h5ad`` file with the results that `adata` holds now.

    All else is copied as it is, compression included, and never read.

    Parameters
    ----------
    source
        File that `adata` was read from.
    adata
        Annotated data with results.
    obsm, uns
        Their keys; the columns of ``adata.obs`` are written in any case.
    """

    def write(path: Path) -> None:
        import h5py
        from anndata import settings
        from anndata.io import write_elem

        shutil.copyfile(source, path)
        # The input may hold nullable strings, so the output may as well.
        with settings.override(allow_write_nullable_strings=True), h5py.File(path, "r+") as file:
            write_elem(file, "obs", adata.obs)
            for slot, keys in (("obsm", obsm), ("uns", uns)):
                if slot not in file:
                    write_elem(file, slot, {})
                for key in keys:
                    write_elem(file[slot], key, getattr(adata, slot)[key])

    return write


def write_all(files: Mapping[Path, Write]) -> None:
    """Write several files, all of them or none.

    Parameters
    ----------
    files
        For each path, what writes its content to a file beside it. The first one takes its place
        last: where it is, the others are as well.

    Raises
    ------
    OSError
        If a file cannot be written; those that were there are as they were.
    """
    with ExitStack() as stack:
        for path, write in files.items():
            try:
                beside = stack.enter_context(replacing(path))
                write(beside)
                # Writing takes long: all of it happens before the first file is renamed.
                flush(beside)
            except (OSError, RuntimeError) as error:  # h5py, closing a file on a full disk
                raise readable(error, path) from error
