"""The embedded runtime: the same processors as live, over recorded events, in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from faultlens.arrival import SKEW_MS, TAIL_MS, TOO_OLD_MS, Entry, placed
from faultlens.clock import wall_ms
from faultlens.codec import Decoder, Event, encode
from faultlens.dead_letters import glance
from faultlens.errors import InvalidEventError, UsageError
from faultlens.local_outputs import OutputFiles, Store
from faultlens.local_pump import INTERNAL, Pump
from faultlens.local_state import load, save
from faultlens.local_tally import Tally
from faultlens.recordings import Recording, merged
from faultlens.topics import INPUT_TYPES
from streams.node_health import NamesakesProcessor, shared_names, stopped_reporting
from streams.runtime.dead_letters import dead_letter, in_file
from streams.runtime.records import Role, Sent
from streams.runtime.task import Task

CHECKPOINT_LINES: Final = 1_000

Progress = Callable[[], None]


@dataclass(frozen=True)
class Places:
    """Where a replay writes: output files, store, state; None: nowhere. `fresh`: an earlier state is not read."""

    out: Path | None = None
    store: Store | None = None
    state: Path | None = None
    fresh: bool = False


def replay(
    recordings: Sequence[Recording],
    roles: Sequence[Role],
    places: Places,
    *,
    until_ms: int | None = None,
    progress: Progress = lambda: None,
) -> Tally:
    """Run the roles over the recordings and return what came of it.

    The state is saved last, after everything that rests on it was written: a run that was cut off is simply run
    again. Raises WorldError, ConfigurationError (a saved state that is no use), ProcessorFailingError.
    """
    resumes = places.state is not None and not places.fresh
    tasks = load(places.state, roles) if resumes and places.state is not None else [Task(role) for role in roles]
    run = _Run(tasks, None if places.out is None else OutputFiles(places.out), places.store)
    try:
        run.read(recordings, progress)
        run.finish(until_ms)
    finally:
        run.close()
    if places.state is not None:
        save(places.state, tasks)
    return run.tally


def say(event_at: Callable[[int], Event], roles: Sequence[Role], places: Places) -> Tally:
    """Take one more event as if it came at the very end of what was replayed, and return what came of it.

    `event_at` gets the time of its arrival, a millisecond after the saved clock: no other time passes, and nothing else
    becomes due. Raises UsageError where no replay has left a state, and what `replay` raises.
    """
    if places.state is None or not places.state.is_file():
        raise UsageError(f"nothing was replayed that could be gone on from: there is no state at {places.state}")
    tasks = load(places.state, roles)
    run = _Run(tasks, None, places.store)
    try:
        run.say(event_at)
    finally:
        run.close()
    save(places.state, tasks)
    return run.tally


class _Run:
    """One replay: what was read, what follows from it, and where that goes."""

    def __init__(self, tasks: Sequence[Task], files: OutputFiles | None, store: Store | None) -> None:
        self.tally = Tally()
        self._pump = Pump(tasks, self._deliver)
        self._files = files
        self._store = store
        self._oldest_ms = self._pump.clock_ms - TOO_OLD_MS
        self._latest_ms = 0

    def read(self, recordings: Sequence[Recording], progress: Progress) -> None:
        """Take every event of the recordings in order of arrival."""
        take, store, oldest_ms, latest_ms = self._pump.take, self._store, self._oldest_ms, 0
        for number, entry in enumerate(merged(recordings, Decoder(INPUT_TYPES)), 1):
            if number % CHECKPOINT_LINES == 0:
                self._checkpoint()
                progress()
            event = entry.event
            arrived_ms = entry.arrived_ms
            if event is None:
                self._bury(entry)
            elif arrived_ms < oldest_ms:
                self.tally.too_old += 1
            else:
                self.tally.doubted += entry.doubted
                take(entry, event)
                if store is not None:
                    self._keep(event, entry, store)
                if latest_ms < event.time_ms <= arrived_ms + SKEW_MS:
                    latest_ms = event.time_ms
                elif latest_ms < arrived_ms:
                    latest_ms = arrived_ms
        self._latest_ms = latest_ms

    def say(self, event_at: Callable[[int], Event]) -> None:
        """Take one event a millisecond after everything else, and end there."""
        now_ms = self._pump.clock_ms + 1
        event = event_at(now_ms)
        entry = Entry("", 0, encode(event), event, arrived_ms=now_ms)
        self._pump.take(entry, event)
        if self._store is not None:
            self._keep(event, entry, self._store)
        self.finish(now_ms)

    def finish(self, until_ms: int | None) -> None:
        """Advance the clock to `until_ms` (None: until everything is final) and write what is still held."""
        if self._latest_ms or until_ms is not None:
            self._pump.finish(self._latest_ms + TAIL_MS if until_ms is None else until_ms)
        self.tally.by_topic.update({t: n for t, n in self._pump.taken().items() if t not in INTERNAL})
        for task in self._pump.tasks:
            self.tally.add(task.counts)
            if isinstance(task.role.processor, NamesakesProcessor):
                states = [(key, kept.state) for key, kept in task.states.items()]
                self.tally.namesakes = shared_names(states)
                self.tally.stopped = stopped_reporting(states, self._latest_ms)

    def close(self) -> None:
        """Write what is buffered."""
        if self._files is not None:
            self._files.close()
        if self._store is not None:
            self._store.close()

    def _checkpoint(self) -> None:
        """Drop what is only needed to write a batch, and let others read what is written so far."""
        self._pump.seal()
        if self._files is not None:
            self._files.flush()

    def _keep(self, event: Event, entry: Entry, store: Store) -> None:
        """Add an input event to the store, with its times as they were taken; what was refused is not kept."""
        try:
            event = placed(event, arrived_ms=entry.arrived_ms, clock_ms=self._pump.clock_ms)
        except InvalidEventError:
            return
        store.add(event, entry.arrived_ms, entry.raw)

    def _deliver(self, sent: Sent, at_ms: int) -> None:
        topic, event = sent.topic, sent.event
        if topic in INTERNAL:
            return
        self.tally.sent(topic, event)
        if self._files is not None:
            self._files.add(topic, event)
        if self._store is not None:
            self._store.add(event, at_ms, None)

    def _bury(self, entry: Entry) -> None:
        topic, key = glance(entry.raw)
        at_ms = entry.arrived_ms or self._pump.clock_ms or wall_ms()
        origin = in_file(entry.file, entry.line, topic, key)
        reason = entry.reason or "not_json"
        self._deliver(
            dead_letter(entry.raw, origin, reason=reason, error=entry.error, at_ms=at_ms, sha256=entry.sha256), at_ms
        )
