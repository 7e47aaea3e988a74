"""Maps in ``.h5ad`` files and zarr stores that are damaged, or have links to other files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pytest

import centroid_encoder as ce
from centroid_encoder.cli._files import read_cells
from centroid_encoder.tl._reference import read_reference
from centroid_encoder.viewer.data.reader import read_table

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such links")
MEAN = "uns/ce/model/arrays/mean"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    codes = np.arange(60) % 3
    adata = ad.AnnData((3 * rng.normal(size=(3, 5))[codes] + rng.normal(size=(60, 5))).astype("f4"))
    adata.obs["type"] = np.array(["b", "c", "a"])[codes]
    adata.obs["type"] = adata.obs["type"].astype("category")
    adata.uns["type_colors"] = ["#ff0000", "#00ff00", "#0000ff"]
    model = ce.CentroidEncoder(hidden=(4,), max_epochs=2, device="cpu")
    ce.tl.centroid_encoder(adata, "type", model=model, progress=False)
    path = tmp_path_factory.mktemp("original") / "map.h5ad"
    adata.write_h5ad(path)
    return path


@pytest.fixture
def file(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the file, beside another file to which the tests make links."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(original, "other.h5ad")
    return Path(shutil.copy(original, "map.h5ad"))


def instead(where: str, make: Callable[[h5py.File, str], object]) -> Callable[[h5py.File], None]:
    """Return a function that replaces a part of a file."""

    def change(file: h5py.File) -> None:
        del file[where]
        make(file, where)

    return change


def external_link(file: h5py.File, where: str) -> None:
    file[where] = h5py.ExternalLink("other.h5ad", where)


def soft_link(file: h5py.File, where: str) -> None:
    file["layers/elsewhere"] = h5py.ExternalLink("other.h5ad", where)
    file[where] = h5py.SoftLink("/layers/elsewhere")


BAD = {
    "a link to another file": (instead("uns/ce", external_link), "/uns/ce is a link; put a copy"),
    "an array in another file": (instead(MEAN, external_link), "arrays/mean is a link"),
    "a link to a link": (instead(MEAN, soft_link), "arrays/mean is a link"),
    "labels in another file": (instead("obs/type", external_link), "type is a link"),
    "an unknown encoding": (
        lambda file: file["uns/ce/params"].attrs.modify("encoding-type", "mystery"),
        "map.h5ad cannot be read: it is damaged",
    ),
    "no text": (
        instead("uns/ce/model/config", lambda file, where: put(file, where, [1], "array")),
        "the model's config is not valid JSON",
    ),
}


def put(file: h5py.File, where: str, value: Any, kind: str) -> None:
    file.create_dataset(where, data=value)
    file[where].attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_one_sentence(name: str, file: Path) -> None:
    change, words = BAD[name]
    with h5py.File(file, "r+") as opened:
        change(opened)

    with pytest.raises(ValueError, match=r"(?s).") as caught:
        read_reference(file, "ce", "cpu")

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    if "link" in name:
        with pytest.raises(OSError, match="is a link; put a copy of its target in its place"):
            read_table(file)[0]


def test_a_truncated_file_is_refused(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ValueError, match="cannot be read: it is damaged"):
        read_reference(file, "ce", "cpu")


def test_a_link_out_of_a_store_is_refused(original: Path, tmp_path: Path) -> None:
    store = tmp_path / "map.zarr"
    ad.read_h5ad(original).write_zarr(store)
    shutil.move(store / "uns" / "ce", tmp_path / "elsewhere")
    (store / "uns" / "ce").symlink_to(tmp_path / "elsewhere")
    for read in (
        lambda path: read_reference(path, "ce", "cpu"),
        lambda path: read_cells(path).__enter__(),
        read_table,
    ):
        with pytest.raises(OSError, match="uns/ce is a symbolic link"):
            read(store)
