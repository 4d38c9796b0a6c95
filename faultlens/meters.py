"""Plain counts of what a process does, for whoever shows them: no I/O, no library, cheap enough for every record."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from faultlens.clock import SECOND_MS, ms_of
from faultlens.codec import Event
from faultlens.events import JobAttributed, SloStatus

Partition = tuple[str, int]
# Objective, cluster, pool, team, workload, window.
Scope = tuple[str, str, str, str, str, str]
# Seconds. From a commit to Kafka (12 ms) to an outage that somebody should know of.
BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
# Objectives by scopes of a large installation; what is beyond is not shown, and the store has it.
MAX_STANDINGS: Final = 5_000
MAX_CULPRITS: Final = 1_000


class Durations:
    """How long something took: counts by upper bound in seconds, and their sum."""

    def __init__(self, bounds_s: tuple[float, ...] = BOUNDS_S) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one; what a clock that was set back makes negative counts as nothing."""
        seconds = max(seconds, 0.0)
        self.counts[bisect_left(self.bounds_s, seconds)] += 1
        self.sum_s += seconds


@dataclass
class Position:
    """Where a process that reads partitions stands; all of it is replaced as it changes."""

    lag: Mapping[Partition, int] = field(default_factory=dict)  # offsets that were not read yet
    oldest_ms: int | None = None  # arrival of the oldest record that was read and is not acknowledged
    partitions: int = 0  # that are ours
    turned_s: float | None = None  # monotonic time at which the loop last went round
    ready: bool = False  # partitions are assigned and loaded, or the store is reachable


class Standings:
    """Where each objective stands, as last told; told by partition, so that what moves elsewhere is dropped here."""

    def __init__(self) -> None:
        self._told: dict[int, dict[Scope, SloStatus]] = {}

    def tell(self, status: SloStatus, partition: int) -> None:
        """Take what a record of the partition says."""
        scope = status.scope
        key = (
            status.objective,
            scope.cluster,
            scope.pool or "",
            scope.team or "",
            scope.workload or "",
            status.window,
        )
        told = self._told.setdefault(partition, {})
        if key in told or sum(map(len, self._told.values())) < MAX_STANDINGS:
            told[key] = status

    def keep(self, is_ours: Callable[[int], bool]) -> None:
        """Drop what partitions told that are not ours any more."""
        for partition in [partition for partition in self._told if not is_ours(partition)]:
            del self._told[partition]

    def all(self) -> list[tuple[Scope, SloStatus]]:
        """Return what is known, by scope."""
        return [entry for told in list(self._told.values()) for entry in list(told.items())]


@dataclass
class RoleMeters:
    """What a worker of a role did and where it stands. Counts grow; it is called from one thread."""

    role: str
    position: Position = field(default_factory=Position)
    records: Counter[str] = field(default_factory=Counter)  # taken, by topic, ticks included
    sent: Counter[str] = field(default_factory=Counter)  # by topic
    dead: Counter[tuple[str, str]] = field(default_factory=Counter)  # by topic and reason
    verdicts: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # by class, basis and status
    culprits: Counter[tuple[str, str]] = field(default_factory=Counter)  # final verdicts by cluster and node
    committing: Durations = field(default_factory=Durations)  # a batch's transaction
    verdict_latency: Durations = field(default_factory=Durations)
    state_keys: dict[int, int] = field(default_factory=dict)  # by lane
    state_bytes: dict[int, int] = field(default_factory=dict)
    clock_ms: dict[int, int] = field(default_factory=dict)  # of each lane
    retries: int = 0

    def tell(self, topic: str, event: Event, now_ms: int) -> None:
        """Count an output that was committed at `now_ms`. A verdict's latency is from the end of its attempt."""
        self.sent[topic] += 1
        data = event.data
        if isinstance(data, JobAttributed):
            self.verdicts[(data.cause.cause_class, data.basis, data.status)] += 1
            self._blame(data)
            if data.status == "provisional" and data.revision == 1:
                self.verdict_latency.observe((now_ms - ms_of(data.ended_at)) / SECOND_MS)

    def _blame(self, data: JobAttributed) -> None:
        """Count a final verdict for the node it names. Of more nodes than can be shown, those that came first are."""
        node = data.culprit.node
        if node is None or data.status != "final" or data.cause.cause_class not in ("hardware", "driver"):
            return
        key = (data.cluster, node)
        if key in self.culprits or len(self.culprits) < MAX_CULPRITS:
            self.culprits[key] += 1

    def drop_lane(self, lane: int) -> None:
        """Forget the state of a lane that is not ours any more."""
        for kept in (self.state_keys, self.state_bytes, self.clock_ms):
            kept.pop(lane, None)


@dataclass
class SinkMeters:
    """What the sink did and where it stands. Counts grow, the rest is how it is now."""

    position: Position = field(default_factory=Position)
    records: Counter[str] = field(default_factory=Counter)  # by topic, ticks included
    ticks: Counter[str] = field(default_factory=Counter)
    dead: Counter[tuple[str, str]] = field(default_factory=Counter)  # by topic and reason
    expired: Counter[str] = field(default_factory=Counter)  # offsets removed before they were read, by topic
    rows: Counter[str] = field(default_factory=Counter)  # inserted, by table
    retries: int = 0
    delivering: Durations = field(default_factory=Durations)  # a batch, retries included
    delay: Durations = field(default_factory=Durations)  # from reading a batch's first record until all of it is in
    standings: Standings = field(default_factory=Standings)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    paused: bool = False
