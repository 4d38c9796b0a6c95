"""What nodes tell of faults to the attempts that held them, in whatever order it arrives, and until when."""

from __future__ import annotations

import pytest

from faultlens import topics
from faultlens.clock import DAY_MS, MINUTE_MS
from faultlens.events import JobAllocated, JobPending, JobStarted, JobSubmitted, Scope, Slot, Stalled
from faultlens.internal import Condition, NodeEvidence
from streams.node_health.record import CONDITIONS_MAX, EVIDENCE_MAX, FAULTS_MAX
from tests.unit.scenes import MISTAKE, PEER, TRACE, UNKNOWN, WATCHDOG, Run, Scene, at

LOST = ("gpu.off_bus", "established", "n1/0", "retry_elsewhere")
DAY = DAY_MS // MINUTE_MS


def job(until: float = 60) -> Scene:
    scene = Scene().node("n1", "n2", until=until, every=5)
    scene.job("j", "n1").steps("j", 0.5, 10).exit(10, "j", 0, "n1", UNKNOWN)
    return scene.end(10.1, "j")


def told_of(run: Run, job_id: str) -> list[str]:
    found = [e for e in run.all(topics.EVIDENCE, NodeEvidence) if e.job_id == job_id]
    return sorted({o.code for evidence in found for o in evidence.observations})


# --- order and lateness ----------------------------------------------------------------------------------


def test_a_fault_that_arrives_after_the_final_verdict_amends_it_once() -> None:
    run = job().fault(9.99, "n1", "xid", "79", 0, arrives=30).run(60)
    assert run.statuses("j") == ["provisional", "final", "amended"]
    assert run.told("j") == LOST


def test_after_a_week_no_evidence_changes_a_verdict() -> None:
    run = job().fault(9.99, "n1", "xid", "79", 0, arrives=8 * DAY).run(8 * DAY + 10)
    assert run.statuses("j") == ["provisional", "final"]


@pytest.mark.parametrize("arrives", [(10.2, 10.3, 11, 11.2), (11.2, 10.2, 10.5, 10.4), (10.3, 14, 10.2, 10.4)])
def test_end_fault_start_and_allocation_may_arrive_in_any_order(arrives: tuple[float, float, float, float]) -> None:
    end, fault, start, allocation = arrives
    scene = Scene().node("n1", "n2", until=40).end(10.1, "j", arrives=end)
    scene.fault(9.99, "n1", "xid", "79", 0, arrives=fault).say(0.5, JobStarted("j", 1), "launcher/l", arrives=start)
    held = JobAllocated("j", 1, "c1", (Slot("n1", (0, 1)),))
    run = scene.say(0, held, "launcher/l", arrives=allocation).run(40)
    assert run.told("j") == LOST
    assert run.statuses("j").count("final") == 1
    assert sum(run.ledger("j").values()) == pytest.approx(20.2)


def test_the_final_verdict_rests_on_what_lies_in_the_window_and_not_on_what_came_after_it() -> None:
    assert job().fault(14, "n1", "other", "diagnostic_failed", 0).run(40).verdict("j").cause.code == "gpu.compute"
    assert job().fault(16, "n1", "other", "diagnostic_failed", 0).run(40).verdict("j").cause.code == "gpu.unknown"


def test_a_test_that_finds_wrong_results_within_the_hour_tells_of_a_gpu_that_computed_wrongly_before() -> None:
    found = job().fault(50, "n1", "other", "compute_mismatch", 0).run(80)
    assert found.verdict("j").cause.code == "gpu.compute.wrong_result"
    assert found.statuses("j")[-1] == "amended"
    too_late = job().fault(80, "n1", "other", "compute_mismatch", 0).run(95)
    assert too_late.verdict("j").cause.code == "gpu.unknown"


def test_a_provisional_verdict_is_written_again_only_when_it_says_something_else() -> None:
    run = job().fault(11, "n1", "xid", "63", 0).fault(11.5, "n1", "xid", "45", 0).run(40)
    assert run.statuses("j") == ["provisional", "final"]


# --- who is told -----------------------------------------------------------------------------------------


def test_only_those_who_held_the_device_are_told_of_its_fault() -> None:
    scene = Scene().node("n1").job("a", "n1", gpus=(0, 1)).job("b", "n1", gpus=(2, 3)).job("c", "n2")
    run = scene.fault(5, "n1", "xid", "79", 1).run(20)
    assert [told_of(run, name) for name in "abc"] == [["79"], [], []]


def test_a_fault_of_the_whole_node_is_told_to_all_who_hold_any_of_it() -> None:
    scene = Scene().node("n1").job("a", "n1", gpus=(0, 1)).job("b", "n1", gpus=(2, 3))
    run = scene.fault(5, "n1", "host_memory", "uncorrectable").run(20)
    assert [told_of(run, name) for name in "ab"] == [["uncorrectable"], ["uncorrectable"]]


def test_who_had_ended_well_before_the_fault_is_not_told() -> None:
    scene = Scene().node("n1").job("a", "n1").end(3, "a", "succeeded").job("b", "n1", minute=3.5, user="bob")
    run = scene.fault(15, "n1", "xid", "79", 1).run(20)
    assert (told_of(run, "a"), told_of(run, "b")) == ([], ["79"])


def test_a_synthetic_fault_opens_no_condition() -> None:
    run = Scene().node("n1").job("a", "n1").fault(5, "n1", "xid", "79", 1, synthetic=True).run(20)
    assert run.all(topics.CONDITIONS, Condition) == []


def test_a_condition_is_opened_once_and_cleared_once() -> None:
    scene = Scene().node("n1", until=9).node("n1", since=10, until=14, failing={"ecc": "fail"}).node("n1", since=15)
    for second in range(50):
        scene.fault(9.5 + second / 600, "n1", "xid", "95", 1, count=1000)
    phases = [(c.phase, c.observation.code) for c in scene.run(40).all(topics.CONDITIONS, Condition)]
    assert sorted(phases) == [("cleared", "95"), ("cleared", "ecc"), ("opened", "95"), ("opened", "ecc")]


def test_a_storm_is_one_entry_with_its_count_and_many_codes_stay_within_the_limit() -> None:
    scene = Scene().node("n1", "n2").job("j", "n1").steps("j", 0.5, 10)
    for number in range(FAULTS_MAX + CONDITIONS_MAX):
        scene.fault(9 + number / 1000, "n1", "other", f"odd_{number}", 0)
    for second in range(60):
        scene.fault(9.9 + second / 1000, "n1", "xid", "95", 0, count=10_000)
    run = scene.exit(10, "j", 0, "n1", UNKNOWN).end(10.1, "j").run(30)
    assert run.told("j") == ("gpu.memory.uncontained", "established", "n1/0", "retry_elsewhere")
    assert max(len(e.observations) for e in run.all(topics.EVIDENCE, NodeEvidence)) == EVIDENCE_MAX


# --- checks as evidence ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "status", "text", "expected"),
    [
        ("gpu_count", "fail", UNKNOWN, ("gpu.off_bus", "established", "n1", "retry_elsewhere")),
        ("ecc", "fail", UNKNOWN, ("gpu.memory.uncorrectable", "established", "n1", "retry_elsewhere")),
        ("driver_responds", "timeout", PEER, ("driver.hang", "established", "n1", "retry_elsewhere")),
        ("ib_links", "fail", PEER, ("network.link.down", "established", "n1", "retry_elsewhere")),
        ("mounts", "fail", TRACE + "OSError: [Errno 5] Input/output error: '/data/x'",
         ("platform.storage.mount", "established", None, "retry")),
        ("thermal", "fail", UNKNOWN, ("gpu.thermal.slowdown", "supported", "n1", "retry_elsewhere")),
        ("gpu_count", "fail", MISTAKE, ("app.exception", "supported", None, "do_not_retry")),
    ],
)  # fmt: skip
def test_a_check_that_stopped_passing_under_the_job_is_evidence(
    check: str, status: str, text: str, expected: tuple[str, str, str | None, str]
) -> None:
    scene = Scene().node("n1", until=9).node("n1", since=10, failing={check: status}).node("n2")
    scene.job("j", "n1", "n2").steps("j", 0.5, 9.5).exit(10.5, "j", 2, "n2", text).end(10.6, "j")
    assert scene.run(40).told("j") == expected


def test_what_keeps_a_job_from_starting_is_the_drivers_when_its_library_is_missing_on_the_node() -> None:
    missing = dict.fromkeys(("driver_responds", "ecc", "nvlink", "gpu_count"), "missing")
    scene = Scene().node("n1", failing=missing).node("n2").job("j", "n1", starts=False)
    run = scene.end(3, "j", "never_started", source="bridge/k8s", reason="StartError").run(30)
    assert run.told("j") == ("driver.missing", "established", "n1", "retry_elsewhere")
    assert run.counted("job_start") == (0, 1, {"driver": 1})
    assert run.counted("job_success") == (0, 0, {})


# --- what counts -----------------------------------------------------------------------------------------


def waiting(reason: str, message: str) -> Scene:
    scene = Scene().node("n1", until=90)
    scene.say(0, JobSubmitted("j", "c1", "training", 2, 1, user="ann"), "launcher/l")
    return scene.say(1, JobPending("j", reason, at(1), message=message), "bridge/k8s")


TAINTED = "0/1 nodes are available: 1 node(s) had untolerated taint gpu-lost"


def test_a_job_that_waits_for_broken_capacity_is_told_of_and_counts_as_a_bad_start() -> None:
    scene = waiting("FailedScheduling", TAINTED)
    run = scene.end(45, "j", "never_started", source="bridge/k8s", reason="FailedScheduling", message=TAINTED).run(60)
    assert run.told("j") == ("platform.scheduler", "supported", None, "retry")
    assert [finding.kind for finding in run.findings("j")] == ["stuck_pending"]
    assert run.counted("job_start") == (0, 1, {"platform": 1})


def test_a_job_that_waits_for_busy_capacity_starts_in_time_when_it_starts_soon_after_its_allocation() -> None:
    run = waiting("Priority", "waiting for busy nodes").attempt("j", "n1", minute=50).end(80, "j", "succeeded").run(90)
    assert run.counted("job_start") == (1, 1, {})
    assert run.findings("j") == []


def test_a_start_long_after_the_allocation_is_bad_and_charged_to_what_was_open_then() -> None:
    scene = Scene().node("n1", until=90).job("j", "n1", starts=False)
    run = scene.say(20, JobStarted("j", 1), "launcher/l").end(80, "j", "succeeded").run(90)
    assert run.counted("job_start") == (0, 1, {"platform": 1})


def test_ranks_that_are_absent_from_a_stuck_collective_are_a_finding_and_support_a_hang() -> None:
    scene = Scene().node("n1", "n2", until=40).job("j", "n1", "n2").steps("j", 0.5, 10)
    scene.alive("j", 11, 20, stalled=Stalled(at(10), (2,))).exit(20, "j", 0, "n1", WATCHDOG)
    run = scene.end(20.1, "j").run(40)
    assert run.told("j") == ("app.hang", "supported", None, "do_not_retry")
    assert [(f.kind, f.ranks, f.basis) for f in run.findings("j")] == [("hang", (2,), "supported")]


def test_a_bad_driver_is_the_drivers_on_every_node_of_its_rollout() -> None:
    scene = Scene().node("n1", "n2", "n3").rollout(0, "driver", scope=Scope(nodes=("n1", "n2")))
    for name, node in (("a", "n1"), ("b", "n2")):
        scene.job(name, node).fault(9.9, node, "xid", "119", 0).exit(10, name, 0, node, UNKNOWN).end(10.1, name)
    run = scene.run(30)
    assert [run.verdict(name).cause.cause_class for name in "ab"] == ["driver", "driver"]
