"""What breaks around an actuator: kills at any step, full disks, damaged files, clocks that jump, too much at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest
from msgspec.structs import replace

from actuators import Actuator, Worker
from actuators.crew import Crew
from actuators.ledger import Ledger
from actuators.sdk import Beat
from actuators.worker import Duty, Stopped
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, moment_of, wall_ms
from faultlens.codec import Decoder, Event, encode, event_of
from faultlens.events import RemediationResult
from tests.contract.acting import DRAIN, LATER, T0, Acting, Bench, Clock, ends

REBOOT = replace(DRAIN, action="reboot", command_id="reboot-1", boot_id=None)


class Killed(BaseException):
    """The process is gone: nothing below it runs any more."""


# --- kills -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(8))
def test_a_worker_that_is_killed_at_any_step_tells_one_end_when_it_is_started_again(
    step: int, after: bool, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    left = iter([False] * step + [True])

    def mortal(does: Callable[..., Any]) -> Callable[..., Any]:
        def done(*given: Any) -> Any:
            dies = next(left, False)
            if dies and not after:
                raise Killed
            answer = does(*given)
            if dies:
                raise Killed
            return answer

        return done

    acting, clock = Acting(), Clock()
    acting.do = mortal(acting.do)  # type: ignore[method-assign]
    for name in ("put", "end", "told"):
        monkeypatch.setattr(ledger, name, mortal(getattr(ledger, name)))
    worker = Worker(acting, Duty("c1"), ledger, mortal(told.append), clock)
    try:
        worker.accept(DRAIN)
        worker.take(DRAIN)
    except Killed:
        pass
    monkeypatch.undo()
    again, clock.now_ms = Worker(acting, Duty("c1"), ledger, told.append, clock), clock.now_ms + MINUTE_MS
    begun = again.unfinished()
    # Only what was never written down is handed out by Kafka once more.
    for command in begun or ([DRAIN] if ledger.get(DRAIN.command_id) is None else []):
        again.take(command)
    assert set(ends(told)) == {(DRAIN.command_id, "succeeded")}
    assert len({event.id for event in told if event.data.state == "succeeded"}) == 1  # type: ignore[attr-defined]
    assert (again.unfinished(), ledger.untold()) == ([], [])
    assert len(acting.done) <= 2, "again only where nobody knows that it was done"


def test_an_end_that_was_written_down_is_not_carried_out_again_but_told(ledger: Ledger) -> None:
    def dies(event: Event) -> None:
        if isinstance(event.data, RemediationResult) and event.data.state == "succeeded":
            raise Killed

    acting, clock, told = Acting(), Clock(), list[Event]()
    with pytest.raises(Killed):
        Worker(acting, Duty("c1"), ledger, dies, clock).take(DRAIN)
    assert Worker(acting, Duty("c1"), ledger, told.append, clock).unfinished() == []
    assert (ends(told), acting.done) == ([(DRAIN.command_id, "succeeded")], [DRAIN.command_id])


def test_what_was_begun_before_a_kill_is_not_gone_on_with_in_another_boot_unless_it_is_a_restart(
    ledger: Ledger,
) -> None:
    class Restarted(Acting):
        def boot_id(self, node: str) -> str | None:
            return "boot-2"

    def dies(beat: Beat) -> str:
        raise Killed

    restart = replace(REBOOT, boot_id="boot-1")
    for command in (DRAIN, restart):
        with pytest.raises(Killed):
            Bench(Acting(dies), ledger).worker.take(command)
    bench = Bench(Restarted(), ledger)
    assert {c.action: bench.worker.take(c) for c in bench.worker.unfinished()} == {
        "drain": "failed", "reboot": "succeeded",
    }  # fmt: skip
    assert "fenced: the node is in boot boot-2" in str([result.reason for result in bench.results])


# --- the same twice ----------------------------------------------------------------------------------------


def test_a_command_that_comes_again_while_it_is_carried_out_is_carried_out_once(ledger: Ledger) -> None:
    """Kafka hands out again, after a rebalance, what was taken up from the ledger."""
    begun, over = Flag(), Flag()

    def holds(beat: Beat) -> str:
        begun.set()
        assert over.wait(20)
        return "done"

    bench = Bench(Acting(holds), ledger)
    worker = bench.worker
    first = Thread(target=worker.take, args=(DRAIN,))
    first.start()
    assert begun.wait(20)
    assert worker.take(DRAIN) is None
    over.set()
    first.join(20)
    assert bench.actuator.done == [DRAIN.command_id]  # type: ignore[attr-defined]
    assert ends(bench.told) == [(DRAIN.command_id, "succeeded")]


def test_a_restart_under_another_id_is_refused_while_the_first_one_goes_on_and_when_it_is_over(ledger: Ledger) -> None:
    begun, over = Flag(), Flag()

    def holds(beat: Beat) -> str:
        begun.set()
        assert over.wait(20)
        return "done"

    acting = Acting(holds)
    bench = Bench(acting, ledger)
    worker = bench.worker
    first = Thread(target=worker.take, args=(REBOOT,))
    first.start()
    assert begun.wait(20)
    assert worker.take(replace(REBOOT, command_id="reboot-2")) == "refused"
    assert bench.results[-1].reason == "the same is being done there by command reboot-1"
    over.set()
    first.join(20)
    assert bench.worker.take(replace(REBOOT, command_id="reboot-3")) == "refused"
    assert bench.results[-1].reason == "decided before the same was done by command reboot-1"
    assert bench.worker.take(replace(REBOOT, command_id="reboot-4", issued_at=LATER)) == "succeeded"
    assert bench.worker.take(replace(REBOOT, command_id="other", node="node-2")) == "succeeded"
    assert acting.done == ["reboot-1", "reboot-4", "other"]


# --- time --------------------------------------------------------------------------------------------------


class Clocks:
    """A clock that somebody sets, and one that nothing sets."""

    def __init__(self) -> None:
        self.wall_ms, self.steady_ms = T0, 5_000

    def passes(self, ms: int) -> None:
        self.wall_ms, self.steady_ms = self.wall_ms + ms, self.steady_ms + ms

    def worker(self, acting: Actuator, ledger: Ledger, told: list[Event]) -> Worker:
        duty = Duty("c1")
        return Worker(acting, duty, ledger, told.append, lambda: self.wall_ms, steady_ms=lambda: self.steady_ms)


@pytest.mark.parametrize(
    ("jump_ms", "passes_ms", "state"),
    [
        (-HOUR_MS, 6 * MINUTE_MS, "refused"),
        (-HOUR_MS, 4 * MINUTE_MS, "succeeded"),
        (HOUR_MS, MINUTE_MS, "refused"),
        (0, 4 * MINUTE_MS, "succeeded"),
    ],
)
def test_a_command_grows_old_in_the_queue_also_while_the_clock_is_set_back(
    jump_ms: int, passes_ms: int, state: str, ledger: Ledger
) -> None:
    clocks, acting = Clocks(), Acting()
    worker = clocks.worker(acting, ledger, [])
    assert worker.accept(DRAIN)
    clocks.wall_ms += jump_ms
    clocks.passes(passes_ms)
    assert worker.take(DRAIN) == state
    assert len(acting.done) == (state == "succeeded")


def test_a_command_that_was_accepted_before_a_restart_is_no_younger_after_it(ledger: Ledger) -> None:
    clocks, acting = Clocks(), Acting()
    clocks.passes(4 * MINUTE_MS)
    clocks.worker(acting, ledger, []).accept(DRAIN)
    clocks.wall_ms -= HOUR_MS
    worker = clocks.worker(acting, ledger, [])
    (command,) = worker.unfinished()
    clocks.passes(2 * MINUTE_MS)
    assert (worker.take(command), acting.done) == ("refused", [])


@pytest.mark.parametrize("jump_ms", [-HOUR_MS, 0])
def test_signs_of_life_and_the_latest_end_do_not_wait_for_a_clock_that_was_set_back(
    jump_ms: int, ledger: Ledger
) -> None:
    clocks, told = Clocks(), list[Event]()

    def slow(beat: Beat) -> str:
        clocks.wall_ms += jump_ms
        while True:
            clocks.passes(10_000)
            beat()

    worker = clocks.worker(Acting(slow), ledger, told)
    worker.accept(DRAIN)
    assert worker.take(DRAIN) == "failed"
    beats = [e for e in told if isinstance(e.data, RemediationResult) and e.data.state == "started"]
    assert 119 <= len(beats) <= 122, "one each half minute of the hour"


def test_what_ended_a_month_ago_is_forgotten_with_its_notes_and_what_goes_on_is_not(ledger: Ledger) -> None:
    bench = Bench(Acting(), ledger)
    bench.worker.take(DRAIN)
    bench.worker.accept(replace(DRAIN, command_id="goes-on", node="node-2"))
    ledger.take("node-2", "incident-1")
    for command_id in (DRAIN.command_id, "goes-on"):
        ledger.note(command_id, b"note")
    bench.clock.now_ms += 31 * DAY_MS
    bench.worker.tidy()
    assert (ledger.get(DRAIN.command_id), ledger.noted(DRAIN.command_id)) == (None, None)
    assert ([c.command_id for c in bench.worker.unfinished()], ledger.noted("goes-on")) == (["goes-on"], b"note")
    assert ledger.taken_for("node-2") == "incident-1"


# --- too much, and the end ---------------------------------------------------------------------------------


def crew_of(acting: Actuator, ledger: Ledger, told: list[Event], clock: Clock, at_once: int) -> tuple[Worker, Crew]:
    worker = Worker(acting, Duty("c1"), ledger, told.append, clock)
    return worker, Crew(worker, at_once=at_once)


def test_a_thousand_commands_at_once_each_end_once_and_what_expires_in_the_queue_is_not_done(ledger: Ledger) -> None:
    clock, told, go = Clock(), list[Event](), Flag()

    def first_waits(beat: Beat) -> str:
        assert go.wait(20)
        return "done"

    acting = Acting(first_waits)
    worker, crew = crew_of(acting, ledger, told, clock, 4)
    commands = [replace(DRAIN, command_id=f"c{n}", node=f"node-{n}", boot_id=None) for n in range(1_000)]
    for command in commands:
        if worker.accept(command):
            crew.begin(command)
    while len(acting.done) < 4:
        go.wait(0.001)
    clock.now_ms += 6 * MINUTE_MS
    go.set()
    crew.finish(0.01)
    assert crew.stop(5) == 0
    assert sorted(command_id for command_id, _ in ends(told)) == sorted(c.command_id for c in commands)
    assert [state for _, state in ends(told)].count("refused") == 996
    assert len(acting.done) == 4


def test_who_is_told_to_stop_ends_at_once_and_the_next_one_goes_on(ledger: Ledger) -> None:
    begun, told, clock = Flag(), list[Event](), Clock()

    def drains(beat: Beat) -> str:
        while True:
            begun.set()
            begun.wait(0.001)
            beat()

    worker, crew = crew_of(Acting(drains), ledger, told, clock, 2)
    commands = [replace(DRAIN, command_id=f"c{n}", node=f"node-{n}") for n in range(5)]
    for command in commands:
        assert worker.accept(command)
        crew.begin(command)
    assert begun.wait(20)
    assert crew.stop(20) == 5, "those that wait are left, too"
    assert ends(told) == []
    with pytest.raises(Stopped):
        worker.take(DRAIN)
    again = Bench(Acting(), ledger, clock)
    assert [again.worker.take(command) for command in again.worker.unfinished()] == ["succeeded"] * 5


def test_a_hand_that_cannot_be_interrupted_does_not_hold_up_the_end(ledger: Ledger) -> None:
    begun, over = Flag(), Flag()

    def stuck(beat: Beat) -> str:
        begun.set()
        assert over.wait(20)
        return "done"

    worker, crew = crew_of(Acting(stuck), ledger, [], Clock(), 1)
    worker.accept(DRAIN)
    crew.begin(DRAIN)
    assert begun.wait(20)
    assert crew.stop(0) == 1
    over.set()
    assert crew.stop(20) == 0


SCONTROL = """#!/bin/sh
case "$1" in show) printf 'NodeName=%s\\n   State=MIXED+DRAIN X=1\\n   BootTime=b X=1\\n' "$3";; esac
"""


def test_a_process_that_is_told_to_stop_in_the_middle_of_drains_ends_soon_and_tells_no_end(tmp_path: Path) -> None:
    for name, script in (("scontrol", SCONTROL), ("squeue", "#!/bin/sh\necho 17\n")):
        (tmp_path / name).write_text(script, "ascii")
        (tmp_path / name).chmod(0o755)
    now_ms, told = wall_ms(), tmp_path / "results.jsonl"
    times = {"issued_at": now_ms, "expires_at": now_ms + HOUR_MS, "finish_by": now_ms + 2 * HOUR_MS}
    moments = {name: moment_of(at_ms) for name, at_ms in times.items()}
    commands = [replace(DRAIN, command_id=f"c{n}", node=f"node-{n}", **moments) for n in range(100)]
    lines = [encode(event_of(c, source="x", id_=c.command_id, time_ms=T0)) for c in commands]
    (tmp_path / "commands.jsonl").write_bytes(b"\n".join(lines))
    words = ["act", "slurm", "--running", "wait", "--cluster", "c1", "--commands", str(tmp_path / "commands.jsonl")]
    process = subprocess.Popen(
        [sys.executable, "-m", "faultlens.cli", *words, "--out", str(told), "--ledger", str(tmp_path / "act.db")],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        while not (told.exists() and b'"state":"started"' in told.read_bytes()):
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
                break
        process.terminate()
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, b"Traceback" in said) == (128 + signal.SIGTERM, False), said
    assert b"gone on with at the next start" in said
    assert ends([Decoder().decode(line) for line in told.read_bytes().splitlines()]) == []
