"""Keeping a ledger small: what is old enough to be sure of becomes pieces of time, and old pieces become sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from msgspec.structs import replace

from streams.goodput.legs import View, keeps_of, view_of
from streams.goodput.model import (
    MAX_BLOCKS,
    MAX_KEEPS,
    MAX_SAVES,
    MAX_SIZES,
    MAX_STEPS,
    Keep,
    Ledger,
    Piece,
    Step,
)
from streams.goodput.tiling import live, lost, merged, pace_now, restarts


def bounded(ledger: Ledger) -> Ledger:
    """Return the ledger with its older half settled where it keeps more than it may."""
    if len(ledger.steps) > MAX_STEPS:
        return settled(ledger, ledger.steps[len(ledger.steps) // 2].at_ms)
    if len(ledger.saves) > MAX_SAVES:
        return settled(ledger, _step_before(ledger, ledger.saves[len(ledger.saves) // 2].to_ms))
    if len(ledger.sizes) > MAX_SIZES:
        return settled(ledger, _step_before(ledger, ledger.sizes[len(ledger.sizes) // 2].at_ms))
    return ledger


def rested(ledger: Ledger) -> Ledger:
    """Return an ended attempt's ledger with all its evidence settled; it can still be reopened, or end otherwise."""
    return ledger if ledger.end_ms is None else settled(ledger, ledger.end_ms)


def _step_before(ledger: Ledger, at_ms: int) -> int:
    """Return the end of a step not after `at_ms`, so that no step is cut in two; without one the time itself."""
    return max((step.at_ms for step in ledger.steps if ledger.settled_ms < step.at_ms <= at_ms), default=at_ms)


def settled(ledger: Ledger, horizon_ms: int) -> Ledger:
    """Return the ledger with everything before `horizon_ms` as pieces of time."""
    if horizon_ms <= ledger.settled_ms:
        return ledger
    view = view_of(ledger, horizon_ms)
    keeps = keeps_of(ledger, view.legs)
    pieces: list[Piece] = [*ledger.blocks, *live(ledger, view)]
    for start, stop, charge in restarts(view, keeps):
        pieces = list(lost(pieces, start, stop, charge))
    kept = tuple(keep for keep in keeps if keep.at_ms <= horizon_ms)[-MAX_KEEPS:]
    return replace(
        ledger,
        settled_ms=horizon_ms,
        gpus=view.gpus_at(horizon_ms),
        pace=pace_now(ledger) or ledger.pace,
        anchor=_anchor(view),
        begun=ledger.begun or any(leg.marks for leg in view.legs),
        base_step=view.legs[-1].base_step,
        steps=tuple(step for step in ledger.steps if step.at_ms > horizon_ms),
        saves=tuple(save for save in ledger.saves if save.to_ms > horizon_ms),
        sizes=tuple(size for size in ledger.sizes if size.at_ms >= horizon_ms),
        stalls_ms=tuple(since for since in ledger.stalls_ms if since >= horizon_ms),
        keeps=kept,
        blocks=folded(tuple(merged(pieces)), kept),
    )


def _anchor(view: View) -> Step | None:
    steps = view.legs[-1].steps
    return Step(steps[-1].at_ms, steps[-1].step, max(0, steps[-1].took_ms)) if steps else None


def trimmed(ledger: Ledger) -> Ledger:
    """Return the ledger with blocks that were written, and that no restore is expected to reach, only as sums."""
    oldest_ms = ledger.keeps[0].at_ms if len(ledger.keeps) == MAX_KEEPS else 0
    if len(ledger.blocks) > 2 * MAX_BLOCKS:
        oldest_ms = max(oldest_ms, ledger.blocks[-2 * MAX_BLOCKS].from_ms)
    blocks = tuple(block for block in ledger.blocks if block.to_ms > oldest_ms)
    if len(blocks) == len(ledger.blocks):
        return ledger
    from_ms, sums, written = blocks[0].from_ms if blocks else ledger.settled_ms, dict(ledger.sums), []
    for interval in ledger.written:
        if interval.from_ms < from_ms:
            gone_ms = min(interval.to_ms, from_ms) - interval.from_ms
            sums[interval.category] = sums.get(interval.category, 0) + gone_ms * interval.gpus
        if interval.to_ms > from_ms:
            written.append(replace(interval, from_ms=max(from_ms, interval.from_ms)))
    return replace(ledger, blocks=blocks, sums=sums, written=tuple(written))


def folded(blocks: tuple[Piece, ...], keeps: Iterable[Keep]) -> tuple[Piece, ...]:
    """Return at most about MAX_BLOCKS blocks: of the older ones those of one size between checkpoints are sorted by
    what they are, so that sums stay exact and only the order within such a stretch is given up.
    """
    if len(blocks) <= MAX_BLOCKS:
        return blocks
    borders = sorted(keep.at_ms for keep in keeps)
    middle = len(blocks) // 2
    older = [piece for block in blocks[:middle] for piece in _cut(block, borders)]
    return tuple(merged([*_sorted_within(older, borders), *blocks[middle:]]))


def _cut(block: Piece, borders: Iterable[int]) -> Iterator[Piece]:
    for border in borders:
        if block.from_ms < border < block.to_ms:
            yield replace(block, to_ms=border)
            block = replace(block, from_ms=border)
    yield block


def _sorted_within(pieces: Iterable[Piece], borders: list[int]) -> Iterator[Piece]:
    def stretch(piece: Piece) -> tuple[int, int]:
        return sum(border <= piece.from_ms for border in borders), piece.gpus

    for _, group in groupby(pieces, key=stretch):
        own = list(group)
        cursor = own[0].from_ms
        for piece in sorted(own, key=lambda piece: (piece.category, piece.charge)):
            yield replace(piece, from_ms=cursor, to_ms=cursor + piece.to_ms - piece.from_ms)
            cursor += piece.to_ms - piece.from_ms
