"""What bad input gets: the table of the house plan, for `tl.centroid_encoder` and the estimator.

Every row of `BAD` says what is wrong, what is raised, and words that the message must hold;
every row of `ODD` is unusual but must work. Neither may change anything but the results.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.decomposition import PCA

import centroid_encoder as ce


def relabel(labels: Any, dtype: Any = None) -> Callable[[ad.AnnData], ad.AnnData]:
    """Breaker: put these labels, or those that this function makes of the old ones."""

    def apply(adata: ad.AnnData) -> ad.AnnData:
        new = labels(adata.obs["cell_type"]) if callable(labels) else labels
        adata.obs["cell_type"] = pd.Series(list(new), adata.obs_names, dtype)
        return adata

    return apply


def revalue(change: Callable[[np.ndarray], Any]) -> Callable[[ad.AnnData], ad.AnnData]:
    """Breaker: replace X by what this function makes of it."""

    def apply(adata: ad.AnnData) -> ad.AnnData:
        return ad.AnnData(change(adata.X), obs=adata.obs, var=adata.var)

    return apply


def put(value: float, *positions: tuple[int, int]) -> Callable[[ad.AnnData], ad.AnnData]:
    """Breaker: put a value at these positions of X."""

    def apply(adata: ad.AnnData) -> ad.AnnData:
        for position in positions:
            adata.X[position] = value
        return adata

    return apply


def renamed(adata: ad.AnnData) -> ad.AnnData:
    """Breaker: give a gene a name that no file can hold."""
    adata.var_names = ["gene\0", *adata.var_names[1:]]
    return adata


def column(part: str, name: str, values: Any) -> Callable[[ad.AnnData], ad.AnnData]:
    """Breaker: add a column to ``obs`` or ``var``, or an entry to ``layers`` or ``obsm``."""

    def apply(adata: ad.AnnData) -> ad.AnnData:
        getattr(adata, part)[name] = values(adata) if callable(values) else values
        return adata

    return apply


def duplicate(part: str) -> Callable[[ad.AnnData], ad.AnnData]:
    def apply(adata: ad.AnnData) -> ad.AnnData:
        names = list(getattr(adata, part))
        setattr(adata, part, [names[1], *names[1:]])
        return adata

    return apply


def same(adata: ad.AnnData) -> ad.AnnData:
    return adata


class Bad(NamedTuple):
    id: str
    breaks: Callable[[ad.AnnData], ad.AnnData]
    raises: type[Exception]
    words: tuple[str, ...]
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never changed


def model(**params: Any) -> dict[str, Any]:
    return {"model": ce.CentroidEncoder(**params)}


NAN_LABELS = ["type 0", *[np.nan] * 119]
# fmt: off
BAD = [
    # The label column.
    Bad("label column missing", same, KeyError,
        ("obs has no column 'celltype'", "did you mean 'cell_type'?"), {"label_key": "celltype"}),
    Bad("label column missing, nothing near", same, KeyError,
        ("obs has no column 'xyz'", "there are cell_type"), {"label_key": "xyz"}),
    Bad("labels are measurements", relabel(lambda y: np.linspace(0, 1, len(y))), TypeError,
        ("'cell_type'", "fractional numbers", "120 different", "pandas.cut")),
    Bad("labels are identifiers", relabel(lambda y: np.arange(len(y))), TypeError,
        ("120 different numbers in 120 cells", "identifier")),
    Bad("labels are names", relabel(lambda y: [f"cell {i}" for i in range(len(y))]), TypeError,
        ("'cell_type'", "each of 120 cells a class of its own", "names")),
    Bad("labels are dates", relabel(lambda y: pd.date_range("2024", periods=len(y)).floor("30D")),
        TypeError, ("Timestamp", "make them strings", ".astype(str)")),
    Bad("labels of mixed types", relabel(lambda y: [1, "a", 2] * 40, object), TypeError,
        ("int and str", "make them strings")),
    Bad("one class", relabel(["only"] * 120), ValueError,
        ("one class only", "'only'", "two or more")),
    Bad("one class besides empty categories",
        relabel(["a"] * 120, pd.CategoricalDtype(["a", "b"])), ValueError, ("one class only",)),
    Bad("one class besides the unlabeled", relabel(NAN_LABELS, object), ValueError,
        ("one class only", "'type 0'")),
    Bad("all unlabeled", relabel([np.nan] * 120, "category"), ValueError,
        ("no cell has a label", "'cell_type'")),
    Bad("unknown unlabeled_category", same, ValueError,
        ("'type 9' does not occur", "did you mean"), {"unlabeled_category": "type 9"}),
    # The features.
    Bad("NaN in X", put(np.nan, (3, 2), (3, 4), (7, 0)), ValueError,
        ("X has 3 NaN and 0 infinite values in 2 of 120 cells", "'gene2' of cell 'cell3'",
         "missing='drop'", "missing='mean'")),
    Bad("inf in X", put(np.inf, (5, 1)), ValueError,
        ("0 NaN and 1 infinite", "'gene1' of cell 'cell5'")),
    Bad("NaN in sparse X", lambda a: revalue(sparse.csr_matrix)(put(np.nan, (5, 1))(a)),
        ValueError, ("1 NaN", "'gene1' of cell 'cell5'")),
    Bad("masked values in X", revalue(lambda X: np.ma.masked_greater(X, X[9, 1] - 1e-6)),
        ValueError, ("NaN", "missing='mean'")),
    Bad("NaN in a layer", column("layers", "raw", lambda a: np.where(a.X > 5, np.nan, a.X)),
        ValueError, ("layers['raw'] has",), {"layer": "raw"}),
    Bad("NaN in a representation",
        column("obsm", "X_pca", lambda a: np.where(np.arange(8) == 6, np.nan, a.X)),
        ValueError, ("obsm['X_pca'] has 120 NaN", "column 6 of cell 'cell0'"),
        {"use_rep": "X_pca"}),
    Bad("all cells of a class have gaps",
        lambda a: put(np.nan, *((i, 0) for i in range(0, 120, 3)))(a), ValueError,
        ("no cell of 'type 0' is left without missing values",), {"missing": "drop"}),
    Bad("unknown way with missing values", same, ValueError,
        ("missing must be", "'drop'", "got 'skip'"), {"missing": "skip"}),
    Bad("no cells", lambda a: a[:0].copy(), ValueError, ("no cells",)),
    Bad("no genes", lambda a: a[:, :0].copy(), ValueError, ("X has no features",)),
    Bad("no X", lambda a: ad.AnnData(obs=a.obs, var=a.var), ValueError,
        ("adata.X is empty", "use_rep")),
    Bad("complex X", revalue(lambda X: X.astype(complex)), TypeError, ("complex128",)),
    Bad("text in X", revalue(lambda X: X.astype(str).astype(object)), TypeError, ("object",)),
    Bad("duplicate obs_names", duplicate("obs_names"), ValueError, ("obs_names_make_unique",)),
    Bad("duplicate var_names", duplicate("var_names"), ValueError, ("var_names_make_unique",)),
    Bad("layer missing", column("layers", "log1p", lambda a: a.X), KeyError,
        ("layers has no 'logp'", "did you mean 'log1p'?"), {"layer": "logp"}),
    Bad("no layers at all", same, KeyError, ("layers has no", "there are none"),
        {"layer": "counts"}),
    Bad("representation missing", column("obsm", "X_pca", lambda a: a.X), KeyError,
        ("obsm has no 'pca'", "'X_pca'"), {"use_rep": "pca"}),
    Bad("layer and representation", column("obsm", "X_pca", lambda a: a.X), ValueError,
        ("use_rep excludes layer",), {"use_rep": "X_pca", "layer": "raw"}),
    Bad("mask and representation",
        lambda a: column("var", "marker", True)(column("obsm", "X_pca", lambda a: a.X)(a)),
        ValueError, ("use_rep excludes layer and mask_var",),
        {"use_rep": "X_pca", "mask_var": "marker"}),
    Bad("mask column missing", column("var", "highly_variable", True), KeyError,
        ("var has no 'highly_varable'", "'highly_variable'"), {"mask_var": "highly_varable"}),
    Bad("mask is not of bools", column("var", "highly_variable", list("TTTTFFFF")), ValueError,
        ("var['highly_variable'] must hold True or False (or 1 and 0)",)),
    Bad("mask of other numbers", column("var", "highly_variable", range(8)), ValueError,
        ("var['highly_variable'] must hold True or False (or 1 and 0)",)),
    Bad("mask with gaps", column("var", "highly_variable", [1.0, np.nan] * 4), ValueError,
        ("var['highly_variable'] is NaN for 4 variables", "fillna(False).astype(bool)")),
    Bad("mask of bools with gaps",
        column("var", "highly_variable", pd.array([True, None] * 4, object)), ValueError,
        ("var['highly_variable'] is NaN for 4 variables",)),
    Bad("nothing but zeros", revalue(np.zeros_like), ValueError,
        ("X has the same values in all cells, zeros", "layer, use_rep or use_raw")),
    Bad("CSR of nothing but zeros", revalue(lambda X: sparse.csr_matrix(X.shape)), ValueError,
        ("X has the same values in all cells, zeros",)),
    Bad("nothing but constant features", revalue(np.ones_like), ValueError,
        ("X has the same values in all cells:",)),
    Bad("no raw", same, ValueError, ("adata.raw is empty", "use_raw"), {"use_raw": True}),
    Bad("raw and a layer", column("layers", "counts", lambda a: a.X), ValueError,
        ("use_raw excludes use_rep and layer",), {"use_raw": True, "layer": "counts"}),
    Bad("mask of a wrong length", same, ValueError, ("mask_var must hold one bool", "8 variables"),
        {"mask_var": np.ones(7, dtype=bool)}),
    Bad("mask of other variables", same, ValueError, ("index is not var_names", "lacks 'gene7'"),
        {"mask_var": pd.Series(True, [f"gene{i}" for i in range(7)])}),
    Bad("key_added is a number", same, TypeError,
        ("key_added must be the name of a result; got an int",), {"key_added": 3}),
    Bad("another model", same, TypeError, ("model must be a CentroidEncoder", "PCA"),
        {"model": PCA()}),
    Bad("mask selects nothing", column("var", "highly_variable", False), ValueError,
        ("var['highly_variable'] selects none of the 8",)),
    Bad("labels where results are written", column("obs", "ce_label", lambda a: a.obs["cell_type"]),
        ValueError, ("obs['ce_label'] would be replaced by what comes of it", "key_added"),
        {"label_key": "ce_label"}),
    # The split.
    Bad("test_size of a number of cells", same, ValueError,
        ("test_size must be at least 0 and below 1", "got 20"), {"test_size": 20}),
    Bad("test_size below 0", same, ValueError, ("at least 0", "-0.1"), {"test_size": -0.1}),
    Bad("test_size in words", same, ValueError, ("test_size", "'half'"), {"test_size": "half"}),
    Bad("group column missing", column("obs", "donor", lambda a: a.obs_names), KeyError,
        ("obs has no column 'donr'", "did you mean 'donor'?"), {"group_key": "donr"}),
    Bad("one group", column("obs", "donor", "d1"), ValueError,
        ("one group", "obs['donor']"), {"group_key": "donor"}),
    Bad("labeled cells without a group",
        column("obs", "donor", lambda a: [np.nan, np.nan, *["d1", "d2"] * 59]), ValueError,
        ("2 labeled cells have no value in obs['donor']",), {"group_key": "donor"}),
    Bad("each class in a group of its own", column("obs", "donor", lambda a: a.obs["cell_type"]),
        ValueError, ("takes all cells of a class", "leave out group_key"),
        {"group_key": "donor"}),
    Bad("bad seed", same, ValueError, ("random_state must be", "-1"), {"random_state": -1}),
    # The rest.
    Bad("unavailable device", same, ValueError, ("device 'cuda:99' is not available",),
        {"device": "cuda:99"}),
    Bad("unknown device", same, ValueError, ("device 'gpu' is not available",),
        {"device": "gpu"}),
    Bad("a class that no file can hold", relabel(["a", "b\0"] * 60), ValueError,
        ("a class in obs['cell_type'] must not hold the letter NUL",)),
    Bad("a gene that no file can hold", renamed, ValueError,
        ("a name of the columns of X must not hold the letter NUL",)),
    Bad("labels with a slash", column("obs", "cell/type", lambda a: a.obs["cell_type"]), ValueError,
        ("label_key must not hold '/'", "'cell/type'"), {"label_key": "cell/type"}),
    Bad("key_added with a slash", same, ValueError, ("'/'", "nesting"), {"key_added": "a/b"}),
    Bad("no components", same, ValueError, ("n_components must be at least 1", "0"),
        {"n_components": 0}),
    Bad("weights for unknown classes", same, ValueError, ("class_weight",),
        model(class_weight={"type 7": 2.0})),
    Bad("width by name", same, ValueError, ('hidden must be "auto" or',), model(hidden="big")),
    Bad("width of 0", same, ValueError, ("hidden[1] must be at least 1",), model(hidden=(9, 0))),
    Bad("unknown activation", same, ValueError, ("activation must be one of", "'swish'"),
        model(activation="swish")),
    Bad("validation share too small for every class", same, ValueError,
        ("no class has the 1000 samples",), model(validation_fraction=0.001)),
]
# fmt: on


TRAININGS = [ce.tl.centroid_encoder, ce.tl.cross_validate]
# What is said of the hold-out and of the label, of which a cross-validation writes none.
OF_THE_SPLIT = ("test_size", "each class in a group", "labels where results")
CASES = [
    (function, case)
    for function in TRAININGS
    for case in BAD
    if function is ce.tl.centroid_encoder or not case.id.startswith(OF_THE_SPLIT)
]


def named(value: object) -> str:
    return value.id if isinstance(value, Bad) else value.__name__


@pytest.mark.parametrize(("function", "case"), CASES, ids=named)
def test_bad_input_is_named_before_training_and_changes_nothing(
    cells, unchanged, monkeypatch, function, case
):
    def train(*args: Any, **kwargs: Any) -> None:
        pytest.fail("training has begun")

    monkeypatch.setattr("centroid_encoder.core.fit.train", train)
    adata = case.breaks(cells)
    # What an earlier run wrote must survive as well.
    adata.obsm["X_ce"] = np.zeros((adata.n_obs, 2), dtype=np.float32)
    adata.uns["ce"] = adata.uns["ce_cv"] = {"from": "an earlier run"}
    kwargs = {"label_key": "cell_type", "progress": False} | case.kwargs
    with unchanged(adata), pytest.raises(case.raises) as caught:
        function(adata, **kwargs)
    for words in case.words:
        assert words in str(caught.value)


def test_view_of_a_file_cannot_take_results(cells, fast, tmp_path):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    view = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")[:60]
    with pytest.raises(ValueError, match=r"to_memory\(\), or copy=True"):
        ce.tl.centroid_encoder(view, "cell_type", model=fast, progress=False)
    assert view.is_view
    copy = ce.tl.centroid_encoder(view, "cell_type", model=fast, progress=False, copy=True)
    assert copy.obsm["X_ce"].shape == (60, 2)


class Odd(NamedTuple):
    id: str
    makes: Callable[[ad.AnnData], ad.AnnData]
    log: str = ""
    """Words of a hint that must be logged; empty for none."""
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never changed


def read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


def read_only_csr(X: np.ndarray) -> sparse.csr_matrix:
    X = sparse.csr_matrix(X)
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    return X


def counts(X: np.ndarray) -> np.ndarray:
    return np.floor(np.exp(X / 2)).astype(np.float32)


def of_size(*sizes: int) -> Callable[[ad.AnnData], ad.AnnData]:
    """Keep that many cells of each class."""

    def make(adata: ad.AnnData) -> ad.AnnData:
        rank = adata.obs.groupby("cell_type", observed=True).cumcount()
        size = adata.obs["cell_type"].cat.codes.map(dict(enumerate(sizes)))
        return adata[(rank < size).to_numpy()].copy()

    return make


# fmt: off
ODD = [
    *(Odd(f"X of {dtype}", revalue(lambda X, dtype=dtype: (4 * X).astype(dtype)))
      for dtype in ("float64", "float16", "int8", "int64")),
    Odd("X of bool", revalue(lambda X: X > 1)),
    Odd("X of uint8", revalue(lambda X: np.abs(4 * X).astype(np.uint8)), "raw counts"),
    Odd("CSR", revalue(sparse.csr_matrix)),
    Odd("CSC", revalue(sparse.csc_matrix)),
    Odd("CSR of int", revalue(lambda X: sparse.csr_matrix((2 * X).astype(int)))),
    Odd("CSR of bool", revalue(lambda X: sparse.csr_matrix(X > 1))),
    Odd("CSR array", revalue(sparse.csr_array)),
    Odd("CSC array", revalue(sparse.csc_array)),
    Odd("masked array", revalue(np.ma.masked_array)),
    Odd("masked values", revalue(lambda X: np.ma.masked_greater(X, 4)), "",
        {"missing": "mean"}),
    Odd("Fortran order", revalue(np.asfortranarray)),
    Odd("every other column of an array", revalue(lambda X: np.repeat(X, 2, axis=1)[:, ::2])),
    Odd("big-endian", revalue(lambda X: X.astype(">f4"))),
    Odd("read-only", revalue(read_only)),
    Odd("read-only CSR", revalue(read_only_csr)),
    Odd("view", lambda a: a[:90, :6]),
    Odd("view of CSR", lambda a: revalue(sparse.csr_matrix)(a)[::2, ::2]),
    *(Odd(f"values of {scale:g}", revalue(lambda X, scale=scale: X * np.float32(scale)))
      for scale in (1e-30, 1e-10, 1e10, 1e30)),
    Odd("CSR values of 1e-30", revalue(lambda X: sparse.csr_matrix(X * np.float32(1e-30)))),
    Odd("CSR values of 1e30", revalue(lambda X: sparse.csr_matrix(X * np.float32(1e30)))),
    Odd("features of all scales", revalue(lambda X: X * np.logspace(-30, 30, 8, dtype="f4"))),
    Odd("values far from zero", revalue(lambda X: X.astype(float) + 1e8)),
    Odd("constant features", revalue(lambda X: np.where(np.arange(8) < 3, 7, X))),
    Odd("raw counts", revalue(counts), "looks like raw counts; log-normalise first"),
    Odd("raw counts in CSR", revalue(lambda X: sparse.csr_matrix(counts(X))), "raw counts"),
    Odd("raw counts with gaps", lambda a: put(np.inf, (3, 3))(revalue(counts)(a)), "raw counts",
        {"missing": "drop"}),
    Odd("one gene", lambda a: a[:, :1].copy()),
    Odd("fewer cells than a batch", of_size(5, 5, 5)),
    Odd("two cells", of_size(1, 1), "no cell of 'type 0', 'type 1' is held out"),
    Odd("class of one cell", of_size(40, 40, 1), "no cell of 'type 2' is held out"),
    Odd("class of two cells", of_size(40, 40, 2), "no cell of 'type 2' is held out"),
    Odd("class of three cells", of_size(40, 3, 40), "no cell of 'type 1' is held out"),
    Odd("empty categories", relabel(lambda y: list(y), pd.CategoricalDtype(
        ["nobody", "type 0", "type 2", "nobody else", "type 1"]))),
    Odd("NaN labels", relabel(lambda y: y.astype(object).where(np.arange(120) % 3 > 0), object)),
    Odd("more classes than names fit a warning",
        relabel(lambda y: [f"c{i // 2}" for i in range(120)]), "and 50 more is held out"),
    Odd("more components than classes", same, "", {"n_components": 5}),
    Odd("nothing held out", same, "", {"test_size": 0}),
    Odd("nearly everything held out", same, "", {"test_size": 0.9}),
    Odd("test_size of numpy", same, "", {"test_size": np.float32(0.25)}),
    Odd("seed of numpy", same, "", {"random_state": np.int64(3)}),
]
# fmt: on


@pytest.mark.parametrize("case", ODD, ids=lambda case: case.id)
def test_odd_input_works_and_stays_as_it_was(cells, fast, unchanged, caplog, case):
    adata = case.makes(cells)
    # The results of a view go into what it becomes; of all others, beside the untouched input.
    view = adata.is_view
    kwargs = {"model": fast, "progress": False, "copy": not view} | case.kwargs
    with unchanged(cells), nullcontext() if view else unchanged(adata):
        result = ce.tl.centroid_encoder(adata, "cell_type", **kwargs)
    result = adata if view else result

    embedded = result.obs["ce_split"].notna().to_numpy()
    assert embedded.sum() >= adata.n_obs - (case.kwargs.get("missing") == "drop")
    assert np.isfinite(result.obsm["X_ce"][embedded]).all()
    assert result.obs["ce_label"][embedded].notna().all()
    assert ce.tl.fitted_model(result).n_features_in_ == adata.n_vars
    assert case.log in caplog.text
    if not case.log:
        # A class that five epochs have not learned is no matter of the input.
        assert [said for said in caplog.messages if "takes no cell" not in said] == []


@pytest.mark.parametrize("values", [[0, 1], [0.0, 1.0], pd.array([False, True], "boolean")])
def test_a_mask_may_be_of_0_and_1(cells, fast, values):
    cells.var["highly_variable"] = np.tile(np.asarray(values), 4)
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    named = ce.tl.fitted_model(cells).feature_names_in_
    assert list(named) == list(cells.var_names[1::2])


def test_csr_of_half_precision_works(cells, make_cells, fast):
    query = make_cells(n_obs=30)
    for adata in (cells, query):
        adata.X = sparse.csr_matrix(adata.X)
        # scipy itself would neither make one nor copy it.
        adata.X.data = adata.X.data.astype(np.float16)
    for function in TRAININGS:
        function(cells, "cell_type", model=fast, progress=False)
    ce.tl.ingest(query, cells, progress=False)
    assert np.isfinite(query.obsm["X_ce"]).all()
    assert cells.X.dtype == np.float16


@pytest.mark.parametrize("where", ["X", "layers['half']", "obsm['half']"])
@pytest.mark.parametrize("how", ["copy", "view"])
def test_half_precision_that_scipy_would_not_copy_is_refused(cells, fast, where, how):
    half = sparse.csr_matrix(cells.X)
    half.data = half.data.astype(np.float16)
    slot = where.partition("[")[0]
    if slot == "X":
        cells.X = half
    else:
        getattr(cells, slot)["half"] = half
    adata = cells[:90] if how == "view" else cells
    source = ce.CentroidEncoder()
    for name in ("centroid_encoder", "cross_validate", "ingest"):
        given = {"model": fast} if name != "ingest" else {}
        what = source if name == "ingest" else "cell_type"
        with pytest.raises(ValueError, match="is sparse and of half precision") as caught:
            getattr(ce.tl, name)(adata, what, progress=False, copy=how == "copy", **given)
        assert str(caught.value).startswith(where)


def test_a_view_itself_is_not_touched(cells, fast, unchanged):
    view = cells[:90, :6]
    with unchanged(view):
        ce.tl.centroid_encoder(view, "cell_type", model=fast, progress=False, copy=True)


def test_dask_arrays_are_loaded(cells, fast):
    dask = pytest.importorskip("dask.array", reason="dask is not installed")
    expected = ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False, copy=True)
    cells.X = dask.from_array(cells.X, chunks=(50, 8))
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    assert_array_equal(cells.obsm["X_ce"], expected.obsm["X_ce"])
    assert isinstance(cells.X, dask.Array)


@pytest.mark.slow
def test_more_than_a_thousand_classes_work(make_cells):
    adata = make_cells(1200, 2400, names=[f"c{i}" for i in range(1200)])
    model = ce.CentroidEncoder(hidden=(8,), max_epochs=1)
    ce.tl.centroid_encoder(adata, "cell_type", model=model, progress=False, test_size=0)
    assert adata.uns["ce"]["centers"].shape == (1200, 2)
    assert np.isfinite(adata.obsm["X_ce"]).all()


class TestFailureWhileWriting:
    """Results are written last, all or none."""

    WRITES = ("ce_split", "ce_label", "ce_confidence", "X_ce")

    @pytest.fixture
    def refuse(self, monkeypatch):
        """Factory: let the write of one key fail, after it has been made."""

        def install(refused: str, error: type[BaseException]) -> None:
            def failing(kind: type) -> None:
                write = kind.__setitem__

                def setitem(self: Any, key: Any, value: Any) -> None:
                    write(self, key, value)
                    if isinstance(key, str) and key == refused and armed:
                        armed.clear()
                        raise error("no space left")

                monkeypatch.setattr(kind, "__setitem__", setitem)

            armed = [True]
            failing(pd.DataFrame)
            failing(type(ad.AnnData(np.ones((1, 1))).obsm))

        return install

    @pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
    @pytest.mark.parametrize("refused", WRITES)
    @pytest.mark.parametrize("again", [False, True], ids=["first run", "second run"])
    @pytest.mark.parametrize("view", [False, True], ids=["actual", "view"])
    def test_leaves_everything_as_it_was(
        self, cells, fast, unchanged, refuse, refused, error, again, view
    ):
        if again:
            ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False, test_size=0)
        adata = cells[:90] if view else cells
        with unchanged(cells), unchanged(adata):
            refuse(refused, error)
            with pytest.raises(error, match="no space left"):
                ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)

    def test_leaves_everything_as_it_was_at_the_last_write(self, cells, fast, unchanged):
        class Full(dict):
            def __setitem__(self, key: str, value: Any) -> None:
                raise MemoryError("no space left")

        cells.uns = Full(neighbors={"n": 1})
        assert type(cells.uns) is Full, "anndata would have to keep the mapping"
        with unchanged(cells), pytest.raises(MemoryError, match="no space left"):
            ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)


class TestEstimator:
    """The same, without an AnnData around it."""

    X = np.random.default_rng(0).normal(size=(30, 4))
    y = np.repeat(["a", "b", "c"], 10)

    # fmt: off
    BAD = (
        ("NaN", {"X": np.where(X > 2, np.nan, X)}, ValueError, "NaN"),
        ("inf", {"X": np.where(X > 2, np.inf, X)}, ValueError, "infinity"),
        ("one class", {"y": np.repeat("a", 30)}, ValueError, "at least two classes"),
        ("continuous labels", {"y": X[:, 0]}, ValueError, "continuous"),
        ("NaN labels", {"y": np.where(X[:, 0] > 0, np.nan, 1.0)}, ValueError, "missing labels"),
        ("lengths differ", {"y": y[:-1]}, ValueError, "30 samples, but y has 29"),
        ("no samples", {"X": X[:0], "y": y[:0]}, ValueError, "0 sample"),
        ("no features", {"X": X[:, :0]}, ValueError, "0 feature"),
        ("one dimension", {"X": X[0]}, ValueError, "2D array"),
        ("text", {"X": X.astype(str)}, ValueError, "Convert your data to numeric"),
        ("complex", {"X": X.astype(complex)}, ValueError, "[Cc]omplex"),
    )
    # fmt: on

    # scikit-learn's check of the labels casts first and complains afterwards.
    @pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
    @pytest.mark.parametrize(
        ("change", "error", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
    )
    def test_names_bad_input_and_stays_unfitted(self, fast, change, error, words):
        data = {"X": self.X, "y": self.y} | change
        before = {name: value.copy() for name, value in data.items()}
        with pytest.raises(error, match=words):
            fast.fit(**data)
        assert vars(fast) == vars(ce.CentroidEncoder(hidden=(16,), max_epochs=5))
        for name, value in data.items():
            assert value.tobytes() == before[name].tobytes()

    def test_keeps_its_fit_when_a_further_one_fails(self, fast):
        fast.fit(self.X, self.y)
        before = fast.transform(self.X)
        with pytest.raises(ValueError, match="at least two classes"):
            fast.fit(self.X, self.y[:10].repeat(3))
        assert_array_equal(fast.transform(self.X), before)

    @pytest.mark.parametrize("change", [read_only, np.asfortranarray, read_only_csr])
    def test_does_not_touch_its_input(self, fast, change):
        X = change(self.X)
        y = self.y.copy()
        y.flags.writeable = False
        before = X.copy()
        embedding = fast.fit(X, y).transform(X)
        assert np.isfinite(embedding).all()
        difference = X - before
        assert abs(difference).max() == 0


def test_a_mask_with_names_goes_by_them(cells, fast):
    found = []
    mask = pd.Series(np.arange(8) < 3, cells.var_names)
    for mask_var in (mask, mask[::-1], mask.to_numpy(), mask.reset_index(drop=True)):
        kwargs = {"mask_var": mask_var, "model": fast, "progress": False}
        ce.tl.centroid_encoder(cells, "cell_type", **kwargs)
        found.append(cells.obsm["X_ce"])
    for other in found[1:]:
        assert_array_equal(other, found[0])


@pytest.mark.parametrize("function", ["centroid_encoder", "cross_validate"])
def test_a_path_is_no_anndata(function):
    with pytest.raises(TypeError, match=r"an AnnData is needed, not str; read a file with"):
        getattr(ce.tl, function)("cells.h5ad", "cell_type")


def test_arrays_are_for_the_estimator():
    with pytest.raises(TypeError, match=r"not ndarray; for arrays .* CentroidEncoder\(\)\.fit"):
        ce.tl.centroid_encoder(np.ones((9, 3)), "cell_type")


@pytest.mark.parametrize(
    ("function", "name", "words"),
    [
        ("centroid_encoder", "max_epochs", r"pass model=ce\.CentroidEncoder\(max_epochs=…\)"),
        ("centroid_encoder", "label_keys", r"did you mean 'label_key'"),
        ("cross_validate", "folds", r"did you mean 'n_folds'"),
        ("ingest", "max_epochs", r"ingest\(\) has no parameter 'max_epochs'"),
    ],
)
def test_parameters_that_a_tool_does_not_have(cells, function, name, words):
    with pytest.raises(TypeError, match=words):
        getattr(ce.tl, function)(cells, "cell_type", **{name: 3})


def test_two_columns_of_a_name_are_none(cells):
    cells.obs = pd.concat([cells.obs, cells.obs[["cell_type"]]], axis=1)
    with pytest.raises(ValueError, match=r"obs has 2 columns 'cell_type'"):
        ce.tl.centroid_encoder(cells, "cell_type")
