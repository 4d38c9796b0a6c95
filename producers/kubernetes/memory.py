"""What the translator remembers of a cluster, by the first word of its key."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import DAY_MS
from producers.kubernetes.devices import Offer
from producers.kubernetes.early import Early
from producers.kubernetes.model import Job
from producers.kubernetes.nodes import Seen
from producers.kubernetes.objects import Metadata, Pod, Work, WorkStatus
from producers.kubernetes.owners import PODS_EACH
from producers.kubernetes.takings import Taking

# A name that was not seen for so long does not come back: it is a new job's.
NAMES_KEPT_MS: Final = 14 * DAY_MS


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
    """The job that a name stands for, and when that was last seen, to half of the time that it is kept for."""

    uid: str
    seen_ms: int


def aged(names: Mapping[str, Named], jobs: Container[str], now_ms: int) -> Iterator[tuple[str, Named | None]]:
    """Yield the names that were not looked at for long: of jobs that are there still as seen now, of others as gone."""
    for name, named in names.items():
        if now_ms - named.seen_ms > NAMES_KEPT_MS // 2 and named.uid in jobs:
            yield name, Named(named.uid, now_ms)
        elif now_ms - named.seen_ms > NAMES_KEPT_MS:
            yield name, None


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
