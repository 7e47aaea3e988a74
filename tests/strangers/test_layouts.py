"""Files of old versions, of other tools, and damaged ones on the command line and in `tl`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.testing import assert_allclose
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.cli import cli
from centroid_encoder.viewer.data.reader import read_table


def run(command: str, path: Path, *options: str) -> Result:
    """Run a command on a file, and write ``out`` beside it; a traceback is an error."""
    out = path.with_name(f"out{path.suffix}")
    arguments = [command, str(path), "-o", str(out), "--quiet", *options]
    return CliRunner(catch_exceptions=False).invoke(cli, arguments)


def n_lines(found: Result) -> int:
    """Return the number of lines of a command, without warnings of anndata about old formats."""
    lines = found.output.splitlines()
    return sum(not line.startswith("Warning: Element ") for line in lines)


FIT = ("--label-key", "cell_type", "--max-epochs", "1")


def write_old(cells: ad.AnnData, path: Path) -> None:
    """Write cells as anndata 0.5 did: obs, var and obsm are compound datasets."""
    names = cells.obs_names.to_numpy("S20")
    obs = np.zeros(cells.n_obs, dtype=[("index", "S20"), ("cell_type", "i1")])
    obs["index"], obs["cell_type"] = names, cells.obs["cell_type"].cat.codes
    var = np.zeros(cells.n_vars, dtype=[("index", "S20")])
    var["index"] = cells.var_names.to_numpy("S20")
    obsm = np.zeros(cells.n_obs, dtype=[("X_pca", "f4", (3,))])
    obsm["X_pca"] = cells.X[:, :3]
    with h5py.File(path, "w") as file:
        file["X"], file["obs"], file["var"], file["obsm"] = cells.X, obs, var, obsm
        file["uns/cell_type_categories"] = np.array(["a", "b", "c"], "S1")


@pytest.mark.filterwarnings("ignore:.*was written with")
def test_an_old_layout_is_read_and_written_in_the_new_one(
    cells: ad.AnnData, fast: ce.CentroidEncoder, tmp_path: Path
) -> None:
    write_old(cells, path := tmp_path / "old.h5ad")
    done = run("fit", path, *FIT)
    assert done.exit_code == 0, done.output
    found = ad.read_h5ad(tmp_path / "out.h5ad")
    assert set(found.obs["cell_type"]) == {"a", "b", "c"}
    assert {"X_pca", "X_ce"} <= set(found.obsm)
    assert_allclose(found.X, cells.X)
    assert run("cross-validate", path, *FIT, "--n-folds", "2").exit_code == 0
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    cells.write_h5ad(tmp_path / "map.h5ad")
    assert run("ingest", path, "--reference", str(tmp_path / "map.h5ad")).exit_code == 0
    assert "ce_label" in ad.read_h5ad(tmp_path / "out.h5ad").obs


def test_a_file_without_X_has_other_values(cells: ad.AnnData, tmp_path: Path) -> None:
    cells.obsm["X_pca"] = cells.X[:, :4]
    cells.write_h5ad(path := tmp_path / "cells.h5ad")
    with h5py.File(path, "a") as file:
        del file["X"]
    found = run("fit", path, *FIT)
    assert found.exit_code == 1
    assert found.output == "Error: adata.X is empty; pass layer or use_rep\n"
    assert run("fit", path, *FIT, "--use-rep", "X_pca").exit_code == 0
    assert "X_ce" in ad.read_h5ad(tmp_path / "out.h5ad").obsm


Edit = Callable[[h5py.File], Any]


def delete(*names: str) -> Edit:
    return lambda file: [file.pop(name) for name in names]


def replace(name: str, value: Any) -> Edit:
    return lambda file: (file.pop(name), file.update({name: value}))


def attribute(part: str, name: str, value: Any) -> Edit:
    return lambda file: file[part].attrs.update({name: value})


def make_X(**attrs: Any) -> Edit:
    return lambda file: (file.pop("X"), file.create_group("X").attrs.update(attrs))


def put(file: h5py.File, name: str, value: Any) -> None:
    file[name] = value


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((120, 2), "f4")
    layout[:] = h5py.VirtualSource("other.h5", "a", (120, 2))
    file.create_virtual_dataset("obsm/a", layout)


def external(file: h5py.File) -> None:
    file.create_dataset("obsm/a", (120, 2), "f4", external=[("numbers.bin", 0, 960)])


DAMAGED: dict[str, tuple[Edit, str]] = {
    "kind of the file": (attribute("/", "encoding-type", "x"), "damaged, incomplete"),
    "kind of X": (attribute("X", "encoding-type", "x"), "damaged, incomplete"),
    "kind of a column": (attribute("obs/cell_type", "encoding-type", "x"), "No read method"),
    "group X": (make_X(), "damaged, incomplete"),
    "X without data": (make_X(**{"encoding-type": "csr_matrix"}), "damaged, incomplete"),
    "X of other cells": (replace("X", np.zeros((30, 8))), "damaged, incomplete"),
    "X of one dimension": (replace("X", np.zeros(120)), "damaged, incomplete"),
    "no obs": (delete("obs"), "damaged, incomplete, or no AnnData file"),
    "no names": (delete("obs/_index"), "damaged, incomplete, or no AnnData file"),
    "no categories": (delete("obs/cell_type/categories"), "damaged, incomplete"),
    "short codes": (replace("obs/cell_type/codes", np.zeros(30, int)), "damaged, incomplete"),
    "two columns": (
        attribute("obs", "column-order", ["cell_type", "cell_type"]),
        r"obs\['cell_type'\] and obs\['cell_type'\] have one name in a file",
    ),
    "loop": (lambda file: put(file, "uns/self", file["uns"]), "is a link"),
    "loop of layers": (lambda file: put(file, "layers/self", file["layers"]), "is a link"),
    "link": (lambda file: put(file, "uns/a", h5py.SoftLink("/b")), "/uns/a is a link"),
    "numbers in another file": (external, "/obsm/a is a link"),
    "numbers of another file": (virtual, "/obsm/a is a link"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_refused_before_the_training(
    kind: str, cells: ad.AnnData, tmp_path: Path
) -> None:
    cells.write_h5ad(path := tmp_path / "cells.h5ad")
    with h5py.File(path, "a") as file:
        DAMAGED[kind][0](file)
    found = run("fit", path, *FIT)
    assert (found.exit_code, n_lines(found)) == (1, 1)
    assert re.search(DAMAGED[kind][1], found.output)
    assert [file.name for file in tmp_path.iterdir()] == ["cells.h5ad"]


def link(part: str) -> Edit:
    return lambda file: (file.pop(part), put(file, part, h5py.ExternalLink("other.h5ad", part)))


MEAN, CONFIG = "uns/ce/model/arrays/mean", "uns/ce/model/config"
DAMAGED_MAPS: dict[str, tuple[Edit, str]] = {
    "a link to another file": (link("uns/ce"), "/uns/ce is a link; put a copy of its target in"),
    "an array in another file": (link(MEAN), "arrays/mean is a link"),
    "labels in another file": (link("obs/cell_type"), "cell_type is a link"),
    "kind of a dict": (attribute("uns/ce/params", "encoding-type", "x"), "it is damaged"),
    "no text": (
        lambda file: file[CONFIG].write_direct(np.array("{", object)),
        "the model's config is not valid JSON",
    ),
    "cut off": (lambda file: os.truncate(file.filename, 5000), "it is damaged"),
}


@pytest.mark.parametrize("kind", DAMAGED_MAPS)
def test_a_damaged_map_is_refused(
    kind: str, cells: ad.AnnData, embed: Callable[..., ad.AnnData], tmp_path: Path
) -> None:
    cells.write_h5ad(path := tmp_path / "cells.h5ad")
    for name in ("map.h5ad", "other.h5ad"):
        embed().write_h5ad(tmp_path / name)
    with h5py.File(tmp_path / "map.h5ad", "a") as file:
        DAMAGED_MAPS[kind][0](file)
    found = run("ingest", path, "--reference", str(tmp_path / "map.h5ad"))
    assert (found.exit_code, n_lines(found)) == (1, 1)
    assert DAMAGED_MAPS[kind][1] in found.output
    assert not (tmp_path / "out.h5ad").exists()
    if "is a link" in found.output:
        with pytest.raises(OSError, match="is a link"):
            read_table(tmp_path / "map.h5ad")


OTHERS: dict[str, bytes] = {
    "empty.h5ad": b"",
    "text.h5ad": b"a,b\n1,2\n",
    "arrays.npz": b"PK\x03\x04",
    "seurat.rds": b"\x1f\x8b\x08",
    "cells.loom": b"",
    "tenx.h5": b"",
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_another_kind_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(OTHERS[name])
    if name in ("cells.loom", "tenx.h5"):
        with h5py.File(path, "w") as file:
            file["matrix/data"] = np.zeros(3)
    for command in (["fit", str(path), *FIT], ["plot", "voronoi", str(path)]):
        out = str(tmp_path / ("out.h5ad" if "fit" in command else "out.png"))
        found = CliRunner(catch_exceptions=False).invoke(cli, [*command, "-q", "-o", out])
        assert (found.exit_code, n_lines(found)) == (1, 1)
        assert "cannot be read: it is damaged, incomplete, or no AnnData file" in found.output


@pytest.mark.parametrize("backed", [False, True])
def test_indices_beyond_the_columns_are_refused(
    backed: bool, cells: ad.AnnData, fast: ce.CentroidEncoder, tmp_path: Path
) -> None:
    cells.X = sparse.csr_matrix(cells.X)
    cells.write_h5ad(path := tmp_path / "cells.h5ad")
    with h5py.File(path, "a") as file:
        file["X/indices"][:] = 99
    adata = ad.read_h5ad(path, backed="r" if backed else None)
    with pytest.raises(ValueError, match="a sparse matrix is damaged: indices must be < 8"):
        ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)


LAZY: dict[str, Callable[[ad.AnnData, ad.AnnData], object]] = {
    "centroid_encoder": lambda lazy, _: ce.tl.centroid_encoder(lazy, "cell_type"),
    "cross_validate": lambda lazy, _: ce.tl.cross_validate(lazy, "cell_type"),
    "ingest": lambda lazy, cells: ce.tl.ingest(lazy, cells),
    "ingest into": lambda lazy, cells: ce.tl.ingest(cells, lazy),
    "suggest": lambda lazy, _: ce.tl.suggest(lazy),
    "composition": lambda lazy, _: ce.tl.composition(lazy, "cell_type", label_key="ce_label"),
    "misplaced": lambda lazy, _: ce.tl.misplaced(lazy),
    "mislabeled": lambda lazy, _: ce.tl.mislabeled(lazy),
    "fitted_model": lambda lazy, _: ce.tl.fitted_model(lazy),
    "voronoi": lambda lazy, _: ce.pl.voronoi(lazy),
}


@pytest.mark.parametrize("function", LAZY)
def test_lazy_columns_are_refused_in_one_sentence(
    function: str, embed: Callable[..., ad.AnnData], tmp_path: Path
) -> None:
    pytest.importorskip("xarray")
    read_lazy = getattr(ad.experimental, "read_lazy", None)
    if read_lazy is None:
        pytest.skip("this anndata has no read_lazy")
    cells = embed()
    cells.write_h5ad(path := tmp_path / "cells.h5ad")
    with pytest.raises(ValueError, match=r"read_lazy; call adata = adata\.to_memory\(\) first"):
        LAZY[function](read_lazy(path), cells)
