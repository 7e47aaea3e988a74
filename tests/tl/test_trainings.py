"""Many trainings at once: the same bits as one by one, and nothing left behind however it ends."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anndata as ad
import joblib
import numpy as np
import psutil
import pytest
from centroid_encoder.tl._trainings import device_in_turn
from joblib._parallel_backends import ThreadingBackend
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.errors import Advice, DivergedError, InputError, Setting, WorkerError
from centroid_encoder.tl._jobs import Progress
from tests.conftest import frozen

FOREVER = ce.CentroidEncoder(hidden=(16,), max_epochs=10**6)

if not hasattr(signal, "SIGKILL"):
    pytest.skip("processes are ended as on POSIX", allow_module_level=True)


@pytest.fixture(autouse=True)
def _mapped() -> Iterator[None]:
    """As with large data: what is longer than 100 bytes is mapped into the memory of workers."""
    with joblib.parallel_config(max_nbytes=100):
        yield


@pytest.fixture
def validated(make_cells, fast) -> Callable[..., ad.AnnData]:
    """Cross-validate cells of three donors, some of them without a label."""

    def run(*, sparse_as=np.asarray, gaps=False, **arguments: Any) -> ad.AnnData:
        cells = make_cells(n_obs=90, distance=1.0)
        cells.obs["donor"] = np.resize(list("aabbc"), 90)
        cells.obs.iloc[:4, 0] = np.nan
        if gaps:
            cells.X[[5, 50], 2] = np.nan
        cells.X = sparse_as(cells.X)
        arguments = {"model": fast, "progress": False} | arguments
        ce.tl.cross_validate(cells, "cell_type", **arguments)
        return cells

    return run


@pytest.fixture
def registered(tmp_path, monkeypatch) -> Callable[[], list[int]]:
    """Processes in which a training runs that this test has begun."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return lambda: running(tmp_path)


def running(folder: Path) -> list[int]:
    # A file may be empty yet.
    return [int(file.read_text() or 0) for file in folder.glob("centroid-encoder-*/*")]


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise TimeoutError(f"not within {seconds} s")


def is_alive(process: int) -> bool:
    try:
        # One that has ended is there until somebody asks for its exit status.
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# -- the same bits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_folds": 2, "n_repeats": 2, "n_permutations": 3},
        {"group_key": "donor", "n_permutations": 2, "sparse_as": sparse.csr_matrix},
        {"n_folds": 3, "gaps": True, "missing": "mean"},
        {"n_folds": 2, "model": ce.CentroidEncoder(max_epochs=3, placement="voronoi")},
    ],
    ids=["folds, repeats, permutations", "groups", "gaps", "voronoi"],
)
def test_two_at_once_are_the_same_bits(validated, arguments):
    assert frozen(validated(**arguments, n_jobs=2)) == frozen(validated(**arguments))


class Waiting(ThreadingBackend):
    """Returns when all is done, as Ray's, which is a child of joblib's for multiprocessing."""

    supports_return_generator = False


joblib.register_parallel_backend("waiting", Waiting)


@pytest.mark.parametrize(
    ("backend", "n_jobs", "at_once"),
    [
        ("loky", 2, True),
        ("threading", 2, True),
        ("waiting", 2, True),
        ("loky", 1, False),
        (None, None, False),
    ],
)
def test_joblib_is_asked_how_many_and_where(make_cells, fast, validated, backend, n_jobs, at_once):
    job = ce.tl.cross_validate.job(make_cells(), "cell_type", model=fast, n_folds=2)
    if backend is None:
        steps = list(job.steps())
    else:
        with joblib.parallel_config(backend=backend, n_jobs=n_jobs, max_nbytes=100):
            steps = list(job.steps())
    if at_once:
        assert steps == [Progress(n, 2, "training") for n in range(3)]
    else:
        assert [type(step) for step in steps] == [Report] * 10


def test_no_more_processes_than_trainings(validated):
    validated(n_folds=2, n_jobs=30)
    children = [child for child in psutil.Process().children() if is_alive(child.pid)]
    assert sum("popen_loky" in " ".join(child.cmdline()) for child in children) == 2


@pytest.mark.slow
def test_dask_gives_the_same_bits(validated):
    distributed = pytest.importorskip("distributed", reason="Dask's workers need distributed")
    arguments = {"n_folds": 3, "n_permutations": 2, "sparse_as": sparse.csr_matrix}
    expected = validated(**arguments)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        found = validated(**arguments)
        tasks = {key for key, *_ in cluster.scheduler.transition_log if key.startswith("batch")}
    # Nothing that a training asks scikit-learn for goes its own ways.
    assert tasks
    assert all("_train_" in task for task in tasks)
    assert frozen(found) == frozen(expected)


def test_who_does_not_know_how_many_gets_as_many_as_pay(make_cells):
    cpu = ce.CentroidEncoder(device="cpu")

    def suitable(**arguments: Any) -> int:
        cells = make_cells(n_obs=300)
        return ce.tl.cross_validate.job(cells, "cell_type", model=cpu, **arguments).suitable_jobs

    assert suitable() == 1
    assert suitable(n_permutations=3) == joblib.cpu_count()


def test_gpus_are_taken_in_turn():
    assert [device_in_turn("auto", i, 2) for i in range(4)] == ["cuda:0", "cuda:1"] * 2
    assert [device_in_turn("cuda", i, 3) for i in (2, 3)] == ["cuda:2", "cuda:0"]
    for device in ("cpu", "cuda:1"):
        assert device_in_turn(device, 0, 2) == device
    for n_devices in (0, 1):
        assert device_in_turn("auto", 1, n_devices) == "auto"


# -- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [0, 1.5, "2", True])
def test_numbers_of_trainings_that_cannot_be(make_cells, n_jobs):
    with pytest.raises(InputError, match="n_jobs"):
        ce.tl.cross_validate(make_cells(), "cell_type", n_jobs=n_jobs)


def test_an_error_is_that_of_one_by_one(cells, unchanged):
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, learning_rate=1e30)
    said = []
    for n_jobs in (1, 2):
        with unchanged(cells), pytest.raises(DivergedError) as caught:
            ce.tl.cross_validate(cells, "cell_type", model=model, n_jobs=n_jobs, progress=False)
        said.append(str(caught.value))
        assert caught.value.message.settings == (Setting("learning_rate"),)
    assert "a smaller learning_rate helps" in said[0]
    assert said[0].rpartition(" epoch ")[0] == said[1].rpartition(" epoch ")[0]


@pytest.mark.parametrize("setting", [Setting("missing"), Advice("n_jobs", 1)])
def test_settings_are_themselves_in_another_process(setting):
    again = pickle.loads(pickle.dumps(setting))
    assert again == setting
    assert str(again) == str(setting)


def test_a_dead_process_is_named(cells, fast, unchanged, registered):
    job = ce.tl.cross_validate.job(cells, "cell_type", model=FOREVER, n_folds=2, n_jobs=2)
    killed: list[int] = []

    def kill() -> None:
        wait_for(lambda: len(registered()) == 2 and all(registered()))
        killed.append(registered()[0])
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with unchanged(cells), pytest.raises(WorkerError) as caught:
        list(job.steps())
    thread.join()
    text = str(caught.value)
    assert text.startswith("one of the processes that train has died (SIGKILL(-9)): process ")
    assert f"process {killed[0]} at fold " in text
    assert text.endswith("; if memory ran out, pass n_jobs=1")
    assert registered() == []
    # The next one has processes of its own.
    job = ce.tl.cross_validate.job(cells, "cell_type", model=fast, n_folds=2, n_jobs=2)
    assert len(list(job.steps())) == 3


# -- stopping ------------------------------------------------------------------------------------


def test_stop_ends_the_workers(cells, unchanged, registered):
    job = ce.tl.cross_validate.job(cells, "cell_type", model=FOREVER, n_folds=2, n_jobs=2)
    seen: list[int] = []

    def stop() -> bool:
        seen.extend(registered())
        return len(set(seen) - {0}) == 2

    with unchanged(cells), pytest.raises(StoppedTooEarly):
        list(job.steps(stop=stop))
    assert registered() == []
    workers = set(seen) - {0}
    assert os.getpid() not in workers
    wait_for(lambda: not any(map(is_alive, workers)), 10)


def test_stop_between_two_steps(cells, fast, unchanged, registered):
    job = ce.tl.cross_validate.job(cells, "cell_type", model=fast, n_jobs=2)
    seen: list[Any] = []
    with unchanged(cells), pytest.raises(StoppedTooEarly):
        seen.extend(job.steps(stop=lambda: len(seen) > 1))
    assert seen[-1].n_done < 5
    assert registered() == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closed", "interrupted"])
def test_given_up_between_two_steps(cells, unchanged, registered, how):
    job = ce.tl.cross_validate.job(cells, "cell_type", model=FOREVER, n_folds=2, n_jobs=2)
    steps = job.steps()
    with unchanged(cells):
        assert next(steps) == Progress(0, 2, "training")
        if how == "closed":
            steps.close()
        else:
            with pytest.raises(KeyboardInterrupt):
                steps.throw(KeyboardInterrupt())
    assert registered() == []


@contextmanager
def program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program in a process group of its own, as a terminal begins it, that trains forever."""
    code = f"""
import tempfile
import numpy as np, pandas as pd, anndata as ad, centroid_encoder as ce

tempfile.tempdir = {str(tmp_path)!r}
rng = np.random.default_rng(0)
obs = pd.DataFrame({{"t": pd.Categorical(np.resize(["a", "b"], 60))}}, index=map(str, range(60)))
model = ce.CentroidEncoder(hidden=(16,), max_epochs=10**6)
ce.tl.cross_validate(
    ad.AnnData(rng.normal(size=(60, 5)), obs=obs), "t", n_folds=2, n_jobs=2, model=model
)
"""
    (tmp_path / "joblib").mkdir()
    done = subprocess.Popen(
        [sys.executable, "-c", code],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JOBLIB_TEMP_FOLDER": str(tmp_path / "joblib")},
        # What begins in the background of a script ignores Ctrl-C, tests too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield done
    finally:
        with suppress(ProcessLookupError):
            os.killpg(done.pid, signal.SIGKILL)
        done.communicate()


def test_ctrl_c_leaves_no_process(tmp_path):
    with program(tmp_path) as main:
        workers = wait_for(lambda: len(running(tmp_path)) == 2 and running(tmp_path))
        # A terminal sends it to all of them.
        os.killpg(main.pid, signal.SIGINT)
        _, said = main.communicate(timeout=30)
        assert said.rstrip().endswith("KeyboardInterrupt")
        assert main.returncode == -signal.SIGINT
        assert not any(map(is_alive, workers))
        assert list(tmp_path.iterdir()) == [tmp_path / "joblib"]
        # A process of joblib's own takes away what was shared.
        wait_for(lambda: not list((tmp_path / "joblib").iterdir()), 10)


@pytest.mark.slow
def test_without_anybody_who_waits_workers_stop_training(tmp_path):
    with program(tmp_path) as main:
        wait_for(lambda: len(running(tmp_path)) == 2)
        os.kill(main.pid, signal.SIGKILL)
        # They tick themselves off.
        wait_for(lambda: not running(tmp_path), 20)
