"""Probes run side by side, and one that hangs, breaks or dies says so and hides no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from faultlens.events import Check
from producers.agent.probe import MissingError, Probe
from producers.agent.running import Runner


def well(status: str = "pass") -> list[Check]:
    return [Check("local_disk", "storage", status)]  # type: ignore[arg-type]


def hangs() -> list[Check]:
    Event().wait()
    return []


def hangs_with_a_tool(pid_file: Path) -> list[Check]:
    with subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"]) as tool:
        pid_file.write_text(str(tool.pid))
    return []


def dies() -> list[Check]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return []


def leaves() -> list[Check]:
    os._exit(3)


def lacks() -> list[Check]:
    raise MissingError("libnvidia-ml.so.1 is not installed")


def breaks() -> list[Check]:
    raise ValueError("bad answer of a tool\n" + "x" * 1_000)


def probe(look: object, name: str = "p", deadline_s: float = 20.0, *arguments: object) -> Probe:
    return Probe(name, {"local_disk": "storage"}, look, arguments, deadline_s)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner([__name__])


def only(checks: list[Check]) -> tuple[str, str]:
    (check,) = checks
    assert check.name == "local_disk"
    return check.status, check.message or ""


def test_a_probe_s_checks_are_returned_with_how_long_they_took(runner: Runner) -> None:
    (check,) = runner.run([probe(well)]).checks
    assert (check.name, check.component, check.status) == ("local_disk", "storage", "pass")
    assert check.duration_ms is not None
    assert check.duration_ms >= 0


@pytest.mark.parametrize(
    ("look", "status", "why"),
    [
        (lacks, "missing", "libnvidia-ml.so.1 is not installed"),
        (breaks, "error", "ValueError: bad answer of a tool"),
        (dies, "error", "it was killed by SIGSEGV"),
        (leaves, "error", "it ended with 3 and without an answer"),
    ],
)
def test_a_probe_that_does_not_answer_is_never_healthy(runner: Runner, look: object, status: str, why: str) -> None:
    said, message = only(runner.run([probe(look)]).checks)
    assert said == status
    assert message.startswith(why)
    assert len(message) <= 500


def test_a_probe_that_hangs_is_ended_at_its_deadline_and_the_others_answer(runner: Runner) -> None:
    began = monotonic()
    checks = runner.run([probe(well, "first"), probe(hangs, "second", 1.0), probe(well, "third")]).checks
    assert [check.status for check in checks] == ["pass", "timeout", "pass"]
    assert checks[1].message == "no answer within 1 s"
    assert monotonic() - began < 15
    assert runner.stuck == {}


def test_the_tool_that_a_probe_started_is_ended_with_it(runner: Runner, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    assert only(runner.run([probe(hangs_with_a_tool, "p", 3.0, pid_file)]).checks)[0] == "timeout"
    status = Path(f"/proc/{pid_file.read_text()}/status")
    deadline = monotonic() + 10
    while status.exists() and "State:\tZ" not in status.read_text():
        assert monotonic() < deadline, "the tool lives on"
        os.sched_yield()


def test_what_a_probe_was_to_report_and_does_not_mention_is_an_error(runner: Runner) -> None:
    both = Probe("p", {"local_disk": "storage", "mounts": "storage"}, well)
    assert [(check.name, check.status) for check in runner.run([both]).checks] == [
        ("local_disk", "pass"),
        ("mounts", "error"),
    ]


def test_a_probe_does_not_run_the_program_again_that_started_it(tmp_path: Path) -> None:
    program, runs = tmp_path / "program.py", tmp_path / "runs"
    program.write_text(
        f"open({str(runs)!r}, 'a').write('x')\n"
        "from producers.agent.probe import Probe\n"
        "from producers.agent.probes.storage import look_at_disks\n"
        "from producers.agent.running import Runner\n"
        "if __name__ == '__main__':\n"
        "    looked = Runner([]).run([Probe('local_disk', {'local_disk': 'storage'}, look_at_disks, (('/',),))])\n"
        "    print(looked.checks[0].status)\n",
        "utf-8",
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() in ("pass", "warn", "fail")
    assert runs.read_text("utf-8") == "x"
