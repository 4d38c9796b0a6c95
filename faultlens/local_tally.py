"""What a replay did, counted as it goes: events, verdicts, dead letters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from faultlens.clock import moment_of
from faultlens.codec import Event
from faultlens.events import DeadLetter, JobAttributed
from streams.runtime.task import Counts

# Verdicts that are remembered to follow their amendments; beyond, the oldest count as they last stood.
_MAX_FOLLOWED: Final = 100_000


@dataclass
class Tally:
    """Counts of one replay. Verdicts are counted as they last stood: a withdrawn one is none.

    `doubted` events said to have arrived so far ahead of the others that the clock did not follow them. `namesakes`:
    names that nodes of more than one cluster have, with these clusters; `stopped`: nodes whose reports ended before the
    recording did, with when (milliseconds).
    """

    too_old: int = 0
    doubted: int = 0
    duplicates: int = 0
    failures: int = 0
    by_topic: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    amended: int = 0
    withdrawn: int = 0
    open_verdicts: int = 0
    namesakes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stopped: dict[str, int] = field(default_factory=dict)
    _standing: dict[tuple[str, int, int], tuple[str, str, str]] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """How many events were taken; what was too old or no event is not among them."""
        return sum(self.by_topic.values())

    def add(self, counts: Counts) -> None:
        """Add what a task counted."""
        self.duplicates += counts.duplicates
        self.failures += counts.failures

    def sent(self, topic: str, event: Event) -> None:
        """Count a record that was written to an output topic."""
        self.written[topic] += 1
        data = event.data
        if isinstance(data, JobAttributed):
            self._verdict(data)
        elif isinstance(data, DeadLetter):
            self.dead_letters[data.reason] += 1

    def _verdict(self, data: JobAttributed) -> None:
        key = (data.job_id, data.attempt, data.loss or 0)
        before = self._standing.pop(key, None)
        if before is not None:
            self._count(before, -1)
        self.amended += data.status == "amended"
        self.withdrawn += data.status == "withdrawn"
        if data.status != "withdrawn":
            standing = (data.cause.cause_class, data.basis, data.status)
            self._standing[key] = standing
            self._count(standing, 1)
        if len(self._standing) > _MAX_FOLLOWED:
            del self._standing[next(iter(self._standing))]

    def _count(self, standing: tuple[str, str, str], by: int) -> None:
        cause_class, basis, status = standing
        if status == "provisional":
            self.open_verdicts += by
        else:
            self.verdicts[cause_class, basis] += by

    def answer(self) -> dict[str, Any]:
        """Return the counts as plain values for JSON."""
        by_class: dict[str, dict[str, int]] = {}
        for (cause_class, basis), count in sorted(self.verdicts.items()):
            if count:
                by_class.setdefault(cause_class, {})[basis] = count
        return {
            "events": self.events,
            "by_topic": dict(sorted(self.by_topic.items())),
            "written": dict(sorted(self.written.items())),
            "verdicts": by_class,
            "verdicts_total": sum(self.verdicts.values()),
            "verdicts_open": self.open_verdicts,
            "amended": self.amended,
            "withdrawn": self.withdrawn,
            "dead_letters": dict(sorted(self.dead_letters.items())),
            "duplicates": self.duplicates,
            "too_old": self.too_old,
            "arrivals_doubted": self.doubted,
            "failures": self.failures,
            "nodes_in_several_clusters": {node: list(names) for node, names in sorted(self.namesakes.items())},
            "stopped_reporting": {node: moment_of(at_ms).isoformat() for node, at_ms in sorted(self.stopped.items())},
        }
