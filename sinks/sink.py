"""The sink: from the log into the store, acknowledged after it is there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol

from faultlens.codec import encode
from faultlens.events import SloStatus
from faultlens.meters import SinkMeters
from faultlens.topics import SLO_STATUS
from sinks.delivery import AbandonedError, Delivery, Load
from sinks.intake import Intake, buried, is_tick, told
from sinks.log import Log, Taken
from sinks.runs import Run, Runs, to_commit
from sinks.writer import MAX_BYTES, MAX_ROWS

POLL_RECORDS: Final = 5_000
POLL_S: Final = 0.1


@dataclass(frozen=True)
class Limits:
    """When a batch is delivered: at so many rows, bytes, or seconds; ticks alone wait longer.

    Two batches are in memory at most, one that is being delivered and one that is being filled.
    """

    rows: int = MAX_ROWS
    bytes: int = MAX_BYTES
    age_s: float = 1.0
    idle_s: float = 60.0

    def is_full(self, rows: int, weight: int) -> bool:
        """Return whether nothing more may be taken."""
        return rows >= self.rows or weight >= self.bytes


class Executor(Protocol):
    """What carries out deliveries beside the loop: a thread, or for tests the caller itself."""

    def submit(self, work: Callable[[], None], /) -> Future[None]:
        """Carry it out and tell its end by the future."""


class Sink:
    """Takes records, fills a load, delivers it while the next is filled, and commits what was delivered.

    Times are seconds of a monotonic clock, handed in as `now_s`; `meters` say where it stands.
    """

    def __init__(
        self, log: Log, delivery: Delivery, executor: Executor, meters: SinkMeters, *, limits: Limits, intake: Intake
    ) -> None:
        self._log = log
        self._delivery = delivery
        self._executor = executor
        self._limits = limits
        self._intake = intake
        self._meters = meters
        self._runs = Runs()
        self._filling = Load()
        self._delivered: Load | None = None
        self._begun_s = 0.0
        self._future: Future[None] | None = executor.submit(delivery.open)
        self._paused = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing but ticks waits, here or on its way."""
        return self._future is None and self._filling.since_s is None

    def turn(self, now_s: float, *, timeout_s: float = POLL_S) -> int:
        """Do what is to be done now, and return how many records were taken.

        Raises what the log or a delivery raises: nothing that was not delivered has been acknowledged then.
        """
        records = self._log.poll(POLL_RECORDS, timeout_s)
        for record in records:
            self._take(record, now_s)
        self._settle(now_s)
        self._forget()
        if self._future is None and self._is_due(now_s):
            self._hand_over(now_s)
        self._press_back()
        self._measure(now_s)
        return len(records)

    def finish(self, now_s: float, within_s: float) -> bool:
        """Deliver and commit what was taken, as far as it takes no longer; return whether it is all."""
        try:
            self._wait(now_s, within_s / 2)
            self._hand_over(now_s, idle_s=0.0)
            self._wait(now_s, within_s / 2)
        except (TimeoutError, AbandonedError):
            return False
        return True

    def _take(self, record: Taken, now_s: float) -> None:
        place = (record.topic, record.partition)
        run = self._runs.of(place, self._log.held[place], now_s=now_s, arrived_ms=record.appended_ms)
        run.stop, run.last_ms = record.offset + 1, record.appended_ms
        self._meters.records[record.topic] += 1
        if is_tick(record):
            run.ticks += 1
            self._meters.ticks[record.topic] += 1
            return
        load = self._filling
        if load.since_s is None:
            load.since_s = now_s
        if run.oldest_ms is None:
            run.oldest_ms = record.appended_ms
        before = load.batch.size
        try:
            event, arrived_ms = self._intake.event(record)
            load.batch.add(event, arrived_ms, (record, run), record.value)
        except Exception as error:  # noqa: BLE001 - one record never stops the others; the letter has the traceback
            self._bury(record, run, error)
            return
        run.events += 1
        run.rows += load.batch.size - before
        if isinstance(event.data, SloStatus):
            self._meters.standings.tell(event.data, record.partition)

    def _bury(self, record: Taken, run: Run, error: Exception) -> None:
        reason, text = told(error)
        run.dead += 1
        self._meters.dead[(record.topic, reason)] += 1
        letter = buried(record, reason, text)
        self._filling.letters.append(letter)
        self._filling.letters_bytes += len(encode(letter[1]))

    @property
    def _is_full(self) -> bool:
        load = self._filling
        return self._limits.is_full(load.batch.size + len(load.letters), load.batch.weight + load.letters_bytes)

    def _is_due(self, now_s: float) -> bool:
        since_s = self._filling.since_s
        if since_s is not None:
            return self._is_full or now_s - since_s >= self._limits.age_s
        return any(now_s - run.since_s >= self._limits.idle_s for run in self._runs.open)

    def _hand_over(self, now_s: float, *, idle_s: float | None = None) -> None:
        load = self._filling
        load.runs = self._runs.hand_over(now_s=now_s, idle_s=self._limits.idle_s if idle_s is None else idle_s)
        if not load.runs:
            return
        self._filling = Load()
        self._delivered, self._begun_s = load, now_s
        self._future = self._executor.submit(lambda: self._delivery.deliver(load))

    def _settle(self, now_s: float) -> None:
        if self._future is None or not self._future.done():
            return
        future, load = self._future, self._delivered
        self._future = self._delivered = None
        future.result()
        self._meters.position.ready = True
        if load is not None:
            self._log.commit(to_commit(load.runs, self._log.held))
            self._meters.delivering.observe(now_s - self._begun_s)
            if load.since_s is not None:
                self._meters.delay.observe(now_s - load.since_s)

    def _wait(self, now_s: float, timeout_s: float) -> None:
        if self._future is not None:
            self._future.exception(timeout_s)
            self._settle(now_s)

    def _forget(self) -> None:
        """Forget what concerns partitions that are not ours any more."""
        held = self._log.held
        self._runs.forget(held)
        self._meters.standings.keep(lambda partition: (SLO_STATUS, partition) in held)

    def _press_back(self) -> None:
        if self._is_full and not self._paused:
            self._log.pause()
            self._paused = True
        elif self._paused and not self._is_full:
            self._log.resume()
            self._paused = False

    def _measure(self, now_s: float) -> None:
        meters, position, load = self._meters, self._meters.position, self._filling
        runs = [*self._runs.open, *(self._delivered.runs if self._delivered is not None else ())]
        position.oldest_ms = min((run.oldest_ms for run in runs if run.oldest_ms is not None), default=None)
        position.partitions, position.turned_s = len(self._log.held), now_s
        meters.rows = self._delivery.written
        meters.expired = self._log.expired
        meters.waiting_rows = load.batch.size
        meters.waiting_bytes = load.batch.weight + load.letters_bytes
        meters.paused = self._paused
