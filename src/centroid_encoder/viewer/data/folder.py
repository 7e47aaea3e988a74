"""Images and masks in a folder, which are known by their names and not opened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from centroid_encoder.viewer.data.regions import (
    ENDINGS,
    MASKS,
    all_words,
    image_words,
    is_of_image,
    plain,
    word_runs,
)

MOST = 20_000
"""Files that are looked at."""
DEPTH = 3
"""Folders in folders that are."""


@dataclass(frozen=True)
class ImageFiles:
    """The files of one image."""

    mask: Path
    """Its label image."""
    stains: tuple[Path, ...] = ()
    """Its intensities."""


def list_images(folder: Path, regions: Iterable[object]) -> dict[str, ImageFiles]:
    """Find the files of images by their names.

    A label image is a file that has a word such as "mask" or "labels" in its name or in that of
    its folder, and nothing else in it than the name of the image: ``A_mask.tif``,
    ``masks/A.tiff`` or ``A/mask.tif``. All other images with its name are intensities:
    ``A_DAPI.tif``.

    Parameters
    ----------
    folder
        The folder, in which there may be others.
    regions
        What the images are called.

    Returns
    -------
    dict
        By what the image is called. Without those that no label image was found of, or several.
    """
    names: dict[str, list[str]] = {}
    for region in map(str, regions):
        names.setdefault(plain(region), []).append(region)
    masks: dict[str, list[Path]] = {}
    stains: list[Path] = []
    for path in _images(folder):
        inside = path.relative_to(folder)
        is_mask = bool(MASKS & set(all_words("_".join(inside.parts))))
        if not is_mask:
            stains.append(path)
            continue
        for name in (path.name, f"{path.parent.name}_{path.name}"):
            found = names.get(plain(name), ())
            if len(found) == 1:
                masks.setdefault(found[0], []).append(path)
                break
    only = {region: paths[0] for region, paths in masks.items() if len(paths) == 1}
    by_words: dict[tuple[str, ...], list[str]] = {}
    for region in only:
        by_words.setdefault(image_words(region), []).append(region)
    of_region: dict[str, list[Path]] = {region: [] for region in only}
    for path in stains:
        runs = word_runs(f"{path.parent.name}_{path.name}")
        its = [region for run in runs for region in by_words.get(run, ())]
        for region in its:
            # A longer name counts more: `A_2` is not of `A`.
            if not any(other != region and is_of_image(other, region) for other in its):
                of_region[region].append(path)
    return {region: ImageFiles(mask, tuple(of_region[region])) for region, mask in only.items()}


def _images(folder: Path) -> Iterator[Path]:
    """Files with images, by their endings; a folder may be one, too."""
    n = 0
    for here, folders, files in os.walk(folder):
        depth = len(Path(here).relative_to(folder).parts)
        stores = [name for name in folders if name.lower().endswith(".zarr")]
        folders[:] = sorted(set(folders) - set(stores)) if depth < DEPTH else []
        for name in sorted([*files, *stores]):
            n += 1
            if n > MOST:
                return
            if ENDINGS.search(name.lower()) and not name.startswith("."):
                yield Path(here, name)
