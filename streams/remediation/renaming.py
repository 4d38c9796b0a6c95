"""Machines that come back under another name: what is open under the old one is over, as nothing is there now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from faultlens.clock import MINUTE_MS
from faultlens.internal import NodeFacts, Tended
from streams.remediation import common, fleet
from streams.remediation.closing import close
from streams.remediation.desk import Desk
from streams.remediation.history import most_of
from streams.remediation.record import NodeCard, Place

_SILENT: Final = "host.lost.silent"
_GONE: Final = frozenset({"down", "removed"})


def noted(desk: Desk, card: NodeCard) -> None:
    """Note under which name a machine is that has something wrong."""
    for name in _names(card.facts):
        desk.put(Place(desk.cluster, name, card.node, desk.now_ms))


def followed(desk: Desk, node: str, *, is_new: bool) -> None:
    """End what is open under the name that the node's machine had before, once nothing reports under that any more.

    `is_new`: it is only now known which machine it is; while the old name still reports, the node is watched for it.
    """
    card = desk.node(node)
    former = _former(desk, card)
    if former is None:
        return
    if not _is_silent(desk, former):
        if is_new and former.facts is not None:
            until_ms = desk.now_ms + 2 * former.facts.interval_ms + MINUTE_MS
            desk.tend(Tended(node, desk.cluster, desk.now_ms, until_ms, incident_id=card.incident))
        return
    incident = desk.incident(former.incident)
    emptied(desk, former)
    noted(desk, card)
    if incident is not None and incident.node:
        # Hardware that comes back has restarted, and brings its record.
        repaired_by = incident.repaired_by or "reboot"
        close(desk, replace(incident, repaired_by=repaired_by), f"its machine is {node} now")
    elif incident is not None:
        common.left(desk, incident, former.node)


def emptied(desk: Desk, former: NodeCard) -> None:
    """Let a name have no machine: it is no capacity that could be out, unless it is heard of again."""
    facts = former.facts and replace(former.facts, state="removed")
    fleet.keep(desk, replace(former, facts=facts, traits=(), taken=False, excluded=()))


def is_left_behind(desk: Desk, card: NodeCard, cause: str) -> bool:
    """Return whether it is only the silence of a name whose machine has another one by now."""
    return cause == _SILENT and _is_elsewhere(desk, card)


def is_empty(desk: Desk, card: NodeCard) -> bool:
    """Return whether nothing reports under a name any more, since its machine has another one."""
    return _is_elsewhere(desk, card) and _is_silent(desk, card)


def _is_elsewhere(desk: Desk, card: NodeCard) -> bool:
    where = None if card.facts is None else _at(desk, card.facts)
    return where not in (None, card.node) and _are_one(card.facts, desk.node(where or "").facts)


def _former(desk: Desk, card: NodeCard) -> NodeCard | None:
    """Return the node of another name in which the machine was when something was wrong with it that is still open."""
    facts = card.facts
    where = None if facts is None else _at(desk, facts)
    if facts is None or where in (None, card.node):
        return None
    former = desk.node(where or "")
    return former if former.incident is not None and _are_one(former.facts, facts) else None


def _at(desk: Desk, facts: NodeFacts) -> str | None:
    """Return the name under which the machine had something wrong last; None: it had nothing."""
    if facts.host_id is not None and (place := desk.place(f"host/{facts.host_id}")) is not None:
        return place.node
    found = [place.node for gpu in facts.gpus if (place := desk.place(f"gpu/{gpu}")) is not None]
    return most_of(found, len(facts.gpus))


def _are_one(one: NodeFacts | None, other: NodeFacts | None) -> bool:
    """Return whether two nodes say that they are the same machine; what says who it is is believed."""
    if one is None or other is None:
        return False
    if one.host_id is not None and other.host_id is not None:
        return one.host_id == other.host_id
    shared = ["both" for gpu in one.gpus if gpu in other.gpus]
    return most_of(shared, max(len(one.gpus), len(other.gpus))) is not None


def _is_silent(desk: Desk, former: NodeCard) -> bool:
    facts = former.facts
    if facts is None or facts.state in _GONE:
        return True
    return desk.now_ms - facts.report_ms > facts.interval_ms + MINUTE_MS


def _names(facts: NodeFacts | None) -> Iterator[str]:
    if facts is not None and facts.host_id is not None:
        yield f"host/{facts.host_id}"
    for gpu in () if facts is None else facts.gpus:
        yield f"gpu/{gpu}"
