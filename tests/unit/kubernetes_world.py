"""Objects as a small cluster's API would write them, for tests of the Kubernetes bridge."""

from __future__ import annotations

import json
from typing import Any

from faultlens.clock import iso
from faultlens.codec import Event, encode
from producers.kubernetes.memory import taken
from producers.kubernetes.reading import read_object
from producers.kubernetes.telling import Names
from producers.kubernetes.translator import Translator

START_MS = 1_795_960_000_000
DRIVER = "gpu.nvidia.com"


def at(second: float) -> str:
    return iso(START_MS + round(second * 1_000))


def meta(name: str, uid: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "ml", "uid": uid or f"uid-{name}", "creationTimestamp": at(0), **more}


def owned(kind: str, name: str, uid: str = "") -> list[dict[str, Any]]:
    return [{"kind": kind, "name": name, "uid": uid or f"uid-{name}", "controller": True}]


def job(name: str = "train", *, pods: int = 1, gpus: int = 8, ended: tuple[str, str] | None = None, **more: Any) -> Any:
    """Return a batch Job; `ended`: its last condition and the condition's reason."""
    limits = {"nvidia.com/gpu": str(gpus)}
    container = {"name": "main", "image": "registry/train:1", "resources": {"limits": limits}}
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": {"containers": [container]}}}
    conditions = []
    if ended is not None:
        conditions = [{"type": ended[0], "status": "True", "reason": ended[1], "lastTransitionTime": at(100)}]
    return {"metadata": meta(name, **more), "kind": "Job", "spec": spec, "status": {"conditions": conditions}}


def pod(
    name: str = "train-a", *, of: str | None = "train", node: str | None = "gpu-1", gpus: int = 8, **more: Any
) -> Any:
    """Return a pod that waits to start; `more` goes into its status, `marks` into its labels."""
    references = owned("Job", of) if of is not None else []
    labels = more.pop("marks", {})
    deleted = more.pop("deleted", None)
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}]}
    spec |= more.pop("spec", {})
    conditions = list(more.pop("conditions", []))
    if node is not None:
        spec["nodeName"] = node
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(5)})
    metadata = meta(name, ownerReferences=references, labels=labels)
    if deleted is not None:
        metadata |= {"deletionTimestamp": at(deleted + 30), "deletionGracePeriodSeconds": 30}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "conditions": conditions, **more}}


def status(state: dict[str, Any], restarts: int = 0, last: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return the status of a pod with one container."""
    entry = {"name": "main", "restartCount": restarts, "imageID": "x@sha256:1", "state": state, **more}
    return {"containerStatuses": [entry | ({"lastState": last} if last is not None else {})]}


def running(second: float = 10) -> dict[str, Any]:
    return {"running": {"startedAt": at(second)}}


def ended(code: int, second: float, reason: str = "Error", **more: Any) -> dict[str, Any]:
    done = {"exitCode": code, "reason": reason, "startedAt": at(10), "finishedAt": at(second), **more}
    return {"terminated": done}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def node(name: str = "gpu-1", *, ready: str = "True", since: float = 0, boot: str = "b1", **more: Any) -> Any:
    """Return a node with eight GPUs."""
    conditions = [{"type": "Ready", "status": ready, "reason": "Kubelet", "lastTransitionTime": at(since)}]
    amounts = {"nvidia.com/gpu": "8"}
    return {
        "metadata": meta(name, labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "rack": "r1"}),
        "spec": {"unschedulable": more.pop("cordoned", False)},
        "status": {
            "conditions": conditions + list(more.pop("conditions", [])),
            "capacity": amounts,
            "allocatable": more.pop("allocatable", amounts),
            "nodeInfo": {"bootID": boot},
        },
    }


class Lab:
    """A translator with a clock; `told` keeps everything that it said."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.translator = Translator(Names("c1"), **options)
        self.told: list[Event] = []
        self.saved: dict[str, bytes] = {}

    def sees(self, kind: str, thing: Any, second: float = 0) -> list[Event]:
        return self._keep(self.translator.seen(self._read(kind, thing), START_MS + round(second * 1_000)))

    def loses(self, kind: str, thing: Any, second: float = 0) -> list[Event]:
        return self._keep(self.translator.deleted(self._read(kind, thing), START_MS + round(second * 1_000)))

    def lists(self, kind: str, uids: set[str], second: float = 0) -> list[Event]:
        return self._keep(self.translator.swept(kind, uids, START_MS + round(second * 1_000)))

    def waits(self, second: float) -> list[Event]:
        return self._keep(self.translator.on_time(START_MS + round(second * 1_000)))

    def restarts(self) -> None:
        """Put the translator down and take it up again by what a shell would have saved."""
        for key, value in taken(self.translator.changed.items()):
            if value is None:
                self.saved.pop(key, None)
            else:
                self.saved[key] = value
        self.translator = Translator(Names("c1"), saved=self.saved, **self.options)

    def _read(self, kind: str, thing: Any) -> Any:
        return read_object(kind, json.dumps(thing).encode())

    def _keep(self, events: list[Event]) -> list[Event]:
        self.told += events
        return events

    def of(self, type_: str) -> list[dict[str, Any]]:
        """Return the data of the events of a type, such as `job.ended`, and at which second they happened."""
        found = [event for event in self.told if event.type == f"faultlens.{type_}.v1"]
        return [json.loads(encode(e))["data"] | {"at": (e.time_ms - START_MS) / 1_000} for e in found]
