"""Jobs that hang over a node in trouble: they are ended, and told where not to start again."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.clock import ms_of
from faultlens.codec import stable_id
from faultlens.internal import JobTrouble, NodeFacts
from streams.remediation import incidents
from streams.remediation.climbing import advance
from streams.remediation.desk import Desk
from streams.remediation.policy import Trouble
from streams.remediation.record import HungJob, NodeCard, Trait

_NODES_MAX: Final = 32


def troubled(desk: Desk, word: JobTrouble) -> None:
    """Take note that a job hangs; what is behind it may be known already."""
    finding = word.finding
    if finding.kind == "crash_loop" and finding.until is None:
        _excluded(desk, word)
    if finding.kind != "hang":
        return
    known = desk.job(word.job_id)
    if known is None or known.attempt != finding.attempt:
        known = HungJob(desk.cluster, word.job_id, finding.attempt)
    hung_ms = None if finding.until is not None else ms_of(finding.since)
    job = replace(known, hung_ms=hung_ms, heard_ms=desk.now_ms)
    desk.put(job)
    _ended_where_needed(desk, job)


def _excluded(desk: Desk, word: JobTrouble) -> None:
    """Take up a device on which a job fails again and again, where that is established and nothing else is known."""
    finding = word.finding
    node, cause = finding.node, finding.cause
    if node is None or finding.device is None or cause is None or finding.basis != "established":
        return
    if desk.node(node).incident is not None or cause.cause_class == "user":
        return
    trait = Trait(
        id=f"{word.job_id}/{finding.attempt}",
        key=f"finding:crash_loop:{finding.device.index}",
        fault="finding:crash_loop",
        cause=cause.code,
        cause_class=cause.cause_class,
        role="root",
        severity=1,
        since_ms=ms_of(finding.since),
        evidence=finding.evidence[-1].id if finding.evidence else word.job_id,
        origin="finding",
        rule="crash_loop",
        device=finding.device,
    )
    route = desk.policy.route(incidents.trouble_of(trait, desk.node(node)))
    if route is not None and desk.policy.ladders.get(route.ladder):
        incidents.opened(desk, node, trait)


def held(desk: Desk, facts: NodeFacts) -> None:
    """Take note of who holds a node that is in an incident of its own."""
    card = desk.node(facts.node)
    incident = desk.incident(card.incident)
    if incident is None or incident.node != facts.node:
        return
    for name in facts.jobs:
        job_id, _, attempt = name.rpartition("/")
        known = desk.job(job_id)
        if known is None or known.attempt != int(attempt):
            known = HungJob(desk.cluster, job_id, int(attempt), heard_ms=desk.now_ms)
        if facts.node not in known.nodes and len(known.nodes) < _NODES_MAX:
            known = replace(known, nodes=(*known.nodes, facts.node), heard_ms=desk.now_ms)
            desk.put(known)
            _ended_where_needed(desk, known)


def _ended_where_needed(desk: Desk, job: HungJob) -> None:
    """Open an incident for a job that hangs while a node that it holds has what ends jobs, if the policy says so."""
    if job.hung_ms is None or job.incident is not None:
        return
    behind = [card for node in job.nodes if _stops_jobs(desk, card := desk.node(node), job)]
    if not behind:
        return
    trait = max((t for card in behind for t in card.traits), key=lambda t: t.severity)
    trouble = Trouble("finding", trait.cause, trait.cause_class, severity=trait.severity, rule="hang")
    route = desk.policy.route(trouble)
    if route is None or not desk.policy.ladders.get(route.ladder):
        return
    name = stable_id(desk.cluster, "job", job.job_id, job.attempt, job.hung_ms)
    if desk.incident(name) is not None:
        return
    incident = replace(
        desk.begun(name, route, trait, job.hung_ms),
        job_id=job.job_id,
        attempt=job.attempt,
        members=tuple(card.node for card in behind),
        evidence=(trait.evidence,),
        jobs=(f"{job.job_id}/{job.attempt}",),
    )
    desk.put(replace(job, incident=incident.id))
    advance(desk, incident)


def _stops_jobs(desk: Desk, card: NodeCard, job: HungJob) -> bool:
    """Return whether something fatal is open on the node, and its incident is its own."""
    incident = desk.incident(card.incident)
    return incident is not None and bool(incident.node) and any(t.fatal and t.role == "root" for t in card.traits)
