"""Laws of the ledger: every GPU-millisecond once, whatever the order, and nothing grows without limit."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from faultlens.clock import HOUR_MS, MINUTE_MS, SECOND_MS
from faultlens.events import Cause, Outcome
from streams.goodput import (
    OVERHEAD,
    Change,
    Interval,
    Ledger,
    charge,
    charge_loss,
    close,
    flush,
    intervals,
    needs_flush,
    on_checkpoint,
    on_next_restore,
    on_progress,
    on_resized,
    on_stalled,
    on_started,
    open_ledger,
    reopen,
    rested,
    totals,
)

GPUS = 8
Told = Callable[[Ledger], Ledger]
CAUSES = (Cause("hardware", "gpu.off_bus"), Cause("user", "app.exception"), None)
OUTCOMES: tuple[Outcome, ...] = ("succeeded", "failed", "timed_out", "cancelled", "preempted", "never_started")

times = st.integers(-60, 7_200).map(lambda s: s * SECOND_MS + s % 7)
steps = st.integers(0, 60)
causes = st.sampled_from(CAUSES)


def _progress(at_ms: int, step: int, took_s: float | None) -> Told:
    return lambda ledger: on_progress(ledger, at_ms, step, took_s)


def _checkpoint(at_ms: int, step: int, duration_s: float, flags: tuple[bool, bool, bool]) -> Told:
    ok, restored, blocking = flags
    return lambda ledger: on_checkpoint(ledger, at_ms, step, duration_s, ok=ok, restored=restored, blocking=blocking)


def _resize(entry: tuple[int, int, int]) -> Told:
    at_ms, gpus, loss = entry
    return lambda ledger: on_resized(ledger, at_ms, gpus, loss=loss)


evidence = st.one_of(
    times.map(lambda at_ms: partial(on_started, at_ms=at_ms)),
    st.builds(_progress, times, steps, st.none() | st.floats(0, 400)),
    st.builds(_progress, times, steps, st.none() | st.floats(0, 400)),
    st.builds(_checkpoint, times, steps, st.floats(0, 900), st.tuples(st.booleans(), st.booleans(), st.booleans())),
    times.map(lambda at_ms: partial(on_stalled, since_ms=at_ms)),
)
judgements = st.one_of(
    st.builds(lambda to, cause: partial(charge, to=to, cause=cause), st.sampled_from(["recovery", "slow"]), causes),
    causes.map(lambda cause: partial(charge_loss, loss=1, cause=cause)),
    steps.map(lambda step: partial(on_next_restore, step=step)),
    st.builds(
        lambda at_ms, outcome, cause: partial(close, at_ms=at_ms, outcome=outcome, cause=cause),
        times,
        st.sampled_from(OUTCOMES),
        causes,
    ),
    st.just(reopen),
)
resizes = st.tuples(times.filter(lambda at_ms: at_ms > 0), st.integers(0, 32), st.integers(0, 2))
sizes = st.lists(resizes, max_size=4, unique_by=lambda size: size[0])


def allocated(changes: Sequence[tuple[int, int, int]], end_ms: int) -> int:
    """Return the GPU-milliseconds from 0 to the end, by definition."""
    total, cursor, gpus = 0, 0, GPUS
    for at_ms, after, _ in sorted(changes):
        total += gpus * (min(max(at_ms, 0), end_ms) - cursor)
        cursor, gpus = min(max(at_ms, 0), end_ms), after
    return total + gpus * (end_ms - cursor)


def overlaid(records: Sequence[Interval]) -> Counter[str]:
    """Return GPU-milliseconds by category when a later record replaces what earlier ones said of the same time."""
    spans: list[tuple[int, int, int, str]] = []
    for record in records:
        kept = []
        for start, stop, gpus, category in spans:
            if start < min(stop, record.from_ms):
                kept.append((start, min(stop, record.from_ms), gpus, category))
            if max(start, record.to_ms) < stop:
                kept.append((max(start, record.to_ms), stop, gpus, category))
        spans = [*kept, (record.from_ms, record.to_ms, record.gpus, record.category)]
    sums: Counter[str] = Counter()
    for start, stop, gpus, category in spans:
        sums[category] += gpus * (stop - start)
    return +sums


def split(tiles: Sequence[Interval]) -> Counter[str]:
    """Return good and bad by class, as the objectives count them."""
    sums: Counter[str] = Counter()
    for tile in tiles:
        cause = OVERHEAD if tile.cause is None else tile.cause.cause_class
        sums["good" if tile.category == "productive" else cause] += tile.gpu_ms
    return +sums


def added(changes: Sequence[Change]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for change in changes:
        sums["good"] += change.good
        for name, amount in change.by_cause.items():
            sums[name] += amount
    assert all(amount >= 0 for amount in sums.values())
    return +sums


@given(
    st.lists(evidence | judgements, max_size=40),
    sizes,
    times.filter(lambda at_ms: at_ms >= 0),
    st.sampled_from(OUTCOMES),
    st.integers(1, 2),
)
def test_intervals_add_up_to_the_allocated_time_exactly(
    told: list[Told], changes: list[tuple[int, int, int]], end_ms: int, outcome: Outcome, attempt: int
) -> None:
    ledger = open_ledger(attempt, 0, GPUS)
    for tell in [*map(_resize, changes), *told]:
        ledger = tell(ledger)
    tiles = intervals(close(ledger, end_ms, outcome, CAUSES[0]))
    assert sum(tile.gpu_ms for tile in tiles) == allocated(changes, end_ms)
    borders = [0, *(tile.to_ms for tile in tiles)]
    assert [tile.from_ms for tile in tiles] == borders[:-1]
    assert borders[-1] == end_ms
    assert all(tile.from_ms < tile.to_ms for tile in tiles)


@given(st.lists(evidence | judgements | resizes.map(_resize), max_size=30), st.randoms())
def test_flushed_records_and_changes_say_the_same_as_the_ledger(told: list[Told], randomness: random.Random) -> None:
    ledger, records, changes = open_ledger(1, 0, GPUS), list[Interval](), list[Change]()
    for tell in told:
        ledger = tell(ledger)
        if randomness.random() < 0.5:
            flushed = flush(ledger, randomness.randrange(7_200) * SECOND_MS)
            assert all(interval.from_ms < interval.to_ms for interval in flushed.records)
            ledger, records, changes = flushed.ledger, [*records, *flushed.records], [*changes, *flushed.changes]
    flushed = flush(close(ledger, 3_600 * SECOND_MS, "failed", CAUSES[0]), 0)
    ledger, records, changes = flushed.ledger, [*records, *flushed.records], [*changes, *flushed.changes]
    assert overlaid(records) == +Counter(totals(ledger))
    assert added(changes) == split(intervals(ledger))


@given(st.lists(evidence, max_size=25), st.randoms())
def test_neither_order_nor_repetition_of_the_evidence_matters(told: list[Told], randomness: random.Random) -> None:
    shuffled = [*told, *randomness.choices(told, k=len(told))] if told else []
    randomness.shuffle(shuffled)
    once = again = open_ledger(1, 0, GPUS)
    for tell in told:
        once = tell(once)
    for tell in shuffled:
        again = tell(again)
    assert intervals(once, 2 * HOUR_MS) == intervals(again, 2 * HOUR_MS)


runs = st.lists(
    st.tuples(
        st.integers(1, 400),
        st.sampled_from([500, 1_000, 60_000]),
        st.sampled_from(["", "save", "restore", "resize", "flush", "back"]),
    ),
    min_size=3,
    max_size=12,
)


def _run(ledger: Ledger, clock_ms: int, step: int, run: tuple[int, int, str]) -> tuple[Ledger, int, int]:
    count, took_ms, _ = run
    for number in range(count):
        step += 1
        # Every fifth step takes three times as long: as many slow pieces as a bad job makes.
        clock_ms += took_ms * (3 if number % 5 == 4 else 1)
        ledger = on_progress(ledger, clock_ms, step, took_ms / SECOND_MS)
    return ledger, clock_ms, step


@settings(max_examples=15, deadline=None)
@given(runs, st.sampled_from(OUTCOMES))
def test_a_long_attempt_stays_small_and_exact(told: list[tuple[int, int, str]], outcome: Outcome) -> None:
    ledger, clock_ms, step, resized = open_ledger(1, 0, GPUS), 0, 0, list[tuple[int, int, int]]()
    records, changes = list[Interval](), list[Change]()
    for number, run in enumerate(told):
        ledger, clock_ms, step = _run(ledger, clock_ms, step, run)
        if run[2] in {"save", "restore"}:
            clock_ms += 30 * SECOND_MS
            step -= 5 if run[2] == "restore" else 0
            ledger = on_checkpoint(ledger, clock_ms, step, 30.0, ok=True, restored=run[2] == "restore", blocking=True)
        elif run[2] == "resize":
            resized.append((clock_ms, 1 + number, 0))
            ledger = on_resized(ledger, clock_ms, 1 + number)
        elif run[2] == "back":
            step = max(0, step - 300)
        if run[2] == "flush" or needs_flush(ledger):
            flushed = flush(ledger, clock_ms)
            ledger, records, changes = flushed.ledger, [*records, *flushed.records], [*changes, *flushed.changes]
    ledger = close(ledger, clock_ms + 1, outcome, CAUSES[0])
    assert len(msgspec.msgpack.encode(ledger)) < 40_000
    flushed = flush(ledger, clock_ms)
    records, changes = [*records, *flushed.records], [*changes, *flushed.changes]
    assert sum(totals(flushed.ledger).values()) == allocated(resized, clock_ms + 1)
    assert overlaid(records) == +Counter(totals(flushed.ledger))
    assert sum(added(changes).values()) == allocated(resized, clock_ms + 1)
    assert flushed.ledger.late == 0


@given(st.lists(evidence | judgements, max_size=30))
def test_a_ledger_comes_back_from_its_bytes(told: list[Told]) -> None:
    ledger = open_ledger(1, 0, GPUS)
    for tell in told:
        ledger = tell(ledger)
    ledger = flush(ledger, HOUR_MS).ledger
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(ledger), type=Ledger) == ledger


@given(st.lists(evidence, max_size=30), times.filter(lambda at_ms: at_ms > 0), st.sampled_from(OUTCOMES))
def test_a_rested_ledger_says_the_same_and_can_still_change_its_mind(
    told: list[Told], end_ms: int, outcome: Outcome
) -> None:
    ledger = open_ledger(1, 0, GPUS)
    for tell in told:
        ledger = tell(ledger)
    ledger = close(ledger, end_ms, outcome, CAUSES[0])
    small = rested(ledger)
    assert intervals(small) == intervals(ledger)
    assert not [step for step in small.steps if step.at_ms <= end_ms]
    for other_ms in (end_ms // 2, end_ms, end_ms + MINUTE_MS):
        amended = intervals(close(small, other_ms, "failed", CAUSES[1]))
        assert sum(tile.gpu_ms for tile in amended) == GPUS * other_ms


def test_a_week_of_steps_costs_no_more_than_a_day_of_them() -> None:
    ledger, largest = open_ledger(1, 0, GPUS), 0
    for step in range(1, 10_001):
        ledger = on_progress(ledger, step * MINUTE_MS + (20_000 if step % 50 == 0 else 0), step, 60.0)
        if step % 60 == 0:
            ledger = flush(ledger, step * MINUTE_MS).ledger
        if step % 1_000 == 0:
            largest = max(largest, len(msgspec.msgpack.encode(ledger)))
    assert largest < 16_000
    sums = totals(ledger, 10_000 * MINUTE_MS)
    assert sum(sums.values()) == GPUS * 10_000 * MINUTE_MS
    assert sums["slow"] > 0
