"""Ends that come another way: evictions that are called off, init containers that fail, names that come back late."""

from __future__ import annotations

from typing import Any

from faultlens.clock import DAY_MS, SECOND_MS
from tests.unit.kubernetes_world import Lab, ended, job, node, owned, pod, running, status, waiting
from tests.unit.test_kubernetes_jobs import disrupted, failed, started

DAY_S = DAY_MS // SECOND_MS
END = ("outcome", "reason", "exit_code", "message", "log_tail", "at")


def ends(lab: Lab) -> list[dict[str, Any]]:
    return [{name: end[name] for name in END if name in end} for end in lab.of("job.ended")]


def placed(**options: Any) -> Lab:
    """Return a lab in which the job's pod has its node and did not start."""
    lab = Lab(**options)
    lab.sees("Node", node())
    lab.sees("Job", job())
    lab.sees("Pod", pod())
    return lab


def prepared(state: dict[str, Any], **more: Any) -> Any:
    """Return the pod with one init container in such a state."""
    before = [{"name": "fetch", "restartCount": 0, "imageID": "", "state": state}]
    return pod(initContainerStatuses=before, **status(waiting("PodInitializing")), **more)


def test_a_preemption_that_is_called_off_is_no_end() -> None:
    lab = started()
    lab.sees("Pod", pod(phase="Running", conditions=disrupted("PreemptionByScheduler"), **status(running())), 50)
    lab.waits(60)
    called_off = [disrupted("PreemptionByScheduler", 170)[0] | {"status": "False"}]
    lab.sees("Pod", pod(phase="Running", conditions=called_off, **status(running())), 170)
    assert ends(lab) == []
    lab.sees("Pod", failed(500), 500)
    lab.sees("Job", job(ended=("Failed", "BackoffLimitExceeded")), 501)
    lab.waits(600)
    assert ends(lab) == [{"outcome": "failed", "reason": "Error", "exit_code": 1, "at": 500}]


def test_an_eviction_of_a_pod_whose_deletion_was_not_seen_is_its_end() -> None:
    lab = started()
    evicted = pod(phase="Running", conditions=disrupted("EvictionByEvictionAPI"), **status(running()))
    lab.sees("Pod", evicted, 50)
    lab.restarts()
    lab.lists("Pod", set(), 400)
    lab.waits(410)
    assert ends(lab) == [{"outcome": "failed", "reason": "EvictionByEvictionAPI", "at": 50}]


def test_an_init_container_that_fails_is_why_the_pod_did() -> None:
    lab = placed()
    lab.sees("Pod", prepared(ended(7, 20, message="no such bucket"), phase="Failed"), 20)
    lab.sees("Job", job(ended=("Failed", "BackoffLimitExceeded")), 21)
    lab.waits(120)
    assert ends(lab) == [
        {"outcome": "failed", "reason": "Error", "exit_code": 7, "log_tail": "no such bucket", "at": 20}
    ]


def test_an_init_container_whose_image_is_not_there_is_why_the_pod_never_started() -> None:
    lab = placed()
    last = prepared(waiting("ImagePullBackOff", "no such image"))
    lab.sees("Pod", last, 20)
    lab.loses("Pod", last, 400)
    lab.loses("Job", job(), 400)
    lab.waits(500)
    [end] = ends(lab)
    assert (end["outcome"], end["reason"], end["message"]) == ("never_started", "ImagePullBackOff", "no such image")


def again(second: float) -> Any:
    """Return a pod of another job of the same name, running."""
    one = pod("train-b", phase="Running", **status(running(second)))
    return one | {"metadata": one["metadata"] | {"ownerReferences": owned("Job", "train", "uid-again")}}


def test_a_job_that_ran_for_weeks_does_not_leave_its_name_to_the_next_one() -> None:
    lab = started()
    for day in range(1, 21):
        lab.waits(day * DAY_S)
    end_s = 20 * DAY_S
    lab.sees("Pod", failed(end_s), end_s)
    lab.loses("Pod", failed(end_s), end_s + 1)
    lab.loses("Job", job(), end_s + 1)
    lab.waits(end_s + 70)
    lab.sees("Job", job(uid="uid-again"), end_s + 100)
    lab.sees("Pod", again(end_s + 110), end_s + 110)
    assert [start["job_id"] for start in lab.of("job.started")] == ["ml/train", "uid-again"]


def test_names_of_jobs_that_are_long_gone_are_not_kept() -> None:
    lab = started()
    lab.sees("Pod", failed(60), 60)
    lab.loses("Pod", failed(60), 61)
    lab.loses("Job", job(), 61)
    lab.waits(70)
    assert set(lab.translator.memory["name"]) == {"ml/train"}
    lab.waits(13 * DAY_S)
    assert set(lab.translator.memory["name"]) == {"ml/train"}
    lab.waits(15 * DAY_S)
    assert lab.translator.memory["name"] == {}
