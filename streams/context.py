"""What concerns everyone: one bounded context per lane, kept from the `context` topic."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Final, Generic

from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import TypeVar

from faultlens.clock import DAY_MS
from faultlens.events import PlatformIncident, PlatformMaintenance, PlatformRollout, Scope
from faultlens.internal import ClusterCensus, ContextChange

# Limits of one lane's context: what is older or more is dropped, oldest first, and counted.
KEPT_MS: Final = 8 * DAY_MS
MAX_OF_EACH: Final = 256


Shared = PlatformIncident | PlatformRollout | PlatformMaintenance
What = TypeVar("What", bound=Shared, default=Shared)


class Open(Struct, Generic[What], frozen=True, gc=False):
    """An incident, roll-out or maintenance with the time it began and, once known, the time it ended."""

    what: What
    since_ms: int
    until_ms: int | None = None
    arrived_ms: int = 0


class Context(Struct, frozen=True):
    """Incidents, roll-outs and maintenance that have begun, by `cluster/id`, and the newest count of nodes by cluster.

    `blind_until_ms`: the newest count of the cluster that said that less than half reported on time; silences are
    counted anew from there. `clock_ms`: the context's own clock as last announced; None: it was not announced yet.
    `version` counts the changes of incidents, roll-outs and maintenance: what has seen it need not look again.
    """

    incidents: dict[str, Open[PlatformIncident]] = {}
    rollouts: dict[str, Open[PlatformRollout]] = {}
    maintenance: dict[str, Open[PlatformMaintenance]] = {}
    census: dict[str, ClusterCensus] = {}
    blind_until_ms: dict[str, int] = {}
    clock_ms: int | None = None
    dropped: int = 0
    # The end of the newest hole in the lane's time: what seemed silent before it was perhaps only not heard.
    blind_ms: int = 0
    version: int = 0


def covers(scope: Scope, *, node: str | None, pool: str | None, domains: dict[str, str]) -> bool:
    """Return whether a scope names the node, its pool or one of its domains; an empty scope names everything."""
    return covers_any(scope, nodes={node}, pools={pool}, domains=domains.items())


def covers_any(
    scope: Scope,
    *,
    nodes: AbstractSet[str | None] | AbstractSet[str],
    pools: AbstractSet[str | None],
    domains: AbstractSet[tuple[str, str]],
) -> bool:
    """Return whether a scope names one of the nodes, pools or domains; an empty scope names everything."""
    if not (scope.nodes or scope.pools or scope.domains):
        return True
    if not nodes.isdisjoint(scope.nodes or ()) or not pools.isdisjoint(scope.pools or ()):
        return True
    named = scope.domains or {}
    return any((kind, value) in domains for kind, values in named.items() for value in values)


def apply_change(context: Context, change: ContextChange, *, arrived_ms: int) -> Context:
    """Return the context after one change; what has ended for `KEPT_MS` or is beyond `MAX_OF_EACH` is dropped.

    Maintenance that is only scheduled is nothing yet: it counts when it starts.
    """
    if context.clock_ms is None or change.at_ms > context.clock_ms:
        context = replace(context, clock_ms=change.at_ms) if change.beats else context
    if (incident := change.incident) is not None:
        news = _news(incident, incident.phase == "started", change.at_ms, arrived_ms)
        kept, lost = _with(context.incidents, f"{change.cluster}/{incident.incident_id}", news)
        context = replace(context, incidents=kept, dropped=context.dropped + lost, version=context.version + 1)
    if (rollout := change.rollout) is not None:
        news = _news(rollout, rollout.phase == "started", change.at_ms, arrived_ms)
        kept, lost = _with(context.rollouts, f"{change.cluster}/{rollout.rollout_id}", news)
        context = replace(context, rollouts=kept, dropped=context.dropped + lost, version=context.version + 1)
    if (planned := change.maintenance) is not None and planned.phase != "scheduled":
        news = _news(planned, planned.phase == "started", change.at_ms, arrived_ms)
        kept, lost = _with(context.maintenance, f"{change.cluster}/{planned.maintenance_id}", news)
        context = replace(context, maintenance=kept, dropped=context.dropped + lost, version=context.version + 1)
    return context if change.census is None else _counted(context, change.census)


def _news(what: Shared, begins: bool, at_ms: int, arrived_ms: int) -> Open[Any]:
    return Open(what, at_ms, None if begins else at_ms, arrived_ms)


def _with(entries: dict[str, Open[What]], identity: str, news: Open[What]) -> tuple[dict[str, Open[What]], int]:
    """Return the entries with the news in place, and how many were dropped for being too many (ended first)."""
    since_ms = news.arrived_ms - KEPT_MS
    kept = {k: v for k, v in entries.items() if v.until_ms is None or v.until_ms > since_ms}
    kept[identity] = _joined(entries.get(identity), news)
    excess = len(kept) - MAX_OF_EACH
    for oldest in sorted(kept, key=lambda k: _age(k, kept[k]))[: max(0, excess)]:
        del kept[oldest]
    return kept, max(0, excess)


def _age(identity: str, entry: Open[What]) -> tuple[bool, int, str]:
    return entry.until_ms is None, entry.since_ms if entry.until_ms is None else entry.until_ms, identity


def _joined(known: Open[What] | None, news: Open[What]) -> Open[What]:
    """Return how a thing stands after the news, in whatever order its beginning and its end arrived."""
    if known is None:
        return news
    if known.until_ms is None and news.until_ms is not None and news.until_ms < known.since_ms:
        return known
    if news.until_ms is not None or known.until_ms is None:
        arrived_ms = min(known.arrived_ms, news.arrived_ms)
        what = _worded(news.what, known.what) if known.until_ms is None else news.what
        return replace(news, what=what, since_ms=min(known.since_ms, news.since_ms), arrived_ms=arrived_ms)
    if news.since_ms > known.until_ms:
        return news
    return replace(known, what=_worded(known.what, news.what), since_ms=min(known.since_ms, news.since_ms))


def _worded(what: What, begun: What) -> What:
    """Return a thing in the words of its beginning: a verdict quotes what was wrong, not that it is over."""
    if isinstance(what, PlatformIncident) and isinstance(begun, PlatformIncident) and begun.message:
        return replace(what, message=begun.message)
    return what


def _counted(context: Context, census: ClusterCensus) -> Context:
    if census.cluster not in context.census and len(context.census) >= MAX_OF_EACH:
        return replace(context, dropped=context.dropped + 1)
    context = replace(context, census={**context.census, census.cluster: census})
    if 2 * census.on_time >= census.covered:
        return context
    return replace(context, blind_until_ms={**context.blind_until_ms, census.cluster: census.at_ms})
