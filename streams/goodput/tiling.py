"""What an attempt's time was spent on: from the evidence to intervals that never overlap and leave nothing out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from msgspec.structs import replace

from faultlens.events import Cause
from streams.goodput.laying import lay_leg
from streams.goodput.legs import Leg, View, keeps_of, view_of
from streams.goodput.model import LOSING, Interval, Keep, Ledger, Pace, Piece


def intervals(ledger: Ledger, now_ms: int | None = None) -> tuple[Interval, ...]:
    """Return what the attempt's time was spent on, from its allocation to its end; of an open one to `now_ms`.

    Without `now_ms` an open attempt's intervals end where the last flush ended. Of a very long attempt the oldest
    part is only kept as sums (`totals`), and the intervals begin after it.
    """
    until_ms = until(ledger, now_ms)
    view = view_of(ledger, until_ms)
    pieces = [*_clipped(ledger.blocks, until_ms), *live(ledger, view)]
    for start, stop, charge in _losses(ledger, view, until_ms):
        pieces = list(lost(pieces, start, stop, charge))
    return tuple(Interval(p.category, p.from_ms, p.to_ms, p.gpus, _cause(p, ledger)) for p in merged(pieces))


def until(ledger: Ledger, now_ms: int | None = None) -> int:
    """Return up to when the ledger speaks: an ended attempt's end, else `now_ms`, never going back."""
    if ledger.end_ms is not None:
        return max(ledger.end_ms, _oldest(ledger))
    written = ledger.written[-1].to_ms if ledger.written else ledger.from_ms
    return max(ledger.settled_ms, written, now_ms or 0)


def _oldest(ledger: Ledger) -> int:
    return ledger.blocks[0].from_ms if ledger.blocks else ledger.settled_ms


def totals(ledger: Ledger, now_ms: int | None = None) -> dict[str, int]:
    """Return GPU-milliseconds by category over the whole attempt."""
    sums = dict(ledger.sums)
    for interval in intervals(ledger, now_ms):
        sums[interval.category] = sums.get(interval.category, 0) + interval.gpu_ms
    return sums


def live(ledger: Ledger, view: View) -> Iterator[Piece]:
    """Return pieces for the time after `settled_ms`, with their GPUs, before anything is known to be lost."""
    laid = [piece for leg in view.legs for piece in lay_leg(leg, view, ledger)]
    laid += [_charged(hole, view) for hole in view.holes]
    for piece in sorted(laid, key=lambda piece: piece.from_ms):
        yield from _sized(piece, view)


def _charged(hole: Piece, view: View) -> Piece:
    """A restore is charged like the recovery it belongs to; a save is what carefulness costs."""
    if hole.category != "checkpoint_restore":
        return hole
    leg = next(leg for leg in reversed(view.legs) if leg.start_ms <= hole.from_ms)
    return replace(hole, charge="recovery" if leg.first else view.loss(leg))


def _sized(piece: Piece, view: View) -> Iterator[Piece]:
    """Cut a piece where the number of GPUs changes."""
    cursor = piece.from_ms
    for size in view.sizes[1:]:
        if cursor < size.at_ms < piece.to_ms:
            yield replace(piece, from_ms=cursor, to_ms=size.at_ms, gpus=view.gpus_at(cursor))
            cursor = size.at_ms
    if cursor < piece.to_ms:
        yield replace(piece, from_ms=cursor, gpus=view.gpus_at(cursor))


def _clipped(blocks: Iterable[Piece], until_ms: int) -> Iterator[Piece]:
    for block in blocks:
        if block.from_ms < until_ms:
            yield block if block.to_ms <= until_ms else replace(block, to_ms=until_ms)


def merged(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Join neighbours that say the same."""
    current: Piece | None = None
    for piece in pieces:
        if current is None:
            current = piece
        elif _same(current, piece):
            current = replace(current, to_ms=piece.to_ms)
        else:
            yield current
            current = piece
    if current is not None:
        yield current


def _same(one: Piece, other: Piece) -> bool:
    return (
        one.to_ms == other.from_ms
        and one.category == other.category
        and one.gpus == other.gpus
        and one.charge == other.charge
    )


# --- what was done, then lost ----------------------------------------------------------------------------


def _losses(ledger: Ledger, view: View, until_ms: int) -> Iterator[tuple[int, int, str]]:
    """Return the stretches of time in which work was done that is lost, and what they are charged to."""
    keeps = keeps_of(ledger, view.legs)
    yield from restarts(view, keeps)
    redone = ledger.next_restore is not None and ledger.outcome == "cancelled"
    if ledger.keeps_work or not (redone or ledger.outcome in LOSING):
        return
    if ledger.next_restore is not None:
        yield kept_until(ledger.next_restore, until_ms + 1, keeps, view.legs), until_ms, "end"
    else:
        yield max((keep.at_ms for keep in keeps if keep.at_ms <= until_ms), default=0), until_ms, "end"


def restarts(view: View, keeps: Iterable[Keep]) -> Iterator[tuple[int, int, str]]:
    """Return what restarts within the attempt lost: from the step they went back to up to the restart."""
    for before, leg in pairwise(view.legs):
        if not leg.first:
            step = before.marks[-1].step if before.marks else leg.base_step
            restored = step if leg.restored is None else leg.restored
            yield kept_until(restored, leg.start_ms, keeps, view.legs), leg.start_ms, view.loss(leg)


def kept_until(step: int, before_ms: int, keeps: Iterable[Keep], legs: Iterable[Leg]) -> int:
    """Return up to when work was kept by a job that went back to `step` at `before_ms`; 0: none of it."""
    known = [keep for keep in keeps if keep.at_ms < before_ms]
    exact = [keep.at_ms for keep in known if keep.step == step]
    if exact:
        return exact[-1]
    done = [mark.at_ms for leg in legs for mark in leg.steps if mark.step <= step and mark.at_ms <= before_ms]
    return max([*(keep.at_ms for keep in known if keep.step <= step), *done], default=0)


def lost(pieces: Iterable[Piece], start_ms: int, stop_ms: int, charge: str) -> Iterator[Piece]:
    """Turn what is productive within [start_ms, stop_ms) into lost work."""
    for piece in pieces:
        a, b = max(piece.from_ms, start_ms), min(piece.to_ms, stop_ms)
        if piece.category != "productive" or a >= b:
            yield piece
            continue
        if piece.from_ms < a:
            yield replace(piece, to_ms=a)
        yield Piece("lost_work", a, b, piece.gpus, charge)
        if b < piece.to_ms:
            yield replace(piece, from_ms=b)


def _cause(piece: Piece, ledger: Ledger) -> Cause | None:
    if not piece.charge:
        return None
    if piece.charge == "end":
        other = "stalled" if piece.category == "stalled" else "recovery"
        return ledger.cause or (None if piece.category == "lost_work" else ledger.charges.get(other))
    return ledger.charges.get(piece.charge)


# --- what the ledger knows of checkpoints and pace ---------------------------------------------------------


def last_keep(ledger: Ledger) -> Keep | None:
    """Return the newest good checkpoint that the attempt saved or restored."""
    view = view_of(ledger, until(ledger))
    return max(keeps_of(ledger, view.legs), key=lambda keep: keep.at_ms, default=None)


def pace_now(ledger: Ledger) -> Pace | None:
    """Return the normal pace on as many GPUs as the attempt has now; None before it is known."""
    view = view_of(ledger, latest_ms(ledger))
    return view.paces.get(view.sizes[-1].gpus)


def latest_ms(ledger: Ledger) -> int:
    """Return the time of the newest evidence."""
    steps = ledger.steps[-1].at_ms if ledger.steps else 0
    saves = max((save.to_ms for save in ledger.saves), default=0)
    sizes = ledger.sizes[-1].at_ms if ledger.sizes else 0
    return max(ledger.settled_ms, ledger.started_ms or 0, ledger.end_ms or 0, steps, saves, sizes)
