"""The command line writes the results of the functions into files; an error is one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anndata as ad
import click
import h5py
import numpy as np
import pandas as pd
import pytest
import tifffile
from click.testing import CliRunner, Result
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder._signature import REQUIRED, parameters
from centroid_encoder.cli import cli
from centroid_encoder.cli._options import LEFT_TO_PYTHON

ROOT = Path(__file__).parents[1]
FIGURES = sorted(ce.pl.__all__)
OWN_DEFAULTS = ("label_key", "reference", "dpi", "images")
FIT = ("--label-key", "cell_type", "--max-epochs", "3")
VALIDATE = (*FIT, "--n-folds", "2", "--n-permutations", "2")

MakeCells = Callable[..., ad.AnnData]


@pytest.fixture
def folder(cells: ad.AnnData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with cells in ``in.h5ad``."""
    cells.write_h5ad(tmp_path / "in.h5ad")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of cells with a map, a cross-validation and a permutation test."""
    rng = np.random.default_rng(0)
    codes = np.arange(90) % 3
    adata = ad.AnnData(
        (2 * codes[:, None] + rng.normal(size=(90, 5))).astype(np.float32),
        obs=pd.DataFrame({"cell_type": np.array(["a", "b", "c"])[codes]}, index=names("cell", 90)),
        var=pd.DataFrame(index=names("gene", 5)),
    )
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5)
    ce.tl.centroid_encoder(adata, "cell_type", model=model, progress=False)
    ce.tl.cross_validate(
        adata, "cell_type", model=model, n_folds=2, n_permutations=3, progress=False
    )
    path = tmp_path_factory.mktemp("results") / "results.h5ad"
    adata.write_h5ad(path)
    return path


def names(what: str, n: int) -> list[str]:
    return [f"{what}{i}" for i in range(n)]


def run(*arguments: object, status: int = 0) -> Result:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    if result.exit_code not in (0, 1, 2) or isinstance(result.exception, AssertionError):
        raise result.exception or AssertionError(result.output)
    assert result.exit_code == status, result.output
    return result


def failure(*arguments: object, status: int = 1) -> str:
    """What the last line says of a command that fails; nothing is on stdout."""
    result = run(*arguments, status=status)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr.count("Error: ") == 1
    return result.stderr.rstrip("\n").rpartition("Error: ")[2]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def as_written(adata: ad.AnnData) -> bytes:
    """All that is read of an AnnData once it has been in a file, bit for bit."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder, "once.h5ad"), Path(folder, "twice.h5ad")
        adata.write_h5ad(paths[0])
        ad.read_h5ad(paths[0]).write_h5ad(paths[1])
        return paths[1].read_bytes()


# Help


COMMANDS = [
    (("fit",), "tl.centroid_encoder"),
    (("cross-validate",), "tl.cross_validate"),
    (("ingest",), "tl.ingest"),
    (("measure",), "tl.measure"),
    *((("plot", name.replace("_", "-")), f"pl.{name}") for name in FIGURES),
]


@pytest.mark.parametrize(("path", "function"), COMMANDS)
def test_options_and_their_defaults_are_those_of_the_function(
    path: tuple[str, ...], function: str
) -> None:
    assert run(*path, "-h").stdout.startswith(f"Usage: cli {' '.join(path)}")
    command: Any = cli
    for name in path:
        command = command.get_command(click.Context(command), name)
    assert all(isinstance(one, click.Argument) or one.help for one in command.params)
    options = command.make_context("", [], resilient_parsing=True).params
    found = parameters(function)
    for name, default in options.items():
        if name in found and found[name].default is not REQUIRED and name not in OWN_DEFAULTS:
            assert default == found[name].default, name
    assert set(found) - set(options) <= LEFT_TO_PYTHON


def test_help_is_quick() -> None:
    code = """
import sys
from click.testing import CliRunner
from centroid_encoder.cli import cli
assert CliRunner().invoke(cli, ["--help"]).exit_code == 0
print(*{"torch", "scanpy", "anndata", "matplotlib", "sklearn", "numpy"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == done.stderr == ""


def test_version() -> None:
    assert run("--version").stdout.split()[-1] == ce.__version__


# fit


def test_fit_writes_what_the_tool_writes_bit_for_bit(folder: Path, cells: ad.AnnData) -> None:
    before = (folder / "in.h5ad").read_bytes()

    run(
        "fit",
        "in.h5ad",
        *FIT,
        "-o",
        "out.h5ad",
        "--random-state",
        7,
        "--model-out",
        "m.safetensors",
    )

    adata = ad.read_h5ad("in.h5ad")
    model = ce.CentroidEncoder(max_epochs=3)
    ce.tl.centroid_encoder(adata, "cell_type", model=model, random_state=7, progress=False)
    assert sorted(contents(folder)) == ["in.h5ad", "m.safetensors", "out.h5ad"]
    assert (folder / "in.h5ad").read_bytes() == before
    assert as_written(ad.read_h5ad("out.h5ad")) == as_written(adata)
    ce.tl.fitted_model(adata, device="cpu").save("expected.safetensors")
    found = contents(folder)
    assert found["m.safetensors"] == found["expected.safetensors"]


def test_warnings_are_on_stderr_and_in_the_json(folder: Path, cells: ad.AnnData) -> None:
    cells.X = np.round(np.abs(10 * cells.X))
    cells.write_h5ad("in.h5ad")
    result = run("fit", "in.h5ad", *FIT, "-o", "out.h5ad", "--json", "--quiet")
    found = json.loads(result.stdout)["warnings"]
    assert found[0].startswith("X looks like raw counts")
    assert result.stderr.splitlines() == [f"Warning: {one}" for one in found]


@pytest.mark.parametrize("given", [(), ("--max-epochs", 2)])
def test_a_draft_is_a_small_network(folder: Path, given: tuple[Any, ...]) -> None:
    labels = ("--label-key", "cell_type", "--quiet")
    run(
        "fit", "in.h5ad", *labels, "--draft", *given, "-o", "o.h5ad", "--model-out", "m.safetensors"
    )
    model = ce.load("m.safetensors", device="cpu")
    assert model.hidden == (250, 100, 50)
    assert model.n_epochs_ == (2 if given else 8)


def test_fit_passes_options_on(folder: Path, make_cells: MakeCells) -> None:
    cells = make_cells(4, names=["a", "b", "c", "?"])
    cells.obs["donor"] = names("donor", 6) * 20
    cells.layers["log"] = cells.X.copy()
    cells.layers["log"][3, 2] = np.nan
    cells.var["good"] = [True] * 6 + [False] * 2
    cells.write_h5ad("in.h5ad")

    run(
        *("fit", "in.h5ad", *FIT, "--output", "out.h5ad"),
        *("--layer", "log", "--missing", "drop", "--mask-var", "good", "--group-key", "donor"),
        *("--unlabeled-category", "?", "--test-size", 0.3, "--n-components", 3),
        *("--key-added", "mine", "--device", "cpu"),
    )

    adata = ad.read_h5ad("out.h5ad")
    assert adata.obsm["mine"].shape == (120, 3)
    assert np.isnan(adata.obsm["mine"]).any(axis=1).sum() == 1
    assert dict(adata.uns["mine"]["params"]) == {
        "label_key": "cell_type",
        "layer": "log",
        "mask_var": "good",
        "unlabeled_category": "?",
        "missing": "drop",
        "test_size": 0.3,
        "group_key": "donor",
        "random_state": 0,
    }
    assert len(adata.uns["mine"]["history"]) == 3
    assert (adata.obs["cell_type"][adata.obs["mine_split"] == "unlabeled"] == "?").all()
    assert len(ce.tl.fitted_model(adata, "mine").feature_names_in_) == 6


def test_what_fit_says(folder: Path) -> None:
    result = run("fit", "in.h5ad", *FIT, "-o", "out.h5ad")
    lines = result.stdout.splitlines()
    assert re.match(r"Held-out 5-NN error \d+\.\d % \(n = 24\)", lines[0])
    assert lines[-1] == "Wrote out.h5ad"
    assert "computing centroid-encoder of 'cell_type'" in result.stderr
    assert "3 classes; 96 training, 24 held-out, 0 unlabeled cells" in result.stderr
    assert "3/3" in result.stderr


def test_fit_as_json(folder: Path, cells: ad.AnnData) -> None:
    result = run(
        *("fit", "in.h5ad", *FIT, "-o", "out.h5ad", "--json", "--test-size", 0),
        *("--model-out", "m.safetensors"),
    )
    found = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert list(found) == [
        *("command", "version", "input", "output", "model", "key", "n_obs", "params", "classes"),
        *("quality", "warnings"),
    ]
    assert found["command"] == "fit"
    assert found["version"] == ce.__version__
    assert (found["input"], found["output"], found["model"]) == (
        *("in.h5ad", "out.h5ad", "m.safetensors"),
    )
    assert found["params"]["test_size"] == 0
    assert found["classes"] == ["type 0", "type 1", "type 2"]
    # Nothing was held out: NaN, which JSON has not.
    assert found["quality"]["test"]["n"] == 0
    assert found["quality"]["test"]["knn_error"] is None
    assert found["quality"]["test"]["calibration_error"] is None
    stored = ad.read_h5ad("out.h5ad").uns["ce"]["quality"]
    assert found["quality"]["train"] == dict(stored["train"])
    assert [row["class"] for row in found["quality"]["per_class"]] == found["classes"]
    assert found["warnings"] == []


def test_all_else_in_the_file_is_copied(folder: Path, cells: ad.AnnData) -> None:
    cells.raw = cells.copy()
    cells.X = sparse.csr_matrix(cells.X)
    cells.uns["note"] = {"by": "me"}
    cells.write_h5ad("in.h5ad", compression="gzip")
    with h5py.File("in.h5ad", "r+") as file:
        del file["obsm"]  # There need not be such a part.

    run("fit", "in.h5ad", *FIT, "-o", "out.h5ad")

    with h5py.File("out.h5ad") as file:
        assert file["X/data"].compression == "gzip"
    adata = ad.read_h5ad("out.h5ad")
    assert adata.uns["note"] == {"by": "me"}
    np.testing.assert_array_equal(adata.raw.X, cells.raw.X)
    assert adata.obsm["X_ce"].shape == (120, 2)


@pytest.mark.filterwarnings("ignore:zarr v3 autosharding", "ignore:Consolidated metadata")
@pytest.mark.parametrize(
    ("source", "output", "version"),
    [
        ("in.zarr", "out.zarr", 3),
        ("in.zarr", "out.h5ad", 2),
        pytest.param("in.h5ad", "out.zarr", 2, marks=pytest.mark.slow),
        pytest.param("in.zarr", "in.zarr", 2, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:.*removed in 0.14:DeprecationWarning")
def test_stores_are_read_and_written_where_files_are(
    source: str, output: str, version: int, folder: Path, cells: ad.AnnData
) -> None:
    cells.raw = cells.copy()
    cells.layers["counts"] = sparse.csr_matrix(np.round(np.abs(cells.X)))
    cells.uns["note"] = {"by": "me"}
    cells.write_h5ad("in.h5ad")
    with ad.settings.override(zarr_write_format=version):
        cells.write_zarr("in.zarr")
    before = {path: path.read_bytes() for path in Path("in.zarr").rglob("*") if path.is_file()}

    run("fit", source, *FIT, "-o", output, *(["--overwrite"] if source == output else []))
    run("fit", "in.h5ad", *FIT, "-o", "expected.h5ad")

    found = ad.read_zarr(output) if output.endswith("zarr") else ad.read_h5ad(output)
    assert as_written(found) == as_written(ad.read_h5ad("expected.h5ad"))
    if source != output:
        after = {path: path.read_bytes() for path in Path("in.zarr").rglob("*") if path.is_file()}
        assert after == before
    assert sorted(os.listdir()) == sorted({"in.h5ad", "in.zarr", "expected.h5ad", output})
    # A second time it is replaced.
    run("fit", "in.h5ad", *FIT, "-o", output, "--key-added", "second")
    found = ad.read_zarr(output) if output.endswith("zarr") else ad.read_h5ad(output)
    assert "second" in found.obsm
    assert "X_ce" not in found.obsm


def test_stores_that_are_none(folder: Path) -> None:
    zarr = pytest.importorskip("zarr")
    Path("folder.zarr").mkdir()
    zarr.open_group("images.zarr", mode="w").create_group("0")
    zarr.open_group("spatial.zarr", mode="w").create_group("tables/cells")
    ad.read_h5ad("in.h5ad").write_zarr("damaged.zarr")
    shutil.rmtree("damaged.zarr/obs")
    before = sorted(Path().rglob("*"))
    for source, said, status in (
        ("folder.zarr", "is a directory, but no zarr store", 2),
        ("images.zarr", "is a zarr store, but not of an AnnData", 1),
        ("spatial.zarr", "one of its tables here: tables/cells", 1),
        ("damaged.zarr", "damaged.zarr cannot be read: it is damaged", 1),
    ):
        assert said in failure("fit", source, *FIT, "-o", "out.zarr", status=status)
    for output, said in (
        ("folder.zarr", "is no zarr store of an AnnData"),
        ("images.zarr", "is no zarr store of an AnnData"),
        ("nowhere/out.zarr", "there is no folder nowhere"),
    ):
        assert said in failure("fit", "in.h5ad", *FIT, "-o", output, status=2)
    assert sorted(Path().rglob("*")) == before


# cross-validate


def test_cross_validate_writes_what_the_tools_write_bit_for_bit(folder: Path) -> None:
    found = json.loads(
        run(
            *("cross-validate", "in.h5ad", *VALIDATE, "-o", "out.h5ad", "--json"),
            *("--mislabeled", "doubtful.csv", "--max-own", 0.4, "--n-repeats", 2),
        ).stdout
    )

    adata = ad.read_h5ad("in.h5ad")
    model = ce.CentroidEncoder(max_epochs=3)
    ce.tl.cross_validate(
        *(adata, "cell_type"),
        model=model,
        n_folds=2,
        n_repeats=2,
        n_permutations=2,
        progress=False,
    )
    assert as_written(ad.read_h5ad("out.h5ad")) == as_written(adata)
    expected = ce.tl.mislabeled(adata, max_own=0.4)
    table = pd.read_csv("doubtful.csv", index_col="cell")
    assert list(table.index) == list(expected.index)
    assert list(table) == ["label", "predicted", "confidence", "own"]

    assert list(found) == [
        *("command", "version", "input", "output", "mislabeled", "n_mislabeled", "key", "n_obs"),
        *("params", "classes", "quality", "errors", "per_class", "confusion", "permutation"),
        "warnings",
    ]
    stored = adata.uns["ce_cv"]
    assert found["n_mislabeled"] == len(expected)
    assert found["quality"] == stored["quality"]
    assert found["errors"] == stored["errors"].to_dict("records")
    assert found["confusion"] == stored["confusion"].tolist()
    assert found["permutation"]["p_value"] == stored["permutation"]["p_value"]
    assert len(found["permutation"]["errors"]) == 2


def test_what_cross_validate_says(folder: Path, cells: ad.AnnData) -> None:
    cells.obs["donor"] = pd.Categorical(names("donor", 6) * 20)
    cells.write_h5ad("in.h5ad")
    result = run("cross-validate", "in.h5ad", *VALIDATE, "-o", "out.h5ad")
    assert re.search(r"Cross-validated 5-NN error \d+\.\d ± \d+\.\d % \(2 folds", result.stdout)
    assert "p = " in result.stdout
    assert "points on average" in result.stdout
    assert "Cells that look mislabelled: " in result.stdout
    assert "group_key='donor'" in result.stdout
    assert "group_key='donor'" in result.stderr

    found = json.loads(
        run(
            "cross-validate", "in.h5ad", *FIT, "-o", "o.h5ad", "--group-key", "donor", "--json"
        ).stdout
    )
    assert found["params"]["n_folds"] == 5
    assert found["permutation"] is found["mislabeled"] is None


# ingest


@pytest.mark.parametrize("reference", ["map.h5ad", "map.safetensors"])
def test_ingest_writes_what_the_tool_writes_bit_for_bit(reference: str, folder: Path) -> None:
    run("fit", "in.h5ad", *FIT, "-o", "map.h5ad", "--model-out", "map.safetensors")
    options = {"min_confidence": 0.4, "max_novelty": 0.9}

    result = run(
        *("ingest", "in.h5ad", "--reference", reference, "-o", "out.h5ad", "--json"),
        *("--min-confidence", 0.4, "--max-novelty", 0.9),
    )

    adata = ad.read_h5ad("in.h5ad")
    ce.tl.ingest(adata, reference, progress=False, **options)
    assert as_written(ad.read_h5ad("out.h5ad")) == as_written(adata)
    found = json.loads(result.stdout)
    assert list(found) == [
        *("command", "version", "input", "reference", "output", "key", "n_obs", "params"),
        *("classes", "labels", "n_unassigned", "mean_confidence", "median_novelty", "warnings"),
    ]
    assert (found["input"], found["reference"]) == ("in.h5ad", reference)
    counts = adata.obs["ce_label"].value_counts()
    assert found["n_unassigned"] == counts["unassigned"]
    assert found["labels"] == counts.drop("unassigned").reindex(found["classes"]).to_dict()
    assert found["params"]["ingested_from"] == reference
    assert "ingesting 120 cells" in result.stderr


def test_what_ingest_says(folder: Path) -> None:
    # Networks without a bottleneck may be so sure of these cells that no digit is left for doubt.
    run(
        "fit", "in.h5ad", *FIT, "--placement", "bottleneck", "-o", "map.h5ad", "--key-added", "mine"
    )
    place = ("ingest", "in.h5ad", "--reference", "map.h5ad", "--key", "mine", "-o", "out.h5ad")

    lines = run(*place, "--key-added", "other").stdout.splitlines()
    assert lines[0] == "120 of 120 cells are assigned to a class."
    assert re.match(r"Classes: type \d \d+, ", lines[1])
    assert re.match(r"Mean confidence \d+\.\d %\.", lines[2])
    assert lines[3].startswith("Median novelty 0.")
    assert lines[4] == "Wrote out.h5ad"
    assert list(ad.read_h5ad("out.h5ad").obsm) == ["other"]

    lines = run(*place, "--min-confidence", 1).stdout.splitlines()
    assert lines[0] == "0 of 120 cells are assigned to a class."
    assert lines[1].startswith("Mean confidence")


def test_features_that_are_missing(folder: Path, cells: ad.AnnData) -> None:
    run("fit", "in.h5ad", *FIT, "-o", "map.h5ad")
    cells[:, 1:].write_h5ad("less.h5ad")
    place = ("ingest", "less.h5ad", "-o", "out.h5ad", "--reference", "map.h5ad")
    assert 'missing="mean"' in failure(*place)
    assert "max_missing=0.1" in failure(*place, "--missing", "mean", "--max-missing", 0.1)
    assert not Path("out.h5ad").exists()
    result = run(*place, "--missing", "mean", "-q")
    assert result.stderr.startswith("Warning: X lacks 1 of the 8 features")


# plot


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_is_drawn(figure: str, results: Path, tmp_path: Path) -> None:
    before = results.read_bytes()
    output = tmp_path / "figure.png"
    name = figure.replace("_", "-")
    needed = ["--group-key", "ce_split"] * (figure == "composition")
    result = run("plot", name, results, *needed, "-o", output, "--dpi", 40, "--json")
    assert json.loads(result.stdout) == {
        "command": "plot",
        "version": ce.__version__,
        "figure": name,
        "input": str(results),
        "output": str(output),
        "warnings": [],
    }
    assert output.read_bytes().startswith(b"\x89PNG")
    assert os.listdir(tmp_path) == ["figure.png"]
    assert results.read_bytes() == before


@pytest.mark.parametrize(("suffix", "start"), [("pdf", b"%PDF"), ("SVG", b"<?xml")])
def test_the_name_says_the_format(suffix: str, start: bytes, results: Path, tmp_path: Path) -> None:
    output = tmp_path / f"figure.{suffix}"
    result = run("plot", "voronoi", results, "-o", output, "--regions", "none", "--split", "test")
    assert result.stdout == f"Wrote {output}\n"
    assert output.read_bytes().startswith(start)


# measure


@pytest.fixture
def images(folder: Path) -> Path:
    """Working directory with a label image, an image of two channels, and one of other pixels."""
    labels = np.kron(np.arange(6).reshape(2, 3), np.ones((4, 4), dtype=int)).astype(np.uint16)
    several = np.random.default_rng(0).integers(0, 999, (2, *labels.shape), dtype=np.uint16)
    tifffile.imwrite(folder / "nuclei.tif", labels)
    tifffile.imwrite(folder / "frames.tif", np.stack([labels] * 2), metadata={"axes": "TYX"})
    tifffile.imwrite(folder / "markers.tif", several, metadata={"axes": "CYX"})
    np.save(folder / "dapi.npy", several[0] / 2)
    np.save(folder / "small.npy", several[0, 1:])
    np.save(folder / "objects.npy", np.array([{}]))
    (folder / "damaged.tif").write_bytes((folder / "markers.tif").read_bytes()[:90])
    return folder


@pytest.mark.parametrize("output", ["cells.h5ad", "cells.zarr"])
def test_measure_writes_what_the_tool_returns(output: str, images: Path) -> None:
    labels, several = (tifffile.imread(images / f"{name}.tif") for name in ("nuclei", "markers"))

    said = run(
        *("measure", "nuclei.tif", "dapi.npy", "markers.tif", "-o", output),
        *(
            "--spacing",
            "2,0.5",
            "--unit",
            "um",
            "--quantiles",
            "0.5",
            "--properties",
            "solidity",
            "--channels",
            "DAPI,CD3, CD20",
        ),
    )

    channels = {"DAPI": several[0] / 2, "CD3": several[0], "CD20": several[1]}
    expected = ce.tl.measure(
        {"nuclei": labels},
        channels,
        spacing=(2, 0.5),
        unit="um",
        properties=["solidity"],
        quantiles=[0.5],
        progress=False,
    )
    written = (ad.read_zarr if output.endswith("zarr") else ad.read_h5ad)(images / output)
    np.testing.assert_array_equal(written.X, expected.X)
    pd.testing.assert_frame_equal(written.obs, expected.obs)
    pd.testing.assert_frame_equal(written.var, expected.var)
    assert written.uns["spatialdata_attrs"]["region"] == "nuclei"
    assert said.stdout.startswith("5 cells, 15 variables: area_um2, axis_major")
    assert said.stdout.endswith(f"Wrote {output}\n")


def test_measure_as_json(images: Path) -> None:
    line = run("measure", "frames.tif", "-o", "cells.h5ad", "--time-series", "--json").stdout

    document = json.loads(line)
    assert document["n_obs"] == 10
    assert document["variables"][0]["name"] == "area_px2"
    assert document["variables"][0]["channel"] is None
    assert (document["spacing"], document["warnings"]) == ([1, 1], [])


def test_an_axis_that_may_be_time_is_told(images: Path) -> None:
    with tifffile.TiffFile(images / "frames.tif") as file:
        assert file.series[0].axes == "TYX"

    said = run("measure", "frames.tif", "-o", "cells.h5ad")

    assert "Warning: the axes of frames.tif are T, Y, X" in said.stderr
    assert "pass time_series=True" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (
            ["nuclei.tif", "small.npy"],
            1,
            "'small' has the shape (7, 12) and labels 'nuclei' (8, 12",
        ),
        (["in.h5ad"], 1, "its name must end in .tif or .npy"),
        (["objects.npy"], 1, "objects.npy cannot be read: "),
        (["damaged.tif"], 1, "damaged.tif cannot be read: "),
        (["dapi.npy"], 1, "labels 'dapi' must be integers, one for each cell; got float64"),
        (["nuclei.tif", "--spacing", "2"], 1, "spacing has no unit; pass unit='um'"),
        (["nuclei.tif", "--spacing", "a"], 2, "'a' is no number"),
        (["nuclei.tif", "dapi.npy", "--channels", "a,b"], 1, "there are 1 channels, dapi;"),
        (["nuclei.tif", "--properties", "shape"], 1, "properties must be among"),
        (["nuclei.tif", "nowhere.tif"], 2, "'nowhere.tif' does not exist"),
    ],
)
def test_what_cannot_be_measured(
    arguments: list[str], status: int, said: str, images: Path
) -> None:
    before = contents(images)

    assert said in failure("measure", *arguments, "-o", "cells.h5ad", status=status)

    assert contents(images) == before


def test_an_image_is_never_replaced(images: Path) -> None:
    (images / "cells.h5ad").symlink_to("dapi.npy")
    before = contents(images)

    said = failure("measure", "nuclei.tif", "dapi.npy", "-o", "cells.h5ad", status=2)

    assert "cells.h5ad is an input; name another file" in said
    assert contents(images) == before


# Errors


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere.h5ad", "-o", "out.h5ad"], "'nowhere.h5ad' does not exist"),
        ([".", "-o", "out.h5ad"], "is a directory, but no zarr store"),
        (["in.h5ad"], "Missing option '-o'"),
        (["in.h5ad", "-o", "out.txt"], "the name must end in .h5ad or .zarr; got 'out.txt'"),
        (["in.h5ad", "-o", "nowhere/out.h5ad"], "there is no folder nowhere"),
        (["in.h5ad", "-o", "in.h5ad"], "in.h5ad is an input; name another file, or pass --overw"),
        (["in.h5ad", "-o", "link.h5ad"], "link.h5ad is an input"),
        (["in.h5ad", "-o", "out.h5ad", "--model-out", "m.pt"], "must end in .safetensors"),
        (["in.h5ad", "-o", "out.h5ad", "--missing", "ignore"], "'ignore' is not one of"),
        (["in.h5ad", "-o", "out.h5ad", "--test-size", "nan"], "'--test-size': nan is not in the"),
        (
            ["in.h5ad", "-o", "out.h5ad", "--n-components", "70000"],
            "not in the range 1<=x<65536",
        ),
        (
            ["in.h5ad", "-o", "out.h5ad", "--no-mask-var", "--mask-var", "x"],
            "--mask-var and --no-mask-var exclude each other",
        ),
    ],
)
def test_wrong_usage(options: list[str], said: str, folder: Path) -> None:
    (folder / "link.h5ad").symlink_to("in.h5ad")
    before = contents(folder)
    assert said in failure("fit", *options, *FIT, status=2)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("options", "said", "parameter"),
    [
        (
            ["--label-key", "cel_type"],
            "no column 'cel_type'; did you mean 'cell_type'",
            "label_key",
        ),
        (["--device", "toaster"], "device 'toaster' is not available here", "device"),
        (["--key-added", "a/b"], "key_added must not be 'a/b'", "key_added"),
        (["--layer", "gaps"], 'missing="drop"', "missing"),
    ],
)
def test_data_that_cannot_be_used(
    options: list[str], said: str, parameter: str | None, folder: Path, cells: ad.AnnData
) -> None:
    cells.layers["gaps"] = np.where(np.arange(8) == 3, np.nan, cells.X)
    cells.write_h5ad("in.h5ad")
    before = contents(folder)
    result = run("fit", "in.h5ad", *FIT, "-o", "out.h5ad", "--json", "-q", *options, status=1)
    assert said in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    found = json.loads(result.stdout)
    assert list(found) == ["command", "version", "error", "parameter", "warnings"]
    assert result.stderr == f"Error: {found['error']}\n"
    assert found["parameter"] == parameter
    assert contents(folder) == before


def test_an_input_is_replaced_if_that_is_meant(folder: Path) -> None:
    run("fit", "in.h5ad", *FIT, "-o", "in.h5ad", "--overwrite")
    assert "X_ce" in ad.read_h5ad("in.h5ad").obsm
    # Any other file is replaced as well.
    Path("out.h5ad").touch()
    run("fit", "in.h5ad", *FIT, "-o", "out.h5ad")
    assert sorted(contents(folder)) == ["in.h5ad", "out.h5ad"]


def test_an_unlabeled_category_may_be_a_number(folder: Path) -> None:
    adata = ad.read_h5ad("in.h5ad")
    adata.obs["number"] = pd.factorize(adata.obs["cell_type"])[0]
    adata.write_h5ad("in.h5ad")
    options = ("--label-key", "number", "--unlabeled-category", 0, "--max-epochs", 2)
    run("fit", "in.h5ad", *options, "-o", "out.h5ad")
    split = ad.read_h5ad("out.h5ad").obs["ce_split"]
    assert ((split == "unlabeled") == (adata.obs["number"] == 0)).all()
    run("cross-validate", "in.h5ad", *options, "-o", "out.h5ad", "--n-folds", 2)


def test_a_bug_keeps_its_traceback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise AttributeError("a bug")

    tool = SimpleNamespace(job=broken)
    monkeypatch.setattr(
        import_module("centroid_encoder.tl"), "centroid_encoder", tool, raising=False
    )
    with pytest.raises(AttributeError, match="a bug"):
        CliRunner().invoke(cli, ["fit", "in.h5ad", *FIT, "-o", "out.h5ad"], catch_exceptions=False)
