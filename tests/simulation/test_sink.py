"""The sink loses nothing and doubles nothing: whatever fails, whoever is killed, however partitions move."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from faultlens.errors import WorldError
from sinks.memory_log import MemoryLog
from sinks.sink import Limits, Sink
from tests.simulation.sinking import (
    AT_MS,
    GROUP,
    Inline,
    KilledError,
    World,
    assert_all_is_there,
    letter_about,
    value_of,
)

KINDS = ("fault", "report", "report", "ended", "broken", "stray", "poison", "twice", "tick", "tick", "marker")


def append(world: World, kind: str, number: int) -> None:
    if kind == "twice":
        append(world, "ended", max(0, number - 7))
        return
    place, value = value_of(kind, number)
    if kind == "marker":
        world.broker.mark(place)
    else:
        world.broker.append(place, b"" if kind == "tick" else value, key=b"k", at_ms=AT_MS + number)


def until_idle(world: World, sink: Sink, now_s: float) -> float:
    """Let the sink work until nothing is left, its own dead letters included."""
    for _ in range(40):
        now_s += 2.0
        sink.turn(now_s)
        world.post()
    return now_s


@pytest.mark.parametrize("seed", range(60))
def test_everything_is_stored_once_whatever_happens(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    calm = False

    def fate() -> str:
        return "well" if calm else dice.choices(("well", "away", "silent", "killed"), (80, 9, 8, 3))[0]

    world = World(fate)
    limits = Limits(rows=dice.choice((1, 7, 50)), age_s=dice.choice((0.0, 1.0)), idle_s=4.0)
    alive: list[tuple[Sink, MemoryLog]] = [world.sink(limits)]
    now_s = 0.0
    for number in range(300):
        now_s += 0.1
        append(world, dice.choice(KINDS), number)
        if dice.random() < 0.02 and len(alive) < 3:
            alive.append(world.sink(limits))
        if dice.random() < 0.01 and len(alive) > 1:
            alive.pop(0)[1].close()
        for member in dice.sample(alive, dice.randint(0, len(alive))):
            try:
                member[0].turn(now_s)
            except KilledError:
                member[1].close()
                alive[alive.index(member)] = world.sink(limits)
        world.post()
    calm = True
    for _, log in alive:
        log.close()
    last, log = world.sink(limits)
    now_s = until_idle(world, last, now_s)
    assert last.finish(now_s, 1.0)
    assert_all_is_there(world)


def test_nothing_is_acknowledged_before_it_is_in_the_store() -> None:
    away = True
    world = World(lambda: "away" if away else "well")
    for number in range(5):
        append(world, "ended", number)
    gives_up = iter([False, False, True])
    sink, _ = world.sink(Limits(rows=1))
    sink._delivery._pause = lambda _: next(gives_up)
    sink.turn(0.0)
    assert not sink.finish(1.0, 1.0)
    assert GROUP not in world.broker.committed
    away = False
    again, _ = world.sink(Limits(rows=1))
    again.turn(2.0)
    again.turn(3.0)
    assert again.finish(4.0, 1.0)


def test_a_full_batch_holds_up_the_log_until_the_store_has_taken_the_one_before() -> None:
    waiting: list[Callable[[], None]] = []

    class Later(Inline):
        def submit(self, work: Callable[[], None], /) -> Future[None]:
            future: Future[None] = Future()

            def carry_out() -> None:
                work()
                future.set_result(None)

            waiting.append(carry_out)
            return future

    world = World()
    sink, log = world.sink(Limits(rows=4, age_s=0.0))
    sink._executor = Later()
    for number in range(200):
        append(world, "ended", number)
    sink.turn(0.0)
    assert len(waiting) == 1
    sink.turn(1.0)
    assert not log._paused
    append(world, "ended", 200)
    append(world, "ended", 201)
    sink.turn(2.0)
    append(world, "ended", 203)
    append(world, "ended", 204)
    sink.turn(3.0)
    assert log._paused
    assert sink.turn(4.0) == 0
    waiting.pop()()
    sink.turn(5.0)
    assert not log._paused
    waiting.pop()()
    sink.turn(6.0)
    assert sink.turn(7.0) == 0


def test_a_bad_record_becomes_a_letter_with_its_own_bytes_and_the_others_go_on() -> None:
    world = World()
    place, poison = value_of("poison", 3)
    world.broker.append(place, poison, key=b"j3", at_ms=AT_MS, headers={"h": b"v"})
    append(world, "ended", 1)
    broken = b"\xff{"
    world.broker.append(("node-events", 1), broken, at_ms=AT_MS)
    sink, _ = world.sink()
    until_idle(world, sink, 0.0)
    assert_all_is_there(world)
    about = {letter_about(value)[:2]: (key, letter_about(value)[3]) for key, value in world.letters.sent}
    assert about == {place: (b"j3", poison), ("node-events", 1): (b"node-events", broken)}


def test_what_cannot_be_buried_is_not_acknowledged() -> None:
    world = World()
    append(world, "broken", 1)
    world.letters.fails = WorldError("no broker")
    sink, _ = world.sink()
    sink.turn(0.0)
    with pytest.raises(WorldError, match="no broker"):
        until_idle(world, sink, 1.0)
    assert GROUP not in world.broker.committed


def test_who_may_only_write_node_events_cannot_speak_as_the_scheduler() -> None:
    world = World()
    append(world, "stray", 2)
    sink, _ = world.sink()
    until_idle(world, sink, 0.0)
    assert world.store.rows("job_facts") == []
    (letter,) = world.store.rows("dead_letters")
    assert (letter["topic"], letter["reason"]) == ("node-events", "unknown_type")


def test_ticks_alone_are_told_of_once_a_minute_and_not_with_every_batch() -> None:
    world = World()
    sink, _ = world.sink(Limits(age_s=1.0, idle_s=60.0))
    for second in range(130):
        world.broker.append(("node-events", 0), b"", at_ms=AT_MS + 1000 * second)
        append(world, "ended", 2 * second)
        sink.turn(float(second))
    runs = world.runs()
    assert len(runs[("node-events", 0)]) == 2
    assert len(runs[("job-events", 0)]) > 30


def test_what_expired_before_it_was_read_is_a_hole_that_the_runs_show() -> None:
    world = World()
    for number in range(0, 20, 2):
        append(world, "ended", number)
    first, log = world.sink(Limits(rows=1))
    until_idle(world, first, 0.0)
    log.close()
    for number in range(20, 40, 2):
        append(world, "ended", number)
    world.broker.expire(("job-events", 0), 15)
    second, log = world.sink(Limits(rows=1))
    until_idle(world, second, 100.0)
    runs = world.runs()[("job-events", 0)]
    assert [(run["start"], run["stop"]) for run in runs] == [(0, 10), (15, 20)]
    assert log.expired == {"job-events": 5}
