"""What a recording gave when it was played to live workers, beside what its replay gave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from faultlens.codec import Decoder, Event
from tests.kafka.cluster import Cluster
from tests.kafka.living import events_of
from tests.simulation.comparing import COMPARED, Written


@dataclass(frozen=True)
class Outcome:
    """What was written to each topic, replayed and live."""

    replayed: Written
    live: Written


def outcome_of(directory: Path, cluster: Cluster) -> Outcome:
    """Return what `replay --out` wrote to the directory and what live workers wrote to the cluster."""
    return Outcome(
        {topic: _written(directory / f"{topic}.jsonl") for topic in COMPARED},
        {topic: events_of(cluster, topic) for topic in COMPARED},
    )


def _written(path: Path) -> list[Event]:
    decode = Decoder().decode
    return [decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []
