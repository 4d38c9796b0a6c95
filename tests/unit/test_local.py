"""The embedded runtime: what a replay writes, what it goes on from, and what a broken run leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from faultlens import topics
from faultlens.arrival import TAIL_MS
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, parse_moment
from faultlens.codec import Event, encode
from faultlens.errors import ConfigurationError, WorldError
from faultlens.local import Places, replay
from faultlens.local_pump import Pump
from faultlens.local_state import FORMAT, load, save
from faultlens.local_tally import Tally
from faultlens.recordings import Recording
from streams.runtime.records import Role
from streams.runtime.task import Task
from tests.simulation.toy import BOOM, NAP_MS, Toy, fault

T0 = parse_moment("2026-11-23T04:00:00Z")


def roles() -> list[Role]:
    return [Role(Toy(), (*Toy.topics, topics.CONTEXT))]


def told(tmp_path: Path, *events: Event | bytes, name: str = "events.jsonl") -> Recording:
    path = tmp_path / name
    path.write_bytes(b"".join((encode(e) if isinstance(e, Event) else e) + b"\n" for e in events))
    return Recording(str(path))


def out(directory: Path, topic: str) -> list[dict[str, Any]]:
    path = directory / f"{topic}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def causes(directory: Path) -> list[str]:
    return [record["data"]["cause"] for record in out(directory, topics.NODE_STATES)]


class Kept:
    """A store that remembers what it was given."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, bool]] = []
        self.closed = False

    def add(self, event: Event, arrived_ms: int, raw: bytes | None) -> None:
        self.events.append((event.id, arrived_ms, raw is not None))

    def flush(self) -> None:
        """Do nothing: all is kept at once."""

    def close(self) -> None:
        self.closed = True


def test_a_replay_writes_a_file_per_topic_and_no_internal_record(tmp_path: Path) -> None:
    run = replay([told(tmp_path, fault("1", "n", T0))], roles(), Places(tmp_path / "out"))
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["node-states.jsonl"]
    assert causes(tmp_path / "out") == ["seen-1", "end"]
    assert (run.events, run.by_topic, run.written) == (1, {"node-events": 1}, {"node-states": 2})


def test_the_clock_goes_on_to_until(tmp_path: Path) -> None:
    replay([told(tmp_path, fault("1", "n", T0))], roles(), Places(tmp_path / "out"), until_ms=T0 + HOUR_MS)
    assert causes(tmp_path / "out") == ["seen-1", "woken-1", "end"]
    assert out(tmp_path / "out", topics.NODE_STATES)[-1]["time"] == "2026-11-23T05:00:00Z"


def test_without_until_it_goes_on_to_the_end_of_the_window(tmp_path: Path) -> None:
    late = fault("1", "n", T0 + 4 * MINUTE_MS, recorded_ms=T0)
    replay([told(tmp_path, late)], roles(), Places(tmp_path / "out"))
    end_ms = parse_moment(out(tmp_path / "out", topics.NODE_STATES)[-1]["time"])
    assert end_ms == T0 + 4 * MINUTE_MS + TAIL_MS


def test_an_earlier_runs_files_are_replaced_and_other_files_are_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "out"
    directory.mkdir()
    for name in ("attributions.jsonl", "node-states.jsonl", "notes.txt"):
        (directory / name).write_text("old\n")
    replay([told(tmp_path, fault("1", "n", T0))], roles(), Places(directory))
    assert sorted(p.name for p in directory.iterdir()) == ["node-states.jsonl", "notes.txt"]


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorldError, match="cannot be written"):
        replay([told(tmp_path)], roles(), Places(tmp_path / "file"))


def test_lines_that_are_no_events_become_dead_letters_that_name_the_line(tmp_path: Path) -> None:
    broken = fault("2", "n", T0 + 1)
    lines = [encode(fault("1", "n", T0)), b"{", encode(broken).replace(b'"code":"79",', b""), b"[1]"]
    source = told(tmp_path, *lines)
    run = replay([source], roles(), Places(tmp_path / "out"))
    letters = [r["data"] for r in out(tmp_path / "out", topics.DEAD_LETTERS)]
    assert [(d["reason"], d["topic"], d["offset"]) for d in letters] == [
        ("not_json", source.name, 2),
        ("missing_field", "node-events", 3),
        ("not_an_object", source.name, 4),
    ]
    assert {r["time"] for r in out(tmp_path / "out", topics.DEAD_LETTERS)} == {"2026-11-23T04:00:00Z"}
    assert run.dead_letters == {"not_json": 1, "missing_field": 1, "not_an_object": 1}
    assert letters[0]["headers"] == {"file": source.name, "line": "2"}


def test_a_failing_processor_is_counted_and_the_record_kept(tmp_path: Path) -> None:
    run = replay([told(tmp_path, fault("1", "n", T0, BOOM))], roles(), Places(tmp_path / "out"))
    assert (run.failures, run.dead_letters) == (1, {"processor_error": 1})
    assert out(tmp_path / "out", topics.DEAD_LETTERS)[0]["data"]["offset"] == 1


def test_the_store_gets_input_and_answers_with_their_arrival_and_is_closed(tmp_path: Path) -> None:
    store = Kept()
    ahead = fault("2", "n", T0 + 3 * DAY_MS, recorded_ms=T0 + 2)
    replay([told(tmp_path, fault("1", "n", T0, recorded_ms=T0 + 1), ahead)], roles(), Places(store=store))
    assert ("1", T0 + 1, True) in store.events
    assert [raw for _, _, raw in store.events] == [False, True, False, False]
    assert store.closed


# --- going on ------------------------------------------------------------------------------------------


def test_two_nights_imported_one_after_the_other_say_what_both_at_once_say(tmp_path: Path) -> None:
    first = [fault(str(i), f"n{i % 3}", T0 + i * MINUTE_MS) for i in range(20)]
    second = [fault(str(i), f"n{i % 3}", T0 + (i + 20) * MINUTE_MS) for i in range(20, 40)]
    state = tmp_path / "state"
    halves = []
    for number, events in enumerate((first, second)):
        directory = tmp_path / f"half-{number}"
        replay([told(tmp_path, *events)], roles(), Places(directory, state=state))
        halves += causes(directory)
    replay([told(tmp_path, *first, *second)], roles(), Places(tmp_path / "whole"))
    assert sorted(c for c in halves if c != "end") == sorted(c for c in causes(tmp_path / "whole") if c != "end")


def test_the_same_input_again_changes_nothing(tmp_path: Path) -> None:
    events = [fault(str(i), "n", T0 + i * MINUTE_MS) for i in range(5)]
    state = tmp_path / "state"
    replay([told(tmp_path, *events)], roles(), Places(state=state))
    before = state.read_bytes()
    run = replay([told(tmp_path, *events)], roles(), Places(tmp_path / "out", state=state))
    assert (causes(tmp_path / "out"), run.duplicates, run.events) == (["end"], 5, 5)
    replay([told(tmp_path, *events)], roles(), Places(state=state))
    assert _clock(state) == T0 + 4 * MINUTE_MS + TAIL_MS
    assert len(before) > 100


def _clock(state: Path) -> int:
    return load(state, roles())[0].clock_ms


def test_wakes_that_were_asked_for_before_the_end_fire_in_the_next_replay(tmp_path: Path) -> None:
    state = tmp_path / "state"
    replay([told(tmp_path, fault("1", "n", T0))], roles(), Places(state=state))
    replay([told(tmp_path, fault("2", "m", T0 + NAP_MS))], roles(), Places(tmp_path / "out", state=state))
    assert causes(tmp_path / "out") == ["woken-1", "seen-2", "end", "end"]


def test_what_arrives_more_than_seven_days_behind_the_saved_clock_is_counted_and_changes_nothing(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    replay([told(tmp_path, fault("1", "n", T0))], roles(), Places(state=state), until_ms=T0)
    week = [fault("2", "n", T0 - 7 * DAY_MS - 1), fault("3", "n", T0 - 7 * DAY_MS)]
    run = replay([told(tmp_path, *week)], roles(), Places(tmp_path / "out", state=state))
    assert (run.too_old, run.events, causes(tmp_path / "out")) == (1, 1, ["seen-3", "end"])


def test_fresh_reads_nothing_of_the_saved_state_and_replaces_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    replay([told(tmp_path, fault("1", "n", T0 + 30 * DAY_MS))], roles(), Places(state=state))
    run = replay([told(tmp_path, fault("1", "n", T0))], roles(), Places(state=state, fresh=True))
    assert (run.too_old, run.duplicates, _clock(state)) == (0, 0, T0 + TAIL_MS)


def test_a_run_that_is_cut_off_leaves_the_earlier_state_as_it_was(tmp_path: Path) -> None:
    state = tmp_path / "state"
    replay([told(tmp_path, fault("1", "n", T0))], roles(), Places(state=state))
    before = state.read_bytes()
    cut = tmp_path / "cut.zst"
    cut.write_bytes(zstandard.ZstdCompressor().compress(encode(fault("2", "n", T0 + 1)) * 50)[:-3])
    with pytest.raises(WorldError, match="compressed data is broken"):
        replay([Recording(str(cut))], roles(), Places(tmp_path / "out", state=state))
    assert state.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.suffix == ".tmp"] == []


# --- the saved state -----------------------------------------------------------------------------------


def saved(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    replay([told(tmp_path, *(fault(str(i), f"n{i}", T0 + i) for i in range(50)))], roles(), Places(state=state))
    return state


def test_a_state_that_is_read_back_is_the_state_that_was_saved(tmp_path: Path) -> None:
    state = saved(tmp_path)
    (task,) = load(state, roles())
    again = tmp_path / "again"
    save(again, [task])
    (other,) = load(again, roles())
    assert (task.lane, list(task.states.items())) == (other.lane, list(other.states.items()))
    assert again.read_bytes() == state.read_bytes()


@pytest.mark.parametrize("part", [0, 1, 10, 50, 99])
def test_a_state_that_was_cut_or_bent_anywhere_is_refused_with_the_way_out(tmp_path: Path, part: int) -> None:
    state = saved(tmp_path)
    whole = state.read_bytes()
    at = len(whole) * part // 100
    for broken in (whole[:at], whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]):
        state.write_bytes(broken)
        with pytest.raises(ConfigurationError, match=r"cannot be used: .*--fresh"):
            load(state, roles())


def test_a_state_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    header = {"magic": "faultlens-state", "format": FORMAT + 1, "program": "9.9", "lanes": 0}
    frame = msgspec.msgpack.encode(header)
    state = tmp_path / "state"
    state.write_bytes(zstandard.ZstdCompressor().compress(len(frame).to_bytes(4, "big") + frame))
    with pytest.raises(ConfigurationError, match=r"of format 2, written by faultlens 9\.9"):
        load(state, roles())


def test_a_state_with_an_unknown_role_is_refused_and_a_missing_one_begins_anew(tmp_path: Path) -> None:
    class Other(Toy):
        name = "other"

    other = Role(Other(), Other.topics)
    state = saved(tmp_path)
    assert [t.clock_ms for t in load(state, [*roles(), other])] == [T0 + 49 + TAIL_MS, 0]
    with pytest.raises(ConfigurationError, match="it holds toy, which"):
        load(state, [other])


# --- the pump ------------------------------------------------------------------------------------------


def test_all_lanes_share_one_clock_and_fire_in_time_order() -> None:
    class Second(Toy):
        name = "second"

    said: list[tuple[str, int]] = []
    tasks = [Task(Role(toy, toy.topics)) for toy in (Toy(), Second())]
    pump = Pump(tasks, lambda sent, at_ms: said.append((sent.event.source, at_ms - T0)))
    for number, at_ms in enumerate((T0, T0 + MINUTE_MS)):
        tasks[1 - number].take(_record(number, fault(str(number), "n", at_ms)))
        tasks[1 - number].collect()
    pump.finish(T0 + DAY_MS)
    assert said[:2] == [("faultlens/second", NAP_MS), ("faultlens/toy", NAP_MS + MINUTE_MS)]


def _record(offset: int, event: Event) -> Any:
    from streams.runtime.records import Record

    return Record(topics.NODE_EVENTS, offset, event.time_ms, event)


# --- counts --------------------------------------------------------------------------------------------


def test_verdicts_are_counted_as_they_last_stood() -> None:
    tally = Tally()
    for attempt, status, basis in [
        (1, "provisional", "assumed"),
        (1, "final", "supported"),
        (2, "final", "assumed"),
        (2, "amended", "established"),
        (3, "final", "assumed"),
        (3, "withdrawn", "assumed"),
        (4, "provisional", "assumed"),
    ]:
        tally.sent(topics.ATTRIBUTIONS, _verdict(attempt, status, basis))
    answer = tally.answer()
    assert answer["verdicts"] == {"hardware": {"supported": 1, "established": 1}}
    assert (answer["verdicts_total"], answer["verdicts_open"], answer["amended"], answer["withdrawn"]) == (2, 1, 1, 1)


def _verdict(attempt: int, status: Any, basis: Any) -> Event:
    from faultlens.clock import moment_of
    from faultlens.codec import event_of
    from faultlens.events import Cause, Culprit, JobAttributed, Lost, Retry

    data = JobAttributed(
        "j", attempt, "c1", 1, status, Cause("hardware", "gpu.off_bus"), basis, 0.5, Culprit(), (), (),
        Retry("retry"), Lost(0.0, 0.0), "rule", "catalogue", moment_of(T0),
    )  # fmt: skip
    return event_of(data, source="s", id_=f"{attempt}{status}", time_ms=T0)
