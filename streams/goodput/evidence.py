"""What a ledger is told: each function takes a ledger and returns it with one more thing known.

Evidence may come twice and in any order; what comes later than what is settled is counted and changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

from msgspec.structs import replace

from faultlens.clock import DAY_MS, SECOND_MS
from faultlens.events import Cause, Outcome
from streams.goodput.model import (
    KEEPING_WORKLOADS,
    MAX_CHARGES,
    MAX_KEEPS,
    MAX_STALLS,
    MAX_UNFLUSHED_BLOCKS,
    ChargeTo,
    Keep,
    Ledger,
    Save,
    Size,
    Step,
    order,
)
from streams.goodput.settling import bounded
from streams.goodput.tiling import last_keep, pace_now

# Nobody's step or save takes longer; what claims to is cut to this, so that no number can overflow.
LONGEST_S: Final = 7 * DAY_MS / SECOND_MS
_HIGHEST_STEP: Final = 2**53


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
    pace, base_step = None, 0
    if previous is not None:
        keep = last_keep(previous)
        base_step = previous.base_step if keep is None else keep.step
        pace = pace_now(previous)
    if pace is not None and pace.gpus != gpus:
        pace = None
    return Ledger(attempt, at_ms, gpus, settled_ms=at_ms, keeps_work=keeps_work, base_step=base_step, pace=pace)


def on_allocated(ledger: Ledger, at_ms: int, gpus: int) -> Ledger:
    """Correct when the attempt was allocated, or with how many GPUs (an allocation that came in parts)."""
    if _began(ledger):
        return _late(ledger)
    return replace(ledger, from_ms=at_ms, settled_ms=at_ms, gpus=gpus)


def on_started(ledger: Ledger, at_ms: int) -> Ledger:
    """Every rank is running user code; of two words the earlier counts."""
    started_ms = at_ms if ledger.started_ms is None else min(at_ms, ledger.started_ms)
    return replace(ledger, started_ms=started_ms)


def on_progress(ledger: Ledger, at_ms: int, step: int, step_time_s: float | None = None) -> Ledger:
    """A step was complete; records may tell of every step or of every hundredth."""
    if _too_late(ledger, at_ms):
        return _late(ledger)
    told = Step(at_ms, _step(step), _ms(step_time_s or 0))
    index = bisect_left(ledger.steps, at_ms, key=lambda known: known.at_ms)
    known = ledger.steps[index] if index < len(ledger.steps) else None
    if known is None or known.at_ms != at_ms:
        return bounded(replace(ledger, steps=(*ledger.steps[:index], told, *ledger.steps[index:])))
    if (told.step, told.took_ms) <= (known.step, known.took_ms):
        return ledger
    return replace(ledger, steps=(*ledger.steps[:index], told, *ledger.steps[index + 1 :]))


def on_checkpoint(  # as many as the event has
    ledger: Ledger, ended_ms: int, step: int, duration_s: float, *, ok: bool, restored: bool, blocking: bool
) -> Ledger:
    """A checkpoint was saved or restored, and that ended at `ended_ms`."""
    save = Save(ended_ms - _ms(duration_s), ended_ms, _step(step), ok, restored, blocking)
    if save in ledger.saves:
        return ledger
    if _too_late(ledger, ended_ms):
        return _late(_with_keep(ledger, save) if ok else ledger)
    saves = sorted((*ledger.saves, save), key=order)
    return bounded(replace(ledger, saves=tuple(saves)))


def _with_keep(ledger: Ledger, save: Save) -> Ledger:
    """Work is safe also in a checkpoint that was heard of late."""
    keep = Keep(save.to_ms if save.restored else save.from_ms, save.step)
    if keep in ledger.keeps:
        return ledger
    keeps = sorted((*ledger.keeps, keep), key=lambda known: (known.at_ms, known.step))
    # Before the oldest of them time may be kept only as sums: a late one cannot take its place.
    return replace(ledger, keeps=tuple(keeps[-MAX_KEEPS:]))


def on_stalled(ledger: Ledger, since_ms: int) -> Ledger:
    """A launcher says that a collective is stuck since then; the next step ends it."""
    if since_ms in ledger.stalls_ms:
        return ledger
    stalls = list(ledger.stalls_ms)
    insort(stalls, since_ms)
    return replace(ledger, stalls_ms=tuple(stalls[-MAX_STALLS:]))


def on_resized(ledger: Ledger, at_ms: int, gpus: int, *, loss: int = 0) -> Ledger:
    """The attempt goes on with so many GPUs; `loss` numbers the loss that made it smaller."""
    if _too_late(ledger, at_ms) or len(ledger.blocks) > MAX_UNFLUSHED_BLOCKS:
        return _late(ledger)
    sizes = [size for size in ledger.sizes if size.at_ms != at_ms]
    insort(sizes, Size(at_ms, gpus, loss), key=lambda size: size.at_ms)
    return bounded(replace(ledger, sizes=tuple(sizes)))


def charge(ledger: Ledger, to: ChargeTo, cause: Cause | None) -> Ledger:
    """Say whose fault a part of the time was: what the attempt recovers from, or what a finding says.

    `recovery` takes the verdict on the attempt before. None takes the charge back.
    """
    return _charged(ledger, to, cause)


def charge_loss(ledger: Ledger, loss: int, cause: Cause | None) -> Ledger:
    """Say whose fault a loss was that the attempt survived; None takes it back."""
    return _charged(ledger, f"loss {loss}", cause)


def _charged(ledger: Ledger, to: str, cause: Cause | None) -> Ledger:
    charges = {known: other for known, other in ledger.charges.items() if known != to}
    if cause is not None:
        if len(charges) >= MAX_CHARGES:
            return _late(ledger)
        charges[to] = _bare(cause)
    return replace(ledger, charges=dict(sorted(charges.items())))


def close(ledger: Ledger, at_ms: int, outcome: Outcome, cause: Cause | None = None) -> Ledger:
    """Say when and how the attempt ended and whose fault that was; said again, the last word counts."""
    end_ms = max(at_ms, ledger.from_ms)
    return replace(ledger, end_ms=end_ms, outcome=outcome, cause=None if cause is None else _bare(cause))


def reopen(ledger: Ledger) -> Ledger:
    """Take the end back: the attempt still runs."""
    return replace(ledger, end_ms=None, outcome=None, cause=None)


def on_next_restore(ledger: Ledger, step: int) -> Ledger:
    """A later attempt went on from this step, which says exactly what was kept; the lowest such step counts.

    Tell it to every earlier attempt, the newest first, up to one whose work begins below the step (`base_step`).
    """
    step = _step(step)
    return replace(ledger, next_restore=step if ledger.next_restore is None else min(step, ledger.next_restore))


def _bare(cause: Cause) -> Cause:
    """The ledger's records name class and code; the words are in the verdict."""
    return Cause(cause.cause_class, cause.code)


def _began(ledger: Ledger) -> bool:
    return ledger.settled_ms > ledger.from_ms


def _too_late(ledger: Ledger, at_ms: int) -> bool:
    return _began(ledger) and at_ms <= ledger.settled_ms


def _late(ledger: Ledger) -> Ledger:
    return replace(ledger, late=ledger.late + 1)


def _step(step: int) -> int:
    return max(-_HIGHEST_STEP, min(_HIGHEST_STEP, step))


def _ms(seconds: float) -> int:
    return round(max(0.0, min(seconds, LONGEST_S)) * SECOND_MS)
