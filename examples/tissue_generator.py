"""Generate the synthetic tissue section of napari's sample menu, and write it to a file.

    python examples/tissue_generator.py [PATH]

The section has a multiplexed fluorescence image, a label image of its nuclei, and a table of their
measurements. Without a path, the file in the package is replaced.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import anndata as ad
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import cKDTree

Field = NDArray[np.float32]
"""(size, size) array with a number for each pixel."""

FILE = Path(__file__).parents[1] / "src/centroid_encoder/viewer/data/tissue.npz"
SMOOTH = 1.0
"""Standard deviation in pixels of the Gaussian filter for the images in the file."""
LEVELS = np.round(((np.arange(10, 83, 2) / 0.8) ** 2 - 150) / 2.5).clip(0, 4095).astype(np.uint16)
"""Grey values of the images in the file; two neighbours differ by twice the noise's deviation."""
CHANNELS = ("DAPI", "PanCK", "Vimentin", "CD31", "CD3", "CD20", "CD68", "Ki67")
MICRONS_PER_PIXEL = 0.5
MAX_RADIUS = 26
"""Largest distance in pixels between the middle of a cell and any of its pixels."""


class Kind(NamedTuple):
    """Appearance of the cells of a type; lengths are in pixels."""

    spacing: float
    """Smallest distance between two cells of the type."""
    nucleus: tuple[float, float]
    """Half axes of the nucleus."""
    ragged: float
    """Relative deviation of the outline from an ellipse."""
    cytoplasm: float
    """Width of the cytoplasm around the nucleus."""
    faint: float
    """Share of the cells with weak staining."""
    stain: dict[str, float]
    """Typical brightness in each channel; channels that are left out are dark."""


KINDS = {
    "tumor": Kind(16.5, (7.3, 6.0), 0.07, 9, 0.08, {"DAPI": 0.8, "PanCK": 1.0, "Vimentin": 0.06}),
    "fibroblast": Kind(19.0, (10.5, 3.4), 0.05, 4, 0.2, {"DAPI": 0.75, "Vimentin": 0.9}),
    "endothelial": Kind(
        15.0, (9.0, 2.9), 0.04, 3, 0.2, {"DAPI": 0.8, "Vimentin": 0.5, "CD31": 1.0}
    ),
    "T cell": Kind(10.8, (5.0, 4.5), 0.04, 2, 0.25, {"DAPI": 1.1, "Vimentin": 0.3, "CD3": 1.0}),
    "B cell": Kind(10.8, (5.1, 4.6), 0.04, 2, 0.25, {"DAPI": 1.1, "Vimentin": 0.12, "CD20": 1.0}),
    "macrophage": Kind(
        17.0, (6.4, 4.8), 0.13, 6, 0.25, {"DAPI": 0.7, "Vimentin": 0.4, "CD68": 1.0}
    ),
}
TYPES = tuple(KINDS)
CONFUSED = {
    "tumor": "macrophage",
    "fibroblast": "endothelial",
    "endothelial": "fibroblast",
    "T cell": "B cell",
    "B cell": "T cell",
    "macrophage": "T cell",
}
"""Wrong type that an annotator gives to some cells of each type."""


class Section(NamedTuple):
    """A tissue section."""

    images: dict[str, NDArray[np.uint16]]
    """Image of each channel."""
    labels: NDArray[np.int32]
    """Label image of the nuclei; the ids have gaps."""
    adata: ad.AnnData
    """Measurements of each nucleus, and the annotated type."""


@dataclass
class _Cells:
    position: NDArray[np.float64]
    """(n, 2) as (y, x)."""
    kind: NDArray[np.intp]
    """(n,) index into `TYPES`."""
    angle: NDArray[np.float64]
    """(n,) direction of the long axis in radians, from the x axis to the y axis."""


def section(size: int = 1024, seed: int = 0) -> Section:
    """Return a tissue section: tumour nests in stroma, with vessels and immune infiltrates.

    2.5 % of the cells have a wrong type in ``obs["cell_type"]``; the true types are in
    ``obs["true_type"]``. The cells are measured in the image, so the values include signal of
    neighbouring cells, and some cells have weak staining. A few fragments of nuclei have no row in
    the table, a few rows have no nucleus in the label image, the rows are in random order, and the
    ids have gaps.

    Parameters
    ----------
    size
        Width and height of the image in pixels of half a micron.
    seed
        Seed of the random generator.
    """
    rng = np.random.default_rng(seed)
    nests = _clouds(rng, size, 46)
    cells = _place(rng, nests)
    distance, owner = _outline(rng, cells, size)
    images = _stain(rng, cells, nests, distance, owner)
    # The ids increase from top to bottom and have gaps, as after a segmentation with a filter.
    n = len(cells.kind)
    ids = np.sort(rng.choice(np.arange(1, int(1.08 * n) + 2), n, replace=False))
    labels = np.where(distance < 0, np.append(ids, 0)[owner], 0).astype(np.int32)
    adata = _measure(rng, images, labels, ids, np.array(TYPES)[cells.kind])
    deleted = rng.choice(adata.obs["cell_id"], max(1, len(adata) // 300), replace=False)
    labels[np.isin(labels, deleted)] = 0
    return Section(images, labels, adata)


def _clouds(rng: np.random.Generator, size: int, scale: float) -> Field:
    """Return (size, size) smooth noise of variance 1 with structures of ``scale`` pixels."""
    step = max(1, int(scale / 6))
    coarse = rng.standard_normal((size // step + 8,) * 2, dtype=np.float32)
    coarse = ndimage.gaussian_filter(coarse, scale / step)
    noise = ndimage.zoom(coarse, step, order=3 if step > 1 else 0)[:size, :size]
    return np.asarray((noise - noise.mean()) / noise.std(), dtype=np.float32)


def _place(rng: np.random.Generator, nests: Field) -> _Cells:
    size = len(nests)
    vessels, vessel_angle, lumen = _vessels(rng, nests)
    n_tries = size * size // 50
    tries = rng.uniform(0, size, (n_tries, 2))
    y, x = tries.astype(int).T
    slope: Any = np.gradient(ndimage.gaussian_filter(nests, 3))
    # Cells of the stroma are parallel to the borders of the nests.
    angle = np.arctan2(slope[0][y, x], slope[1][y, x]) + np.pi / 2 + rng.normal(0, 0.35, n_tries)
    kind = _draw_kinds(rng, nests, y, x)
    angle = np.where(kind == TYPES.index("tumor"), rng.uniform(0, np.pi, n_tries), angle)
    outside = ~lumen[y, x]
    position = np.vstack([vessels, tries[outside]])
    kind = np.append(np.full(len(vessels), TYPES.index("endothelial")), kind[outside])
    angle = np.append(vessel_angle, angle[outside])
    kept = _spread(position, np.array([k.spacing for k in KINDS.values()])[kind])
    kept = kept[np.lexsort(position[kept].T[::-1].round())]
    return _Cells(position[kept], kind[kept], angle[kept])


def _draw_kinds(
    rng: np.random.Generator, nests: Field, y: NDArray[np.intp], x: NDArray[np.intp]
) -> NDArray[np.intp]:
    size = len(nests)
    depth = nests[y, x] - 0.1
    inflamed = _clouds(rng, size, 34)[y, x]
    follicle = _clouds(rng, size, 30)[y, x]
    lymphocytes = 1 / (1 + np.exp(-3.2 * (inflamed - 0.75)))
    b_cells = 1 / (1 + np.exp(-6 * (follicle - 0.3)))
    calm = 1 - lymphocytes
    in_nest = {"tumor": 0.93, "T cell": 0.045, "macrophage": 0.025}
    in_stroma = {
        "fibroblast": 0.72 * calm,
        "endothelial": 0.05 * calm,
        "macrophage": 0.19 * calm + 0.05 * lymphocytes,
        "T cell": 0.04 * calm + 0.95 * lymphocytes * (1 - b_cells),
        "B cell": 0.95 * lymphocytes * b_cells,
    }
    share = np.column_stack(
        [np.where(depth > 0, in_nest.get(name, 0.0), in_stroma.get(name, 0.0)) for name in TYPES]
    )
    cumulated = np.cumsum(share / share.sum(axis=1, keepdims=True), axis=1)
    drawn: NDArray[np.intp] = (rng.random((len(y), 1)) > cumulated[:, :-1]).sum(axis=1)
    return drawn


def _vessels(
    rng: np.random.Generator, nests: Field
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return positions and angles of the cells around vessels, and a mask of the vessels."""
    size = len(nests)
    free = nests + 0.3 * _clouds(rng, size, 30)
    grid = np.mgrid[:size, :size].astype(np.float32)
    lumen = np.zeros((size, size), dtype=bool)
    positions, angles = [np.empty((0, 2))], [np.empty(0)]
    for _ in range(max(1, round(6 * (size / 1024) ** 2))):
        center = np.array(np.unravel_index(np.argmin(free), free.shape))
        long, short = rng.uniform(26, 52), rng.uniform(11, 19)
        tilt = rng.uniform(0, np.pi)
        turn = np.array([[np.cos(tilt), np.sin(tilt)], [-np.sin(tilt), np.cos(tilt)]])
        offset = grid - center[:, None, None]
        v, u = np.tensordot(turn, offset, 1)
        lumen |= (u / long) ** 2 + (v / short) ** 2 < 1
        free[np.hypot(*offset) < 190] = np.inf
        around = np.linspace(0, 2 * np.pi, 400, endpoint=False)
        line = np.stack([(short + 2) * np.sin(around), (long + 2) * np.cos(around)])
        tangent = np.stack([(short + 2) * np.cos(around), -(long + 2) * np.sin(around)])
        travelled = np.cumsum(np.hypot(*tangent)) * 2 * np.pi / 400
        steps = np.searchsorted(travelled, np.arange(0, travelled[-1] - 12, 17.0))
        positions.append((turn.T @ line[:, steps]).T + center)
        angles.append(np.arctan2(*(turn.T @ tangent[:, steps])))
    position, angle = np.vstack(positions), np.concatenate(angles)
    inside = ((position >= 0) & (position < size)).all(axis=1)
    return position[inside], angle[inside], lumen


def _spread(position: NDArray[np.float64], spacing: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the indices of the positions that keep their distance from all kept before them."""
    pairs = cKDTree(position).query_pairs(spacing.max(), output_type="ndarray")
    apart = np.linalg.norm(position[pairs[:, 0]] - position[pairs[:, 1]], axis=1)
    pairs = pairs[apart < spacing[pairs].mean(axis=1)]
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    starts = np.searchsorted(pairs[:, 0], np.arange(len(position) + 1))
    kept = np.ones(len(position), dtype=bool)
    for i in range(len(position)):
        if kept[i]:
            kept[pairs[starts[i] : starts[i + 1], 1]] = False
    return np.flatnonzero(kept)


def _outline(rng: np.random.Generator, cells: _Cells, size: int) -> tuple[Field, NDArray[np.intp]]:
    """Return each pixel's distance from the nearest nucleus, negative inside, and its index."""
    distance = np.full((size, size), np.inf, dtype=np.float32)
    owner = np.full((size, size), -1, dtype=np.intp)
    stretch = rng.lognormal(0, 0.11, (len(cells.kind), 2))
    phase = rng.uniform(0, 2 * np.pi, (len(cells.kind), 2))
    for i, (middle, kind) in enumerate(zip(cells.position, cells.kind, strict=True)):
        shape = KINDS[TYPES[kind]]
        a, b = np.array(shape.nucleus) * stretch[i]
        low = np.maximum(middle.astype(int) - MAX_RADIUS, 0)
        high = np.minimum(middle.astype(int) + MAX_RADIUS + 1, size)
        window = slice(low[0], high[0]), slice(low[1], high[1])
        dy = np.arange(low[0], high[0], dtype=np.float32)[:, None] - middle[0]
        dx = np.arange(low[1], high[1], dtype=np.float32)[None] - middle[1]
        cos, sin = np.cos(cells.angle[i]), np.sin(cells.angle[i])
        u, v = (dx * cos + dy * sin) / a, (dy * cos - dx * sin) / b
        around = np.arctan2(v, u)
        radius = np.hypot(u, v) * (
            1 + shape.ragged * (np.cos(2 * around + phase[i, 0]) + np.cos(3 * around + phase[i, 1]))
        )
        far = (radius - 1) * np.sqrt(a * b)
        nearer = far < distance[window]
        distance[window][nearer] = far[nearer]
        owner[window][nearer] = i
    return distance, owner


def _stain(
    rng: np.random.Generator,
    cells: _Cells,
    nests: Field,
    distance: Field,
    owner: NDArray[np.intp],
) -> dict[str, NDArray[np.uint16]]:
    size = len(nests)
    n = len(cells.kind)
    names = np.array(TYPES)[cells.kind]
    width = np.array([kind.cytoplasm for kind in KINDS.values()])[cells.kind]
    faint = np.array([kind.faint for kind in KINDS.values()])[cells.kind]
    width = np.append(width * rng.lognormal(0, 0.15, n), 0).astype(np.float32)[owner]
    # All channels have the same grain, because it is a property of the tissue.
    grain = _clouds(rng, size, 1.3)
    coarse_grain = _clouds(rng, size, 2.6)
    vital = rng.lognormal(0, 0.18, n)
    stroma = 1 / (1 + np.exp(6 * (nests - 0.1)))
    # Fibres are parallel to the borders of the nests, like the fibroblasts.
    fibers = np.interp(
        24 * nests + 0.5 * _clouds(rng, size, 8), np.arange(-200, 200), rng.random(400)
    ) ** 2 * np.clip(1 + 0.5 * coarse_grain, 0, None)
    nucleus = np.clip(0.35 - distance / 2.2, 0, 1)
    body = np.clip((width - distance) / 1.5, 0, 1)
    membrane = np.exp(-(((distance - 0.6) / 1.4) ** 2)) * np.clip(0.9 + 0.4 * coarse_grain, 0.1, 2)
    cytoplasm = body * (1 - 0.75 * nucleus)
    where = {
        "DAPI": nucleus * (1 + 0.2 * coarse_grain + 0.12 * grain),
        "PanCK": cytoplasm * (1 + 0.25 * grain) + 0.35 * np.exp(-(((distance - width) / 1.2) ** 2)),
        "Vimentin": cytoplasm * (1 + 0.45 * coarse_grain),
        "CD31": membrane + 0.35 * cytoplasm,
        "CD3": membrane,
        "CD20": membrane,
        "CD68": cytoplasm * np.clip(0.35 + 0.9 * grain, 0.1, None),
        "Ki67": nucleus * np.clip(0.7 + 0.5 * coarse_grain, 0, None),
    }
    images = {}
    for channel in CHANNELS:
        typical = np.array([kind.stain.get(channel, 0.0) for kind in KINDS.values()])
        amount = typical[cells.kind] * rng.lognormal(0, 0.4, n) * vital
        if channel == "Ki67":
            cycling = rng.random(n) < np.where(names == "tumor", 0.28, 0.03)
            amount = cycling * rng.lognormal(-0.2, 0.4, n)
        elif channel != "DAPI":
            amount *= np.where(rng.random(n) < faint, rng.uniform(0, 0.2, n), 1)
        signal = np.append(amount, 0).astype(np.float32)[owner] * where[channel]
        if channel == "Vimentin":
            signal += 0.4 * stroma * fibers
        images[channel] = _expose(rng, signal, stroma)
    return images


def _expose(rng: np.random.Generator, signal: Field, stroma: Field) -> NDArray[np.uint16]:
    """Return a 12-bit camera image of a signal, with blur, haze, autofluorescence and noise."""
    sharp = ndimage.gaussian_filter(signal, 1.1)
    haze = ndimage.zoom(ndimage.gaussian_filter(sharp[::4, ::4], 2.5), 4, order=1)
    seen = 1500 * (0.85 * sharp + 0.15 * haze[: len(sharp), : len(sharp)]) + 60 + 45 * stroma
    noise = rng.standard_normal(seen.shape, dtype=np.float32)
    seen += noise * np.sqrt(np.clip(2.5 * seen + 150, 0, None))
    return np.clip(seen, 0, 4095).astype(np.uint16)


def _measure(
    rng: np.random.Generator,
    images: dict[str, NDArray[np.uint16]],
    labels: NDArray[np.int32],
    ids: NDArray[np.intp],
    types: NDArray[np.str_],
) -> ad.AnnData:
    """Return measurements of each nucleus, and of a ring of 3 pixels around it."""
    gap, nearest = ndimage.distance_transform_edt(labels == 0, return_indices=True)
    ring = np.where((gap > 0) & (gap <= 3), labels[tuple(nearest)], 0)
    area = np.bincount(labels.ravel(), minlength=ids[-1] + 1)[ids]
    # Fragments of nuclei are left out.
    measured = rng.permutation(np.flatnonzero(area >= 50))
    ids, area, types = ids[measured], area[measured], types[measured]

    def mean(values: Any, mask: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.asarray(ndimage.mean(values, mask, ids))

    y, x = np.indices(labels.shape)
    my, mx = mean(y, labels), mean(x, labels)
    syy, sxx = mean(y * y, labels) - my**2, mean(x * x, labels) - mx**2
    sxy = mean(x * y, labels) - mx * my
    spread = np.sqrt((syy - sxx) ** 2 + 4 * sxy**2)
    major, minor = np.sqrt(2 * (syy + sxx + spread)), np.sqrt(2 * (syy + sxx - spread))
    dapi = images["DAPI"].astype(float)
    table = {f"{name}: nucleus mean": mean(image, labels) for name, image in images.items()}
    table |= {f"{name}: ring mean": mean(image, ring) for name, image in images.items()}
    table |= {
        "nucleus area": area * MICRONS_PER_PIXEL**2,
        "nucleus major axis": 2 * major * MICRONS_PER_PIXEL,
        "nucleus minor axis": 2 * minor * MICRONS_PER_PIXEL,
        "nucleus aspect ratio": major / minor,
        "DAPI: texture": np.sqrt(mean(dapi**2, labels) - mean(dapi, labels) ** 2),
    }
    mistaken = rng.random(len(types)) < 0.025
    annotated = np.where(mistaken, [CONFUSED[name] for name in types], types)
    obs = pd.DataFrame(
        {
            "cell_id": ids,
            "region": pd.Categorical(["nuclei"] * len(ids)),
            "cell_type": pd.Categorical(annotated, categories=list(TYPES)),
            "true_type": pd.Categorical(types, categories=list(TYPES)),
        },
        index=[f"cell {i}" for i in ids],
    )
    adata = ad.AnnData(
        np.column_stack(list(table.values())).astype(np.float32),
        obs=obs,
        var=pd.DataFrame(index=list(table)),
        obsm={"spatial": np.column_stack([mx, my]) * MICRONS_PER_PIXEL},
    )
    adata.uns["spatialdata_attrs"] = {
        "region": "nuclei",
        "region_key": "region",
        "instance_key": "cell_id",
    }
    return adata


def write(made: Section, path: Path) -> None:
    """Write a section to a compressed file of about 1.5 MB.

    The images are smoothed and rounded to `LEVELS`, because noise cannot be compressed. The table
    has the measurements in the original images.
    """
    stack = np.stack(list(made.images.values())).astype(np.float32)
    smooth = ndimage.gaussian_filter(stack, (0, SMOOTH, SMOOTH))
    middles = (LEVELS[1:].astype(float) + LEVELS[:-1]) / 2
    obs = made.adata.obs
    np.savez_compressed(
        path,
        channels=np.array(CHANNELS),
        images=np.searchsorted(middles, smooth).astype(np.uint8),
        levels=LEVELS,
        labels=made.labels.astype(np.uint16),
        X=made.adata.X,
        features=made.adata.var_names.to_numpy(str),
        spatial=made.adata.obsm["spatial"],
        cell_id=obs["cell_id"].to_numpy(),
        types=np.array(TYPES),
        cell_type=obs["cell_type"].cat.codes.to_numpy(),
        true_type=obs["true_type"].cat.codes.to_numpy(),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", nargs="?", type=Path, default=FILE, help="file to write")
    write(section(), parser.parse_args().path)
