"""Plays arrivals to a cluster in memory as time goes by, with lanes that stand still, and tells what came of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import itemgetter
from random import Random

from faultlens import topics
from faultlens.arrival import Entry
from faultlens.catalogue import load_catalogue
from faultlens.clock import HOUR_MS, MINUTE_MS, SECOND_MS
from faultlens.codec import Decoder, Event, encode
from faultlens.events import JobAttributed
from faultlens.local_pump import Pump
from faultlens.objectives import load_objectives
from faultlens.signatures import load_signatures
from faultlens.topics import CONTEXT, TYPES
from streams.attribution import load_precision
from streams.fleet_context import FleetContextProcessor
from streams.job_lifecycle import JobLifecycleProcessor
from streams.node_health import NamesakesProcessor
from streams.objectives import ObjectivesProcessor
from streams.runtime.records import Role, Sent
from streams.runtime.task import Task
from tests.simulation.stories import Arrival
from tests.simulation.world import World

TICK_MS = 30 * SECOND_MS
# After the last arrival: until the window of the last end has closed and all have answered.
TAIL_MS = 20 * MINUTE_MS
_BATCH = 500

Spot = tuple[Role, int, str]
# When a record arrives, in which topic, under which key, and its bytes.
Record = tuple[int, str, str, bytes]
Turn = Callable[[World, int], None]
Truth = tuple[str, str, str | None, int | None, str]


@cache
def all_roles() -> tuple[Role, ...]:
    """Return the four roles as the live runtime runs them, with the shipped data."""
    catalogue = load_catalogue()
    node = NamesakesProcessor(catalogue)
    job = JobLifecycleProcessor(load_signatures(), load_precision(), catalogue.version)
    fleet, slo = FleetContextProcessor(beat_every_ms=TICK_MS), ObjectivesProcessor(load_objectives())
    return (
        Role(node, (*node.topics, CONTEXT)),
        Role(job, (*job.topics, CONTEXT)),
        Role(fleet, fleet.topics),
        Role(slo, slo.topics),
    )


def judging_roles() -> tuple[Role, ...]:
    """Return the roles that verdicts rest on."""
    return all_roles()[:3]


def play(
    arrivals: Sequence[Arrival],
    turn: Turn,
    *,
    partitions: int = 1,
    roles: Sequence[Role] | None = None,
    tail_ms: int = TAIL_MS,
    junk: Iterable[Record] = (),
) -> World:
    """Let time go by in ticks: what has arrived by a tick lies in the log before `turn` lets lanes read.

    In the end everybody reads to the end, tick by tick.
    """
    world = World(judging_roles() if roles is None else roles, partitions)
    last_ms = arrivals[-1].at_ms + tail_ms
    at_ms, number = arrivals[0].at_ms // TICK_MS * TICK_MS, 0
    records = sorted([*map(_record, arrivals), *junk], key=itemgetter(0))
    while at_ms < last_ms:
        at_ms += TICK_MS
        while number < len(records) and records[number][0] <= at_ms:
            arrived_ms, topic, key, value = records[number]
            world.log.append(topic, key, value, arrived_ms)
            number += 1
        for topic in sorted({role.topics[0] for role in world.roles}):
            world.log.tick(topic, at_ms)
        turn(world, at_ms)
    while at_ms < last_ms + TAIL_MS:
        at_ms += TICK_MS
        for topic in sorted({role.topics[0] for role in world.roles}):
            world.log.tick(topic, at_ms)
        world.drain(_BATCH)
    return world


def _record(arrival: Arrival) -> Record:
    event = arrival.event
    return arrival.at_ms, TYPES[event.type].topic, event.subject, encode(event)


# --- turns ---------------------------------------------------------------------------------------------


def in_step(world: World, at_ms: int) -> None:
    """Everybody reads at once what there is."""
    world.drain(_BATCH)


def outage(role: str, from_ms: int, to_ms: int, lanes: Iterable[int] | None = None, *, backwards: bool = False) -> Turn:
    """Lanes of a role read nothing for some time and then catch up topic by topic; the others go on.

    `backwards`: what processors told each other is read before what the world told them.
    """
    standing = None if lanes is None else set(lanes)

    def turn(world: World, at_ms: int) -> None:
        moved = True
        while moved:
            moved = False
            for spot in reversed(world.lanes()) if backwards else world.lanes():
                stands = spot[0].name == role and (standing is None or spot[1] in standing)
                if not (stands and from_ms <= at_ms < to_ms):
                    moved |= world.batch(*spot, _BATCH)

    return turn


def storm(seed: int, *, crashes: float = 0.02) -> Turn:
    """Everybody reads as chance will have it, a few records or many, and dies now and then before or after a commit."""
    random = Random(seed)  # noqa: S311 - what is wanted is the same storm each time

    def turn(world: World, at_ms: int) -> None:
        spots = world.lanes()
        random.shuffle(spots)
        for spot in spots:
            if random.random() < 0.4:
                continue
            crash = random.choice(("before", "after")) if random.random() < crashes else ""
            world.batch(*spot, random.choice((1, 5, 40, _BATCH)), crash=crash)

    return turn


# --- the input, told otherwise --------------------------------------------------------------------------


def disturbed(
    arrivals: Sequence[Arrival], seed: int, *, within_ms: int = MINUTE_MS, again: float = 0.2
) -> list[Arrival]:
    """Return the arrivals out of order within a time, some of them again later, before the last one."""
    random = Random(seed)  # noqa: S311 - as above
    last_ms, found = arrivals[-1].at_ms, []
    for arrival in arrivals:
        at_ms = arrival.at_ms + random.randrange(within_ms)
        found.append(Arrival(at_ms, arrival.event))
        if random.random() < again:
            at_ms = min(last_ms, at_ms + random.randrange(HOUR_MS))
            found.append(Arrival(at_ms, arrival.event))
    return sorted(found, key=lambda arrival: arrival.at_ms)


# --- what came of it -------------------------------------------------------------------------------------


def outputs(world: World, topic: str) -> list[Event]:
    """Return the events of an output topic."""
    decoder = Decoder()
    return [decoder.decode(record.value) for record in world.log.records(topic) if record.value]


def embedded(arrivals: Sequence[Arrival], until_ms: int, roles: Sequence[Role] | None = None) -> list[Sent]:
    """Return everything that the embedded runtime sends, internal records too."""
    sent: list[Sent] = []
    pump = Pump([Task(role) for role in roles or all_roles()], lambda record, _at_ms: sent.append(record))
    for number, arrival in enumerate(arrivals, 1):
        entry = Entry("story", number, encode(arrival.event), arrival.event, arrived_ms=arrival.at_ms)
        pump.take(entry, arrival.event)
    pump.finish(until_ms)
    return sent


def revisions(verdicts: Iterable[Event]) -> dict[str, list[JobAttributed]]:
    """Return the verdicts on each attempt and loss in order of revision; no revision may have been told in two ways."""
    found: dict[str, dict[int, JobAttributed]] = defaultdict(dict)
    for event in verdicts:
        data = event.data
        assert isinstance(data, JobAttributed)
        name = f"{data.job_id}/{data.attempt}" + (f" loss {data.loss}" if data.loss else "")
        assert found[name].setdefault(data.revision, data) == data, f"{name}: revision {data.revision} told in two ways"
    return {name: [told[number] for number in sorted(told)] for name, told in sorted(found.items())}


def truths(verdicts: Iterable[Event]) -> dict[str, Truth]:
    """Return class, code, culprit and advice in force of every failed attempt: each has had one final verdict."""
    found: dict[str, Truth] = {}
    for name, told in revisions(verdicts).items():
        last, statuses = told[-1], [verdict.status for verdict in told]
        assert statuses.count("final") <= 1, (name, statuses)
        if last.status == "withdrawn":
            continue
        assert last.status in ("final", "amended"), (name, statuses)
        assert "final" in statuses, (name, statuses)
        culprit, device = last.culprit, last.culprit.device
        index = None if device is None else device.index
        found[name] = (last.cause.cause_class, last.cause.code, culprit.node, index, last.retry.advice)
    return found


def truth_of(world: World) -> dict[str, Truth]:
    """Return the truth on every failed attempt of a cluster in which nothing was buried."""
    assert not outputs(world, topics.DEAD_LETTERS)
    return truths(outputs(world, topics.ATTRIBUTIONS))
