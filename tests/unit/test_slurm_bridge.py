"""The live bridge: looked at over and over, everything is told once, as the import tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultlens.clock import DAY_MS
from faultlens.codec import Event
from faultlens.errors import WorldError
from faultlens.events import JobAlive, JobEnded
from producers.delivery.remembered import Remembered
from producers.slurm.bridge import FORGOTTEN_AFTER_MS, SlurmBridge
from producers.slurm.importing import Export, import_slurm
from producers.slurm.job_events import Names
from tests.unit.slurm_exports import EVENTS_HEADER, HEADER, T0, outage, run, step

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
NAMES = Names("lab")
NOW_MS = 1_795_960_000_000


def export(rows: int | None = None) -> Export:
    """Return the recording's exports, or the first rows of its accounting."""
    sacct = (EXAMPLES / "sacct_D_ALL_x1f.txt").read_text("utf-8").split("\n")
    outages = (EXAMPLES / "sacctmgr_event_epoch.psv").read_text("utf-8").split("\n")
    return Export(sacct[: None if rows is None else rows + 1], outages)


class Kept:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def put(self, event: Event) -> None:
        self.events.append(event)


@pytest.fixture
def memory(tmp_path: Path) -> Remembered:
    return Remembered(tmp_path / "bridge" / "told")


def test_the_end_of_a_job_whose_node_failed_is_told_when_it_is_known_what_became_of_the_node(
    memory: Remembered,
) -> None:
    rows = [HEADER, run("7", "NODE_FAIL", (0, 10, 50))]
    first, later = (
        Export(rows, [EVENTS_HEADER]),
        Export(rows, [EVENTS_HEADER, outage("node1", (50, None), "DOWN", "gone")]),
    )
    exports, kept = [first, first, later, later], Kept()
    bridge = SlurmBridge(lambda since: exports.pop(0), NAMES, kept, memory)
    end_ms = (T0 + 50) * 1_000
    held = [bridge.poll(end_ms + after_s * 1_000).held for after_s in (1, 6, 20, 50)]
    [end] = [event.data for event in kept.events if isinstance(event.data, JobEnded)]
    assert held == [1, 1, 0, 0]
    assert (end.reason, end.message) == ("NODE_FAIL", "node1 DOWN: gone")


@pytest.mark.parametrize(("state", "end"), [("RUNNING", None), ("FAILED", 50)])
def test_an_end_is_told_when_accounting_knows_how_its_steps_ended(
    memory: Remembered, state: str, end: int | None
) -> None:
    ended = [HEADER, run("7", "FAILED", (0, 10, 50), exit_="1:0")]
    first = Export([*ended, step("7", "0", state, (11, end))], [EVENTS_HEADER])
    later = Export([*ended, step("7", "0", "OUT_OF_MEMORY", (11, 50), exit_="0:125")], [EVENTS_HEADER])
    exports, kept = [first, later], Kept()
    bridge = SlurmBridge(lambda since: exports.pop(0), NAMES, kept, memory)
    assert [bridge.poll((T0 + after_s) * 1_000).held for after_s in (53, 58)] == [1, 0]
    [told] = [event.data for event in kept.events if isinstance(event.data, JobEnded)]
    assert told.message == "step 0 OUT_OF_MEMORY 0:125 on node1"


def test_an_end_that_only_the_controller_knows_is_told_when_accounting_knows_it_too(memory: Remembered) -> None:
    block = (
        "JobId=7 JobName=train\n   UserId=ann(5) GroupId=ann(5) JobState=FAILED Reason=None Dependency=(null)\n"
        f"   ExitCode=1:0 SubmitTime={T0} StartTime={T0 + 10} EndTime={T0 + 50}\n   NodeList=node1\n"
    )
    ended = [HEADER, run("7", "FAILED", (0, 10, 50), exit_="1:0")]
    steps = [step("7", "0", "OUT_OF_MEMORY", (11, 50), exit_="0:125")]
    exports = [
        Export([HEADER], [EVENTS_HEADER], block.splitlines()),
        Export([*ended, *steps], [EVENTS_HEADER], block.splitlines()),
    ]
    kept = Kept()
    bridge = SlurmBridge(lambda since: exports.pop(0), NAMES, kept, memory)
    assert [bridge.poll((T0 + after_s) * 1_000).held for after_s in (51, 53)] == [1, 0]
    [told] = [event.data for event in kept.events if isinstance(event.data, JobEnded)]
    assert told.message == "step 0 OUT_OF_MEMORY 0:125 on node1"


@pytest.mark.parametrize(("state", "exit_"), [("COMPLETED", "0:0"), ("FAILED", "1:0"), ("TIMEOUT", "0:15")])
def test_an_end_whose_steps_have_an_end_of_their_own_is_told_at_once(
    memory: Remembered, state: str, exit_: str
) -> None:
    rows = [HEADER, run("7", state, (0, 10, 50), exit_=exit_), step("7", "0", state, (11, 50), exit_=exit_)]
    bridge = SlurmBridge(lambda since: Export(rows, [EVENTS_HEADER]), NAMES, Kept(), memory)
    assert bridge.poll((T0 + 51) * 1_000).held == 0


def test_a_controller_whose_clock_is_ahead_holds_no_end_up_for_long(memory: Remembered) -> None:
    kept = Kept()
    rows = Export([HEADER, run("7", "NODE_FAIL", (0, 10, 50))], [EVENTS_HEADER])
    bridge = SlurmBridge(lambda since: rows, NAMES, kept, memory)
    long_before_ms = (T0 + 50) * 1_000 - DAY_MS
    assert [bridge.poll(long_before_ms + after_s * 1_000).held for after_s in (0, 10, 15)] == [1, 1, 0]


def test_what_grows_between_two_looks_is_told_once_and_all_of_it(memory: Remembered) -> None:
    asked, kept = [], Kept()
    exports = [export(40), export(150), export(), export(), export()]

    def ask(since: str) -> Export:
        asked.append(since)
        return exports.pop(0)

    bridge = SlurmBridge(ask, NAMES, kept, memory, look_back_s=3_600)
    counts = [bridge.poll(NOW_MS + late_s * 1_000).told for late_s in (0, 20, 40, 60, 80)]
    names = [(event.source, event.id) for event in kept.events]
    assert len(set(names)) == len(names)
    assert {(event.source, event.id) for event in import_slurm(export(), NAMES).events} <= set(names)
    assert counts[-1] == 0
    assert set(asked) == {"now-3600seconds"}
    assert {event.recorded_ms for event in kept.events} == {None}


def test_a_restart_tells_nothing_again_and_a_crash_between_loses_nothing(tmp_path: Path) -> None:
    kept = Kept()
    SlurmBridge(lambda _: export(), NAMES, kept, Remembered(tmp_path / "told")).poll(NOW_MS)
    count = len(kept.events)
    again = SlurmBridge(lambda _: export(), NAMES, kept, Remembered(tmp_path / "told"))
    assert again.poll(NOW_MS).told == 0
    assert len(kept.events) == count


def test_while_slurm_does_not_answer_nothing_is_told_and_the_next_look_tells_it(memory: Remembered) -> None:
    answers: list[Export | None] = [None, export()]

    def ask(_: str) -> Export:
        found = answers.pop(0)
        if found is None:
            raise WorldError("sacct: no answer within 120 s; is slurmdbd or slurmctld down?")
        return found

    kept = Kept()
    bridge = SlurmBridge(ask, NAMES, kept, memory)
    with pytest.raises(WorldError, match="no answer"):
        bridge.poll(NOW_MS)
    assert bridge.poll(NOW_MS).told == len(kept.events) > 0


def test_what_is_not_seen_any_more_is_forgotten_and_what_is_seen_is_not(memory: Remembered) -> None:
    memory.add([("s", "old"), ("s", "new")], NOW_MS)
    memory.add([("s", "new")], NOW_MS + DAY_MS)
    memory.forget(NOW_MS + 1)
    assert memory.known([("s", "old"), ("s", "new")]).keys() == {("s", "new")}
    assert FORGOTTEN_AFTER_MS > DAY_MS


def test_thousands_are_asked_for_at_once(memory: Remembered) -> None:
    names = [("s", str(number)) for number in range(3_000)]
    memory.add(names[::2], NOW_MS)
    assert memory.known(names).keys() == set(names[::2])


class Counting:
    """Counts what is written into a memory."""

    def __init__(self, memory: Remembered) -> None:
        self._memory = memory
        self.known = memory.known
        self.last_ms = memory.last_ms
        self.forget = memory.forget
        self.written: list[int] = []

    def add(self, events: list[tuple[str, str]], at_ms: int) -> None:
        self.written.append(len(events))
        self._memory.add(events, at_ms)


def test_what_is_still_seen_is_written_down_once_a_day_and_not_at_every_look(memory: Remembered) -> None:
    counting = Counting(memory)
    bridge = SlurmBridge(lambda _: export(), NAMES, Kept(), counting)
    for late_ms in (0, 30_000, 60_000, DAY_MS, DAY_MS + 30_000):
        bridge.poll(NOW_MS + late_ms)
    seen = counting.written[0]
    assert counting.written == [seen, 0, 0, seen, 0]


RUNNING_JOB = (
    "JobId=7 JobName=train\n   UserId=ann(1000) GroupId=ann(1000) Priority=1 JobState=RUNNING Reason=None"
    " Requeue=1 Restarts=0 ExitCode=0:0 SubmitTime=1795959000 StartTime=1795959100 EndTime=1795999100"
    " Partition=batch NodeList=node1 NumNodes=1 TRES=cpu=1,gres/gpu=1"
)


def test_what_the_controller_says_is_running_is_alive_once_a_minute_until_it_is_not() -> None:
    running = [Export(["JobID|State|Start|End"], jobs=RUNNING_JOB.split("\n")) for _ in range(4)]
    answers = [*running, Export(["JobID|State|Start|End"])]
    kept = Kept()
    bridge = SlurmBridge(lambda _: answers.pop(0), NAMES, kept, NoMemory())
    for late_s in (0, 30, 60, 120, 180):
        bridge.poll(NOW_MS + late_s * 1_000)
    alive = [event for event in kept.events if isinstance(event.data, JobAlive)]
    assert [(event.subject, event.time_ms - NOW_MS) for event in alive] == [("7", 0), ("7", 60_000), ("7", 120_000)]
    assert {event.data.interval_s for event in alive if isinstance(event.data, JobAlive)} == {60.0}


class NoMemory:
    def known(self, events: list[tuple[str, str]]) -> dict[tuple[str, str], int]:
        return dict.fromkeys(events, NOW_MS)

    def add(self, events: list[tuple[str, str]], at_ms: int) -> None:
        return

    def forget(self, before_ms: int) -> None:
        return

    def last_ms(self) -> int | None:
        return None


def test_a_place_that_cannot_be_written_is_the_world_s_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorldError, match="cannot be used"):
        Remembered(tmp_path / "file" / "told")
