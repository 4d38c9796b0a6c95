"""Laws of the whole pipeline over several lanes: crashes and lag change no verdict, and nothing is said twice."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from faultlens import topics
from faultlens.catalogue import load_catalogue
from faultlens.clock import MINUTE_MS, SECOND_MS
from faultlens.codec import Decoder, Event
from faultlens.objectives import load_objectives
from faultlens.recordings import Recording, merged
from faultlens.signatures import load_signatures
from faultlens.topics import CONTEXT, INPUT_TYPES
from streams.attribution import load_precision
from streams.fleet_context import FleetContextProcessor
from streams.job_lifecycle import JobLifecycleProcessor
from streams.node_health import NamesakesProcessor
from streams.objectives import ObjectivesProcessor
from streams.runtime.records import Role
from tests.simulation.world import World

CASES = Path(__file__).parents[3] / "shared" / "cases"
NAMES = (
    "hardware/gpu_off_bus_79",
    "hardware/nvlink_74_peer_is_root",
    "robustness/attempts_interleaved",
    "robustness/end_arrives_first",
    "cascades/sibling_teardown_after_user_crash",
    "platform/dns_outage",
    "user/same_failure_on_three_node_sets",
)
TICK_MS = 5 * SECOND_MS
PARTITIONS = 3

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the acceptance cases (shared/cases) are not here")


@cache
def roles() -> tuple[Role, ...]:
    catalogue = load_catalogue()
    node, job = (
        NamesakesProcessor(catalogue),
        JobLifecycleProcessor(load_signatures(), load_precision(), catalogue.version),
    )
    fleet, slo = FleetContextProcessor(beat_every_ms=TICK_MS), ObjectivesProcessor(load_objectives())
    return (
        Role(node, (*node.topics, CONTEXT)),
        Role(job, (*job.topics, CONTEXT)),
        Role(fleet, fleet.topics),
        Role(slo, slo.topics),
    )


@cache
def told(name: str) -> tuple[Event | int, ...]:
    """Return a case's events as they arrived, with ticks between them and for a quarter of an hour after the last."""
    found: list[Event | int] = []
    at_ms = 0
    for entry in merged([Recording(str(CASES / name / "events.jsonl"))], Decoder(INPUT_TYPES)):
        assert entry.event is not None
        if not found:
            at_ms = entry.arrived_ms // TICK_MS * TICK_MS
            found.append(at_ms)
        while at_ms + TICK_MS <= entry.arrived_ms:
            at_ms += TICK_MS
            found.append(at_ms)
        found.append(entry.event)
    return (*found, *(at_ms + TICK_MS * i for i in range(1, 15 * MINUTE_MS // TICK_MS)))


def later(name: str) -> list[Event | int]:
    """Return the ticks of the half hour after the end, in which those who fell behind are answered."""
    last_ms = told(name)[-1]
    assert isinstance(last_ms, int)
    return [last_ms + TICK_MS * i for i in range(1, 30 * MINUTE_MS // TICK_MS)]


def verdicts(world: World) -> dict[str, tuple[Any, ...]]:
    """Return what is in force of every attempt; each must have one final verdict and no revision twice."""
    own: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for record in world.log.records(topics.ATTRIBUTIONS):
        data = json.loads(record.value)["data"]
        known = own[f"{data['job_id']}/{data['attempt']}/{data.get('loss')}"].setdefault(data["revision"], data)
        assert known == data, "a revision was written twice with different content"
    standing = {}
    for attempt, revisions in own.items():
        last = revisions[max(revisions)]
        finals = [r["status"] for r in revisions.values()].count("final")
        assert finals == 1 or (last["status"] == "withdrawn" and not finals), (attempt, revisions)
        culprit = last["culprit"]
        standing[attempt] = (last["cause"]["class"], last["cause"]["code"], last["basis"], culprit.get("node"))
    return standing


@cache
def calm(name: str) -> dict[str, tuple[Any, ...]]:
    return verdicts(World(roles(), 1).tell(told(name)).drain_in_order().tell(later(name)).drain_in_order())


def stormy(name: str, seed: int) -> World:
    """Run a case over three lanes whose workers take turns at random, fall behind, and die before or after commits."""
    random = Random(seed)  # noqa: S311 - what is wanted is the same storm each time
    world = World(roles(), PARTITIONS).tell(told(name))
    lanes = world.lanes()
    slow = set(random.sample(range(len(lanes)), 3))
    for _ in range(600):
        number = random.randrange(len(lanes))
        if number in slow and random.random() < 0.9:
            continue
        crash = random.choices(("", "before", "after"), (20, 1, 1))[0]
        world.batch(*lanes[number], random.choice((1, 5, 40)), crash=crash)
    return world.drain(50).tell(later(name)).drain(50)


@pytest.mark.parametrize("name", NAMES)
def test_a_calm_cluster_says_what_one_process_says(name: str) -> None:
    expected = json.loads((CASES / name / "expect.json").read_text())["attributions"]
    found = calm(name)
    for want in expected:
        assert found[f"{want['job_id']}/{want['attempt']}/None"][0] in want["class"]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", NAMES)
def test_whoever_dies_or_falls_behind_the_verdicts_are_the_same(name: str, seed: int) -> None:
    assert verdicts(stormy(name, seed)) == calm(name)


@pytest.mark.parametrize("name", NAMES[:2])
def test_no_record_is_written_twice_and_nothing_is_buried(name: str) -> None:
    world = stormy(name, 7)
    for topic in topics.TOPICS:
        if topics.TOPICS[topic].kind == "output":
            assert set(world.written(topic).values()) <= {1}, topic
    assert not world.written(topics.DEAD_LETTERS)
