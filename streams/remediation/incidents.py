"""Incidents of nodes: opened by what is wrong, one for all that is wrong with a node, routed by the worst of it."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.catalogue.lookup import driver_branch
from faultlens.clock import DAY_MS
from faultlens.codec import stable_id
from faultlens.internal import Announced, Intervened, NodeFacts, Observation, Tended
from streams.node_health.conditions import condition_id
from streams.remediation import announcing, common, echoes, fleet, looked_past, renaming
from streams.remediation.climbing import advance
from streams.remediation.closing import close
from streams.remediation.desk import Desk
from streams.remediation.history import earlier_incidents, earlier_repairs, earlier_times, family_of
from streams.remediation.issuing import device_of
from streams.remediation.policy import Policy, Trouble
from streams.remediation.record import (
    EVIDENCE_MAX,
    FAULTS_MAX,
    IncidentCard,
    NodeCard,
    Trait,
)
from streams.remediation.wrong import is_bad

# From this branch on NVIDIA's driver announces recovery steps (Xid catalogue, Xid 154).
_ANNOUNCES_FROM: Final = 565
# While an incident is open, its node is watched; the word is given anew with each command.
WATCHED_MS: Final = 7 * DAY_MS
_RETURN: Final = "return"
_ROLES: Final = {"root": 2, "unexpected": 1, "trend": 0}
_BY_TOOL: Final = ("timeout", "error", "missing")


def trait_of(observation: Observation) -> Trait:
    """Return an open condition as remediation keeps it."""
    status = (observation.subcode or "").partition("/")[0]
    return Trait(
        id=observation.id,
        key=condition_id(observation),
        fault=f"{observation.kind}:{observation.code}",
        cause=observation.cause_code,
        cause_class=observation.cause_class,
        role=observation.role,
        severity=observation.severity,
        since_ms=observation.since_ms,
        evidence=observation.id,
        hint=observation.hint,
        fatal=observation.fatal,
        whole_node=observation.whole_node,
        by_tool=observation.kind == "check" and status in _BY_TOOL,
        announced=observation.kind == "xid" and (driver_branch(observation.driver_version) or 0) >= _ANNOUNCES_FROM,
        family=observation.gpu_family,
        device=observation.device,
    )


def severity_of(policy: Policy, trait: Trait) -> int:
    """Return how bad an incident is that is about the trait: of what nobody but verdicts says, as bad as its cause."""
    spoken = trait.origin in ("verdict", "finding")
    return max(trait.severity, policy.severity(trait.cause)) if spoken else trait.severity


def worst_of(traits: tuple[Trait, ...]) -> Trait:
    """Return the trait that an incident is about: a root, the most severe, the first."""
    return min(traits, key=_by_weight)


def _by_weight(trait: Trait) -> tuple[int, int, int, str]:
    return (-_ROLES.get(trait.role, 0), -trait.severity, trait.since_ms, trait.key)


# --- conditions ----------------------------------------------------------------------------------------


def opened(desk: Desk, node: str, trait: Trait) -> None:
    """Take up a fault of a node that is open now."""
    card = desk.node(node)
    if looked_past.is_looked_past(card, trait, desk.now_ms):
        fleet.keep(desk, looked_past.passed(card, trait, desk.now_ms))
        return
    if renaming.is_left_behind(desk, card, trait.cause) or announcing.announced_for(card, trait) == "none":
        return
    is_new = all(known.key != trait.key for known in card.traits)
    traits = (*(t for t in announcing.without_echoes(card, trait) if t.key != trait.key), trait)
    mildest_first = sorted(traits, key=_by_weight, reverse=True)
    left_out = {trait.key for trait in mildest_first[: max(0, len(traits) - FAULTS_MAX)]}
    kept = tuple(known for known in traits if known.key not in left_out)
    fleet.keep(desk, replace(card, traits=kept, overflow=card.overflow + len(traits) - len(kept)))
    renaming.noted(desk, card)
    taken_up(desk, node, trait, is_new=is_new)


def cleared(desk: Desk, node: str, key: str, at_ms: int) -> None:
    """Take a fault off a node: its check passed, the node restarted, or it was repaired."""
    card = desk.node(node)
    left = tuple(t for t in card.traits if t.key != key or t.since_ms > at_ms)
    fleet.keep(desk, replace(looked_past.cleared(card, key, desk.now_ms), traits=left))
    incident = desk.incident(card.incident)
    if incident is None:
        return
    if incident.node:
        advance(desk, incident)
    else:
        common.left(desk, incident, node)


def taken_up(desk: Desk, node: str, trait: Trait, *, is_new: bool = True) -> None:
    """Put a node's fault into the incident that it belongs to, or open one.

    A node that is tried for others goes on with what was wrong with it; what is new shows that they still share it.
    """
    incident = desk.incident(desk.node(node).incident)
    if incident is None:
        shared = common.shared_by(desk, node, trait)
        if shared is None:
            open_for(desk, node)
        else:
            common.joined(desk, shared, node)
    elif incident.node:
        is_tried = incident.probe is not None and not is_new
        shared = None if is_tried else common.shared_by(desk, node, trait)
        if shared is None:
            advance(desk, _joined(desk, incident, trait))
        elif desk.node(node).incident == shared.id:
            # It was gathered with the others when what they share began: just now, with this fault of it.
            common.turned(desk, shared)
        else:
            close(desk, incident, f"part of {shared.id}", remember=False)
            common.joined(desk, shared, node)


def open_for(desk: Desk, node: str, *, rule: str = "", probe_of: str | None = None) -> IncidentCard | None:
    """Open an incident for all that is wrong with a node and take its first step; None: the policy knows no route."""
    card = desk.node(node)
    if not card.traits:
        return None
    worst = worst_of(card.traits)
    first_ms = _troubled_since_ms(card.traits)
    incident = IncidentCard(
        cluster=desk.cluster,
        id=stable_id(desk.cluster, node, worst.id, first_ms, probe_of or ""),
        route="",
        ladder="",
        cause=worst.cause,
        cause_class=worst.cause_class,
        severity=severity_of(desk.policy, worst),
        rule=rule,
        first_ms=first_ms,
        last_ms=max(trait.since_ms for trait in card.traits),
        node=node,
        policy=desk.policy.version,
        evidence=tuple(trait.evidence for trait in card.traits)[:EVIDENCE_MAX],
        faults=tuple(dict.fromkeys(trait.fault for trait in card.traits))[:EVIDENCE_MAX],
        count=len(card.traits),
        probe=probe_of,
        not_before_ms=_announced_by_ms(desk, worst),
    )
    if desk.incident(incident.id) is not None:
        incident = replace(incident, id=stable_id(incident.id, desk.learnt_ms))
    begun = routed(desk, incident, card)
    return None if begun is None else _begun(desk, card, begun)


def _begun(desk: Desk, card: NodeCard, incident: IncidentCard) -> IncidentCard:
    """Put the node into the incident, have it watched, and take the first step."""
    fleet.keep(desk, replace(card, incident=incident.id))
    desk.tend(Tended(card.node, desk.cluster, desk.now_ms, desk.now_ms + WATCHED_MS, incident_id=incident.id))
    return advance(desk, incident)


def _troubled_since_ms(traits: tuple[Trait, ...]) -> int:
    """Return since when the node is in trouble: what wears out goes on for weeks and is none."""
    counted = [trait.since_ms for trait in traits if trait.role != "trend"]
    return min(counted or [trait.since_ms for trait in traits])


def _announced_by_ms(desk: Desk, trait: Trait) -> int:
    """Return by when the driver will have said what the GPU needs; 0: it says no such thing."""
    return trait.since_ms + desk.policy.verification.announced_ms if trait.announced else 0


def open_return(desk: Desk, node: str, *, probe_of: str | None = None) -> IncidentCard:
    """Open an incident for a node that has nothing wrong any more and is still kept from work: it is to come back."""
    card = desk.node(node)
    incident = IncidentCard(
        cluster=desk.cluster,
        id=stable_id(desk.cluster, node, "return", desk.learnt_ms),
        route=_RETURN,
        ladder="",
        cause="platform.remediation",
        cause_class="platform",
        severity=0,
        rule=_RETURN,
        first_ms=desk.learnt_ms,
        last_ms=desk.learnt_ms,
        node=node,
        policy=desk.policy.version,
        stage="verifying",
        cleared_ms=desk.learnt_ms,
        probe=probe_of,
    )
    return _begun(desk, card, incident)


def unreturned(desk: Desk, incident: IncidentCard) -> IncidentCard:
    """Return the incident of a node that was only to come back with what is to be done now that it failed its test."""
    card = desk.node(incident.node)
    failed = incident.route == _RETURN and is_bad(desk, incident, card)
    return (routed(desk, incident, card) or incident) if failed else incident


def watched_until_ms(desk: Desk, node: str) -> int:
    """Return up to when we want to know of every report of a node: as long as it is in an incident or kept by us."""
    card = desk.node(node)
    return desk.now_ms + WATCHED_MS if card.incident is not None or card.taken else 0


def routed(desk: Desk, incident: IncidentCard, card: NodeCard, *, by: Trait | None = None) -> IncidentCard | None:
    """Return the incident on the route of the worst that is wrong, or of `by`; None: none, or it is recovered."""
    worst = by or worst_of(card.traits)
    incident = _at_stake(replace(incident, cause=worst.cause, device=device_of(worst.device)), card.facts)
    repairs = earlier_repairs(desk, incident, card)
    if announcing.announced_for(card, worst) == "none":
        return None
    trouble = replace(
        trouble_of(worst, card),
        returns=len(repairs),
        incidents=earlier_incidents(desk, incident, card),
        times=1 + earlier_times(desk, incident, card),
        jobs=len(incident.harmed),
        job_gpus=incident.job_gpus,
        job_priority=incident.job_priority,
        watched=desk.now_ms - desk.own().watched_ms <= desk.policy.verification.history_ms,
    )
    route = desk.policy.route(trouble)
    if route is None:
        return None
    last = repairs[-1] if repairs else None
    on_probation = last is not None and desk.now_ms - last.at_ms <= desk.policy.verification.probation_ms
    same = route.name == incident.route and route.mode == incident.mode
    return replace(
        incident,
        route=route.name,
        policy=desk.policy.version,
        rule=incident.rule or route.name,
        ladder=route.ladder,
        mode=route.mode,
        # What was only done in shadow is still to be done.
        done=() if incident.mode == "shadow" and route.mode == "live" else incident.done,
        cause_class=worst.cause_class,
        severity=severity_of(desk.policy, worst),
        tolerance_ms=desk.policy.tolerance_ms(route, trouble),
        floor=last.by if last is not None and on_probation else None,
        trend=worst.role == "trend",
        at=incident.at if same else 0,
        tries=incident.tries if same else 0,
        stage="climbing" if not same else incident.stage,
        not_before_ms=incident.not_before_ms if same or not incident.route else 0,
    )


def is_more_at_stake(incident: IncidentCard, facts: NodeFacts) -> bool:
    """Return whether a larger job works on the node than was known, or one of a higher priority."""
    return _at_stake(incident, facts) != incident


def _at_stake(incident: IncidentCard, facts: NodeFacts | None) -> IncidentCard:
    """Return the incident with what works on its node: that a job has ended there does not make it smaller."""
    if facts is None:
        return incident
    found = [value for value in (incident.job_priority, facts.job_priority) if value is not None]
    return replace(incident, job_gpus=max(incident.job_gpus, facts.job_gpus), job_priority=max(found, default=None))


def trouble_of(trait: Trait, card: NodeCard) -> Trouble:
    """Return what a route is chosen by; a step that the driver announced near it overrides the catalogue's hint."""
    facts = card.facts
    return Trouble(
        origin=trait.origin,
        cause=trait.cause,
        cause_class=trait.cause_class,
        role=trait.role,
        severity=trait.severity,
        fatal=trait.fatal,
        fault=trait.fault,
        hint=announcing.announced_for(card, trait) or trait.hint,
        rule=trait.rule,
        family=trait.family or (None if facts is None else facts.gpu_family),
        pool=None if facts is None else facts.pool,
        job_gpus=0 if facts is None else facts.job_gpus,
        job_priority=None if facts is None else facts.job_priority,
    )


def _joined(desk: Desk, incident: IncidentCard, trait: Trait) -> IncidentCard:
    """Return a node's open incident with one more fault; its timer goes on from the first one."""
    card = desk.node(incident.node)
    incident = replace(
        incident,
        first_ms=_troubled_since_ms(card.traits) if incident.trend else incident.first_ms,
        last_ms=max(incident.last_ms, trait.since_ms),
        count=incident.count + 1,
        evidence=tuple(dict.fromkeys((*incident.evidence, trait.evidence)))[:EVIDENCE_MAX],
        faults=tuple(dict.fromkeys((*incident.faults, trait.fault)))[:EVIDENCE_MAX],
    )
    if incident.repaired_by is not None:
        return incident
    if _confirms(incident, trait):
        return routed(desk, incident, card, by=trait) or incident
    return incident if worst_of(card.traits).key != trait.key else routed(desk, incident, card) or incident


def _confirms(incident: IncidentCard, trait: Trait) -> bool:
    """Return whether a check finds what an incident that has not acted yet is about: it counts more than one report."""
    same = family_of(trait.cause) == family_of(incident.cause)
    return not incident.issued and same and trait.role == "root" and trait.fault.startswith("check:")


# --- what else is heard of a node ----------------------------------------------------------------------


def announced(desk: Desk, word: Announced) -> None:
    """Let the step that the driver announces decide: the one it asks for, or none where it has recovered.

    Where nothing else says why, the announcement is what is wrong with the node.
    """
    card = fleet.keep(desk, announcing.noted(desk.node(word.node), word))
    about = announcing.explained_by(card, word)
    incident = desk.incident(card.incident)
    if word.hint == "none":
        _recovered(desk, card, about, word)
    elif not about:
        if announcing.calls_for(word.hint):
            opened(desk, word.node, announcing.trait_of(card, word))
    elif incident is not None and incident.node and incident.repaired_by is None:
        advance(desk, routed(desk, incident, card) or incident)


def _recovered(desk: Desk, card: NodeCard, about: tuple[Trait, ...], word: Announced) -> None:
    """Take off the node what its driver says is over: the faults near it, and what it asked for before."""
    asked = (trait for trait in card.traits if announcing.is_taken_back(trait, word))
    for trait in (*about, *asked):
        cleared(desk, card.node, trait.key, max(trait.since_ms, word.at_ms))


def recognised(desk: Desk, incident: IncidentCard) -> IncidentCard:
    """Return a node's incident routed anew: what its machine had before, or what works there, is known now."""
    card = desk.node(incident.node)
    if not card.traits or incident.repaired_by is not None:
        return incident
    return routed(desk, incident, card) or incident


def gone(desk: Desk, incident: IncidentCard) -> None:
    """End the incident of a node that was taken away: hardware that comes back has restarted, and brings its record."""
    close(desk, replace(incident, repaired_by=incident.repaired_by or "reboot"), "the node is gone")


def intervened(desk: Desk, word: Intervened) -> None:
    """A person who puts a node back ends its incident; what failed then calls for nothing for a day."""
    if word.command_id is not None:
        echoes.heard(desk, word)
        return
    if word.action not in ("uncordon", "add") or echoes.returned(desk, word):
        return
    if word.actor in desk.policy.controllers:
        return
    card = desk.node(word.node)
    incident = desk.incident(card.incident)
    fleet.keep(desk, looked_past.put_back(card, word.at_ms, desk.now_ms))
    if incident is None:
        return
    if incident.node:
        close(desk, incident, f"put back by {word.actor}", remember=bool(incident.harmed))
    else:
        common.left(desk, incident, word.node)
