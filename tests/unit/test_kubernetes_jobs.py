"""Jobs by what becomes of their pods: attempts, losses, ends and their reasons, told once each."""

from __future__ import annotations

from typing import Any

import pytest

from faultlens.codec import Decoder, encode
from tests.unit.kubernetes_world import (
    Lab,
    at,
    ended,
    job,
    meta,
    node,
    owned,
    pod,
    running,
    status,
    waiting,
)


def started(**options: Any) -> Lab:
    """Return a lab in which the job `train` runs with one pod on a node of its own."""
    lab = Lab(**options)
    lab.sees("Node", node())
    lab.sees("Job", job())
    lab.sees("Pod", pod())
    lab.sees("Pod", pod(phase="Running", **status(running())), 10)
    return lab


def disrupted(reason: str, second: float = 50) -> list[dict[str, Any]]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": at(second)}]


def taken_away(reason: str) -> Any:
    return pod(conditions=disrupted(reason), deleted=50)


def failed(second: float = 60, **more: Any) -> Any:
    return pod(phase="Failed", **status(ended(1, second)), **more)


ENDS = {
    "an error": (failed(), "failed", "Error", 1),
    "too much memory": (pod(phase="Failed", **status(ended(137, 60, "OOMKilled"))), "failed", "OOMKilled", 137),
    "evicted by the kubelet": (
        pod(phase="Failed", reason="Evicted", message="low on memory", conditions=disrupted("TerminationByKubelet")),
        "failed",
        "Evicted",
        None,
    ),
    **{
        reason: (taken_away(reason), outcome, reason, None)
        for reason, outcome in (
            ("PreemptionByScheduler", "preempted"),
            ("DeletionByTaintManager", "failed"),
            ("DeletionByDeviceTaintManager", "failed"),
            ("EvictionByEvictionAPI", "failed"),
        )
    },
    "refused by the kubelet": (
        pod(phase="Failed", reason="UnexpectedAdmissionError", message="no healthy devices present"),
        "never_started",
        "UnexpectedAdmissionError",
        None,
    ),
    "out of time": (pod(phase="Failed", reason="DeadlineExceeded"), "timed_out", "DeadlineExceeded", None),
    "done": (pod(phase="Succeeded", **status(ended(0, 60, "Completed"))), "succeeded", None, 0),
}  # fmt: skip


@pytest.mark.parametrize(("last", "outcome", "reason", "code"), ENDS.values(), ids=ENDS)
def test_a_pod_ends_for_its_real_reason(last: Any, outcome: str, reason: str | None, code: int | None) -> None:
    lab = started()
    lab.sees("Pod", last, 60)
    lab.waits(66)
    [end] = lab.of("job.ended")
    assert (end["outcome"], end.get("reason"), end.get("exit_code"), end["attempt"]) == (outcome, reason, code, 1)


def test_what_is_seen_again_and_a_restart_of_the_bridge_tell_nothing_new() -> None:
    lab = started()
    lab.sees("Pod", failed(), 60)
    lab.waits(66)
    told = len(lab.told)
    lab.restarts()
    for _ in range(2):
        lab.sees("Node", node(), 70)
        lab.sees("Job", job(), 70)
        lab.sees("Pod", failed(), 70)
        lab.waits(76)
    assert [event.type for event in lab.told[told:]] == []


def test_every_event_can_be_read_by_whoever_knows_the_contract() -> None:
    lab = started()
    lab.sees("Pod", failed(), 60)
    lab.waits(200)
    decode = Decoder().decode
    assert [decode(encode(event)).data for event in lab.told] == [event.data for event in lab.told]


def test_the_next_pod_of_a_job_is_its_next_attempt() -> None:
    lab = started()
    lab.sees("Pod", failed(), 60)
    lab.sees("Pod", pod("train-b", conditions=[]), 75)
    lab.sees("Pod", pod("train-b", phase="Running", **status(running(80))), 80)
    assert [(end["attempt"], end["outcome"]) for end in lab.of("job.ended")] == [(1, "failed")]
    assert [a["attempt"] for a in lab.of("job.allocated")] == [1, 2]
    assert [s["attempt"] for s in lab.of("job.started")] == [1, 2]


def test_the_only_container_restarted_in_place_is_a_new_attempt_each_time() -> None:
    lab = started()
    for restart in range(1, 4):
        begun = 20 * restart
        lab.sees(
            "Pod",
            pod(phase="Running", **status(waiting("CrashLoopBackOff"), restart - 1, ended(1, begun - 5))),
            begun - 5,
        )
        lab.waits(begun - 1)
        lab.sees("Pod", pod(phase="Running", **status(running(begun), restart, ended(1, begun - 5))), begun)
    ends = lab.of("job.ended")
    assert [(end["attempt"], end["outcome"], end["exit_code"]) for end in ends] == [(n, "failed", 1) for n in (1, 2, 3)]
    assert [end["at"] for end in ends] == [15, 35, 55]
    assert [a["attempt"] for a in lab.of("job.allocated")] == [1, 2, 3, 4]


def test_a_restart_that_was_never_seen_between_is_an_attempt_too() -> None:
    lab = started()
    lab.sees("Pod", pod(phase="Running", **status(running(40), 1, ended(139, 35))), 40)
    [end] = lab.of("job.ended")
    assert (end["attempt"], end["exit_code"], end["restarts_with_attempt"], end["at"]) == (1, 139, 2, 35)
    assert [a["attempt"] for a in lab.of("job.allocated")] == [1, 2]


def gang(count: int = 3) -> Lab:
    lab = Lab()
    for index in range(count):
        lab.sees("Node", node(f"gpu-{index}"))
    lab.sees("Job", job(pods=count))
    for index in range(count):
        lab.sees("Pod", member(index), 5)
    for index in range(count):
        lab.sees("Pod", member(index, phase="Running", **status(running(10 + index))), 12)
    return lab


def member(index: int, name: str = "", **more: Any) -> Any:
    marks = {"batch.kubernetes.io/job-completion-index": str(index)}
    return pod(name or f"train-{index}", node=f"gpu-{index}", marks=marks, **more)


def test_a_gang_starts_when_the_last_of_its_workers_runs() -> None:
    lab = gang()
    [begun] = lab.of("job.started")
    assert begun["at"] == 12
    slots = [a["allocation"][0] for a in lab.of("job.allocated")]
    assert [(slot["node"], slot["ranks"]) for slot in slots] == [(f"gpu-{n}", [n]) for n in range(3)]


def test_one_of_several_workers_replaced_is_a_loss_and_the_job_goes_on() -> None:
    lab = gang()
    lab.sees("Pod", member(1, phase="Failed", **status(ended(1, 100))), 100)
    lab.sees("Pod", member(1, "train-1-again"), 110)
    losses = [change for change in lab.of("job.resized") if change["lost"]]
    assert [[slot["node"] for slot in loss["lost"]] for loss in losses] == [["gpu-1"]]
    assert lab.of("job.ended") == []
    assert [(e["rank"], e["exit_code"]) for e in lab.of("job.rank_exited")] == [(1, 1)]


def test_workers_that_all_restart_together_are_a_new_attempt_with_the_first_failure_as_its_reason() -> None:
    lab = gang()
    for index, code in enumerate((134, 1, 1)):
        again = status(running(110 + index), 1, ended(code, 100 + index))
        lab.sees("Pod", member(index, phase="Running", **again), 110 + index)
    [end] = lab.of("job.ended")
    assert (end["attempt"], end["outcome"], end["exit_code"], end["restarts_with_attempt"]) == (1, "failed", 1, 2)
    assert [e["exit_code"] for e in lab.of("job.rank_exited")] == [134, 1, 1]


def test_siblings_that_are_torn_down_after_a_failure_say_nothing() -> None:
    lab = gang()
    lab.sees("Pod", member(1, phase="Failed", **status(ended(139, 100))), 100)
    lab.sees("Job", job(pods=3, ended=("Failed", "BackoffLimitExceeded")), 101)
    for index in (0, 2):
        lab.sees("Pod", member(index, phase="Failed", deleted=101, **status(ended(143, 105))), 105)
    lab.waits(110)
    [end] = lab.of("job.ended")
    assert (end["outcome"], end["exit_code"], end["reason"]) == ("failed", 139, "Error")
    assert [e["rank"] for e in lab.of("job.rank_exited")] == [1]


def test_a_deadline_of_the_job_is_its_outcome_whatever_its_pods_ended_with() -> None:
    lab = started()
    lab.sees("Job", job(ended=("FailureTarget", "DeadlineExceeded")), 100)
    lab.sees("Pod", pod(phase="Failed", deleted=100, **status(ended(143, 102))), 102)
    lab.waits(107)
    assert [(e["outcome"], e["reason"]) for e in lab.of("job.ended")] == [("timed_out", "DeadlineExceeded")]


def test_a_job_that_its_user_deletes_was_cancelled() -> None:
    lab = started()
    lab.loses("Job", job(deletionTimestamp=at(50)), 50)
    lab.loses("Pod", pod(phase="Running", deleted=50, **status(ended(143, 55))), 56)
    lab.waits(62)
    assert [e["outcome"] for e in lab.of("job.ended")] == ["cancelled"]
    assert lab.translator.memory["job"] == {}
    assert lab.translator.memory["pod"] == {}


def test_a_job_s_end_that_is_heard_of_before_its_pods_is_held_back_until_they_are() -> None:
    lab = Lab()
    lab.sees("Job", job(pods=2))
    lab.sees("Job", job(pods=2, ended=("Complete", "CompletionsReached")), 100)
    lab.waits(101)
    for index in (0, 1):
        lab.sees("Pod", member(index, phase="Running", **status(running(10))), 101)
        lab.sees("Pod", member(index, phase="Succeeded", **status(ended(0, 99, "Completed"))), 102)
    lab.waits(108)
    lab.sees("Pod", member(1, "train-late", phase="Running", **status(running(10))), 109)
    lab.waits(300)
    assert [(e["attempt"], e["outcome"]) for e in lab.of("job.ended")] == [(1, "succeeded")]


def test_a_name_that_comes_back_is_another_job() -> None:
    lab = started()
    lab.loses("Job", job(deletionTimestamp=at(50)), 50)
    lab.loses("Pod", pod(deleted=50), 56)
    lab.waits(62)
    lab.sees("Job", job(uid="uid-second"), 70)
    assert [s["job_id"] for s in lab.of("job.submitted")] == ["ml/train", "uid-second"]


PULLS = (
    "manifest for registry/train:1 not found: manifest unknown",
    "unexpected status from HEAD request: 503 Service Unavailable",
)


@pytest.mark.parametrize("message", PULLS)
def test_an_image_that_cannot_be_pulled_is_told_with_what_the_registry_said(message: str) -> None:
    lab = Lab()
    lab.sees("Job", job())
    lab.sees("Pod", pod(**status(waiting("ErrImagePull", message))), 10)
    lab.sees("Pod", pod(**status(waiting("ImagePullBackOff", "Back-off pulling image"))), 20)
    lab.sees("Pod", pod(**status(waiting("ErrImagePull", message))), 40)
    lab.loses("Job", job(deletionTimestamp=at(50)), 50)
    lab.loses("Pod", pod(deleted=50, **status(waiting("ImagePullBackOff", "Back-off pulling image"))), 51)
    lab.waits(60)
    [end] = lab.of("job.ended")
    assert (end["outcome"], end["reason"], end["message"]) == ("never_started", "ErrImagePull", message)
    assert [p["message"] for p in lab.of("job.pending")] == [message]


def test_a_wait_is_told_when_its_reason_changes_and_not_when_only_numbers_do() -> None:
    lab = Lab()
    lab.sees("Job", job())
    for second, message in ((1, "0/8 nodes are available: 8 Insufficient nvidia.com/gpu."),
                            (9, "0/9 nodes are available: 9 Insufficient nvidia.com/gpu."),
                            (20, "0/9 nodes are available: 9 device(s) had untolerated taint")):  # fmt: skip
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at(1)}
        lab.sees("Pod", pod(node=None, conditions=[waits | {"message": message}]), second)
    told = [(p["reason"], p["message"][:40]) for p in lab.of("job.pending")]
    assert told == [
        ("Unschedulable", "0/8 nodes are available: 8 Insufficient "),
        ("Unschedulable", "0/9 nodes are available: 9 device(s) had"),
    ]


def test_a_job_that_gets_no_pods_is_told_with_the_reason() -> None:
    lab = Lab()
    lab.sees("Job", job())
    notice = {
        "metadata": meta("n1"),
        "involvedObject": {"kind": "Job", "name": "train", "namespace": "ml", "uid": "uid-train"},
        "reason": "FailedCreate",
        "message": 'pods "train-x" is forbidden: exceeded quota: team-a',
        "lastTimestamp": at(3),
    }
    lab.sees("Event", notice, 3)
    lab.sees("Job", job(ended=("Failed", "BackoffLimitExceeded")), 100)
    lab.waits(130)
    assert lab.of("job.ended") == []
    lab.waits(160)
    assert [p["reason"] for p in lab.of("job.pending")] == ["FailedCreate"]
    assert [(e["outcome"], e["attempt"]) for e in lab.of("job.ended")] == [("never_started", 1)]


def test_pods_that_hold_no_accelerator_are_left_alone_unless_they_are_asked_for() -> None:
    lab, all_ = Lab(), Lab(all_pods=True)
    for one in (lab, all_):
        one.sees("Pod", pod(of=None, gpus=0))
        one.sees("Job", job("clean", gpus=0))
    assert lab.told == []
    assert [s["job_id"] for s in all_.of("job.submitted")] == ["ml/train-a", "ml/clean"]


def test_a_pod_that_is_a_job_itself_is_told_with_its_priority() -> None:
    lab = Lab()
    lab.sees("Pod", pod(of=None, spec={"priority": 1_000}))
    assert [submitted["priority"] for submitted in lab.of("job.submitted")] == [1_000]


def test_a_jobset_is_one_job_and_its_restart_a_new_attempt() -> None:
    lab = Lab()
    template = job(pods=1)["spec"]
    groups = [{"name": "workers", "replicas": 2, "template": {"spec": template}}]
    lab.sees("JobSet", {"metadata": meta("set"), "kind": "JobSet", "spec": {"replicatedJobs": groups}})
    for attempt in (0, 1):
        for index in (0, 1):
            name = f"set-workers-{index}-{attempt}"
            owner = owned("JobSet", "set")
            lab.sees("Job", job(f"set-workers-{index}", uid=f"uid-job-{index}-{attempt}", ownerReferences=owner), 1)
            marks = {"jobset.sigs.k8s.io/restart-attempt": str(attempt)}
            one = pod(name, node=f"gpu-{index}", marks=marks, phase="Running", **status(running(10)))
            one["metadata"]["ownerReferences"] = owned("Job", f"set-workers-{index}", f"uid-job-{index}-{attempt}")
            lab.sees("Pod", one, 10 + 50 * attempt)
    assert {s["job_id"]: (s["gpus"], s["nodes"]) for s in lab.of("job.submitted")} == {"ml/set": (16, 2)}
    assert [a["attempt"] for a in lab.of("job.allocated")] == [1, 1, 2, 2]
    assert [(e["attempt"], e["restarts_with_attempt"]) for e in lab.of("job.ended")] == [(1, 2)]


def test_each_replica_of_a_service_is_an_attempt_and_what_is_wanted_is_told() -> None:
    lab = Lab()
    spec = {"replicas": 3, "template": job()["spec"]["template"]}
    lab.sees("Deployment", {"metadata": meta("chat"), "kind": "Deployment", "spec": spec})
    last: Any = None
    for letter in "abc":
        one = pod(
            f"chat-7f9-{letter}",
            node=f"gpu-{letter}",
            phase="Running",
            marks={"pod-template-hash": "7f9"},
            **status(running()),
        )
        one["metadata"]["ownerReferences"] = owned("ReplicaSet", "chat-7f9")
        lab.sees("Pod", one, 10)
        last = one
    lab.loses("Pod", last, 90)
    lab.waits(96)
    [asked] = lab.of("job.submitted")
    assert (asked["job_id"], asked["workload"], asked["replicas"]) == ("ml/chat", "inference", 3)
    assert [s["attempt"] for s in lab.of("job.started")] == [1, 2, 3]
    assert [(e["attempt"], e["outcome"]) for e in lab.of("job.ended")] == [(3, "cancelled")]


def test_what_vanished_while_nobody_watched_is_noticed_in_the_next_list() -> None:
    lab = started()
    lab.restarts()
    lab.lists("Job", set(), 100)
    lab.lists("Pod", set(), 100)
    lab.waits(106)
    assert [e["outcome"] for e in lab.of("job.ended")] == ["cancelled"]


def test_what_was_over_before_anybody_looked_is_not_told() -> None:
    lab = Lab()
    lab.sees("Job", job(ended=("Complete", "")))
    lab.sees("Pod", pod(phase="Succeeded", **status(ended(0, 60, "Completed"))))
    lab.waits(300)
    assert lab.told == []


def test_secrets_do_not_leave_in_last_words_or_messages() -> None:
    lab = started()
    words = "login with hf_abcdefghijklmnopqrstuvwx\nRuntimeError: boom"
    lab.sees("Pod", pod(phase="Failed", **status(ended(1, 60, message=words))), 60)
    lab.waits(66)
    [end] = lab.of("job.ended")
    assert end["log_tail"] == "login with [redacted]\nRuntimeError: boom"
