"""The live bridge: looked at over and over, everything is told once, as the import tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultlens.clock import DAY_MS
from faultlens.codec import Event
from faultlens.errors import WorldError
from producers.delivery.remembered import Remembered
from producers.slurm.bridge import FORGOTTEN_AFTER_MS, SlurmBridge
from producers.slurm.importing import Export, import_slurm
from producers.slurm.job_events import Names

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


def test_what_grows_between_two_looks_is_told_once_and_all_of_it(memory: Remembered) -> None:
    asked, kept = [], Kept()
    exports = [export(40), export(150), export(), export()]

    def ask(since: str) -> Export:
        asked.append(since)
        return exports.pop(0)

    bridge = SlurmBridge(ask, NAMES, kept, memory, look_back_s=3_600)
    counts = [bridge.poll(NOW_MS).told for _ in range(4)]
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
    assert memory.unknown([("s", "old"), ("s", "new")]) == {("s", "old")}
    assert FORGOTTEN_AFTER_MS > DAY_MS


def test_thousands_are_asked_for_at_once(memory: Remembered) -> None:
    names = [("s", str(number)) for number in range(3_000)]
    memory.add(names[::2], NOW_MS)
    assert memory.unknown(names) == set(names[1::2])


def test_a_place_that_cannot_be_written_is_the_world_s_failure(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorldError, match="cannot be used"):
        Remembered(tmp_path / "file" / "told")
