"""The end of an incident: the node is free of it, and what it had is remembered."""

from __future__ import annotations

from msgspec.structs import replace

from streams.remediation import fleet
from streams.remediation.desk import Desk
from streams.remediation.history import remember as remembered
from streams.remediation.record import IncidentCard
from streams.remediation.telling import keep


def close(desk: Desk, incident: IncidentCard, because: str, *, remember: bool = True) -> IncidentCard:
    """Return the incident closed; `remember`: it counts when the same comes again."""
    incident = replace(
        incident, stage="closed", closed_ms=desk.now_ms, closed_because=because[:200], waits=None, due_ms=None
    )
    if incident.node:
        card = desk.node(incident.node)
        if card.incident == incident.id:
            card = replace(
                card,
                incident=None,
                taking="" if card.taking == "shadow" else card.taking,
                covered_from_ms=incident.first_ms,
                covered_to_ms=desk.now_ms,
            )
            fleet.keep(desk, card)
        if remember:
            remembered(desk, incident, card)
    desk.closed.append(incident.id)
    return keep(desk, incident)
