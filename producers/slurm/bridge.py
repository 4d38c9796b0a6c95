"""Slurm, live: the same import over and over, of which only what is new is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from faultlens.clock import DAY_MS, SECOND_MS
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import JobAlive, JobEnded
from producers.slurm.importing import Export, Imported, import_slurm
from producers.slurm.job_events import SOURCE, Names
from producers.slurm.places import Places

# Accounting is asked for this long back each time: ends are corrected, and slurmdbd may have been away meanwhile.
LOOK_BACK_S: Final = 2 * DAY_MS // SECOND_MS
# What accounting does not show any more cannot come again; jobs that run longer are seen each time.
FORGOTTEN_AFTER_MS: Final = 14 * DAY_MS
# What is still seen is written down again once a day, and not at every look.
REMEMBERED_AGAIN_MS: Final = DAY_MS
ALIVE_EVERY_S: Final = 60.0
# Accounting hears that a job's node failed before it hears what became of the node, and that a job is over before it
# hears how its steps ended (one out of memory, say); the controller knows both before accounting does. What is said of
# such an end rests on all of that: it is told when it has been seen for so long.
SETTLE_MS: Final = 15 * SECOND_MS
_NODE_FAILED: Final = "NODE_FAIL"


class Sink(Protocol):
    """Where events go; an outbox is one."""

    def put(self, event: Event) -> None: ...


class Memory(Protocol):
    """Which events were told already."""

    def known(self, events: list[tuple[str, str]]) -> dict[tuple[str, str], int]: ...
    def add(self, events: list[tuple[str, str]], at_ms: int) -> None: ...
    def forget(self, before_ms: int) -> None: ...
    def last_ms(self) -> int | None: ...


class Polled(NamedTuple):
    """What one look came to: events that were new, events in all, lines that could not be read.

    `held`: ends that are kept back until more is known of their nodes and steps.
    """

    told: int
    seen: int
    bad: int
    held: int = 0


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
        every_s: float = ALIVE_EVERY_S,
        places: Places | None = None,
    ) -> None:
        """`every_s`: how far apart two looks are; signs of life cannot come more often."""
        self._ask = ask
        self._names = names
        self._sink = sink
        self._memory = memory
        self._look_back_s = look_back_s
        self._alive_s = max(ALIVE_EVERY_S, every_s)
        self._alive_ms = 0
        self._places = places or Places()
        self._has_looked = False
        self._first_seen: dict[tuple[str, str], int] = {}

    def poll(self, now_ms: int) -> Polled:
        """Look once. WorldError: Slurm does not answer; then nothing was told, and the next look tells it."""
        since = f"now-{self._since_s(now_ms)}seconds"
        imported = import_slurm(self._ask(since), self._names, places=self._places.known(), with_steps=True)
        by_name = {(event.source, event.id): event for event in imported.events}
        known = self._memory.known(list(by_name))
        unknown = [name for name in by_name if name not in known]
        held = {name for name in unknown if self._may_change(name, by_name[name], imported, now_ms)}
        self._first_seen = {name: self._first_seen.get(name, now_ms) for name in held}
        new = [name for name in unknown if name not in held]
        for name in new:
            # It arrives now, whatever a recording of it would say.
            self._sink.put(replace(by_name[name], recorded_ms=None))
        fading = [name for name, at_ms in known.items() if at_ms <= now_ms - REMEMBERED_AGAIN_MS]
        self._places.note(imported.places, now_ms)
        self._memory.add([*new, *fading], now_ms)
        self._memory.forget(now_ms - FORGOTTEN_AFTER_MS)
        self._has_looked = True
        if now_ms - self._alive_ms >= self._alive_s * SECOND_MS:
            self._alive_ms = now_ms
            for job_id, attempt in imported.running:
                self._sink.put(self._alive(job_id, attempt, now_ms))
        return Polled(len(new), len(by_name), sum(len(lines) for lines in imported.bad.values()), len(held))

    def _since_s(self, now_ms: int) -> int:
        """Return how far back accounting is asked for: farther where nothing was told for longer, as we were away."""
        last_ms = self._memory.last_ms()
        away_s = 0 if last_ms is None else (now_ms - last_ms) // SECOND_MS
        if away_s < self._look_back_s:
            return self._look_back_s
        return self._look_back_s + min(away_s, FORGOTTEN_AFTER_MS // SECOND_MS)

    def _may_change(self, name: tuple[str, str], event: Event, imported: Imported, now_ms: int) -> bool:
        """Return whether this is an end so new that the next look may know more of it: of its node, or of its steps.

        By our own clock since it was seen, so that a controller whose clock is ahead holds nothing up for long.
        """
        if not isinstance(event.data, JobEnded):
            return False
        if event.data.reason != _NODE_FAILED and (event.data.job_id, event.data.attempt) not in imported.unsettled:
            return False
        seen_ms = self._first_seen.get(name, now_ms)
        # What is heard of late, since accounting is behind, may change as well; but not what a first look finds.
        is_fresh = self._has_looked or now_ms - event.time_ms < SETTLE_MS
        return is_fresh and now_ms - seen_ms < SETTLE_MS

    def _alive(self, job_id: str, attempt: int, at_ms: int) -> Event:
        """Return a sign of life, by the controller's word."""
        id_ = stable_id("slurm", self._names.cluster, "JobAlive", job_id, attempt, at_ms)
        return event_of(JobAlive(job_id, attempt, self._alive_s), source=SOURCE, id_=id_, time_ms=at_ms)
