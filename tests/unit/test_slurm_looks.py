"""The live bridge over hours and days: runs that accounting shows no more, and an accounting that is behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from faultlens.clock import DAY_MS, SECOND_MS
from faultlens.codec import Event
from faultlens.events import JobAlive, JobAllocated, JobEnded, JobResized
from producers.delivery.kept import Kept
from producers.delivery.remembered import Remembered
from producers.slurm.bridge import SlurmBridge
from producers.slurm.importing import Export
from producers.slurm.job_events import Names
from producers.slurm.places import Place, Places
from tests.unit.slurm_exports import EVENTS_HEADER, HEADER, T0, outage, run, stamp, step

DAY_S = DAY_MS // SECOND_MS
FIRST = run("7", "NODE_FAIL", (0, 10, 50))
SECOND = run("7", "RUNNING", (50, 60, None))
OTHER = [run("6", "COMPLETED", (0, 10, 20)), step("6", "batch", "COMPLETED", (10, 20))]


class Told:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def put(self, event: Event) -> None:
        self.events.append(event)

    def lines(self) -> list[tuple[str, str, int | None]]:
        told = [event for event in self.events if not isinstance(event.data, JobAlive)]
        return [(type(e.data).__name__, e.subject, getattr(e.data, "attempt", None)) for e in told]


class Looks:
    """A bridge, started anew before each look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.told = Told()

    def look(self, at_s: int, rows: Sequence[str], jobs: str = "", outages: Sequence[str] = ()) -> None:
        export = Export([HEADER, *rows], [EVENTS_HEADER, *outages], jobs.splitlines())
        memory, kept = Remembered(self._folder / "told"), Kept(self._folder / "runs")
        SlurmBridge(lambda _: export, Names("c1"), self.told, memory, places=Places(kept)).poll((T0 + at_s) * SECOND_MS)
        memory.close()
        kept.close()


@pytest.fixture
def looks(tmp_path: Path) -> Looks:
    return Looks(tmp_path)


def scontrol(state: str, at: tuple[int, int | None, int | None], *, restarts: int = 0, nodes: str = "node1") -> str:
    submit, start, end = map(stamp, at)
    return (
        f"JobId=7 JobName=train\n   UserId=ann(5) GroupId=ann(5) JobState={state} Reason=None Dependency=(null)\n"
        f"   Restarts={restarts} ExitCode=0:0 SubmitTime={submit} StartTime={start} EndTime={end}\n"
        f"   NodeList={nodes}\n"
    )


def test_an_attempt_keeps_its_number_when_the_one_before_is_shown_no_more(looks: Looks) -> None:
    running = scontrol("RUNNING", (50, 60, 9 * DAY_S), restarts=1)
    looks.look(100, [FIRST, SECOND], running)
    before = looks.told.lines()
    looks.look(3 * DAY_S, [SECOND], running)
    assert looks.told.lines() == before
    ended = run("7", "FAILED", (50, 60, 3 * DAY_S), exit_="1:0")
    for day in (3, 4):
        looks.look(day * DAY_S + 60, [ended])
    assert looks.told.lines() == [*before, ("JobEnded", "7", 2)]


def test_an_id_that_was_given_out_again_keeps_its_mark_when_the_first_is_shown_no_more(looks: Looks) -> None:
    looks.look(100, [run("7", "COMPLETED", (0, 10, 20)), run("7", "RUNNING", (50, 60, None))])
    before = looks.told.lines()
    looks.look(3 * DAY_S, [run("7", "RUNNING", (50, 60, None))])
    assert looks.told.lines() == before
    looks.look(3 * DAY_S, [run("7", "FAILED", (50, 60, 70)), run("7", "RUNNING", (80, 90, None))])
    assert looks.told.lines()[len(before) :][:2] == [("JobEnded", "7~2", 1), ("JobSubmitted", "7~3", None)]


def test_a_job_that_was_resized_is_one_attempt_when_its_beginning_is_shown_no_more(looks: Looks) -> None:
    running = scontrol("RUNNING", (0, 10, 9 * DAY_S))
    whole, smaller = run("7", "RESIZING", (0, 10, 50), nodes="node[1-2]"), run("7", "RUNNING", (50, 50, None))
    looks.look(100, [whole, smaller], running)
    before = looks.told.lines()
    looks.look(3 * DAY_S, [smaller], running)
    assert looks.told.lines() == before
    assert [(e.subject, e.data.attempt) for e in looks.told.events if isinstance(e.data, JobAlive)] == [("7", 1)] * 2


def test_a_resize_is_told_once_wherever_its_row_stands(looks: Looks) -> None:
    rows = [run("7", "RESIZING", (0, 10, 50), nodes="node[1-2]"), run("7", "RUNNING", (50, 50, None))]
    looks.look(100, rows)
    looks.look(130, [*OTHER, *rows])
    assert sum(isinstance(event.data, JobResized) for event in looks.told.events) == 1


def test_a_requeue_that_accounting_has_not_heard_of_makes_no_other_job(looks: Looks) -> None:
    was = run("7", "RUNNING", (0, 10, None))
    looks.look(40, [was], scontrol("RUNNING", (0, 10, DAY_S)))
    looks.look(55, [was], scontrol("PENDING", (50, None, None), restarts=1, nodes=""))
    looks.look(65, [was], scontrol("RUNNING", (50, 60, DAY_S), restarts=1))
    looks.look(160, [FIRST, SECOND], scontrol("RUNNING", (50, 60, DAY_S), restarts=1))
    assert {event.subject for event in looks.told.events} == {"7"}
    assert [e.data.attempt for e in looks.told.events if isinstance(e.data, JobAllocated)] == [1, 2]
    assert [e.data.attempt for e in looks.told.events if isinstance(e.data, JobEnded)] == [1]


def test_a_job_that_is_requeued_after_its_end_is_the_same_job_also_when_the_controller_has_forgotten_it(
    looks: Looks,
) -> None:
    failed, again = run("7", "FAILED", (0, 10, 50), exit_="1:0"), run("7", "RUNNING", (80, 90, None))
    looks.look(60, [failed], scontrol("FAILED", (0, 10, 50)))
    looks.look(82, [failed], scontrol("PENDING", (80, None, None), restarts=1, nodes=""))
    looks.look(100, [failed, again], scontrol("RUNNING", (80, 90, DAY_S), restarts=1))
    ended = run("7", "COMPLETED", (80, 90, 200))
    for at_s in (300, 2 * DAY_S + 60):
        looks.look(at_s, [failed, ended] if at_s == 300 else [ended])
    assert {event.subject for event in looks.told.events} == {"7"}
    assert [(e.data.attempt, e.data.outcome) for e in looks.told.events if isinstance(e.data, JobEnded)] == [
        (1, "failed"),
        (2, "succeeded"),
    ]
    assert [e.data.attempt for e in looks.told.events if isinstance(e.data, JobAllocated)] == [1, 2]


def test_of_a_node_s_failure_that_only_the_controller_knows_nothing_is_said_that_accounting_would_know(
    looks: Looks,
) -> None:
    looks.look(80, OTHER, scontrol("NODE_FAIL", (0, 10, 50)))
    [end] = [e.data for e in looks.told.events if isinstance(e.data, JobEnded) and e.subject == "7"]
    assert (end.outcome, end.reason, end.message) == ("failed", "NODE_FAIL", None)


@pytest.fixture
def bridge_over(tmp_path: Path) -> Callable[[list[Export], Told], SlurmBridge]:
    memory = Remembered(tmp_path / "told")
    return lambda exports, told: SlurmBridge(lambda _: exports.pop(0), Names("c1"), told, memory)


def test_an_end_that_is_heard_of_late_waits_for_what_became_of_its_node_too(
    bridge_over: Callable[[list[Export], Told], SlurmBridge],
) -> None:
    gone = outage("node1", (50, None), "DOWN*", "Not responding")
    told = Told()
    looks = [
        Export([HEADER, run("7", "RUNNING", (0, 10, None))], [EVENTS_HEADER]),
        Export([HEADER, FIRST], [EVENTS_HEADER]),
        Export([HEADER, FIRST], [EVENTS_HEADER, gone]),
    ]
    bridge = bridge_over(looks, told)
    assert [bridge.poll((T0 + at_s) * SECOND_MS).held for at_s in (40, 400, 430)] == [0, 1, 0]
    [end] = [event.data for event in told.events if isinstance(event.data, JobEnded)]
    assert end.message == "node1 DOWN*: Not responding"


def test_after_days_away_accounting_is_asked_for_all_of_them(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(since: str) -> Export:
        asked.append(since)
        return Export([HEADER, *OTHER], [EVENTS_HEADER])

    for day in (0, 1, 5, 6):
        memory = Remembered(tmp_path / "told")
        SlurmBridge(ask, Names("c1"), Told(), memory).poll(T0 * SECOND_MS + day * DAY_MS)
        memory.close()
    assert asked == [f"now-{days * DAY_S}seconds" for days in (2, 2, 2 + 4, 2)]


def test_a_job_that_never_started_is_told_once_also_where_no_other_job_has_steps(looks: Looks) -> None:
    looks.look(400, [FIRST])
    looks.look(500, [FIRST, *OTHER])
    ends = [event.data for event in looks.told.events if isinstance(event.data, JobEnded)]
    assert [(end.job_id, end.outcome) for end in ends] == [("7", "never_started"), ("6", "succeeded")]


def test_places_that_are_not_seen_any_more_are_forgotten(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "runs")
    places = Places(kept)
    places.note({("7", 1): Place("7", 0, 2, 1)}, 0)
    places.note({("8", 1): Place("8", 0, 2, 1)}, 15 * DAY_MS)
    assert Places(kept).known() == places.known() == {("8", 1): Place("8", 0, 2, 1)}
