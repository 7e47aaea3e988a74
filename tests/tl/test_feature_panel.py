"""`tl.feature_panel`: errors with few features, which are chosen in the training cells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal
from sklearn.ensemble import RandomForestClassifier

import centroid_encoder as ce
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.errors import CentroidEncoderWarning
from centroid_encoder.tl import _evaluation, _feature_panel
from centroid_encoder.tl._summary import summary

pytestmark = pytest.mark.filterwarnings("ignore:zarr v3 autosharding", "ignore:Writing zarr v2")


@pytest.fixture(scope="module", autouse=True)
def few_trees() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_feature_panel, "N_TREES", 10)
        yield


@pytest.fixture
def wide() -> ad.AnnData:
    """Cells of three types and six donors; three of 200 genes differ between the types."""
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=240)
    X = rng.normal(size=(240, 200)).astype(np.float32)
    X[np.arange(240), codes] += 5
    obs = pd.DataFrame({"kind": pd.Categorical.from_codes(codes, ["a", "b", "c"])})
    obs["donor"] = [f"d{i % 6}" for i in range(240)]
    obs.index = [f"cell{i}" for i in range(240)]
    return ad.AnnData(X, obs, pd.DataFrame(index=[f"g{i}" for i in range(200)]))


@pytest.fixture
def panel(fast: ce.CentroidEncoder) -> Any:
    def run(adata: ad.AnnData, sizes: Any = (3, 6), **kwargs: Any) -> Any:
        kwargs = {"model": fast, "progress": False, "n_folds": 3} | kwargs
        ce.tl.feature_panel(adata, kwargs.pop("label_key", "kind"), sizes, **kwargs)
        return adata.uns[kwargs.get("key_added", "feature_panel")]

    return run


def error(stored: Any, size: int, judge: str) -> float:
    table = stored["errors"].set_index(["size", "judge"])
    return float(table.loc[(size, judge), "error"])


def test_features_that_differ_are_found_and_suffice(wide: ad.AnnData, panel: Any) -> None:
    stored = panel(wide, (6, 3))
    assert wide.var_names[wide.var["feature_panel_3"]].tolist() == ["g0", "g1", "g2"]
    assert wide.var["feature_panel_6"].sum() == 6
    assert wide.var["feature_panel_6"][wide.var["feature_panel_3"]].all()
    features = stored["features"]
    assert set(features.index[:3]) == {"g0", "g1", "g2"}
    assert features["rank"].iloc[:6].tolist() == [1, 2, 3, 4, 5, 6]
    assert (features["n_folds_3"].iloc[:3] == 3).all()
    assert features["n_folds_6"].sum() == 3 * 6
    table = stored["errors"]
    assert table["size"].unique().tolist() == [3, 6, 200]
    assert table["judge"].unique().tolist() == ["map", "input_knn", "forest"]
    assert (table["n"] == 240).all()
    for name in ("error", "balanced_error"):
        assert table[name].between(table[f"{name}_low"], table[f"{name}_high"]).all()
    assert max(error(stored, 3, judge) for judge in ("map", "input_knn", "forest")) < 0.08
    # Noise hides the classes from neighbours by all features.
    assert error(stored, 200, "input_knn") > 0.2


def test_random_labels_are_not_predicted(wide: ad.AnnData, panel: Any) -> None:
    """If held-out cells took part in the choice, these errors would be far below chance."""
    wide.obs["kind"] = np.random.default_rng(1).permutation(wide.obs["kind"])
    stored = panel(wide, (10,))
    for judge in ("map", "input_knn", "forest"):
        assert error(stored, 10, judge) > 0.58


def test_values_of_held_out_cells_do_not_change_the_choice(
    wide: ad.AnnData, panel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value of one cell changes the choice in the other folds only, and without the labels."""

    def record(*given: Any) -> Any:
        found = choose(*given)
        orders.append(found.tolist())
        return found

    choose, orders = _feature_panel.choose_features, []
    monkeypatch.setattr(_feature_panel, "choose_features", record)
    panel(wide)
    job = ce.tl.feature_panel.job(wide, "kind", (3, 6), n_folds=3)
    held_out = job.folds == 1
    before = orders.copy()
    orders.clear()
    wide.X[held_out] = np.random.default_rng(2).normal(size=(held_out.sum(), 200))
    wide.X[held_out, 150:153] += 9 * np.eye(3)[wide.obs["kind"].cat.codes[held_out]]
    panel(wide)
    assert [a == b for a, b in zip(before, orders, strict=True)] == [False, True, False, False]


def test_groups_are_not_split_and_cells_without_a_label_take_no_part(
    wide: ad.AnnData, panel: Any
) -> None:
    wide.obs.loc[wide.obs_names[:20], "kind"] = np.nan
    wide.obs["kind"] = wide.obs["kind"].cat.add_categories("none")
    wide.obs.loc[wide.obs_names[20:40], "kind"] = "none"
    stored = panel(wide, (3,), group_key="donor", unlabeled_category="none")
    assert_array_equal(stored["chosen_from"], wide.obs_names[40:])
    assert (stored["errors"]["n"] == 200).all()
    options = {"group_key": "donor", "unlabeled_category": "none"}
    job = ce.tl.feature_panel.job(wide, "kind", (3,), **options)
    assert_array_equal(job.rows, np.arange(40, 240))
    assert (wide.obs[40:].assign(fold=job.folds).groupby("donor")["fold"].nunique() == 1).all()


@pytest.fixture(scope="module")
def _paneled() -> list[ad.AnnData]:
    return []


@pytest.fixture
def paneled(_paneled: list[ad.AnnData], wide: ad.AnnData, panel: Any) -> ad.AnnData:
    """Cells without donors, with panels of 3 and 6 features."""
    if not _paneled:
        del wide.obs["donor"]
        panel(wide)
        _paneled.append(wide)
    return _paneled[0].copy()


@pytest.mark.parametrize("kind", ["h5ad", "zarr"])
def test_results_survive_a_file(kind: str, paneled: ad.AnnData, tmp_path: Path) -> None:
    wide, stored = paneled, paneled.uns["feature_panel"]
    path = tmp_path / f"cells.{kind}"
    getattr(wide, f"write_{kind}")(path)
    read = getattr(ad, f"read_{kind}")(path)
    assert read.var["feature_panel_3"].equals(wide.var["feature_panel_3"])
    assert read.var["feature_panel_3"].dtype == bool
    for name in ("errors", "features"):
        assert_frame_equal(
            read.uns["feature_panel"][name], stored[name], check_dtype=False, check_index_type=False
        )
    with pytest.warns(CentroidEncoderWarning, match="took part in the choice"):
        map_of(read, "feature_panel_3")


def map_of(adata: ad.AnnData, mask_var: Any, **kwargs: Any) -> None:
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5)
    kwargs = {"model": model, "progress": False} | kwargs
    ce.tl.centroid_encoder(adata, "kind", mask_var=mask_var, **kwargs)


def test_a_map_on_a_panel_shows_the_cross_validated_error(paneled: ad.AnnData) -> None:
    wide, stored = paneled, paneled.uns["feature_panel"]
    words = f"{100 * error(stored, 6, 'map'):.1f} %"
    with pytest.warns(CentroidEncoderWarning) as caught:
        map_of(wide, "feature_panel_6")
    texts = [str(one.message) for one in caught]
    assert len(texts) == 1
    assert "a feature panel, so that their error is too small" in texts[0]
    assert words in texts[0]
    assert wide.uns["ce"]["quality"]["test"]["panel_error"] == error(stored, 6, "map")
    assert words in summary(wide, "ce")[0]
    _, test = ce.pl.voronoi(wide, show=False)
    assert test.get_title().endswith(f"cross-validated error of such feature panels {words}")
    validation = ce.tl.cross_validate.job(wide, "kind", mask_var="feature_panel_6")
    assert words in validation.doubts[0]


@pytest.mark.parametrize("way", ["subset", "mask"])
def test_a_panel_is_recognised_without_its_column(
    way: str, paneled: ad.AnnData, tmp_path: Path
) -> None:
    wide = paneled
    mask = wide.var["feature_panel_6"].to_numpy()
    part, mask_var = (wide[:, mask].copy(), None) if way == "subset" else (wide, mask)
    part.write_h5ad(tmp_path / "cells.h5ad")
    with pytest.warns(CentroidEncoderWarning, match="took part in the choice"):
        map_of(ad.read_h5ad(tmp_path / "cells.h5ad"), mask_var)


def test_cells_that_took_no_part_are_held_out_without_a_warning(
    wide: ad.AnnData, panel: Any, recwarn: pytest.WarningsRecorder
) -> None:
    del wide.obs["donor"]
    wide.obs["part"] = wide.obs["kind"].where(np.arange(240) < 120)
    wide.obs["new"] = np.arange(240) >= 120
    panel(wide, (6,), n_folds=2, label_key="part")
    map_of(wide, "feature_panel_6", split_key="new")
    assert "panel_error" not in wide.uns["ce"]["quality"]["test"]
    assert not [one for one in recwarn if one.category is CentroidEncoderWarning]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sizes": (5, 200)}, "sizes has 200, but there are 200 features in all"),
        ({"sizes": (0,)}, r"sizes\[0\] must be at least 1"),
        ({"sizes": ()}, "sizes must be whole numbers"),
        ({"layer": "log"}, "layers has no 'log'"),
        ({"group_key": "doner"}, "did you mean 'donor'"),
        ({"n_folds": 7, "group_key": "donor"}, "has 6 groups"),
        ({"label_key": "knd"}, "did you mean 'kind'"),
        ({"key_added": "a/b"}, "key_added must not be 'a/b'"),
        ({"key_added": "neighbors"}, "uns\\['neighbors'\\] exists already"),
        ({"key_added": "n_cells"}, "var\\['n_cells_3'\\] exists already"),
    ],
)
def test_wrong_arguments_are_errors_before_the_work(
    options: dict[str, Any], text: str, wide: ad.AnnData, unchanged: Any
) -> None:
    label_key = options.pop("label_key", "kind")
    wide.uns["neighbors"], wide.var["n_cells_3"] = {"params": {"n_neighbors": 15}}, 1
    with unchanged(wide), pytest.raises((KeyError, ValueError), match=text):
        ce.tl.feature_panel(wide, label_key, **{"sizes": (3,), "progress": False} | options)


def test_the_forest_grows_on_a_sample_of_many_cells(
    wide: ad.AnnData, panel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forest on a million cells takes days; each class is in the sample."""

    class Forest(RandomForestClassifier):
        def fit(self, X: Any, y: Any) -> Any:
            sizes.append((len(y), len(np.unique(y))))
            return super().fit(X, y)

    sizes: list[tuple[int, int]] = []
    monkeypatch.setattr(_evaluation, "N_REFERENCE", 90)
    monkeypatch.setattr(_feature_panel, "RandomForestClassifier", Forest)
    stored = panel(wide, (3,))
    assert all(n < 95 and n_classes == 3 for n, n_classes in sizes)
    assert (stored["errors"]["n"] == 240).all()
    assert error(stored, 3, "forest") < 0.1


def test_a_map_is_not_replaced(wide: ad.AnnData, unchanged: Any) -> None:
    ce.tl.centroid_encoder(wide, "kind", model=ce.CentroidEncoder(max_epochs=2), progress=False)
    with unchanged(wide), pytest.raises(ValueError, match="is another result"):
        ce.tl.feature_panel(wide, "kind", (3,), key_added="ce", progress=False)


def test_a_forest_stops_between_its_trees(
    wide: ad.AnnData, monkeypatch: pytest.MonkeyPatch, fast: ce.CentroidEncoder
) -> None:
    class Forest(RandomForestClassifier):
        def fit(self, X: Any, y: Any) -> Any:
            sizes.append(self.n_estimators)
            return super().fit(X, y)

    sizes: list[int] = []
    monkeypatch.setattr(_feature_panel, "RandomForestClassifier", Forest)
    monkeypatch.setattr(_feature_panel, "N_TREES", 1000)
    job = ce.tl.feature_panel.job(wide, "kind", (3,), model=fast)
    with pytest.raises(StoppedTooEarly):
        job.run(lambda _: len(sizes) == 2)
    assert sizes == [10, 20]


def test_cells_without_a_label_are_not_placed_and_the_progress_counts_all_epochs(
    wide: ad.AnnData, monkeypatch: pytest.MonkeyPatch, fast: ce.CentroidEncoder
) -> None:
    def count(fit: Any, rows: Any) -> Any:
        placed.append(len(rows))
        return judged(fit, rows)

    placed, judged, steps = [], _evaluation.judged, []
    monkeypatch.setattr(_evaluation, "judged", count)
    wide.obs.loc[wide.obs_names[:150], "kind"] = np.nan
    job = ce.tl.feature_panel.job(wide, "kind", (3, 6), n_folds=2, model=fast)
    job.run(lambda step: steps.append(step) is not None)
    assert sum(placed) == 90 * 3  # each size, and all features
    shares = [step.n_done / step.n_total for step in steps if step is not None]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_a_stopped_choice_leaves_the_cells_as_they_were(wide: ad.AnnData, unchanged: Any) -> None:
    with unchanged(wide):
        job = ce.tl.feature_panel.job(wide, "kind", (3,))
        with pytest.raises(StoppedTooEarly):
            job.run(lambda _: True)


def test_default_sizes_suit_tables_of_few_markers(cells, fast):
    ce.tl.feature_panel(cells, "cell_type", n_folds=2, model=fast, progress=False)
    assert cells.n_vars == 8
    assert [name for name in cells.var if name.startswith("feature_panel")] == ["feature_panel_5"]


def test_features_can_be_included_and_excluded(wide: ad.AnnData, panel: Any) -> None:
    stored = panel(wide, include=pd.Index(["g50", "g2"]), exclude=np.array(["g0", "g7"]))
    assert wide.var_names[wide.var["feature_panel_3"]].tolist() == ["g1", "g2", "g50"]
    assert not wide.var.loc[["g0", "g7"], "feature_panel_6"].any()
    assert stored["features"].loc[["g50", "g2"], "rank"].tolist() == [1, 2]
    assert (stored["features"].loc[["g50", "g2"], "n_folds_3"] == 3).all()
    for given, text in (
        ({"include": ["g1000"]}, "g1000"),
        ({"exclude": "g1"}, "list of names"),
        ({"include": ["g1"], "exclude": ["g1"]}, "both have 'g1'"),
        ({"include": ["g1", "g2", "g3", "g4"]}, "larger sizes"),
    ):
        with pytest.raises(ValueError, match=text):
            panel(wide, **given)
