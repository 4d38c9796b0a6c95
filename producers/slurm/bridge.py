"""Slurm, live: the same import over and over, of which only what is new is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from faultlens.clock import DAY_MS, SECOND_MS
from faultlens.codec import Event
from producers.slurm.importing import Export, import_slurm
from producers.slurm.job_events import Names

# Accounting is asked for this long back each time: ends are corrected, and slurmdbd may have been away meanwhile.
LOOK_BACK_S: Final = 2 * DAY_MS // SECOND_MS
# What accounting does not show any more cannot come again; jobs that run longer are seen each time.
FORGOTTEN_AFTER_MS: Final = 14 * DAY_MS


class Sink(Protocol):
    """Where events go; an outbox is one."""

    def put(self, event: Event) -> None: ...


class Memory(Protocol):
    """Which events were told already."""

    def unknown(self, events: list[tuple[str, str]]) -> set[tuple[str, str]]: ...
    def add(self, events: list[tuple[str, str]], at_ms: int) -> None: ...
    def forget(self, before_ms: int) -> None: ...


class Polled(NamedTuple):
    """What one look came to: events that were new, events in all, lines that could not be read."""

    told: int
    seen: int
    bad: int


class SlurmBridge:
    """Tells what is new in Slurm's accounting each time it is asked to look.

    Ids derive from what events are about, so that the same run or outage is the same event in every look. What is told
    is put into the sink first and remembered then: after a crash it is told again, and counts once.
    """

    def __init__(
        self,
        ask: Callable[[str], Export],
        names: Names,
        sink: Sink,
        memory: Memory,
        *,
        look_back_s: int = LOOK_BACK_S,
        zone: tzinfo | None = None,
    ) -> None:
        self._ask = ask
        self._names = names
        self._sink = sink
        self._memory = memory
        self._look_back_s = look_back_s
        self._zone = zone

    def poll(self, now_ms: int) -> Polled:
        """Look once. WorldError: Slurm does not answer; then nothing was told, and the next look tells it."""
        since = f"now-{self._look_back_s}seconds"
        imported = import_slurm(self._ask(since), self._names, zone=self._zone)
        by_name = {(event.source, event.id): event for event in imported.events}
        new = self._memory.unknown(list(by_name))
        for name, event in by_name.items():
            if name in new:
                # It arrives now, whatever a recording of it would say.
                self._sink.put(replace(event, recorded_ms=None))
        self._memory.add(list(by_name), now_ms)
        self._memory.forget(now_ms - FORGOTTEN_AFTER_MS)
        return Polled(len(new), len(by_name), sum(len(lines) for lines in imported.bad.values()))
