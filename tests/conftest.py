"""Settings and fixtures of all tests: one thread, no display, small data sets, a comparison."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import anndata as ad
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import torch
from hypothesis import settings
from scipy import sparse

import centroid_encoder as ce

matplotlib.use("Agg")
# No test asserts a time. `make test-all` draws the larger number of random cases.
settings.register_profile("few", deadline=None, max_examples=20)
settings.register_profile("many", deadline=None, max_examples=100)
settings.load_profile("few")
# A process can use one Qt binding; `QT_API=pyqt6 make test ARGS=tests/viewer` selects the other.
# The variables must be set before any import of qtpy. pytest-qt has its own variable.
os.environ["PYTEST_QT_API"] = os.environ.setdefault("QT_API", "pyside6")
# The workers of pytest-xdist share the cores, and such small networks are fastest on one thread.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    """Close all figures, and undo what numba in scanpy does to the threads of torch."""
    yield
    plt.close("all")
    torch.set_num_threads(1)


@pytest.fixture
def fast() -> ce.CentroidEncoder:
    """Model that trains quickly, for tests that do not check accuracy."""
    return ce.CentroidEncoder(hidden=(16,), max_epochs=5)


@pytest.fixture
def squeezed() -> ce.CentroidEncoder:
    """The same with a bottleneck: one network places the training samples as well."""
    return ce.CentroidEncoder(placement="bottleneck", hidden=(16,), max_epochs=5)


MakeCells = Callable[..., ad.AnnData]


@pytest.fixture
def make_cells() -> MakeCells:
    """Return a function that makes cells in noisy groups, with labels in ``obs["cell_type"]``."""

    def make(
        n_classes: int = 3,
        n_obs: int = 120,
        n_vars: int = 8,
        *,
        names: list[str] | None = None,
        distance: float = 3.0,
    ) -> ad.AnnData:
        rng = np.random.default_rng(0)
        codes = np.arange(n_obs) % n_classes
        means = distance * rng.normal(size=(n_classes, n_vars))
        X = (means[codes] + rng.normal(size=(n_obs, n_vars))).astype(np.float32)
        labels = pd.Categorical.from_codes(codes, names or [f"type {i}" for i in range(n_classes)])
        return ad.AnnData(
            X,
            obs=pd.DataFrame({"cell_type": labels}, index=[f"cell{i}" for i in range(n_obs)]),
            var=pd.DataFrame(index=[f"gene{i}" for i in range(n_vars)]),
        )

    return make


@pytest.fixture
def cells(make_cells: MakeCells) -> ad.AnnData:
    return make_cells()


@pytest.fixture(scope="session")
def _embedded() -> dict[bytes, ad.AnnData]:
    return {}


@pytest.fixture
def embed(make_cells: MakeCells, _embedded: dict[bytes, ad.AnnData]) -> Callable[..., ad.AnnData]:
    """Return a function that makes cells with an embedding whose classes overlap.

    It has the options of `make_cells`, the number of unlabeled cells, and those of
    `tl.centroid_encoder`. Each training runs once in a test run; each call returns a copy.
    """

    def make(
        n_classes: int = 3,
        *,
        n_obs: int = 120,
        names: list[str] | None = None,
        unlabeled: int = 0,
        distance: float = 1.0,
        **kwargs: Any,
    ) -> ad.AnnData:
        call = pickle.dumps((n_classes, n_obs, names, unlabeled, distance, kwargs))
        if call not in _embedded:
            adata = make_cells(n_classes, n_obs, names=names, distance=distance)
            adata.obs.iloc[:unlabeled, 0] = np.nan
            model = ce.CentroidEncoder(
                hidden=(16,), max_epochs=8, batch_size=32, learning_rate=0.01
            )
            kwargs = {"model": model, "progress": False} | kwargs
            ce.tl.centroid_encoder(adata, "cell_type", **kwargs)
            _embedded[call] = adata
        return _embedded[call].copy()

    return make


@pytest.fixture(scope="session")
def _pbmc() -> ad.AnnData:
    return sc.datasets.pbmc68k_reduced()


@pytest.fixture
def pbmc(_pbmc: ad.AnnData) -> ad.AnnData:
    """The 700 real cells that scanpy ships, with ten types in ``obs["bulk_labels"]``."""
    return _pbmc.copy()


@pytest.fixture
def device() -> Iterator[Path]:
    """Path of a terminal, a device that no user can replace by a file."""
    ends = os.openpty()
    yield Path(os.ttyname(ends[1]))
    for end in ends:
        os.close(end)


Unchanged = Callable[[ad.AnnData], AbstractContextManager[None]]


@pytest.fixture
def unchanged() -> Unchanged:
    """Return a context manager that asserts that an AnnData has the same bits after the block."""

    @contextmanager
    def check(adata: ad.AnnData) -> Iterator[None]:
        before = frozen(adata)
        yield
        after = frozen(adata)
        # Parts are compared one by one, because a difference of all parts would be unreadable.
        assert after.keys() == before.keys()
        for part, value in before.items():
            assert after[part] == value, f"{part} has changed"

    return check


def frozen(value: Any) -> Any:
    """Return a deep copy of plain values; ``==`` compares two such copies bit for bit."""
    if isinstance(value, ad.AnnData):
        parts = ("obs", "var", "obsm", "varm", "layers", "obsp", "varp", "uns")
        X = value.X
        return {
            "state": (value.shape, value.is_view, value.isbacked, value.raw is None),
            # The file of a matrix on disk must not change.
            "X": Path(value.filename).read_bytes() if value.isbacked else frozen(X),
            **{part: frozen(getattr(value, part)) for part in parts},
        }
    if isinstance(value, pd.DataFrame):
        return frozen(value.index), [(name, frozen(value[name])) for name in value]
    if isinstance(value, pd.Series | pd.Index):
        array = value.array
        if isinstance(array, pd.Categorical):
            return frozen(array.codes), frozen(array.categories), array.ordered
        return str(array.dtype), frozen(np.asarray(array))
    if sparse.issparse(value):
        arrays = [value.data, value.indices, value.indptr]
        return value.format, value.shape, [frozen(array) for array in arrays]
    if isinstance(value, np.ma.MaskedArray):
        return frozen(value.data), frozen(np.ma.getmaskarray(value))
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return value.shape, [frozen(item) for item in value.ravel()]
        layout = value.flags.writeable, value.flags.f_contiguous
        return value.dtype.str, value.shape, layout, np.asarray(value).tobytes()
    if isinstance(value, Mapping):
        return [(name, frozen(item)) for name, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [frozen(item) for item in value]
    return type(value), repr(value)
