"""Laws of the books: every GPU-millisecond once, and objectives that say what a second count of the answers says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import HOUR_MS
from faultlens.codec import Event
from faultlens.events import Check, JobAttributed, NodeHealth
from tests.simulation import books
from tests.simulation.fleets import fleet, seeds
from tests.simulation.playing import TAIL_MS, all_roles, disturbed, embedded, outputs, play, revisions, storm
from tests.simulation.stories import T0, Arrival, Story

SEEDS = seeds(2, 3)
OF_JOBS = ("goodput", "job_start", "job_success")
OF_NODES = ("node_availability", "gpu_availability")
Outputs = dict[str, list[Event]]


@cache
def arrivals(seed: int, how: str) -> tuple[Arrival, ...]:
    told = tuple(map(_in_pools, fleet(seed, hours=2.5, nodes=4)))
    return told if how == "in order" else tuple(disturbed(told, seed))


def _in_pools(arrival: Arrival) -> Arrival:
    """Return a report with the pool that its node is in: of one it is known after an hour only, another one moves."""
    event, data = arrival.event, arrival.event.data
    if not isinstance(data, NodeHealth):
        return arrival
    late, number = event.time_ms - T0 > HOUR_MS, int(event.subject[-4:]) % 4
    pool = (None, "a", "a", "b")[number] if not late else ("a", "a", "b", "b")[number]
    return Arrival(arrival.at_ms, replace(event, data=replace(data, pool=pool)))


def end_ms(seed: int, how: str) -> int:
    return arrivals(seed, how)[-1].at_ms + TAIL_MS


@cache
def replayed(seed: int, how: str) -> Outputs:
    """Return what the embedded runtime writes."""
    found: Outputs = {name: [] for name in topics.TOPICS}
    for sent in embedded(arrivals(seed, how), end_ms(seed, how)):
        found[sent.topic].append(sent.event)
    return found


@cache
def stormed(seed: int) -> Outputs:
    """Return what three lanes write whose workers take turns at random, and die."""
    world = play(arrivals(seed, "disturbed"), storm(seed), partitions=3, roles=all_roles())
    return {name: outputs(world, name) for name in topics.TOPICS if topics.TOPICS[name].kind == "output"}


def in_force(written: Outputs) -> dict[str, JobAttributed]:
    told = revisions(written[topics.ATTRIBUTIONS])
    return {name: all_of_it[-1] for name, all_of_it in told.items() if all_of_it[-1].status != "withdrawn"}


def check_ledgers(told: Sequence[Arrival], written: Outputs, now_ms: int) -> None:
    """Every attempt's time begins with its allocation, ends with its end, and adds up to what was allocated."""
    ledgers, verdicts = books.ledgers(written[topics.GOODPUT]), in_force(written)
    attempts, _ = books.told_of(told)
    for (job, number), attempt in attempts.items():
        if attempt.allocated_ms is None:
            continue
        closed = max(attempt.heard_ms, attempt.allocated_ms) if f"{job}/{number}" in verdicts else now_ms
        until_ms = closed if attempt.end is None else attempt.end[0]
        spans = ledgers.get((job, number), [])
        assert sum(span.gpu_ms for span in spans) == attempt.gpu_ms(until_ms), (job, number)
        if spans and not attempt.sizes:
            assert (spans[0].from_ms, spans[-1].to_ms) == (attempt.allocated_ms, until_ms), (job, number)


def differences(
    told: Sequence[Arrival], written: Outputs, now_ms: int, objectives: Sequence[str]
) -> dict[books.Scope, object]:
    """Return the scopes in which a status is not what the answers add up to."""
    ledgers = books.ledgers(written[topics.GOODPUT])
    pools = books.pools_of(written[topics.NODE_STATES])
    counted = books.of_jobs(told, in_force(written), ledgers, pools, now_ms)
    counted |= books.of_nodes(written[topics.NODE_STATES], now_ms)
    said = books.standings(written[topics.SLO_STATUS])
    nothing: books.FiguresTold = (0, 0, {})
    pairs = {
        scope: (counted[scope].told if scope in counted else nothing, said.get(scope, nothing))
        for scope in {*counted, *said}
        if scope[0] in objectives
    }
    assert any(pair[0] != nothing for pair in pairs.values())
    return {scope: pair for scope, pair in sorted(pairs.items()) if pair[0] != pair[1]}


@pytest.mark.parametrize("how", ["in order", "disturbed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_gpu_millisecond_of_an_attempt_is_in_its_ledger_once(seed: int, how: str) -> None:
    check_ledgers(arrivals(seed, how), replayed(seed, how), end_ms(seed, how))


@pytest.mark.parametrize("how", ["in order", "disturbed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_objectives_say_what_the_answers_add_up_to(seed: int, how: str) -> None:
    found = differences(arrivals(seed, how), replayed(seed, how), end_ms(seed, how), (*OF_JOBS, *OF_NODES))
    assert found == {}


@pytest.mark.parametrize("seed", SEEDS[:1])
def test_a_storm_over_three_lanes_leaves_the_books_whole(seed: int) -> None:
    told, written, now_ms = arrivals(seed, "disturbed"), stormed(seed), end_ms(seed, "disturbed")
    check_ledgers(told, written, now_ms)
    assert differences(told, written, now_ms, OF_JOBS) == {}


@pytest.mark.parametrize("seed", SEEDS[:1])
def test_whichever_way_it_is_run_the_books_are_the_same(seed: int) -> None:
    spans = books.ledgers(stormed(seed)[topics.GOODPUT])
    assert {name: sum(span.gpu_ms for span in own) for name, own in spans.items()} == {
        name: sum(span.gpu_ms for span in own)
        for name, own in books.ledgers(replayed(seed, "disturbed")[topics.GOODPUT]).items()
    }


def test_a_node_whose_clock_runs_ahead_is_counted_from_where_its_first_state_begins() -> None:
    bad = NodeHealth("n1", "c1", 60, 4, 4, (Check("ecc", "gpu", "fail"),), pool="p", boot_id="b1")
    story = Story().say(1, bad, "agent/n1", arrives_min=0.95).healthy("n1", since_min=2, until_min=70)
    told, written = story.told(), {name: list[Event]() for name in topics.TOPICS}
    for sent in embedded(told, told[-1].at_ms):
        written[sent.topic].append(sent.event)
    assert differences(told, written, told[-1].at_ms, OF_NODES) == {}
