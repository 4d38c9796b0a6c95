"""How a run ended, in the contract's words: Slurm's state alone does not tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from faultlens.clock import SECOND_MS
from faultlens.events import Outcome
from producers.slurm.history import Attempt
from producers.slurm.runs import BATCH, Run, Step
from producers.slurm.states import ENDED
from producers.slurm.surroundings import TOGETHER_MS, Surroundings

LAUNCH_CODES: Final = frozenset({"prolog_failed", "launch_failed"})
# Without a setting of the site's: how long a launch may take before a requeue is somebody's wish and no failed launch.
_LAUNCH_S: Final = 300
ROOT_UID: Final = 0


class Ended(NamedTuple):
    """An attempt's outcome and when it ended. `how` is what the outcome rests on, for the message."""

    outcome: Outcome
    end_ms: int
    how: str = ""


def ended(attempt: Attempt, around: Surroundings) -> Ended | None:
    """Return how the attempt ended; None while it has not, or when nobody knows when."""
    run = attempt.last
    if run.state.name not in ENDED or run.end_ms is None:
        return None
    return _RULES[run.state.name](attempt, run, run.end_ms, around)


def _always(outcome: Outcome) -> Callable[[Attempt, Run, int, Surroundings], Ended]:
    return lambda _attempt, _run, end_ms, _around: Ended(outcome, end_ms)


def _failed(_attempt: Attempt, run: Run, end_ms: int, _around: Surroundings) -> Ended:
    return Ended("failed" if run.nodes else "never_started", end_ms, "" if run.nodes else "refused")


def _node_failed(_attempt: Attempt, run: Run, end_ms: int, around: Surroundings) -> Ended:
    """A node that never came up has no step to show; of a run that accounting has not heard of nobody knows them."""
    return Ended("never_started" if around.has_steps and run.recorded and not run.steps else "failed", end_ms)


def _cancelled(attempt: Attempt, run: Run, end_ms: int, around: Surroundings) -> Ended:
    if end_ms in around.lost_at and attempt.known is None and run.state.by_uid is None and run.nodes:
        return Ended("succeeded" if _finished(run) else "failed", end_ms, "record_lost")
    if run.state.by_uid in (None, ROOT_UID) and run.nodes and _launch_failed(run, end_ms, around):
        return Ended("never_started", end_ms, "launch")
    known = attempt.known
    if known is not None and known.suspend_ms == end_ms:
        # For accounting a suspended job that is cancelled ends when it was suspended.
        return Ended("cancelled", max((s.end_ms for s in run.steps if s.end_ms is not None), default=end_ms))
    return Ended("cancelled", end_ms)


def _launch_failed(run: Run, end_ms: int, around: Surroundings) -> bool:
    """Return whether a cancellation by root is what a failed prolog looks like."""
    if run.was_launched or run.ran_ms > _launch_limit_ms(around):
        return False
    if around.knows_outages:
        return bool(around.begun_at(run.nodes, end_ms, LAUNCH_CODES))
    return bool(run.steps) and run.ran_ms <= TOGETHER_MS


def _launch_limit_ms(around: Surroundings) -> int:
    return (around.limits.prolog_timeout_s or _LAUNCH_S) * SECOND_MS + TOGETHER_MS


def _requeued(_attempt: Attempt, run: Run, end_ms: int, around: Surroundings) -> Ended:
    batch = next((step for step in run.steps if step.name == BATCH), None)
    if run.exit is not None and run.exit.code != 0:
        return Ended("failed", end_ms, "requeue_exit")
    if batch is not None and batch.end_ms is not None and _clean(batch) and batch.end_ms < end_ms:
        return Ended("succeeded", batch.end_ms, "requeued_afterwards")
    if not run.was_launched and run.ran_ms <= _launch_limit_ms(around) and _looks_unlaunched(run, end_ms, around):
        return Ended("never_started", end_ms, "launch")
    return Ended("cancelled", end_ms, "requeued")


def _looks_unlaunched(run: Run, end_ms: int, around: Surroundings) -> bool:
    """Return whether the nodes were there and no step is known to have begun; without steps only by what else is."""
    out = around.outages_at(run.nodes, end_ms)
    if any(stretch.code in LAUNCH_CODES for stretch in out):
        return True
    return not out and (around.has_steps or run.ran_ms <= TOGETHER_MS)


def _finished(run: Run) -> bool:
    return bool(run.user_steps) and all(_clean(step) for step in run.user_steps)


def _clean(step: Step) -> bool:
    return step.state.name == "COMPLETED" and step.exit is not None and step.exit.clean


_RULES: Final[dict[str, Callable[[Attempt, Run, int, Surroundings], Ended]]] = {
    "BOOT_FAIL": _always("never_started"),
    "CANCELLED": _cancelled,
    "COMPLETED": _always("succeeded"),
    "DEADLINE": _always("timed_out"),
    "FAILED": _failed,
    "LAUNCH_FAILED": _always("never_started"),
    "NODE_FAIL": _node_failed,
    "OUT_OF_MEMORY": _always("failed"),
    "PREEMPTED": _always("preempted"),
    "RECONFIG_FAIL": _always("never_started"),
    "REQUEUED": _requeued,
    "SPECIAL_EXIT": _failed,
    "TIMEOUT": _always("timed_out"),
}
