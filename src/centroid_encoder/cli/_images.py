"""Reading images from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENDINGS = (".tif", ".tiff", ".npy")


class Image(NamedTuple):
    """An image as a file has it."""

    pixels: NDArray[np.generic]
    axes: str
    """What its axes are, a letter each, such as ``"TCYX"``; empty if the file does not say."""


def read_image(path: Path) -> Image:
    """Read an image from a TIFF or a NumPy file.

    Raises
    ------
    OSError
        If it is of another kind, damaged, or compressed in a way that takes a further package.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS or path.is_dir():
        raise OSError(f"{path} is no image that can be read: its name must end in .tif or .npy")
    try:
        return _read_npy(path) if ending == ".npy" else _read_tiff(path)
    except PermissionError as error:
        raise PermissionError(f"{path} may not be read") from error
    except ModuleNotFoundError as error:
        raise OSError(
            f"to read a .tif, {error.name} is needed: pip install {error.name}"
        ) from error
    # Damaged files raise many kinds of errors.
    except Exception as error:
        raise OSError(f"{path} cannot be read: {error}") from error


def _read_npy(path: Path) -> Image:
    import numpy as np

    pixels: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    return Image(pixels, "")


def _read_tiff(path: Path) -> Image:
    import tifffile

    with tifffile.TiffFile(path) as file:
        series = file.series[0]
        return Image(series.asarray(), series.axes)
