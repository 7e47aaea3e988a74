"""The command line writes the results of the functions to files; an error is one line."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from operator import attrgetter
from pathlib import Path
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import tifffile
from click.testing import CliRunner, Result
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.cli import cli
from centroid_encoder.cli._options import NO_OPTIONS

FIGURES = [name.replace("_", "-") for name in ce.pl.__all__ if name != "interactive"]
FIT = ("--label-key", "cell_type", "--max-epochs", "3")
VALIDATE = (*FIT, "--n-folds", "2", "--n-permutations", "2")
HEAVY = {"torch", "scanpy", "anndata", "matplotlib", "sklearn", "pandas", "numpy"}
pytestmark = pytest.mark.filterwarnings(
    "ignore:zarr v3 autosharding", "ignore:Consolidated metadata", "ignore:.*removed in 0.14"
)


@pytest.fixture
def folder(cells: ad.AnnData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with cells in ``in.h5ad``, which has all parts except ``obsm``."""
    cells.obs["donor"] = pd.Categorical([f"donor{i}" for i in range(6)] * 20)
    cells.obs["number"] = pd.factorize(cells.obs["cell_type"])[0]
    cells.var["good"] = [True] * 6 + [False] * 2
    cells.layers["gap"] = cells.X.copy()
    cells.layers["gap"][3, 2] = np.nan
    cells.layers["counts"] = sparse.csr_matrix(np.round(np.abs(10 * cells.X)))
    cells.raw = cells.copy()
    cells.uns["note"] = {"by": "me"}
    cells.write_h5ad(tmp_path / "in.h5ad", compression="gzip")
    with h5py.File(tmp_path / "in.h5ad", "r+") as file:
        del file["obsm"]
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of cells with a map, a cross-validation, a permutation test and feature panels."""
    rng = np.random.default_rng(0)
    codes = np.arange(90) % 3
    adata = ad.AnnData((2 * codes[:, None] + rng.normal(size=(90, 5))).astype(np.float32))
    adata.obs["cell_type"] = pd.Categorical(np.array(["a", "b", "c"])[codes])
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5)
    ce.tl.centroid_encoder(adata, "cell_type", model=model, progress=False)
    folds = {"n_folds": 2, "n_permutations": 3}
    ce.tl.cross_validate(adata, "cell_type", model=model, progress=False, **folds)
    ce.tl.feature_panel(adata, "cell_type", (2, 3), n_folds=2, model=model, progress=False)
    path = tmp_path_factory.mktemp("results") / "results.h5ad"
    adata.write_h5ad(path)
    return path


@pytest.fixture
def images(folder: Path) -> Path:
    """Working directory with label images and images; two files cannot be measured."""
    labels = np.kron(np.arange(6).reshape(2, 3), np.ones((4, 4), dtype=int)).astype(np.uint16)
    several = np.random.default_rng(0).integers(0, 999, (2, *labels.shape), dtype=np.uint16)
    tifffile.imwrite("nuclei.tif", labels)
    tifffile.imwrite("frames.tif", np.stack([labels] * 2), metadata={"axes": "TYX"})
    tifffile.imwrite("markers.tif", several, metadata={"axes": "CYX"})
    np.save("dapi.npy", several[0] / 2)
    np.save("small.npy", several[0, 1:])
    Path("damaged.tif").write_bytes(Path("markers.tif").read_bytes()[:90])
    return folder


def run(*arguments: object, status: int = 0) -> Result:
    result = CliRunner(catch_exceptions=False).invoke(cli, [str(one) for one in arguments])
    assert result.exit_code == status, result.output
    return result


def as_json(*arguments: object) -> dict[str, Any]:
    """Run a command with ``--json``, and return the results, which are one line."""
    text = run(*arguments, "--json").stdout
    assert text.count("\n") == 1
    return json.loads(text)


def failure(*arguments: object, status: int = 1) -> str:
    """Run a command that fails, and return its error; it must not change files."""
    before = contents()
    result = run(*arguments, status=status)
    assert (contents(), result.stdout) == (before, "")
    _, text = result.stderr.rstrip("\n").split("Error: ")
    return text


def contents() -> dict[Path, bytes | None]:
    """Return the paths in the working directory and the contents of the files."""
    paths = sorted(Path().rglob("*"))
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def as_written(adata: ad.AnnData) -> bytes:
    """Return the bytes of an AnnData after it was written, read and written again."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder, "once.h5ad"), Path(folder, "twice.h5ad")
        adata.write_h5ad(paths[0])
        ad.read_h5ad(paths[0]).write_h5ad(paths[1])
        return paths[1].read_bytes()


# Help


COMMANDS = {
    "fit": "tl.centroid_encoder",
    "cross-validate": "tl.cross_validate",
    "feature-panel": "tl.feature_panel",
    "ingest": "tl.ingest",
    "measure": "tl.measure",
    "misplaced": "tl.misplaced",
    "rank-features": "tl.rank_features",
    "suggest": "tl.suggest",
    **{f"plot {name}": f"pl.{name.replace('-', '_')}" for name in FIGURES},
}
# The result of rank-features is a table without a name.
WITHOUT = {("rank-features", "key_added")}


def parsed(name: str, *arguments: str) -> dict[str, Any]:
    """Return the values of the parameters of a command that is not run."""
    command: Any = cli
    for part in name.split():
        command = command.commands[part]
    return command.make_context("", list(arguments), resilient_parsing=True).params


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_has_its_option_and_default(name: str) -> None:
    options = parsed(name)
    parameters = inspect.signature(attrgetter(COMMANDS[name])(ce)).parameters
    for one, parameter in parameters.items():
        if one not in NO_OPTIONS and (name, one) not in WITHOUT:
            is_required = parameter.default is inspect.Parameter.empty
            assert options[one] == (None if is_required else parameter.default), one
    if "model" in parameters:
        assert {"max_epochs", "draft"} <= options.keys()


@pytest.mark.parametrize(
    ("command", "arguments", "values"),
    [
        ("fit", "--test-size 0.3 --use-raw", {"test_size": 0.3, "use_raw": True}),
        ("cross-validate", "-j 2", {"n_jobs": 2}),
        ("cross-validate", "--n-jobs -1", {"n_jobs": -1}),
        ("feature-panel", "--sizes 2,4", {"sizes": [2, 4]}),
        ("rank-features", "--group a,b --group c", {"groups": ["a,b", "c"]}),
        ("rank-features", "--no-use-raw", {"use_raw": False}),
        (
            "measure",
            "--spacing 2,0.5 --properties a,b",
            {"spacing": [2, 0.5], "properties": ["a", "b"]},
        ),
        ("plot voronoi", "--color a,b --regions none", {"color": "a,b", "regions": None}),
        ("plot voronoi", "--color a --color b", {"color": ["a", "b"]}),
        ("plot voronoi", "--vmin 1 --vmax p99", {"vmin": 1, "vmax": "p99"}),
    ],
)
def test_values_have_the_types_of_the_function(
    command: str, arguments: str, values: dict[str, Any]
) -> None:
    assert values.items() <= parsed(command, *arguments.split()).items()


def test_help_imports_no_slow_packages() -> None:
    code = f"""
import sys
from click.testing import CliRunner
from centroid_encoder.cli import cli
for name in ["", *{list(COMMANDS)}]:
    assert CliRunner().invoke(cli, [*name.split(), "--help"]).exit_code == 0
print(*{HEAVY} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == done.stderr == ""


# rank-features


def test_rank_features_writes_a_table(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = "--groupby", "cell_type", "--group", "type 1", "--no-use-raw", "-o", "best.csv"
    found = as_json("rank-features", "in.h5ad", *options)
    assert "adata.uns" not in caplog.text
    adata, table = ad.read_h5ad("in.h5ad"), pd.read_csv("best.csv")
    ce.tl.rank_features(adata, "cell_type", ["type 1"], use_raw=False)
    assert table["names"].tolist() == adata.uns["rank_features"]["names"]["type 1"].tolist()
    means = adata.uns["rank_features"]["mean_differences"]["type 1"]
    np.testing.assert_allclose(table["mean_differences"], means, rtol=1e-5)
    assert [row["names"] for row in found["features"]] == table["names"].tolist()
    text = failure("rank-features", "in.h5ad", "--groupby", "cell", "-o", "other.csv")
    assert "cell_type" in text
    assert not Path("other.csv").exists()


# Lists of cells


@pytest.mark.parametrize(
    ("command", "options"),
    [("misplaced", {}), ("suggest", {"n": 7, "image_key": "image", "label_key": "by_hand"})],
)
def test_a_list_of_cells_is_written(
    command: str, options: dict[str, Any], results: Path, folder: Path
) -> None:
    adata = ad.read_h5ad(results)
    adata.obs["image"] = pd.Categorical(["x", "y"] * 45)
    adata.obs["by_hand"] = adata.obs["cell_type"].where(np.arange(90) % 2 == 0)
    adata.write_h5ad("in.h5ad")
    given = [x for name, value in options.items() for x in (f"--{name.replace('_', '-')}", value)]
    found = as_json(command, "in.h5ad", *given, "-o", "cells.csv")
    expected, table = getattr(ce.tl, command)(adata, **options), pd.read_csv("cells.csv")
    assert list(table) == ["cell", *expected]
    assert table["cell"].astype(str).tolist() == expected.index.tolist()
    assert [row["cell"] for row in found["cells"]] == expected.index.tolist()
    assert found["n_cells"] == len(expected) > 0


# fit


def test_roles_of_a_table_can_be_chosen(folder: Path) -> None:
    cells = ad.read_h5ad("in.h5ad")
    table = cells.to_df().assign(Time=np.arange(120.0), kind=cells.obs["cell_type"])
    table.to_csv("cells.csv", index=False)
    fit = ("fit", "cells.csv", "--label-key", "kind", "--max-epochs", 2, "-o", "out.h5ad")
    first, second = list(table)[:2]
    run(*fit, "--role", "Time", "feature", "--role", first, "image")
    adata = ad.read_h5ad("out.h5ad")
    assert second in adata.var_names
    assert "Time" in adata.var_names
    assert first in adata.obs
    assert "no role" in failure(*fit, "--role", "Time", "hour")
    fit = ("fit", "in.h5ad", *FIT, "-o", "out.h5ad", "--role", "Time", "feature")
    assert "no table" in failure(*fit)


def test_fit_writes_what_the_tool_writes(folder: Path) -> None:
    before = contents()
    files = ("-o", "out.h5ad", "--model-out", "m.safetensors")

    result = run("fit", "in.h5ad", *FIT, *files, "--random-state", 7)

    adata = ad.read_h5ad("in.h5ad")
    model = ce.CentroidEncoder(max_epochs=3)
    ce.tl.centroid_encoder(adata, "cell_type", model=model, random_state=7, progress=False)
    assert as_written(ad.read_h5ad("out.h5ad")) == as_written(adata)
    ce.tl.fitted_model(adata, device="cpu").save("expected.safetensors")
    with h5py.File("out.h5ad") as file:
        assert file["X"].compression == "gzip"
    found = contents()
    assert found[Path("m.safetensors")] == found.pop(Path("expected.safetensors"))
    assert found.keys() - before.keys() == {Path("out.h5ad"), Path("m.safetensors")}
    assert before.items() <= found.items()
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Held-out error ")
    assert lines[-2:] == ["Wrote out.h5ad", "Wrote m.safetensors"]
    assert "3 classes; 96 training, 24 held-out, 0 unlabeled cells" in result.stderr
    assert "3/3" in result.stderr


def test_fit_passes_options_on(folder: Path) -> None:
    run(
        *("fit", "in.h5ad", *FIT, "--output", "out.h5ad"),
        *("--layer", "gap", "--missing", "drop", "--mask-var", "good", "--group-key", "donor"),
        *("--unlabeled-category", "type 2", "--test-size", 0.3, "--n-components", 3),
        *("--key-added", "mine", "--device", "cpu"),
    )

    adata = ad.read_h5ad("out.h5ad")
    assert adata.obsm["mine"].shape == (120, 3)
    assert np.isnan(adata.obsm["mine"]).any(axis=1).sum() == 1
    chosen = {"layer": "gap", "mask_var": "good", "unlabeled_category": "type 2"}
    chosen |= {"missing": "drop", "test_size": 0.3, "group_key": "donor"}
    params = {"label_key": "cell_type", **chosen, "random_state": 0}
    assert dict(adata.uns["mine"]["params"]) == params
    assert len(adata.uns["mine"]["history"]) == 3
    assert len(ce.tl.fitted_model(adata, "mine").feature_names_in_) == 6


def test_classes_may_be_numbers_and_a_draft_is_a_small_network(folder: Path) -> None:
    options = ("--label-key", "number", "--unlabeled-category", 0, "--draft", "--max-epochs", 2)
    run("fit", "in.h5ad", *options, "-o", "out.h5ad", "--model-out", "m.safetensors")
    obs = ad.read_h5ad("out.h5ad").obs
    assert ((obs["ce_split"] == "unlabeled") == (obs["number"] == 0)).all()
    model = ce.load("m.safetensors", device="cpu")
    assert (model.hidden, model.n_epochs_) == ((250, 100, 50), 2)


def test_fit_prints_results_as_json(folder: Path) -> None:
    options = ("--layer", "counts", "--test-size", 0)
    result = run("fit", "in.h5ad", *FIT, "-o", "out.h5ad", *options, "--json", "--quiet")

    found = json.loads(result.stdout)
    names = "command version input output model key n_obs params classes quality warnings"
    assert set(found) == set(names.split())
    head = {"command": "fit", "version": ce.__version__, "input": "in.h5ad", "model": None}
    assert head.items() <= found.items()
    assert found["classes"] == ["type 0", "type 1", "type 2"]
    # Without held-out cells the error is NaN, which JSON cannot represent.
    assert found["quality"]["test"]["knn_error"] is None
    stored = ad.read_h5ad("out.h5ad").uns["ce"]["quality"]
    assert found["quality"]["train"] == dict(stored["train"])
    assert [row["class"] for row in found["quality"]["per_class"]] == found["classes"]
    assert found["warnings"][0].startswith("layers['counts'] looks like raw counts")
    assert result.stderr.splitlines() == [f"Warning: {one}" for one in found["warnings"]]


# Files


@pytest.mark.slow
def test_zarr_stores_are_read_and_written_like_files(folder: Path) -> None:
    cells = ad.read_h5ad("in.h5ad")
    cells = ad.AnnData(cells.X, obs=cells.obs, var=cells.var, uns=cells.uns)
    with ad.settings.override(zarr_write_format=2):
        cells.write_zarr("v2.zarr")

    run("fit", "v2.zarr", *FIT, "-o", "v2.zarr", "--overwrite")

    model = ce.CentroidEncoder(max_epochs=3)
    ce.tl.centroid_encoder(cells, "cell_type", model=model, progress=False)
    assert as_written(ad.read_zarr("v2.zarr")) == as_written(cells)
    assert set(os.listdir()) == {"in.h5ad", "v2.zarr"}


@pytest.mark.parametrize(
    ("command", "options", "sentences"),
    [
        ("cross-validate", VALIDATE, ["Cross-validated error ", "Cells that look mislabelled: "]),
        ("ingest", ("--reference", "in.h5ad"), ["90 of 90 cells are ", "Largest classes: "]),
    ],
)
def test_an_input_is_closed_before_it_is_replaced(
    command: str,
    options: tuple[str, ...],
    sentences: list[str],
    folder: Path,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def count(*paths: Any) -> None:
        open_files.append(h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE))
        rename(*paths)

    open_files: list[int] = []
    rename = os.replace
    monkeypatch.setattr(os, "replace", count)
    shutil.copy(results, "in.h5ad")
    replace = ("--key-added", "new", "-o", "in.h5ad", "--overwrite")
    result = run(command, "in.h5ad", *options, *replace)
    assert open_files == [0]
    label = "new_cv_label" if command == "cross-validate" else "new_label"
    assert {"ce_label", label} <= set(ad.read_h5ad("in.h5ad").obs)
    assert os.listdir() == ["in.h5ad"]
    assert all(f"\n{sentence}" in f"\n{result.stdout}" for sentence in sentences)


def test_the_probabilities_of_an_earlier_result_are_deleted(folder: Path) -> None:
    run("fit", "in.h5ad", *FIT, "--probabilities", "-o", "one.h5ad")
    run("fit", "one.h5ad", *FIT, "-o", "two.h5ad")
    before, after = (set(ad.read_h5ad(name).obsm) for name in ("one.h5ad", "two.h5ad"))
    assert before - after == {"ce_probabilities"}


# cross-validate


def test_cross_validate_writes_what_the_tools_write(folder: Path) -> None:
    validate = ("cross-validate", "in.h5ad", *VALIDATE, "-o", "out.h5ad", "--max-own", 0.4)
    found = as_json(*validate, "--mislabeled", "doubtful.csv", "--n-repeats", 2)

    adata = ad.read_h5ad("in.h5ad")
    options = {"n_folds": 2, "n_repeats": 2, "n_permutations": 2, "progress": False}
    model = ce.CentroidEncoder(max_epochs=3)
    ce.tl.cross_validate(adata, "cell_type", model=model, **options)
    assert as_written(ad.read_h5ad("out.h5ad")) == as_written(adata)
    expected = ce.tl.mislabeled(adata, max_own=0.4)
    table = pd.read_csv("doubtful.csv", index_col="cell")
    assert list(table.index) == list(expected.index)
    assert list(table) == ["label", "predicted", "confidence", "own"]

    names = "command version input output mislabeled n_mislabeled key n_obs params classes "
    names += "quality errors per_class confusion permutation warnings"
    assert set(found) == set(names.split())
    stored = adata.uns["ce_cv"]
    assert found["n_mislabeled"] == len(expected)
    assert found["quality"] == stored["quality"]
    assert found["errors"] == stored["errors"].to_dict("records")
    assert found["confusion"] == stored["confusion"].tolist()
    assert "group_key='donor'" in found["warnings"][0]


# feature-panel


@pytest.mark.slow
def test_feature_panel_writes_what_the_tool_writes(folder: Path) -> None:
    options = ("--sizes", "2,4", "--n-folds", 2, "--group-key", "donor", "--max-epochs", 3)
    command = ("feature-panel", "in.h5ad", "--label-key", "cell_type", "-o", "out.h5ad", *options)
    found = as_json(*command, "--csv", "errors.csv")

    adata = ad.read_h5ad("in.h5ad")
    model = ce.CentroidEncoder(max_epochs=3)
    folds = {"n_folds": 2, "group_key": "donor", "progress": False}
    ce.tl.feature_panel(adata, "cell_type", (2, 4), model=model, **folds)
    assert as_written(ad.read_h5ad("out.h5ad")) == as_written(adata)
    stored = adata.uns["feature_panel"]
    pd.testing.assert_frame_equal(pd.read_csv("errors.csv"), stored["errors"])
    names = "command version input output csv key n_obs params classes errors features warnings"
    assert set(found) == set(names.split())
    assert found["errors"] == stored["errors"].to_dict("records")
    assert [row["feature"] for row in found["features"]] == stored["features"].index.tolist()

    assert "'a,b' is no number or list of numbers" in failure(*command, "--sizes", "a,b", status=2)


# ingest


def test_ingest_writes_what_the_tool_writes(folder: Path, results: Path) -> None:
    adata, reference = ad.read_h5ad(results), "map.safetensors"
    ce.tl.fitted_model(adata, device="cpu").save(reference)
    place = ("ingest", results, "--reference", reference, "-o", "out.h5ad")

    found = as_json(*place, "--min-confidence", 0.9, "--max-novelty", 0.9, "--key-added", "new")

    options = {"min_confidence": 0.9, "max_novelty": 0.9, "key_added": "new"}
    ce.tl.ingest(adata, reference, progress=False, **options)
    assert as_written(ad.read_h5ad("out.h5ad")) == as_written(adata)
    names = "command version input reference output key n_obs params classes labels n_unassigned "
    assert set(found) == set(f"{names}mean_confidence median_novelty warnings".split())
    assert (found["input"], found["reference"]) == (str(results), reference)
    counts = adata.obs["new_label"].value_counts()
    assert found["n_unassigned"] == counts["unassigned"] > 0
    assert found["labels"] == counts.drop("unassigned").reindex(found["classes"]).to_dict()
    assert found["params"]["ingested_from"] == reference


# plot


@pytest.mark.parametrize("figure", ["confusion", "voronoi"])
def test_a_figure_is_drawn(figure: str, results: Path, folder: Path) -> None:
    before = results.read_bytes()
    found = as_json("plot", figure, results, "-o", "figure.png", "--dpi", 40)
    assert (found["figure"], found["output"], found["warnings"]) == (figure, "figure.png", [])
    assert Path("figure.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(os.listdir()) == ["figure.png", "in.h5ad"]
    assert results.read_bytes() == before


# measure


def test_measure_writes_what_the_tool_returns(images: Path) -> None:
    labels, several = (tifffile.imread(f"{name}.tif") for name in ("nuclei", "markers"))

    result = run(
        *("measure", "nuclei.tif", "dapi.npy", "markers.tif", "-o", "cells.zarr"),
        *("--spacing", "2,0.5", "--unit", "um", "--quantiles", "0.5", "--properties", "solidity"),
        *("--channels", "DAPI,CD3, CD20"),
    )

    channels = {"DAPI": several[0] / 2, "CD3": several[0], "CD20": several[1]}
    options = {"spacing": (2, 0.5), "unit": "um", "properties": ["solidity"], "quantiles": [0.5]}
    expected = ce.tl.measure({"nuclei": labels}, channels, progress=False, **options)
    written = ad.read_zarr("cells.zarr")
    np.testing.assert_array_equal(written.X, expected.X)
    pd.testing.assert_frame_equal(written.obs, expected.obs)
    pd.testing.assert_frame_equal(written.var, expected.var)
    assert written.uns["spatialdata_attrs"]["region"] == "nuclei"
    assert result.stdout.startswith("5 cells, 15 variables: area_um2, axis_major")
    assert result.stdout.endswith("Wrote cells.zarr\n")


def test_measure_a_time_series(images: Path) -> None:
    frames = ("measure", "frames.tif", "-o", "cells.h5ad")
    found = as_json(*frames, "--time-series")
    assert (found["n_obs"], found["spacing"], found["warnings"]) == (10, [1, 1], [])
    assert found["variables"][0]["name"] == "area_px2"
    assert "pass time_series=True" in as_json(*frames)["warnings"][0]


# Errors


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("nuclei.tif small.npy", "'small' has the shape (7, 12) and labels 'nuclei' (8, 12"),
        ("in.h5ad", "its name must end in .tif or .npy"),
        ("damaged.tif", "damaged.tif cannot be read: "),
        ("nuclei.tif dapi.npy --channels a,b", "there are 1 channels, dapi;"),
        ("nuclei.tif dapi.npy ./dapi.npy", "dapi.npy and dapi.npy have the same name"),
    ],
)
def test_images_that_cannot_be_measured_are_errors(arguments: str, text: str, images: Path) -> None:
    assert text in failure("measure", *arguments.split(), "-o", "cells.h5ad")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("fit nowhere.h5ad -o out.h5ad", "'nowhere.h5ad' does not exist"),
        ("fit in.h5ad", "Missing option '-o'"),
        ("fit in.h5ad -o out.zarr", "must both be .h5ad files, or both .zarr stores"),
        ("fit in.h5ad -o empty.zarr", "is no zarr store of an AnnData"),
        ("fit in.h5ad -o in.h5ad", "in.h5ad is an input; name another file, or pass --overwrite"),
        ("fit in.h5ad -o out.h5ad --model-out link.safetensors", "link.safetensors is an input"),
        ("fit in.h5ad -o out.h5ad --missing ignore", "'ignore' is not one of"),
        ("fit in.h5ad -o out.h5ad --no-mask-var --mask-var x", "exclude each other"),
        ("cross-validate in.h5ad -o out.h5ad --mislabeled out.csv", "are one file"),
        ("plot voronoi in.h5ad -o link.pdf", "link.pdf is an input"),
        ("measure link.npy -o in.h5ad", "in.h5ad is an input"),
        ("measure in.h5ad -o out.h5ad --spacing a", "'a' is no number"),
    ],
)
def test_wrong_usage_is_an_error(command: str, text: str, folder: Path) -> None:
    for name in ("link.safetensors", "link.pdf", "link.npy"):
        Path(name).symlink_to("in.h5ad")
    Path("out.csv").symlink_to("out.h5ad")
    Path("empty.zarr").mkdir()
    labels = FIT if command.startswith(("fit", "cross")) else ()
    assert text in failure(*command.split(), *labels, status=2)


@pytest.mark.parametrize(
    ("options", "text", "parameter"),
    [
        ("--label-key cel_type", "no column 'cel_type'; did you mean 'cell_type'", "label_key"),
        ("--device toaster", "device 'toaster' is not available here", "device"),
        ("--layer gap", 'missing="drop"', "missing"),
    ],
)
def test_errors_are_printed_as_json(options: str, text: str, parameter: str, folder: Path) -> None:
    command = ("fit", "in.h5ad", *FIT, "-o", "out.h5ad", "--json", "-q", *options.split())

    result = run(*command, status=1)

    found = json.loads(result.stdout)
    assert list(found) == ["command", "version", "error", "parameter", "warnings"]
    assert text in found["error"]
    assert found["parameter"] == parameter
    assert result.stderr.endswith(f"Error: {found['error']}\n")
    assert os.listdir() == ["in.h5ad"]


def test_stores_that_cannot_be_read_are_errors(folder: Path) -> None:
    """`tests.strangers.test_layouts` has the files."""
    ad.read_h5ad("in.h5ad").write_zarr("part.zarr")
    shutil.rmtree("part.zarr/obs")
    Path("empty.zarr").mkdir()
    for name in ("part.zarr", "empty.zarr"):
        for command in (
            ("fit", name, *FIT, "-o", "out.zarr"),
            ("plot", "voronoi", name, "-o", "x.png"),
        ):
            assert f"{name} cannot be read: it is " in failure(*command)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_command_without_new_files(number: signal.Signals, folder: Path) -> None:
    command = ("fit", "in.h5ad", *FIT, "-o", "out.h5ad", "--max-epochs", "1000000")
    working = subprocess.Popen(
        [sys.executable, "-m", "centroid_encoder", *command],
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert working.stderr is not None
    try:
        seen = ""
        while "epoch/s, loss" not in seen:
            text = working.stderr.read(1)
            assert text, seen
            seen += text
        working.send_signal(number)
        _, rest = working.communicate(timeout=60)
    finally:
        working.kill()
    assert working.returncode == 128 + number
    assert "Traceback" not in rest
    assert os.listdir() == ["in.h5ad"]


def test_colors_that_ingest_deletes_are_not_in_the_output(results: Path, tmp_path: Path) -> None:
    adata = ad.read_h5ad(results)
    adata.uns["ce_label_colors"] = ["#ff0000", "#00ff00", "#0000ff", "#bebebe"]
    adata.write_h5ad(tmp_path / "q.h5ad")
    run("ingest", tmp_path / "q.h5ad", "--reference", results, "-o", tmp_path / "new.h5ad")
    assert set(ad.read_h5ad(tmp_path / "new.h5ad").uns) == {"ce", "ce_cv", "feature_panel"}


# Streams


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the redirections are those of a Unix shell")
@pytest.mark.parametrize(
    "redirection",
    ["2>&- >/dev/null", "<&- >&- 2>&-", "--json >/dev/full", "2>&1 | true"],
)
def test_streams_that_cannot_be_written_change_nothing(redirection: str, images: Path) -> None:
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    command = f"{sys.executable} -m centroid_encoder measure nuclei.tif dapi.npy -o cells.h5ad"
    script = f"set -o pipefail; {command} {redirection}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0
    assert ad.read_h5ad("cells.h5ad").n_obs == 5
    is_full = redirection == "--json >/dev/full"
    assert ("Warning: stdout cannot be written" in done.stderr) == is_full
    assert "Traceback" not in done.stderr


def test_without_stderr_an_error_is_a_status(images: Path) -> None:
    arguments = [sys.executable, "-m", "centroid_encoder", "measure", "damaged.tif", "-o", "x.h5ad"]
    done = subprocess.run(
        ["bash", "-c", '"$@" --json 2>&-', "bash", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "damaged.tif cannot be read" in json.loads(done.stdout)["error"]
    assert not Path("x.h5ad").exists()


def test_a_locked_file_is_no_damaged_file(results: Path, folder: Path, monkeypatch) -> None:
    monkeypatch.delenv("HDF5_USE_FILE_LOCKING", raising=False)
    shutil.copy(results, "locked.h5ad")
    code = "import h5py; file = h5py.File('locked.h5ad', 'r+'); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        text = failure("plot", "regions", "locked.h5ad", "-o", "x.png")
        assert "another program has locked it" in text
        assert "HDF5_USE_FILE_LOCKING=FALSE" in text
        assert "damaged" not in text
        holder.communicate(b"\n")
    run("plot", "regions", "locked.h5ad", "-o", "x.png")
