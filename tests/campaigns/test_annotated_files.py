"""Damaged and hostile ``.h5ad`` files as reference, and as what a figure is drawn of.

Each file is read in a process of its own kind: what ends that process counts as a crash, and what
asks for gigabytes is refused by the system.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pytest

import centroid_encoder as ce
from tests.campaigns.outcomes import Outcomes
from tests.cases import cases

N_FILES = cases(1200)
ROOT = Path(__file__).parents[2]
PATIENCE = 20
"""Seconds after which a reader does not come back."""
BYTES = "bytes"
"""What the descriptions of damaged bytes begin with."""
MEMORY = 3 << 30
"""Bytes of address space beyond which a reader gets a MemoryError."""

READER = """
import json, resource, sys, traceback, warnings
import anndata as ad, matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import centroid_encoder as ce
from tests.campaigns.outcomes import judge

warnings.simplefilter("ignore")
query = ad.read_h5ad(sys.argv[1])
ce.tl.ingest(query, sys.argv[2], progress=False, copy=True)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[3]), resource.RLIM_INFINITY))
for line in sys.stdin:
    path = line.strip()
    try:
        ce.tl.ingest(query, path, progress=False, copy=True)
        outcome = "fine", path, ""
    except BaseException as error:
        outcome = judge(error, path)
    print(json.dumps(outcome), flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_mutated_references(
    cells: ad.AnnData, record_property: Callable[[str, object], None], tmp_path: Path
) -> None:
    outcomes = Outcomes(record_property)
    query, whole = tmp_path / "query.h5ad", tmp_path / "whole.h5ad"
    cells.write_h5ad(query)
    model = ce.CentroidEncoder(hidden=(4,), max_epochs=1)
    ce.tl.centroid_encoder(cells, "cell_type", model=model, progress=False)
    cells.write_h5ad(whole)
    secret = tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["numbers"] = np.arange(100.0)
    before = secret.read_bytes()
    reader = None
    for seed in range(N_FILES):
        mutant = tmp_path / f"mutant{seed}.h5ad"
        said = mutate(np.random.default_rng(seed), whole, mutant, secret)
        reader = reader or start(query, whole)
        answer = ask(reader, mutant)
        if answer is None:
            # Where bytes of its own structures are damaged, HDF5 may end the process or loop.
            outcome = "lost in HDF5" if said.startswith(BYTES) else "crash"
            outcomes.count(outcome, f"{seed}: {said}", f"the reader ended with {end(reader)}")
            reader = None
        else:
            outcomes.count(answer[0], f"{seed}: {said}", answer[2])
        mutant.unlink()
    if reader is not None:
        end(reader)
    if secret.read_bytes() != before:
        outcomes.count("other", "external links", "the file that they lead to was written")
    outcomes.check(at_most={"lost in HDF5": 1 + N_FILES // 100})


def start(query: Path, whole: Path) -> subprocess.Popen[str]:
    """Start a process that reads each file whose name it is told."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([*sys.path, str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-c", READER, str(query), str(whole), str(MEMORY)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def end(reader: subprocess.Popen[str]) -> int:
    """End a reader, which HDF5 may keep from ending by itself, and return its status."""
    reader.kill()
    reader.communicate()
    return reader.returncode


def ask(reader: subprocess.Popen[str], path: Path) -> list[str] | None:
    """Return what became of a file, or None if the reader has ended."""
    assert reader.stdin is not None
    assert reader.stdout is not None
    try:
        reader.stdin.write(f"{path}\n")
        reader.stdin.flush()
    except BrokenPipeError:
        return None
    if not select.select([reader.stdout], [], [], PATIENCE)[0]:
        return None
    line = reader.stdout.readline()
    answer: list[str] | None = json.loads(line) if line else None
    return answer


def mutate(rng: np.random.Generator, whole: Path, mutant: Path, secret: Path) -> str:
    """Write a damaged copy, and say how it was damaged."""
    content = bytearray(whole.read_bytes())
    if rng.random() < 0.5:
        if rng.random() < 0.2:
            size = int(rng.integers(0, len(content)))
            mutant.write_bytes(content[:size])
            return f"{BYTES} cut at {size}"
        places = rng.integers(0, len(content), rng.integers(1, 9))
        for place in places:
            content[place] = rng.integers(256)
        mutant.write_bytes(content)
        return f"{BYTES} changed at {sorted(map(int, places))}"
    mutant.write_bytes(content)
    with h5py.File(mutant, "r+") as file:
        found: list[str] = []
        file.visit(found.append)
        # Half of the damage is done to the map itself.
        inside = [name for name in found if name.startswith("uns/ce")]
        name = str(rng.choice(inside if rng.random() < 0.7 else found))
        damage = str(rng.choice([*DAMAGES]))
        DAMAGES[damage](file, name, rng, secret)
        return f"{damage} {name}"


def _delete(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    del file[name]


def _link_out(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    del file[name]
    file[name] = h5py.ExternalLink(str(secret), "/numbers")


def _link_to_nothing(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    del file[name]
    file[name] = h5py.SoftLink("/nowhere")


def _link_to_itself(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    del file[name]
    file[name] = file


def _store_raw(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    attributes = dict(file[name].attrs)
    shape = getattr(file[name], "shape", None) or (10,)
    del file[name]
    made = file.create_dataset(
        name, shape, dtype="f4", external=[(str(secret), 0, h5py.h5f.UNLIMITED)]
    )
    made.attrs.update(attributes)


def _declare_huge(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    attributes = dict(file[name].attrs)
    n_axes = len(getattr(file[name], "shape", (1,))) or 1
    del file[name]
    shape = (400_000_000, *[1] * (n_axes - 1))
    file.create_dataset(name, shape, dtype="f8", chunks=(1 << 16, *[1] * (n_axes - 1)))
    file[name].attrs.update(attributes)


def _other_numbers(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    attributes = dict(file[name].attrs)
    shape = getattr(file[name], "shape", (3,))
    del file[name]
    kind = rng.choice(["f8", "i1", "?", "S5", "c16"])
    fill = rng.choice([np.nan, np.inf, 1e30, -1.0, 0.0])
    with np.errstate(all="ignore"):
        file[name] = np.full(shape, fill).astype(kind)
    file[name].attrs.update(attributes)


def _other_shape(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    attributes = dict(file[name].attrs)
    del file[name]
    file[name] = rng.normal(size=rng.integers(0, 5, rng.integers(0, 4)))
    file[name].attrs.update(attributes)


def _other_text(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    attributes = dict(file[name].attrs)
    del file[name]
    text = rng.choice(["", "{}", "[]", "null", "[[[[", '{"format": 99}', "NaN", "x" * 10_000])
    file[name] = str(text)
    file[name].attrs.update(attributes)


def _bad_utf8(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    attributes = dict(file[name].attrs)
    del file[name]
    file.create_dataset(name, data=b"\xff\xfe\x80", dtype=h5py.string_dtype())
    file[name].attrs.update(attributes)


def _no_encoding(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    for attribute in list(file[name].attrs):
        del file[name].attrs[attribute]


def _other_encoding(file: h5py.File, name: str, rng: np.random.Generator, secret: Path) -> None:
    kinds = ["dataframe", "array", "csr_matrix", "categorical", "dict", "string", "raw", "magic"]
    file[name].attrs["encoding-type"] = str(rng.choice(kinds))


DAMAGES: dict[str, Callable[[h5py.File, str, np.random.Generator, Path], None]] = {
    "delete": _delete,
    "link out of the file": _link_out,
    "link to nothing": _link_to_nothing,
    "link to itself": _link_to_itself,
    "raw storage outside": _store_raw,
    "declare huge": _declare_huge,
    "other numbers": _other_numbers,
    "other shape": _other_shape,
    "other text": _other_text,
    "bad UTF-8": _bad_utf8,
    "no encoding": _no_encoding,
    "other encoding": _other_encoding,
}
