"""Names that files can hold, and that are not taken by something else."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from centroid_encoder.errors import InputError, Setting, check_name
from centroid_encoder.tl._stored import StoredMap, embedding_key

if TYPE_CHECKING:
    from anndata import AnnData

MAX_BYTES = 241
"""Of a key: with the longest of our endings, it is a file name in a zarr store."""
RESERVED = ("_index", "zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
"""Names that the file formats use themselves."""


def check_key(name: str, what: object) -> None:
    """Refuse a name under which ``.h5ad`` or zarr would not store a result, or not find it again.

    Parameters
    ----------
    name
        The name of a result, or of a column by which parts of it are named.
    what
        What it is called in the message.

    Raises
    ------
    ValueError
        If it is such a name.
    """
    check_text(name, what)
    n_bytes = len(name.encode())
    if not name:
        raise InputError("{} must not be empty", what)
    for letter in ("/", "\\"):
        if letter in name:
            text = "{} must not hold {!r}, which means nesting on disk: {!r}"
            raise InputError(text, what, letter, name)
    if name in (".", "..", *RESERVED):
        raise InputError("{} must not be {!r}, which has a meaning of its own on disk", what, name)
    if n_bytes > MAX_BYTES:
        raise InputError(
            "{} is too long to be a name on disk: {} bytes; at most {}", what, n_bytes, MAX_BYTES
        )


def check_text(text: str, what: object) -> None:
    """Refuse text that ``.h5ad`` or zarr cannot store: NUL, and halves of surrogate pairs.

    Raises
    ------
    ValueError
        If it holds such a letter.
    """
    if "\0" in text:
        raise InputError(
            "{} must not hold the letter NUL, which no file can store: {!r}", what, text
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError("{} cannot be stored: {!r} is no valid text", what, text) from error


def check_free(adata: AnnData, key: str) -> None:
    """Refuse to write over what is no result of ours, such as ``obsm["X_pca"]``; "ce" is ours.

    Raises
    ------
    ValueError
        If something else has that name, or one that zarr takes for the same.
    """
    check_name(key, "key", "a result")
    others = key != "ce" and StoredMap.read(adata, key) is None
    for slot, name in (("uns", key), ("obsm", embedding_key(key))):
        for there in map(str, getattr(adata, slot)):
            if there != name and folded(there) == folded(name):
                text = "{} {!r} differs from {}[{!r}] only in case, which zarr cannot tell apart"
                raise InputError(text, Setting("key_added"), key, slot, there)
        if others and name in getattr(adata, slot):
            raise InputError(
                "{}[{!r}] is there already, and no result of this kind; choose another {}, or "
                "delete it first",
                slot,
                name,
                Setting("key_added"),
            )


def folded(name: str) -> str:
    """Return what zarr stores have in common of names that they may not tell apart."""
    return unicodedata.normalize("NFKC", name).casefold()
