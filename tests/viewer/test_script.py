"""The script runs without a viewer and gives the same embedding, bit for bit."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from types import SimpleNamespace
from typing import Any

import anndata as ad
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import centroid_encoder as ce
from centroid_encoder.viewer._save import save_h5ad
from centroid_encoder.viewer._script import as_python
from centroid_encoder.viewer.data.tables import Table
from centroid_encoder.viewer.session.provenance import MadeBy
from centroid_encoder.viewer.session.relabeling import Relabeling


def run(script: str, folder: Path) -> None:
    """Run a script in a process of its own, on one thread like this one."""
    (folder / "script.py").write_text(script, encoding="utf-8")
    env = os.environ | {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def train(adata: ad.AnnData, label_key: str, arguments: dict[str, Any]) -> None:
    """Train as the widget does."""
    training = ce.tl.centroid_encoder.job(adata, label_key, **arguments)
    training.run()
    training.write(adata)


def in_file(path: Path, adata: ad.AnnData | None = None) -> Table:
    return Table(adata or ad.AnnData(), path.name, None, "file", path=path)


def calls(script: str) -> dict[str, ast.Call]:
    """All calls of a script by what is called."""
    return {
        ast.unparse(node.func): node
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Call)
    }


def trained(label_key: str = "kind", **arguments: Any) -> MadeBy:
    return MadeBy("centroid_encoder", label_key, arguments)


def arguments_of(call: ast.Call) -> dict[str, Any]:
    return {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}


# It runs


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            {
                "missing": "mean",
                "mask_var": "chosen",
                "test_size": 0.3,
                "unlabeled_category": "type 2",
                "key_added": "map",
                "random_state": 7,
            },
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"layer": "scaled", "missing": "drop", "group_key": "donor"}, marks=pytest.mark.slow
        ),
        {"use_rep": "X_pca", "n_components": 3},
    ],
    ids=",".join,
)
def test_the_script_gives_the_same_embedding(
    arguments: dict[str, Any], cells: ad.AnnData, tmp_path: Path
) -> None:
    cells.obs["donor"] = [f"donor{i % 5}" for i in range(cells.n_obs)]
    cells.var["chosen"] = [True, False] * 4
    cells.layers["scaled"] = cells.X * 2
    cells.obsm["X_pca"] = cells.X[:, :4] ** 2
    if "missing" in arguments:
        cells.X[3, 4] = cells.layers["scaled"][5, 1] = np.nan
    path = tmp_path / "cells of O'Neil.h5ad"
    save_h5ad(cells, path)
    adata = ad.read_h5ad(path)
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=4, dropout=0.1, class_weight="balanced")
    arguments = arguments | {"model": model}
    train(adata, "cell_type", arguments)

    run(as_python(in_file(path, adata), trained("cell_type", **arguments)), tmp_path)

    key = arguments.get("key_added", "ce")
    again = ad.read_h5ad(tmp_path / f"cells of O'Neil_{key}.h5ad")
    obsm_key = "X_ce" if key == "ce" else key
    np.testing.assert_array_equal(again.obsm[obsm_key], adata.obsm[obsm_key])
    assert list(again.obs[f"{key}_split"]) == list(adata.obs[f"{key}_split"])
    assert len(again.uns["cell_type_colors"]) == 3


@pytest.mark.slow
def test_the_script_goes_on_from_what_was_saved(cells: ad.AnnData, tmp_path: Path) -> None:
    # Nothing but the file the user saves at the end knows the corrected labels.
    relabeling = Relabeling(cells, "cell_type")
    relabeling.relabel([0, 1, 5], "something new")
    relabeling.relabel([2, 7, 8, 11], "something new")
    arguments = {"model": ce.CentroidEncoder(hidden=(16,), max_epochs=3)}
    train(cells, relabeling.column, arguments)
    path = tmp_path / "cells.h5ad"
    save_h5ad(cells, path)

    made_by = replace(trained(relabeling.column, **arguments), relabeled=True)
    script = as_python(in_file(path, cells), made_by)
    run(script, tmp_path)

    again = ad.read_h5ad(tmp_path / "cells_ce.h5ad")
    np.testing.assert_array_equal(again.obsm["X_ce"], cells.obsm["X_ce"])
    assert "something new" in list(again.uns["ce"]["classes"])
    assert '# obs["cell_type_relabeled"] holds labels corrected by hand' in script


@pytest.mark.slow
def test_a_table_in_no_file_is_saved_first(cells: ad.AnnData, tmp_path: Path) -> None:
    arguments = {"model": ce.CentroidEncoder(hidden=(16,), max_epochs=3)}
    train(cells, "cell_type", arguments)
    script = as_python(Table(cells, "cells", None, "notebook"), trained("cell_type", **arguments))
    assert '# The table "cells" was in no file: save it in napari as .h5ad' in script

    save_h5ad(cells, tmp_path / "table.h5ad")
    run(script, tmp_path)

    again = ad.read_h5ad(tmp_path / "table_ce.h5ad")
    np.testing.assert_array_equal(again.obsm["X_ce"], cells.obsm["X_ce"])


# It is short and says what is so


def test_a_short_script_reads_like_this() -> None:
    script = as_python(
        in_file(Path("data") / "cells.h5ad"),
        trained(
            "phenotype",
            missing="mean",
            test_size=0.2,
            use_rep=None,
            progress=False,
            model=ce.CentroidEncoder(max_epochs=30, device="cpu"),
        ),
    )
    assert script == (
        f"# Made by centroid-encoder {ce.__version__} in napari.\n"
        "# The same version on the same machine gives the same embedding, bit for bit.\n"
        "import anndata as ad\n"
        "\n"
        "import centroid_encoder as ce\n"
        "\n"
        f"adata = ad.read_h5ad({str(Path('data') / 'cells.h5ad')!r})\n".replace("'", '"')
        + "\n"
        "ce.tl.centroid_encoder(\n"
        "    adata,\n"
        '    "phenotype",\n'
        '    missing="mean",\n'
        '    model=ce.CentroidEncoder(device="cpu", max_epochs=30),\n'
        ")\n"
        "ce.pl.voronoi(adata)\n"
        f"adata.write_h5ad({str(Path('data') / 'cells_ce.h5ad')!r})\n".replace("'", '"')
    )


@pytest.mark.parametrize(
    ("value", "default"),
    [
        ({"hidden": "auto"}, True),
        ({"hidden": [500, 250, 125]}, False),
        ({"hidden": np.array([500, 250])}, False),
        ({"activation": np.str_("relu")}, True),
        ({"max_epochs": np.int64(30)}, False),
        ({"n_components": np.int64(2)}, True),
        ({"clip": 10}, True),
        ({"clip": None}, False),
        ({"class_weight": {"a": np.float32(0.5), 1: 2}}, False),
        ({"dropout": 0.25, "weight_decay": 0, "learning_rate": 1e-5}, False),
    ],
    ids=str,
)
def test_the_model_is_written_without_its_defaults(value: dict[str, Any], default: bool) -> None:
    model = ce.CentroidEncoder(**value)
    call = calls(as_python(in_file(Path("x.h5ad")), trained(model=model)))["ce.CentroidEncoder"]
    written = arguments_of(call)

    assert written.keys() == (set() if default else value.keys())
    for name in written:
        plain = np.asarray(value[name]).tolist() if name != "class_weight" else value[name]
        assert written[name] == plain


def test_long_arguments_have_lines_of_their_own() -> None:
    model = ce.CentroidEncoder(
        hidden=(1000, 500, 125), learning_rate=1e-4, validation_fraction=0.2, patience=10
    )
    script = as_python(in_file(Path("x.h5ad")), trained(model=model, test_size=0.25))
    assert max(map(len, script.splitlines())) <= 88
    assert "        patience=10,\n" in script


@pytest.mark.parametrize(
    ("arguments", "drawn"),
    [
        ({"n_components": 3}, True),
        ({"n_components": 4}, False),
        ({"model": ce.CentroidEncoder(4)}, False),
        ({"model": ce.CentroidEncoder(4), "n_components": 1}, True),
    ],
)
def test_what_has_too_many_dimensions_is_not_drawn(arguments: dict[str, Any], drawn: bool) -> None:
    script = as_python(in_file(Path("x.h5ad")), trained(**arguments))
    assert ("ce.pl.voronoi" in calls(script)) == drawn


def test_a_training_stopped_by_hand_is_said_to_differ() -> None:
    script = as_python(in_file(Path("x.h5ad")), replace(trained(), stopped_after=12))
    assert "# The training in napari was stopped by hand after epoch 12." in script
    assert "differs" in script
    assert "bit for bit" not in script


def test_a_check_follows_the_training() -> None:
    check = MadeBy(
        "cross_validate", "kind", {"n_folds": 3, "n_permutations": 0, "group_key": "donor"}
    )
    script = as_python(in_file(Path("x.h5ad")), trained("type", test_size=0.3), check)
    assert (
        'ce.tl.centroid_encoder(adata, "type", test_size=0.3)\n'
        'ce.tl.cross_validate(adata, "kind", n_folds=3, group_key="donor")\n'
    ) in script
    check = MadeBy("cross_validate", "kind", {"key_added": "k"}, relabeled=True)
    alone = as_python(in_file(Path("x.h5ad")), None, check)
    assert set(calls(alone)) == {"ad.read_h5ad", "ce.tl.cross_validate", "adata.write_h5ad"}
    assert "gives the same numbers, bit for bit" in alone
    assert '# obs["kind"] holds labels corrected by hand' in alone
    assert 'adata.write_h5ad("x_k.h5ad")' in alone
    both = as_python(in_file(Path("x.h5ad")), replace(trained("type"), relabeled=True), check)
    assert both.count("holds labels corrected by hand") == 2


@pytest.mark.parametrize(
    ("reference", "file"), [(str(Path("a") / "b.h5ad"), str(Path("a") / "b.h5ad")),
                            ("nuclei: AnnData", "map.h5ad")],
)  # fmt: skip
def test_cells_that_were_mapped_are_not_trained_on(reference: str, file: str) -> None:
    arguments = {"key": "ce", "key_added": "mine", "max_novelty": 0.9, "min_confidence": 0.0}
    script = as_python(
        in_file(Path("x.h5ad")), MadeBy("ingest", "kind", arguments, reference=reference)
    )
    found = calls(script)
    assert "ce.tl.centroid_encoder" not in found
    assert ast.literal_eval(found["ce.tl.ingest"].args[1]) == file
    assert arguments_of(found["ce.tl.ingest"]) == {"key_added": "mine", "max_novelty": 0.9}
    assert arguments_of(found["ce.pl.voronoi"]) == {"key": "mine"}
    assert "has to be\n# saved in napari with its map" in script


def test_a_spatialdata_table_is_read_from_its_store() -> None:
    sdata = SimpleNamespace(path=Path("tissue.zarr"))
    table = Table(ad.AnnData(), "cells", None, "spatialdata", sdata=sdata, table_name="cells")
    script = as_python(table, trained())
    assert "import spatialdata as sd\n" in script
    assert 'sdata = sd.read_zarr("tissue.zarr")\nadata = sdata.tables["cells"]\n' in script
    ast.parse(script)


def test_a_spatialdata_table_in_memory_only_has_to_be_saved() -> None:
    sdata = SimpleNamespace(path=None)
    table = Table(ad.AnnData(), "cells", None, "spatialdata", sdata=sdata, table_name="cells")
    assert '# The table "cells" was in no file' in as_python(table, trained())


def test_a_table_made_of_features_is_said_to_be() -> None:
    table = Table(ad.AnnData(), "nuclei", None, "features")
    assert '# The table "nuclei" was made of the layer\'s features' in as_python(table, trained())


@pytest.mark.parametrize(
    "arguments",
    [
        {"mask_var": np.array([1.5, object()], dtype=object)},
        {"random_state": np.random.default_rng(0)},
        {"model": ce.CentroidEncoder(random_state=np.random.RandomState(0))},
    ],
)
def test_what_is_no_plain_value_is_an_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="cannot be written as Python: give a plain value"):
        as_python(in_file(Path("x.h5ad")), trained(**arguments))


# Whatever a file, a layer or a column is called

names = st.text(st.characters(exclude_categories=[]), min_size=1).filter(lambda s: "\0" not in s)


@given(name=names, label=names, key=names, origin=st.sampled_from(["features", ""]))
def test_no_name_gets_out_of_its_quotes(name: str, label: str, key: str, origin: Any) -> None:
    path = None if origin else Path("folder") / f"x{name.replace('/', '')}.h5ad"
    table = Table(ad.AnnData(), name, None, origin or "file", path=path)

    script = as_python(table, replace(trained(label, group_key=key), relabeled=True))

    found = calls(script)
    assert set(found) == {
        "ad.read_h5ad", "ce.tl.centroid_encoder", "ce.pl.voronoi", "adata.write_h5ad",
    }  # fmt: skip
    training = found["ce.tl.centroid_encoder"]
    assert ast.literal_eval(training.args[1]) == label
    assert arguments_of(training) == {"group_key": key}
    if path is not None:
        assert ast.literal_eval(found["ad.read_h5ad"].args[0]) == str(path)


@pytest.mark.parametrize("label", ['"', "'", "\"'", "\\", 'a"b', "a'b", "\n", "é", "\u2028", "😀"])
def test_quotes_backslashes_and_lines_are_escaped(label: str) -> None:
    script = as_python(in_file(Path("x.h5ad")), trained(label))
    assert ast.literal_eval(calls(script)["ce.tl.centroid_encoder"].args[1]) == label


def test_a_windows_path_keeps_its_backslashes() -> None:
    table = SimpleNamespace(
        path=PureWindowsPath(r"C:\new\table.h5ad"), sdata=None, name="x", origin="file"
    )
    script = as_python(table, trained())  # type: ignore[arg-type]
    found = calls(script)
    assert ast.literal_eval(found["ad.read_h5ad"].args[0]) == r"C:\new\table.h5ad"
    assert ast.literal_eval(found["adata.write_h5ad"].args[0]) == r"C:\new\table_ce.h5ad"
