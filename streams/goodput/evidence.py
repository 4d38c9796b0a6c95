"""What a ledger is told: each function takes a ledger and returns it with one more thing known.

Evidence may come twice and in any order; what comes later than what is settled is counted and changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final

from msgspec.structs import replace

from faultlens.clock import DAY_MS, SECOND_MS
from faultlens.events import Cause, Outcome
from streams.goodput.model import (
    KEEPING_WORKLOADS,
    MAX_CHARGES,
    MAX_STALLS,
    MAX_UNFLUSHED_BLOCKS,
    ChargeTo,
    Keep,
    Ledger,
    Save,
    Size,
    Step,
)
from streams.goodput.settling import bounded, with_keeps

# Nobody's step or save takes longer; what claims to is cut to this, so that no number can overflow.
LONGEST_MS: Final = 7 * DAY_MS
_MAX_STEP: Final = 2**53


def keeps_work(workload: str | None) -> bool:
    """Return whether what attempts of this workload did stays done however they end."""
    return workload in KEEPING_WORKLOADS


def open_ledger(
    attempt: int, at_ms: int, gpus: int, *, keeps_work: bool = False, previous: Ledger | None = None
) -> Ledger:
    """Return the ledger of an attempt that was allocated `gpus` GPUs at `at_ms`.

    `previous` is the ledger of the attempt before: it says from which step this one goes on where no restore is
    reported, and what the job's normal pace is until this attempt has shown its own.
    """
    from streams.goodput.tiling import last_keep, pace_now  # noqa: PLC0415 # tiling reads ledgers, this makes one

    keep = None if previous is None else last_keep(previous)
    pace = None if previous is None else pace_now(previous)
    return Ledger(
        attempt,
        at_ms,
        gpus,
        settled_ms=at_ms,
        keeps_work=keeps_work,
        base_step=0 if keep is None else keep.step,
        pace=pace if pace is not None and pace.gpus == gpus else None,
    )
