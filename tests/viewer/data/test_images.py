"""Many images whose ids repeat, in one table: nothing is ever attributed to the wrong one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from hypothesis import given, settings
from hypothesis import strategies as st
from napari.components import LayerList
from napari.layers import Labels

from centroid_encoder.viewer.data.catalog import Catalog

NAMES = ["A", "B", "core 12", "s_03"]
FILES = ["{}.tiff", "{}", "{}.ome.tif", "/data/{}.png"]
LAYERS = ["{}_mask", "{}", "cell mask {}", "{}.tif [1]"]


def image_of(ids: list[int], turn: int) -> np.ndarray:
    """A picture of cells: no two images have the same pixels."""
    image = np.zeros((4, 2 * len(ids) + 3), dtype=np.int32)
    image[1, 1 : 2 * len(ids) : 2] = ids
    image[2, -1 - turn :] = 0
    return np.roll(image, turn, axis=1)


class Study:
    """Images, their table, and the true image of each cell."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        names = data.draw(st.permutations(NAMES), "images")
        n_images = data.draw(st.integers(2, 4), "number of images")
        form = data.draw(st.sampled_from(FILES), "names in the table")
        self.images: dict[str, np.ndarray] = {}
        rows = []
        for turn, name in enumerate(names[:n_images]):
            ids = st.lists(st.integers(1, 12), min_size=2, max_size=8, unique=True)
            labels, known = data.draw(ids, f"labels of {name}"), data.draw(ids, f"ids of {name}")
            if data.draw(st.booleans(), "all"):
                known = labels
            # Ids that begin anew in each image are what this is about.
            known = sorted({1, *known})
            self.images[name] = image_of(labels, turn)
            rows += [(form.format(name), i) for i in known]
        order = data.draw(st.permutations(range(len(rows))), "order")
        self.truth = [rows[i] for i in order]
        self.name_of = {form.format(name): name for name in names}
        columns = ["ImageName", "fov", "sample_id"]
        numbers = [i for _, i in self.truth]
        column = data.draw(st.sampled_from(columns), "column of images")
        key = data.draw(st.sampled_from(["CellNumber", "ObjectNumber", "cell_id"]), "of ids")
        obs = {
            column: pd.Categorical([image for image, _ in self.truth]),
            key: list(map(str, numbers)) if data.draw(st.booleans(), "text") else numbers,
        }
        index = [f"c{i}" for i in range(len(rows))]
        self.adata = AnnData(np.ones((len(rows), 2), np.float32), obs=pd.DataFrame(obs, index))
        self.layers = LayerList()
        self.shows: dict[Labels, str] = {}
        self.catalog = Catalog(self.layers)
        self.catalog.connect()
        self.catalog.choose(self.catalog.add(self.adata, "cells"))

    def open(self) -> None:
        name = self.data.draw(st.sampled_from(list(self.images)), "open")
        called = self.data.draw(st.sampled_from([*LAYERS, "mask", "labels"]), "as")
        layer = Labels(self.images[name].copy(), name=called.format(name))
        self.shows[layer] = name
        self.layers.append(layer)

    def close(self) -> None:
        if self.layers:
            self.layers.remove(self.pick())

    def rename(self) -> None:
        """Give a layer the name of its image, or one of no image."""
        if self.layers:
            layer = self.pick()
            called = self.data.draw(st.sampled_from([*LAYERS, "mask", "Labels"]), "name")
            layer.name = called.format(self.shows[layer])

    def say(self) -> None:
        """Say what a layer shows."""
        if self.layers:
            layer = self.pick()
            value = next(v for v, name in self.name_of.items() if name == self.shows[layer])
            if value in list(self.adata.obs.iloc[:, 0]):
                self.catalog.show_image(value, layer)

    def hide(self) -> None:
        """Say that an image is in no layer."""
        image = self.data.draw(st.sampled_from(self.catalog.images() or [None]), "hide")
        if image is not None:
            self.catalog.show_image(image.value, None)

    def choose(self) -> None:
        """Choose the layer of the table, or none."""
        if self.layers:
            self.catalog.choose_layer(self.data.draw(st.sampled_from([None, *self.layers])))

    def paint(self) -> None:
        """Take a cell out of a layer."""
        if self.layers:
            layer = self.pick()
            ids = np.unique(layer.data)[1:]
            if len(ids):
                layer.data = np.where(layer.data == ids[0], 0, layer.data)

    def pick(self) -> Labels:
        at = self.data.draw(st.integers(0, len(self.layers) - 1), "layer")
        return self.layers[at]

    def check(self) -> None:
        """Each joined row is a cell of the image that the layer shows, and its own label there."""
        shown: set[int] = set()
        for link, join in self.catalog.joins.items():
            assert link.layer in self.layers
            present = set(np.unique(link.layer.data).tolist()) - {0}
            rows = np.flatnonzero(join.joined)
            for row in rows:
                image, number = self.truth[row]
                assert self.name_of[image] == self.shows[link.layer]
                assert join.ids[row] == number
                assert number in present
                assert join.rows([number]).tolist() == [row]
            for number in present - set(join.ids[rows].tolist()):
                assert join.rows([number]).tolist() == [-1]
            # A cell is in one layer.
            assert not shown & set(rows.tolist())
            shown |= set(rows.tolist())
        for image in self.catalog.images():
            if image.value is not None:
                assert image.n_cells == sum(str(image.value) == r for r, _ in self.truth)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_nothing_is_attributed_to_the_wrong_image(data: st.DataObject) -> None:
    study = Study(data)
    for _ in range(data.draw(st.integers(1, 8), "steps")):
        step: Any = data.draw(
            st.sampled_from(["open", "open", "close", "rename", "say", "hide", "choose", "paint"])
        )
        getattr(study, step)()
        study.catalog.refresh()
        study.catalog.join_again()
        study.check()
