"""A warning is shown if cells do not lie at their labels."""

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari.layers import Labels, Points

from centroid_encoder.tables import axis
from centroid_encoder.tl._positions import positions as positions_of
from centroid_encoder.viewer.data.catalog import FOLLOWS, Catalog
from centroid_encoder.viewer.data.join import Misfit
from centroid_encoder.viewer.data.reader import read_table
from centroid_encoder.viewer.data.tables import Table
from centroid_encoder.viewer.session.provenance import as_python
from tests.viewer.data.small import catalog_of

N = 100


def tissue(seed: int = 0) -> tuple[np.ndarray, AnnData]:
    """Cells at random places, numbered from top to bottom, and their table."""
    rng = np.random.default_rng(seed)
    grid = rng.permutation(400)[:N]
    grid.sort()
    places = np.stack([grid // 20 * 8 + 4, grid % 20 * 8 + 4], axis=1) + rng.integers(-2, 3, (N, 2))
    image = np.zeros((168, 168), dtype=np.int32)
    for i, (y, x) in enumerate(places, start=1):
        image[y - 2 : y + 3, x - 2 : x + 3] = i
    obs = pd.DataFrame({"cell_id": np.arange(1, N + 1)}, index=[f"c{i}" for i in range(N)])
    adata = AnnData(np.ones((N, 2), np.float32), obs=obs)
    adata.obsm["spatial"] = places[:, ::-1].astype(float)
    return image, adata


def misfit_of(catalog: Catalog) -> ValueError | None:
    fault = next(iter(catalog.faults.values()), None)
    # Only a layer that may be the right one is joined.
    assert bool(catalog.joins) == (fault is None or isinstance(fault, Misfit))
    return fault


def mend(catalog: Catalog) -> None:
    """Join by the corrected link and check that each cell has its label."""
    misfit = misfit_of(catalog)
    catalog.choose_ids(misfit.better.id_column, misfit.better.shift)
    assert catalog.faults == {}
    assert catalog.join.rows([1, 50, N]).tolist() == [0, 49, N - 1]


def test_ids_of_another_image_give_a_warning():
    image, own = tissue()
    adata = tissue(seed=1)[1]
    # The id 0 is no cell and may repeat, although after a shift by 1 both would be label 1.
    own.obs["cell_id"] = np.roll(own.obs["cell_id"], 50)
    own.obs.loc[own.obs_names[:2], "cell_id"] = 0
    for other in (adata, own):
        catalog = catalog_of(other, layer := Labels(image))
        assert "The ids may be those of another image. Choose the " in str(misfit_of(catalog))
        # The user may know better.
        catalog.choose_layer(layer)
        misfit = misfit_of(catalog)
        assert str(misfit).endswith("The ids may be those of another image.")
        assert misfit.better is None


@pytest.mark.parametrize(
    "change",
    [
        lambda xy: xy * 0.325 + 4000,
        lambda xy: xy[:, ::-1] * [1, -1],
        lambda xy: np.where(np.arange(N)[:, None] % 4 == 0, 0, xy),
        lambda xy: pd.DataFrame(xy, columns=["x", "y"]).set_axis([f"c{i}" for i in range(N)]),
    ],
    ids=["microns", "turned", "partly wrong", "frame"],
)
@pytest.mark.parametrize("shift", [-1, 1])
def test_ids_off_by_one_are_found_and_corrected_whatever_the_units(change, shift):
    image, adata = tissue()
    places = adata.obsm["spatial"] = change(adata.obsm["spatial"])
    assert misfit_of(catalog_of(adata, Labels(image))) is None
    adata.obs["cell_id"] += shift
    catalog = catalog_of(adata, Labels(image))
    text = str(misfit_of(catalog))
    assert text.startswith("The positions in obsm: spatial contradict these ids: only ")
    # If a quarter of the positions is wrong, no shift fits well enough to be offered.
    if not (np.asarray(places)[4] == 0).all():
        assert text.endswith(f"with the column 'cell_id' {-shift:+} it would be 100 %.")
        mend(catalog)


@pytest.mark.parametrize(
    "names",
    [
        ("centroid-0", "centroid-1"),
        ("Centroid Y µm", "Centroid X µm"),
        ("AreaShape_Center_Y", "AreaShape_Center_X"),
    ],
)
def test_positions_are_found_in_columns(names):
    image, adata = tissue()
    places = adata.obsm.pop("spatial")[:, ::-1]
    adata.obs[list(names)] = places
    found = positions_of(adata)
    assert np.array_equal(found[1], places)
    adata.obs["cell_id"] += 1
    misfit = misfit_of(catalog_of(adata, Labels(image)))
    assert f"{names[0]!r} and {names[1]!r}" in str(misfit)
    # Measurements are not positions.
    assert not any(map(axis, ("7", "area", "moment-0", "x area")))


@pytest.mark.parametrize(
    ("shift", "positions"), [(1, None), (-1, np.zeros((N, 3))), (1, np.full((N, 2), np.nan))]
)
def test_without_positions_a_shift_of_all_ids_by_one_is_found(shift, positions):
    image, adata = tissue()
    del adata.obsm["spatial"]
    if positions is not None:
        adata.obsm["spatial"] = positions
    adata.obs["cell_id"] -= shift
    catalog = catalog_of(adata, Labels(image, name="nuclei"))
    misfit = misfit_of(catalog)
    assert f"the column 'cell_id' {shift:+} gives all labels of nuclei" in str(misfit)
    mend(catalog)


def test_missing_labels_and_points_give_no_warning():
    image, adata = tissue()
    del adata.obsm["spatial"]
    points = Points(np.zeros((N, 2)), features={"cell_id": np.arange(2, N + 2)})
    assert catalog_of(adata, points).faults == {}
    # The last label is not in the image.
    image[image == N] = 0
    assert catalog_of(adata, Labels(image)).faults == {}


@pytest.mark.parametrize("n_images", [1, 2])
def test_features_that_follow_the_centers_are_positions(n_images, tmp_path):
    rng, parts, layers = np.random.default_rng(0), [], []
    for i in range(n_images):
        image, own = tissue(seed=i)
        x, y = own.obsm["spatial"].T
        # Rotated, in another unit, with another origin in each image.
        part = {"aa": 0.3 * x - 0.4 * y + 900 * i, "bb": 0.4 * x + 0.3 * y - 70 * i}
        part |= {"top": 2 * y + 3, "gradient": x + 25 * rng.normal(size=N)}
        part |= {f"CD{k}": rng.gamma(2, 50, N) for k in range(8)}
        parts.append(pd.DataFrame(part).assign(cell_id=np.arange(1, N + 1), image="AB"[i]))
        layers.append(Labels(image, name=f"{'AB'[i]}_mask"))
    path = tmp_path / "cells.csv"
    pd.concat(parts).sample(frac=1, random_state=0).to_csv(path, index=False)
    adata = read_table(path)[0]
    assert {"aa", "bb"} <= set(adata.var_names)
    catalog = catalog_of(adata, *layers)
    read, markers = catalog.table.adata, {f"CD{k}" for k in range(8)}
    assert set(read.var_names) == {"gradient", *markers}
    np.testing.assert_array_equal(read.obs["aa"], adata[read.obs_names].to_df()["aa"])
    roles = read.uns["column_roles"].set_index("column")
    assert roles.loc["aa"].tolist() == ["position", FOLLOWS, False]
    assert sum(join.n_joined for join in catalog.joins.values()) == n_images * N
    # The script reads it so, too.
    assert "roles={'aa': 'position', 'bb': 'position', 'top': 'position'}" in as_python(
        Table(read, "cells", path=path), "ce"
    )
    # What the user chooses is so.
    catalog.choose_roles({"aa": "feature"})
    assert set(catalog.table.adata.var_names) == {"aa", "gradient", *markers}
