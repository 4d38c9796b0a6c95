"""How attempts end: who is right about it, what is taken back, and ends that nobody reports."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultlens.clock import MINUTE_MS
from faultlens.events import AttemptRef, JobCheckpoint, JobEnded, JobLabelled
from tests.unit.scenes import ILLEGAL, MISTAKE, PEER, UNKNOWN, Scene, play

OWN = ("app.exception", "supported", None, "do_not_retry")


def job(until: float = 60, steps_until: float = 10) -> Scene:
    scene = Scene().node("n1", "n2", until=until)
    return scene.job("j", "n1", "n2").steps("j", 0.5, steps_until)


# --- two words on one end ------------------------------------------------------------------------------


def test_a_scheduler_that_says_cancelled_withdraws_the_verdict_and_a_failure_after_that_amends_it() -> None:
    scene = job().exit(10, "j", 0, "n1", MISTAKE).end(10.2, "j")
    scene.end(10.3, "j", "cancelled", source="scheduler/s", arrives=18)
    assert scene.run(30).statuses("j") == ["provisional", "final", "withdrawn"]
    assert scene.run(30).counted("job_success") == (0, 0, {})
    scene.end(10.4, "j", "failed", source="scheduler/s", arrives=20)
    run = scene.run(40)
    assert run.statuses("j") == ["provisional", "final", "withdrawn", "provisional", "amended"]
    assert run.told("j") == OWN


def test_a_verdict_that_was_withdrawn_before_it_was_final_becomes_final_when_the_job_failed_after_all() -> None:
    scene = job().exit(10, "j", 0, "n1", MISTAKE).end(10.2, "j").end(10.3, "j", "cancelled", source="scheduler/s")
    run = scene.end(10.4, "j", "failed", source="scheduler/s", arrives=13).run(40)
    assert run.statuses("j") == ["provisional", "withdrawn", "provisional", "final"]


def test_the_window_closes_after_the_later_of_two_ends_and_time_is_allocated_to_the_schedulers() -> None:
    scene = job().exit(10, "j", 0, "n1", MISTAKE).end(10.2, "j").end(14, "j", source="scheduler/s")
    run = scene.fault(17, "n1", "other", "compute_mismatch", 0).run(40)
    assert run.statuses("j").count("final") == 1
    assert sum(run.ledger("j").values()) == 14 * 4
    assert any("compute_mismatch" in item.what for item in run.verdict("j").evidence)


# --- put back into the queue -----------------------------------------------------------------------------


def put_back(scene: Scene, minute: float = 10.8, *, arrives: float | None = None, **more: Any) -> Scene:
    words = {"reason": "REQUEUED", "message": "requeued on request", **more}
    return scene.end(minute, "j", "cancelled", source="scheduler/slurm", arrives=arrives, **words)


def broken(**how: Any) -> Scene:
    return job().exit(10, "j", 0, "n1", MISTAKE, **how).end(10.01, "j", **how)


def test_a_failure_after_which_the_job_was_put_back_stands_and_its_time_ends_with_the_schedulers_word() -> None:
    run = put_back(broken()).run(40)
    assert run.statuses("j") == ["provisional", "final"]
    assert run.told("j") == OWN
    assert run.counted("job_success") == (0, 0, {})
    assert sum(run.ledger("j").values()) == round(10.8 * 4, 2)
    assert "lost_work user" in run.ledger("j")


def test_what_stands_after_a_requeue_is_a_failure_that_the_objective_counts() -> None:
    scene = put_back(job().fault(9.99, "n1", "xid", "79", 0).exit(10, "j", 0, "n1", UNKNOWN).end(10.01, "j"))
    assert scene.run(40).counted("job_success") == (0, 1, {"hardware": 1})


@settings(max_examples=25, deadline=None)
@given(
    launcher=st.floats(0, 14), scheduler=st.floats(0, 14), again=st.sampled_from([None, 0, 1]), later=st.floats(0, 10)
)
def test_it_stands_whichever_word_comes_first_late_or_twice(
    launcher: float, scheduler: float, again: int | None, later: float
) -> None:
    scene = job().exit(10, "j", 0, "n1", MISTAKE).end(10.01, "j", arrives=10.01 + launcher)
    told = put_back(scene, arrives=10.8 + scheduler).events()
    ends = [one for one in told if isinstance(one[1].data, JobEnded)]
    repeated = [] if again is None else [(ends[again][0] + round(later * MINUTE_MS), ends[again][1])]
    run = play([*told, *repeated], 60)
    assert run.told("j") == OWN
    assert run.ledger("j") == {"startup": 2.0, "lost_work user": 41.2}
    assert run.counted("job_success") == (0, 0, {})


@pytest.mark.parametrize(
    "how", [{"exit_code": 5}, {"exit_code": None, "signal": 6}, {"exit_code": 134}, {"exit_code": 255}]
)
def test_an_exit_code_or_a_crash_is_a_failure_of_its_own(how: dict[str, Any]) -> None:
    assert put_back(broken(**how)).run(40).told("j") == OWN


@pytest.mark.parametrize(
    "how", [{"exit_code": None, "signal": 15}, {"exit_code": 143}, {"exit_code": 137, "signal": 9}, {"exit_code": None}]
)
def test_a_program_that_somebody_ended_had_not_failed_when_it_was_put_back(how: dict[str, Any]) -> None:
    assert put_back(broken(**how)).run(40).statuses("j") == ["provisional", "withdrawn"]


def test_what_fails_after_it_was_put_back_fails_by_that() -> None:
    assert put_back(broken(), 9.9, arrives=10.5).run(40).statuses("j") == ["provisional", "withdrawn"]
    within_the_second = put_back(broken(), 10).run(40)
    assert within_the_second.told("j") == OWN


def test_within_the_second_of_the_requeue_what_only_speaks_of_its_peers_was_ended_with_them() -> None:
    for minute, stands in ((10.01, False), (10.02, True)):
        scene = put_back(job().exit(10.01, "j", 0, "n1", PEER).end(10.015, "j", text=PEER), minute, arrives=10.5)
        assert (scene.run(40).statuses("j")[-1] == "final") is stands


def test_a_preemption_a_cancellation_or_a_command_of_ours_is_no_putting_back() -> None:
    for words in ({"reason": "CANCELLED by 1205"}, {"reason": None}, {"command_id": "cmd-1"}):
        assert put_back(broken(), **words).run(40).statuses("j")[-1] == "withdrawn"
    run = broken().end(10.8, "j", "preempted", source="scheduler/slurm", reason="PREEMPTED").run(40)
    assert run.statuses("j")[-1] == "withdrawn"


def test_a_requeue_of_a_job_whose_launcher_saw_nothing_go_wrong_is_cancelled() -> None:
    assert put_back(job()).run(40).revisions("j") == []
    assert put_back(job().end(10, "j", "cancelled", signal=15)).run(40).revisions("j") == []


def test_the_next_attempt_of_what_was_put_back_recovers_from_its_failure() -> None:
    scene = put_back(broken()).attempt("j", "n1", minute=12, number=2).steps("j", 13, 15, number=2)
    run = scene.end(15, "j", "succeeded", number=2, exit_code=0).run(40)
    assert run.ledger("j", 2)["recovery user"] > 0


def test_a_preempted_attempt_has_no_verdict_and_leaves_the_objective() -> None:
    scene = job().exit(10, "j", 0, "n1", exit_code=143, signal=15).end(10.1, "j", exit_code=143, signal=15)
    run = scene.end(10.2, "j", "preempted", source="scheduler/s", signal=15).run(40)
    assert run.statuses("j") == ["provisional", "withdrawn"]
    assert run.counted("job_success") == (0, 0, {})


# --- our own commands ------------------------------------------------------------------------------------


def commanded(outcome: str, *, fault: bool) -> Scene:
    scene = job(steps_until=30)
    if fault:
        scene.fault(5, "n1", "xid", "74", 1)
    scene.fault(6, "n2", "nic", "link_flap")
    scene.act(29, "n1", "drain", actor="faultlens", command_id="cmd-1")
    scene.exit(30, "j", 0, "n1", exit_code=143, signal=15)
    return scene.end(30.1, "j", outcome, exit_code=143, signal=15, command_id="cmd-1")  # type: ignore[arg-type]


def test_a_job_that_our_drain_ended_is_charged_to_the_fault_behind_the_drain_though_it_went_on_after_that() -> None:
    run = commanded("failed", fault=True).run(60)
    assert run.told("j") == ("fabric.nvlink.link", "established", "n1/1", "retry_elsewhere")
    assert run.verdict("j").rule == "ended_by_our_command"


def test_without_a_fault_on_the_node_that_we_acted_on_the_command_is_to_blame() -> None:
    assert commanded("failed", fault=False).run(60).told("j") == ("platform.remediation", "established", None, "retry")


def drained(scene: Scene) -> Scene:
    return scene.act(29, "n1", "drain", actor="faultlens", command_id="cmd-1", reason="xid 74 on GPU 1")


def test_a_job_that_failed_by_itself_on_a_node_that_we_were_draining_is_charged_to_itself() -> None:
    scene = drained(job(steps_until=30).fault(5, "n1", "xid", "74", 1))
    assert scene.exit(30, "j", 0, "n1", MISTAKE).end(30.1, "j").run(60).told("j") == OWN


def test_a_drain_of_ours_hours_before_did_not_end_a_job_though_nobody_says_of_the_end_what_did() -> None:
    for minutes, by_us in ((0, True), (240, False)):
        scene = drained(job(until=400, steps_until=29 + minutes))
        scene.exit(30 + minutes, "j", 0, "n1", exit_code=143, signal=15)
        verdict = scene.end(30.1 + minutes, "j", exit_code=143, signal=15).run(390).verdict("j")
        assert (verdict.rule == "ended_by_our_command") == by_us


def test_what_made_our_command_is_no_silence_that_was_only_the_control_planes() -> None:
    """While the control plane is away every node falls silent, which is more severe than many a fault."""
    scene = job(steps_until=30).fault(20, "n1", "nic", "link_flap")
    for code in ("not_responding", "daemon_lost"):
        scene.fault(29, "n1", "other", code)
    scene.exit(30, "j", 0, "n1", exit_code=143, signal=15)
    run = scene.end(30.1, "j", "failed", exit_code=143, signal=15, command_id="cmd-1").run(60)
    assert run.told("j")[0] == "network.link.flap"


def test_a_preemption_by_our_command_costs_time_on_the_account_of_the_fault() -> None:
    run = commanded("preempted", fault=True).run(60)
    assert run.revisions("j") == []
    assert "lost_work hardware" in run.ledger("j")
    assert "lost_work platform" in commanded("preempted", fault=False).run(60).ledger("j")


# --- preemptions -----------------------------------------------------------------------------------------


def requeued(scene: Scene, text: str = UNKNOWN, code: str = "79") -> Scene:
    """Let a big job fail at minute 10 and take the place of `j` when it is requeued at minute 12."""
    scene.node("n3", until=60).job("big", "n3", user="bob").fault(9.99, "n3", "xid", code, 0)
    scene.exit(10, "big", 0, "n3", text).end(10.1, "big")
    scene.attempt("big", "n1", minute=12, number=2)
    return scene


def preempted(scene: Scene, attempt: int = 2, arrives: float | None = None) -> Scene:
    by = AttemptRef("big", attempt)
    return scene.end(11.9, "j", "preempted", source="scheduler/s", signal=15, preempted_by=by, arrives=arrives)


def test_a_preemption_by_a_requeue_is_charged_to_the_fault_that_made_it_necessary() -> None:
    run = preempted(requeued(job(steps_until=11.5))).run(40)
    assert run.revisions("j") == []
    assert run.ledger("j") == {"startup": 2.0, "lost_work hardware": 45.6}
    _, _, causes = run.counted("goodput")
    assert causes["hardware"] >= 45.6 * 60_000


def test_it_is_charged_so_whichever_is_told_first_and_to_whatever_the_verdict_becomes() -> None:
    scene = Scene().node("n1", "n2", until=60).job("j", "n1", "n2").steps("j", 0.5, 10)
    early = preempted(scene, arrives=11.9).node("n3", until=60).job("big", "n3", user="bob")
    early.exit(10, "big", 0, "n3", MISTAKE).end(10.1, "big", arrives=13)
    assert "lost_work user" in early.run(40).ledger("j")
    labelled = JobLabelled("big", 1, "hardware", "gpu.compute.wrong_result", by="jo", node="n3")
    assert "lost_work hardware" in early.say(30, labelled, "operator/jo").run(40).ledger("j")


def test_a_preemption_by_a_first_attempt_or_by_a_job_that_never_failed_is_nobodys_fault() -> None:
    for scene in (preempted(requeued(job(steps_until=11.5)), attempt=1), preempted(job(steps_until=11.5))):
        assert scene.run(40).ledger("j") == {"startup": 2.0, "lost_work": 45.6}


# --- labels ----------------------------------------------------------------------------------------------


def label(minute: float, code: str = "gpu.compute.wrong_result") -> tuple[float, JobLabelled, str]:
    return minute, JobLabelled("j", 1, "hardware", code, by="jo", node="n1"), "operator/jo"


def test_a_label_before_the_final_verdict_becomes_the_final_one_at_the_windows_end() -> None:
    scene = job().exit(10, "j", 0, "n1", MISTAKE).end(10.2, "j")
    run = scene.say(*label(12)).run(40)
    assert run.statuses("j")[-1] == "final"
    assert run.told("j") == ("gpu.compute.wrong_result", "established", "n1", "retry_elsewhere")


def test_a_label_after_it_amends_it_and_only_a_later_label_changes_that() -> None:
    scene = job(100).exit(10, "j", 0, "n1", MISTAKE).end(10.2, "j").say(*label(40))
    scene.fault(10, "n1", "xid", "79", 0, arrives=50)
    run = scene.run(60)
    assert (run.statuses("j")[-1], run.verdict("j").cause.code) == ("amended", "gpu.compute.wrong_result")
    again = scene.say(*label(70, "gpu.memory.uncorrectable")).run(90)
    assert again.verdict("j").cause.code == "gpu.memory.uncorrectable"


def test_a_label_on_an_attempt_that_did_not_fail_is_no_verdict() -> None:
    run = job().end(10, "j", "succeeded").say(*label(12)).run(40)
    assert run.revisions("j") == []


# --- ends that nobody reports ----------------------------------------------------------------------------


def test_an_attempt_whose_node_fell_silent_is_closed_at_its_reporters_last_word() -> None:
    scene = Scene().node("n1", until=9).node("n2", "n3", "n4", until=40)
    run = scene.job("j", "n1", "n2").steps("j", 0.5, 9).alive("j", 1, 10).run(40)
    assert run.told("j") == ("host.lost.silent", "established", "n1", "retry_elsewhere")
    assert sum(run.ledger("j").values()) == 9 * 4
    assert run.counted("job_success") == (0, 1, {"hardware": 1})


def test_an_attempt_whose_devices_were_given_to_another_job_is_closed() -> None:
    scene = Scene().node("n1", "n2", until=40).job("j", "n1").alive("j", 1, 6)
    run = scene.job("next", "n1", minute=15, user="bob").alive("next", 16, 40).run(40)
    assert run.told("j") == ("app.crash", "assumed", None, "retry")
    assert run.revisions("next") == []


def test_an_attempt_that_goes_on_telling_is_not_closed_by_another_that_shares_its_gpu() -> None:
    scene = Scene().node("n1", "n2", until=40).job("j", "n1").alive("j", 1, 40)
    assert scene.job("next", "n1", minute=15, user="bob").alive("next", 16, 40).run(40).revisions("j") == []


def test_an_attempt_is_closed_five_minutes_after_its_next_one_was_allocated() -> None:
    scene = Scene().node("n1", "n2", until=40).job("j", "n1").alive("j", 1, 6)
    scene.attempt("j", "n2", minute=8, number=2).alive("j", 9, 39, number=2)
    assert scene.run(12.5).revisions("j") == []
    assert scene.run(40).told("j") == ("app.crash", "assumed", None, "retry")


def test_replicas_live_side_by_side_and_do_not_close_each_other() -> None:
    scene = Scene().node("n1", "n2", until=40).job("srv", "n1", workload="inference").alive("srv", 1, 6)
    scene.attempt("srv", "n2", minute=8, number=2).alive("srv", 9, 39, number=2)
    assert scene.run(40).revisions("srv") == []


def test_a_reporter_that_is_silent_for_an_hour_has_lost_its_job() -> None:
    scene = Scene().node("n1", "n2", until=120).job("j", "n1").alive("j", 1, 10)
    assert scene.run(68).revisions("j") == []
    assert scene.run(80).told("j") == ("app.crash", "assumed", None, "retry")


def test_one_that_never_says_alive_is_not_missed() -> None:
    scene = Scene().node("n1", "n2", until=120).job("j", "n1").steps("j", 0.5, 5)
    assert scene.run(120).revisions("j") == []


def test_a_word_after_the_end_that_we_concluded_takes_it_back_and_a_real_end_is_amended() -> None:
    scene = Scene().node("n1", "n2", until=200).job("j", "n1").alive("j", 1, 10).alive("j", 90, 100)
    reopened = scene.run(95)
    assert reopened.statuses("j") == ["provisional", "final", "withdrawn"]
    run = scene.exit(100, "j", 0, "n1", MISTAKE).end(100.1, "j").run(120)
    assert run.statuses("j")[-1] == "amended"
    assert run.told("j") == OWN


def test_a_job_that_only_speaks_seldom_is_not_closed_again_and_again_for_a_restart_that_it_survived() -> None:
    scene = Scene().node("n1", until=4).node("n1", since=5, until=120, boot_id="n1-b2").node("n2", until=120)
    run = scene.job("j", "n1").steps("j", 0.5, 90, every=2).end(91, "j", "succeeded").run(120)
    assert run.statuses("j").count("provisional") <= 2
    assert run.statuses("j")[-1] == "withdrawn"
    assert run.counted("job_success") == (1, 1, {})


# --- several attempts ------------------------------------------------------------------------------------


def test_attempts_have_verdicts_of_their_own() -> None:
    scene = job().fault(9.99, "n1", "xid", "79", 0).exit(10, "j", 0, "n1", UNKNOWN).end(10.1, "j")
    scene.attempt("j", "n2", minute=12, number=2).exit(15, "j", 0, "n2", ILLEGAL, number=2).end(15.1, "j", number=2)
    run = scene.run(40)
    assert run.told("j")[0] == "gpu.off_bus"
    assert run.told("j", 2)[0] == "app.illegal_access"


def test_a_checkpoint_that_is_told_late_saves_the_work_before_it() -> None:
    scene = job(steps_until=10.5).exit(10.6, "j", 0, "n1", MISTAKE).end(10.7, "j")
    assert scene.run(40).ledger("j")["lost_work user"] == round((10.7 - 0.5) * 4, 2)
    late = scene.say(9.5, JobCheckpoint("j", 1, 18, 6.0, ok=True), "launcher/l", arrives=12).run(40)
    assert late.ledger("j")["lost_work user"] < 6


# --- two clusters ----------------------------------------------------------------------------------------


def test_what_concerns_one_cluster_does_not_concern_another() -> None:
    stale = "OSError: [Errno 116] Stale file handle: '/data/x'"
    one = job().exit(10, "j", 0, "n1", PEER).end(10.2, "j")
    two = Scene("c2").node("c2:n1").job("c2:j", "c2:n1").incident(9, "storage", name="i1")
    run = one.run(40, two.exit(10, "c2:j", 0, "c2:n1", stale).end(10.2, "c2:j"))
    assert run.told("c2:j")[:2] == ("platform.storage.mount", "established")
    assert run.verdict("j").cause.cause_class != "platform"


def test_a_label_that_charges_the_same_code_to_another_class_amends_the_verdict() -> None:
    scene = job(100).exit(10, "j", 0, "n1", MISTAKE).end(10.2, "j")
    run = scene.say(40, JobLabelled("j", 1, "platform", "app.exception", by="jo"), "operator/jo").run(60)
    assert run.statuses("j")[-1] == "amended"


def test_an_attempt_whose_allocation_was_never_told_is_closed_when_its_reporter_is_lost() -> None:
    scene = Scene().node("n1", until=150).job("j").steps("j", 0, 9).alive("j", 1, 10)
    run = scene.run(150)
    assert run.told("j") == ("app.crash", "assumed", None, "retry")
    unspoken = Scene().node("n1", until=20).job("j").steps("j", 0, 9).attempt("j", "n1", minute=10, number=2)
    assert unspoken.alive("j", 11, 40, number=2).run(40).told("j") == ("app.crash", "assumed", None, "retry")


def test_an_attempt_is_closed_when_a_later_one_was_allocated_though_the_next_one_got_nothing() -> None:
    scene = Scene().node("n1", "n2", until=60).job("j", "n1").steps("j", 0.5, 6)
    scene.end(8, "j", "never_started", number=2, source="scheduler/s").attempt("j", "n2", minute=9, number=3)
    assert scene.alive("j", 10, 39, number=3).run(60).told("j") == ("app.crash", "assumed", None, "retry")
