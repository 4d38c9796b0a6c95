"""What the translator remembers of a cluster, by the first word of its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from producers.kubernetes.devices import Offer
from producers.kubernetes.early import Early
from producers.kubernetes.model import Job
from producers.kubernetes.nodes import Seen
from producers.kubernetes.objects import Metadata, Pod, Work, WorkStatus
from producers.kubernetes.owners import PODS_EACH
from producers.kubernetes.takings import Taking


class PodSeen(Struct, frozen=True, kw_only=True):
    """A pod as it was seen last. `sick`: its devices that were told to be unhealthy."""

    job: str
    name: str
    node: str | None = None
    claims: tuple[str, ...] = ()
    sick: tuple[str, ...] = ()
    is_agent: bool = False
    last: Pod | None = None


class Named(Struct, frozen=True):
    """The job that a name stands for, and when that was last seen."""

    uid: str
    seen_ms: int


KINDS: Final[dict[str, type[Any]]] = {
    "pod": PodSeen,
    "early": Early,
    "job": Job,
    "work": Work,
    "node": Seen,
    "claim": tuple[str, ...],
    "offer": Offer,
    "name": Named,
    "taking": Taking,
}


def lean_pod(pod: Pod) -> Pod:
    """Return what is kept of a pod."""
    return replace(pod, metadata=replace(pod.metadata, managed_fields=None, annotations=None))


def lean_work(work: Work, pods: int, *, is_over: bool) -> Work:
    """Return what is kept of what makes pods: what it is and stands under, of a Job how many it makes, and its end."""
    meta = work.metadata
    named = Metadata(
        name=meta.name, namespace=meta.namespace, uid=meta.uid, owner_references=meta.owner_references, labels=None
    )
    size = {PODS_EACH: pods} if work.kind == "Job" else {}
    return Work(metadata=named, kind=work.kind, spec=size, status=work.status if is_over else WorkStatus())


def taken(changes: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, bytes | None]]:
    """Yield what to save under which key; None: to delete it."""
    for key, value in changes:
        yield key, None if value is None else msgspec.json.encode(value)
