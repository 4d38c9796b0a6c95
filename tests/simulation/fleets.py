"""Small random fleets: the simulated one in a few hours full of trouble, with what it does not do by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from random import Random

from msgspec.structs import replace

from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.codec import Decoder, Event, encode, event_of
from faultlens.events import JobAllocated, JobEnded, JobLabelled, JobResized, NodeHealth
from producers.simulation.simulate import simulate
from producers.simulation.tables import Mix, load_happenings, load_mix
from producers.simulation.world import Shape
from tests.simulation.stories import T0, Arrival

INTERVAL_S = 120.0
# How long nodes go on reporting after everything else has ended: as long as the longest outage and its end.
QUIET_MS = 4 * HOUR_MS


def seeds(*usual: int) -> list[int]:
    """Return the seeds to try: `FAULTLENS_SEEDS=100-120` looks for what the usual ones do not show."""
    first, _, last = os.environ.get("FAULTLENS_SEEDS", "").partition("-")
    return list(range(int(first), int(last or first) + 1)) if first else list(usual)


@cache
def fleet(seed: int, hours: float = 4.0, nodes: int = 5) -> tuple[Arrival, ...]:
    """Return what arrives from a fleet of 4-GPU nodes: some ends are never told, some failures labelled by people."""
    raw: list[bytes] = []
    shape = Shape(nodes, hours / 24, seed, T0, INTERVAL_S, 4)
    simulate(shape, _mix(), load_happenings(), write=raw.append, told=lambda _truth: None)
    random = Random(seed)  # noqa: S311 - what is wanted is the same fleet each time
    decoder = Decoder()
    arrivals = [Arrival(event.recorded_ms or event.time_ms, event) for event in map(decoder.decode, raw)]
    arrivals = [arrival for arrival in arrivals if not (_is_end(arrival) and random.random() < 0.08)]
    arrivals += _labels(arrivals, random)
    end_ms = max(arrival.at_ms for arrival in arrivals) + MINUTE_MS
    arrivals += [*_cancelled(arrivals, end_ms), *_reports(arrivals, end_ms, end_ms + QUIET_MS)]
    return tuple(sorted(arrivals, key=lambda arrival: arrival.at_ms))


def time_of_trouble(seed: int, from_min: int = 75, minutes: int = 60) -> bytes:
    """Return a recording of the time in which most goes wrong on twelve nodes; it begins and ends amidst of all."""
    told = fleet(seed, hours=2.5, nodes=12)
    from_ms = told[0].at_ms + from_min * MINUTE_MS
    until_ms = from_ms + minutes * MINUTE_MS
    taken = [arrival for arrival in told if from_ms <= arrival.at_ms < until_ms]
    return b"".join(encode(replace(arrival.event, recorded_ms=arrival.at_ms)) + b"\n" for arrival in taken)


def _mix() -> Mix:
    """Return the shifted mix with far more of what is rare, in short jobs of few GPUs."""
    mix = load_mix("shifted", load_happenings())
    work = mix.work.model_copy(
        update={
            "elastic": 0.5,
            "at_fault": 0.25,
            "hours_median": 0.1,
            "gpus": {"1": 4, "2": 2, "4": 4, "8": 4, "16": 2},
            "reporters": {"slurm": 3, "kubernetes": 2, "launcher": 5},
        }
    )
    return mix.model_copy(update={"acceleration": 12_000.0, "herrings_per_node_day": 40.0, "work": work})


def _is_end(arrival: Arrival) -> bool:
    return isinstance(arrival.event.data, JobEnded)


def _labels(arrivals: list[Arrival], random: Random) -> Iterator[Arrival]:
    """Label some failed attempts, soon or hours later."""
    for arrival in arrivals:
        data = arrival.event.data
        if isinstance(data, JobEnded) and data.outcome == "failed" and random.random() < 0.1:
            at_ms = min(arrivals[-1].at_ms, arrival.at_ms + random.randrange(2 * HOUR_MS))
            label = JobLabelled(data.job_id, data.attempt, "user", "app.config", "operator")
            name = f"label-{data.job_id}-{data.attempt}-{arrival.event.id}"
            yield Arrival(at_ms, event_of(label, source="operator/eve", id_=name, time_ms=at_ms))


def _cancelled(arrivals: list[Arrival], at_ms: int) -> Iterator[Arrival]:
    """End what still runs."""
    running: dict[tuple[str, int], None] = {}
    for arrival in arrivals:
        data = arrival.event.data
        if isinstance(data, JobAllocated | JobResized):
            running[data.job_id, data.attempt] = None
        elif isinstance(data, JobEnded):
            running.pop((data.job_id, data.attempt), None)
    for number, (job, attempt) in enumerate(running):
        newest = max((n for j, n in running if j == job), default=attempt)
        if attempt == newest:
            end = JobEnded(job, attempt, "cancelled")
            yield Arrival(at_ms, event_of(end, source="scheduler/s", id_=f"stop-{number}", time_ms=at_ms))


def _reports(arrivals: list[Arrival], since_ms: int, until_ms: int) -> Iterator[Arrival]:
    """Let every node go on as in its last report."""
    last: dict[str, Event] = {}
    for arrival in arrivals:
        if isinstance(arrival.event.data, NodeHealth):
            last[arrival.event.subject] = arrival.event
    for number, event in enumerate(last.values()):
        for at_ms in range(since_ms + number * 1_000, until_ms, round(INTERVAL_S * 1_000)):
            again = replace(event, id=f"{event.id}-{at_ms}", time_ms=at_ms, sent_ms=at_ms, recorded_ms=at_ms)
            yield Arrival(at_ms + 100, again)
