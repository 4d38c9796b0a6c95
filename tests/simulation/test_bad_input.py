"""Laws of bad input: it stops no lane, it is buried once with its reason, and everything else is as without it."""

from __future__ import annotations

import base64
import json
from collections import Counter
from functools import cache
from random import Random

import pytest

from faultlens import topics
from faultlens.arrival import placed
from faultlens.clock import DAY_MS, iso
from faultlens.codec import MAX_RECORD_BYTES, Decoder, encode
from faultlens.errors import InvalidEventError
from faultlens.events import DeadLetter
from faultlens.topics import TYPES
from tests.simulation.fleets import fleet
from tests.simulation.playing import Record, all_roles, in_step, outputs, play, storm
from tests.simulation.stories import Arrival
from tests.simulation.world import World

SEED = 11
REASONS = {
    "not_json", "not_an_object", "missing_field", "bad_value", "unknown_type", "subject_mismatch", "too_large",
    "time_ahead",
}  # fmt: skip


def told() -> tuple[Arrival, ...]:
    return fleet(SEED, hours=1.5, nodes=4)


def spoilt(raw: bytes, arrived_ms: int, random: Random) -> bytes:
    """Return the record with something wrong with it, or with bytes changed that may or may not matter."""
    event = json.loads(raw)
    field = random.choice(sorted(event["data"]))
    changes = {
        "type": lambda: event.update(type="faultlens.node.unheard_of.v1"),
        "version": lambda: event.update(specversion="0.3"),
        "subject": lambda: event.update(subject="somebody-else"),
        "ahead": lambda: event.update(time=iso(arrived_ms + 3 * DAY_MS)),
        "no time": lambda: event.update(time="yesterday"),
        "no data": lambda: event.update(data=[]),
        "wrong type": lambda: event["data"].update({field: {"a": [1, 2, {}]}}),
        "field gone": lambda: event["data"].pop(field),
        "envelope gone": lambda: event.pop(random.choice(("type", "source", "id", "time"))),
        "huge": lambda: event["data"].update(message="x" * (MAX_RECORD_BYTES + 1)),
    }
    what = random.choice([*changes, "cut", "flipped", "flipped", "list", "nothing"])
    if what in changes:
        changes[what]()
        return json.dumps(event).encode()
    if what == "flipped":
        at = random.randrange(len(raw))
        return raw[:at] + bytes([random.randrange(256)]) + raw[at + 1 :]
    return {"cut": raw[: random.randrange(1, len(raw))], "list": b"[" + raw + b"]", "nothing": b"null"}[what]


def is_bad(raw: bytes, topic: str, arrived_ms: int) -> bool:
    """Return whether the contract refuses the record in this topic."""
    decoder = Decoder({name: kind for name, kind in TYPES.items() if kind.topic == topic})
    try:
        placed(decoder.decode(raw), arrived_ms=arrived_ms, clock_ms=arrived_ms)
    except InvalidEventError:
        return True
    return False


@cache
def junk() -> tuple[Record, ...]:
    """Return a bad record beside every fourth good one, some of them in another's topic."""
    random = Random(SEED)  # noqa: S311 - what is wanted is the same junk each time
    found = []
    for arrival in told()[::4]:
        event = arrival.event
        topic = TYPES[event.type].topic
        if random.random() < 0.1:
            topic = random.choice((topics.NODE_EVENTS, topics.JOB_EVENTS, topics.PLATFORM_EVENTS))
            raw = encode(event)
        else:
            raw = spoilt(encode(event), arrival.at_ms, random)
        if is_bad(raw, topic, arrival.at_ms):
            found.append((arrival.at_ms, topic, event.subject, raw))
    return tuple(found)


@cache
def clean() -> World:
    return play(told(), in_step, partitions=2, roles=all_roles())


@cache
def littered() -> World:
    return play(told(), in_step, partitions=2, roles=all_roles(), junk=junk())


def test_there_is_junk_of_every_kind() -> None:
    letters = [event.data for event in outputs(littered(), topics.DEAD_LETTERS)]
    assert {letter.reason for letter in letters if isinstance(letter, DeadLetter)} == REASONS


@pytest.mark.parametrize("how", ["in step", "in a storm"])
def test_every_bad_record_has_one_dead_letter_that_holds_it(how: str) -> None:
    world = littered() if how == "in step" else play(told(), storm(3), partitions=2, roles=all_roles(), junk=junk())
    buried = Counter[bytes]()
    for event in outputs(world, topics.DEAD_LETTERS):
        letter = event.data
        assert isinstance(letter, DeadLetter)
        buried[base64.b64decode(letter.value)] += 1
    assert buried == Counter(raw if len(raw) <= 160 * 1024 else raw[: 64 * 1024] for _, _, _, raw in junk())


def test_everything_else_is_as_without_it() -> None:
    assert len(junk()) > 50
    for name, topic in topics.TOPICS.items():
        if topic.kind == "input" or name == topics.DEAD_LETTERS:
            continue
        without = [record.value for record in clean().log.records(name)]
        assert [record.value for record in littered().log.records(name)] == without, name
