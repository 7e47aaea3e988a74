"""Bad input raises an error before training; unusual input that works is in `tests/campaigns`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import PCA

import centroid_encoder as ce


def relabel(labels: Any, dtype: Any = None) -> Callable[[ad.AnnData], ad.AnnData]:
    """Return a function that sets labels: these, or the results of a function of the old ones."""

    def apply(adata: ad.AnnData) -> ad.AnnData:
        new = labels(adata.obs["cell_type"]) if callable(labels) else labels
        adata.obs["cell_type"] = pd.Series(list(new), adata.obs_names, dtype)
        return adata

    return apply


def revalue(change: Callable[[np.ndarray], Any]) -> Callable[[ad.AnnData], ad.AnnData]:
    """Return a function that replaces X by the result of `change(X)`."""

    def apply(adata: ad.AnnData) -> ad.AnnData:
        return ad.AnnData(change(adata.X), obs=adata.obs, var=adata.var)

    return apply


def put(value: float, *positions: tuple[int, int]) -> Callable[[ad.AnnData], ad.AnnData]:
    """Return a function that sets these positions of X to a value."""

    def apply(adata: ad.AnnData) -> ad.AnnData:
        for position in positions:
            adata.X[position] = value
        return adata

    return apply


def column(part: str, name: str, values: Any) -> Callable[[ad.AnnData], ad.AnnData]:
    """Return a function that adds a column of ``obs`` or ``var``, or an entry of another slot."""

    def apply(adata: ad.AnnData) -> ad.AnnData:
        getattr(adata, part)[name] = values(adata) if callable(values) else values
        return adata

    return apply


def duplicate(part: str) -> Callable[[ad.AnnData], ad.AnnData]:
    """Return a function that gives two cells or variables the same name."""

    def apply(adata: ad.AnnData) -> ad.AnnData:
        names = list(getattr(adata, part))
        setattr(adata, part, [names[1], *names[1:]])
        return adata

    return apply


def with_raw(adata: ad.AnnData) -> ad.AnnData:
    adata.raw = adata
    return adata


def same(adata: ad.AnnData) -> ad.AnnData:
    return adata


class Bad(NamedTuple):
    id: str
    breaks: Callable[[ad.AnnData], ad.AnnData]
    raises: type[Exception]
    words: tuple[str, ...]
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never changed


NAN_LABELS = ["type 0", *[np.nan] * 119]
# fmt: off
BAD = [
    # The label column.
    Bad("label column missing", same, KeyError,
        ("obs has no column 'celltype'", "did you mean 'cell_type'?"), {"label_key": "celltype"}),
    Bad("label column like a result",
        lambda a: ad.AnnData(a.X, a.obs.assign(ce_label="x", ce_split="x", ce_novelty=0.5), a.var),
        KeyError, ("obs has no column 'novelty'; did you mean 'cell_type'?",),
        {"label_key": "novelty"}),
    Bad("labels are measurements", relabel(lambda y: np.linspace(0, 1, len(y))), TypeError,
        ("'cell_type'", "fractional numbers", "120 different", "pandas.cut")),
    Bad("labels are identifiers", relabel(lambda y: np.arange(len(y))), TypeError,
        ("120 different values in 120 cells", "names of cells")),
    Bad("labels are names", relabel(lambda y: [f"cell {i}" for i in range(len(y))]), TypeError,
        ("'cell_type'", "120 different values in 120 cells")),
    Bad("labels are dates", relabel(lambda y: pd.date_range("2024", periods=len(y)).floor("30D")),
        TypeError, ("datetime64", "make them strings", ".astype(str)")),
    Bad("labels of mixed types", relabel(lambda y: [1, "a", 2] * 40, object), TypeError,
        ("mixed", "make them strings")),
    Bad("labels are lists", relabel(lambda y: [[1]] * len(y)), ValueError,
        ("obs['cell_type'] holds no names or numbers", "'list'")),
    Bad("one class besides the unlabeled", relabel(NAN_LABELS, object), ValueError,
        ("one class only", "'type 0'")),
    Bad("all unlabeled", relabel([np.nan] * 120, "category"), ValueError,
        ("'cell_type'", "no labels")),
    Bad("unknown unlabeled_category", same, ValueError,
        ("'type 9' does not occur", "did you mean"), {"unlabeled_category": "type 9"}),
    # The features.
    Bad("NaN in X", put(np.nan, (3, 2), (3, 4), (7, 0)), ValueError,
        ("X has 3 NaN or infinite values in 2 of 120 cells", "'gene2' of cell 'cell3'",
         'missing="drop"', 'missing="mean"')),
    Bad("masked values in X", revalue(lambda X: np.ma.masked_greater(X, X[9, 1] - 1e-6)),
        ValueError, ("NaN", 'missing="mean"')),
    Bad("all cells of a class have gaps",
        lambda a: put(np.nan, *((i, 0) for i in range(0, 120, 3)))(a), ValueError,
        ("no cell of 'type 0' is left without missing values",), {"missing": "drop"}),
    Bad("no cells", lambda a: a[:0].copy(), ValueError, ("no cells",)),
    Bad("no genes", lambda a: a[:, :0].copy(), ValueError, ("X must have the shape",)),
    Bad("no X", lambda a: ad.AnnData(obs=a.obs, var=a.var), ValueError,
        ("adata.X is empty", "use_rep")),
    Bad("complex X", revalue(lambda X: X.astype(complex)), TypeError, ("complex128",)),
    Bad("text in X", revalue(lambda X: X.astype(str).astype(object)), TypeError, ("object",)),
    Bad("duplicate obs_names", duplicate("obs_names"), ValueError, ("obs_names_make_unique",)),
    Bad("duplicate var_names", duplicate("var_names"), ValueError, ("var_names_make_unique",)),
    Bad("layer missing", column("layers", "log1p", lambda a: a.X), KeyError,
        ("layers has no 'logp'", "did you mean 'log1p'?"), {"layer": "logp"}),
    Bad("mask and representation",
        lambda a: column("var", "marker", True)(column("obsm", "X_pca", lambda a: a.X)(a)),
        ValueError, ("use_rep excludes mask_var",),
        {"use_rep": "X_pca", "mask_var": "marker"}),
    Bad("mask column missing", column("var", "highly_variable", True), KeyError,
        ("var has no 'highly_varable'", "'highly_variable'"), {"mask_var": "highly_varable"}),
    Bad("mask of raw missing",
        lambda a: column("var", "highly_variable", True)(with_raw(a)),
        KeyError, ("raw.var has no 'highly_variable'",),
        {"use_raw": True, "mask_var": "highly_variable"}),
    Bad("mask is not of bools", column("var", "highly_variable", list("TTTTFFFF")), ValueError,
        ("var['highly_variable'] must hold True or False for each of the 8",)),
    Bad("nothing but zeros", revalue(np.zeros_like), ValueError,
        ("X has the same values in all cells", "another layer")),
    Bad("no raw", same, ValueError, ("adata.raw is empty", "use_raw"), {"use_raw": True}),
    Bad("mask of other variables", same, ValueError, ("index of mask_var is not var_names",),
        {"mask_var": pd.Series(True, [f"gene{i}" for i in range(7)])}),
    Bad("another model", same, TypeError, ("model must be a CentroidEncoder", "PCA"),
        {"model": PCA()}),
    Bad("mask selects nothing", column("var", "highly_variable", False), ValueError,
        ("var['highly_variable'] must hold", "True for some")),
    Bad("labels where results are written", column("obs", "ce_label", lambda a: a.obs["cell_type"]),
        ValueError, ("obs['ce_label'] would be replaced by the results", "key_added"),
        {"label_key": "ce_label"}),
    # The split.
    Bad("test_size of a number of cells", same, ValueError,
        ("test_size must be at least 0 and below 1", "got 20"), {"test_size": 20}),
    Bad("group column missing", column("obs", "donor", lambda a: a.obs_names), KeyError,
        ("obs has no column 'donr'", "did you mean 'donor'?"), {"group_key": "donr"}),
    Bad("groups are lists", column("obs", "donor", lambda a: [["d1"]] * 120), ValueError,
        ("obs['donor'] holds no names or numbers",), {"group_key": "donor"}),
    Bad("one group", column("obs", "donor", "d1"), ValueError,
        ("one group", "obs['donor']"), {"group_key": "donor"}),
    Bad("labeled cells without a group",
        column("obs", "donor", lambda a: [np.nan, np.nan, *["d1", "d2"] * 59]), ValueError,
        ("2 labeled cells have no value in obs['donor']",), {"group_key": "donor"}),
    Bad("each class in a group of its own", column("obs", "donor", lambda a: a.obs["cell_type"]),
        ValueError, ("is left for the training; leave out group_key",),
        {"group_key": "donor"}),
    # The rest.
    Bad("labels with a slash", column("obs", "cell/type", lambda a: a.obs["cell_type"]), ValueError,
        ("label_key must not be 'cell/type'",), {"label_key": "cell/type"}),
]
# fmt: on


TRAININGS = [ce.tl.centroid_encoder, ce.tl.cross_validate]
# A cross-validation has no test_size, and does not write a column "ce_label".
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
def test_bad_input_is_described_before_training_and_nothing_changes(
    cells, unchanged, monkeypatch, function, case
):
    def train(*args: Any, **kwargs: Any) -> None:
        pytest.fail("training has begun")

    monkeypatch.setattr("centroid_encoder.core.train.Run.start", train)
    adata = case.breaks(cells)
    # The results of an earlier run must stay as well.
    adata.obsm["X_ce"] = np.zeros((adata.n_obs, 2), dtype=np.float32)
    adata.uns["ce"] = adata.uns["ce_cv"] = {"from": "an earlier run", "confusion": ""}
    kwargs = {"label_key": "cell_type", "progress": False} | case.kwargs
    with unchanged(adata), pytest.raises(case.raises) as caught:
        function(adata, **kwargs)
    for words in case.words:
        assert words in str(caught.value)


def test_results_cannot_be_written_to_a_view_of_a_file(cells, fast, tmp_path):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    view = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")[:60]
    with pytest.raises(ValueError, match=r"to_memory\(\), or copy=True"):
        ce.tl.centroid_encoder(view, "cell_type", model=fast, progress=False)
    assert view.is_view
    copy = ce.tl.centroid_encoder(view, "cell_type", model=fast, progress=False, copy=True)
    assert copy.obsm["X_ce"].shape == (60, 2)


def test_csr_of_half_precision_works(cells, make_cells, fast):
    query = make_cells(n_obs=30)
    for adata in (cells, query):
        adata.X = sparse.csr_matrix(adata.X)
        # scipy cannot create or copy a matrix of this type.
        adata.X.data = adata.X.data.astype(np.float16)
    for function in TRAININGS:
        function(cells, "cell_type", model=fast, progress=False)
    ce.tl.ingest(query, cells, progress=False)
    assert np.isfinite(query.obsm["X_ce"]).all()
    assert cells.X.dtype == np.float16


@pytest.mark.parametrize("refused", ["ce_label", "X_ce"])
@pytest.mark.parametrize("view", [False, True], ids=["actual", "view"])
def test_a_failure_while_writing_leaves_everything_as_it_was(
    cells, fast, unchanged, monkeypatch, refused, view
):
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False, test_size=0)
    armed = [True]

    def fail_once(kind: type) -> None:
        write = kind.__setitem__

        def setitem(self: Any, key: Any, value: Any) -> None:
            write(self, key, value)
            if isinstance(key, str) and key == refused and armed:
                armed.clear()
                raise MemoryError("no space left")

        monkeypatch.setattr(kind, "__setitem__", setitem)

    adata = cells[:90] if view else cells
    with unchanged(cells), unchanged(adata):
        fail_once(pd.DataFrame)
        fail_once(type(cells.obsm))
        with pytest.raises(MemoryError, match="no space left"):
            ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("cells.h5ad", "an AnnData is needed, not str; read a file with"),
        (np.ones((9, 3)), r"not ndarray; for arrays .* CentroidEncoder\(\)\.fit"),
    ],
)
def test_paths_and_arrays_are_refused(data, words):
    for function in TRAININGS:
        with pytest.raises(TypeError, match=words):
            function(data, "cell_type")
    for function in (ce.pl.voronoi, ce.pl.confusion, ce.tl.mislabeled, ce.tl.suggest):
        with pytest.raises(TypeError, match=words):
            function(data)


@pytest.mark.parametrize(
    ("function", "name", "words"),
    [
        ("centroid_encoder", "max_epochs", r"pass model=ce\.CentroidEncoder\(max_epochs=…\)"),
        ("centroid_encoder", "label_keys", r"did you mean 'label_key'"),
        ("cross_validate", "folds", r"did you mean 'n_folds'"),
        ("cross_validate", "batch", r"did you mean 'group_key'\?$"),
        *(
            ("centroid_encoder", name, r"did you mean 'group_key'\?$")
            for name in ("batch_key", "batch", "donor_key", "sample_key", "groups")
        ),
        ("ingest", "max_epochs", r"ingest\(\) has no parameter 'max_epochs'"),
        ("centroid_encoder", "seed", r"did you mean 'random_state'\?$"),
        ("cross_validate", "random_seed", r"did you mean 'random_state'\?$"),
        ("cross_validate", "n_splits", r"did you mean 'n_folds'\?$"),
        ("centroid_encoder", "groupby", r"did you mean 'label_key'\?$"),
        ("centroid_encoder", "n_epochs", r"pass model=ce\.CentroidEncoder\(max_epochs=…\)"),
        ("feature_panel", "n_comps", r"pass model=ce\.CentroidEncoder\(n_components=…\)"),
        ("ingest", "verbose", r"did you mean 'progress'\?$"),
        ("ingest", "obsm", r"did you mean 'use_rep'\?$"),
    ],
)
def test_unknown_parameters_are_refused_with_a_hint(cells, function, name, words):
    with pytest.raises(TypeError, match=words):
        getattr(ce.tl, function)(cells, "cell_type", **{name: 3})


@pytest.mark.parametrize("function", TRAININGS)
@pytest.mark.parametrize("name", ["nan", " NA", ""])
def test_a_notice_says_that_a_name_of_missing_values_is_trained_as_a_class(cells, function, name):
    cells.obs["cell_type"] = cells.obs["cell_type"].cat.rename_categories({"type 0": name})
    (notice,) = function.job(cells, "cell_type").notices
    assert notice.startswith(f"trained as classes of obs['cell_type']: {name!r}; ")
    assert "NaN, or pass unlabeled_category" in notice
    assert not function.job(cells, "cell_type", unlabeled_category=name).notices


def test_colors_of_other_categories_are_deleted(cells, fast):
    cells.obs["coarse"] = cells.obs["cell_type"].cat.rename_categories({"type 2": "rest"})
    for label_key, colors in (("cell_type", None), ("cell_type", True), ("coarse", None)):
        ce.tl.centroid_encoder(cells, label_key, model=fast, progress=False)
        assert ("ce_label_colors" in cells.uns) == (colors is not None)
        cells.uns["ce_label_colors"] = ["#ff0000", "#00ff00", "#0000ff"]


def test_two_columns_of_one_name_are_refused(cells):
    cells.obs = pd.concat([cells.obs, cells.obs[["cell_type"]]], axis=1)
    with pytest.raises(ValueError, match=r"obs has 2 columns 'cell_type'"):
        ce.tl.centroid_encoder(cells, "cell_type")
