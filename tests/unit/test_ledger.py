"""The ledger of an attempt: what each kind of evidence makes of its time."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from faultlens.clock import MINUTE_MS, parse_moment
from faultlens.events import Cause, Outcome
from streams.goodput import (
    Ledger,
    charge,
    charge_loss,
    close,
    intervals,
    keeps_work,
    normal_step_ms,
    on_allocated,
    on_checkpoint,
    on_next_restore,
    on_progress,
    on_resized,
    on_stalled,
    on_started,
    open_ledger,
    reopen,
    totals,
)

CASES = Path(__file__).parents[2].parent / "shared" / "cases"
OFF_BUS = Cause("hardware", "gpu.off_bus", "GPU 1 fell off the bus")
BARE = Cause("hardware", "gpu.off_bus")
GPUS = 8


def at(minutes: float) -> int:
    return round(minutes * MINUTE_MS)


def stepping(ledger: Ledger, steps: Iterable[int], *, from_min: float, step_min: float = 1.0) -> Ledger:
    for number, step in enumerate(steps, 1):
        ledger = on_progress(ledger, at(from_min + number * step_min), step, step_min * 60)
    return ledger


def saved(ledger: Ledger, end_min: float, step: int, *, ok: bool = True, blocking: bool = True) -> Ledger:
    return on_checkpoint(ledger, at(end_min), step, 60.0, ok=ok, restored=False, blocking=blocking)


def restored(ledger: Ledger, end_min: float, step: int) -> Ledger:
    return on_checkpoint(ledger, at(end_min), step, 60.0, ok=True, restored=True, blocking=True)


def minutes(ledger: Ledger, now_min: float | None = None) -> dict[str, float]:
    """GPU-time by category in minutes of the whole attempt (8 GPUs)."""
    sums = totals(ledger, None if now_min is None else at(now_min))
    return {category: gpu_ms / MINUTE_MS / GPUS for category, gpu_ms in sums.items() if gpu_ms}


def shape(ledger: Ledger) -> list[tuple[str, float, float]]:
    return [(i.category, i.from_ms / MINUTE_MS, i.to_ms / MINUTE_MS) for i in intervals(ledger)]


def running() -> Ledger:
    """Allocated at 0, user code at 2 min, ten steps of a minute until 12 min."""
    return stepping(on_started(open_ledger(1, 0, GPUS), at(2)), range(1, 11), from_min=2)


# --- the worked example ----------------------------------------------------------------------------------


def told(case: str) -> dict[tuple[str, int], Ledger]:
    """Return the ledgers of the attempts in a recorded case."""
    path = CASES / case / "events.jsonl"
    if not path.exists():
        pytest.skip("the acceptance cases are not beside the repository")
    ledgers: dict[tuple[str, int], Ledger] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        data, at_ms, kind = event["data"], parse_moment(event["time"]), event["type"].split(".")[-2]
        key = (data.get("job_id", ""), data.get("attempt", 0))
        if kind == "allocated":
            gpus = sum(len(slot["devices"]) for slot in data["allocation"])
            ledgers[key] = open_ledger(key[1], at_ms, gpus, previous=ledgers.get((key[0], key[1] - 1)))
        elif kind == "started":
            ledgers[key] = on_started(ledgers[key], at_ms)
        elif kind == "progress":
            ledgers[key] = on_progress(ledgers[key], at_ms, data["step"], data.get("step_time_s"))
        elif kind == "checkpoint":
            ledgers[key] = on_checkpoint(
                ledgers[key],
                at_ms,
                data["step"],
                data["duration_s"],
                ok=data["ok"],
                restored=data.get("restored", False),
                blocking=data.get("blocking", True),
            )
        elif kind == "ended" and key in ledgers:
            ledgers[key] = close(ledgers[key], at_ms, data["outcome"], OFF_BUS)
    return ledgers


def test_the_recorded_case_of_a_lost_gpu_gives_the_sums_worked_out_by_hand() -> None:
    sums: dict[str, float] = {}
    for ledger in told("slo_goodput/ledger_with_checkpoint_and_lost_work").values():
        for category, gpu_ms in totals(ledger).items():
            sums[category] = sums.get(category, 0) + gpu_ms / 1000
    assert sums == {
        "startup": 960.0,
        "productive": 9600.0,
        "checkpoint_save": 480.0,
        "lost_work": 2400.0,
        "recovery": 720.0,
        "checkpoint_restore": 160.0,
    }


def test_a_cancelled_attempts_time_stays_in_the_ledger() -> None:
    ledger = told("robustness/cancelled_by_scheduler_after_launcher_said_failed")["llm-905", 1]
    assert sum(totals(ledger).values()) / 1000 == 4560.0
    assert "lost_work" not in totals(ledger)


# --- how an attempt begins -------------------------------------------------------------------------------


def test_startup_ends_where_the_first_step_began() -> None:
    assert shape(close(running(), at(12), "succeeded")) == [("startup", 0, 2), ("productive", 2, 12)]


def test_a_first_record_of_many_steps_tells_of_all_of_them() -> None:
    ledger = on_progress(on_started(open_ledger(1, 0, GPUS), at(1)), at(5), 20, 6.0)
    assert minutes(close(ledger, at(5), "succeeded")) == {"startup": 3, "productive": 2}


def test_steps_cannot_have_begun_before_user_code_ran() -> None:
    ledger = on_progress(on_started(open_ledger(1, 0, GPUS), at(4)), at(5), 20, 6.0)
    assert minutes(close(ledger, at(5), "succeeded")) == {"startup": 4, "productive": 1}


def test_a_later_attempt_recovers_and_its_restore_stands_apart() -> None:
    ledger = restored(on_started(open_ledger(2, 0, GPUS), at(1)), 3, 10)
    ledger = stepping(ledger, range(11, 14), from_min=3)
    assert minutes(close(ledger, at(6), "succeeded")) == {"recovery": 2, "checkpoint_restore": 1, "productive": 3}


def test_what_an_attempt_recovers_from_is_charged_to_the_failure_before() -> None:
    ledger = charge(restored(open_ledger(2, 0, GPUS), 3, 10), "recovery", OFF_BUS)
    ledger = close(stepping(ledger, [11], from_min=3), at(4), "succeeded")
    causes = {interval.category: interval.cause for interval in intervals(ledger)}
    assert causes == {"recovery": BARE, "checkpoint_restore": BARE, "productive": None}


def test_an_attempt_that_never_got_to_a_step_was_only_starting() -> None:
    ledger = close(on_started(open_ledger(1, 0, GPUS), at(2)), at(12), "failed", OFF_BUS)
    assert minutes(ledger) == {"startup": 12}
    assert intervals(ledger)[0].cause == BARE


def test_an_allocation_can_be_corrected_until_time_is_settled() -> None:
    ledger = on_allocated(open_ledger(1, at(1), 4), 0, GPUS)
    assert minutes(close(ledger, at(3), "never_started")) == {"startup": 3}


# --- jobs that say nothing of their steps ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "category"),
    [
        ("succeeded", "productive"),
        ("cancelled", "productive"),
        ("failed", "lost_work"),
        ("timed_out", "lost_work"),
        ("preempted", "lost_work"),
    ],
)
def test_a_long_attempt_without_any_step_is_judged_by_its_outcome(outcome: Outcome, category: str) -> None:
    ledger = close(on_started(open_ledger(1, 0, GPUS), at(2)), at(62), outcome)
    assert minutes(ledger) == {"startup": 2, category: 60}


def test_a_short_success_without_any_step_was_work() -> None:
    ledger = close(on_started(open_ledger(1, 0, GPUS), at(2)), at(7), "succeeded")
    assert minutes(ledger) == {"startup": 2, "productive": 5}


def test_what_a_replica_served_is_not_lost_when_it_fails() -> None:
    ledger = on_started(open_ledger(1, 0, GPUS, keeps_work=keeps_work("inference")), at(2))
    assert minutes(close(ledger, at(7), "failed", OFF_BUS)) == {"startup": 2, "productive": 5}


def test_checkpoints_alone_show_what_was_kept() -> None:
    ledger = on_started(open_ledger(1, 0, GPUS), at(2))
    ledger = saved(saved(ledger, 22, 100), 42, 200)
    assert minutes(close(ledger, at(52), "failed")) == {
        "startup": 2,
        "productive": 38,
        "checkpoint_save": 2,
        "lost_work": 10,
    }


# --- checkpoints and lost work ---------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["failed", "timed_out", "preempted"])
def test_what_was_done_since_the_last_good_save_is_lost_with_the_step_cut_off(outcome: Outcome) -> None:
    ledger = stepping(saved(running(), 13, 10), range(11, 15), from_min=13)
    assert shape(close(ledger, at(17.5), outcome, OFF_BUS)) == [
        ("startup", 0, 2),
        ("productive", 2, 12),
        ("checkpoint_save", 12, 13),
        ("lost_work", 13, 17.5),
    ]


@pytest.mark.parametrize("outcome", ["succeeded", "cancelled"])
def test_a_step_that_a_good_or_chosen_end_cut_off_is_productive(outcome: Outcome) -> None:
    ledger = stepping(saved(running(), 13, 10), range(11, 15), from_min=13)
    assert minutes(close(ledger, at(17.5), outcome)) == {"startup": 2, "productive": 14.5, "checkpoint_save": 1}


def test_a_failed_save_takes_time_and_keeps_nothing() -> None:
    ledger = stepping(saved(running(), 13, 10, ok=False), [11], from_min=13)
    assert minutes(close(ledger, at(14), "failed")) == {"startup": 2, "checkpoint_save": 1, "lost_work": 11}


def test_a_save_beside_the_work_costs_nothing_and_keeps_what_its_step_had() -> None:
    ledger = stepping(saved(running(), 14.5, 8, blocking=False), range(11, 16), from_min=12)
    assert minutes(close(ledger, at(17), "failed")) == {"startup": 2, "productive": 8, "lost_work": 7}


def test_without_any_save_all_work_is_lost() -> None:
    assert minutes(close(running(), at(12), "failed")) == {"startup": 2, "lost_work": 10}


def test_a_later_restore_of_an_older_step_makes_more_of_the_work_lost() -> None:
    ledger = saved(stepping(saved(running(), 13, 10), range(11, 16), from_min=13), 19, 15)
    ledger = close(stepping(ledger, [16], from_min=19), at(20), "failed")
    assert minutes(ledger)["lost_work"] == 1
    assert minutes(on_next_restore(ledger, 15))["lost_work"] == 1
    assert minutes(on_next_restore(ledger, 10))["lost_work"] == 6
    assert minutes(on_next_restore(on_next_restore(ledger, 10), 15))["lost_work"] == 6
    assert minutes(on_next_restore(ledger, 0)) == {"startup": 2, "checkpoint_save": 2, "lost_work": 16}


def test_a_restore_of_a_step_that_no_save_told_of_proves_that_it_was_kept() -> None:
    assert minutes(on_next_restore(close(running(), at(12), "failed"), 7)) == {
        "startup": 2,
        "productive": 7,
        "lost_work": 3,
    }


def test_work_of_a_cancelled_attempt_is_lost_when_the_next_one_does_it_again() -> None:
    ledger = close(stepping(saved(running(), 13, 10), range(11, 16), from_min=13), at(18), "cancelled")
    assert minutes(on_next_restore(ledger, 10))["lost_work"] == 5


def test_a_restart_within_the_attempt_loses_what_it_goes_back_behind() -> None:
    ledger = stepping(saved(running(), 13, 10), range(11, 14), from_min=13)
    ledger = stepping(restored(ledger, 21, 10), range(11, 21), from_min=21)
    assert shape(close(ledger, at(31), "succeeded")) == [
        ("startup", 0, 2),
        ("productive", 2, 12),
        ("checkpoint_save", 12, 13),
        ("lost_work", 13, 17),
        ("stalled", 17, 20),
        ("checkpoint_restore", 20, 21),
        ("productive", 21, 31),
    ]


def test_a_job_that_goes_back_without_a_word_has_read_its_last_save() -> None:
    ledger = stepping(saved(running(), 13, 10), range(11, 14), from_min=13)
    ledger = stepping(ledger, range(11, 14), from_min=18)
    assert minutes(close(ledger, at(21), "succeeded")) == {
        "startup": 2,
        "productive": 13,
        "checkpoint_save": 1,
        "lost_work": 3,
        "recovery": 2,
    }


# --- slow steps and stalls -------------------------------------------------------------------------------


def test_the_excess_of_a_slow_step_is_cut_out_of_its_end() -> None:
    ledger = on_progress(running(), at(14.5), 11)
    assert shape(close(ledger, at(14.5), "succeeded"))[1:] == [("productive", 2, 13), ("slow", 13, 14.5)]


def test_five_steps_are_enough_to_tell_the_slow_one() -> None:
    ledger = stepping(on_started(open_ledger(1, 0, GPUS), 0), range(1, 5), from_min=0)
    ledger = close(on_progress(ledger, at(5.5), 5, 90.0), at(5.5), "succeeded")
    assert shape(ledger) == [("productive", 0, 5), ("slow", 5, 5.5)]


def test_a_step_within_five_percent_is_not_slow() -> None:
    ledger = on_progress(running(), at(13.04), 11)
    assert minutes(close(ledger, at(13.04), "succeeded")) == {"startup": 2, "productive": pytest.approx(11.04)}


def test_a_step_within_three_deviations_is_not_slow() -> None:
    ledger = on_started(open_ledger(1, 0, GPUS), 0)
    for step, end_min in enumerate([1, 1.8, 3, 3.8, 5, 5.8, 7, 7.8, 9, 10.2], 1):
        ledger = on_progress(ledger, at(end_min), step, 60)
    assert "slow" not in minutes(close(ledger, at(10.2), "succeeded"))


def test_a_save_between_steps_makes_none_of_them_slow() -> None:
    ledger = stepping(saved(running(), 13, 10), range(11, 14), from_min=13)
    assert "slow" not in minutes(close(ledger, at(16), "succeeded"))


def test_records_of_many_steps_are_slow_by_their_average() -> None:
    ledger = on_started(open_ledger(1, 0, GPUS), 0)
    for record in range(1, 9):
        ledger = on_progress(ledger, at(2 * record), 20 * record, 6.0)
    ledger = on_progress(ledger, at(19), 180)
    assert minutes(close(ledger, at(19), "succeeded")) == {"productive": 18, "slow": 1}


def test_a_hang_is_stalled_from_when_the_next_step_was_due() -> None:
    ledger = close(running(), at(22), "failed", OFF_BUS)
    assert minutes(ledger) == {"startup": 2, "lost_work": 11, "stalled": 9}
    assert intervals(ledger)[-1].cause == BARE


def test_a_reported_stall_counts_from_when_it_is_said_to_have_begun() -> None:
    ledger = on_stalled(running(), at(12.25))
    assert minutes(close(ledger, at(13), "failed")) == {"startup": 2, "lost_work": 10.25, "stalled": 0.75}


def test_a_stall_that_ended_by_itself_is_stalled_for_what_it_took_beyond_the_step() -> None:
    ledger = charge(on_progress(on_stalled(running(), at(12.5)), at(20), 11, 60.0), "stalled", OFF_BUS)
    ledger = close(ledger, at(20), "succeeded")
    assert shape(ledger)[1:] == [
        ("productive", 2, 12.5),
        ("stalled", 12.5, 19.5),
        ("productive", 19.5, 20),
    ]
    assert intervals(ledger)[2].cause == BARE


def test_a_long_last_stretch_of_a_success_is_work() -> None:
    assert minutes(close(running(), at(30), "succeeded")) == {"startup": 2, "productive": 28}


# --- changes of size -------------------------------------------------------------------------------------


def test_gpus_count_as_long_as_they_are_held() -> None:
    ledger = on_resized(open_ledger(1, 0, GPUS), at(3), 4)
    assert totals(close(ledger, at(5), "succeeded")) == {"productive": (3 * GPUS + 2 * 4) * MINUTE_MS}


def test_the_gap_after_a_lost_worker_is_recovery_charged_to_the_loss() -> None:
    ledger = on_progress(on_resized(running(), at(13), 4, loss=1), at(15), 11, 60.0)
    ledger = close(charge_loss(ledger, 1, OFF_BUS), at(15), "succeeded")
    assert [(i.category, i.from_ms, i.gpus, i.cause) for i in intervals(ledger)[2:]] == [
        ("recovery", at(12), 8, BARE),
        ("recovery", at(13), 4, BARE),
        ("productive", at(14), 4, None),
    ]


def test_steps_on_fewer_gpus_have_a_pace_of_their_own() -> None:
    ledger = on_resized(running(), at(12), 4, loss=1)
    ledger = stepping(ledger, range(11, 21), from_min=12, step_min=2)
    assert "slow" not in totals(close(ledger, at(32), "succeeded"))
    assert normal_step_ms(ledger) == 2 * MINUTE_MS


# --- changes of mind -------------------------------------------------------------------------------------


def test_the_last_word_on_the_end_counts() -> None:
    ledger = close(close(running(), at(13), "failed", OFF_BUS), at(12.5), "cancelled")
    assert minutes(ledger) == {"startup": 2, "productive": 10.5}


def test_a_reopened_attempt_goes_on() -> None:
    ledger = stepping(reopen(close(running(), at(12), "failed")), [11], from_min=12)
    assert minutes(ledger, 13) == {"startup": 2, "productive": 11}


def test_a_save_and_a_restore_that_ended_together_count_the_same_in_either_order() -> None:
    ledger = on_started(open_ledger(1, 0, 8), 0)
    flags = ({"restored": False, "blocking": True}, {"restored": True, "blocking": False})
    orders = []
    for first, second in (flags, flags[::-1]):
        told = on_checkpoint(ledger, 1001, 0, 1.0, ok=True, **first)
        orders.append(intervals(on_checkpoint(told, 1001, 0, 1.0, ok=True, **second), 5000))
    assert orders[0] == orders[1]
