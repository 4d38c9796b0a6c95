"""What others ask of a ledger: what a failure cost, whether a job hangs, how far it got."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from faultlens.clock import SECOND_MS
from streams.goodput.laying import interval_of, stall_after_ms
from streams.goodput.legs import Leg, View, keeps_of, view_of
from streams.goodput.model import MIN_SAMPLES, STALL_AT_LEAST_MS, Ledger, Size, Step
from streams.goodput.tiling import latest_ms, pace_now


def since_checkpoint(ledger: Ledger, end_ms: int) -> tuple[float, float]:
    """Return GPU-seconds and seconds from the last good checkpoint (or the allocation) to `end_ms`; saving apart."""
    view = view_of(ledger, end_ms)
    since_ms = ledger.from_ms
    for keep in keeps_of(ledger, view.legs):
        if keep.at_ms <= end_ms:
            since_ms = max(since_ms, keep.at_ms)
    wall_ms = gpu_ms = 0
    for from_ms, to_ms, gpus in _held(ledger, view, end_ms):
        overlap_ms = min(to_ms, end_ms) - max(from_ms, since_ms)
        if overlap_ms > 0:
            wall_ms += overlap_ms
            gpu_ms += overlap_ms * gpus
    return gpu_ms / SECOND_MS, wall_ms / SECOND_MS


def _held(ledger: Ledger, view: View, end_ms: int) -> Iterator[tuple[int, int, int]]:
    """Return (from, to, GPUs) for all time that no save took."""
    for block in ledger.blocks:
        if block.category != "checkpoint_save":
            yield block.from_ms, block.to_ms, block.gpus
    saves = [hole for hole in view.holes if hole.category == "checkpoint_save"]
    for size, following in pairwise([*view.sizes, Size(end_ms, 0)]):
        cursor = size.at_ms
        for save in saves:
            if cursor < save.to_ms and save.from_ms < following.at_ms:
                yield cursor, save.from_ms, size.gpus
                cursor = save.to_ms
        yield cursor, following.at_ms, size.gpus


def last_progress_ms(ledger: Ledger) -> int | None:
    """Return when the newest known step was complete; None: no step is known.

    A step that is reported again and again while nothing moves was complete the first time.
    """
    marks = ledger.steps if ledger.anchor is None else (ledger.anchor, *ledger.steps)
    index = len(marks) - 1
    while index > 0 and marks[index - 1].step == marks[index].step:
        index -= 1
    last = marks[index] if marks else None
    for save in ledger.saves:
        if not save.restored and (last is None or (save.from_ms > last.at_ms and save.step > last.step)):
            last = Step(save.from_ms, save.step)
    return None if last is None else last.at_ms


def steps_after(ledger: Ledger, at_ms: int) -> int:
    """Return how many steps were completed after a time.

    Between two records the steps are taken to be evenly spaced, and what is not known to be a whole one is none.
    """
    last_ms = last_progress_ms(ledger)
    if last_ms is None or last_ms <= at_ms:
        return 0
    return sum(_steps_after(leg, at_ms) for leg in view_of(ledger, latest_ms(ledger)).legs)


def _steps_after(leg: Leg, at_ms: int) -> int:
    steps = 0
    for before, mark in pairwise(leg.marks):
        if before.at_ms >= at_ms:
            steps += mark.step - before.step
        elif mark.at_ms > at_ms:
            whole = (mark.step - before.step) * (mark.at_ms - at_ms) // (mark.at_ms - before.at_ms)
            steps += max(1, whole)
    if leg.marks and not leg.anchored and leg.marks[0].at_ms > at_ms:
        steps += _first_steps_after(leg, at_ms)
    return steps


def _first_steps_after(leg: Leg, at_ms: int) -> int:
    """The first record itself tells of one step, and of as many more as its step time leaves room for."""
    first = leg.marks[0]
    if first.took_ms <= 0:
        return 1
    free_ms = first.at_ms - max(at_ms, min(leg.floor_ms, first.at_ms))
    return max(1, min(first.step - leg.base_step, free_ms // first.took_ms))


def normal_step_ms(ledger: Ledger) -> float | None:
    """Return the median time of a step on as many GPUs as the attempt has now; None before five are known."""
    pace = pace_now(ledger)
    return None if pace is None else pace.median_ms


def recent_slowdown(ledger: Ledger) -> float | None:
    """Return how many times as long the newest five steps took as the earlier ones; None before ten are known.

    Only steps on as many GPUs as the attempt has now are compared.
    """
    view = view_of(ledger, latest_ms(ledger))
    gpus, each = view.sizes[-1].gpus, list[float]()
    for leg in view.legs:
        for before, mark in pairwise(leg.marks):
            if view.gpus_at(before.at_ms) == gpus and view.resized(before.at_ms, mark.at_ms) is None:
                each.append(view.free_ms(before.at_ms, mark.at_ms) / (mark.step - before.step))
    if len(each) < 2 * MIN_SAMPLES:
        return None
    earlier = median(each[:-MIN_SAMPLES])
    return median(each[-MIN_SAMPLES:]) / earlier if earlier > 0 else None


def stalled_since(ledger: Ledger, now_ms: int) -> int | None:
    """Return since when the attempt hangs: as its launcher says, or as the end of its last step when it is overdue.

    Overdue is three normal intervals between records, at least a minute. None: it goes on, or nothing is known.
    """
    newest_ms = last_progress_ms(ledger)
    if newest_ms is not None and now_ms - newest_ms <= STALL_AT_LEAST_MS and not ledger.stalls_ms:
        return None
    view = view_of(ledger, now_ms)
    leg = view.legs[-1]
    last_ms = leg.steps[-1].at_ms if leg.marks else leg.start_ms
    told = view.stall(last_ms, now_ms)
    if told is not None or not leg.marks:
        return told
    interval_ms = interval_of(leg, view)
    overdue = interval_ms is not None and view.free_ms(last_ms, now_ms) > stall_after_ms(interval_ms)
    return last_ms if overdue else None
