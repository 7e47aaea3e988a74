"""Files of images are known by their names, and none is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from centroid_encoder.viewer.data import folder as folder_module
from centroid_encoder.viewer.data.folder import list_images


def make(folder: Path, *names: str) -> None:
    """Make files that nobody could open."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("no image")


def found(folder: Path, *regions: object) -> dict[str, tuple[str, list[str]]]:
    def name(path: Path) -> str:
        return path.relative_to(folder).as_posix()

    files = list_images(folder, regions)
    return {region: (name(x.mask), [name(s) for s in x.stains]) for region, x in files.items()}


@pytest.mark.parametrize(
    ("mask", "stain"),
    [
        ("A_mask.tif", "A_DAPI.tif"),
        ("masks/A.ome.tiff", "images/A.ome.tiff"),
        ("A/mask.tif", "A/CD3.tif"),
        ("deep/A_seg.npy", "deep/raw/A.png"),
        ("A_labels.zarr", "A.zarr"),
    ],
)
def test_masks_and_intensities_are_told_apart(tmp_path: Path, mask: str, stain: str) -> None:
    make(tmp_path, mask, stain, "readme.txt", ".A_mask.tif", "other_mask.tif")
    assert found(tmp_path, "A.tiff", "B.tiff") == {"A.tiff": (mask, [stain])}


def test_numbers_and_longer_names_are_other_images(tmp_path: Path) -> None:
    names = ["A", "A_2", "A_12"]
    make(tmp_path, *(f"masks/{name}_mask.tif" for name in names))
    make(tmp_path, *(f"{name}_CD3.tif" for name in names))
    wanted = {name: (f"masks/{name}_mask.tif", [f"{name}_CD3.tif"]) for name in names}
    assert found(tmp_path, *names) == wanted
    assert found(tmp_path, 2, 12) == {}
    make(tmp_path, "more/image_002_mask.tif")
    make(tmp_path, "more/image2_CD3.tif", "more/image1_CD2.tif")
    wanted_stains = ["A_2_CD3.tif", "more/image2_CD3.tif"]
    assert found(tmp_path, 2, 12) == {"2": ("more/image_002_mask.tif", wanted_stains)}


def test_two_masks_of_an_image_are_for_the_user_to_choose_from(tmp_path: Path) -> None:
    make(tmp_path, "A_mask.tif", "A_labels.tif", "B_mask.tif")
    assert list(found(tmp_path, "A", "B")) == ["B"]
    # As are two images of the same name.
    assert found(tmp_path, "B.tif", "B.png") == {}


def test_a_folder_may_be_missing_or_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(tmp_path / "gone", "A") == {}
    make(tmp_path, "A_mask.tif", "a/b/c/d/e/B_mask.tif")
    assert list(found(tmp_path, "A", "B")) == ["A"]
    monkeypatch.setattr(folder_module, "MOST", 0)
    assert found(tmp_path, "A") == {}
