"""Chains of owners: Ray's jobs, clusters and services, Kubeflow's TrainJobs, and sets of leaders and workers.

The objects have the fields that their APIs define (ray.io/v1, trainer.kubeflow.org/v1alpha1, jobset.x-k8s.io/v1alpha2,
leaderworkerset.x-k8s.io/v1), as their controllers make them one from another.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.kubernetes_world import Lab, at, ended, job, meta, owned, pod, running, status


def template(gpus: int = 0) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {"spec": {"containers": [{"name": "ray", "image": "registry/ray:2", "resources": {"limits": limits}}]}}


def ray(workers: int = 2) -> dict[str, Any]:
    """Return what a Ray cluster is asked to be: a head without GPUs, and workers with eight each."""
    group = {"groupName": "gpu", "replicas": workers, "numOfHosts": 1, "template": template(8)}
    return {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [group]}


def of(kind: str, name: str, thing: dict[str, Any]) -> dict[str, Any]:
    """Return an object that another one made."""
    thing["metadata"]["ownerReferences"] = owned(kind, name)
    return thing


# --- Ray -------------------------------------------------------------------------------------------------


def ray_job(**state: Any) -> dict[str, Any]:
    spec = {"entrypoint": "python train.py", "rayClusterSpec": ray(), "submissionMode": "K8sJobMode", "backoffLimit": 1}
    return {"metadata": meta("tune"), "kind": "RayJob", "spec": spec, "status": state}


def ray_pods(lab: Lab, cluster: str, second: float) -> list[dict[str, Any]]:
    """Have a cluster of a RayJob come up, with the pod that submits the job to it; return its pods."""
    lab.sees(
        "RayCluster", of("RayJob", "tune", {"metadata": meta(cluster), "kind": "RayCluster", "spec": ray()}), second
    )
    pods = []
    for name, gpus in (("head", 0), ("gpu-0", 8), ("gpu-1", 8)):
        marks = {"ray.io/cluster": cluster}
        one = pod(
            f"{cluster}-{name}", node=f"n-{name}", gpus=gpus, marks=marks, phase="Running", **status(running(second))
        )
        pods.append(of("RayCluster", cluster, one))
    submitter = f"{cluster}-submitter"
    lab.sees("Job", of("RayJob", "tune", job(submitter, gpus=0)), second)
    waits = pod(f"{submitter}-x", of=submitter, node="n-head", gpus=0, phase="Running", **status(running(second)))
    pods.append(waits)
    for one in pods[1:]:
        lab.sees("Pod", one, second)
    lab.sees("Pod", pods[0], second)
    return pods


def over(one: dict[str, Any], code: int, second: float) -> dict[str, Any]:
    phase = "Succeeded" if code == 0 else "Failed"
    return one | {"status": {**one["status"], "phase": phase, **status(ended(code, second))}}


def test_a_ray_job_is_one_job_with_its_cluster_s_pods_and_ends_as_ray_says_though_the_cluster_stays() -> None:
    lab = Lab()
    lab.sees("RayJob", ray_job(), 0)
    lab.restarts()
    pods = ray_pods(lab, "tune-a1", 10)
    lab.sees("Pod", over(pods[-1], 0, 200), 200)
    lab.sees("RayJob", ray_job(jobStatus="SUCCEEDED", jobDeploymentStatus="Running"), 200)
    lab.waits(300)
    assert lab.of("job.ended") == []
    lab.sees("RayJob", ray_job(jobStatus="SUCCEEDED", jobDeploymentStatus="Complete", endTime=at(205)), 305)
    lab.restarts()
    lab.waits(370)
    [asked] = lab.of("job.submitted")
    assert (asked["job_id"], asked["workload"], asked["gpus"], asked["nodes"]) == ("ml/tune", "training", 16, 3)
    assert {s["node"] for a in lab.of("job.allocated") for s in a["allocation"]} >= {"n-head", "n-gpu-0", "n-gpu-1"}
    assert [(e["attempt"], e["outcome"]) for e in lab.of("job.ended")] == [(1, "succeeded")]


def test_another_cluster_is_another_attempt_of_a_ray_job_and_the_word_counts_when_no_more_are_made() -> None:
    lab = Lab()
    lab.sees("RayJob", ray_job(), 0)
    first = ray_pods(lab, "tune-a1", 10)
    lab.sees("Pod", over(first[-1], 1, 60), 60)
    failed = {"jobStatus": "FAILED", "rayClusterName": "tune-a1", "message": "exit code 1"}
    lab.sees("RayJob", ray_job(jobDeploymentStatus="Retrying", **failed), 61)
    for one in first:
        lab.loses("Pod", one, 65)
    second = ray_pods(lab, "tune-b2", 80)
    lab.sees("Pod", over(second[-1], 1, 130), 130)
    lab.sees(
        "RayJob",
        ray_job(jobStatus="FAILED", jobDeploymentStatus="Failed", reason="AppFailed", message="no", endTime=at(131)),
        131,
    )
    lab.waits(300)
    assert [(e["attempt"], e["outcome"]) for e in lab.of("job.ended")] == [(1, "failed"), (2, "failed")]
    assert {a["attempt"] for a in lab.of("job.allocated")} == {1, 2}


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ({"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete"}, "cancelled"),
        ({"jobStatus": "RUNNING", "jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}, "timed_out"),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Complete", "message": "exit code 1"}, "failed"),
        ({"jobDeploymentStatus": "Failed", "reason": "SubmissionFailed"}, "failed"),
        ({"jobDeploymentStatus": "Failed", "reason": {"of": "another kind"}, "endTime": 7}, "failed"),
    ],
)
def test_what_ray_says_of_a_job_is_its_outcome(state: dict[str, Any], outcome: str) -> None:
    lab = Lab()
    lab.sees("RayJob", ray_job(), 0)
    ray_pods(lab, "tune-a1", 10)
    lab.sees("RayJob", ray_job(**state), 100)
    lab.waits(200)
    assert [e["outcome"] for e in lab.of("job.ended")] == [outcome]


def test_a_ray_job_that_its_operator_finds_invalid_never_started() -> None:
    lab = Lab()
    lab.sees("RayJob", ray_job(), 0)
    lab.sees("RayJob", ray_job(jobDeploymentStatus="ValidationFailed", reason="ValidationFailed", message="no"), 5)
    lab.waits(100)
    assert [(e["attempt"], e["outcome"]) for e in lab.of("job.ended")] == [(1, "never_started")]


def test_a_cluster_that_nobody_runs_a_job_on_is_somebody_s_own_and_one_of_a_service_serves() -> None:
    lab = Lab()
    lab.sees("RayCluster", {"metadata": meta("mine"), "kind": "RayCluster", "spec": ray(workers=1)})
    spec = {"serveConfigV2": "…", "rayClusterConfig": ray(workers=3)}
    lab.sees("RayService", {"metadata": meta("chat"), "kind": "RayService", "spec": spec})
    below = {"metadata": meta("chat-x"), "kind": "RayCluster", "spec": ray(workers=3)}
    lab.sees("RayCluster", of("RayService", "chat", below))
    told = {s["job_id"]: (s["workload"], s["gpus"]) for s in lab.of("job.submitted")}
    assert told == {"ml/mine": ("interactive", 8), "ml/chat": ("inference", 24)}


# --- Kubeflow's trainer ------------------------------------------------------------------------------------


def train_job(*conditions: dict[str, Any]) -> dict[str, Any]:
    trainer = {"image": "registry/train:1", "numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer, "suspend": False}
    return {"metadata": meta("llm"), "kind": "TrainJob", "spec": spec, "status": {"conditions": list(conditions)}}


def test_a_train_job_is_one_job_above_its_jobset_and_jobs() -> None:
    lab = Lab()
    lab.sees("TrainJob", train_job())
    groups = [{"name": "node", "replicas": 1, "template": {"spec": job(pods=2)["spec"]}}]
    below = {"metadata": meta("llm-set"), "kind": "JobSet", "spec": {"replicatedJobs": groups}}
    lab.sees("JobSet", of("TrainJob", "llm", below))
    lab.sees("Job", of("JobSet", "llm-set", job("llm-node-0", pods=2)))
    lab.restarts()
    for rank in (0, 1):
        marks = {"jobset.sigs.k8s.io/restart-attempt": "0", "batch.kubernetes.io/job-completion-index": str(rank)}
        one = pod(
            f"llm-{rank}", of="llm-node-0", node=f"gpu-{rank}", marks=marks, phase="Running", **status(running(10))
        )
        lab.sees("Pod", one, 10)
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": at(100)}
    lab.sees("TrainJob", train_job(failed), 100)
    lab.waits(200)
    assert [(s["job_id"], s["gpus"], s["nodes"]) for s in lab.of("job.submitted")] == [("ml/llm", 16, 2)]
    assert [s["attempt"] for s in lab.of("job.started")] == [1]
    assert [(e["job_id"], e["outcome"]) for e in lab.of("job.ended")] == [("ml/llm", "timed_out")]


# --- leaders and workers -----------------------------------------------------------------------------------

LWS = "leaderworkerset.sigs.k8s.io"


def leader_worker_set(replicas: int = 2) -> dict[str, Any]:
    parts = {"size": 2, "workerTemplate": template(8), "restartPolicy": "RecreateGroupOnPodRestart"}
    spec = {"replicas": replicas, "leaderWorkerTemplate": parts}
    return {"metadata": meta("serve"), "kind": "LeaderWorkerSet", "spec": spec}


def member(group: int, index: int, uid: str = "", **state: Any) -> dict[str, Any]:
    """Return a pod of a group: the leader is its set's, a worker that of a set which the leader's pod owns."""
    name = f"serve-{group}" if index == 0 else f"serve-{group}-{index}"
    marks = {f"{LWS}/name": "serve", f"{LWS}/group-index": str(group), f"{LWS}/worker-index": str(index)}
    node = f"gpu-{group}{index}"
    one = pod(name, node=node, marks=marks, phase="Running", **(state or status(running(10))))
    one["metadata"] |= {"annotations": {f"{LWS}/size": "2"}, "uid": uid or f"uid-{name}"}
    return of("StatefulSet", "serve" if index == 0 else f"serve-{group}", one)


def below(name: str, kind: str, owner: str) -> dict[str, Any]:
    """Return one of the sets that are made for the leaders, or for a leader's workers."""
    made = {"metadata": meta(name, labels={f"{LWS}/name": "serve"}), "kind": "StatefulSet"}
    return of(kind, owner, made | {"spec": {"replicas": 2, "template": template(8)}})


def test_a_group_of_a_leader_and_its_workers_is_one_attempt_and_starts_when_it_is_whole() -> None:
    lab = Lab()
    lab.sees("LeaderWorkerSet", leader_worker_set())
    lab.sees("StatefulSet", below("serve", "LeaderWorkerSet", "serve"))
    lab.sees("StatefulSet", below("serve-0", "Pod", "serve-0"))
    for group, index in ((0, 0), (1, 0), (1, 1)):
        lab.sees("Pod", member(group, index), 10)
    assert [s["attempt"] for s in lab.of("job.started")] == [2]
    lab.restarts()
    lab.sees("Pod", member(0, 1), 20)
    [asked] = lab.of("job.submitted")
    assert (asked["job_id"], asked["workload"], asked["gpus"], asked["replicas"]) == ("ml/serve", "inference", 32, 2)
    assert [s["attempt"] for s in lab.of("job.started")] == [2, 1]
    nodes = {(a["attempt"], s["node"]) for a in lab.of("job.allocated") for s in a["allocation"]}
    assert nodes == {(1, "gpu-00"), (1, "gpu-01"), (2, "gpu-10"), (2, "gpu-11")}


def test_a_group_that_is_made_anew_after_one_of_its_workers_failed_is_the_next_attempt() -> None:
    lab = Lab()
    lab.sees("LeaderWorkerSet", leader_worker_set(replicas=1))
    first = [member(0, index) for index in (0, 1)]
    for one in first:
        lab.sees("Pod", one, 10)
    lab.sees("Pod", over(first[1], 139, 60), 60)
    for one in (over(first[1], 139, 60), first[0]):
        lab.loses("Pod", one, 62)
    for index in (0, 1):
        lab.sees("Pod", member(0, index, uid=f"uid-again-{index}", **status(running(70))), 70)
    lab.waits(80)
    assert [(e["attempt"], e["outcome"], e["exit_code"]) for e in lab.of("job.ended")] == [(1, "failed", 139)]
    assert [s["attempt"] for s in lab.of("job.started")] == [1, 2]
