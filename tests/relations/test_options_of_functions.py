"""An option that has no effect with another one is an error with both names."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pytest

import centroid_encoder as ce

LABELS = "bulk_labels"


@pytest.fixture
def donors(pbmc: ad.AnnData) -> ad.AnnData:
    pbmc.obs["donor"] = np.resize(["a", "b", "c"], pbmc.n_obs)
    return pbmc


@pytest.fixture
def mapped(donors: ad.AnnData, fast: ce.CentroidEncoder) -> ad.AnnData:
    ce.tl.centroid_encoder(donors, LABELS, group_key="donor", model=fast, progress=False)
    return donors


def refused(function: Any, *args: Any, **kwargs: Any) -> ce.errors.InputError:
    with pytest.raises(ce.errors.InputError) as caught:
        function(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize(
    ("kwargs", "other"),
    [
        ({"placement": "bottleneck"}, "placement='bottleneck'"),
        ({"model": ce.CentroidEncoder(placement="bottleneck")}, "placement='bottleneck'"),
        ({"model": ce.CentroidEncoder(n_networks=1)}, "n_networks=1"),
    ],
)
def test_groups_need_held_out_cells_or_several_networks(kwargs, other, donors, unchanged):
    with unchanged(donors):
        error = refused(
            ce.tl.centroid_encoder, donors, LABELS, group_key="donor", test_size=0, **kwargs
        )
    assert str(error) == f"group_key='donor' has no effect with test_size=0 and {other}"
    ce.tl.centroid_encoder.job(donors, LABELS, group_key="donor", **kwargs)
    ce.tl.centroid_encoder.job(donors, LABELS, test_size=0, **kwargs)
    # The networks that place a cell have not seen its donor.
    ce.tl.centroid_encoder.job(donors, LABELS, group_key="donor", test_size=0)


def test_a_seed_needs_a_random_draw(pbmc, unchanged):
    model = ce.CentroidEncoder(random_state=1)
    job = ce.tl.centroid_encoder.job
    for seed in (3, np.random.default_rng(0)):
        with unchanged(pbmc):
            error = refused(job, pbmc, LABELS, test_size=0, model=model, random_state=seed)
        assert str(error) == (
            "random_state has no effect with test_size=0 and a model that has its own seed"
        )
    job(pbmc, LABELS, test_size=0, model=model)
    job(pbmc, LABELS, model=model, random_state=3)
    job(pbmc, LABELS, test_size=0, random_state=3)


def test_the_name_of_a_map_needs_its_labels(mapped, unchanged):
    with unchanged(mapped):
        error = refused(ce.tl.composition, mapped, "phase", label_key="donor", key="other")
    assert str(error) == "key='other' has no effect with label_key='donor'"
    ce.tl.composition(mapped, "phase", label_key="donor")


@pytest.mark.parametrize(("option", "value"), [("channel_axis", 0), ("quantiles", (0.1, 0.5))])
def test_options_of_images_need_images(option, value):
    labels = np.arange(16).reshape(4, 4)
    for images in ({}, {"images": {}}):
        error = refused(ce.tl.measure, labels, progress=False, **images, **{option: value})
        assert str(error) == f"{option} has no effect without images"
    image = np.ones((2, 4, 4))
    ce.tl.measure(labels, {"two": image}, progress=False, **{option: value})


def test_dots_per_inch_need_a_file(mapped, unchanged):
    with unchanged(mapped):
        error = refused(ce.pl.history, mapped, show=False, dpi=300)
    assert str(error) == "dpi=300 has no effect without save"


@pytest.mark.parametrize(
    ("option", "color"), [({"layer": "log"}, None), ({"use_raw": True}, "donor")]
)
def test_a_layer_needs_a_variable(option, color, mapped, unchanged):
    mapped.layers["log"] = mapped.X
    with unchanged(mapped):
        error = refused(ce.pl.voronoi, mapped, color=color, show=False, **option)
    assert str(error) == f"{next(iter(option))} has no effect unless color is a variable; got " + (
        repr(color)
    )
    ce.pl.voronoi(mapped, color=mapped.var_names[0], show=False, **option)
