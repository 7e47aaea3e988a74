"""Exit statuses of processes whose stdout or stderr is closed or full."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anndata as ad
import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX")

FIT = "fit in.h5ad --label-key cell_type --max-epochs 1 --quiet -o out.h5ad"


@pytest.fixture
def folder(cells: ad.AnnData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cells.write_h5ad(tmp_path / "in.h5ad")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shell(command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Bash; CE stands for centroid-encoder."""
    return subprocess.run(
        ["bash", "-c", command.replace("CE ", f"{sys.executable} -m centroid_encoder ")],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"OMP_NUM_THREADS": "1"} | env,
        timeout=100,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("CE --version", 0),
        ("CE --version <&- >&- 2>&-", 0),
        ("CE --version 2>/dev/full", 0),
        ("CE --version >/dev/full", 3),
        ("CE --help | true; exit ${PIPESTATUS[0]}", 0),
        ("CE fit nowhere.h5ad 2>&-", 2),
        pytest.param("CE plot voronoi in.h5ad -o a.png 2>&-", 1, marks=pytest.mark.slow),
    ],
)
def test_the_exit_status(command: str, status: int, folder: Path) -> None:
    done = shell(command)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    if status == 3 and "2>" not in command:
        assert done.stderr.startswith("Error: stdout could not be written: No space left")


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (f"CE {FIT} --json | true; exit ${{PIPESTATUS[0]}}", 0),
        pytest.param(f"CE {FIT} >/dev/full", 3, marks=pytest.mark.slow),
        pytest.param(f"CE {FIT} <&- >&- 2>&-", 0, marks=pytest.mark.slow),
    ],
)
def test_files_are_written_if_stdout_is_not(command: str, status: int, folder: Path) -> None:
    done = shell(command)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert "X_ce" in ad.read_h5ad("out.h5ad").obsm
    assert sorted(os.listdir()) == ["in.h5ad", "out.h5ad"]


@pytest.mark.slow
def test_a_name_that_cannot_be_shown_is_no_error(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9\xff.h5ad")
    done = shell(f"CE {FIT.replace('out.h5ad', name)}", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "Wrote caf" in done.stdout
    done = shell(f"CE {FIT.replace('out.h5ad', name)} --json")
    assert json.loads(done.stdout)["output"] == name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signals_leave_nothing(name: str, folder: Path) -> None:
    number = getattr(signal, name)
    options = [*FIT.replace("--quiet", "").split(), "--max-epochs", "1000000"]
    working = subprocess.Popen(
        [sys.executable, "-m", "centroid_encoder", *options],
        stderr=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert working.stderr is not None
    try:
        seen = ""
        while "epoch/s, loss" not in seen:
            read = working.stderr.read(1)
            assert read, seen
            seen += read
        working.send_signal(number)
        _, said = working.communicate(timeout=60)
    finally:
        working.kill()
    assert working.returncode == 128 + number
    assert said.endswith("\nInterrupted\n")
    assert os.listdir() == ["in.h5ad"]
