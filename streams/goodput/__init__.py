"""The ledger of an attempt: what every GPU-second that it was allocated was spent on, each exactly once."""

from streams.goodput.evidence import (
    charge,
    charge_loss,
    close,
    keeps_work,
    on_allocated,
    on_checkpoint,
    on_next_restore,
    on_progress,
    on_resized,
    on_stalled,
    on_started,
    open_ledger,
    reopen,
)
from streams.goodput.flushing import OVERHEAD, Change, Flushed, flush, job_time, needs_flush, told
from streams.goodput.model import Interval, Ledger, Pace
from streams.goodput.questions import (
    last_progress_ms,
    normal_step_ms,
    recent_slowdown,
    since_checkpoint,
    stalled_since,
    steps_after,
)
from streams.goodput.settling import rested
from streams.goodput.tiling import intervals, totals

__all__ = [
    "OVERHEAD",
    "Change",
    "Flushed",
    "Interval",
    "Ledger",
    "Pace",
    "charge",
    "charge_loss",
    "close",
    "flush",
    "intervals",
    "job_time",
    "keeps_work",
    "last_progress_ms",
    "needs_flush",
    "normal_step_ms",
    "on_allocated",
    "on_checkpoint",
    "on_next_restore",
    "on_progress",
    "on_resized",
    "on_stalled",
    "on_started",
    "open_ledger",
    "recent_slowdown",
    "reopen",
    "rested",
    "since_checkpoint",
    "stalled_since",
    "steps_after",
    "told",
    "totals",
]
