"""Hand-over to NVSentinel's janitor: a resource asks it for a reset, restart or replacement, and tells the outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple

from actuators.kubernetes_api import Api, Patient, UnreachableError, boot_id_of
from actuators.programs import UUID, one_node
from actuators.sdk import Actuator, Beat, Failed, Refused
from faultlens.errors import WorldError
from faultlens.events import Action, RemediationCommand
from faultlens.kubernetes_marks import COMMAND

GROUP: Final = "/apis/janitor.dgxc.nvidia.com/v1alpha1"
_VERSION: Final = GROUP.removeprefix("/apis/")
_LOOK_EVERY_S: Final = 5.0
_SAID_CHARS: Final = 300


class Kind(NamedTuple):
    """A kind of resource: its name, its collection, and the condition that is true when it was done."""

    name: str
    plural: str
    done: str


KINDS: Final[dict[Action, Kind]] = {
    "reset_device": Kind("GPUReset", "gpuresets", "Complete"),
    "reboot": Kind("RebootNode", "rebootnodes", "NodeReady"),
    "replace": Kind("TerminateNode", "terminatenodes", "NodeTerminated"),
}


class NvSentinel(Actuator):
    """Creates one resource for each command, named after it, and follows it until NVSentinel says that it is over.

    What kinds the cluster has is looked up when this is started. NVSentinel drains nothing for these resources: that is
    done before, by a rung of the ladder. One that is killed finds its resource by its name and goes on waiting.
    """

    name: ClassVar[str] = "nvsentinel"

    def __init__(self, api: Api, *, sleep: Callable[[float], None], look_every_s: float = _LOOK_EVERY_S) -> None:
        self._api = api
        self._sleep = sleep
        self._look_every_s = look_every_s
        self.actions: frozenset[Action] = frozenset(action for action, kind in KINDS.items() if self._has(kind))
        if not self.actions:
            raise WorldError(f"this cluster has no resources of {_VERSION}: is NVSentinel's janitor installed?")

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        """Ask for what the command says, and wait for its end."""
        kind, name = KINDS[command.action], f"faultlens-{command.command_id}"
        server = Patient(self._api, lambda: self._pause(beat))
        made = server.ask("POST", f"{GROUP}/{kind.plural}", _resource(kind, name, command))
        if not made.is_good and made.status != 409:
            raise Failed(f"{kind.name} cannot be created: {made.said}")
        while True:
            found = server.ask("GET", f"{GROUP}/{kind.plural}/{name}")
            if found.is_missing:
                raise Failed(f"somebody deleted {kind.name} {name}")
            status = (found.body.get("status") or {}) if found.is_good else {}
            if status.get("completionTime"):
                return _outcome(kind, status)
            server.pause()

    def boot_id(self, node: str) -> str | None:
        """Return the boot id that the node's kubelet told last; None: it is not known now."""
        return boot_id_of(self._api, node)

    def _has(self, kind: Kind) -> bool:
        try:
            return self._api("GET", f"{GROUP}/{kind.plural}?limit=1").is_good
        except UnreachableError as error:
            raise WorldError(f"Kubernetes does not answer: {error}") from None

    def _pause(self, beat: Beat) -> None:
        self._sleep(self._look_every_s)
        beat()


def _resource(kind: Kind, name: str, command: RemediationCommand) -> dict[str, Any]:
    spec: dict[str, Any] = {"nodeName": one_node(command.node)}
    if command.action == "reset_device":
        spec["selector"] = {"uuids": [_uuid(command)]}
    else:
        spec["force"] = False
    return {
        "apiVersion": _VERSION,
        "kind": kind.name,
        "metadata": {"name": name, "annotations": {COMMAND: command.command_id}},
        "spec": spec,
    }


def _uuid(command: RemediationCommand) -> str:
    """Return the GPU's UUID. Refused: it is not known, and without one all GPUs of the node would be reset."""
    uuid = None if command.device is None else command.device.uuid
    if uuid is None or not UUID.match(uuid):
        raise Refused("unsupported: the GPU's UUID is not known")
    return uuid


def _outcome(kind: Kind, status: dict[str, Any]) -> str:
    """Return what was done. Raises Failed with NVSentinel's own reason where it was not."""
    conditions = [c for c in status.get("conditions") or () if isinstance(c, dict)]
    last = next((c for c in conditions if c.get("type") == kind.done), {})
    said = ": ".join(str(last[word]) for word in ("reason", "message") if last.get(word))[:_SAID_CHARS]
    # A reset says how it ended by its phase; `Complete` says only that it is over.
    good = status["phase"] == "Succeeded" if status.get("phase") else last.get("status") == "True"
    if not good:
        raise Failed(f"{kind.name}: {said or 'NVSentinel says that it failed'}")
    return f"{kind.name}: {said or 'done'}"
