"""Brings a load to where it belongs: rows to the store, dead letters to the log, then the proof of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from faultlens.codec import Event, encode
from faultlens.errors import FaultlensError, WorldError
from faultlens.store import StoreBusyError
from faultlens.topics import DEAD_LETTERS
from sinks.batch import Batch, Refused
from sinks.intake import buried
from sinks.log import Letters, Taken
from sinks.runs import RUNS_TABLE, Run, RunRow
from sinks.writer import REASON, Target, insert, token_of

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 30.0


class AbandonedError(FaultlensError):
    """The process is to end while the store is busy: the load is left, and will be read again."""


class OpenTarget(Target, Protocol):
    """A store that was opened for the sink alone."""

    def close(self) -> None:
        """Give it back."""


@dataclass
class Load:
    """What is delivered at once: the rows of some records, their dead letters, and the runs they make up."""

    batch: Batch[tuple[Taken, Run]] = field(default_factory=Batch)
    letters: list[tuple[bytes, Event]] = field(default_factory=list)
    letters_bytes: int = 0
    runs: list[Run] = field(default_factory=list)
    since_s: float | None = None


class Reports(Protocol):
    """Who is told of what happens to a delivery."""

    def retrying(self, error: StoreBusyError, attempt: int, wait_s: float) -> None:
        """The store is busy; the next attempt follows after `wait_s`."""

    def recovered(self, attempts: int) -> None:
        """The store works again after so many failed attempts."""

    def refused(self, topic: str, error: str) -> None:
        """The store would not have a row of a record of the topic."""


def wait_s(attempt: int, dice: float) -> float:
    """Return how long to wait after the failed attempt (counted from 1): doubling, half of it by dice in [0, 1)."""
    longest = min(FIRST_WAIT_S * 2.0 ** min(attempt - 1, 20), LONGEST_WAIT_S)
    return longest / 2 + dice * longest / 2


class Delivery:
    """Delivers loads, one after another. `pause` waits so many seconds and says whether to give up meanwhile.

    A load is delivered completely or, by an exception, not acknowledged. AbandonedError: `pause` said so. WorldError:
    trying again is no use. As long as the store is busy it tries again, for any length of time.
    """

    def __init__(
        self,
        open_store: Callable[[], OpenTarget],
        letters: Letters,
        reports: Reports,
        *,
        pause: Callable[[float], bool],
        dice: Callable[[], float],
    ) -> None:
        self._open = open_store
        self._store: OpenTarget | None = None
        self._letters = letters
        self._reports = reports
        self._pause = pause
        self._dice = dice
        self.written: Counter[str] = Counter()

    def open(self) -> None:
        """Open the store, waiting until it is there."""
        self._persistently(lambda _: None)

    def deliver(self, load: Load) -> None:
        """Deliver the load."""
        self._persistently(lambda store: insert(store, load.batch, self.written))
        self._bury(load)
        rows = [run.row() for run in load.runs]
        token = token_of(RUNS_TABLE, rows)
        self._persistently(lambda store: store.insert(RUNS_TABLE, RunRow._fields, rows, token))

    def close(self) -> None:
        """Give the store back, if it was ever open."""
        if self._store is not None:
            self._store.close()

    def _persistently(self, work: Callable[[Target], object]) -> None:
        attempt = 0
        while True:
            try:
                if self._store is None:
                    self._store = self._open()
                work(self._store)
            except StoreBusyError as error:
                attempt += 1
                seconds = wait_s(attempt, self._dice())
                self._reports.retrying(error, attempt, seconds)
                if self._pause(seconds):
                    raise AbandonedError(f"given up while the store is busy: {error}") from error
            else:
                if attempt:
                    self._reports.recovered(attempt)
                return

    def _bury(self, load: Load) -> None:
        """Send the dead letters, of records and of refused rows, and wait until they are there."""
        letters = list(load.letters)
        for refused in load.batch.refused:
            record, run = refused.owner
            run.refused += 1
            self._reports.refused(record.topic, refused.error)
            letters.append(buried(record, REASON, refused.error))
        hopeless = [refused for refused in load.batch.refused if _is_hopeless(refused)]
        if hopeless:
            raise WorldError(f"the store refuses the dead letter of a dead letter: {hopeless[0].error}")
        if letters:
            self._letters.send([(key, encode(event)) for key, event in letters])
        load.batch.refused = []
        load.letters = []


def _is_hopeless(refused: Refused[tuple[Taken, Run]]) -> bool:
    """Return whether one more letter about it would go on for ever: its record is a letter about a letter."""
    record, _ = refused.owner
    return record.topic == DEAD_LETTERS and getattr(refused.item, "topic", "") == DEAD_LETTERS
