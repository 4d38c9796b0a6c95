"""What the translator remembers of a cluster, by the first word of its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from producers.kubernetes.devices import Offer
from producers.kubernetes.model import Job
from producers.kubernetes.nodes import Seen
from producers.kubernetes.objects import Pod, Work
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
    "job": Job,
    "work": Work,
    "node": Seen,
    "claim": tuple[str, ...],
    "offer": Offer,
    "name": Named,
    "taking": Taking,
}


def taken(changes: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, bytes | None]]:
    """Yield what to save under which key; None: to delete it."""
    for key, value in changes:
        yield key, None if value is None else msgspec.json.encode(value)
