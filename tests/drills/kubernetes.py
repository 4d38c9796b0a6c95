"""Twenty jobs on a real control plane, each ended in its own way, told by the bridge and judged live.

    make drill-kubernetes        # needs a lab that brings a control plane up (LAB_KUBERNETES) and Java for Kafka

In the middle the API server is taken down for a while, and later the bridge is killed. What was told is kept beside the
truth (tests/data/drills), and replayed by tests/acceptance/test_drills.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, Final

from tests.drills.kubelab import MERGE, NAMESPACE, Api, Kubelet, Lab, now, until
from tests.drills.kubeplayer import Player, container
from tests.drills.pipeline import Pipeline, judged, pipeline, report, say
from tests.drills.truth import Truth

RECORDED: Final = Path(__file__).parents[1] / "data" / "drills"
DRIVER: Final = "gpu.nvidia.com"
TRACE: Final = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\nKeyError: 'lr'"
GONE_IMAGE: Final = (
    'failed to pull and unpack image "registry.lab/train:nope": failed to resolve reference'
    ' "registry.lab/train:nope": registry.lab/train:nope: not found'
)
BROKEN_REGISTRY: Final = (
    'failed to pull and unpack image "registry.lab/train:1": failed to copy: httpReadSeeker: failed open: unexpected'
    " status code https://registry.lab/v2/train/blobs/sha256:1: 503 Service Unavailable"
)


# --- the twenty jobs -----------------------------------------------------------------------------------


def good(player: Player, name: str) -> None:
    player.exits(player.runs(name)[0], 0)
    player.ends_as(name, "succeeded")


def exception(player: Player, name: str) -> None:
    player.dies(player.runs(name)[0], 1, "Error", TRACE)
    player.fails(name, "user", "app.exception app.config", what="a traceback")


def out_of_memory(player: Player, name: str) -> None:
    player.exits(player.runs(name)[0], 137, "OOMKilled")
    player.fails(name, "user", "app.oom.host", what="OOMKilled")


def crash(player: Player, name: str) -> None:
    player.exits(player.runs(name)[0], 139)
    player.fails(name, "user", "app.crash", what="a segmentation fault")


def evicted(player: Player, name: str) -> None:
    pod = player.placed(name)
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "TerminationByKubelet",
        "lastTransitionTime": now(),
    }
    why = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 2Gi."
    player.api.patch_pod(pod, {"phase": "Failed", "reason": "Evicted", "message": why, "conditions": [target]})
    player.fails(name, "platform", "platform.eviction", what="evicted by the kubelet")


def drained(player: Player, name: str) -> None:
    pod = player.runs(name)[0]["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
    player.api.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction", eviction)
    player.fails(name, "platform", what="evicted by whoever drained")
    good_again(player, name, but=pod, attempt=2)


def good_again(player: Player, name: str, *, but: str, attempt: int) -> None:
    """Let the pod that came after another one succeed."""

    def there() -> Any:
        return [p for p in player.api.pods(name) if p["metadata"]["name"] != but and p["status"]["phase"] == "Running"]

    player.exits(until(f"the next pod of {name}", there)[0], 0)
    player.ends_as(name, "succeeded", attempt)


def preempted(player: Player, name: str) -> None:
    pod = player.runs(name)[0]["metadata"]["name"]
    high: dict[str, Any] = {
        "limits": {"nvidia.com/gpu": "8"},
        "pod": {"priorityClassName": "high", "nodeSelector": {"kubernetes.io/hostname": "gpu-8"}},
    }
    player.job("j10", node="gpu-8", **high)
    player.ends_as(name, "preempted")
    good(player, "j10")
    good_again(player, name, but=pod, attempt=2)


def node_lost(player: Player, name: str) -> None:
    player.runs(name)
    player.api.annotate("/api/v1/nodes/gpu-7", lab_silent="yes")
    player.fails(name, "hardware platform", "host.lost platform.eviction", node="gpu-7", what="its node fell silent")

    def gone() -> bool:
        return all(
            p["metadata"].get("deletionTimestamp") or not p["spec"].get("nodeName") for p in player.api.pods(name)
        )

    until("the pods of the lost node to be taken away", gone)
    sleep(8)
    player.delete(name)
    player.ends_as(name, "cancelled", 2)


def image(message: str, classes: str, codes: str) -> Callable[[Player, str], None]:
    def cannot_be_pulled(player: Player, name: str) -> None:
        pod = player.placed(name)
        for reason, said in (
            ("ErrImagePull", message),
            ("ImagePullBackOff", "Back-off pulling image"),
            ("ErrImagePull", message),
        ):
            waiting = container({"waiting": {"reason": reason, "message": said}})
            player.api.patch_pod(pod, {"phase": "Pending", "startTime": now(), "containerStatuses": [waiting]})
            sleep(1)
        player.delete(name)
        player.fails(name, classes, codes, what="its image cannot be pulled")

    return cannot_be_pulled


def refused(player: Player, name: str) -> None:
    pod = player.placed(name)
    why = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu"
    player.api.patch_pod(
        pod, {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": why, "startTime": now()}
    )
    player.fails(name, "platform hardware", what="refused by the kubelet")


def too_long(player: Player, name: str) -> None:
    player.runs(name)
    player.fails(name, "user", "app.time_limit", what="its deadline passed")


def cancelled(player: Player, name: str) -> None:
    player.runs(name)
    player.delete(name)
    player.ends_as(name, "cancelled")


def gang(player: Player, name: str) -> None:
    player.exits(player.runs(name, 4)[2], 139)
    player.fails(name, "user", "app.crash", what="one of four crashed, and the job was over")


def gang_survives(player: Player, name: str) -> None:
    first = player.runs(name, 4)
    player.exits(first[1], 139)
    lost = first[1]["metadata"]["name"]
    player.fails(name, "user", "app.crash", loss=1, what="one of four crashed and was replaced")

    def whole_again() -> list[dict[str, Any]]:
        live = [p for p in player.runs(name, 1) if p["metadata"]["name"] != lost]
        return live if len(live) == 4 else []

    for pod in until(f"four workers of {name} again", whole_again):
        player.exits(pod, 0)
    player.ends_as(name, "succeeded")


def tried_again(player: Player, name: str) -> None:
    for attempt in (1, 2):
        pod = player.runs(name)[0]
        player.exits(pod, 1)
        player.fails(name, "user", attempt=attempt, what="exit code 1")
        done = pod["metadata"]["name"]
        until(f"{done} to be over", partial(_is_over, player, name, done))
    player.exits(player.runs(name)[0], 0)
    player.ends_as(name, "succeeded", 3)


def _is_over(player: Player, name: str, pod: str) -> bool:
    return pod not in [p["metadata"]["name"] for p in player.api.pods(name) if p["status"]["phase"] == "Running"]


# --- the device that is removed while a job runs on it --------------------------------------------------


def slice_of(generation: int, *devices: str) -> dict[str, Any]:
    """Return the slice of the node `bare-2`."""
    offered = [{"name": d, "attributes": {"uuid": {"string": f"GPU-{d}"}, "type": {"string": "gpu"}}} for d in devices]
    pool = {"name": "bare-2", "generation": generation, "resourceSliceCount": 1}
    return {"driver": DRIVER, "nodeName": "bare-2", "pool": pool, "devices": offered}


def prepare_devices(api: Api) -> None:
    """Offer two devices on `bare-2`, and a template for claims of one."""
    api.make("/apis/resource.k8s.io/v1/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    api.make(
        "/apis/resource.k8s.io/v1/resourceslices",
        {"metadata": {"name": "bare-2"}, "spec": slice_of(1, "gpu-0", "gpu-1")},
    )
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    template = {"metadata": {"name": "one-gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    api.make(f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaimtemplates", template)


def removed_device(player: Player, name: str) -> None:
    pod = player.placed(name)
    claims = player.api.ask("GET", f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims")["items"]
    device = next(
        c["status"]["allocation"]["devices"]["results"][0]["device"]
        for c in claims
        if c["metadata"]["name"].startswith(name)
    )
    begun = now()
    player.api.patch_pod(
        pod,
        {"phase": "Running", "startTime": begun, "containerStatuses": [container({"running": {"startedAt": begun}})]},
    )
    sleep(5)
    left = "gpu-1" if device == "gpu-0" else "gpu-0"
    player.api.ask(
        "PATCH",
        "/apis/resource.k8s.io/v1/resourceslices/bare-2",
        {"spec": slice_of(2, left)},
        "application/merge-patch+json",
    )
    health = [{"resourceID": f"{DRIVER}/bare-2/{device}", "health": "Unhealthy"}]
    for restart in range(6):
        sleep(2)
        done = {"exitCode": 1, "reason": "Error", "startedAt": begun, "finishedAt": now()}
        sick = {"allocatedResourcesStatus": [{"name": "claim:gpu", "resources": health}]}
        player.api.patch_pod(pod, {"containerStatuses": [container({"terminated": done}, restart, **sick)]})
        player.fails(
            name, "hardware", "gpu", attempt=restart + 1, node="bare-2", device=device, what="its device was removed"
        )
        if restart == 5:
            break
        sleep(7)
        begun = now()
        again = container({"running": {"startedAt": begun}}, restart + 1, lastState={"terminated": done}, **sick)
        player.api.patch_pod(pod, {"containerStatuses": [again]})
    player.delete(name)


JOBS: Final[tuple[tuple[str, dict[str, Any], Callable[[Player, str], None]], ...]] = (
    ("j01", {}, good),
    ("j02", {}, good),
    ("j03", {}, good),
    ("j04", {}, exception),
    ("j05", {}, out_of_memory),
    ("j06", {}, crash),
    ("j07", {"node": "bare-1"}, evicted),
    ("j08", {"backoff": 3}, drained),
    ("j09", {"node": "gpu-8", "limits": {"nvidia.com/gpu": "8"}, "backoff": 3}, preempted),
    ("j11", {"node": "gpu-7", "pod": {"tolerations": [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
        for key in ("unreachable", "not-ready")
    ]}, "backoff": 3}, node_lost),
    ("j12", {"node": "bare-1"}, image(GONE_IMAGE, "user", "app.config.image")),
    ("j13", {"node": "bare-1"}, image(BROKEN_REGISTRY, "platform", "platform.registry")),
    ("j14", {"node": "bare-1"}, refused),
    ("j15", {"activeDeadlineSeconds": 20}, too_long),
    ("j16", {}, cancelled),
    ("j17", {"pods": 4}, gang),
    ("j18", {"pods": 4, "backoff": 3}, gang_survives),
    ("j19", {"backoff": 3}, tried_again),
    ("j20", {"node": "bare-2", "backoff": 20, "limits": {}, "container": {"resources": {"claims": [{"name": "gpu"}]}},
             "pod": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
                     "restartPolicy": "OnFailure"}},
     removed_device),
)  # fmt: skip


def play(line: Pipeline, lab: Lab, player: Player, bridge: list[str]) -> None:
    """Run all jobs; in the middle the API server is away for a while, and later the bridge is killed."""
    for number, (name, asked, end) in enumerate(JOBS):
        line.check()
        say(f"{name}: {end.__name__}")
        player.job(name, **asked)
        end(player, name)
        if number == len(JOBS) // 2:
            for _ in lab.restart_api_server():
                say("the API server is away")
                sleep(10)
            until("the API server to be back", lambda: player.api.pods() is not None)
        if number == len(JOBS) * 3 // 4:
            say("the bridge is killed")
            line.stop_bridge(kill=True)
            sleep(3)
            line.start_bridge(*bridge)


def main(tool: Path, state: Path) -> int:
    """Run the drill; return 0 when every verdict is right."""
    lab = Lab(tool, state)
    with lab.running() as api, ExitStack() as stack:
        _prepared(api)
        kubelet = Kubelet(api, ("bare-1", "bare-2"))
        kubelet.start()
        stack.callback(kubelet.stop)
        line = stack.enter_context(pipeline())
        bridge = [
            "kubernetes",
            "--cluster",
            "lab",
            "--kubeconfig",
            str(lab.kubeconfig),
            "--state",
            str(state / "bridge"),
        ]
        line.start_bridge(*bridge)
        player = Player(api)
        until("the bridge to watch", lambda: line.hears("watching"))
        sleep(10)
        play(line, lab, player, bridge)
        truth = Truth(tuple(player.failures), player.ends, ((f"{NAMESPACE}/j20", "crash_loop"),))
        return report(line, truth, judged(line, truth), RECORDED, "kubernetes")


def _prepared(api: Api) -> None:
    """Make what the jobs need: a namespace, a priority, a pool of nodes, and devices."""
    api.make_namespace()
    api.make("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1_000})
    for number in range(1, 7):
        api.ask("PATCH", f"/api/v1/nodes/gpu-{number}", {"metadata": {"labels": {"pool": "main"}}}, MERGE)
    prepare_devices(api)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
