"""What many nodes have in common: one incident on that, and the breaker that keeps each of them from being acted on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from faultlens.codec import stable_id
from faultlens.events import KEPT_BY, PlatformIncident, PlatformRollout
from faultlens.internal import NodeFacts, Tended
from streams.context import Open, covers
from streams.remediation import controls, fleet
from streams.remediation.climbing import advance
from streams.remediation.closing import close
from streams.remediation.desk import Desk
from streams.remediation.history import family_of
from streams.remediation.policy import Breaker, Trouble
from streams.remediation.record import (
    EVIDENCE_MAX,
    MEMBERS_MAX,
    RECENT_MAX,
    IncidentCard,
    NodeCard,
    Recent,
    Trait,
)
from streams.remediation.telling import keep
from streams.remediation.wrong import troubles

# Which troubles of nodes an incident of a shared service explains: families of causes.
EXPLAINS: Final[Mapping[str, tuple[str, ...]]] = {
    "power": ("host.lost", "host.power"),
    "network": ("network.link", "network.nic", "host.lost", "platform.network"),
    "storage": ("platform.storage",),
    "cooling": ("gpu.thermal",),
    "control_plane": ("host.lost",),
    "registry": (),
    "scheduler": (),
    "auth": (),
    "other": (),
}
# What a roll-out of each kind can break: first words of causes; None: anything.
_BREAKS: Final[Mapping[str, tuple[str, ...] | None]] = {
    "driver": ("driver", "gpu", "fabric"),
    "fabric_manager": ("driver", "fabric"),
    "firmware": ("gpu", "fabric", "network", "host", "driver"),
    "runtime": ("platform", "driver"),
    "os_image": None,
    "agent": (),
    "scheduler": (),
}
_NEVER_MS: Final = 1 << 62


class Domain(NamedTuple):
    """Something that nodes share: its name, in which time their troubles belong together, and how many make one.

    `rollout`: its id, where it is a roll-out. `at_once`: one node is enough, since the cause is known.
    """

    name: str
    window_ms: int
    needed: float
    rollout: str | None = None
    at_once: bool = False


def shared_by(desk: Desk, node: str, trait: Trait) -> IncidentCard | None:
    """Note that the node turned bad, and return the incident of what it shares with others; None: it is alone."""
    facts = desk.node(node).facts
    if facts is None or trait.origin not in ("condition", "announced") or trait.role == "trend":
        return None
    family, found = family_of(trait.cause), None
    for domain in _domains(desk, facts, trait, family):
        recent = _noted(desk, domain, family, node, trait.since_ms)
        found = found or _with_room(desk, recent)
        if found is None and (domain.at_once or len(recent.at_ms) >= domain.needed):
            found = _opened(desk, domain, recent, trait)
    return found


def _with_room(desk: Desk, recent: Recent) -> IncidentCard | None:
    """Return the open incident of a domain; None: there is none, or it lists as many nodes as one can."""
    incident = desk.incident(recent.incident)
    is_open = incident is not None and incident.stage != "closed" and len(incident.members) < MEMBERS_MAX
    return incident if is_open else None


def _domains(desk: Desk, facts: NodeFacts, trait: Trait, family: str) -> Iterator[Domain]:
    """Yield what the node shares, the most telling first: incidents, roll-outs, then the smallest scope."""
    breaker, context = desk.policy.breaker, desk.own().context
    for incident in context.incidents.values():
        if incident.until_ms is None and family in EXPLAINS[incident.what.service] and _in(incident, facts):
            yield Domain(f"incident/{incident.what.incident_id}", _NEVER_MS, 1, at_once=True)
    for rollout in context.rollouts.values():
        if _touched(rollout, facts, trait, since_ms=trait.since_ms - breaker.rollout_window_ms):
            by_agent = rollout.what.what == "agent"
            needed = _needed(breaker, len(rollout.what.scope.nodes or ()))
            name = f"rollout/{rollout.what.rollout_id}"
            yield Domain(name, breaker.rollout_window_ms, needed, rollout.what.rollout_id, at_once=by_agent)
    for scope in sorted(fleet.scopes_of(facts), key=lambda name: (desk.scope(name).nodes, name)):
        yield Domain(scope, breaker.window_ms, _needed(breaker, desk.scope(scope).nodes))


def _needed(breaker: Breaker, nodes: int) -> float:
    """Return how many of a domain's nodes make one cause: of a very large one, as many as are kept."""
    return min(RECENT_MAX, max(breaker.nodes, breaker.share * nodes))


def _in(entry: Open[PlatformIncident] | Open[PlatformRollout], facts: NodeFacts) -> bool:
    return covers(entry.what.scope, node=facts.node, pool=facts.pool, domains=facts.domains)


def _touched(entry: Open[PlatformRollout], facts: NodeFacts, trait: Trait, *, since_ms: int) -> bool:
    """Return whether a roll-out reached the node before the trouble, and can be behind it."""
    if not since_ms <= entry.since_ms <= trait.since_ms or not _in(entry, facts):
        return False
    if entry.what.what == "agent":
        return trait.by_tool
    broken = _BREAKS[entry.what.what]
    return broken is None or trait.cause.partition(".")[0] in broken


def _noted(desk: Desk, domain: Domain, family: str, node: str, since_ms: int) -> Recent:
    recent = desk.recent(f"{domain.name}|{family}")
    oldest_ms = -_NEVER_MS if recent.incident is not None else desk.learnt_ms - domain.window_ms
    at_ms = {name: at for name, at in recent.at_ms.items() if at >= oldest_ms}
    at_ms[node] = max(since_ms, at_ms.get(node, since_ms)) if domain.at_once else desk.learnt_ms
    recent = replace(recent, at_ms=dict(list(at_ms.items())[-RECENT_MAX:]))
    desk.put(recent)
    return recent


def _opened(desk: Desk, domain: Domain, recent: Recent, trait: Trait) -> IncidentCard | None:
    family = family_of(trait.cause)
    route = desk.policy.route(Trouble("common", trait.cause, trait.cause_class, severity=trait.severity))
    if route is None:
        return None
    name = stable_id(desk.cluster, domain.name, family, desk.learnt_ms)
    if desk.incident(name) is not None:
        name = stable_id(name, trait.id)
    begun = desk.begun(name, route, trait, min(recent.at_ms.values()))
    incident = replace(begun, domain=domain.name, rollout_id=domain.rollout, count=0)
    desk.put(replace(recent, incident=incident.id))
    for node in recent.at_ms:
        incident = _gathered(desk, incident, node, family)
    return keep(desk, incident)


def _gathered(desk: Desk, incident: IncidentCard, node: str, family: str) -> IncidentCard:
    """Return the incident with a node in it that turned bad before it was known that they share a cause."""
    card = desk.node(node)
    own = desk.incident(card.incident)
    if own is None or not own.node or not any(family_of(t.cause) == family for t in card.traits):
        return incident
    close(desk, own, f"part of {incident.id}", remember=False)
    return _with(desk, incident, node, commands=own.commands)


def joined(desk: Desk, incident: IncidentCard, node: str) -> None:
    """Put a node into the incident of what it shares with others."""
    turned(desk, _with(desk, incident, node))


def _with(desk: Desk, incident: IncidentCard, node: str, commands: tuple[str, ...] = ()) -> IncidentCard:
    card = fleet.keep(desk, replace(desk.node(node), incident=incident.id))
    desk.tend(Tended(node, desk.cluster, desk.now_ms, incident_id=incident.id))
    return replace(
        incident,
        members=tuple(dict.fromkeys((*incident.members, node))),
        member_count=incident.member_count + 1,
        last_ms=max(incident.last_ms, desk.learnt_ms),
        count=incident.count + 1,
        severity=max(incident.severity, *(trait.severity for trait in card.traits), 0),
        evidence=tuple(dict.fromkeys((*incident.evidence, *(t.evidence for t in card.traits))))[:EVIDENCE_MAX],
        commands=tuple(dict.fromkeys((*incident.commands, *commands))),
        probe=None if incident.probe == node else incident.probe,
    )


def left(desk: Desk, incident: IncidentCard, node: str) -> None:
    """Let a node go that has nothing of it any more, and take the incident on: over when nobody is left."""
    card, family = desk.node(node), family_of(incident.cause)
    has_it = any(family_of(trait.cause) == family for trait in troubles(card))
    if card.incident == incident.id and not has_it:
        fleet.keep(desk, replace(card, incident=None))
        desk.cleared.append(node)
        incident = replace(incident, members=tuple(name for name in incident.members if name != node))
    if incident.members:
        # What it waited for may have been a command on the node that leaves.
        turned(desk, incident)
    else:
        _over(desk, incident, "over on all nodes")


def turned(desk: Desk, incident: IncidentCard) -> None:
    """Take a common incident on: tell a person, then wait until no more nodes turn bad, and try a single one."""
    incident = advance(desk, incident)
    if incident.stage not in ("handed_over", "verifying"):
        return
    opens_ms = incident.last_ms + desk.policy.breaker.open_ms * (1 + incident.probes)
    if incident.probe is not None and _is_without_outcome(desk, incident.probe):
        incident = replace(incident, probe=None)
    if incident.probe is not None:
        due_ms = desk.now_ms + desk.policy.breaker.open_ms
        keep(desk, replace(incident, stage="handed_over", due_ms=due_ms, waits=f"the outcome on {incident.probe}"))
    elif desk.now_ms < opens_ms or _is_going_on(desk, incident):
        due_ms = opens_ms if desk.now_ms < opens_ms else desk.now_ms + desk.policy.breaker.open_ms
        why = "its cause to be over" if desk.now_ms >= opens_ms else "no more nodes to turn bad"
        keep(desk, replace(incident, stage="handed_over", due_ms=due_ms, waits=why))
    else:
        _tried(desk, incident)


def _is_without_outcome(desk: Desk, node: str) -> bool:
    """Return whether the node that is tried is a person's by now, or nothing is done to it: that may be so for days."""
    own = desk.incident(desk.node(node).incident)
    if own is None or not own.node:
        return False
    held = controls.said(desk.own(), "hold", controls.Aim(node), desk.now_ms)
    is_held = held is not None and bool(held.control.scope.nodes)
    return own.stage == "handed_over" or (own.waits or "").startswith(KEPT_BY) or is_held


def _is_going_on(desk: Desk, incident: IncidentCard) -> bool:
    """Return whether the roll-out or the service's incident behind it is not over yet, or not told so for too long."""
    kind, _, name = incident.domain.partition("/")
    context, key = desk.own().context, f"{desk.cluster}/{name}"
    entry = context.incidents.get(key) if kind == "incident" else context.rollouts.get(key)
    if entry is None or kind not in ("incident", "rollout") or entry.until_ms is not None:
        return False
    return kind == "incident" or desk.now_ms - entry.since_ms < desk.policy.breaker.rollout_window_ms


def _tried(desk: Desk, incident: IncidentCard) -> None:
    node = incident.members[0]
    members = incident.members[1:]
    fleet.keep(desk, replace(desk.node(node), incident=None))
    desk.released.append((node, incident.id))
    if members:
        due_ms = desk.now_ms + desk.policy.breaker.open_ms
        keep(desk, replace(incident, members=members, probe=node, probes=incident.probes + 1, due_ms=due_ms))
    else:
        _over(desk, incident, f"only {node} is left")


def probed(desk: Desk, name: str, node: str) -> None:
    """Let all nodes of a common incident go their own ways when the one that was tried is well; else try another."""
    incident = desk.incident(name)
    if incident is None or incident.stage == "closed" or incident.probe != node:
        return
    card = desk.node(node)
    if not _is_well(card) or card.put_back_ms >= incident.first_ms:
        # What is wrong with a node that a person has put back is only looked past.
        turned(desk, replace(incident, probe=None))
        return
    for member in incident.members:
        fleet.keep(desk, replace(desk.node(member), incident=None))
        desk.released.append((member, None))
    _over(desk, incident, f"{node} is well again")


def _is_well(card: NodeCard) -> bool:
    """Return whether the node is there and has nothing wrong."""
    is_there = card.facts is None or card.facts.state != "removed"
    return is_there and not troubles(card)


def _over(desk: Desk, incident: IncidentCard, because: str) -> None:
    close(desk, incident, because, remember=False)
    recent = desk.recent(f"{incident.domain}|{family_of(incident.cause)}")
    if recent.incident == incident.id:
        desk.put(Recent(desk.cluster, recent.name))


# --- what is announced ---------------------------------------------------------------------------------


def explained(desk: Desk, event: PlatformIncident) -> None:
    """Gather the open incidents of nodes that a service's incident explains, when that is announced after them."""
    if event.phase != "started":
        return
    domain = Domain(f"incident/{event.incident_id}", _NEVER_MS, 1, at_once=True)
    for family in EXPLAINS[event.service]:
        nodes = [node for node in _turned_bad(desk, event, family) if _is_explained(desk, event, node, family)]
        for node in nodes:
            card = desk.node(node)
            trait = next(t for t in card.traits if family_of(t.cause) == family)
            recent = _noted(desk, domain, family, node, trait.since_ms)
            shared = _with_room(desk, recent) or _opened(desk, domain, recent, trait)
            own = desk.incident(card.incident)
            if shared is not None and own is not None and own.node and own.stage != "closed":
                close(desk, own, f"part of {shared.id}", remember=False)
                joined(desk, shared, node)
            elif shared is not None:
                turned(desk, shared)


def _turned_bad(desk: Desk, event: PlatformIncident, family: str) -> list[str]:
    scope = event.scope
    names = [f"pool/{pool}" for pool in scope.pools or ()]
    names += [f"{kind}/{value}" for kind, values in (scope.domains or {}).items() for value in values]
    if not (names or scope.nodes):
        names = ["cluster"]
    found = [node for name in names for node in desk.recent(f"{name}|{family}").at_ms]
    return list(dict.fromkeys([*(scope.nodes or ()), *found]))


def _is_explained(desk: Desk, event: PlatformIncident, node: str, family: str) -> bool:
    card = desk.node(node)
    facts, incident = card.facts, desk.incident(card.incident)
    if facts is None or incident is None or not incident.node:
        return False
    covered = covers(event.scope, node=node, pool=facts.pool, domains=facts.domains)
    return covered and any(family_of(t.cause) == family for t in card.traits)
