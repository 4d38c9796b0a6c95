"""What no report will ever say is over: it is taken off a node by the repair that it asked for, or by a test passed."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from streams.remediation import fleet
from streams.remediation.announcing import is_met
from streams.remediation.desk import Desk
from streams.remediation.record import CommandCard, IncidentCard, Trait

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
