"""Maps in ``.h5ad`` files and zarr stores that are damaged, or from a stranger.

``python -m tests.tl.test_containers START N SEED FILE`` reads the map of mutants START to N.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import centroid_encoder as ce
from centroid_encoder.cli import cli
from centroid_encoder.cli._files import read_cells
from centroid_encoder.tl._reference import read_reference
from centroid_encoder.viewer.data.reader import read_adata
from tests.cases import cases

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit of memory")
MEAN = "uns/ce/model/arrays/mean"
MEMORY = 2**29
"""Bytes beyond those of the libraries that reading a mutant may take."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    codes = np.arange(60) % 3
    adata = ad.AnnData((3 * rng.normal(size=(3, 5))[codes] + rng.normal(size=(60, 5))).astype("f4"))
    adata.obs["type"] = np.array(["b", "c", "a"])[codes]
    adata.obs["type"] = adata.obs["type"].astype("category")
    adata.uns["type_colors"] = ["#ff0000", "#00ff00", "#0000ff"]
    model = ce.CentroidEncoder(hidden=(4,), max_epochs=2, device="cpu")
    ce.tl.centroid_encoder(adata, "type", model=model, progress=False)
    path = tmp_path_factory.mktemp("original") / "map.h5ad"
    adata.write_h5ad(path)
    return path


@pytest.fixture
def file(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the file, beside another one that it must not reach."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(original, "other.h5ad")
    return Path(shutil.copy(original, "map.h5ad"))


def instead(where: str, make: Callable[[h5py.File, str], object]) -> Callable[[h5py.File], None]:
    """Put something in the place of a part of a file."""

    def change(file: h5py.File) -> None:
        del file[where]
        make(file, where)

    return change


def external_link(file: h5py.File, where: str) -> None:
    file[where] = h5py.ExternalLink("other.h5ad", where)


def soft_link(file: h5py.File, where: str) -> None:
    file["layers/elsewhere"] = h5py.ExternalLink("other.h5ad", where)
    file[where] = h5py.SoftLink("/layers/elsewhere")


def external_storage(file: h5py.File, where: str) -> None:
    file.create_dataset(where, (5,), "f8", external=[("other.h5ad", 0, 40)])


def virtual(file: h5py.File, where: str) -> None:
    layout = h5py.VirtualLayout((5,), "f8")
    layout[:] = h5py.VirtualSource("other.h5ad", where, (5,))
    file.create_virtual_dataset(where, layout)


def huge(file: h5py.File, where: str) -> None:
    file.create_dataset(where, (4 * 10**8,), "f8")


def huge_chunks(file: h5py.File, where: str) -> None:
    file.create_dataset(where, (4 * 10**8,), "f8", chunks=(10**6,), compression="gzip")


def huge_texts(file: h5py.File, where: str) -> None:
    file.create_dataset(where, (4,), h5py.string_dtype(length=5 * 10**8))


def one_text_many_times(file: h5py.File, where: str) -> None:
    texts = file.create_dataset(where, (20_000,), h5py.string_dtype())
    texts[:1] = "x" * 10**6
    texts.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
    file.flush()
    at = texts.id.get_offset()
    file.close()
    with open("map.h5ad", "r+b") as raw:
        raw.seek(at)
        first = raw.read(16)
        raw.seek(at)
        raw.write(first * 20_000)


def itself(file: h5py.File, where: str) -> None:
    file[where] = file["uns"]


HOSTILE = {
    "a link to another file": (instead("uns/ce", external_link), "is a link, and what it leads"),
    "uns in another file": (instead("uns", external_link), "uns is a link, and what it leads"),
    "an array in another file": (instead(MEAN, external_link), "arrays/mean is a link"),
    "a link to a link": (instead(MEAN, soft_link), "arrays/mean is a link"),
    "bytes of another file": (instead(MEAN, external_storage), "arrays/mean is in another file"),
    "a view of another file": (instead(MEAN, virtual), "arrays/mean is in another file"),
    "a size that is not stored": (instead(MEAN, huge), "too small for its size"),
    "chunks that are not stored": (instead(MEAN, huge_chunks), "too small for its size"),
    "texts that are not stored": (instead("uns/ce/classes", huge_texts), "too small for its size"),
    "one text many times": (instead("uns/ce/classes", one_text_many_times), "too small for its s"),
    "a group in itself": (instead("uns/ce/model/arrays", itself), "nested without end"),
    "labels in another file": (instead("obs/type", external_link), "type is a link"),
    "an unknown encoding": (
        lambda file: file["uns/ce/params"].attrs.modify("encoding-type", "mystery"),
        "map.h5ad: uns['ce'] cannot be read: ",
    ),
    "no text": (
        instead("uns/ce/model/config", lambda file, where: put(file, where, [1], "array")),
        "the model's config is not valid JSON",
    ),
    "text that is none": (
        instead(
            "uns/ce/model/config",
            lambda file, where: put(file, where, np.bytes_(b"\xff\xfe{"), "string"),
        ),
        "map.h5ad: uns['ce'] cannot be read: ",
    ),
    "a number for a group": (
        instead("uns/ce/model/arrays", lambda file, where: put(file, where, 3, "numeric-scalar")),
        "lacks 'config' or 'arrays'",
    ),
    "a table for a number": (
        instead("uns/ce/centers", lambda file, where: file.copy("obs", where)),
        "centers of shape",
    ),
    "renamed classes": (
        lambda file: file["uns/ce/classes"].write_direct(np.array(["a", "b", "d"], dtype=object)),
        "are not the classes of its map",
    ),
    "no label_key": (lambda file: file.__delitem__("uns/ce/params"), "params with a label_key"),
    "a changed weight": (
        lambda file: file[MEAN].write_direct(file[MEAN][()] + 1e-9),
        "the model is damaged",
    ),
}


def put(file: h5py.File, where: str, value: Any, kind: str) -> None:
    file.create_dataset(where, data=value)
    file[where].attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})


@pytest.mark.parametrize("name", HOSTILE)
def test_is_refused_with_a_sentence(name: str, file: Path) -> None:
    change, words = HOSTILE[name]
    with h5py.File(file, "r+") as opened:
        change(opened)

    with pytest.raises(ValueError, match=r"(?s).") as caught:
        read_reference(file, "ce", "cpu")

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_as_it_was_it_is_read(file: Path) -> None:
    found = read_reference(file, "ce", "cpu")
    assert found.classes.tolist() == ["a", "b", "c"]
    assert found.colors == ["#ff0000", "#00ff00", "#0000ff"]
    with pytest.raises(KeyError, match="uns has no map 'other'"):
        read_reference(file, "other", "cpu")


class TestStore:
    @pytest.fixture
    def store(self, original: Path, tmp_path: Path) -> Path:
        path = tmp_path / "map.zarr"
        ad.read_h5ad(original).write_zarr(path)
        return path

    def readers(self, store: Path) -> dict[str, Callable[[], object]]:
        return {
            "ingest": lambda: read_reference(store, "ce", "cpu"),
            "command": lambda: read_cells(store),
            "viewer": lambda: read_adata(store),
        }

    @pytest.mark.parametrize("reader", ["ingest", "command", "viewer"])
    def test_as_it_was_it_is_read(self, reader: str, store: Path) -> None:
        assert self.readers(store)[reader]() is not None

    @pytest.mark.parametrize("reader", ["ingest", "command", "viewer"])
    def test_a_size_that_is_not_stored(self, reader: str, store: Path) -> None:
        group = zarr.open_group(store, mode="r+", use_consolidated=False)
        attributes = dict(group[MEAN].attrs)
        del group[MEAN]
        made = group.create_array(MEAN, shape=(4 * 10**8,), dtype="f8", chunks=(10**6,))
        made.attrs.update(attributes)

        with pytest.raises((ValueError, OSError), match="arrays/mean is damaged: the store is too"):
            self.readers(store)[reader]()

    @pytest.mark.parametrize("reader", ["ingest", "command", "viewer"])
    def test_a_link_to_another_folder(self, reader: str, store: Path, tmp_path: Path) -> None:
        shutil.move(store / "uns" / "ce", tmp_path / "elsewhere")
        (store / "uns" / "ce").symlink_to(tmp_path / "elsewhere")

        with pytest.raises(OSError, match="uns/ce is a symbolic link"):
            self.readers(store)[reader]()


def test_the_viewer_reads_no_other_file(file: Path) -> None:
    with h5py.File(file, "r+") as opened:
        instead("uns/ce", external_link)(opened)
    with pytest.raises(OSError, match="uns/ce is a link, and what it leads to is not read"):
        read_adata(file)


@pytest.mark.parametrize("where", ["obsm", "uns", "obs", "uns/ce", "obsm/X_ce"])
def test_results_are_not_written_into_another_file(where: str, file: Path) -> None:
    with h5py.File(file, "r+") as opened:
        external_link_to = h5py.ExternalLink("other.h5ad", where)
        del opened[where]
        opened[where] = external_link_to
    before = {path: path.read_bytes() for path in Path().iterdir()}

    command = ["fit", "map.h5ad", "--label-key", "type", "--max-epochs", "1", "-o", "out.h5ad"]
    result = CliRunner().invoke(cli, command)

    assert result.exit_code == 1
    said = f"Error: map.h5ad cannot be read: /{where} is a link, and what it leads to is not read"
    assert said in result.stderr
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_a_damaged_reference_is_one_line_of_the_command(file: Path) -> None:
    shutil.copy(file, "query.h5ad")
    with h5py.File(file, "r+") as opened:
        opened["uns/ce/params"].attrs.modify("encoding-type", "mystery")

    command = ["ingest", "query.h5ad", "--reference", "map.h5ad", "-o", "out.h5ad", "-q"]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: map.h5ad: uns['ce'] cannot be read: ")
    assert result.stderr.count("\n") == 1


def read_mutants(start: int, n: int, seed: int, path: Path) -> None:
    """Read the map of mutants within limits of memory and time; print what comes of each."""
    content = path.read_bytes()
    mutant = path.with_name("mutant.h5ad")
    read_reference(path, "ce", "cpu")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    for i in range(start, n):
        rng, changed = np.random.default_rng([seed, i]), bytearray(content)
        for _ in range(rng.integers(1, 5)):
            at = int(rng.integers(len(changed)))
            if rng.random() < 0.1 and at:
                del changed[at:]
                break
            changed[at] = rng.integers(256)
        mutant.write_bytes(changed)
        signal.alarm(5)
        try:
            read_reference(mutant, "ce", "cpu")
            print("read", flush=True)
        except (ValueError, KeyError) as error:
            print("refused" if str(error).strip() else "without a word", flush=True)
        except Exception as error:
            raise AssertionError(f"mutant {i} of {seed}") from error
        finally:
            signal.alarm(0)


@pytest.mark.parametrize(
    ("n", "seed"), [(40, 0), pytest.param(cases(2_000), 1, marks=pytest.mark.slow)]
)
def test_mutants_are_harmless_or_refused(n: int, seed: int, file: Path) -> None:
    if not Path("/proc/self/statm").exists():
        pytest.skip("the limit of memory is counted from /proc")
    found: list[str] = []
    module: list[Any] = [sys.executable, "-W", "ignore", "-m", "tests.tl.test_containers"]
    while len(found) < n:
        command = [*module, len(found), n, seed, file.resolve()]
        done = subprocess.run(
            [*map(str, command)],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            timeout=280,
        )
        found += done.stdout.split("\n")[:-1]
        if -done.returncode in (signal.SIGALRM, signal.SIGSEGV, signal.SIGABRT):
            # HDF5 itself never comes back from some damage of its heaps, or ends the process.
            found.append("lost in HDF5")
        else:
            assert done.returncode == 0, done.stderr[-2000:]
    assert set(found) <= {"read", "refused", "lost in HDF5"}
    assert found.count("lost in HDF5") <= 0.05 * n


if __name__ == "__main__":
    read_mutants(*map(int, sys.argv[1:4]), Path(sys.argv[4]))
    # HDF5 may not end where it has seen damaged files.
    os._exit(0)
