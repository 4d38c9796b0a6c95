"""Every topic and every event type: one registry of names, keys and what travels where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from faultlens import events, internal
from faultlens.events import Data

Key = Literal["node", "job_id", "cluster", "objective", "original"]


@dataclass(frozen=True)
class Topic:
    """A topic: who writes it, by which field its records are keyed, whether it is public, and how long it is kept."""

    name: str
    kind: Literal["input", "output", "internal"]
    key: Key
    doc: str
    retention_days: int = 7


@dataclass(frozen=True)
class EventType:
    """A versioned type of event: its topic, its data, and the data field that the envelope's subject repeats."""

    name: str
    topic: str
    data: type[Data]
    subject: str


NODE_EVENTS: Final = "node-events"
JOB_EVENTS: Final = "job-events"
PLATFORM_EVENTS: Final = "platform-events"
REMEDIATION_RESULTS: Final = "remediation-results"
ATTRIBUTIONS: Final = "attributions"
NODE_STATES: Final = "node-states"
GOODPUT: Final = "goodput"
FLEET_TIME: Final = "fleet-time"
SLO_STATUS: Final = "slo-status"
FINDINGS: Final = "findings"
INCIDENTS: Final = "incidents"
REMEDIATION_COMMANDS: Final = "remediation-commands"
DEAD_LETTERS: Final = "dead-letters"
ALLOCATIONS: Final = "allocations"
EVIDENCE: Final = "evidence"
CONTEXT: Final = "context"
CENSUS: Final = "census"
CONDITIONS: Final = "conditions"
SAMPLES: Final = "samples"

TOPICS: Final[dict[str, Topic]] = {
    topic.name: topic
    for topic in (
        Topic(NODE_EVENTS, "input", "node", "Health reports, faults and actions of nodes."),
        Topic(JOB_EVENTS, "input", "job_id", "The life of jobs, as launchers and bridges tell it."),
        Topic(PLATFORM_EVENTS, "input", "cluster", "Incidents, roll-outs, maintenance and operators' controls."),
        Topic(REMEDIATION_RESULTS, "input", "cluster", "What became of commands, from actuators."),
        Topic(ATTRIBUTIONS, "output", "job_id", "The verdict on every failed attempt, with its revisions.", 400),
        Topic(NODE_STATES, "output", "node", "The state that a node is in since a time.", 400),
        Topic(GOODPUT, "output", "job_id", "What the allocated GPU time of attempts was spent on.", 400),
        Topic(FLEET_TIME, "output", "cluster", "What the fleet's GPU time was used for, hour by hour.", 400),
        Topic(SLO_STATUS, "output", "objective", "Where each objective stands.", 400),
        Topic(FINDINGS, "output", "job_id", "Trouble of jobs that have not failed.", 400),
        Topic(INCIDENTS, "output", "cluster", "One record per change of a root cause's incident.", 400),
        Topic(REMEDIATION_COMMANDS, "output", "node", "What actuators are told to do.", 400),
        Topic(DEAD_LETTERS, "output", "original", "Records that could not be processed, with the reason.", 30),
        Topic(ALLOCATIONS, "internal", "node", "What attempts hold of a node and let go of, and what we did to it."),
        Topic(EVIDENCE, "internal", "job_id", "What nodes know that bears on an attempt."),
        Topic(CONTEXT, "internal", "cluster", "What concerns everyone, a copy for every lane."),
        Topic(CENSUS, "internal", "cluster", "Each lane's count of covered nodes and of those on time."),
        Topic(CONDITIONS, "internal", "cluster", "What remediation is told: conditions, states, verdicts, findings."),
        Topic(SAMPLES, "internal", "objective", "Contributions to the objectives."),
    )
}

TYPES: Final[dict[str, EventType]] = {
    event_type.name: event_type
    for event_type in (
        EventType("faultlens.node.health.v1", NODE_EVENTS, events.NodeHealth, "node"),
        EventType("faultlens.node.fault.v1", NODE_EVENTS, events.NodeFault, "node"),
        EventType("faultlens.node.action.v1", NODE_EVENTS, events.NodeActed, "node"),
        EventType("faultlens.job.submitted.v1", JOB_EVENTS, events.JobSubmitted, "job_id"),
        EventType("faultlens.job.allocated.v1", JOB_EVENTS, events.JobAllocated, "job_id"),
        EventType("faultlens.job.started.v1", JOB_EVENTS, events.JobStarted, "job_id"),
        EventType("faultlens.job.alive.v1", JOB_EVENTS, events.JobAlive, "job_id"),
        EventType("faultlens.job.pending.v1", JOB_EVENTS, events.JobPending, "job_id"),
        EventType("faultlens.job.resized.v1", JOB_EVENTS, events.JobResized, "job_id"),
        EventType("faultlens.job.progress.v1", JOB_EVENTS, events.JobProgress, "job_id"),
        EventType("faultlens.job.checkpoint.v1", JOB_EVENTS, events.JobCheckpoint, "job_id"),
        EventType("faultlens.job.rank_exited.v1", JOB_EVENTS, events.RankExited, "job_id"),
        EventType("faultlens.job.ended.v1", JOB_EVENTS, events.JobEnded, "job_id"),
        EventType("faultlens.job.labelled.v1", JOB_EVENTS, events.JobLabelled, "job_id"),
        EventType("faultlens.platform.incident.v1", PLATFORM_EVENTS, events.PlatformIncident, "cluster"),
        EventType("faultlens.platform.rollout.v1", PLATFORM_EVENTS, events.PlatformRollout, "cluster"),
        EventType("faultlens.platform.maintenance.v1", PLATFORM_EVENTS, events.PlatformMaintenance, "cluster"),
        EventType("faultlens.operator.control.v1", PLATFORM_EVENTS, events.OperatorControl, "cluster"),
        EventType("faultlens.remediation.result.v1", REMEDIATION_RESULTS, events.RemediationResult, "cluster"),
        EventType("faultlens.job.attributed.v1", ATTRIBUTIONS, events.JobAttributed, "job_id"),
        EventType("faultlens.node.state.v1", NODE_STATES, events.NodeState, "node"),
        EventType("faultlens.job.time.v1", GOODPUT, events.JobTime, "job_id"),
        EventType("faultlens.fleet.time.v1", FLEET_TIME, events.FleetTime, "cluster"),
        EventType("faultlens.slo.status.v1", SLO_STATUS, events.SloStatus, "objective"),
        EventType("faultlens.job.finding.v1", FINDINGS, events.JobFinding, "job_id"),
        EventType("faultlens.incident.v1", INCIDENTS, events.Incident, "cluster"),
        EventType("faultlens.remediation.command.v1", REMEDIATION_COMMANDS, events.RemediationCommand, "node"),
        EventType("faultlens.dead_letter.v1", DEAD_LETTERS, events.DeadLetter, "topic"),
        EventType("faultlens.internal.held.v1", ALLOCATIONS, internal.Held, "node"),
        EventType("faultlens.internal.released.v1", ALLOCATIONS, internal.Released, "node"),
        EventType("faultlens.internal.evidence.v1", EVIDENCE, internal.NodeEvidence, "job_id"),
        EventType("faultlens.internal.answer.v1", EVIDENCE, internal.NodeAnswer, "job_id"),
        EventType("faultlens.internal.news.v1", EVIDENCE, internal.NodeNews, "job_id"),
        EventType("faultlens.internal.cause_asked.v1", EVIDENCE, internal.CauseAsked, "job_id"),
        EventType("faultlens.internal.cause_told.v1", EVIDENCE, internal.CauseTold, "job_id"),
        EventType("faultlens.internal.census.v1", CENSUS, internal.LaneCensus, "cluster"),
        EventType("faultlens.internal.context.v1", CONTEXT, internal.ContextChange, "cluster"),
        EventType("faultlens.internal.condition.v1", CONDITIONS, internal.Condition, "cluster"),
        EventType("faultlens.internal.node_facts.v1", CONDITIONS, internal.NodeFacts, "cluster"),
        EventType("faultlens.internal.intervened.v1", CONDITIONS, internal.Intervened, "cluster"),
        EventType("faultlens.internal.announced.v1", CONDITIONS, internal.Announced, "cluster"),
        EventType("faultlens.internal.verdict.v1", CONDITIONS, internal.JobVerdict, "cluster"),
        EventType("faultlens.internal.trouble.v1", CONDITIONS, internal.JobTrouble, "cluster"),
        EventType("faultlens.internal.tended.v1", ALLOCATIONS, internal.Tended, "node"),
        EventType("faultlens.internal.sample.v1", SAMPLES, internal.Sample, "objective"),
        EventType("faultlens.internal.use.v1", SAMPLES, internal.UseSample, "cluster"),
    )
}

TYPE_OF: Final[dict[type[Data], EventType]] = {event_type.data: event_type for event_type in TYPES.values()}
INPUT_TYPES: Final[dict[str, EventType]] = {
    name: event_type for name, event_type in TYPES.items() if TOPICS[event_type.topic].kind == "input"
}
