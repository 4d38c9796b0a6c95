"""What a scheduler's bridge tells of our own commands: it may be the only one who does, and it comes late."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.clock import MINUTE_MS
from faultlens.internal import Intervened
from streams.remediation import fleet
from streams.remediation.desk import Desk
from streams.remediation.record import IncidentCard, NodeCard

# A bridge may tell so late what was done to a node.
_TOLD_LATE_MS: Final = 10 * MINUTE_MS


def is_our_return(card: NodeCard, incident: IncidentCard | None, word: Intervened, now_ms: int) -> bool:
    """Return whether a node was put back by what we asked for: a scheduler may not say why it is back.

    It is seen before the command's result, or told after it, when the node may have been taken again.
    """
    if incident is not None and incident.stage == "returning" and card.command is not None:
        return True
    return word.at_ms <= card.returned_ms and now_ms - card.returned_ms < _TOLD_LATE_MS


def heard(desk: Desk, word: Intervened) -> None:
    """Note what was done for a command of ours that is over: it was carried out, and the node is ours to bring back.

    What was commanded by nobody here is held by somebody else.
    """
    card, command = desk.node(word.node), desk.issued(word.command_id)
    if word.action not in ("cordon", "drain") or command is None or card.taken:
        return
    awaited = desk.issued(card.command)
    if awaited is not None and (awaited.id == command.id or awaited.action == "return_to_service"):
        return  # its end will say
    back_ms = max(card.returned_ms, card.put_back_ms)
    if word.at_ms <= back_ms and desk.now_ms - back_ms < _TOLD_LATE_MS:
        return
    fleet.keep(desk, replace(card, taken=True))
    if card.incident is None:
        desk.released.append((word.node, None))
