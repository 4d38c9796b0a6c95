"""Plain counts of what a process does, for whoever shows them: no I/O, no library, cheap enough for every record."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

# Seconds. From a commit to Kafka (12 ms) to an outage that somebody should know of.
BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


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
class SinkMeters:
    """What the sink did and where it stands. Counts grow, the rest is how it is now."""

    records: Counter[str] = field(default_factory=Counter)  # by topic, ticks included
    ticks: Counter[str] = field(default_factory=Counter)
    dead: Counter[tuple[str, str]] = field(default_factory=Counter)  # by topic and reason
    rows: Counter[str] = field(default_factory=Counter)  # inserted, by table
    batches: int = 0
    retries: int = 0
    inserting: Durations = field(default_factory=Durations)  # a batch, retries included
    delay: Durations = field(default_factory=Durations)  # from arrival to the store, of a batch's oldest record
    lag: dict[tuple[str, int], int] = field(default_factory=dict)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    oldest_ms: int | None = None  # arrival of the oldest record that is not acknowledged
    partitions: int = 0
    paused: bool = False
    store_ready: bool = False
    turned_s: float = 0.0  # monotonic time of the last turn of the loop
