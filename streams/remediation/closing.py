"""The end of an incident: the node is free of it, and what it had is remembered."""

from __future__ import annotations

from msgspec.structs import replace

from streams.remediation import fleet
from streams.remediation.desk import Desk
from streams.remediation.record import (
    REPAIRS_MAX,
    IncidentCard,
    NodeCard,
    Repair,
)
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
            _remember(desk, incident, card)
    desk.closed.append(incident.id)
    return keep(desk, incident)


def names_of(card: NodeCard, incident: IncidentCard) -> list[str]:
    """Return what stays with the machine and with the GPU when names change (their serials, else what there is)."""
    device = incident.device
    part = None if device is None else device.serial or device.uuid
    return [_machine_of(card), *([] if part is None else [f"device/{part}"])]


def _machine_of(card: NodeCard) -> str:
    facts = card.facts
    return f"machine/{card.node if facts is None or facts.host_id is None else facts.host_id}"


def family_of(cause: str) -> str:
    """Return the part of a cause by which troubles are the same: its first two words."""
    return ".".join(cause.split(".")[:2])


def earlier_repairs(desk: Desk, incident: IncidentCard, card: NodeCard) -> list[Repair]:
    """Return the repairs of the same trouble on this machine or GPU within the history, the latest last."""
    since_ms = desk.now_ms - desk.policy.verification.history_ms
    found = {
        repair
        for name in names_of(card, incident)
        for repair in desk.machine(name).repairs
        if repair.at_ms >= since_ms and repair.by is not None and _is_the_same(repair, incident)
    }
    return sorted(found, key=lambda repair: repair.at_ms)


def _is_the_same(repair: Repair, incident: IncidentCard) -> bool:
    """Return whether it was the same trouble: a code that comes back after a restart may be charged otherwise."""
    return family_of(repair.cause) == family_of(incident.cause) or repair.fault in incident.faults


def earlier_incidents(desk: Desk, card: NodeCard) -> int:
    """Return how many incidents the machine had within the history that cost a job or took a repair."""
    since_ms = desk.now_ms - desk.policy.verification.history_ms
    repairs = desk.machine(_machine_of(card)).repairs
    return sum(repair.at_ms >= since_ms and (repair.harmed or repair.by is not None) for repair in repairs)


def earlier_times(desk: Desk, incident: IncidentCard, card: NodeCard) -> int:
    """Return how often the same trouble came to this machine and went again within a day, repaired or not."""
    since_ms = desk.now_ms - desk.policy.verification.probation_ms
    repairs = desk.machine(_machine_of(card)).repairs
    return sum(repair.at_ms >= since_ms and family_of(repair.cause) == family_of(incident.cause) for repair in repairs)


def cost_a_job(desk: Desk, card: NodeCard) -> None:
    """Note with the machine's last incident that a job was lost to it, which was settled only after its end."""
    machine = desk.machine(_machine_of(card))
    if machine.repairs:
        desk.put(replace(machine, repairs=(*machine.repairs[:-1], replace(machine.repairs[-1], harmed=True))))


def _remember(desk: Desk, incident: IncidentCard, card: NodeCard) -> None:
    since_ms = desk.now_ms - desk.policy.verification.history_ms
    for name in names_of(card, incident):
        machine = desk.machine(name)
        kept = [repair for repair in machine.repairs if repair.at_ms >= since_ms]
        repair = Repair(
            incident.cause,
            desk.now_ms,
            incident.repaired_by,
            incident.faults[0] if incident.faults else "",
            harmed=bool(incident.harmed),
        )
        desk.put(replace(machine, repairs=(*kept, repair)[-REPAIRS_MAX:]))
