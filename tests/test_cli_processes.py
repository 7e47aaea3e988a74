"""`centroid-encoder fit` under torchrun: one result, one message, and nobody who waits for ever."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import anndata as ad
import numpy as np
import pytest
from click.testing import CliRunner

from centroid_encoder.cli import cli
from tests.conftest import MakeCells
from tests.torchrun import TORCHRUN, ended, start, torchrun

TORCHRUNS = pytest.mark.skipif(
    sys.platform == "win32", reason="torchrun does not start programs on every Windows"
)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
FIT = ("-m", "centroid_encoder", "fit", "in.h5ad", "--label-key", "cell_type", "--device", "cpu")


@pytest.fixture
def folder(make_cells: MakeCells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with cells in ``in.h5ad``, of which not all are easy."""
    make_cells(n_classes=4, n_obs=300, distance=1.0).write_h5ad(tmp_path / "in.h5ad")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def alone(*arguments: object) -> dict[str, Any]:
    """Map and quality of one process."""
    command = [*FIT, *map(str, arguments), "-o", "alone.h5ad", "--quiet"]
    status, _, told = ended(start(sys.executable, *command))
    assert status == 0, told
    return ad.read_h5ad("alone.h5ad").uns["ce"]


def check_as_alone(output: str, one: dict[str, Any]) -> None:
    """First-epoch losses are the same to 1e-5, errors within one standard error."""
    several = ad.read_h5ad(output).uns["ce"]
    losses = [float(uns["history"]["loss"].iloc[0]) for uns in (one, several)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for rule in ("knn_error", "voronoi_error"):
        error, n = float(one["quality"]["test"][rule]), int(one["quality"]["test"]["n"])
        allowed = np.sqrt(max(error * (1 - error), 1 / n) / n)
        assert abs(float(several["quality"]["test"][rule]) - error) <= allowed


def children(program: subprocess.Popen[str]) -> dict[int, int]:
    """Processes that a torchrun has started, by their rank."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int(path.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            variables = path.joinpath("environ").read_bytes().split(b"\0")
            if parent == program.pid:
                # One that has ended, but was not waited for yet, has no variables any more.
                for one in variables:
                    if one.startswith(b"RANK="):
                        found[int(one[5:])] = int(path.name)
    return found


def wait_for_training(program: subprocess.Popen[str]) -> None:
    """Wait until it says that an epoch is over; what it says later is for `ended`."""
    assert program.stderr is not None
    said = ""
    while not re.search(r"\b[1-9]\d*/\d+ \[", said):
        more = program.stderr.read(1)
        assert more, said
        said += more


@TORCHRUNS
def test_two_processes_write_what_one_writes_and_say_it_once(folder: Path) -> None:
    one = alone("--max-epochs", 8)
    program = torchrun(
        2, *FIT, "--max-epochs", 8, "-o", "two.h5ad", "--model-out", "two.safetensors", "--json"
    )

    status, out, told = ended(program)

    assert status == 0, told
    document = json.loads(out)
    assert document["output"] == "two.h5ad"
    assert told.count("computing centroid-encoder of 'cell_type'") == 1
    check_as_alone("two.h5ad", one)
    names = {path.name for path in folder.iterdir()}
    assert names == {"in.h5ad", "alone.h5ad", "two.h5ad", "two.safetensors"}


@pytest.mark.slow
@TORCHRUNS
def test_what_is_wrong_is_said_once_and_nothing_is_written(folder: Path) -> None:
    status, out, told = ended(torchrun(2, *FIT, "--layer", "counts", "-o", "two.h5ad"))

    assert status == 1
    assert out == ""
    assert re.findall("^Error: .*counts", told, re.MULTILINE)
    assert told.count("\nError: ") <= 1
    assert not re.search(r"Process \d", told)
    assert [path.name for path in folder.iterdir()] == ["in.h5ad"]


def test_other_commands_are_for_one_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TORCHELASTIC_RUN_ID", "1"), ("WORLD_SIZE", "2"), ("RANK", "0")):
        monkeypatch.setenv(name, value)
    command = ["cross-validate", "in.h5ad", "--label-key", "cell_type", "-o", "out.h5ad"]

    result = CliRunner().invoke(cli, command)

    assert result.exit_code == 2
    assert "start cross-validate without torchrun" in result.stderr


@pytest.mark.slow
@LINUX
def test_without_the_other_process_the_first_ends_with_a_message(folder: Path) -> None:
    program = torchrun(2, *FIT, "--max-epochs", 5000, "-o", "two.h5ad")
    wait_for_training(program)

    os.kill(children(program)[1], signal.SIGKILL)
    start = time.monotonic()
    status, out, told = ended(program, 60)

    assert time.monotonic() - start < 30, told
    assert status == 1
    assert out == ""
    # torchrun ends those that are left; which of the two is quicker is chance.
    assert "lost each other" in told or "Interrupted" in told
    assert "SIGKILL" in told
    assert [path.name for path in folder.iterdir()] == ["in.h5ad"]


@pytest.mark.slow
@LINUX
def test_who_waits_for_a_process_that_hangs_hears_signals(folder: Path) -> None:
    program = torchrun(2, *FIT, "--max-epochs", 5000, "-o", "two.h5ad")
    wait_for_training(program)
    found = children(program)

    os.kill(found[1], signal.SIGSTOP)
    time.sleep(2)
    os.kill(found[0], signal.SIGTERM)
    end = time.monotonic() + 15
    while found[0] in children(program).values() and time.monotonic() < end:
        time.sleep(0.1)
    left = found[0] in children(program).values()
    os.kill(found[1], signal.SIGCONT)
    status, out, told = ended(program, 60)

    assert not left, told
    assert (status, out) == (1, "")
    assert "Interrupted" in told
    assert [path.name for path in folder.iterdir()] == ["in.h5ad"]


@pytest.mark.slow
@LINUX
def test_a_process_that_hangs_for_a_while_is_waited_for(folder: Path) -> None:
    program = torchrun(2, *FIT, "--max-epochs", 200, "-o", "two.h5ad")
    wait_for_training(program)
    other = children(program)[1]

    os.kill(other, signal.SIGSTOP)
    time.sleep(4)
    assert program.poll() is None
    os.kill(other, signal.SIGCONT)
    status, _, told = ended(program)

    assert status == 0, told
    assert {path.name for path in folder.iterdir()} == {"in.h5ad", "two.h5ad"}


class Machine(NamedTuple):
    """Where one of two torchruns is started."""

    prefix: tuple[str, ...] = ()
    address: str = "127.0.0.1"
    interface: str = "lo"


@contextmanager
def on_two(folder: Path, machines: list[Machine], *options: object) -> Iterator[list[Any]]:
    """Two torchruns of one process each; they meet where the first one is."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    with ExitStack() as stack:
        programs = []
        for i, machine in enumerate(machines):
            place = folder / f"machine{i}"
            place.mkdir(exist_ok=True)
            shutil.copy(folder / "in.h5ad", place)
            program = start(
                *(*machine.prefix, *TORCHRUN, "--nnodes=2", "--nproc-per-node=1"),
                *(f"--node-rank={i}", f"--master-addr={machines[0].address}"),
                *(f"--master-port={port}", *FIT, *options, "-o", "out.h5ad"),
                cwd=place,
                env={"GLOO_SOCKET_IFNAME": machine.interface},
            )
            stack.enter_context(program)
            stack.callback(program.kill)
            programs.append(program)
        yield programs


@pytest.fixture
def namespaces() -> Iterator[list[Machine]]:
    """Two network namespaces with an address each, joined by a cable."""
    if shutil.which("ip") is None or os.geteuid():
        pytest.skip("network namespaces need root and iproute2")
    names = [f"ce{os.getpid()}{end}" for end in "ab"]
    with ExitStack() as stack:
        for name in names:
            made = ip("netns", "add", name)
            if made.returncode:
                pytest.skip(f"network namespaces cannot be made here: {made.stderr.strip()}")
            stack.callback(ip, "netns", "del", name)
        a, b = names
        done = [ip("link", "add", "cea", "netns", a, *VETH, b)]
        machines = []
        for i, (name, end) in enumerate(zip(names, ("cea", "ceb"), strict=True)):
            address = f"10.213.7.{i + 1}"
            done.append(ip("-n", name, "address", "add", f"{address}/24", "dev", end))
            done += [ip("-n", name, "link", "set", device, "up") for device in (end, "lo")]
            machines.append(Machine(("ip", "netns", "exec", name), address, end))
        assert not any(one.returncode for one in done), [one.stderr for one in done]
        yield machines


VETH = ("type", "veth", "peer", "name", "ceb", "netns")


def ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], capture_output=True, encoding="utf-8")


def check_two_machines(folder: Path, machines: list[Machine]) -> None:
    """One training, and one in which the second machine's process dies."""
    one = alone("--max-epochs", 8)
    with on_two(folder, machines, "--max-epochs", 8) as programs:
        ends = [ended(program) for program in programs]
    assert [status for status, _, _ in ends] == [0, 0], ends
    # The first machine has the results, and says what they are.
    assert [bool(out) for _, out, _ in ends] == [True, False]
    (found,) = folder.glob("machine*/out.h5ad")
    assert found.parent.name == "machine0"
    check_as_alone(str(found), one)
    found.unlink()

    with on_two(folder, machines, "--max-epochs", 5000) as programs:
        first, second = programs
        wait_for_training(first)
        os.kill(children(second)[1], signal.SIGKILL)
        killed = time.monotonic()
        status, out, told = ended(first, 60)
        assert time.monotonic() - killed < 30
        assert (status, out) == (1, "")
        assert "Error: the processes of this training have lost each other" in told
        status, _, _ = ended(second, 60)
        assert status == 1
    assert not list(folder.glob("machine*/out.h5ad"))


@pytest.mark.slow
@LINUX
def test_two_torchruns_train_together(folder: Path) -> None:
    check_two_machines(folder, [Machine(), Machine()])


@pytest.mark.slow
@LINUX
def test_so_do_two_with_an_address_each(folder: Path, namespaces: list[Machine]) -> None:
    check_two_machines(folder, namespaces)


@pytest.mark.slow
@TORCHRUNS
def test_four_processes_write_what_one_writes(folder: Path) -> None:
    one = alone("--max-epochs", 8)

    status, _, told = ended(torchrun(4, *FIT, "--max-epochs", 8, "-o", "four.h5ad"))

    assert status == 0, told
    check_as_alone("four.h5ad", one)
