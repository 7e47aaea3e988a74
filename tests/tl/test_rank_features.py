"""Features that differ: scanpy's layout, planted features, donors, and what a map uses."""

from __future__ import annotations

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import torch
from captum.attr import IntegratedGradients
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.stats import ttest_ind, ttest_rel

import centroid_encoder as ce
from centroid_encoder.core.attributions import attribute, margins
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.errors import CentroidEncoderWarning

PLANTED = {"T": "gene3", "B": "gene7", "NK": "gene11"}


@pytest.fixture
def counts():
    """Log-normalised counts of three types in six donors; each type has a gene of its own."""
    rng = np.random.default_rng(0)
    types = np.repeat(list(PLANTED), 120)
    means = np.full((360, 20), 0.4)
    for name, gene in PLANTED.items():
        means[types == name, int(gene[4:])] = 3
    obs = pd.DataFrame(
        {
            "type": pd.Categorical(types, list(PLANTED)),
            "donor": [f"D{i % 6}" for i in range(360)],
            "treated": [i % 6 < 3 for i in range(360)],
        },
        index=[f"cell{i}" for i in range(360)],
    )
    adata = ad.AnnData(sparse.csr_matrix(rng.poisson(means).astype(np.float32)), obs=obs)
    adata.var_names = [f"gene{i}" for i in range(20)]
    sc.pp.log1p(adata)
    return adata


@pytest.fixture(scope="session")
def _with_map():
    return []


@pytest.fixture
def mapped(counts, _with_map):
    if not _with_map:
        model = ce.CentroidEncoder(hidden=(32, 16), max_epochs=15, device="cpu")
        ce.tl.centroid_encoder(counts, "type", model=model, progress=False)
        _with_map.append(counts)
    return _with_map[0].copy()


def first(adata, group, key="rank_features"):
    return sc.get.rank_genes_groups_df(adata, group, key=key)["names"].iloc[0]


def test_the_order_the_changes_and_the_shares_are_those_of_scanpy(counts):
    ce.tl.rank_features(counts, "type")
    sc.tl.rank_genes_groups(counts, "type", method="wilcoxon", pts=True)
    ours, theirs = (
        sc.get.rank_genes_groups_df(counts, None, key=key).set_index(["group", "names"])
        for key in ("rank_features", "rank_genes_groups")
    )
    theirs = theirs.loc[ours.index]
    # Without a correction for ties, Wilcoxon's score is a multiple of the area.
    assert_allclose(np.corrcoef(ours["scores"], theirs["scores"])[0, 1], 1, atol=1e-5)
    for column in ("logfoldchanges", "pct_nz_group", "pct_nz_reference"):
        assert_allclose(ours[column], theirs[column], rtol=1e-4, atol=1e-5)
    for part in ("names", "scores", "logfoldchanges", "pvals", "pvals_adj"):
        kinds = [counts.uns[key][part].dtype for key in ("rank_features", "rank_genes_groups")]
        assert kinds[0] == kinds[1]
    assert ours["pvals"].isna().all()
    assert [first(counts, name) for name in PLANTED] == list(PLANTED.values())


def test_plots_and_exports_of_scanpy_read_it(counts):
    counts.X = counts.X.toarray()
    ce.tl.rank_features(counts, "type")
    for plot in (
        sc.pl.rank_genes_groups_dotplot,
        sc.pl.rank_genes_groups_matrixplot,
        sc.pl.rank_genes_groups_stacked_violin,
        sc.pl.rank_genes_groups_heatmap,
    ):
        plot(counts, key="rank_features", n_genes=2, show=False)
    sc.pl.rank_genes_groups_dotplot(
        counts, key="rank_features", n_genes=2, values_to_plot="logfoldchanges", show=False
    )
    sc.pl.rank_genes_groups(counts, key="rank_features", n_genes=3, show=False)
    assert plt.get_fignums()


def test_a_reference_a_subset_and_a_boolean_column(counts):
    ce.tl.rank_features(counts, "type", ["B"], "NK")
    table = sc.get.rank_genes_groups_df(counts, "B", key="rank_features")
    assert table["names"].iloc[[0, -1]].tolist() == ["gene7", "gene11"]
    pair = counts[counts.obs["type"] != "T"].copy()
    ce.tl.rank_features(pair, "type", ["B"])
    alone = sc.get.rank_genes_groups_df(pair, "B", key="rank_features")
    assert_allclose(table["scores"], alone["scores"])

    is_b = (counts.obs["type"] == "B").to_numpy()
    X = counts.X.toarray()
    X[is_b & counts.obs["treated"].to_numpy(), 0] += 2
    counts.X = X
    ce.tl.rank_features(counts, "treated", ["True"], subset=is_b)
    assert first(counts, "True") == "gene0"


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_files_hold_it_even_with_slashes_in_names(counts, tmp_path, suffix):
    counts.obs["type"] = counts.obs["type"].cat.rename_categories({"T": "CD4+/CD45RA+ T"})
    ce.tl.rank_features(counts, "type")
    path = tmp_path / f"cells.{suffix}"
    getattr(counts, f"write_{suffix}")(path)
    again = getattr(ad, f"read_{suffix}")(path)
    for group in counts.obs["type"].cat.categories:
        tables = [
            sc.get.rank_genes_groups_df(a, group, key="rank_features") for a in (counts, again)
        ]
        pd.testing.assert_frame_equal(*tables, check_dtype=False)


def test_files_that_are_read_by_parts_give_the_same(counts, tmp_path):
    counts.write_h5ad(tmp_path / "cells.h5ad")
    ce.tl.rank_features(counts, "type", group_key="donor")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    ce.tl.rank_features(backed, "type", group_key="donor")
    counts.X = counts.X.toarray()
    dense = counts.copy()
    ce.tl.rank_features(dense, "type", group_key="donor")
    for part in ("scores", "pvals"):
        for field in PLANTED:
            wanted = counts.uns["rank_features"][part][field]
            assert_allclose(dense.uns["rank_features"][part][field], wanted)
            assert_allclose(backed.uns["rank_features"][part][field], wanted)


@pytest.mark.filterwarnings("ignore:Precision loss")
def test_p_values_are_t_tests_between_means_of_donors(counts):
    ce.tl.rank_features(counts, "type", group_key="donor")
    table = sc.get.rank_genes_groups_df(counts, "T", key="rank_features").set_index("names")
    frame = counts.to_df().astype(float).assign(donor=counts.obs["donor"].to_numpy())
    is_t = (counts.obs["type"] == "T").to_numpy()
    own, rest = (frame[mask].groupby("donor").mean() for mask in (is_t, ~is_t))
    wanted = pd.Series(ttest_rel(own, rest).pvalue, own.columns)
    assert_allclose(table["pvals"], wanted[table.index], rtol=1e-4)

    ce.tl.rank_features(counts, "treated", group_key="donor", subset=is_t)
    table = sc.get.rank_genes_groups_df(counts, "True", key="rank_features").set_index("names")
    is_treated = counts[is_t].obs.groupby("donor")["treated"].first()
    welch = ttest_ind(own[is_treated], own[~is_treated], equal_var=False).pvalue
    assert_allclose(table["pvals"], pd.Series(welch, own.columns)[table.index], rtol=1e-4)


@pytest.mark.parametrize("n_alone", [2, 3])
def test_donors_of_both_sides_are_in_no_test_of_independent_means(counts, n_alone):
    """Two donors have cells of both sides; `n_alone` others have cells of one side, each."""
    n = 2 + 2 * n_alone
    counts = counts[: 45 * n].copy()
    donors, is_late = np.repeat(np.arange(n), 45), np.tile(np.arange(45) < 20, n)
    counts.obs["donor"] = donors.astype(str)
    counts.obs["side"] = np.where(donors < 2, is_late, donors % 2 == 0)
    if n_alone < 3:
        with pytest.warns(CentroidEncoderWarning, match="they need 3 values"):
            ce.tl.rank_features(counts, "side", ["True"], group_key="donor")
        assert np.isnan(counts.uns["rank_features"]["pvals"]["True"]).all()
        return
    ce.tl.rank_features(counts, "side", ["True"], group_key="donor")
    table = sc.get.rank_genes_groups_df(counts, "True", key="rank_features").set_index("names")
    means = counts.to_df().astype(float).groupby(donors).mean().loc[2:]
    expected = ttest_ind(means[means.index % 2 == 0], means[means.index % 2 == 1], equal_var=False)
    assert_allclose(table["pvals"], pd.Series(expected.pvalue, means.columns)[table.index], 1e-4)


def test_fold_changes_are_those_of_logarithms_only(counts):
    logs, plain = counts.X, counts.X.copy()
    plain.data = np.expm1(plain.data).round()
    counts.layers.update(counts=plain, logs=logs)
    counts.raw = counts
    scaled = counts.copy()
    sc.pp.scale(scaled, zero_center=False)
    raw_counts = counts.copy()
    raw_counts.X = plain
    raw_counts.raw = raw_counts
    beside = counts.copy()
    sc.pp.scale(beside, layer="counts", zero_center=False)
    for adata, options, is_known in (
        (counts, {}, True),
        (counts, {"use_raw": False}, True),
        (counts, {"layer": "counts"}, False),
        (counts, {"layer": "logs"}, False),
        (scaled, {}, True),
        (scaled, {"use_raw": False}, False),
        (beside, {"use_raw": False}, True),
        (raw_counts, {}, False),
    ):
        ce.tl.rank_features(adata, "type", **options)
        changes = adata.uns["rank_features"]["logfoldchanges"]["T"]
        assert np.isfinite(changes).all() == is_known
        assert np.isnan(changes).all() != is_known


def test_cells_of_donors_are_no_replicates():
    # Donors differ in everything, and the condition, which is one of the donors, in nothing.
    rng = np.random.default_rng(1)
    donors = np.repeat(np.arange(8), 50)
    X = rng.normal(size=(8, 300))[donors] + rng.normal(size=(400, 300))
    obs = {"donor": donors.astype(str), "sick": donors % 2 == 0}
    adata = ad.AnnData(X, obs=pd.DataFrame(obs, index=np.arange(400).astype(str)))
    ce.tl.rank_features(adata, "sick", group_key="donor")
    p = adata.uns["rank_features"]["pvals"]["True"]
    assert 0.01 < (p < 0.05).mean() < 0.1


@pytest.mark.parametrize("groupby", ["type", "treated"])
def test_rounding_errors_are_no_differences(counts, groupby):
    """The means of a constant feature differ in their last digits."""
    X = counts.X.toarray().astype(float)
    X[:, 15:] = np.array([0.1, -1.7, 5.3, 1e9 / 3, 1e-9 / 7])
    counts.X = X[:, ::-1]
    size = np.random.default_rng(0).choice(360, 311, replace=False)
    counts = counts[np.sort(size)].copy()
    ce.tl.rank_features(counts, groupby, group_key="donor")
    for name in counts.uns["rank_features"]["names"].dtype.names:
        table = sc.get.rank_genes_groups_df(counts, name, key="rank_features").set_index("names")
        no_p = table["pvals"].isna()
        assert set(table.index[no_p]) == {f"gene{i}" for i in range(5)}


@pytest.mark.parametrize(
    ("group_key", "groupby", "reason"),
    [
        ("donor", "ce_label", "circular"),
        ("donor", "alone_cv_label", "circular"),
        ("donor", "leiden", "circular"),
        ("donor", "lasso", "circular"),
        ("pair", "type", "they need 3 values"),
    ],
)
def test_why_there_are_no_p_values(mapped, group_key, groupby, reason):
    mapped.obs["leiden"] = mapped.obs["alone_cv_label"] = mapped.obs["type"].to_numpy()
    mapped.uns["leiden"] = {"params": {"resolution": 1.0}}
    mapped.obs["lasso"] = mapped.obs["type"] == "T"
    mapped.uns["ce_selections"] = {"lasso": {"how": "lasso in the map", "uses_features": True}}
    mapped.obs["pair"] = mapped.obs["treated"].astype(str)
    with pytest.warns(CentroidEncoderWarning, match=reason):
        ce.tl.rank_features(mapped, groupby, group_key=group_key)
    assert np.isnan(mapped.uns["rank_features"]["pvals"].tolist()).all()


@pytest.fixture(params=["voronoi", "bottleneck"])
def fitted(request, make_cells):
    cells = make_cells(n_obs=90)
    params = {"hidden": (16,), "max_epochs": 8, "device": "cpu", "random_state": 0}
    model = ce.CentroidEncoder(placement=request.param, **params)
    return model.fit(cells.X, cells.obs["cell_type"]).fitted_map, cells


def test_contributions_add_up_to_the_margin_and_are_those_of_captum(fitted):
    map_, cells = fitted
    z = map_.standardizer(cells.X[:20])
    baseline = map_.standardizer(cells.X[30:]).mean(dim=0)
    found = attribute(map_, z, baseline, 0, [1, 2])

    def margin(z):
        return margins(map_, z, 0, [1, 2])

    change = (margin(z) - margin(baseline[None])).detach()
    # Kinks of the ramps are integrated inexactly.
    assert_allclose(found.sum(axis=1), change, atol=float(0.03 * change.abs().max()))
    oracle = IntegratedGradients(margin).attribute(z, baseline.expand_as(z), n_steps=300)
    assert_allclose(found, oracle.detach(), atol=0.05 * oracle.abs().max())
    with torch.no_grad():
        pairwise = margins(map_, z, 0, [1]).numpy()
    _, distances = map_.judge_inputs(*map_.read(map_.standardizer(cells.X[:20])))
    assert ((pairwise > 0) == (distances[:, 0] < distances[:, 1])).all()


def test_the_map_tells_what_it_uses(mapped):
    ce.tl.rank_features(mapped, "type", method="map")
    assert [first(mapped, name) for name in PLANTED] == list(PLANTED.values())
    stored = mapped.uns["rank_features"]
    held_out = mapped.obs["ce_split"] == "test"
    found = dict(zip(stored["names"].dtype.names, stored["params"]["n_cells"], strict=True))
    assert found == mapped[held_out].obs["type"].value_counts().to_dict()

    # Held-out cells of other classes change nothing, those of the class do.
    for name, changes in (("B", False), ("T", True)):
        other = mapped.copy()
        X = other.X.toarray()
        X[(held_out & (other.obs["type"] == name)).to_numpy()] = 0
        other.X = X
        ce.tl.rank_features(other, "type", ["T"], method="map")
        same = np.allclose(
            other.uns["rank_features"]["scores"]["T"], stored["scores"]["T"], equal_nan=True
        )
        assert same != changes


def test_features_that_the_map_does_not_use_come_last(counts):
    counts.X = counts.X.toarray()
    counts.X[:, 5] = 1
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, device="cpu")
    ce.tl.centroid_encoder(counts, "type", model=model, progress=False)
    ce.tl.rank_features(counts, "type", method="map")
    table = sc.get.rank_genes_groups_df(counts, "T", key="rank_features")
    used = ce.tl.fitted_model(counts, device="cpu").feature_weights_ > 0
    unused = set(counts.var_names[~used])
    assert set(table["names"][table["scores"].isna()]) == unused
    assert set(table["names"].tail(len(unused))) == unused


def test_cells_without_a_label_take_no_part_in_a_map(counts):
    """The category of unlabeled cells is no class."""
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=3, device="cpu")
    counts.obs["type"] = counts.obs["type"].cat.add_categories("unknown")
    counts.obs.loc[counts.obs_names[::5], "type"] = "unknown"
    options = {"unlabeled_category": "unknown", "model": model, "progress": False}
    ce.tl.centroid_encoder(counts, "type", **options)
    ce.tl.rank_features(counts, "type", method="map")
    assert set(counts.uns["rank_features"]["scores"].dtype.names) == set(PLANTED)


def test_cells_of_the_map_that_were_removed(mapped):
    part = mapped[mapped.obs["ce_split"] == "test"].copy()
    with pytest.raises(ValueError, match="no cell of the reference was trained on"):
        ce.tl.rank_features(part, "type", method="map")


@pytest.mark.parametrize("names", [{"T": 1, "B": "1"}, {"T": ""}])
def test_groups_without_a_name_of_their_own(counts, names):
    counts.obs["type"] = counts.obs["type"].astype(object).replace(names).astype("category")
    with pytest.raises(ValueError, match="rename them"):
        ce.tl.rank_features(counts, "type")


def test_a_subset_in_another_order(counts):
    mask = counts.obs["treated"]
    ce.tl.rank_features(counts, "type", subset=mask)
    with pytest.raises(ValueError, match="reindex"):
        ce.tl.rank_features(counts, "type", subset=mask[::-1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"groupby": "typ"}, "typ"),
        ({"groups": ["Tcell"]}, "no cell has 'Tcell'"),
        ({"groups": "T"}, 'must be "all" or a list'),
        ({"groups": None}, 'must be "all" or a list'),
        ({"reference": "b"}, "no cell has 'b'"),
        ({"groups": ["B"], "reference": "B"}, "no group beside the reference"),
        ({"method": "wilcoxon"}, 'pass method="auroc"'),
        ({"method": "t-test"}, "method"),
        ({"n_features": 0}, "at least 1"),
        ({"n_features": 2.5}, "integer"),
        ({"subset": np.zeros(360, dtype=bool)}, "True for some"),
        ({"subset": "type"}, "True for some"),
        ({"subset": [True]}, "True for some"),
        ({"method": "map", "groupby": "donor"}, 'pass method="auroc"'),
        ({"method": "map", "layer": "x"}, "layer has no effect"),
        ({"method": "map", "key": "no"}, "no result 'no'"),
        ({"key_added": "a/b"}, "key_added"),
        ({"key_added": "ce"}, "exists already and is another result"),
        ({"key_added": "neighbors"}, "exists already"),
        ({"key_added": "rank_genes_groups"}, "exists already"),
    ],
)
def test_bad_arguments_change_nothing(mapped, arguments, words):
    mapped.uns["neighbors"] = {"params": {"method": "umap"}}
    mapped.uns["rank_genes_groups"] = {"params": {"method": "wilcoxon"}}
    before = set(mapped.uns)
    with pytest.raises((ValueError, KeyError), match=words):
        ce.tl.rank_features(mapped, **({"groupby": "type"} | arguments))
    assert set(mapped.uns) == before


def test_a_class_without_held_out_cells(counts):
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=2, device="cpu")
    ce.tl.centroid_encoder(counts, "type", model=model, test_size=0, progress=False)
    with pytest.raises(ValueError, match="no cell of these groups was held out"):
        ce.tl.rank_features(counts, "type", method="map")
    ce.tl.centroid_encoder(counts, "type", model=model, progress=False)
    others = counts[(counts.obs["ce_split"] == "train") | (counts.obs["type"] != "T")].copy()
    with pytest.warns(UserWarning, match="no scores for 'T': none of their cells was held out"):
        ce.tl.rank_features(others, "type", method="map")
    scores = pd.DataFrame(others.uns["rank_features"]["scores"]).isna()
    assert scores.columns[scores.all()].tolist() == ["T"]


@pytest.mark.parametrize("method", ["auroc", "map"])
def test_a_copy_progress_and_stop(mapped, method, unchanged, capsys):
    expected = mapped.copy()
    ce.tl.rank_features(expected, "type", method=method, progress=False)
    assert not capsys.readouterr().err
    with unchanged(mapped):
        found = ce.tl.rank_features(mapped, "type", method=method, copy=True)
        assert "100%" in capsys.readouterr().err
        assert first(found, "B") == first(expected, "B")
        with pytest.raises(StoppedTooEarly):
            ce.tl.rank_features.job(mapped, "type", method=method).run(lambda _: True)
