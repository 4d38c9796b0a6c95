"""Laws of the task: however records are cut, repeated, interleaved or interrupted, what comes out is the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from faultlens import topics
from faultlens.clock import MINUTE_MS, parse_moment
from faultlens.codec import Event
from streams.runtime.log import MemoryLog
from streams.runtime.records import Batch, LaneRecord, Role
from streams.runtime.state import Kept
from streams.runtime.task import Task
from tests.simulation.toy import BOOM, FAILS_LATER, Tally, Toy, fault
from tests.simulation.world import World

T0 = parse_moment("2026-11-23T04:00:00Z")
TOY = Role(Toy(), (*Toy.topics, topics.CONTEXT))
NODES = ("a", "b", "c", "d")

Step = tuple[str, int, str]
steps = st.lists(
    st.tuples(st.sampled_from(NODES), st.integers(0, 8), st.sampled_from(["79", "79", "79", BOOM, FAILS_LATER])),
    max_size=30,
)


def story(taken: Sequence[Step]) -> list[Event | int]:
    """Return faults in order of arrival, minutes apart, with a tick (its time) before each."""
    found: list[Event | int] = []
    at_ms = T0
    for number, (node, minutes, code) in enumerate(taken):
        at_ms += minutes * MINUTE_MS
        found += [at_ms, fault(f"e{number}", node, at_ms, code)]
    return [*found, at_ms + 30 * MINUTE_MS]


def calm(told: Sequence[Event | int], partitions: int = 1) -> World:
    return World([TOY], partitions).tell(told).drain()


def outcome(world: World) -> tuple[object, ...]:
    """Return all that must not depend on how things went: states, answers, and what was refused."""
    return world.states(), world.written(topics.NODE_STATES, topics.ALLOCATIONS), world.written(topics.DEAD_LETTERS)


# Wakes fail and are put off by the clock of their lane; what a failing wake leaves is compared where time is the same.
acts = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(Toy.topics),
        st.integers(1, 6),
        st.sampled_from(["", "", "before", "after"]),
    ),
    max_size=40,
)


@given(steps, acts)
@settings(max_examples=150)
def test_crashes_between_any_two_steps_and_any_interleaving_change_nothing(
    taken: list[Step], acted: list[tuple[int, str, int, str]]
) -> None:
    told = story([(node, minutes, "79" if code == FAILS_LATER else code) for node, minutes, code in taken])
    world = World([TOY], 3).tell(told)
    for lane, topic, size, crash in acted:
        world.batch(TOY, lane, topic, size, crash=crash)
    assert outcome(world.drain()) == outcome(calm(told, 3))


@given(steps, st.lists(st.integers(1, 9), max_size=20))
@settings(max_examples=100)
def test_however_the_records_are_cut_into_batches_the_same_comes_out(taken: list[Step], sizes: list[int]) -> None:
    records = list(World([TOY]).tell(story(taken)).log.records(topics.NODE_EVENTS))
    whole = Task(TOY)
    one = whole.step(records)
    cut = Task(TOY)
    batches = []
    for size in [*sizes, len(records)]:
        batches.append(cut.step(records[:size]))
        records = records[size:]
    assert [sent for batch in batches for sent in batch.sent] == one.sent
    assert (dict(cut.states.items()), cut.lane) == (dict(whole.states.items()), whole.lane)


@given(steps, st.data())
@settings(max_examples=100)
def test_records_that_come_again_change_nothing(taken: list[Step], data: st.DataObject) -> None:
    told = story([(node, minutes, "79") for node, minutes, _ in taken])
    again: list[Event | int] = []
    for number, event in enumerate(told):
        again.append(event)
        known = [e for e in told[:number] if isinstance(e, Event)]
        if known and isinstance(event, Event):
            again += data.draw(st.lists(st.sampled_from(known), max_size=2))
    assert outcome(calm(again)) == outcome(calm(told))


@given(steps, st.integers(1, 4))
@settings(max_examples=60)
def test_bad_records_are_written_down_once_and_the_others_go_on_as_if_they_were_not_there(
    taken: list[Step], partitions: int
) -> None:
    told = story([(node, minutes, "79" if code == FAILS_LATER else code) for node, minutes, code in taken])
    good = [e for e in told if not (isinstance(e, Event) and getattr(e.data, "code", "") == BOOM)]
    world = calm(told, partitions)
    assert world.states() == calm(good, partitions).states()
    assert sorted(world.written(topics.DEAD_LETTERS).values()) == [1] * (len(told) - len(good))


@given(steps)
@settings(max_examples=60)
def test_the_number_of_lanes_does_not_change_what_is_said(taken: list[Step]) -> None:
    told = story([(node, minutes, "79") for node, minutes, _ in taken])
    assert outcome(calm(told, 1)) == outcome(calm(told, 4))


@given(steps)
@settings(max_examples=60)
def test_a_lane_that_is_loaded_again_goes_on_as_if_nothing_had_happened(taken: list[Step]) -> None:
    def run(after: Callable[[MemoryLog, Task], Task]) -> tuple[list[Batch], dict[str, Kept], LaneRecord]:
        log = World([TOY]).tell(story(taken)).log
        task = log.open(TOY, 0, ticking=True)
        batches = []
        for record in list(log.records(topics.NODE_EVENTS)):
            batches.append(task.step([record]))
            log.commit(TOY.name, 0, batches[-1])
            task = after(log, task)
        return batches, dict(task.states.items()), task.lane

    assert run(lambda log, _: log.open(TOY, 0, ticking=True)) == run(lambda _, task: task)


def tallies(world: World) -> list[tuple[str, Tally]]:
    return [(key, kept.state) for key, kept in world.states().items() if isinstance(kept.state, Tally)]


def test_the_toy_says_enough_for_these_laws_to_mean_something() -> None:
    world = calm(story([("a", 1, "79"), ("b", 11, "79"), ("a", 0, BOOM), ("a", 1, "79")]))
    counted = {key: (state.faults, state.held, state.wakes) for key, state in tallies(world)}
    assert counted == {"a": (2, 2, 2), "b": (1, 1, 1)}
    assert sum(world.written(topics.NODE_STATES).values()) == 6
