"""Names that files can hold, and that nothing else has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from centroid_encoder.errors import InputError, Setting, check_name
from centroid_encoder.tl._stored import StoredMap, embedding_key

if TYPE_CHECKING:
    from anndata import AnnData


def check_key(name: str, what: object) -> None:
    """Refuse a name that is no key of a group in ``.h5ad`` or zarr.

    Parameters
    ----------
    name
        The name of a result, or of a column by which parts of it are named.
    what
        Its name in the message.

    Raises
    ------
    ValueError
        If it is such a name.
    """
    check_text(name, what)
    if name in ("", ".", ".."):
        raise InputError("{} must not be {!r}, which is no name on disk", what, name)
    if "/" in name:
        raise InputError("{} must not hold '/', which means nesting on disk: {!r}", what, name)


def check_text(text: str, what: object) -> None:
    """Refuse text with NUL, which ``.h5ad`` cannot store.

    Raises
    ------
    ValueError
        If it holds that letter.
    """
    if "\0" in text:
        raise InputError(
            "{} must not hold the letter NUL, which no file can store: {!r}", what, text
        )


def check_free(adata: AnnData, key: str) -> None:
    """Refuse to replace results of other tools, such as ``obsm["X_pca"]``; "ce" is always ours.

    Raises
    ------
    ValueError
        If something else has that name.
    """
    check_name(key, "key", "a result")
    others = key != "ce" and StoredMap.read(adata, key) is None
    for slot, name in (("uns", key), ("obsm", embedding_key(key))):
        if others and name in getattr(adata, slot):
            raise InputError(
                "{}[{!r}] is there already, and no result of this kind; choose another {}, or "
                "delete it first",
                slot,
                name,
                Setting("key_added"),
            )
