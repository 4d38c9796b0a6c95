"""What concerns everyone: one bounded context per lane, kept from the `context` topic."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from faultlens.clock import DAY_MS
from faultlens.events import PlatformIncident, PlatformMaintenance, PlatformRollout, Scope
from faultlens.internal import ClusterCensus

# Limits of one lane's context: what is older or more is dropped, oldest first, and counted.
KEPT_MS: Final = 8 * DAY_MS
MAX_OF_EACH: Final = 256


class Open(Struct, frozen=True, gc=False):
    """An incident, roll-out or maintenance with the time it began and, once known, the time it ended."""

    what: PlatformIncident | PlatformRollout | PlatformMaintenance
    since_ms: int
    until_ms: int | None = None
    arrived_ms: int = 0


class Context(Struct, frozen=True):
    """Incidents, roll-outs and maintenance by id, and the newest count of nodes by cluster.

    `blind_until_ms`: the newest count of the cluster that said that less than half reported on time; silences are
    counted anew from there.
    """

    incidents: dict[str, Open] = {}
    rollouts: dict[str, Open] = {}
    maintenance: dict[str, Open] = {}
    census: dict[str, ClusterCensus] = {}
    blind_until_ms: dict[str, int] = {}
    dropped: int = 0


def covers(scope: Scope, *, node: str | None, pool: str | None, domains: dict[str, str]) -> bool:
    """Return whether a scope names the node, its pool or one of its domains; an empty scope names everything."""
    if not (scope.nodes or scope.pools or scope.domains):
        return True
    if node is not None and scope.nodes and node in scope.nodes:
        return True
    if pool is not None and scope.pools and pool in scope.pools:
        return True
    named = scope.domains or {}
    return any(domains.get(kind) in values for kind, values in named.items())
