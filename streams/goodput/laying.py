"""How the time of one leg is laid out: what led up to its first step, each gap between steps, and what came last."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from faultlens.events import Category
from streams.goodput.legs import KNOWN_BY_SAVE, Leg, View, first_record_ms, length, loss_name, spaced
from streams.goodput.model import (
    SILENT_START_MS,
    SLOW_SHARE,
    STALL_AT_LEAST_MS,
    STALL_INTERVALS,
    Ledger,
    Piece,
    Step,
)

Plan = Sequence[tuple[Category, str, int]]


def lay(spans: Iterable[tuple[int, int]], plan: Plan) -> Iterator[Piece]:
    """Fill the spans with the plan's (category, charge, milliseconds) in order; the last entry takes what is left."""
    entries = iter(plan)
    category, charge, left_ms = next(entries)
    following = next(entries, None)
    for start, stop in spans:
        cursor = start
        while cursor < stop:
            while left_ms <= 0 and following is not None:
                category, charge, left_ms = following
                following = next(entries, None)
            until = stop if following is None else min(stop, cursor + left_ms)
            yield Piece(category, cursor, until, 0, charge)
            left_ms -= until - cursor
            cursor = until


def lay_leg(leg: Leg, view: View, ledger: Ledger) -> Iterator[Piece]:
    """Return what the leg's free time was spent on, in order; saves and restores are left out, GPUs not yet known."""
    if not leg.marks:
        yield from _without_steps(leg, view, ledger)
        return
    if not leg.anchored:
        yield from _lead_in(leg, view, ledger)
    yield from _gaps(leg, view)
    yield from _tail(leg, view, ledger)


def _lead(leg: Leg, view: View, ledger: Ledger) -> tuple[Category, str]:
    """Return what the time before the first step is, and what it is charged to."""
    if leg.first:
        return ("startup", "") if ledger.attempt == 1 else ("recovery", "recovery")
    return "recovery", view.loss(leg)


def _without_steps(leg: Leg, view: View, ledger: Ledger) -> Iterator[Piece]:
    """Nothing was heard of steps: it was starting, unless what is known of it says that it worked without a word."""
    category, charge = _lead(leg, view, ledger)
    final = leg is view.legs[-1]
    if final and _ended_badly(ledger) and (leg.first or not charge):
        charge = "end"
    stalled_ms = view.stall(leg.start_ms, leg.stop_ms)
    stop_ms = leg.stop_ms if stalled_ms is None else stalled_ms
    floor_ms = min(stop_ms, leg.floor_ms) if final and _worked_in_silence(leg, ledger) else stop_ms
    yield from lay(view.free(leg.start_ms, floor_ms), [(category, charge, 0)])
    yield from lay(view.free(floor_ms, stop_ms), [("productive", "", 0)])
    yield from lay(view.free(stop_ms, leg.stop_ms), [("stalled", "end" if ledger.closed else "stalled", 0)])


def _worked_in_silence(leg: Leg, ledger: Ledger) -> bool:
    if not leg.first:
        return False
    if ledger.outcome == "succeeded":
        return True
    ran_long = leg.stop_ms - leg.floor_ms > SILENT_START_MS
    return ledger.started_ms is not None and (ledger.keeps_work or ran_long)


def _ended_badly(ledger: Ledger) -> bool:
    return ledger.closed and ledger.outcome not in {"succeeded", "cancelled"}


def _lead_in(leg: Leg, view: View, ledger: Ledger) -> Iterator[Piece]:
    """The first record tells of one step or of many; how long they took says when the first of them began."""
    mark = leg.marks[0]
    spans = view.free(leg.start_ms, mark.at_ms)
    # A word on the start that came from after the first step says nothing about it.
    floor_ms = leg.floor_ms if leg.floor_ms < mark.at_ms else leg.start_ms
    steps = mark.step - leg.base_step if mark.step > leg.base_step else max(1, mark.step)
    work_ms = min(view.free_ms(floor_ms, mark.at_ms), _first_work_ms(mark, steps, view))
    slow_ms = _slow_ms(work_ms, steps, view, mark)
    category, charge = _lead(leg, view, ledger)
    yield from lay(
        spans,
        [
            (category, charge, length(spans) - work_ms),
            ("productive", "", work_ms - slow_ms),
            ("slow", "slow", slow_ms),
        ],
    )


def _first_work_ms(mark: Step, steps: int, view: View) -> int:
    if mark.took_ms > 0:
        return steps * mark.took_ms
    pace = view.paces.get(view.gpus_at(mark.at_ms))
    if pace is not None:
        return round(steps * pace.median_ms)
    return mark.at_ms if mark.took_ms == KNOWN_BY_SAVE else 0


def _slow_ms(work_ms: int, steps: int, view: View, mark: Step) -> int:
    """Return what exceeds the median where the steps were slow, else 0."""
    pace = view.paces.get(view.gpus_at(mark.at_ms))
    if pace is None or work_ms / steps <= pace.slow_from_ms:
        return 0
    return min(work_ms, max(0, work_ms - round(steps * pace.median_ms)))


def _gaps(leg: Leg, view: View) -> Iterator[Piece]:
    """Return what the time between steps was spent on; neighbours in which nothing happened but work are one piece."""
    pace = view.paces.get(view.sizes[0].gpus)
    slow_from_ms = (math.inf if pace is None else pace.slow_from_ms) if view.is_plain else -1.0
    worked_from_ms = worked_to_ms = leg.marks[0].at_ms
    for before, mark, took_ms in spaced(leg, view):
        worked = took_ms == mark.at_ms - before.at_ms
        if worked and took_ms / (mark.step - before.step) <= slow_from_ms:
            worked_to_ms = mark.at_ms
            continue
        if worked_from_ms < worked_to_ms:
            yield Piece("productive", worked_from_ms, worked_to_ms)
        yield from _gap(before, mark, view)
        worked_from_ms = worked_to_ms = mark.at_ms
    if worked_from_ms < worked_to_ms:
        yield Piece("productive", worked_from_ms, worked_to_ms)


def _gap(before: Step, mark: Step, view: View) -> Iterator[Piece]:
    spans = view.free(before.at_ms, mark.at_ms)
    total_ms, steps = length(spans), mark.step - before.step
    size, stalled_ms = view.resized(before.at_ms, mark.at_ms), view.stall(before.at_ms, mark.at_ms)
    if stalled_ms is not None:
        ahead_ms = view.free_ms(before.at_ms, stalled_ms)
        lost_ms = _beyond(total_ms, steps, view, mark)
        lost_ms = total_ms - ahead_ms if lost_ms is None else lost_ms
        ahead_ms = min(ahead_ms, total_ms - lost_ms)
        yield from lay(spans, [("productive", "", ahead_ms), ("stalled", "stalled", lost_ms), ("productive", "", 0)])
    elif size is not None:
        lost_ms = _beyond(total_ms, steps, view, mark) or 0
        yield from lay(spans, [("recovery", loss_name(size), lost_ms), ("productive", "", 0)])
    else:
        slow_ms = _slow_ms(total_ms, steps, view, mark)
        if not slow_ms:
            yield from (Piece("productive", start, stop) for start, stop in spans)
            return
        yield from lay(spans, [("productive", "", total_ms - slow_ms), ("slow", "slow", 0)])


def _beyond(total_ms: int, steps: int, view: View, mark: Step) -> int | None:
    """Return what a disturbed gap took beyond its steps: as they say themselves, else as normal; None: not known."""
    pace = view.paces.get(view.gpus_at(mark.at_ms))
    if mark.took_ms > 0 and (pace is None or mark.took_ms <= pace.slow_from_ms):
        work_ms = steps * mark.took_ms
    elif pace is not None:
        work_ms = round(steps * pace.median_ms)
    else:
        return None
    return max(0, total_ms - work_ms) if total_ms > work_ms * (1 + SLOW_SHARE) else 0


def _tail(leg: Leg, view: View, ledger: Ledger) -> Iterator[Piece]:
    """From the last step on: a step that was cut off, and a stall once that step is long overdue or said to hang."""
    last, final = leg.marks[-1], leg is view.legs[-1]
    spans = view.free(last.at_ms, leg.stop_ms)
    total_ms = length(spans)
    work_ms = total_ms
    since_ms = view.stall(last.at_ms, leg.stop_ms)
    interval_ms = interval_of(leg, view)
    if since_ms is not None:
        work_ms = view.free_ms(last.at_ms, since_ms)
    elif final and ledger.outcome == "succeeded":
        pass
    elif interval_ms is not None and total_ms > stall_after_ms(interval_ms):
        work_ms = min(total_ms, round(interval_ms))
    charge = "end" if final and ledger.closed else "stalled"
    yield from lay(spans, [("productive", "", work_ms), ("stalled", charge, 0)])


def stall_after_ms(interval_ms: float) -> float:
    """Return after how long without a step a job is taken to hang whose records normally come in this interval."""
    return max(STALL_INTERVALS * interval_ms, STALL_AT_LEAST_MS)


def interval_of(leg: Leg, view: View) -> float | None:
    """Return how long it normally is between two records of the leg; None: nothing is known."""
    last = leg.marks[-1]
    pace = view.paces.get(view.gpus_at(last.at_ms))
    if pace is not None:
        return pace.interval_ms
    if len(leg.marks) > 1:
        before = leg.marks[-2]
        return max(view.free_ms(before.at_ms, last.at_ms), last.took_ms)
    return first_record_ms(leg) if last.took_ms > 0 else None
