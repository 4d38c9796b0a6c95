"""What a ledger writes, and what it answers to others."""

from collections.abc import Iterable

from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.events import Cause
from streams import goodput
from streams.goodput import (
    Ledger,
    close,
    flush,
    last_progress_ms,
    normal_step_ms,
    on_checkpoint,
    on_progress,
    on_started,
    open_ledger,
    recent_slowdown,
    since_checkpoint,
    stalled_since,
    steps_after,
)

OFF_BUS = Cause("hardware", "gpu.off_bus", "GPU 1 fell off the bus")
BARE = Cause("hardware", "gpu.off_bus")
GPUS = 8


def at(minutes: float) -> int:
    return round(minutes * MINUTE_MS)


def stepping(ledger: Ledger, steps: Iterable[int], *, from_min: float) -> Ledger:
    for number, step in enumerate(steps, 1):
        ledger = on_progress(ledger, at(from_min + number), step, 60.0)
    return ledger


def saved(ledger: Ledger, end_min: float, step: int) -> Ledger:
    return on_checkpoint(ledger, at(end_min), step, 60.0, ok=True, restored=False, blocking=True)


def running() -> Ledger:
    """Allocated at 0, user code at 2 min, ten steps of a minute until 12 min."""
    return stepping(on_started(open_ledger(1, 0, GPUS), at(2)), range(1, 11), from_min=2)


# --- what others ask -------------------------------------------------------------------------------------


def test_what_a_failure_cost_is_counted_from_the_last_good_save() -> None:
    ledger = stepping(saved(running(), 13, 10), range(11, 16), from_min=13)
    assert since_checkpoint(ledger, at(18)) == (5 * 60 * GPUS, 5 * 60)


def test_without_a_save_a_failure_costs_everything() -> None:
    assert since_checkpoint(running(), at(12)) == (12 * 60 * GPUS, 12 * 60)


def test_steps_completed_after_a_time_are_counted() -> None:
    ledger = running()
    assert [steps_after(ledger, at(m)) for m in (9.5, 10, 11.5, 12)] == [3, 2, 1, 0]


def test_between_rare_records_only_whole_steps_count() -> None:
    ledger = on_started(open_ledger(1, 0, GPUS), 0)
    for record in (1, 2):
        ledger = on_progress(ledger, at(2 * record), 20 * record, 6.0)
    assert steps_after(ledger, at(4) - 15_000) == 2
    assert steps_after(ledger, at(2) - 15_000) == 20 + 2


def test_the_newest_step_and_the_normal_pace_are_known() -> None:
    assert last_progress_ms(running()) == at(12)
    assert normal_step_ms(running()) == MINUTE_MS
    assert last_progress_ms(open_ledger(1, 0, GPUS)) is None
    assert normal_step_ms(open_ledger(1, 0, GPUS)) is None


def test_a_step_told_again_and_again_was_complete_the_first_time() -> None:
    ledger = stepping(running(), [10, 10, 10], from_min=12)
    assert last_progress_ms(ledger) == at(12)
    assert stalled_since(ledger, at(16)) == at(12)
    assert steps_after(ledger, at(12)) == 0


def test_a_save_of_a_newer_step_is_progress_too() -> None:
    assert last_progress_ms(saved(running(), 15, 12)) == at(14)
    assert last_progress_ms(saved(running(), 15, 10)) == at(12)


def test_the_next_attempt_knows_the_jobs_pace_from_the_one_before() -> None:
    assert normal_step_ms(open_ledger(2, at(20), GPUS, previous=running())) == MINUTE_MS
    assert normal_step_ms(open_ledger(2, at(20), 4, previous=running())) is None


def test_a_slowdown_is_seen_against_the_earlier_steps() -> None:
    ledger = running()
    for step in range(11, 16):
        ledger = on_progress(ledger, at(12 + 1.5 * (step - 10)), step)
    assert recent_slowdown(ledger) == 1.5
    assert recent_slowdown(running()) is None


def test_an_overdue_step_makes_a_stall_since_the_last_one() -> None:
    assert stalled_since(running(), at(14)) is None
    assert stalled_since(running(), at(16)) == at(12)


# --- writing ---------------------------------------------------------------------------------------------


def test_a_flush_writes_only_what_is_new() -> None:
    first = flush(saved(running(), 13, 10), at(13))
    assert [i.category for i in first.records] == ["startup", "productive", "checkpoint_save"]
    second = flush(stepping(first.ledger, range(11, 14), from_min=13), at(16))
    assert [(i.category, i.from_ms, i.to_ms) for i in second.records] == [("productive", at(13), at(16))]
    assert (first.ledger.revision, second.ledger.revision) == (1, 2)


def test_a_flush_with_nothing_new_writes_nothing() -> None:
    flushed = flush(running(), at(12))
    again = flush(flushed.ledger, at(12))
    assert (again.records, again.changes, again.ledger) == ((), (), flushed.ledger)


def test_a_failure_replaces_what_was_written_as_productive() -> None:
    ledger = flush(stepping(saved(running(), 13, 10), range(11, 14), from_min=13), at(16)).ledger
    flushed = flush(close(ledger, at(16.5), "failed", OFF_BUS), at(17))
    assert [(i.category, i.from_ms, i.to_ms, i.cause) for i in flushed.records] == [
        ("lost_work", at(13), at(16.5), BARE)
    ]
    assert sum(change.good for change in flushed.changes) == -3 * GPUS * MINUTE_MS
    assert sum(change.total for change in flushed.changes) == GPUS * at(0.5)


def test_time_after_an_earlier_end_is_taken_back_with_no_gpus() -> None:
    ledger = flush(running(), at(14)).ledger
    flushed = flush(close(ledger, at(13), "cancelled"), at(15))
    assert [(i.from_ms, i.to_ms, i.gpus) for i in flushed.records] == [(at(13), at(14), 0)]
    assert [change.total for change in flushed.changes] == [-GPUS * MINUTE_MS]


def test_a_record_carries_job_attempt_revision_and_team() -> None:
    flushed = flush(running(), at(12))
    record = goodput.job_time(flushed.records[0], job_id="j", ledger=flushed.ledger, cluster="c1", team="nlp")
    assert (record.job_id, record.attempt, record.revision, record.category) == ("j", 1, 1, "startup")
    assert (record.team, record.gpus, (record.stop - record.start).total_seconds()) == ("nlp", GPUS, 120)


def test_an_hour_without_a_word_is_written_as_it_looks_now_and_put_right_later() -> None:
    ledger = flush(on_started(open_ledger(1, 0, GPUS), at(2)), HOUR_MS).ledger
    assert [(i.category, i.to_ms) for i in ledger.written] == [("startup", at(2)), ("productive", HOUR_MS)]
    ledger = on_progress(ledger, at(61), 1, 60.0)
    assert [(i.category, i.to_ms) for i in flush(ledger, at(61)).ledger.written] == [
        ("startup", at(60)),
        ("productive", at(61)),
    ]
