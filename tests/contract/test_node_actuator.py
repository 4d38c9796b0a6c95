"""Programs of the host that take long: in time, with signs of life, and none left behind or run beside itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag

import msgspec
import pytest
from msgspec.structs import replace

from actuators import Failed
from actuators.ledger import Ledger
from actuators.node import Node, Programs
from actuators.programs import run
from actuators.watched import Running, run_all, started_at
from faultlens.clock import MINUTE_MS
from tests.contract.acting import DRAIN, T0, Bench, Clock

VALIDATE = replace(DRAIN, action="validate")
FOREVER = ("sh", "-c", "sleep 1000 & wait")


def is_running(pid: int) -> bool:
    return bool(started_at(pid))


def host(ledger: Ledger, boot: Path, **programs: tuple[str, ...]) -> Node:
    boot.write_text("boot-1\n", "ascii")
    return Node("node-1", Programs(**programs), ledger.memory_of, boot_id=boot)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("program", "state", "reason"),
    [
        (("true",), "succeeded", "validation passed"),
        (("sh", "-c", "echo m; echo 'GPU 3\x1b[31m' >&2; exit 3"), "failed", "sh ended with 3: m GPU 3?[31m"),
        (("no-such-program",), "failed", "no-such-program cannot be run: No such file or directory"),
        (("sh", "-c", "yes | head -c 10000000; exit 1"), "failed", "sh ended with 1: y y y"),
    ],
)  # fmt: skip
def test_a_validation_ends_as_its_program_does_and_its_last_words_are_told(
    program: tuple[str, ...], state: str, reason: str, ledger: Ledger, tmp_path: Path
) -> None:
    bench = Bench(host(ledger, tmp_path / "boot", validate=program), ledger)
    assert bench.worker.take(VALIDATE) == state
    said = bench.results[-1].reason or ""
    assert (said.startswith(reason), said.isprintable(), len(said) < 400) == (True, True, True)


def test_a_program_that_hangs_is_ended_with_all_that_it_began_when_its_time_is_over(
    ledger: Ledger, tmp_path: Path
) -> None:
    clock, pid = Clock(), tmp_path / "pid"
    acting = host(ledger, tmp_path / "boot", validate=("sh", "-c", f"sleep 1000 & echo $! > {pid}; wait"))
    bench = Bench(acting, ledger, clock)
    worker = bench.worker

    class Passes:
        """A clock on which each look takes ten minutes."""

        def __call__(self) -> int:
            clock.now_ms += 10 * MINUTE_MS if pid.exists() and pid.read_text() else 0
            return clock.now_ms

    worker._now_ms = Passes()
    assert worker.take(VALIDATE) == "failed"
    assert bench.results[-1].reason == "not ended in time"
    for _ in range(200):  # the kernel takes its time over those that are killed
        if is_running(int(pid.read_text())):
            Flag().wait(0.05)
    assert not is_running(int(pid.read_text()))


def test_what_a_killed_one_left_running_is_ended_before_it_is_run_again(ledger: Ledger) -> None:
    """A validation beside another one would find a GPU that is busy."""
    orphan = subprocess.Popen(FOREVER, start_new_session=True)
    memory = ledger.memory_of("c")
    memory.keep(msgspec.json.encode(Running(orphan.pid, started_at(orphan.pid))))
    try:
        run_all([["true"]], lambda: None, memory)
        assert orphan.wait(20) == -signal.SIGKILL
    finally:
        with suppress(ProcessLookupError):
            os.killpg(orphan.pid, signal.SIGKILL)


def test_another_program_that_has_the_number_by_now_is_left_alone(ledger: Ledger) -> None:
    other = subprocess.Popen(FOREVER, start_new_session=True)
    memory = ledger.memory_of("c")
    memory.keep(msgspec.json.encode(Running(other.pid, "1")))
    try:
        run_all([["true"]], lambda: None, memory)
        assert is_running(other.pid)
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait(20)


def test_services_that_were_restarted_before_a_kill_are_not_restarted_again(ledger: Ledger, tmp_path: Path) -> None:
    programs = [("sh", "-c", f"echo {name} >> {tmp_path}/done") for name in ("one", "two", "three")]

    def killed() -> None:
        raise KeyboardInterrupt

    stuck = [*programs[:1], FOREVER, *programs[2:]]
    memory = ledger.memory_of("c")
    with pytest.raises(KeyboardInterrupt):
        run_all(stuck, killed, memory)
    run_all(programs, lambda: None, memory)
    assert (tmp_path / "done").read_text("ascii").split() == ["one", "two", "three"]


def test_what_a_scheduler_prints_in_another_code_is_read_all_the_same() -> None:
    assert run(["printf", "Reason=f\\374r sp\\344ter"]) == "Reason=f\ufffdr sp\ufffdter"
    with pytest.raises(Failed, match=r"ended with 1: nein\?\[31m$"):
        run([sys.executable, "-c", "import sys; sys.exit('nein\\x1b[31m')"])


def test_nothing_is_run_for_a_command_whose_time_was_over_before_it_began(ledger: Ledger, tmp_path: Path) -> None:
    acting = host(ledger, tmp_path / "boot", validate=("touch", str(tmp_path / "ran")))
    clock = Clock()
    clock.now_ms = T0 + 6 * MINUTE_MS
    assert Bench(acting, ledger, clock).worker.take(VALIDATE) == "refused"
    assert not (tmp_path / "ran").exists()
