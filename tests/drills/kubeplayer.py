"""Runs jobs on a control plane and ends them, and keeps what is true of them."""

from __future__ import annotations

from typing import Any

from tests.drills.kubelab import NAMESPACE, Api, now, until
from tests.drills.truth import Failure


class Player:
    """Runs jobs and ends them."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.failures: list[Failure] = []
        self.ends: dict[str, str] = {}

    def job(self, name: str, *, node: str = "", pods: int = 1, backoff: int = 0, **more: Any) -> None:
        """Submit a job; without a node it runs on any of the lab's that is not set apart."""
        select = {"kubernetes.io/hostname": node} if node else {"pool": "main"}
        limits = more.pop("limits", {"nvidia.com/gpu": "2"})
        container = {"name": "main", "image": "registry.lab/train:1", "resources": {"limits": limits}}
        spec = {"containers": [container | more.pop("container", {})], "nodeSelector": select, "restartPolicy": "Never"}
        template = {"metadata": {"labels": {"user": "ann"}}, "spec": spec | more.pop("pod", {})}
        indexed = {"completionMode": "Indexed"} if pods > 1 else {}
        body = {"parallelism": pods, "completions": pods, "backoffLimit": backoff, "template": template}
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        self.api.make(path, {"metadata": {"name": name}, "spec": body | indexed | more})

    def delete(self, name: str) -> None:
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}?propagationPolicy=Background"
        self.api.ask("DELETE", path)

    def runs(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until so many pods of a job run; return them in their order."""

        def there() -> list[dict[str, Any]]:
            live = [
                p
                for p in self.api.pods(name)
                if p["status"]["phase"] == "Running" and not p["metadata"].get("deletionTimestamp")
            ]
            return live if len(live) >= count else []

        pods = until(f"{count} running pods of {name}", there)
        return sorted(pods, key=lambda pod: pod["metadata"]["name"])

    def placed(self, name: str) -> str:
        """Wait until a pod of a job is on a node; return its name."""

        def there() -> str:
            live = [p for p in self.api.pods(name) if p["spec"].get("nodeName") and p["status"]["phase"] == "Pending"]
            return str(live[0]["metadata"]["name"]) if live else ""

        return str(until(f"a placed pod of {name}", there))

    def exits(self, pod: dict[str, Any], code: int, reason: str = "") -> None:
        """End a pod's container, as the lab's kubelet does when it is told to."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        self.api.annotate(path, lab_exit=str(code), **({"lab_reason": reason} if reason else {}))

    def dies(self, pod: dict[str, Any], code: int, reason: str, message: str) -> None:
        """End a pod's container with last words."""
        begun = pod["status"]["startTime"]
        done = {"exitCode": code, "reason": reason, "message": message, "startedAt": begun, "finishedAt": now()}
        self.api.patch_pod(
            pod["metadata"]["name"], {"phase": "Failed", "containerStatuses": [container({"terminated": done})]}
        )

    def fails(self, name: str, classes: str, codes: str = "", **more: Any) -> None:
        """Note that an attempt failed: whose fault it may be called, and by which codes."""
        job = f"{NAMESPACE}/{name}"
        self.failures.append(Failure(job, tuple(classes.split()), tuple(codes.split()), **more))

    def ends_as(self, name: str, outcome: str, attempt: int = 1) -> None:
        self.ends[f"{NAMESPACE}/{name}/{attempt}"] = outcome


def container(state: dict[str, Any], restarts: int = 0, **more: Any) -> dict[str, Any]:
    """Return a container's status."""
    fixed = {"name": "main", "image": "registry.lab/train:1", "imageID": "registry.lab/train@sha256:" + 64 * "a"}
    return fixed | {"ready": "running" in state, "restartCount": restarts, "state": state} | more
