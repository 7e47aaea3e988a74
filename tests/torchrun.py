"""Programs in several processes, as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


def start(*command: object, **options: Any) -> subprocess.Popen[str]:
    """Start a program that takes one thread."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    return subprocess.Popen(
        [*map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env=environment | options.pop("env", {}),
        **options,
    )


def torchrun(n: int, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start n processes of a program on this machine."""
    return start(*TORCHRUN, "--standalone", f"--nproc-per-node={n}", *arguments, **options)


def ended(program: subprocess.Popen[str], seconds: float = 120) -> tuple[int, str, str]:
    """Wait for a program; return its exit status and what it has said on stdout and stderr."""
    try:
        out, err = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        program.terminate()
        out, err = program.communicate()
        raise AssertionError(f"it has not ended after {seconds} s:\n{out}\n{err}") from None
    return program.returncode, out, err
