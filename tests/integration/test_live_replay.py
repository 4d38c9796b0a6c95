"""A recording played to live workers gives what its replay gives: verdicts, ledger, states, objectives."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from faultlens import topics
from faultlens.codec import Event
from faultlens.events import JobAttributed, SloStatus
from tests.kafka.cluster import Cluster
from tests.kafka.living import Worker, events_of, faultlens, fresh_topics, running, said, written_by_replay

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 3
COMPARED = (
    topics.ATTRIBUTIONS,
    topics.GOODPUT,
    topics.NODE_STATES,
    topics.FINDINGS,
    topics.SLO_STATUS,
    topics.DEAD_LETTERS,
)


@dataclass(frozen=True)
class Outcome:
    """What was written to each topic, replayed and live."""

    replayed: dict[str, list[Event]]
    live: dict[str, list[Event]]
    played: dict[str, Any]


@pytest.fixture(scope="module")
def outcome(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A small fleet's hours, replayed in one process and played to workers of every role."""
    directory = tmp_path_factory.mktemp("played")
    fleet = ("--nodes", "24", "--days", "0.15", "--seed", "1", "--interval-s", "600")
    faultlens("simulate", *fleet, "--out", str(directory))
    recording = str(directory / "events.jsonl.zst")
    faultlens("replay", recording, "--store", "none", "--out", str(directory / "replayed"))
    fresh_topics(kafka, PARTITIONS)
    workers = [Worker(kafka, "all", directory / "workers.log", "--clock", "recorded", "--no-ticks")]
    with running(workers):
        try:
            options = ("--brokers", kafka.bootstrap, "--step", "600", "--json")
            played = faultlens("produce", recording, *options, timeout_s=400)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{said(workers)}") from error
    return Outcome(
        {topic: written_by_replay(directory / "replayed", topic) for topic in COMPARED},
        {topic: events_of(kafka, topic) for topic in COMPARED},
        json.loads(played),
    )


def lasting(events: Iterable[Event]) -> dict[tuple[str, int, int], list[JobAttributed]]:
    """Return the final and amended verdicts on each attempt and loss in order, without their revision."""
    found: dict[tuple[str, int, int], list[JobAttributed]] = defaultdict(list)
    verdicts = [event.data for event in events if isinstance(event.data, JobAttributed)]
    for data in sorted(verdicts, key=lambda data: data.revision):
        if data.status in ("final", "amended"):
            found[data.job_id, data.attempt, data.loss or 0].append(replace(data, revision=0))
    return found


def test_the_whole_recording_was_played(outcome: Outcome) -> None:
    assert outcome.played["refused"] == {}
    assert outcome.played["events"] > 900
    assert len(lasting(outcome.replayed[topics.ATTRIBUTIONS])) > 5


def test_final_and_amended_verdicts_are_the_same(outcome: Outcome) -> None:
    assert lasting(outcome.live[topics.ATTRIBUTIONS]) == lasting(outcome.replayed[topics.ATTRIBUTIONS])


@pytest.mark.parametrize("topic", [topics.GOODPUT, topics.NODE_STATES, topics.FINDINGS, topics.DEAD_LETTERS])
def test_what_else_was_written_is_the_same(outcome: Outcome, topic: str) -> None:
    def sorted_data(events: Iterable[Event]) -> list[str]:
        return sorted(map(repr, (event.data for event in events)))

    assert sorted_data(outcome.live[topic]) == sorted_data(outcome.replayed[topic])


def test_where_each_objective_stands_in_the_end_is_the_same(outcome: Outcome) -> None:
    def last(events: Iterable[Event]) -> dict[tuple[str, str], SloStatus]:
        found: dict[tuple[str, str], SloStatus] = {}
        for event in sorted(events, key=lambda event: event.time_ms):
            assert isinstance(event.data, SloStatus)
            found[event.data.objective, repr(event.data.scope)] = event.data
        return found

    live, replayed = last(outcome.live[topics.SLO_STATUS]), last(outcome.replayed[topics.SLO_STATUS])
    assert {key: (status.good, status.total, status.by_cause) for key, status in live.items()} == {
        key: (status.good, status.total, status.by_cause) for key, status in replayed.items()
    }
