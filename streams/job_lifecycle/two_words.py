"""Two words on one end, the scheduler's and the launcher's: which of them counts."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.clock import SECOND_MS
from streams.attribution import End, ended_by_nobody

# Slurm dates what it does by whole seconds, rounded down.
_DATED_MS: Final = SECOND_MS
# Slurm's states of a run that was put back into the queue: REQUEUED, REQUEUE_HOLD, REQUEUE_FED (its sacct page).
_PUT_BACK: Final = "requeue"
_OF_ITS_OWN: Final = frozenset({"root", "none"})


def counting(scheduler: End | None, launcher: End | None) -> End | None:
    """Return the end that counts: the scheduler's, but for a job that had failed by itself before it was put back.

    Scripts and launchers requeue their job since its program failed. Of that the scheduler knows nothing; when the time
    that was allocated ended it knows all the same.
    """
    if scheduler is None or launcher is None:
        return scheduler or launcher
    if not _is_put_back(scheduler) or not _had_failed(launcher, scheduler.at_ms):
        return scheduler
    return replace(launcher, at_ms=scheduler.at_ms)


def _is_put_back(end: End) -> bool:
    """Return whether all that a scheduler says is that the job is to run again, and no command of ours wanted that."""
    reason = end.reason or ""
    return end.outcome == "cancelled" and reason.casefold().startswith(_PUT_BACK) and end.command_id is None


def _had_failed(end: End, by_ms: int) -> bool:
    """Return whether the program had failed by then, and nobody had ended it.

    Within the second that a scheduler names it may have failed since its peers on other nodes were ended just before
    it: what only speaks of others did not fail by itself then.
    """
    if end.outcome != "failed" or not ended_by_nobody(end.exit_code, end.signal):
        return False
    return end.at_ms <= by_ms or (end.at_ms < by_ms + _DATED_MS and end.said.role in _OF_ITS_OWN)
