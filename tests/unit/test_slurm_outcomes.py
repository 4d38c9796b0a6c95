"""How runs ended: what the state alone does not tell."""

import pytest

from tests.unit.slurm_exports import end_and_time, ends, imported, outage, run, stamp, step, the_end


@pytest.mark.parametrize(
    ("state", "exit_", "outcome", "code", "signal"),
    [
        ("COMPLETED", "0:0", "succeeded", 0, None),
        ("FAILED", "1:0", "failed", 1, None),
        ("FAILED", "0:11", "failed", None, 11),
        ("OUT_OF_MEMORY", "0:125", "failed", None, None),
        ("TIMEOUT", "0:0", "timed_out", None, None),
        ("DEADLINE", "0:0", "timed_out", None, None),
        ("NODE_FAIL", "0:0", "failed", None, None),
        ("PREEMPTED", "0:0", "preempted", None, None),
        ("CANCELLED by 5", "0:0", "cancelled", None, None),
        ("BOOT_FAIL", "0:0", "never_started", None, None),
        ("LAUNCH_FAILED", "0:0", "never_started", None, None),
    ],
)
def test_a_state_has_its_outcome(state: str, exit_: str, outcome: str, code: int | None, signal: int | None) -> None:
    end = the_end([run("7", state, (0, 10, 60), exit_=exit_)])
    assert (end.outcome, end.exit_code, end.signal) == (outcome, code, signal)
    assert end.reason == state


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "REQUEUE_HOLD"])
def test_a_run_that_is_not_over_has_no_end(state: str) -> None:
    result = imported([run("7", state, (0, 10, None))])
    assert ends(result) == []
    assert result.counts.unended == 1


def test_half_a_record_of_a_database_that_catches_up_has_no_end_yet() -> None:
    assert ends(imported([run("7", "FAILED", (0, 10, None))])) == []


def test_a_failed_prolog_is_no_cancellation_although_root_is_said_to_have_cancelled() -> None:
    rows = [
        run("7", "CANCELLED by 0", (0, 10, 10), nodes="node5"),
        step("7", "batch", "CANCELLED", (10, 10), exit_="", nodes="node5"),
    ]
    end = the_end(rows, [outage("node5", (10, 90), "DRAIN", "Prolog error")])
    assert end.outcome == "never_started"
    assert end.message == "node5 DRAIN: Prolog error"


def test_a_cancellation_by_root_is_one_when_processes_had_been_started() -> None:
    rows = [run("7", "CANCELLED by 0", (0, 10, 10)), step("7", "batch", "CANCELLED", (10, 11), exit_="0:15")]
    end = the_end(rows, [outage("node1", (10, 90), "DRAIN", "Prolog error")])
    assert (end.outcome, end.message) == ("cancelled", "cancelled by root")


def test_a_cancellation_by_root_is_one_when_no_prolog_failed() -> None:
    rows = [run("7", "CANCELLED by 0", (0, 10, 10)), step("7", "batch", "CANCELLED", (10, 10), exit_="")]
    assert the_end(rows).outcome == "cancelled"


def test_without_node_events_a_launch_that_failed_is_told_by_its_steps() -> None:
    rows = [run("7", "CANCELLED by 0", (0, 10, 10)), step("7", "batch", "CANCELLED", (10, 10), exit_="")]
    assert the_end(rows, None).outcome == "never_started"


def test_a_requeue_by_its_exit_code_is_a_failure_that_is_tried_again() -> None:
    rows = [run("7", "REQUEUED", (0, 10, 12), exit_="99:0"), run("7", "COMPLETED", (12, 130, 140))]
    first, second = ends(imported(rows))
    assert (first.outcome, first.exit_code, first.restarts_with_attempt) == ("failed", 99, 2)
    assert (second.outcome, second.attempt, second.restarts_with_attempt) == ("succeeded", 2, None)


def test_a_requeue_on_request_is_a_cancellation() -> None:
    rows = [run("7", "REQUEUED", (0, 10, 40)), step("7", "batch", "CANCELLED", (10, 41), exit_="0:15")]
    assert the_end(rows).outcome == "cancelled"


def test_a_requeue_of_a_run_that_had_ended_well_takes_nothing_from_it() -> None:
    rows = [run("7", "REQUEUED", (0, 10, 40)), step("7", "batch", "COMPLETED", (10, 20))]
    assert end_and_time(imported(rows)) == ("succeeded", 20)


def test_a_launch_that_failed_on_a_node_that_stayed_is_the_schedulers() -> None:
    rows = [
        run("7", "REQUEUED", (0, 10, 10)),
        step("8", "batch", "COMPLETED", (1, 2)),
        run("8", "COMPLETED", (0, 1, 2)),
    ]
    end = next(end for end in ends(imported(rows)) if end.job_id == "7")
    assert end.outcome == "never_started"
    assert end.message == "ended before any step was launched, and node1 was not taken out"


def test_a_request_that_was_refused_never_started_and_says_so() -> None:
    end = the_end([run("7", "FAILED", (0, 0, 0), exit_="1:0", nodes="None assigned", tres="")])
    assert (end.outcome, end.exit_code) == ("never_started", None)
    assert end.message == "request refused: ended before it was given nodes"


def test_a_job_without_a_step_on_a_node_that_failed_never_started() -> None:
    rows = [
        run("7", "NODE_FAIL", (0, 10, 50)),
        run("8", "COMPLETED", (0, 10, 50)),
        step("8", "batch", "COMPLETED", (10, 50)),
    ]
    assert [end.outcome for end in ends(imported(rows)) if end.job_id == "7"] == ["never_started"]


def test_jobs_that_nobody_cancelled_in_one_second_were_lost_by_the_controller() -> None:
    rows = [run("7", "CANCELLED", (0, 10, 50)), run("8", "CANCELLED", (5, 20, 50)), run("9", "COMPLETED", (0, 10, 40))]
    result = {end.job_id: end for end in ends(imported(rows))}
    assert [result[job].outcome for job in ("7", "8")] == ["failed", "failed"]
    assert (result["7"].message or "").startswith("no record of this job")


def test_jobs_that_end_together_while_another_lives_on_were_cancelled() -> None:
    rows = [run("7", "CANCELLED", (0, 10, 50)), run("8", "CANCELLED", (5, 20, 50)), run("9", "COMPLETED", (0, 10, 60))]
    assert {end.outcome for end in ends(imported(rows)) if end.job_id != "9"} == {"cancelled"}


def test_one_lost_job_alone_may_have_been_cancelled() -> None:
    assert the_end([run("7", "CANCELLED", (0, 10, 50))]).outcome == "cancelled"


def test_a_slurmstepd_that_vanished_is_told_where_its_node_was_well() -> None:
    rows = [run("7", "TIMEOUT", (0, 10, 70)), step("7", "batch", "CANCELLED", (10, 70), exit_="")]
    assert "nobody saw step batch end although its node answered" in (the_end(rows).message or "")
    out = the_end(rows, [outage("node1", (70, 90), "DOWN*", "Not responding")])
    assert out.message == "node1 DOWN*: Not responding"


def test_a_node_that_somebody_set_down_is_told_with_who_and_why() -> None:
    out = [outage("node1", (50, 90), "DOWN", "jdoe: swapping NIC", "root(0)")]
    assert the_end([run("7", "NODE_FAIL", (0, 10, 50))], out).message == "node1 set DOWN by root: jdoe: swapping NIC"


def test_a_doubt_about_an_exit_code_is_said_and_not_decided() -> None:
    end = the_end([run("7", "FAILED", (0, 10, 50), exit_="11:0")])
    assert end.exit_code == 11
    assert end.message == "exit code 11 may be 139 (SIGSEGV): accounting drops bit 7"


def test_a_step_that_failed_is_told_even_where_the_job_completed() -> None:
    rows = [run("7", "COMPLETED", (0, 10, 50)), step("7", "0", "OUT_OF_MEMORY", (11, 20), exit_="0:125")]
    end = the_end(rows)
    assert (end.outcome, end.message) == ("succeeded", "step 0 OUT_OF_MEMORY 0:125 on node1")


def test_a_suspended_job_that_was_cancelled_ended_with_its_processes() -> None:
    rows = [run("7", "CANCELLED by 5", (0, 10, 30)), step("7", "batch", "CANCELLED", (10, 45), exit_="0:9")]
    known = (
        f"JobId=7 JobName=x\n   UserId=ann(5) GroupId=ann(5)\n   JobState=CANCELLED Reason=None Dependency=(null)\n"
        f"   ExitCode=0:9\n   SubmitTime={stamp(0)} StartTime={stamp(10)} EndTime={stamp(30)} SuspendTime={stamp(30)}\n"
        f"   NodeList=node1\n"
    )
    assert end_and_time(imported(rows, jobs=known)) == ("cancelled", 45)


def test_a_prolog_that_ran_into_its_limit_is_told_as_that() -> None:
    rows = [run("7", "REQUEUED", (0, 10, 40)), step("7", "batch", "CANCELLED", (10, 40), exit_="")]
    told = the_end(rows, [outage("node1", (40, 90), "DRAIN", "Prolog error")]).message
    assert told == "node1 DRAIN: Prolog error, it ran into its time limit"
