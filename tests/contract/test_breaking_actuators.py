"""What breaks around an actuator: kills at any step, full disks, damaged files, clocks that jump, too much at once."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
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
from faultlens.clock import HOUR_MS, MINUTE_MS, moment_of, wall_ms
from faultlens.codec import Decoder, Event, encode, event_of
from faultlens.errors import WorldError
from faultlens.events import RemediationCommand, RemediationResult
from tests.contract.acting import DRAIN, LATER, T0, Bench, Clock

REBOOT = replace(DRAIN, action="reboot", command_id="reboot-1", boot_id=None)
ENDS = ("refused", "succeeded", "failed")


class Killed(BaseException):
    """The process is gone: nothing below it runs any more."""


class Acting(Actuator):
    """Does what it is made with, and counts it."""

    name = "acting"
    actions = frozenset({"drain", "reboot"})

    def __init__(self, does: Callable[[Beat], str] = lambda beat: "done") -> None:
        self.done: list[str] = []
        self._does = does

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        self.done.append(command.command_id)
        return self._does(beat)


def ends(told: list[Event]) -> list[tuple[str, str]]:
    results = [event.data for event in told if isinstance(event.data, RemediationResult)]
    return [(result.command_id, result.state) for result in results if result.state in ENDS]


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
    assert crew.stop(20) in (3, 4), "those that wait are left"
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


# --- what cannot be written or told ------------------------------------------------------------------------


def test_nothing_is_done_that_cannot_be_told_and_it_is_done_by_the_next_one(ledger: Ledger) -> None:
    def full(event: Event) -> None:
        raise WorldError("results.jsonl cannot be written: No space left on device")

    acting, clock, told = Acting(), Clock(), list[Event]()
    with pytest.raises(WorldError, match="No space left"):
        Worker(acting, Duty("c1"), ledger, full, clock).take(DRAIN)
    assert acting.done == []
    again = Worker(acting, Duty("c1"), ledger, told.append, clock)
    assert [again.take(command) for command in again.unfinished()] == ["succeeded"]
    assert ends(told) == [(DRAIN.command_id, "succeeded")]


def fill(ledger: Ledger) -> None:
    """Take all the room that there is for the ledger."""
    pages = ledger._file.execute("PRAGMA page_count").fetchone()[0]
    ledger._file.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(100_000):
        ledger.note(f"{number}", b"")


def test_the_end_is_told_though_the_disk_of_the_ledger_is_full(tmp_path: Path) -> None:
    def fills(beat: Beat) -> str:
        with pytest.raises(WorldError, match="full"):
            fill(ledger)
        return "x" * 500

    told: list[Event] = []
    with closing(Ledger(tmp_path / "act.db")) as ledger:
        worker = Worker(Acting(fills), Duty("c1"), ledger, told.append, Clock())
        with pytest.raises(WorldError, match=r"act.db cannot be kept .* full"):
            worker.take(replace(DRAIN, policy="p" * 4_500))  # its end takes a page more than its beginning
    assert ends(told) == [(DRAIN.command_id, "succeeded")]


def test_a_ledger_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "act.db")), pytest.raises(WorldError, match="of an actuator that runs: end that"):
        Ledger(tmp_path / "act.db")
    Ledger(tmp_path / "act.db").close()


def rubbish(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)


def torn(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096 * 8)


def unreadable(path: Path) -> None:
    with closing(Ledger(path)) as ledger, ledger._lock:
        ledger._file.execute("UPDATE commands SET body = X'7B', state = 'started'")


@pytest.mark.parametrize("damage", [rubbish, torn, unreadable])
def test_a_damaged_ledger_is_said_to_be_and_nothing_is_done(damage: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "act.db"
    with closing(Ledger(path)) as ledger:
        for number in range(50):
            Bench(Acting(), ledger).worker.accept(replace(DRAIN, command_id=f"c{number}"))
    damage(path)
    ran = acted(tmp_path, [DRAIN])
    assert (ran.returncode, "Traceback" in ran.stderr) == (3, False), ran.stderr
    assert "ledger" in ran.stderr
    assert results(tmp_path) == []


# --- the process -------------------------------------------------------------------------------------------


def live(number: int) -> RemediationCommand:
    now_ms = wall_ms()
    return replace(
        DRAIN,
        command_id=f"command-{number}",
        node=f"node-{number}",
        issued_at=moment_of(now_ms),
        expires_at=moment_of(now_ms + HOUR_MS),
        finish_by=moment_of(now_ms + 2 * HOUR_MS),
    )


def acted(folder: Path, commands: list[RemediationCommand], *, limit: int | None = None) -> Any:
    """Run the program over commands in a file; `limit`: the most bytes that any file of it may have."""
    lines = [encode(event_of(c, source="x", id_=c.command_id, time_ms=T0)) for c in commands]
    (folder / "commands.jsonl").write_bytes(b"\n".join(lines) + b"\n")

    def limited() -> None:
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [
            *(sys.executable, "-m", "faultlens.cli", "act", "dry-run", "--cluster", "c1"),
            *("--commands", str(folder / "commands.jsonl"), "--out", str(folder / "results.jsonl")),
            *("--ledger", str(folder / "act.db")),
        ],
        capture_output=True, text=True, timeout=60, check=False, preexec_fn=limited,
    )  # fmt: skip


def results(folder: Path) -> list[tuple[str, str]]:
    path = folder / "results.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    return ends([Decoder().decode(line) for line in lines])


def test_a_disk_that_is_full_ends_the_process_with_its_reason_and_loses_no_end(tmp_path: Path) -> None:
    commands = [live(number) for number in range(60)]
    ran = acted(tmp_path, commands, limit=160_000)
    assert (ran.returncode, "Traceback" in ran.stderr) == (3, False), ran.stderr
    assert "act.db cannot be kept as the actuator's ledger" in ran.stderr
    told = results(tmp_path)
    assert 0 < len(set(told)) < 60
    again = acted(tmp_path, commands)
    assert again.returncode == 0, again.stderr
    assert set(results(tmp_path)) == {(command.command_id, "refused") for command in commands}
