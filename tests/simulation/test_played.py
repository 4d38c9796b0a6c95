"""A recording that is played in steps gives what its replay gives, whoever is slow or dies within a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

import pytest

from faultlens.arrival import End, Entry
from faultlens.clock import MINUTE_MS
from faultlens.codec import Decoder, encode
from faultlens.local_pump import Pump
from faultlens.local_roles import EMBEDDED, PLAYED, load_roles
from faultlens.recordings import Recording, merged
from faultlens.topics import INPUT_TYPES, SAMPLES, TYPES
from producers.playback import Tick, timeline
from streams.runtime.records import Record, Role, Sent
from streams.runtime.task import Task
from tests.simulation.comparing import COMPARED, Written, assert_the_same, lasting
from tests.simulation.fleets import seeds, time_of_trouble
from tests.simulation.world import World
from tests.unit.scenes import MISTAKE, Run, Scene, at_ms

LANES = 3
STEP_MS = MINUTE_MS


@cache
def played_roles() -> tuple[Role, ...]:
    return tuple(load_roles(cadence=PLAYED))


def entries(recording: Path) -> list[Entry]:
    return list(merged([Recording(str(recording))], Decoder(INPUT_TYPES)))


def replayed(recording: Path) -> Written:
    sent: list[Sent] = []
    pump, end = Pump([Task(role) for role in load_roles(cadence=EMBEDDED)], lambda one, _at_ms: sent.append(one)), End()
    for entry in entries(recording):
        assert entry.event is not None
        end.see(entry)
        pump.take(entry, entry.event)
    pump.finish(end.at_ms)
    decode = Decoder().decode
    return {topic: [decode(encode(one.event)) for one in sent if one.topic == topic] for topic in COMPARED}


def played(recording: Path, dice: Random) -> Written:
    """Play the recording as `faultlens produce` does: after each step all that follows from it is done."""
    world, ticking = World(played_roles(), LANES), [role.topics[0] for role in played_roles()]
    step_ends_ms: int | None = None
    for what in timeline(entries(recording)):
        at_ms = what.arrived_ms
        if step_ends_ms is None or at_ms > step_ends_ms:
            work_off(world, dice)
            step_ends_ms = -(-at_ms // STEP_MS) * STEP_MS
        if isinstance(what, Tick):
            for topic in ticking:
                world.log.tick(topic, at_ms, after=what.after)
        else:
            assert what.event is not None
            world.log.append(TYPES[what.event.type].topic, what.event.subject, what.raw, at_ms)
    work_off(world, dice)
    for role in played_roles():
        for lane in range(LANES):
            task = world.tasks[role.name, lane]
            task.finish()
            world.log.commit(role.name, lane, task.seal())
        world.drain()
    decode = Decoder().decode
    return {topic: [decode(r.value) for r in world.log.records(topic) if r.value] for topic in COMPARED}


def work_off(world: World, dice: Random) -> None:
    """Let lanes read in any order until nothing is left: some stand still for a while, some die."""
    spots = world.lanes()
    while True:
        slow = set(dice.sample(range(len(spots)), dice.randrange(len(spots))))
        moved = [take_turns(world, spots[number], dice) for number in chosen(len(spots), slow, dice)]
        left = [world.batch(*spot, 500) for spot in spots] if not any(moved) else [True]
        if not any(left):
            return


def chosen(count: int, slow: set[int], dice: Random) -> Sequence[int]:
    return [number for number in dice.choices(range(count), k=dice.randrange(1, 60)) if number not in slow]


def take_turns(world: World, spot: tuple[Role, int, str], dice: Random) -> bool:
    crash = dice.choice(("before", "after")) if dice.random() < 0.01 else ""
    return world.batch(*spot, dice.choice((1, 5, 40, 500)), crash=crash)


@pytest.mark.parametrize("seed", seeds(2, 5, 9, 12))
def test_a_recording_that_is_played_in_steps_gives_what_its_replay_gives(tmp_path: Path, seed: int) -> None:
    recording = tmp_path / "events.jsonl"
    recording.write_bytes(time_of_trouble(seed))
    expected = replayed(recording)
    assert len(lasting(expected["attributions"])) > 5
    for turn in range(3):
        assert_the_same(played(recording, Random(turn)), expected)  # noqa: S311 - the same order for the same number


def test_a_service_is_charged_from_when_a_cause_was_learnt_however_late_within_a_step_it_is_read() -> None:
    scene = Scene().node("n1", "n2", until=40).job("s", workload="inference", replicas=2)
    for number, node in enumerate(("n1", "n2"), 1):
        scene.attempt("s", node, number=number)
    scene.exit(20.1, "s", 0, "n1", MISTAKE).end(20.1, "s").fault(20.1, "n1", "xid", "79", 0, arrives=20.4)
    scene.attempt("s", "n1", minute=29.5, number=3)
    world, told, end = World(played_roles()), scene.events(), 40
    for minute in range(-10, end + 1):
        for arrived_ms, event in told:
            if at_ms(minute - 1) < arrived_ms <= at_ms(minute):
                world.tell([arrived_ms, event])
        # Each lane reads one topic to its end before the next one: its clock is the step's end when others are heard.
        world.tell([at_ms(minute)]).drain(500)
    for task in world.tasks.values():
        task.finish()
        world.log.commit(task.role.name, task.number, task.seal())
    samples = [Sent(SAMPLES, record.key, Decoder().decode(record.value)) for record in samples_of(world)]
    assert Run(samples).counted("serving_capacity") == scene.run(end).counted("serving_capacity")


def samples_of(world: World) -> list[Record]:
    return [record for record in world.log.records(SAMPLES) if record.value]
