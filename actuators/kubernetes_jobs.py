"""Repairs on a node by a job whose pod the cluster's owner wrote: it runs there alone, once, and is seen to its end."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from actuators.kubernetes_api import Patient
from actuators.programs import gpu_of, one_node
from actuators.sdk import Failed, Memory, Refused
from faultlens.clock import SECOND_MS, ms_of
from faultlens.events import Action, RemediationCommand
from faultlens.kubernetes_marks import COMMAND
from faultlens.yaml_lines import load_model

# So long a job is left to be looked at.
_KEPT_S: Final = 86_400
# A job that ended without a restart of its node has failed, unless the node is only about to go.
_STAYS_S: Final = 180.0
_EXISTS: Final = 409
_SAID_CHARS: Final = 300
_LABELS: Final = {"app.kubernetes.io/name": "faultlens-repair"}
_OURS: Final = ("nodeName", "nodeSelector", "affinity", "restartPolicy", "tolerations")


def _is_pod(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the specification of a pod; ValueError: it is none that can be put on a node."""
    if ours := [name for name in _OURS if name in spec]:
        raise ValueError(f"{', '.join(ours)}: where and how it runs is said by the command")
    containers = spec.get("containers")
    if not (isinstance(containers, list) and containers and all(isinstance(c, dict) for c in containers)):
        raise ValueError("a pod has containers: each with name, image and command")
    return spec


PodSpec = Annotated[dict[str, Any], AfterValidator(_is_pod)]


class JobsFile(BaseModel):
    """What runs on a node for an action: the specification of a pod, in a namespace that allows it to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    reset_device: PodSpec | None = None
    reboot: PodSpec | None = None

    @model_validator(mode="after")
    def _does_something(self) -> JobsFile:
        if not self.actions:
            raise ValueError("nothing is done by a job: say reset_device or reboot")
        return self

    @property
    def actions(self) -> frozenset[Action]:
        """The actions that are done by a job."""
        pods: list[tuple[Action, object]] = [("reset_device", self.reset_device), ("reboot", self.reboot)]
        return frozenset(action for action, pod in pods if pod is not None)


def load_jobs(path: Path) -> JobsFile:
    """Return the file of jobs. ConfigurationError names file and line of what is wrong."""
    return load_model(path, JobsFile)


class Repair:
    """One command's job on its node. `now_ms`: when it begins; its job ends by itself at the command's deadline."""

    def __init__(self, server: Patient, jobs: JobsFile, command: RemediationCommand, *, now_ms: int) -> None:
        self._server = server
        self._jobs = jobs
        self._command = command
        self._node = one_node(command.node)
        self._left_s = max(1, (ms_of(command.finish_by) - now_ms) // SECOND_MS)

    def reset(self, memory: Memory) -> str:
        """Have a GPU reset, and wait for the job's end. That it was begun is written down."""
        gpu = gpu_of(self._command)
        memory.keep(gpu.encode())
        path = self._begun(GPU=gpu)
        while (failed := self._outcome(path)) is None:
            self._server.pause()
        if failed:
            raise Failed(f"its job failed: {failed}")
        return f"GPU {gpu} was reset"

    def restarted(self, memory: Memory, *, look_every_s: float) -> str:
        """Have the node restarted, and wait until it is ready in another boot than before.

        The boot of before is written down: one that was killed finds the node in another one, and begins no job.
        """
        before = (memory.recall() or b"").decode() or self._boot()[0]
        if not before:
            raise Refused(f"unsupported: the boot of {self._node} is not known: a restart would not be seen")
        memory.keep(before.encode())
        path, stayed_s = "", 0.0
        while True:
            boot, is_ready = self._boot()
            if boot not in ("", before):
                if is_ready:
                    return f"restarted, in boot {boot}"
            elif not path:
                path = self._begun()
            # What ends with the node is told as failed: only a node that stays was not restarted.
            elif is_ready and (failed := self._outcome(path)) is not None:
                stayed_s += look_every_s
                if stayed_s > _STAYS_S:
                    raise Failed(f"its job ended, and the node did not restart{failed and f': {failed}'}")
            self._server.pause()

    def _begun(self, **told: str) -> str:
        """Make the job, unless it is there already; return its path."""
        name = f"faultlens-{self._command.command_id}"
        jobs = f"/apis/batch/v1/namespaces/{self._jobs.namespace}/jobs"
        made = self._server.ask("POST", jobs, self._job(name, told | {"NODE": self._node}))
        if not (made.is_good or made.status == _EXISTS):
            raise Failed(f"its job cannot be made: {made.said}")
        return f"{jobs}/{name}"

    def _job(self, name: str, told: dict[str, str]) -> dict[str, Any]:
        spec = self._jobs.reset_device if self._command.action == "reset_device" else self._jobs.reboot
        pod: dict[str, Any] = copy.deepcopy(spec or {})
        for container in pod["containers"]:
            container["env"] = [*container.get("env", []), *({"name": n, "value": v} for n, v in sorted(told.items()))]
        where = {"nodeName": self._node, "restartPolicy": "Never", "tolerations": [{"operator": "Exists"}]}
        once = {"backoffLimit": 0, "activeDeadlineSeconds": self._left_s, "ttlSecondsAfterFinished": _KEPT_S}
        metadata = {"name": name, "annotations": {COMMAND: self._command.command_id}}
        template = {"metadata": {"labels": _LABELS}, "spec": pod | where}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": once | {"template": template}}

    def _outcome(self, path: str) -> str | None:
        """Return why the job failed; empty: it did not; None: it goes on."""
        found = self._server.ask("GET", path)
        if not found.is_good:
            raise Failed("somebody deleted its job" if found.is_missing else f"its job cannot be read: {found.said}")
        for condition in (found.body.get("status") or {}).get("conditions") or ():
            if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
                said = f"{condition.get('reason')}: {condition.get('message')}"
                return "" if condition["type"] == "Complete" else said[:_SAID_CHARS]
        return None

    def _boot(self) -> tuple[str, bool]:
        """Return the boot that the node is in, and whether it is ready."""
        found = self._server.ask("GET", f"/api/v1/nodes/{self._node}")
        if not found.is_good:
            raise Refused(f"there is no node {self._node}")
        status = found.body.get("status") or {}
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
        return str((status.get("nodeInfo") or {}).get("bootID") or ""), ready
