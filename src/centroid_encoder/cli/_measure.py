"""``centroid-encoder measure``."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import click

from centroid_encoder import tables
from centroid_encoder.cli import _options as options
from centroid_encoder.cli._report import Results, Session, reporting
from centroid_encoder.errors import check
from centroid_encoder.files import check_space

CHANNELS = "Names of all channels in order. Default: the file names."


@click.command(
    params=[
        click.Argument(["labels"], type=options.INPUT),
        click.Argument(["images"], type=options.INPUT, nargs=-1),
        options.output(".h5ad", ".zarr"),
        click.Option(["--channels"], help=CHANNELS, **options.listed(str)),
        *options.of("tl.measure"),
    ]
)
@reporting
def measure(
    session: Session,
    labels: Path,
    images: tuple[Path, ...],
    output: Path,
    channels: list[str] | None,
    **settings: Any,
) -> Results:
    """Measure the cells of LABELS: a table of their shapes, positions and intensities in IMAGES.

    LABELS is a label image, with a number for each cell and 0 for the background. IMAGES have the
    same pixels, and may have several channels. All are .tif or .npy files, or arrays in .zarr.
    """
    pixels, axes = _read(labels)
    named = {path.stem: _read(path)[0] for path in images}
    for one, other in combinations(images, 2):
        text = f"{one} and {other} have the same name, and so would their channels"
        check(one.stem != other.stem, text)
    if "T" in axes and not settings["time_series"]:
        text = f"the axes of {labels} are {', '.join(axes)}"
        session.warn(f"{text}; if the first one is time, pass time_series=True")

    # Imported after the files are read, so that errors about these are printed at once.
    from centroid_encoder.tl._measure import Measurement
    from centroid_encoder.tl._run import run_job

    job = Measurement({labels.stem: pixels}, named, **settings)
    if channels:
        text = f"there are {len(job.channels)} channels, {', '.join(job.channels) or 'none'}"
        fits = len(set(channels)) == len(channels) == len(job.channels)
        check(fits, f"{text}; --channels must have as many different names")
        job.channels = channels
    run_job(job, progress=not session.quiet, warn=session.warn)
    adata = job.table()

    def write(new: Path) -> None:
        if output.suffix.lower() == ".zarr":
            adata.write_zarr(new)
        else:
            check_space(new.parent, tables.size_of(adata))
            adata.write_h5ad(new)

    frames = f" in {adata.obs['frame'].nunique():,} frames" if "frame" in adata.obs else ""
    sentence = f"{adata.n_obs:,} cells{frames}, {adata.n_vars} variables"
    stored, variables = adata.uns["measure"], adata.var.rename_axis("name").reset_index()
    document = {"n_obs": adata.n_obs, "variables": variables}
    document |= {"unit": stored["unit"], "spacing": stored["spacing"][0]}
    return Results({output: write}, [f"{sentence}: {', '.join(adata.var_names)}."], document)


def _read(path: Path) -> tuple[Any, str]:
    """Read an image, and a letter for each of its axes; an empty string if the file has none."""
    ending = path.suffix.lower()
    try:
        if path.name.lower().endswith("_seg.npy"):
            raise ValueError("files of Cellpose are not opened; save the masks in Cellpose as .tif")
        if ending == ".npy":
            import numpy as np

            return np.load(path, mmap_mode="r", allow_pickle=False), ""
        if ending in (".tif", ".tiff"):
            import tifffile

            with tifffile.TiffFile(path) as file:
                return file.series[0].asarray(), file.series[0].axes
        if ending == ".zarr":
            import zarr

            tables.check_no_links(path)
            store: Any = zarr.open(path, mode="r")
            attributes = store.attrs.get("ome", store.attrs)
            if "multiscales" in attributes:  # a group in the layout of OME
                scales = attributes["multiscales"][0]
                axes = "".join(axis["name"] for axis in scales["axes"]).upper()
                return store[scales["datasets"][0]["path"]], axes
            if isinstance(store, zarr.Array):
                return store, ""
    # Damaged files raise many kinds of errors.
    except Exception as error:
        raise OSError(f"{path} cannot be read: {error}") from error
    text = "its name must end in .tif or .npy, or in .zarr with an array or an OME-Zarr image in it"
    raise OSError(f"{path} is no image that can be read: {text}")
