"""Laws of random fleets: whatever happens to records and workers, the truth on every failure is the same in the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import pytest

from faultlens import topics
from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.codec import Decoder, encode
from faultlens.events import JobAttributed
from faultlens.internal import NodeAnswer, Released
from streams.runtime.records import Role
from streams.runtime.state import KeptCodec
from tests.simulation.books import told_of
from tests.simulation.fleets import fleet, seeds
from tests.simulation.playing import (
    TAIL_MS,
    Truth,
    all_roles,
    disturbed,
    embedded,
    in_step,
    outage,
    outputs,
    play,
    storm,
    truth_of,
    truths,
)
from tests.simulation.shrinking import smallest, story_of
from tests.simulation.stories import T0, Arrival
from tests.simulation.world import World

SEEDS = seeds(7)
Run = Callable[[Sequence[Arrival], int], World]


def of_size(seed: int) -> tuple[Arrival, ...]:
    return fleet(seed, hours=2.5, nodes=4)


@cache
def calm(seed: int) -> World:
    return play(of_size(seed), in_step)


def stands_still(role: str, lanes: Sequence[int] | None = None) -> Run:
    """Let lanes of a role stand still for more than an hour somewhere in the middle."""

    def run(told: Sequence[Arrival], seed: int) -> World:
        from_ms = T0 + (seed % 4 + 1) * 20 * MINUTE_MS
        turn = outage(role, from_ms, from_ms + 80 * MINUTE_MS, lanes)
        return play(told, turn, partitions=1 if lanes is None else 3)

    return run


RUNS: dict[str, Run] = {
    "workers die and take turns": lambda told, seed: play(told, storm(seed, crashes=0.05), partitions=3),
    "records come late and twice": lambda told, seed: play(disturbed(told, seed), in_step),
    "everything at once": lambda told, seed: play(disturbed(told, seed), storm(seed), partitions=3),
    "nodes stand still": stands_still("node"),
    "one lane of nodes stands still": stands_still("node", [1]),
    "jobs stand still": stands_still("job"),
    "one lane of jobs stands still": stands_still("job", [0]),
    "the context stands still": stands_still("context"),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_truth_on_every_failure_is_the_same_when(seed: int, name: str) -> None:
    found = truth_of(RUNS[name](of_size(seed), seed))
    assert found == truth_of(calm(seed)), few_that_do(seed, name)


def few_that_do(seed: int, name: str) -> str:
    """Return the few records of a fleet for which a run ends in another truth."""

    def broken(told: Sequence[Arrival]) -> bool:
        return truth_of(RUNS[name](told, seed)) != truth_of(play(told, in_step))

    return story_of(smallest(of_size(seed), broken))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_embedded_runtime_says_the_same_as_the_lanes(seed: int) -> None:
    told = of_size(seed)
    sent = embedded(told, told[-1].at_ms + TAIL_MS)
    found: dict[str, Truth] = truths(record.event for record in sent if record.topic == topics.ATTRIBUTIONS)
    assert found == truth_of(calm(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_final_before_every_node_has_answered(seed: int) -> None:
    told = of_size(seed)
    asked: dict[tuple[str, int, int | None], dict[str, int]] = {}
    answered: dict[tuple[str, int, int | None], dict[str, int]] = {}
    for record in embedded(told, told[-1].at_ms + TAIL_MS, all_roles()[:3]):
        data = record.event.data
        if isinstance(data, Released) and data.failed:
            asked.setdefault((data.job_id, data.attempt, data.loss), {})[data.node] = data.closes_ms
        elif isinstance(data, NodeAnswer):
            answered.setdefault((data.job_id, data.attempt, data.loss), {})[data.node] = data.up_to_ms
        elif record.topic == topics.ATTRIBUTIONS and data.status == "final":  # type: ignore[attr-defined]
            name = (data.job_id, data.attempt, data.loss)  # type: ignore[attr-defined]
            up_to_ms = answered.get(name, {})
            assert all(up_to_ms.get(node, 0) >= ms for node, ms in asked.get(name, {}).items()), name


@pytest.mark.parametrize("seed", SEEDS)
def test_final_verdicts_come_within_a_minute_of_the_windows_end_when_nobody_is_behind(seed: int) -> None:
    attempts, _ = told_of(of_size(seed))
    finals = 0
    for event in outputs(calm(seed), topics.ATTRIBUTIONS):
        verdict = event.data
        assert isinstance(verdict, JobAttributed)
        ends = attempts[verdict.job_id, verdict.attempt].ends
        if verdict.status == "final" and verdict.loss is None and ends:
            closes_ms = max(at_ms for at_ms, _ in ends.values()) + 5 * MINUTE_MS
            assert event.time_ms <= closes_ms + MINUTE_MS, verdict
            finals += 1
    assert finals > 0


def test_nodes_are_not_asked_again_before_they_can_have_answered() -> None:
    told: dict[tuple[str, int, str, int | None], list[tuple[int, int, tuple[str, ...]]]] = {}
    for event in outputs(calm(SEEDS[0]), topics.ALLOCATIONS):
        if isinstance(said := event.data, Released) and said.failed:
            words = told.setdefault((said.job_id, said.attempt, said.node, said.loss), [])
            words.append((said.opens_ms, said.closes_ms, said.brought))
    assert told
    assert not any(earlier == later for words in told.values() for earlier, later in pairwise(words))


@pytest.mark.parametrize("role", ["node", "context"])
def test_verdicts_stay_provisional_as_long_as_a_role_stands_still(role: str) -> None:
    from_ms, to_ms = T0 + 20 * MINUTE_MS, T0 + 2 * HOUR_MS
    world = play(of_size(SEEDS[0]), outage(role, from_ms, to_ms))
    told = [(event.time_ms, event.data) for event in outputs(world, topics.ATTRIBUTIONS)]
    status = {"provisional": 0, "final": 0}
    for at_ms, verdict in told:
        if from_ms + 6 * MINUTE_MS < at_ms < to_ms and verdict.status in status:  # type: ignore[attr-defined]
            status[verdict.status] += 1  # type: ignore[attr-defined]
    assert status["provisional"] > 0
    assert status["final"] == 0


def test_the_same_input_gives_the_same_bytes() -> None:
    def written() -> list[bytes]:
        world = play(of_size(SEEDS[0]), storm(1), partitions=3, roles=all_roles())
        return [record.value for name in topics.TOPICS for record in world.log.records(name)]

    first = written()
    assert len(first) > len(of_size(SEEDS[0]))
    assert written() == first


def test_what_is_kept_and_sent_is_read_back_as_it_was() -> None:
    told = of_size(SEEDS[0])
    decoder, types = Decoder(), set()
    for sent in embedded(told, told[-1].at_ms + TAIL_MS):
        again = decoder.decode(encode(sent.event))
        assert again.data == sent.event.data
        types.add(type(again.data).__name__)
    assert {"Held", "Released", "NodeEvidence", "NodeAnswer", "NodeNews", "ContextChange", "LaneCensus"} <= types
    world = play(told, in_step, roles=all_roles())
    roles: dict[str, Role] = {role.name: role for role in world.roles}
    for (name, _), task in world.tasks.items():
        codec = KeptCodec(roles[name].processor.state_type)
        assert len(task.states) > 0, name
        for key, kept in task.states.items():
            assert codec.decode(codec.encode(kept)) == kept, key
