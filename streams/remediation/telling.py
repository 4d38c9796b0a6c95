"""Incidents as people read them: published when something about them changed, and only then."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from faultlens.clock import moment_of
from faultlens.codec import fingerprint, stable_id
from faultlens.events import Incident, IncidentScope
from streams.remediation.desk import Desk
from streams.remediation.record import IncidentCard

_encode: Final = msgspec.json.Encoder().encode
_NODES_TOLD: Final = 256


def keep(desk: Desk, incident: IncidentCard) -> IncidentCard:
    """Keep the incident, and publish it if it is not as it was published last; return it."""
    data = _as_told(desk, incident)
    mark = fingerprint(_encode(replace(data, phase="closed" if incident.stage == "closed" else "changed")).hex())
    if mark != incident.told:
        # It may become what it was before within the same millisecond: that is a third word, not the first one again.
        incident = replace(incident, told=mark, tellings=incident.tellings + 1)
        desk.tell(stable_id(incident.id, mark.hex(), desk.now_ms, incident.tellings), data)
    desk.put(incident)
    return incident


def _phase(incident: IncidentCard) -> Literal["opened", "changed", "closed"]:
    if incident.stage == "closed":
        return "closed"
    return "changed" if incident.told else "opened"


def _as_told(desk: Desk, incident: IncidentCard) -> Incident:
    nodes = incident.members[:_NODES_TOLD] if incident.members else (incident.node,) if incident.node else ()
    device = incident.device
    kind, _, name = incident.domain.partition("/")
    return Incident(
        incident_id=incident.id,
        cluster=incident.cluster,
        phase=_phase(incident),
        cause=incident.cause,
        severity=incident.severity,
        scope=IncidentScope(
            nodes=nodes,
            devices=None if device is None or device.index is None else (f"{incident.node}/{device.index}",),
            domains={kind: (name,)} if name else None,
            rollout_id=incident.rollout_id,
        ),
        first_seen=moment_of(incident.first_ms),
        last_seen=moment_of(incident.last_ms),
        count=incident.count,
        rule=incident.rule,
        evidence=incident.evidence,
        command_ids=incident.commands,
        jobs=incident.jobs,
        waits_for=incident.waits,
        closed_because=incident.closed_because,
    )
