"""The sink as a process: its loop, its thread for deliveries, and how it ends."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import structlog

from faultlens.meters import SinkMeters
from faultlens.store import StoreBusyError
from sinks.delivery import Delivery, OpenTarget
from sinks.intake import Clock, Intake
from sinks.log import Letters, Log
from sinks.sink import Limits, Sink

# A supervisor that stops a process waits 10 s (Docker) to 30 s (Kubernetes) before it kills it.
FINISH_SECONDS: Final = 8.0
# Turns without a record after which nothing more comes: the dead letters that we wrote ourselves have been read too.
IDLE_TURNS: Final = 5
_log = structlog.get_logger()


@dataclass(frozen=True)
class Plan:
    """How the sink works: its limits, which clock it believes, and whether it ends where the log ends."""

    limits: Limits = field(default_factory=Limits)
    clock: Clock = "appended"
    until_caught_up: bool = False


class LoggedReports:
    """Counts what happens to deliveries, and tells of it once, not every time."""

    def __init__(self, meters: SinkMeters) -> None:
        self._meters = meters

    def retrying(self, error: StoreBusyError, attempt: int, wait_s: float) -> None:
        """Tell of the first failure and then of every tenth: an outage may take days."""
        self._meters.retries += 1
        self._meters.position.ready = False
        if attempt == 1 or attempt % 10 == 0:
            _log.warning("the store is busy", attempt=attempt, wait_s=round(wait_s, 2), error=str(error))

    def recovered(self, attempts: int) -> None:
        """Tell that it goes on."""
        self._meters.position.ready = True
        _log.info("the store works again", failed_attempts=attempts)

    def refused(self, topic: str, error: str) -> None:
        """Tell of a row that became a dead letter."""
        self._meters.dead[(topic, "refused_by_store")] += 1
        _log.warning("a row became a dead letter", topic=topic, error=error)


def run(
    log: Log,
    letters: Letters,
    open_store: Callable[[], OpenTarget],
    meters: SinkMeters,
    *,
    plan: Plan,
    stopping: threading.Event,
) -> bool:
    """Read, insert and commit until `stopping` is set; return whether all that was taken is in the store.

    Raises what the log, the store or the dead letters raise when trying again is no use; nothing is acknowledged then
    that was not delivered.
    """
    with ThreadPoolExecutor(1, "delivery") as executor:
        delivery = Delivery(
            open_store,
            letters,
            LoggedReports(meters),
            pause=stopping.wait,
            dice=random.Random().random,  # noqa: S311
        )
        try:
            sink = Sink(log, delivery, executor, meters, limits=plan.limits, intake=Intake(plan.clock))
            _turn_until(sink, log, meters, plan=plan, stopping=stopping)
            return sink.finish(monotonic(), FINISH_SECONDS)
        finally:
            stopping.set()  # a delivery that waits gives up
            executor.submit(delivery.close)
            letters.close()
            log.close()


def _turn_until(sink: Sink, log: Log, meters: SinkMeters, *, plan: Plan, stopping: threading.Event) -> None:
    idle = 0
    while not stopping.is_set():
        taken = sink.turn(monotonic())
        meters.position.lag = log.lags()
        if not plan.until_caught_up:
            continue
        idle = idle + 1 if not taken and _is_caught_up(log, meters) else 0
        if idle >= IDLE_TURNS and sink.is_empty:
            return


def _is_caught_up(log: Log, meters: SinkMeters) -> bool:
    """Return whether everything that is there was handed out: the lag of each partition is known, and none."""
    lag = meters.position.lag
    return bool(log.held) and lag.keys() == log.held.keys() and not any(lag.values())
