"""The data sets of the paper and some data sets of single cells.

The repository does not contain them, because their licences differ. They are read from the folder
in the environment variable ``CE_DATA``, or from ``../shared/data`` beside the repository. If there
is no such folder, the data sets of the paper are downloaded once from where they were published,
and checked against their SHA-256 sums. The data sets of single cells cannot be downloaded.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import zipfile
from pathlib import Path

import anndata
import numpy as np
from anndata import AnnData
from numpy.typing import NDArray

Data = tuple[NDArray[np.generic], NDArray[np.generic]]

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist"
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_GITHUB = "https://raw.githubusercontent.com"
REGISTRY = {
    "mnist/train-images-idx3-ubyte.gz": (
        f"{_MNIST}/train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "mnist/train-labels-idx1-ubyte.gz": (
        f"{_MNIST}/train-labels-idx1-ubyte.gz",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    "mnist/t10k-images-idx3-ubyte.gz": (
        f"{_MNIST}/t10k-images-idx3-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    "mnist/t10k-labels-idx1-ubyte.gz": (
        f"{_MNIST}/t10k-labels-idx1-ubyte.gz",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "usps/USPS.zip": (
        f"{_GITHUB}/Tomojit1/Centroid-encoder/a6692e114d2836110adf531e387ce89864be1b12"
        "/DataFile/USPS.zip",
        "303121a1630ffc718865f74b06148c0be4221d5427a746e61f8b4ee680205bb8",
    ),
    "letter/letter-recognition.data": (
        f"{_UCI}/letter-recognition/letter-recognition.data",
        "2b89f3602cf768d3c8355267d2f13f2417809e101fc2b5ceee10db19a60de6e2",
    ),
    "landsat/sat.trn": (
        f"{_UCI}/statlog/satimage/sat.trn",
        "e896dc88a960fa2404160fc4c3cb3dc53fcf4afd80ba920bf2d261bd42d12613",
    ),
    "landsat/sat.tst": (
        f"{_UCI}/statlog/satimage/sat.tst",
        "4b9167b8a92baafafed7c8809aef86d0683a5e685c19d98d119fa6974f0f2479",
    ),
    "phoneme/ex1.dat": (
        f"{_GITHUB}/hynde/som_lvq_pak/c16ff835dd02f302c90e42eb35ef3eb8f42a4f9b/ex1.dat",
        "d8bce2e618c94c4b116c7b41aabeb8f0486af7af7ad9dd9da3227ddd1aa19417",
    ),
    "phoneme/ex2.dat": (
        f"{_GITHUB}/hynde/som_lvq_pak/7b635a6341e86b7630bc7d00871b3ba039d73c60/ex2.dat",
        "35348a47776b2383b5046a29a57b1af5ce3cd46f0e070b053939d5f28bc44c5a",
    ),
    "sonar/sonar.all-data": (
        f"{_UCI}/undocumented/connectionist-bench/sonar/sonar.all-data",
        "e90434cdbf00fcf93ffa911fe447ae25606979658e60f1d32e155c3b5240234d",
    ),
}
"""Addresses and SHA-256 sums of the files of the paper's data sets."""


def data_folder() -> Path | None:
    """Return the folder of data sets, or None if there is none."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CE_DATA", default))
    return folder if folder.is_dir() else None


def data_path(name: str) -> Path:
    """Return the path of a file in the data folder; without a folder, of the downloaded file.

    Raises
    ------
    FileNotFoundError
        If ``CE_DATA`` is not a folder, or if there is no data folder and the file is not in
        `REGISTRY`.
    ValueError
        If the downloaded file has another SHA-256 sum.
    """
    folder = data_folder()
    if folder is not None:
        return folder / name
    if "CE_DATA" in os.environ:
        raise FileNotFoundError(f"CE_DATA is {os.environ['CE_DATA']!r}, which is not a folder")
    if name not in REGISTRY:
        raise FileNotFoundError(f"no data folder: set CE_DATA to the one that has {name}")
    return download(name)


def download(name: str) -> Path:
    """Return the path of a file of `REGISTRY` in the user's cache; download it if it is missing."""
    import pooch

    registry = pooch.create(
        pooch.os_cache("centroid-encoder"),
        base_url="",
        registry={name: f"sha256:{sha256}" for name, (_, sha256) in REGISTRY.items()},
        urls={name: url for name, (url, _) in REGISTRY.items()},
        retry_if_failed=2,
    )
    return Path(registry.fetch(name))


def log_normalized(counts: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return log(1 + x), where all cells of (n, d) counts are scaled to their median total.

    This is scanpy's default. A larger total would be like a far smaller count than 1 inside the
    logarithm, so that the noise of cells with few counts would dominate.
    """
    totals = counts.sum(axis=1, keepdims=True)
    return np.asarray(np.log1p(np.median(totals) * counts / totals))


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
    with zipfile.ZipFile(data_path("usps/USPS.zip")) as archive:
        table = _ArrayUnpickler(io.BytesIO(archive.read("USPS.p")), encoding="latin1").load()
    # The last column is the digit minus one, and 9 for the digit 0.
    return np.round(255 * table[:, :-1]).astype(np.uint8), ((table[:, -1] + 1) % 10).astype(int)


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickler of arrays alone. Other pickles can run any code, so they are refused."""

    def find_class(self, module: str, name: str) -> object:
        if (module.replace("numpy.core", "numpy._core"), name) not in {
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
        }:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of an array")
        return super().find_class(module, name)


def letter() -> Data:
    """Return 20,000 samples with 16 features and letters A … Z."""
    table = np.loadtxt(data_path("letter/letter-recognition.data"), dtype=str, delimiter=",")
    return table[:, 1:].astype(np.float64), table[:, 0]


SOILS = {
    1: "red soil", 2: "cotton crop", 3: "grey soil", 4: "damp grey soil",
    5: "vegetation stubble", 7: "very damp grey soil",
}  # fmt: skip
"""Names of the classes of Landsat."""


def landsat() -> Data:
    """Return 6,435 samples with 36 features and six kinds of soil."""
    table = np.vstack([np.loadtxt(data_path(f"landsat/sat.{part}")) for part in ("trn", "tst")])
    return table[:, :-1], table[:, -1].astype(int)


def phoneme() -> Data:
    """Return 3,656 samples with 20 features, of the 13 most frequent phonemes."""
    rows = [
        line.split()
        # A header line begins with "#", but "#" is a phoneme, too. Headers do not have 21 words.
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
