"""Whether a node is kept from work by us, and whether something is wrong with it that is a reason for that."""

from __future__ import annotations

from streams.remediation.desk import Desk
from streams.remediation.policy import TAKING
from streams.remediation.record import IncidentCard, NodeCard, Trait


def troubles(card: NodeCard) -> tuple[Trait, ...]:
    """Return what is wrong with the node and is more than wear."""
    return tuple(trait for trait in card.traits if trait.role != "trend")


def is_taken(card: NodeCard) -> bool:
    """Return whether we keep the node, or a device of it, from work."""
    return card.taken or bool(card.excluded)


def takes(desk: Desk, incident: IncidentCard, *, or_device: bool = False) -> bool:
    """Return whether a step on the incident's way keeps work away from its node, or from a device of it."""
    actions = {rung.action for rung in desk.policy.ladders.get(incident.ladder, ())}
    return bool(actions & TAKING) or (or_device and "exclude_device" in actions)


def is_bad(desk: Desk, incident: IncidentCard, card: NodeCard) -> bool:
    """Return whether something is wrong with the node: what only wears out is, if the incident is about that.

    It is no reason to keep a node that something else has taken, unless that would be done about it.
    """
    counts = incident.trend and (takes(desk, incident, or_device=True) or not is_taken(card))
    return bool(card.traits if counts else troubles(card))
