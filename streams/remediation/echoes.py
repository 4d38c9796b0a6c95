"""What a scheduler's bridge tells of our own commands: it may be the only one who does, and it comes late."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.clock import MINUTE_MS
from faultlens.internal import Intervened
from streams.remediation import fleet
from streams.remediation.climbing import advance
from streams.remediation.desk import Desk
from streams.remediation.record import CommandCard

# A bridge may tell so late what was done to a node.
_TOLD_LATE_MS: Final = 10 * MINUTE_MS


def returned(desk: Desk, word: Intervened) -> bool:
    """Note that a node was put back by what we asked for, and return whether it was: a scheduler may not say so.

    It is seen before the command's result, or told after it, when the node may have been taken again.
    """
    card = desk.node(word.node)
    incident = desk.incident(card.incident)
    if incident is not None and incident.stage == "returning" and card.command is not None:
        _came_back(desk, word)
        return True
    return word.at_ms <= card.returned_ms and desk.now_ms - card.returned_ms < _TOLD_LATE_MS


def heard(desk: Desk, word: Intervened) -> None:
    """Note what was done for a command of ours, whatever its actuator says of it.

    What was commanded by nobody here is held by somebody else.
    """
    command = desk.issued(word.command_id)
    if command is None:
        return
    if word.action in ("cordon", "drain"):
        _held(desk, word, command)
    elif command.action == "return_to_service":
        _came_back(desk, word)


def _held(desk: Desk, word: Intervened, command: CommandCard) -> None:
    """A command that is over was carried out: the node is ours to bring back."""
    card = desk.node(word.node)
    awaited = desk.issued(card.command)
    if awaited is not None and (awaited.id == command.id or awaited.action == "return_to_service"):
        return  # its end will say
    back_ms = max(card.returned_ms, card.put_back_ms)
    if card.taken or (word.at_ms <= back_ms and desk.now_ms - back_ms < _TOLD_LATE_MS):
        return
    fleet.keep(desk, replace(card, taken=True, taken_ms=word.at_ms))
    if card.incident is None:
        desk.released.append((word.node, None))


def _came_back(desk: Desk, word: Intervened) -> None:
    """The node is in service: it costs room in the caps to take it again, though no result may ever come."""
    card = desk.node(word.node)
    incident = desk.incident(card.incident)
    if not card.taken or word.at_ms < card.taken_ms:
        return
    fleet.keep(desk, replace(card, taken=False, returned_ms=word.at_ms))
    if incident is not None and incident.node and incident.stage == "returning":
        advance(desk, incident)
