"""What a launcher tells of an attempt, as events. Ids derive from what they are about: told twice, they count once."""

from __future__ import annotations

from msgspec import Struct

from faultlens.clock import moment_of
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import (
    Data,
    JobAlive,
    JobAllocated,
    JobEnded,
    JobResized,
    JobStarted,
    JobSubmitted,
    Outcome,
    RankExited,
    Slot,
    Stalled,
)
from producers.launcher.identity import Identity


class Ending(Struct, frozen=True, kw_only=True):
    """How the command ended: with an exit code, or by a signal; what it printed last, without secrets."""

    exit_code: int | None = None
    signal: int | None = None
    log_tail: str | None = None
    first_error_ms: int | None = None
    at_ms: int = 0
    asked_to_end: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether the command says that it did what it was to do."""
        return self.exit_code == 0


def submitted(who: Identity, at_ms: int) -> Event:
    """Return what was asked for."""
    gpus = len(who.devices or ()) * len(who.nodes)
    data = JobSubmitted(
        who.job_id, who.cluster, who.workload, gpus, len(who.nodes), user=who.user, team=who.team, name=who.name
    )
    return _event(who, "submitted", 0, at_ms, data)


def allocated(who: Identity, attempt: int, at_ms: int) -> Event:
    """Return what the attempt holds."""
    data = JobAllocated(who.job_id, attempt, who.cluster, who.allocation(), user=who.user)
    return _event(who, "allocated", attempt, at_ms, data)


def started(who: Identity, attempt: int, at_ms: int) -> Event:
    """Return that user code runs: on the ranks that this launcher knows of."""
    return _event(who, "started", attempt, at_ms, JobStarted(who.job_id, attempt))


def alive(who: Identity, attempt: int, at_ms: int, interval_s: float, stalled: Stalled | None = None) -> Event:
    """Return a sign of life, and since when it makes no progress, if it does not."""
    return _event(who, f"alive-{at_ms}", attempt, at_ms, JobAlive(who.job_id, attempt, interval_s, stalled))


def resized(who: Identity, attempt: int, at_ms: int, allocation: tuple[Slot, ...], lost: tuple[Slot, ...]) -> Event:
    """Return that the attempt goes on with other workers."""
    data = JobResized(who.job_id, attempt, allocation, lost, reason="the workers met anew")
    return _event(who, f"resized-{at_ms}", attempt, at_ms, data)


def rank_exited(who: Identity, attempt: int, ending: Ending) -> Event:
    """Return how this rank ended."""
    device = who.devices[0] if who.devices is not None and len(who.devices) == 1 else None
    data = RankExited(
        who.job_id,
        attempt,
        who.rank,
        who.node,
        device=device,
        exit_code=ending.exit_code,
        signal=ending.signal,
        first_error_at=None if ending.first_error_ms is None else moment_of(ending.first_error_ms),
        log_tail=ending.log_tail,
    )
    return _event(who, f"exited-{who.rank}", attempt, ending.at_ms, data)


def ended(who: Identity, attempt: int, ending: Ending, next_attempt: int | None) -> Event:
    """Return how the attempt ended, as far as this launcher knows: a scheduler's own word goes before it."""
    data = JobEnded(
        who.job_id,
        attempt,
        outcome_of(ending),
        exit_code=ending.exit_code,
        signal=ending.signal,
        log_tail=None if ending.succeeded else ending.log_tail,
        restarts_with_attempt=next_attempt,
    )
    return _event(who, "ended", attempt, ending.at_ms, data)


def outcome_of(ending: Ending) -> Outcome:
    """Return what the attempt came to; one that ended since somebody asked for it was cancelled."""
    if ending.succeeded:
        return "succeeded"
    return "cancelled" if ending.asked_to_end else "failed"


def _event(who: Identity, what: str, attempt: int, at_ms: int, data: Data) -> Event:
    id_ = stable_id("launcher", who.cluster, who.job_id, attempt, what)
    return event_of(data, source=f"launcher/{who.job_id}", id_=id_, time_ms=at_ms)
