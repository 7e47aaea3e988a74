"""Names: whatever is taken comes back from `.h5ad` and zarr; all else is refused at once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

import centroid_encoder as ce
from centroid_encoder.tl._jobs import result_key
from centroid_encoder.tl._names import check_text
from centroid_encoder.tl._stored import (
    colors_key,
    cv_key,
    embedding_key,
    obs_key,
)

REFUSED = [".", "..", "\0", "a\0", "/", "a/b", ""]
TAKEN = ["...", ".a", "a.", " ", "nan", "%2F", "~", "X", "0", "日本", "\u00e9", "index", "a:b*?"]


def taken(name: str) -> bool:
    try:
        result_key(name)
    except ValueError:
        return False
    return True


def storable(text: str) -> bool:
    try:
        check_text(text, "it")
    except ValueError:
        return False
    return True


def round_trips(names: list[str]) -> None:
    """Store something under every name that is taken, and read it in both formats."""
    keys = [name for name in names if taken(name)]
    classes = [name for name in names if storable(name)]
    n = max(len(classes), 1)
    adata = ad.AnnData(np.zeros((n, 1), dtype=np.float32))
    for key in keys:
        adata.obsm[embedding_key(key)] = np.ones((n, 2))
        for name in (key, cv_key(key)):
            adata.uns[name] = {"params": {"label_key": key}, "classes": np.array(["a", key])}
            adata.obs[obs_key(name, "confidence")] = np.arange(n, dtype=float)
        adata.uns[colors_key(obs_key(key, "label"))] = ["#000000"]
    adata.obs["class"] = pd.Categorical(classes or ["a"])
    expected = adata.copy()
    with tempfile.TemporaryDirectory() as folder:
        adata.write_h5ad(Path(folder) / "a.h5ad")
        adata.write_zarr(Path(folder) / "a.zarr")
        for back in (
            ad.read_h5ad(Path(folder) / "a.h5ad"),
            ad.read_zarr(Path(folder) / "a.zarr"),
        ):
            assert set(back.uns) == set(expected.uns)
            assert set(back.obsm) == set(expected.obsm)
            for key in keys:
                for name in (key, cv_key(key)):
                    assert back.uns[name]["params"]["label_key"] == key
                    assert back.uns[name]["classes"][1] == key
                    assert_array_equal(back.obs[obs_key(name, "confidence")], np.arange(n))
            assert list(back.obs["class"]) == list(expected.obs["class"])


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_what_is_taken_comes_back():
    assert not any(map(taken, REFUSED))
    assert all(map(taken, TAKEN))
    round_trips(REFUSED + TAKEN)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "key_added must not be '', which is no name on disk"),
        ("..", "must not be '..'"),
        ("a/b", "must not hold '/', which means nesting on disk"),
        ("a\0", "the letter NUL"),
    ],
)
@pytest.mark.parametrize("tool", ["centroid_encoder", "cross_validate", "ingest"])
def test_a_key_that_files_do_not_know_is_refused(cells, fast, unchanged, tool, name, words):
    source = ce.CentroidEncoder() if tool == "ingest" else "cell_type"
    with unchanged(cells), pytest.raises(ValueError, match="key_added") as caught:
        getattr(ce.tl, tool).job(cells, source, key_added=name)
    assert words in str(caught.value)


@pytest.mark.parametrize(("slot", "name"), [("obsm", "X_pca"), ("uns", "neighbors")])
def test_what_is_of_other_programs_is_not_replaced(cells, fast, unchanged, slot, name):
    getattr(cells, slot)[name] = np.ones((120, 2))
    with unchanged(cells), pytest.raises(ValueError, match="is there already, and no result"):
        ce.tl.centroid_encoder(cells, "cell_type", model=fast, key_added=name, progress=False)


def test_a_result_of_ours_is_replaced(cells, fast):
    for _ in range(2):
        ce.tl.centroid_encoder(cells, "cell_type", model=fast, key_added="k", progress=False)
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    with pytest.raises(ValueError, match=r"obsm\['X_ce'\] is there already"):
        ce.tl.centroid_encoder(cells, "cell_type", model=fast, key_added="X_ce", progress=False)


@pytest.mark.parametrize("name", ["nan", "None", "NA", "", " n/a ", "<NA>"])
@pytest.mark.parametrize("tool", ["centroid_encoder", "cross_validate"])
def test_a_class_that_looks_like_a_missing_label_is_said_once(cells, fast, caplog, tool, name):
    labels = cells.obs["cell_type"].astype(str)
    labels.iloc[::7] = name
    cells.obs["cell_type"] = labels
    getattr(ce.tl, tool)(cells, "cell_type", model=fast, progress=False)
    (said,) = [text for text in caplog.messages if "looks like a missing label" in text]
    assert "18 cells are trained on as a class of their own" in said
    assert f"pass unlabeled_category={name!r} to mark them as unlabeled" in said
    caplog.clear()
    getattr(ce.tl, tool)(cells, "cell_type", model=fast, unlabeled_category=name, progress=False)
    assert "looks like a missing label" not in caplog.text
