"""Programs are kept running, patiently, and end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faultlens.supervisor import LONGEST_WAIT_SECONDS, next_wait_s

RUN = """
import sys
from functools import partial
from faultlens.supervisor import Supervisor
programs = {{name: partial(exec, program) for name, program in {programs!r}.items()}}
sys.exit(Supervisor(programs, lambda line: print(line, flush=True), final=frozenset({{2}})).run())
"""
LASTS = "import signal; signal.pause()"


@contextmanager
def supervised(**programs: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", RUN.format(programs=programs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as process:
        yield process


def line(process: subprocess.Popen[str], *, containing: str) -> str:
    assert process.stdout is not None
    return next(said for said in process.stdout if containing in said)


def test_patience_grows_up_to_a_limit() -> None:
    waits = [next_wait_s(failures) for failures in range(1, 20)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.5, LONGEST_WAIT_SECONDS)


def test_what_ends_is_started_anew_and_all_end_with_the_supervisor() -> None:
    with supervised(one="raise SystemExit(70)", two=LASTS) as process:
        pid = int(line(process, containing="two runs as").split()[-1])
        line(process, containing="one ended with 70; again in 0.5 s")
        line(process, containing="one ended with 70; again in 1.0 s")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_will_not_do_better_the_next_time_ends_all() -> None:
    with supervised(one="raise SystemExit(2)", two=LASTS) as process:
        assert process.wait(60) == 2
