"""Random tables: whatever an AnnData holds, it is mapped, or refused in words and left alone."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

import centroid_encoder as ce
from tests.cases import cases

N_TABLES, SHARE, N_QUICK = cases(1200), 100, 8
"""How many there are, how many one test takes, and how many are not slow."""
NAMES = ["T", "B cell", "NK/T", "", "nan", "None", "0", "-1", "å", "细胞", "a" * 300, "..", "\t"]
KEYS = ["ce", "map 2", "x/y", ".", "..", "", "\x00", "é", "label", "X_ce", "cv"]


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "seeds",
    [
        range(N_QUICK),
        *(
            pytest.param(range(first, min(first + SHARE, N_TABLES)), marks=pytest.mark.slow)
            for first in range(N_QUICK, N_TABLES, SHARE)
        ),
    ],
)
def test_random_tables(
    seeds: range, unchanged: Callable[[ad.AnnData], AbstractContextManager[None]], tmp_path: Path
) -> None:
    faults = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adata, said = table(rng)
            options = draw_options(rng, adata)
            work = cross_validate if seed % 8 == 0 else train
            try:
                with unchanged(adata):
                    result = attempt(work, adata, options)
                if isinstance(result, ad.AnnData):
                    reread(result, tmp_path / ("table.h5ad" if seed % 4 else "table.zarr"))
                else:
                    assert is_clear(result), repr(result)
            except Exception as fault:
                faults.append(f"table {seed}: {said}, {options}\n    {fault!r:.300}")
    assert not faults, f"{len(faults)} of {len(seeds)}:\n" + "\n".join(faults[:12])


def attempt(
    work: Callable[[ad.AnnData, dict[str, Any]], ad.AnnData],
    adata: ad.AnnData,
    options: dict[str, Any],
) -> ad.AnnData | Exception:
    """Return the results, or the error that it ends with."""
    try:
        return work(adata, options)
    except Exception as error:
        return error


def is_clear(error: Exception) -> bool:
    """Return whether an error is a sentence of ours, of a kind that users may catch."""
    file = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    kinds = (ValueError, TypeError, KeyError, OSError, RuntimeError)
    ours = file.is_relative_to(Path(ce.__file__).parent)
    return ours and isinstance(error, kinds) and len(str(error).split()) > 2


def train(adata: ad.AnnData, options: dict[str, Any]) -> ad.AnnData:
    """Train, and send half of the cells through the map."""
    model = ce.CentroidEncoder(hidden=(4,), max_epochs=1)
    trained: ad.AnnData = ce.tl.centroid_encoder(
        adata, "label", model=model, progress=False, copy=True, **options
    )
    key = options.get("key_added") or "ce"
    ce.tl.ingest(adata[::2].copy(), trained, key=key, missing="estimate", progress=False, copy=True)
    return trained


def cross_validate(adata: ad.AnnData, options: dict[str, Any]) -> ad.AnnData:
    """Check the labels in two folds."""
    model = ce.CentroidEncoder(hidden=(4,), max_epochs=1)
    known = {name: value for name, value in options.items() if name != "test_size"}
    checked: ad.AnnData = ce.tl.cross_validate(
        adata, "label", model=model, n_folds=2, progress=False, copy=True, **known
    )
    return checked


def reread(adata: ad.AnnData, path: Path) -> None:
    """Write a file or a store and read it back: what was stored is what is there."""
    # What the table held before may be of a kind that no file knows; what we wrote may not.
    ours = ad.AnnData(
        obs=adata.obs[[name for name in adata.obs if str(name) not in ("label", "group")]],
        obsm={name: value for name, value in adata.obsm.items() if name != "X_rep"},
        uns=dict(adata.uns),
    )
    if not ours.obs_names.is_unique or not all(map(str.isprintable, ours.obs_names)):
        ours.obs_names = [str(i) for i in range(ours.n_obs)]
    getattr(ours, f"write_{path.suffix[1:]}")(path)
    again = ad.read_h5ad(path) if path.suffix == ".h5ad" else ad.read_zarr(path)
    assert set(again.uns) == set(ours.uns), "uns has changed"
    for column in ours.obs:
        before, after = map(str, ours.obs[column]), map(str, again.obs[column])
        assert list(before) == list(after), f"obs[{column!r}] has changed"
    for embedding in ours.obsm:
        assert_array_equal(again.obsm[embedding], ours.obsm[embedding])


def table(rng: np.random.Generator) -> tuple[ad.AnnData, str]:
    """Return a table of a kind drawn at random, and the name of the kind."""
    n, d = int(rng.integers(1 if rng.random() < 0.1 else 20, 60)), int(rng.integers(1, 9))
    codes = rng.integers(0, rng.integers(1 if rng.random() < 0.1 else 2, 7), n)
    values, X = matrix(rng, codes, d)
    kind, labels = label_column(rng, codes)
    adata = ad.AnnData(X, obs=pd.DataFrame(index=[f"cell{i}" for i in range(n)]))
    adata.obs["label"] = labels
    adata.obs["group"] = pd.Categorical([f"donor {i}" for i in rng.integers(0, 4, n)])
    adata.obsm["X_rep"] = rng.normal(size=(n, 3))
    adata.layers["other"] = adata.X.copy()
    adata.var["mask"] = rng.random(d) < 0.7
    if rng.random() < 0.04:
        adata.obs_names = ["same"] * n
    if rng.random() < 0.04:
        adata.var_names = ["same"] * d
    if rng.random() < 0.1:
        adata = adata[rng.permutation(n)]
    return adata, f"{n} × {d} {values}, labels {kind}"


def matrix(rng: np.random.Generator, codes: np.ndarray, d: int) -> tuple[str, Any]:
    """Return numbers, in one container or another."""
    X = rng.normal(size=(len(codes), d)) + codes[:, None]
    values = str(
        rng.choice(["plain"] * 20 + ["NaN", "inf", "constant", "zero", "huge", "tiny", "-0"])
    )
    if values in ("NaN", "inf"):
        X[rng.random(X.shape) < 0.05] = float(values)
    elif values == "constant":
        X[:, 0] = 7
    elif values in ("zero", "-0"):
        X[:] = float(values.replace("zero", "0"))
    elif values in ("huge", "tiny"):
        X *= 1e30 if values == "huge" else 1e-30
    containers = ["float32", "float64", "float16", "int64", "uint8", "bool"]
    containers += [">f4", "F", "read-only", "csr", "csc"]
    container = str(rng.choice(containers))
    with np.errstate(all="ignore"):
        if container == "F":
            made: Any = np.asfortranarray(X)
        elif container == "read-only":
            made = X.astype("float32")
            made.flags.writeable = False
        elif container in ("csr", "csc"):
            dtype = rng.choice(["float32", "float64", "int32"])
            made = getattr(sparse, f"{container}_matrix")(np.abs(X).astype(dtype))
        else:
            made = X.astype(container)
    return f"{values} {container}", made


def label_column(rng: np.random.Generator, codes: np.ndarray) -> tuple[str, Any]:
    """Return labels of one type or another."""
    names = rng.permutation(NAMES)[: codes.max() + 1].astype(object)
    kind = str(
        rng.choice(
            ["category"] * 6
            + ["string"] * 4
            + ["ints", "bool", "few floats", "floats", "dates", "mixed"]
        )
    )
    if kind == "category":
        made: Any = pd.Categorical(names[codes], categories=[*names, "no such cell"])
    elif kind == "string":
        made = names[codes]
    elif kind == "ints":
        made = codes.astype(rng.choice(["int8", "int64", "uint16"]))
    elif kind == "bool":
        made = codes > 0
    elif kind == "few floats":
        made = codes.astype(float)
    elif kind == "floats":
        made = rng.normal(size=len(codes))
    elif kind == "dates":
        made = pd.Timestamp("2020-01-01") + pd.to_timedelta(codes, unit="D")
    else:
        made = np.array([f"c{c}" if c % 2 else int(c) for c in codes], dtype=object)
    if kind in ("category", "string", "mixed") and rng.random() < 0.4:
        made = pd.Series(made, dtype=object).where(rng.random(len(codes)) > 0.2).to_numpy()
    return kind, made


def draw_options(rng: np.random.Generator, adata: ad.AnnData) -> dict[str, Any]:
    """Return some options, sensible ones and others."""
    choices: dict[str, list[Any]] = {
        "use_rep": ["X_rep", "X_none"],
        "layer": ["other", "none"],
        "mask_var": ["mask", None, np.ones(adata.n_vars, bool), np.zeros(adata.n_vars, bool)],
        "unlabeled_category": ["B cell", "no such"],
        "missing": ["drop", "mean", "fill"],
        "group_key": ["group", "none", "label"],
        "key_added": KEYS,
        "n_components": [1, 2, 3, 0],
        "test_size": [0, 0.5, 0.99, 1, -1, "a"],
        "random_state": [1, -1],
    }
    taken = [name for name in choices if rng.random() < 0.06]
    return {name: choices[name][rng.integers(len(choices[name]))] for name in taken}
