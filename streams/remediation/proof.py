"""What no report will ever say is over: it is taken off a node by the repair that it asked for, or by a test passed."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from streams.remediation import fleet
from streams.remediation.announcing import is_met
from streams.remediation.desk import Desk
from streams.remediation.record import CommandCard, IncidentCard, NodeCard, Trait

PROOF: Final = "proof"


def only_clears(trait: Trait) -> bool:
    """Return whether no report will ever say that this is over."""
    return trait.origin in ("verdict", "finding") or trait.key == PROOF


def cured(desk: Desk, command: CommandCard) -> None:
    """Take what only verdicts, failed validations and the driver's announcements said off the node."""
    card, action = desk.node(command.node), command.action
    left = tuple(trait for trait in card.traits if not (only_clears(trait) or is_met(trait, action, command.device)))
    if left != card.traits:
        fleet.keep(desk, replace(card, traits=left))


def doubted(desk: Desk, incident: IncidentCard, command: CommandCard) -> None:
    """Note on the node that it failed its validation: that is wrong with it until it is repaired and passes."""
    card = desk.node(command.node)
    trait = Trait(
        id=command.id,
        key=PROOF,
        fault="check:validation",
        cause=incident.cause,
        cause_class=incident.cause_class,
        role="root",
        severity=incident.severity,
        since_ms=desk.now_ms,
        evidence=command.id,
        hint="validate",
    )
    fleet.keep(desk, replace(card, traits=(*(t for t in card.traits if t.key != PROOF), trait)))


def is_fresh(desk: Desk, incident: IncidentCard, card: NodeCard) -> bool:
    """Return whether the node has reported since it was repaired; one without an agent owes no reports.

    A report from another boot than the one that was to be ended was made after that, whichever of them is heard first.
    """
    facts = card.facts
    if facts is None or not facts.interval_ms or not incident.acted_ms or facts.report_ms > incident.acted_ms:
        return True
    commands = (desk.issued(command_id) for command_id in reversed(incident.commands))
    repair = next((c for c in commands if c is not None and c.ended_ms == incident.acted_ms), None)
    return repair is not None and None not in (repair.boot_id, facts.boot_id) and repair.boot_id != facts.boot_id
