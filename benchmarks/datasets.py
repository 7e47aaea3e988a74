"""The data sets of the paper and some single-cell ones, from a folder of the reader's own.

Nothing is shipped: licences differ. The folder is named by the environment variable ``CE_DATA``;
without it, ``../shared/data`` beside the repository is tried.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import anndata
import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

Data = tuple[NDArray[np.generic], NDArray[np.generic]]


def data_folder() -> Path | None:
    """Return the folder of data sets, or None if there is none."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CE_DATA", default))
    return folder if folder.is_dir() else None


def data_path(name: str) -> Path:
    """Return the path of a file in the data folder, or say how to get one."""
    folder = data_folder()
    if folder is None:
        raise FileNotFoundError("no data folder: set CE_DATA to where the data sets lie")
    return folder / name


def read_h5ad(name: str) -> AnnData:
    """Read an AnnData of the data folder."""
    return anndata.read_h5ad(data_path(name))


def mnist() -> tuple[Data, Data]:
    """Return (60,000 training, 10,000 test) images as (n, 784) uint8 with digits."""

    def read(name: str, header: int) -> NDArray[np.uint8]:
        content = gzip.decompress(data_path(f"mnist/{name}.gz").read_bytes())
        return np.frombuffer(content, np.uint8, offset=header)

    return tuple(  # type: ignore[return-value]
        (
            read(f"{part}-images-idx3-ubyte", 16).reshape(-1, 784),
            read(f"{part}-labels-idx1-ubyte", 8),
        )
        for part in ("train", "t10k")
    )


def usps() -> Data:
    """Return 11,000 images as (n, 256) uint8 with digits, sorted by class."""
    with np.load(data_path("usps/usps_11000.npz")) as file:
        return file["X"], file["digit"]


def letter() -> Data:
    """Return 20,000 samples with 16 features and letters A … Z."""
    table = np.loadtxt(data_path("letter/letter-recognition.data"), dtype=str, delimiter=",")
    return table[:, 1:].astype(np.float64), table[:, 0]


def landsat() -> Data:
    """Return 6,435 samples with 36 features and six kinds of soil."""
    table = np.vstack([np.loadtxt(data_path(f"landsat/sat.{part}")) for part in ("trn", "tst")])
    return table[:, :-1], table[:, -1].astype(int)


def phoneme() -> Data:
    """Return 3,656 samples with 20 features: the 13 most frequent phonemes."""
    rows = [
        line.split()
        # "#" is a phoneme as well as the sign of a header line.
        for part in ("ex1", "ex2")
        for line in data_path(f"phoneme/{part}.dat").read_text().splitlines()
        if len(line.split()) == 21
    ]
    table = np.array(rows)
    phonemes, counts = np.unique(table[:, -1], return_counts=True)
    kept = np.isin(table[:, -1], phonemes[np.argsort(-counts)[:13]])
    return table[kept, :-1].astype(np.float64), table[kept, -1]


def sonar() -> Data:
    """Return 208 samples with 60 features, rocks and mines, sorted by class."""
    table = np.loadtxt(data_path("sonar/sonar.all-data"), dtype=str, delimiter=",")
    return table[:, :-1].astype(np.float64), table[:, -1]
