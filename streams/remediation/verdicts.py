"""Verdicts that blame a node: they join its incident, ask for more than was done, or open one of their own."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.clock import MINUTE_MS
from faultlens.internal import JobVerdict
from streams.remediation import incidents
from streams.remediation.climbing import advance
from streams.remediation.desk import Desk
from streams.remediation.history import cost_a_job
from streams.remediation.record import JOBS_MAX, IncidentCard, NodeCard, Trait
from streams.remediation.telling import keep
from streams.remediation.wrong import takes

# A verdict comes five minutes after the end; what the last incident covered so long before is the same story.
_STORY_MS: Final = 15 * MINUTE_MS


def judged(desk: Desk, verdict: JobVerdict) -> None:
    """Let a settled verdict speak: it joins its node's incident, or opens one where nothing else would."""
    card = desk.node(verdict.node)
    incident = desk.incident(card.incident)
    attempt = f"{verdict.job_id}/{verdict.attempt}"
    if verdict.withdrawn:
        _taken_back(desk, verdict.node, attempt)
    elif incident is not None:
        _costs(desk, incident, verdict, attempt)
    elif verdict.basis == "established" and _is_covered(card, verdict):
        cost_a_job(desk, card)
    elif verdict.basis == "established":
        _speaks(desk, card, _said(verdict, attempt))


def _costs(desk: Desk, incident: IncidentCard, verdict: JobVerdict, attempt: str) -> None:
    """Note that a job was lost to an open incident's node, which may ask for more than was done so far."""
    established = verdict.basis == "established"
    incident = replace(incident, jobs=_with(incident.jobs, attempt))
    if established:
        incident = replace(incident, harmed=_with(incident.harmed, attempt))
    card = desk.node(verdict.node)
    if not established or not incident.node or not card.traits or card.taken or incident.repaired_by is not None:
        keep(desk, incident)
        return
    routed = advance(desk, incidents.routed(desk, incident, card) or incident)
    if routed.stage != "closed" and not takes(desk, routed):
        _speaks(desk, card, replace(_said(verdict, attempt), severity=min(100, routed.severity + 1)))


def _with(known: tuple[str, ...], attempt: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, attempt)))[:JOBS_MAX]


def _speaks(desk: Desk, card: NodeCard, trait: Trait) -> None:
    """Take up what a verdict says of a node, where the policy has something to be done about it."""
    route = desk.policy.route(incidents.trouble_of(trait, card))
    if route is not None and desk.policy.ladders.get(route.ladder):
        incidents.opened(desk, card.node, trait)


def _is_covered(card: NodeCard, verdict: JobVerdict) -> bool:
    """Return whether an earlier incident of the node was about what the verdict says."""
    return card.covered_from_ms - _STORY_MS <= verdict.ended_ms <= card.covered_to_ms + MINUTE_MS


def _said(verdict: JobVerdict, attempt: str) -> Trait:
    return Trait(
        id=attempt,
        key=f"verdict:{verdict.rule}:{verdict.code}",
        fault=f"verdict:{verdict.rule}",
        cause=verdict.code,
        cause_class=verdict.cause_class,
        role="root",
        severity=1,
        since_ms=verdict.ended_ms,
        evidence=verdict.evidence[0] if verdict.evidence else attempt,
        origin="verdict",
        rule=verdict.rule,
        device=verdict.device,
    )


def _taken_back(desk: Desk, node: str, attempt: str) -> None:
    for trait in desk.node(node).traits:
        if trait.origin == "verdict" and trait.id == attempt:
            incidents.cleared(desk, node, trait.key, desk.now_ms)
