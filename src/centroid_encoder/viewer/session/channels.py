"""During a labelling, show the images in which the proposed class is best seen."""

from __future__ import annotations

import numpy as np
from napari.components import LayerList
from napari.layers import Image

from centroid_encoder.viewer.data.channels import contrast, guess_channels
from centroid_encoder.viewer.session.session import Session

Limits = tuple[float, float]


class Channels:
    """The channels of each class: those that the user chose, or else a guess by the live map.

    `show` shows the channels of a class, with a contrast for its cells, in place of those of the
    class before. `restore` shows all images as they were.
    """

    def __init__(self, session: Session, layers: LayerList) -> None:
        self._session, self._layers = session, layers
        self._guess: dict[str, list[str]] = {}
        self._limits: dict[tuple[str, Image], Limits | None] = {}
        """Contrast limits of an image for a class, until the labelling ends."""
        self._before: dict[Image, tuple[bool, Limits]] = {}
        """Whether images were visible, and their contrast limits."""
        session.draft_changed.connect(self._on_draft)
        session.labeling_changed.connect(self._on_labeling)

    @property
    def images(self) -> dict[str, Image]:
        """The images that can be channels, by their names."""
        return {x.name: x for x in self._layers if isinstance(x, Image) and not x.rgb}

    @property
    def by_class(self) -> dict[str, list[str]]:
        """The names of the images of each class."""
        labeling = self._session.labeling
        found = {}
        for one in () if labeling is None else labeling.classes:
            chosen = [name.strip() for name in one.channels.split(",") if name.strip()]
            found[one.name] = chosen or self._guess.get(one.name, [])
        return found

    def show(self, name: str, row: int) -> None:
        """Show the channels of a class; the contrast is that in the layer of the cell in `row`.

        If the class has none, all images are shown as they were.
        """
        images = self.images
        wanted = [images[one] for one in self.by_class.get(name, ()) if one in images]
        if not wanted:
            self.restore()
            return
        every = {one for of_class in self._guess.values() for one in of_class}
        for image in [*wanted, *(images[one] for one in every if one in images)]:
            self._before.setdefault(image, (image.visible, tuple(image.contrast_limits)))
        for image in self._before:
            is_shown = image in wanted
            if is_shown and (limits := self._contrast(name, image, row)) is not None:
                image.contrast_limits = limits
            if image.visible != is_shown:
                image.visible = is_shown

    def restore(self) -> None:
        """Show all images as they were before the first channel was shown."""
        for image, (is_visible, limits) in self._before.items():
            image.visible, image.contrast_limits = is_visible, limits
        self._before.clear()

    def _contrast(self, name: str, image: Image, row: int) -> Limits | None:
        if (name, image) not in self._limits:
            joins = self._session.catalog.joins.items()
            there = [(link.layer, join) for link, join in joins if join.joined[row]]
            drawn = self._session.drawn
            if drawn is None or name not in drawn.classes or not there:
                return None
            layer, join = there[0]
            rows = np.random.default_rng(0).permutation(np.flatnonzero(join.joined))
            is_class = drawn.predicted[rows] == drawn.classes.get_loc(name)
            found = contrast(image, layer, join, rows[is_class], rows[~is_class])
            self._limits[name, image] = found
        return self._limits[name, image]

    def _on_draft(self) -> None:
        drawn, adata = self._session.drawn, self._session.adata
        self._guess = {}
        if self._session.draft is not None and drawn is not None and adata is not None:
            guess = guess_channels(adata, drawn.predicted, len(drawn.classes), self._layers)
            self._guess = dict(zip(map(str, drawn.classes), guess, strict=True))

    def _on_labeling(self) -> None:
        self.restore()
        self._limits.clear()
        self._guess = {}
