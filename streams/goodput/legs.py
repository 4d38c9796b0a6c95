"""An attempt's evidence in order of time: stretches of steps between restores, and the time that saves take."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import Final

from streams.goodput.model import MIN_SAMPLES, Keep, Ledger, Pace, Piece, Save, Size, Step, order

# `took_ms` of a step that is only known because a checkpoint of it was saved.
KNOWN_BY_SAVE = -1

Spaced = tuple[Step, Step, int]


@dataclass
class Leg:
    """Steps in a row from `start_ms` to `stop_ms`: from the allocation or a restart to the next restart or the end.

    No step of it began before `floor_ms`; the first one follows `base_step`. `first`: no step was done before it.
    `anchored`: its first mark lies before what is looked at, where it is put at the beginning; `anchor_ms` is when that
    step was complete. `restored` is the step that the leg goes back to, if it does, and `broke_ms` when the last step
    before that was complete.
    """

    start_ms: int
    stop_ms: int
    floor_ms: int
    base_step: int
    first: bool
    anchored: bool = False
    restored: int | None = None
    broke_ms: int = 0
    anchor_ms: int = 0
    marks: list[Step] = field(default_factory=list)
    spaced: list[Spaced] | None = None

    @property
    def steps(self) -> list[Step]:
        """Its marks at the times when their steps were complete."""
        if not self.anchored:
            return self.marks
        first = self.marks[0]
        return [Step(self.anchor_ms, first.step, first.took_ms), *self.marks[1:]]


@dataclass(frozen=True)
class View:
    """What is known of a stretch of an attempt's time, arranged for laying it out.

    `ends_ms` are the ends of `holes`; `known` is the pace from before, which samples of this stretch replace.
    """

    legs: list[Leg]
    holes: list[Piece]
    ends_ms: list[int]
    sizes: list[Size]
    stalls_ms: tuple[int, ...]
    known: Pace | None

    @cached_property
    def paces(self) -> dict[int, Pace]:
        """The pace for each number of GPUs that it is known for."""
        known = {} if self.known is None else {self.known.gpus: self.known}
        return {**known, **_paces(self)}

    @property
    def is_plain(self) -> bool:
        """Whether the attempt kept its size and nobody said that it was stuck."""
        return len(self.sizes) == 1 and not self.stalls_ms

    def free(self, from_ms: int, to_ms: int) -> list[tuple[int, int]]:
        """Return the parts of [from_ms, to_ms) in which nothing was saved or restored."""
        spans, cursor = [], from_ms
        for hole in self.holes[bisect_right(self.ends_ms, from_ms) :]:
            if hole.from_ms >= to_ms:
                break
            if cursor < hole.from_ms:
                spans.append((cursor, hole.from_ms))
            cursor = hole.to_ms
        if cursor < to_ms:
            spans.append((cursor, to_ms))
        return spans

    def free_ms(self, from_ms: int, to_ms: int) -> int:
        """Return how long nothing was saved or restored in [from_ms, to_ms)."""
        index = bisect_right(self.ends_ms, from_ms)
        if index == len(self.holes) or self.holes[index].from_ms >= to_ms:
            return max(0, to_ms - from_ms)
        return length(self.free(from_ms, to_ms))

    def gpus_at(self, at_ms: int) -> int:
        """Return how many GPUs the attempt held at a time."""
        if len(self.sizes) == 1:
            return self.sizes[0].gpus
        index = bisect_right(self.sizes, at_ms, key=lambda size: size.at_ms) - 1
        return self.sizes[max(0, index)].gpus

    def resized(self, from_ms: int, to_ms: int) -> Size | None:
        """Return the first change of size in (from_ms, to_ms]; one with a loss before others."""
        if len(self.sizes) == 1:
            return None
        within = [size for size in self.sizes[1:] if from_ms < size.at_ms <= to_ms]
        return next((size for size in within if size.loss), within[0] if within else None)

    def loss(self, leg: Leg) -> str:
        """Return the name of the loss that made the job start the leg anew; empty: of none that is known."""
        size = self.resized(leg.broke_ms, leg.marks[0].at_ms if leg.marks else leg.stop_ms)
        return loss_name(size)

    def stall(self, from_ms: int, to_ms: int) -> int | None:
        """Return the first reported stall that began in [from_ms, to_ms)."""
        if not self.stalls_ms:
            return None
        return next((since for since in self.stalls_ms if from_ms <= since < to_ms), None)


def loss_name(size: Size | None) -> str:
    """Return what the time around a change of size is charged to; empty: to nobody."""
    return f"loss {size.loss}" if size is not None and size.loss else ""


def length(spans: Iterable[tuple[int, int]]) -> int:
    """Return the milliseconds of all spans together."""
    return sum(stop - start for start, stop in spans)


# What led to an end is asked half a dozen times in one step, always of the same ledger. That never changes, and its
# contents would take longer to compare than to arrange: which object it is tells enough.
_RECENT: Final[deque[tuple[Ledger, int, View]]] = deque(maxlen=4)


def view_of(ledger: Ledger, until_ms: int) -> View:
    """Return the evidence after `settled_ms` and before `until_ms`, arranged."""
    for known, known_until_ms, view in _RECENT:
        if known is ledger and known_until_ms == until_ms:
            return view
    view = _arranged(ledger, until_ms)
    _RECENT.append((ledger, until_ms, view))
    return view


def _arranged(ledger: Ledger, until_ms: int) -> View:
    holes = holes_of(ledger.saves, ledger.settled_ms, until_ms)
    return View(
        legs_of(ledger, until_ms),
        holes,
        [hole.to_ms for hole in holes],
        _sizes(ledger, until_ms),
        ledger.stalls_ms,
        ledger.pace,
    )


def _sizes(ledger: Ledger, until_ms: int) -> list[Size]:
    """Return the sizes with the one at `settled_ms` first."""
    start = ledger.settled_ms
    before = [size.gpus for size in ledger.sizes if size.at_ms <= start]
    base = Size(start, before[-1] if before else ledger.gpus)
    return [base, *(size for size in ledger.sizes if start < size.at_ms < until_ms)]


def holes_of(saves: Iterable[Save], start_ms: int, stop_ms: int) -> list[Piece]:
    """Return the time in which saves and restores kept steps from being done; where they overlap the earlier counts."""
    holes: list[Piece] = []
    cursor = start_ms
    for save in sorted(saves, key=lambda save: (save.from_ms, *order(save))):
        from_ms, to_ms = max(cursor, save.from_ms), min(stop_ms, save.to_ms)
        if save.stops_work and from_ms < to_ms:
            holes.append(Piece("checkpoint_restore" if save.restored else "checkpoint_save", from_ms, to_ms))
            cursor = to_ms
    return holes


def legs_of(ledger: Ledger, until_ms: int) -> list[Leg]:
    """Return the legs between `settled_ms` and `until_ms`: at least one."""
    walk = _Walk(ledger, until_ms)
    saves = _saves_told(ledger, until_ms)
    following = next(saves, None)
    for step in _steps_told(ledger, until_ms):
        while following is not None and following[0] < step.at_ms:
            walk.take_save(*following)
            following = next(saves, None)
        walk.take_step(step)
    while following is not None:
        walk.take_save(*following)
        following = next(saves, None)
    return walk.legs


def _steps_told(ledger: Ledger, until_ms: int) -> Sequence[Step]:
    """Return the steps in order of time, none before the settled time; of the same time the lower first."""
    start, steps = ledger.settled_ms, ledger.steps
    count = bisect_right(steps, until_ms, key=_at_ms)
    if not steps or steps[0].at_ms > start:
        return steps[:count]
    early = bisect_right(steps, start, 0, count, key=_at_ms)
    before = sorted((Step(start, step.step, step.took_ms) for step in steps[:early]), key=_number)
    return (*before, *steps[early:count])


def _at_ms(step: Step) -> int:
    return step.at_ms


def _number(step: Step) -> int:
    return step.step


def _saves_told(ledger: Ledger, until_ms: int) -> Iterator[tuple[int, Save]]:
    """Yield the saves as far as they tell of steps or restarts, in order of time; of the same time a restore last."""
    start = ledger.settled_ms
    # What began before the settled time is told already, and only goes on taking time.
    settled = start > ledger.from_ms
    told = [
        (max(start, save.from_ms), save.restored, save.step, number)
        for number, save in enumerate(ledger.saves)
        if save.from_ms < until_ms and not (settled and save.from_ms < start)
    ]
    return ((at_ms, ledger.saves[number]) for at_ms, _, _, number in sorted(told))


class _Walk:
    """Goes through an attempt's evidence in order of time and begins a new leg where the job went back."""

    def __init__(self, ledger: Ledger, until_ms: int) -> None:
        self._ledger = ledger
        start = ledger.settled_ms
        restoring = [save.to_ms for save in ledger.saves if save.restored and save.from_ms < start]
        floor = max(start, ledger.started_ms or start, *restoring)
        leg = Leg(start, until_ms, floor, ledger.base_step, first=not ledger.begun, broke_ms=start)
        if ledger.anchor is not None:
            leg.marks, leg.anchored = [Step(start, ledger.anchor.step, ledger.anchor.took_ms)], True
            leg.anchor_ms = ledger.anchor.at_ms
        self.legs = [leg]
        self._marks = leg.marks
        self._reported = leg.marks[-1].step if leg.marks else None

    def take_step(self, step: Step) -> None:
        """Take a step at the time when it was complete: a mark, unless it repeats one, or the first of a new leg."""
        if self._reported is not None and step.step < self._reported:
            saved = _saved_below(self._ledger, step.step, step.at_ms)
            self._begin(_restarted(self.legs, step, step.at_ms, saved))
        elif not self._marks or step.step > self._marks[-1].step:
            self._marks.append(step)
        self._reported = step.step

    def take_save(self, at_ms: int, save: Save) -> None:
        """Take a save, which tells of a step that nobody reported, or a restore."""
        if save.restored:
            self._begin(_restored(self.legs, save, at_ms))
            self._reported = None
        elif not self._marks or save.step > self._marks[-1].step:
            self._marks.append(Step(at_ms, save.step, KNOWN_BY_SAVE))

    def _begin(self, leg: Leg) -> None:
        self.legs.append(leg)
        self._marks = leg.marks


def _restored(legs: list[Leg], save: Save, at_ms: int) -> Leg:
    """Return the leg that a restore begins; the one before ends there."""
    before = legs[-1]
    started = not before.first or bool(before.marks)
    floor = max(at_ms, save.to_ms) if started else max(before.floor_ms, save.to_ms)
    leg = Leg(at_ms, before.stop_ms, floor, save.step if save.ok else before.base_step, first=not started)
    leg.restored = save.step if save.ok and started else None
    leg.broke_ms = before.marks[-1].at_ms if before.marks else before.broke_ms
    before.stop_ms = at_ms
    return leg


def _saved_below(ledger: Ledger, step: int, before_ms: int) -> int:
    """Return the newest good checkpoint below a step, which a job that goes on with the step must have read."""
    saved = [(save.to_ms, save.step) for save in ledger.saves if save.ok and save.to_ms <= before_ms]
    saved += [(keep.at_ms, keep.step) for keep in ledger.keeps]
    return max(((at_ms, saved_step) for at_ms, saved_step in saved if saved_step < step), default=(0, step - 1))[1]


def _restarted(legs: list[Leg], step: Step, at_ms: int, restored: int) -> Leg:
    """Return the leg of a job that went back to an earlier step without reporting a restore."""
    before = legs[-1]
    begin_ms = before.marks[-1].at_ms
    leg = Leg(begin_ms, before.stop_ms, begin_ms, restored, first=False, restored=restored, broke_ms=begin_ms)
    leg.marks.append(Step(at_ms, step.step, step.took_ms))
    before.stop_ms = begin_ms
    return leg


def gaps(leg: Leg) -> Iterator[tuple[Step, Step]]:
    """Return each pair of neighbouring marks of a leg."""
    return pairwise(leg.marks)


def spaced(leg: Leg, view: View) -> list[Spaced]:
    """Return each pair of neighbouring marks of a leg, and how long nothing was saved or restored between them."""
    if leg.spaced is None:
        leg.spaced = list(_spaced(leg, view))
    return leg.spaced


def _spaced(leg: Leg, view: View) -> Iterator[Spaced]:
    holes, index, count = view.holes, 0, len(view.holes)
    for before, mark in gaps(leg):
        while index < count and holes[index].to_ms <= before.at_ms:
            index += 1
        undisturbed = index == count or holes[index].from_ms >= mark.at_ms
        yield before, mark, mark.at_ms - before.at_ms if undisturbed else view.free_ms(before.at_ms, mark.at_ms)


def _paces(view: View) -> dict[int, Pace]:
    """Return the pace for each number of GPUs that has samples enough; disturbed gaps are left out."""
    samples: dict[int, list[tuple[float, int]]] = {}
    for leg in view.legs:
        first = leg.marks[0] if leg.marks and not leg.anchored else None
        if first is not None and first.took_ms > 0:
            samples.setdefault(view.gpus_at(first.at_ms), []).append((first.took_ms, first_record_ms(leg)))
        if view.is_plain:
            own = [(took / (mark.step - before.step), took) for before, mark, took in spaced(leg, view) if took]
            samples.setdefault(view.sizes[0].gpus, []).extend(own)
            continue
        for before, mark in gaps(leg):
            if view.resized(before.at_ms, mark.at_ms) or view.stall(before.at_ms, mark.at_ms) is not None:
                continue
            free_ms = view.free_ms(before.at_ms, mark.at_ms)
            if not free_ms:
                continue
            each = (free_ms / (mark.step - before.step), free_ms)
            samples.setdefault(view.gpus_at(mark.at_ms), []).append(each)
    return {gpus: _pace(gpus, own) for gpus, own in samples.items() if len(own) >= MIN_SAMPLES}


def first_record_ms(leg: Leg) -> int:
    """Return how long the steps of a leg's first record took: perhaps many steps, but not more than time allows."""
    first = leg.marks[0]
    steps = max(1, first.step - leg.base_step)
    return max(first.took_ms, min(first.took_ms * steps, first.at_ms - leg.floor_ms))


def _pace(gpus: int, samples: Sequence[tuple[float, int]]) -> Pace:
    middle = median(each for each, _ in samples)
    spread = median(abs(each - middle) for each, _ in samples)
    return Pace(gpus, middle, spread, median(free for _, free in samples))


def keeps_of(ledger: Ledger, legs: Iterable[Leg]) -> list[Keep]:
    """Return up to when work is in a good checkpoint, for every good one that is known, in order of time."""
    marks = [step for leg in legs for step in leg.steps]
    keeps = set(ledger.keeps)
    for save in ledger.saves:
        if save.ok:
            keeps.add(Keep(_kept_ms(save, marks), save.step))
    return sorted(keeps, key=lambda keep: (keep.at_ms, keep.step))


def _kept_ms(save: Save, marks: Iterable[Step]) -> int:
    """A save beside the work holds what was done when its step ended, which may be before it began."""
    if save.restored:
        return save.to_ms
    if save.blocking:
        return save.from_ms
    exact = [mark.at_ms for mark in marks if mark.step == save.step and mark.at_ms <= save.to_ms]
    return exact[-1] if exact else save.from_ms
