"""What stands in the way of a step: an ordered list, the first that holds is the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from faultlens.clock import MINUTE_MS
from faultlens.events import IN_MAINTENANCE, KEPT_BY, Action
from streams.context import covers
from streams.remediation import controls
from streams.remediation.controls import Aim, by_whom
from streams.remediation.desk import Desk
from streams.remediation.fleet import over_cap
from streams.remediation.policy import DISRUPTIVE, TAKING, VACANT, Rung
from streams.remediation.record import IncidentCard, NodeCard

# Telling people and looking on need nobody's leave.
HARMLESS: Final = frozenset({"watch", "open_ticket"})
_BY_PEOPLE: Final = ("held by", KEPT_BY, "paused by", IN_MAINTENANCE)
_BY_CAP: Final = "cap of"
_FOR_APPROVAL: Final = "approval of"
# A lane's count of nodes that is older than this says nothing of now.
_COUNT_KEPT_MS: Final = 15 * MINUTE_MS


class Step(Struct, frozen=True):
    """A step that an incident is about to take, and the command that would be issued for it."""

    incident: IncidentCard
    card: NodeCard
    rung: Rung
    command_id: str

    @property
    def action(self) -> Action:
        """What would be done."""
        return self.rung.action

    @property
    def aim(self) -> Aim:
        """What a person's word may name of it: what many nodes share is told, whatever is said of one of them."""
        facts = self.card.facts
        node = "" if self.incident.domain and self.action in HARMLESS else self.card.node
        return Aim(node, None if facts is None else facts.pool, self.incident.route, self.command_id)


def is_by_people(why: str) -> bool:
    """Return whether it is people who stand in the way: they need not be told of it."""
    return why.startswith(_BY_PEOPLE)


def is_for_room(why: str) -> bool:
    """Return whether a cap stands in the way: somebody else's return ends that."""
    return why.startswith(_BY_CAP)


def is_for_approval(why: str) -> bool:
    """Return whether nothing but a person's word is missing."""
    return why.startswith(_FOR_APPROVAL)


def obstacle(desk: Desk, step: Step) -> str | None:
    """Return why the step cannot be taken now; None: nothing stands in its way."""
    return next((why for gate in _GATES if (why := gate(desk, step)) is not None), None)


def _held(desk: Desk, step: Step) -> str | None:
    word = controls.said(desk.own(), "hold", step.aim, desk.now_ms)
    return None if word is None else f"held by {by_whom(word)}"


def _paused(desk: Desk, step: Step) -> str | None:
    if step.action not in DISRUPTIVE:
        return None
    word = controls.said(desk.own(), "pause", step.aim, desk.now_ms)
    return None if word is None else f"paused by {by_whom(word)}"


def _kept_by_others(desk: Desk, step: Step) -> str | None:
    facts = step.card.facts
    if step.action in HARMLESS or facts is None or facts.actor is None:
        return None
    return f"{KEPT_BY} {facts.actor}"


def _maintained(desk: Desk, step: Step) -> str | None:
    facts = step.card.facts
    if step.action in HARMLESS or facts is None:
        return None
    for entry in desk.own().context.maintenance.values():
        if entry.until_ms is None and covers(entry.what.scope, node=facts.node, pool=facts.pool, domains=facts.domains):
            return f"{IN_MAINTENANCE} {entry.what.maintenance_id}"
    return IN_MAINTENANCE if facts.state == "maintenance" else None


def _blind(desk: Desk, step: Step) -> str | None:
    """When we do not hear most nodes, what we believe of any of them is worth little."""
    if step.action not in TAKING:
        return None
    counts = [count for count in desk.own().lanes.values() if desk.now_ms - count[0] <= _COUNT_KEPT_MS]
    covered, on_time = sum(count[1] for count in counts), sum(count[2] for count in counts)
    return f"only {on_time} of {covered} nodes are heard" if 2 * on_time < covered else None


def _capped(desk: Desk, step: Step) -> str | None:
    device = step.action == "exclude_device"
    if step.action not in TAKING and not device:
        return None
    return over_cap(desk, step.card, device=device, shadow=step.incident.mode == "shadow")


def _unapproved(desk: Desk, step: Step) -> str | None:
    if not step.rung.approval or controls.said(desk.own(), "approve", step.aim, desk.now_ms) is not None:
        return None
    return f"{_FOR_APPROVAL} {step.action}: faultlens approve {step.command_id}"


def _busy(desk: Desk, step: Step) -> str | None:
    facts = step.card.facts
    if step.rung.wait not in VACANT or facts is None or not facts.jobs:
        return None
    return f"{len(facts.jobs)} jobs still run there"


_GATES: Final[tuple[Callable[[Desk, Step], str | None], ...]] = (
    _held,
    _kept_by_others,
    _maintained,
    _paused,
    _blind,
    _busy,
    _unapproved,
    _capped,
)
