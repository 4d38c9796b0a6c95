"""What is read of Kubernetes' objects: a small part of each, as its API writes it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct, field

from faultlens.clock import ms_of


class Part(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """Base of what is read; fields that nobody asks for here are passed over."""


class OwnerReference(Part, frozen=True):
    """Who made an object."""

    kind: str
    name: str
    uid: str = ""
    controller: bool = False


class ManagedField(Part, frozen=True):
    """Which client wrote which fields, and when."""

    manager: str = ""
    subresource: str = ""
    time: datetime | None = None
    fields: Raw = field(name="fieldsV1", default=Raw(b""))


class Metadata(Part, frozen=True):
    """An object's name and origin."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    managed_fields: tuple[ManagedField, ...] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None

    @property
    def marks(self) -> dict[str, str]:
        """Labels and annotations together; labels win."""
        return {**(self.annotations or {}), **(self.labels or {})}

    @property
    def created_ms(self) -> int:
        """When the object was made."""
        return 0 if self.creation_timestamp is None else ms_of(self.creation_timestamp)

    @property
    def delete_asked_ms(self) -> int | None:
        """When somebody asked for it to be deleted: its deadline less its grace."""
        if self.deletion_timestamp is None:
            return None
        return ms_of(self.deletion_timestamp) - 1_000 * (self.deletion_grace_period_seconds or 0)


def held_by(meta: Metadata, field_name: bytes, manager: str | None = None) -> ManagedField | None:
    """Return who holds a field of the object, and since when; `manager`: only if it is that one."""
    fields = meta.managed_fields or ()
    return next((f for f in fields if field_name in bytes(f.fields) and manager in (None, f.manager)), None)


class Condition(Part, frozen=True):
    """A condition of a pod, node or job."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None

    @property
    def since_ms(self) -> int | None:
        """Since when it has this status."""
        return None if self.last_transition_time is None else ms_of(self.last_transition_time)


def condition(conditions: tuple[Condition, ...] | None, type_: str) -> Condition | None:
    """Return the condition of that type."""
    return next((one for one in conditions or () if one.type == type_), None)


# --- pods ----------------------------------------------------------------------------------------------


class Resources(Part, frozen=True):
    """What a container asks for."""

    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None
    claims: tuple[dict[str, str], ...] | None = None


class Container(Part, frozen=True):
    """A container as it was asked for."""

    name: str
    image: str = ""
    resources: Resources = Resources()


class ClaimName(Part, frozen=True):
    """A claim of a pod: named in its specification, or made for it from a template."""

    name: str
    resource_claim_name: str | None = None


class PodSpec(Part, frozen=True):
    """What was asked for."""

    node_name: str | None = None
    containers: tuple[Container, ...] = ()
    resource_claims: tuple[ClaimName, ...] | None = None
    priority: int | None = None


class Waiting(Part, frozen=True):
    """Why a container does not run yet."""

    reason: str | None = None
    message: str | None = None


class Running(Part, frozen=True):
    """Since when a container runs."""

    started_at: datetime | None = None


class Terminated(Part, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Part, frozen=True):
    """One of the three."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class DeviceHealth(Part, frozen=True):
    """The health of a device that a container holds."""

    resource_id: str = field(name="resourceID")
    health: str = "Unknown"
    message: str | None = None


class ResourceStatus(Part, frozen=True):
    """The devices behind one of a container's resources."""

    name: str
    resources: tuple[DeviceHealth, ...] | None = None


class ContainerStatus(Part, frozen=True):
    """A container as it is."""

    name: str
    restart_count: int = 0
    image_id: str = field(name="imageID", default="")
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    allocated_resources_status: tuple[ResourceStatus, ...] | None = None


class PodStatus(Part, frozen=True):
    """A pod as it is."""

    phase: str = ""
    reason: str | None = None
    message: str | None = None
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resource_claim_statuses: tuple[ClaimName, ...] | None = None


class Pod(Part, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# --- what makes pods -----------------------------------------------------------------------------------


class WorkStatus(Part, frozen=True):
    """How a job, or what else makes pods, is."""

    conditions: tuple[Condition, ...] | None = None
    ready_replicas: int | None = None
    # A RayJob's; what others mean by these names is not looked at.
    job_status: Any = None
    job_deployment_status: Any = None
    reason: Any = None
    message: Any = None
    end_time: Any = None
    ray_cluster_name: Any = None


class Work(Part, frozen=True):
    """A Job, JobSet, PyTorchJob, Deployment …: what they ask for differs, their conditions are alike."""

    metadata: Metadata
    kind: str = ""
    spec: dict[str, Any] = {}
    status: WorkStatus = WorkStatus()


# --- nodes ---------------------------------------------------------------------------------------------


class Taint(Part, frozen=True):
    """A taint of a node or device."""

    key: str
    value: str | None = None
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(Part, frozen=True):
    """What is asked of a node."""

    unschedulable: bool = False
    provider_id: str | None = field(name="providerID", default=None)
    taints: tuple[Taint, ...] | None = None


class NodeInfo(Part, frozen=True):
    """The machine behind a node."""

    boot_id: str | None = field(name="bootID", default=None)
    system_uuid: str | None = field(name="systemUUID", default=None)


class NodeStatus(Part, frozen=True):
    """A node as it is."""

    conditions: tuple[Condition, ...] | None = None
    capacity: dict[str, str | int] | None = None
    allocatable: dict[str, str | int] | None = None
    node_info: NodeInfo = NodeInfo()


class Node(Part, frozen=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# --- what is said of them ------------------------------------------------------------------------------


class Involved(Part, frozen=True):
    """What an event is about."""

    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class Source(Part, frozen=True):
    """Who tells an event."""

    component: str = ""


class Notice(Part, frozen=True):
    """A Kubernetes event."""

    metadata: Metadata
    involved_object: Involved = Involved()
    reason: str | None = None
    message: str | None = None
    source: Source = Source()
    reporting_component: str = ""
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None

    @property
    def at_ms(self) -> int:
        """When it was told last."""
        moment = self.last_timestamp or self.event_time or self.first_timestamp or self.metadata.creation_timestamp
        return 0 if moment is None else ms_of(moment)
