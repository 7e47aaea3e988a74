"""``centroid-encoder measure``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from centroid_encoder.cli import _options as options
from centroid_encoder.cli._files import whole
from centroid_encoder.cli._images import read_image
from centroid_encoder.cli._session import Results, Session, reporting

if TYPE_CHECKING:
    from anndata import AnnData


@click.command()
@click.argument("labels", type=options.INPUT)
@click.argument("images", type=options.INPUT, nargs=-1)
@options.target(
    "-o",
    "--output",
    suffixes=(".h5ad", ".zarr"),
    required=True,
    help="The .h5ad file or .zarr store to write. A file or store of that name is replaced.",
)
@click.option(
    "--channels",
    metavar="NAME,NAME",
    help="Names of all channels, in the order of the images. Default: by the names of the files.",
)
@options.of("tl.measure")
@reporting
def measure(
    work: Session,
    labels: Path,
    images: tuple[Path, ...],
    output: Path,
    channels: str | None,
    **settings: Any,
) -> Results:
    """Measure the cells of LABELS: a table of their shapes, positions and intensities in IMAGES.

    LABELS is a label image, a number for each cell and 0 for the background, and each of IMAGES has
    the same pixels: .tif or .npy files. An image may have several channels.
    """
    label_image = read_image(labels)
    named = {path.stem: read_image(path).pixels for path in images}
    if len(named) < len(images):
        raise ValueError("two images have the same name, which is that of their channels")

    # Imported only now: a file that cannot be read is reported without waiting for torch.
    from centroid_encoder.tl._measure import Measurement

    if "T" in label_image.axes and not settings["time_series"]:
        axes = ", ".join(label_image.axes)
        text = f"the axes of {labels} are {axes}; if the first one is time, pass time_series=True"
        work.warn(text)
    job = Measurement({labels.stem: label_image.pixels}, named, **settings)
    if channels is not None:
        job.channels = _names(channels, job.channels)
    adata = work.measured(job)
    document = {
        "labels": labels,
        "images": list(images),
        "output": output,
        "n_obs": adata.n_obs,
        "variables": adata.var.rename_axis("name").reset_index(),
        "unit": adata.uns["measure"]["unit"],
        "spacing": adata.uns["measure"]["spacing"][0],
    }
    return Results({output: whole(adata, output)}, _sentences(adata), document)


def _names(given: str, channels: list[str]) -> list[str]:
    """Return names between commas, one for each channel."""
    names = [name.strip() for name in given.split(",")]
    if len(set(names)) != len(names) or len(names) != len(channels):
        raise ValueError(
            f"there are {len(channels)} channels, {', '.join(channels) or 'none'}; --channels must "
            f"have as many different names, not {', '.join(names)}"
        )
    return names


def _sentences(adata: AnnData) -> Iterator[str]:
    frames = f" in {adata.obs['frame'].nunique():,} frames" if "frame" in adata.obs else ""
    yield f"{adata.n_obs:,} cells{frames}, {adata.n_vars} variables: {', '.join(adata.var_names)}."
