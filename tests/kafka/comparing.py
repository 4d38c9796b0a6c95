"""What a recording gave when it was played to live workers, beside what its replay gives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from faultlens import topics
from faultlens.codec import Decoder, Event
from faultlens.events import JobAttributed, SloStatus
from tests.kafka.cluster import Cluster
from tests.kafka.living import events_of

COMPARED: Final = (
    topics.ATTRIBUTIONS,
    topics.GOODPUT,
    topics.NODE_STATES,
    topics.FINDINGS,
    topics.SLO_STATUS,
    topics.DEAD_LETTERS,
)
Attempt = tuple[str, int, int]


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
    return {key: (status.good, status.total, dict(status.by_cause)) for key, status in found.items()}


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
    assert other == {}, "live, replayed"
    for topic in (topics.GOODPUT, topics.NODE_STATES, topics.FINDINGS, topics.DEAD_LETTERS):
        assert sorted_data(live[topic]) == sorted_data(replayed[topic]), topic
    assert standings(live[topics.SLO_STATUS]) == standings(replayed[topics.SLO_STATUS])
