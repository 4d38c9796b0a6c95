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
from faultlens.topics import INPUT_TYPES, TYPES
from producers.playback import Tick, timeline
from streams.runtime.records import Role, Sent
from streams.runtime.task import Task
from tests.simulation.comparing import COMPARED, Written, assert_the_same, lasting
from tests.simulation.fleets import seeds, time_of_trouble
from tests.simulation.world import World

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


@pytest.mark.parametrize("seed", seeds(2, 5, 6))
def test_a_recording_that_is_played_in_steps_gives_what_its_replay_gives(tmp_path: Path, seed: int) -> None:
    recording = tmp_path / "events.jsonl"
    recording.write_bytes(time_of_trouble(seed))
    expected = replayed(recording)
    assert len(lasting(expected["attributions"])) > 5
    for turn in range(3):
        assert_the_same(played(recording, Random(turn)), expected)  # noqa: S311 - the same order for the same number
