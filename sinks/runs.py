"""Runs of offsets that were taken of each partition: what the audit is made of and what is committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from sinks.log import Holding, Place

Kind = Literal["event", "tick", "dead"]


class RunRow(NamedTuple):
    """A row of `sink_runs`."""

    topic: str
    partition: int
    start: int
    stop: int
    records: int
    events: int
    ticks: int
    dead: int
    rows: int
    refused: int
    first_arrived: int
    last_arrived: int


RUNS_TABLE: Final = "sink_runs"


@dataclass
class Run:
    """What was taken of a partition, from `start` up to but not including `stop`, within one assignment."""

    place: Place
    epoch: int
    start: int
    stop: int
    since_s: float
    first_ms: int
    last_ms: int
    events: int = 0
    ticks: int = 0
    dead: int = 0
    rows: int = 0
    refused: int = 0
    oldest_ms: int | None = None  # arrival of the first that is no tick

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing but ticks."""
        return not (self.events or self.dead)

    def row(self) -> RunRow:
        """Return the run as the store keeps it."""
        topic, partition = self.place
        records = self.events + self.ticks + self.dead
        counts = (records, self.events, self.ticks, self.dead, self.rows, self.refused)
        return RunRow(topic, partition, self.start, self.stop, *counts, self.first_ms, self.last_ms)


class Runs:
    """The runs that are being taken, one for each partition and assignment."""

    def __init__(self) -> None:
        self._open: dict[tuple[Place, int], Run] = {}
        self._following: dict[tuple[Place, int], int] = {}

    @property
    def open(self) -> list[Run]:
        """The runs as they stand."""
        return list(self._open.values())

    def of(self, place: Place, holding: Holding, *, now_s: float, arrived_ms: int) -> Run:
        """Return the open run of the partition, a new one if there is none: from where the last one stopped."""
        key = (place, holding.epoch)
        run = self._open.get(key)
        if run is None:
            start = self._following.get(key, holding.start)
            run = self._open[key] = Run(place, holding.epoch, start, start, now_s, arrived_ms, arrived_ms)
        return run

    def hand_over(self, *, now_s: float, idle_s: float) -> list[Run]:
        """Return the runs and begin new ones where they stop. Idle ones go on until they are `idle_s` old."""
        taken = {key: run for key, run in self._open.items() if not run.is_idle or now_s - run.since_s >= idle_s}
        for key, run in taken.items():
            del self._open[key]
            self._following[key] = run.stop
        return list(taken.values())

    def forget(self, held: Mapping[Place, Holding]) -> None:
        """Forget where partitions are that are not ours any more; what was taken of them is still handed over."""
        self._following = {
            (place, epoch): stop
            for (place, epoch), stop in self._following.items()
            if place in held and held[place].epoch == epoch
        }


def to_commit(runs: list[Run], held: Mapping[Place, Holding]) -> dict[Place, int]:
    """Return what may be committed: the ends of runs of partitions that have been ours without a break."""
    return {run.place: run.stop for run in runs if run.place in held and held[run.place].epoch == run.epoch}
