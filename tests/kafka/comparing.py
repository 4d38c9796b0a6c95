"""What a recording gave when it was played to live workers, beside what its replay gives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from faultlens import topics
from faultlens.codec import Decoder, Event
from faultlens.events import JobAttributed, JobTime, SloStatus
from tests.kafka.cluster import Cluster
from tests.kafka.living import events_of
from tests.simulation.playing import truths

COMPARED: Final = (
    topics.ATTRIBUTIONS,
    topics.GOODPUT,
    topics.NODE_STATES,
    topics.FINDINGS,
    topics.SLO_STATUS,
    topics.DEAD_LETTERS,
)
Attempt = tuple[str, int, int]
Piece = tuple[Any, ...]


@dataclass(frozen=True)
class Outcome:
    """What was written to each topic, replayed and live."""

    replayed: dict[str, list[Event]]
    live: dict[str, list[Event]]


def outcome_of(directory: Path, cluster: Cluster) -> Outcome:
    """Return what `replay --out` wrote to the directory and what live workers wrote to the cluster."""
    return Outcome(
        {topic: _written(directory / f"{topic}.jsonl") for topic in COMPARED},
        {topic: events_of(cluster, topic) for topic in COMPARED},
    )


def _written(path: Path) -> list[Event]:
    decode = Decoder().decode
    return [decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def lasting(events: Iterable[Event]) -> dict[Attempt, list[JobAttributed]]:
    """Return the final and amended verdicts on each attempt and loss in order, without their revision."""
    found: dict[Attempt, list[JobAttributed]] = defaultdict(list)
    verdicts = [event.data for event in events if isinstance(event.data, JobAttributed)]
    for data in sorted(verdicts, key=lambda data: data.revision):
        if data.status in ("final", "amended"):
            found[data.job_id, data.attempt, data.loss or 0].append(replace(data, revision=0))
    return found


def sorted_data(events: Iterable[Event]) -> list[str]:
    """Return what the events say, in an order of its own."""
    return sorted(repr(event.data) for event in events)


def standings(events: Iterable[Event]) -> dict[tuple[str, str], tuple[float, float, dict[str, float]]]:
    """Return where each objective stood last: good, total, bad by cause."""
    found: dict[tuple[str, str], SloStatus] = {}
    for event in sorted(events, key=lambda event: event.time_ms):
        assert isinstance(event.data, SloStatus)
        found[event.data.objective, repr(event.data.scope)] = event.data
    # Sums of the same samples in another order differ in their last digits.
    return {
        key: (round(s.good, 3), round(s.total, 3), {cause: round(bad, 3) for cause, bad in s.by_cause.items()})
        for key, s in found.items()
    }


def books(events: Iterable[Event]) -> dict[tuple[str, int], list[Piece]]:
    """Return what every attempt's time went into in the end: later records replace what earlier ones said of it."""
    found: dict[tuple[str, int], list[Piece]] = defaultdict(list)
    records = [event.data for event in events if isinstance(event.data, JobTime)]
    for data in sorted(records, key=lambda data: data.revision):
        key = data.job_id, data.attempt
        new = (data.start, data.stop, data.category, repr(data.cause), data.gpus)
        found[key] = [piece for old in found[key] for piece in _outside(old, new)] + [new]
    return {key: _joined(sorted(pieces)) for key, pieces in found.items()}


def _outside(old: Piece, new: Piece) -> list[Piece]:
    """Return what is left of a piece that another one may cover."""
    begin, end = old[0], old[1]
    if new[1] <= begin or new[0] >= end:
        return [old]
    left = [(begin, new[0], *old[2:])] if begin < new[0] else []
    return left + ([(new[1], end, *old[2:])] if new[1] < end else [])


def _joined(pieces: list[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        if joined and joined[-1][1] == piece[0] and joined[-1][2:] == piece[2:]:
            joined[-1] = (joined[-1][0], *piece[1:])
        else:
            joined.append(piece)
    return joined


def assert_nothing_is_lost_or_twice(outcome: Outcome) -> None:
    """Fail unless live came to what the replay says: each record once, one final verdict a failure, exact books.

    Lanes that were far apart for a while may have changed their mind in between, and found evidence in another order.
    """
    live, replayed = outcome.live, outcome.replayed
    for topic in COMPARED:
        twice = {event_id: n for event_id, n in Counter(event.id for event in live[topic]).items() if n > 1}
        assert twice == {}, f"{topic}: written twice"
    verdicts, expected = lasting(live[topics.ATTRIBUTIONS]), lasting(replayed[topics.ATTRIBUTIONS])
    finals = {key: sum(verdict.status == "final" for verdict in told) for key, told in verdicts.items()}
    assert {key: count for key, count in finals.items() if count != 1} == {}, "failures without one final verdict"
    assert truths(live[topics.ATTRIBUTIONS]) == truths(replayed[topics.ATTRIBUTIONS])
    assert sorted(verdicts) == sorted(expected), "failures without a final verdict"
    assert books(live[topics.GOODPUT]) == books(replayed[topics.GOODPUT])
    assert sorted_data(live[topics.DEAD_LETTERS]) == sorted_data(replayed[topics.DEAD_LETTERS])
    assert standings(live[topics.SLO_STATUS]) == standings(replayed[topics.SLO_STATUS])


def assert_the_same(outcome: Outcome) -> None:
    """Fail unless live is what the replay is: nothing lost, nothing twice, and the same decisions."""
    live, replayed = outcome.live, outcome.replayed
    for topic in COMPARED:
        twice = {event_id: n for event_id, n in Counter(event.id for event in live[topic]).items() if n > 1}
        assert twice == {}, f"{topic}: written twice"
    verdicts, expected = lasting(live[topics.ATTRIBUTIONS]), lasting(replayed[topics.ATTRIBUTIONS])
    finals = {key: sum(verdict.status == "final" for verdict in told) for key, told in verdicts.items()}
    assert {key: count for key, count in finals.items() if count != 1} == {}, "failures without one final verdict"
    assert sorted(verdicts) == sorted(expected), "failures without a final verdict"
    other = {key: (told, expected[key]) for key, told in verdicts.items() if told != expected[key]}
    assert other == {}, f"live, replayed: {other}"
    for topic in (topics.GOODPUT, topics.NODE_STATES, topics.FINDINGS, topics.DEAD_LETTERS):
        assert sorted_data(live[topic]) == sorted_data(replayed[topic]), topic
    assert standings(live[topics.SLO_STATUS]) == standings(replayed[topics.SLO_STATUS])
