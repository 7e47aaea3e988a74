"""Decide which layers are measured together."""

from collections.abc import Sequence

import dask.array as da
import numpy as np
import pytest
from napari.components import LayerList
from napari.layers import Image, Labels

from centroid_encoder.tl._measure import Measurement
from centroid_encoder.viewer.data import measuring
from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.measuring import describe, may_be_time, pair, plan
from centroid_encoder.viewer.data.tables import DRAWN

LABELS = np.kron(np.arange(6).reshape(2, 3), np.ones((4, 4), dtype=int))
IMAGE = np.random.default_rng(0).integers(0, 99, LABELS.shape)


def labels(name: str = "nuclei", data: np.ndarray = LABELS, **options: object) -> Labels:
    return Labels(data, name=name, **options)


def image(name: str = "DAPI", data: np.ndarray = IMAGE, **options: object) -> Image:
    return Image(data, name=name, **options)


def split(layers: Sequence[Labels | Image]) -> tuple[list[Labels], list[Image]]:
    return Catalog(LayerList(layers)).measurable


DRAWN_LABELS = Labels(LABELS, name="drawn", metadata={DRAWN: True})
PLACE = {"scale": (2, 2), "translate": (5, 0)}
AXES = {"scale": (1, 2, 2), "translate": (0, 5, 0)}
RGB = Image(np.stack([IMAGE] * 4, axis=-1), name="H&E", rgb=True)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        # Layers that the widget draws have no cells of their own.
        ([labels(), DRAWN_LABELS, image()], {"nuclei": ["DAPI"]}),
        (
            [labels("nuclei"), labels("cells"), image("DAPI"), image("nuclei_488")],
            {"nuclei": ["DAPI", "nuclei_488"], "cells": ["DAPI", "nuclei_488"]},
        ),
        # The first word of each name is that of one label image.
        (
            [labels("A_mask"), labels("B_mask"), *map(image, ("A_CD3", "B_CD3"))],
            {"A_mask": ["CD3"], "B_mask": ["CD3"]},
        ),
        # A lone image has the channels that it would have beside others.
        ([labels("A_mask"), image("A_CD3"), image("a.ome")], {"A_mask": ["CD3", "image"]}),
        ([labels("A_1_mask"), image("img A_01")], {"A_1_mask": ["image"]}),
        # The whole name counts, not its first word.
        (
            [*map(labels, ("S1_a_labels", "S1_b_labels")), *map(image, ("S1_a.ome", "S1_b"))],
            {"S1_a_labels": ["image"], "S1_b_labels": ["image"]},
        ),
        (
            [*map(labels, ("s_p7d_labels", "s_p7_labels")), *map(image, ("s_p7d imc", "s_p7 imc"))],
            {"s_p7d_labels": ["imc"], "s_p7_labels": ["imc"]},
        ),
        # A mask can have the name of one channel of its image.
        (
            [
                *map(labels, ("A01_w1_mask", "A02_w1_mask")),
                *map(image, ("A01_w1", "A01_w2", "A02_w1", "A02_w2")),
            ],
            {"A01_w1_mask": ["w1", "w2"], "A02_w1_mask": ["w1", "w2"]},
        ),
        (
            [*map(labels, ("1_mask", "2_mask")), *map(image, ("1_1", "1_2", "2_1", "2_2"))],
            {"1_mask": ["1", "2"], "2_mask": ["1", "2"]},
        ),
        (
            [
                *map(labels, ("Image1_mask", "Image2_mask")),
                *map(image, ("Image1_ch1", "Image2_ch1")),
            ],
            {"Image1_mask": ["ch1"], "Image2_mask": ["ch1"]},
        ),
        ([labels("Image1_mask"), image("Image1_ch1")], {"Image1_mask": ["ch1"]}),
        ([labels("A_mask"), *map(image, ("A_cells", "A_nuclei"))], {"A_mask": ["cells", "nuclei"]}),
        # The name of the image may come last.
        (
            [*map(labels, ("A_mask", "B_mask")), *map(image, ("DAPI_A", "DAPI_B"))],
            {"A_mask": ["DAPI"], "B_mask": ["DAPI"]},
        ),
        (
            [*map(labels, ("img1_mask", "img2_mask")), *map(image, ("C1-img1", "C1-img2"))],
            {"img1_mask": ["C1"], "img2_mask": ["C1"]},
        ),
        # Without names of images, all have the pixels of both.
        (
            [*map(labels, ("tumor_mask", "stroma_mask")), image("DAPI")],
            {"tumor_mask": ["DAPI"], "stroma_mask": ["DAPI"]},
        ),
        # Two segmentations of one image, and one that has the name of a channel.
        (
            [*map(labels, ("A_nuclei", "A_cells")), image("A_DAPI")],
            {"A_nuclei": ["DAPI"], "A_cells": ["DAPI"]},
        ),
        ([labels("DAPI_labels"), *map(image, ("DAPI", "CD3"))], {"DAPI_labels": ["DAPI", "CD3"]}),
        ([labels(), image("A_DAPI [1]")], {"nuclei": ["A_DAPI"]}),
        # An image belongs to the labels of the same size.
        (
            [labels("a"), labels("b", LABELS[:4]), image("DAPI"), image("DAPI [1]", IMAGE[:4])],
            {"a": ["DAPI"], "b": ["DAPI"]},
        ),
        ([labels(), RGB], {"nuclei": ["H&E_red", "H&E_green", "H&E_blue"]}),
        # An image can have an axis of channels.
        ([labels(**PLACE), image("c", np.stack([IMAGE] * 3), **AXES)], {"nuclei": ["c"]}),
    ],
)
def test_images_of_each_label_image(layers, expected):
    found = plan(*split(layers), time_series=False)
    assert {region: list(images) for region, images in found.images.items()} == expected


@pytest.mark.parametrize(
    ("layers", "text"),
    [
        ([image()], "choose at least one Labels layer"),
        ([labels(), image(data=IMAGE.T)], r"the shape \(12, 8\) and nuclei the shape \(8, 12\)"),
        ([labels(), image(scale=(2, 2))], "with the same scale and position"),
        ([labels(**PLACE), image(scale=(2, 2))], "with the same scale and position"),
        (
            [labels(), image("a"), image("a [1]")],
            "nuclei has two channels called a, the second is a .1",
        ),
        (
            [*map(labels, ("A_mask", "B_mask")), *map(image, ("A_CD3", "B_CD3", "dna"))],
            "the name of dna does not show to which labels it belongs",
        ),
        ([labels("A"), labels("B", LABELS.T), image("B_dna")], "B_dna has the shape .* and B the"),
        (
            [labels(), labels("cells", units=("um", "um"))],
            "several units, pixel and um|several units, pixel and .m; give all the same",
        ),
        ([labels(units=("um", "nm"))], "several units, nm and [µμ]m"),
    ],
)
def test_layers_that_do_not_fit_are_refused(layers, text):
    with pytest.raises(ValueError, match=text):
        plan(*split(layers), time_series=False)


def measured(*layers: Labels | Image, time_series: bool = False) -> Measurement:
    job = plan(*split(layers), time_series=time_series)
    job.run()
    return job


def test_scale_and_units_are_those_of_the_layer():
    place = {"scale": (0.5, 0.25), "units": ("um", "um"), "translate": (100, 100)}
    job = measured(labels(**place), image(**place))

    pairs = pair([labels("A_mask")], [image("A_DAPI"), image("CD3")])
    assert describe(pairs, "um") == "A_mask: A_DAPI as DAPI, CD3\nLengths in um."
    adata = measuring.measured(job)
    assert adata.var_names[0] == "area_um2"
    assert adata.X[0, 0] == 16 * 0.5 * 0.25
    assert adata.obsm["spatial"][0].tolist() == [0.25 * 5.5, 0.5 * 1.5]
    assert adata.obs["cell_type"].isna().all()
    for scale, unit in ((1, "px"), (0.5, "units")):
        job = plan([labels(scale=(scale, scale))], [], time_series=False)
        assert job.unit == unit
        assert describe(pair([labels()], []), unit).splitlines()[1] == "Lengths in layer units."


def test_full_resolution_is_measured():
    levels = [da.from_array(LABELS), da.from_array(LABELS[::2, ::2])]
    pyramid = Image([IMAGE, IMAGE[::2, ::2]], name="DAPI", multiscale=True)
    found = measuring.measured(measured(Labels(levels, name="nuclei", multiscale=True), pyramid))
    expected = measuring.measured(measured(labels(), image()))
    np.testing.assert_array_equal(found.X, expected.X)


def test_each_frame_of_a_time_series_is_measured():
    stack = np.stack([LABELS, LABELS.T.reshape(LABELS.shape)])
    assert [may_be_time(x) for x in (labels(), labels(data=stack))] == [None, False]
    assert may_be_time(labels(data=stack, axis_labels=("T", "y", "x")))
    assert may_be_time(labels(data=stack, units=("s", "um", "um")))
    assert may_be_time(labels(data=np.stack([stack] * 2)))
    stack[1][stack[1] == 2] = 0
    adata = measuring.measured(
        measured(labels(data=stack), image(data=np.stack([IMAGE] * 2)), time_series=True)
    )
    cells = list(zip(adata.obs["frame"], adata.obs["label"], strict=True))
    assert cells == [(0, i) for i in (1, 2, 3, 4, 5)] + [(1, i) for i in (1, 3, 4, 5)]
