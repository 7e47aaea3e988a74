"""Data sets are read from the data folder, or downloaded and checked."""

from __future__ import annotations

import hashlib
import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pooch
import pytest
from numpy.testing import assert_array_equal

from benchmarks import datasets

needs_data = pytest.mark.skipif(
    datasets.data_folder() is None, reason="the data folder is absent: set CE_DATA"
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of downloads, without a data folder."""
    monkeypatch.setattr(datasets, "data_folder", lambda: None)
    monkeypatch.delenv("CE_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / name)
    return tmp_path / "centroid-encoder"


def test_a_file_is_downloaded_once_and_its_sum_is_checked(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(self: object, url: str, output_file: str, pooch: object) -> None:
        downloads.append(url)
        Path(output_file).write_text(published)

    content = "".join(f"{'0.5,' * 59}0.25,{mine}\n" for mine in "RM")
    sha256 = hashlib.sha256(content.encode()).hexdigest()
    monkeypatch.setitem(datasets.REGISTRY, "sonar/sonar.all-data", ("http://sonar", sha256))
    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", download)
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    downloads: list[str] = []
    published = content.replace("R", "X")
    with pytest.raises(ValueError, match="SHA256 hash"):
        datasets.sonar()
    assert not (cache / "sonar/sonar.all-data").exists()
    published = content
    downloads.clear()
    for _ in range(2):
        X, y = datasets.sonar()
        assert X.shape == (2, 60)
        assert y.tolist() == ["R", "M"]
    assert downloads == ["http://sonar"]


@pytest.mark.usefixtures("cache")
def test_an_error_names_a_file_that_cannot_be_downloaded() -> None:
    with pytest.raises(FileNotFoundError, match=r"CE_DATA .* has pbmc3k/x\.h5ad"):
        datasets.data_path("pbmc3k/x.h5ad")


def usps_archive(folder: Path, content: object) -> None:
    (folder / "usps").mkdir()
    with zipfile.ZipFile(folder / "usps/USPS.zip", "w") as archive:
        archive.writestr("USPS.p", pickle.dumps(content))


def test_labels_of_usps_are_the_digits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pixels = np.arange(10)[:, None] * np.ones((1, 256)) / 255
    usps_archive(tmp_path, np.column_stack([pixels, np.arange(10.0)]))
    monkeypatch.setenv("CE_DATA", str(tmp_path))
    X, digits = datasets.usps()
    assert digits.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    assert X.dtype == np.uint8
    assert_array_equal(X, np.arange(10)[:, None] * np.ones((1, 256)))


def test_a_pickle_of_other_objects_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usps_archive(tmp_path, io.BytesIO(b"anything but an array"))
    monkeypatch.setenv("CE_DATA", str(tmp_path))
    with pytest.raises(pickle.UnpicklingError, match="not part of an array"):
        datasets.usps()


@needs_data
def test_files_in_the_data_folder_have_the_published_sums() -> None:
    for name, (_, sha256) in datasets.REGISTRY.items():
        assert hashlib.sha256(datasets.data_path(name).read_bytes()).hexdigest() == sha256, name
