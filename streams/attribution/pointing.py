"""Where the job itself says that its trouble began: what settles which of several faults it was."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from faultlens.internal import Observation
from streams.attribution.facts import Exit, Facts

# What a rank says of the device and machine under it. What it says of its peers, of links or of time that ran out is
# said by many ranks of a gang, whoever broke.
_OF_ITS_OWN: Final = ("gpu.", "driver.", "fabric.", "host.", "app.cuda_error", "app.illegal_access")
_LEAST_SEVERITY: Final = 50
_LOST: Final = frozenset({"silent", "rebooted"})
_WORD: Final = re.compile(r"[\w.-]+")


class Pointed(Struct, frozen=True):
    """The devices (node, index) and the nodes that the job's own words and its flight recorder point at."""

    devices: frozenset[tuple[str, int]] = frozenset()
    nodes: frozenset[str] = frozenset()


def pointed(facts: Facts) -> Pointed:
    """Return where the job points: ranks that never came to a collective, the first one that broke, the peer missed."""
    spots = list(facts.suspects_on)
    victim = _first_victim(facts)
    if victim is not None:
        spots.append((victim.node, victim.device))
    devices = frozenset((node, index) for node, index in spots if index is not None)
    return Pointed(devices, frozenset(node for node, _ in spots) | _missed_peers(facts))


def broke_first(facts: Facts) -> str | None:
    """Return the node on which a rank first said that something broke under it, and that the others missed by name."""
    victim = _first_victim(facts)
    return victim.node if victim is not None and victim.node in _missed_by_ranks(facts) else None


def pointed_first(facts: Facts, faults: Sequence[Observation]) -> list[Observation]:
    """Return the faults with those first that lie where the job points, else in their order."""
    if len({(o.node, o.device) for o in faults}) < 2:
        return list(faults)
    where = pointed(facts)
    return sorted(faults, key=lambda o: -_weight(where, o))


def _weight(where: Pointed, fault: Observation) -> int:
    if not fault.fatal or (fault.severity < _LEAST_SEVERITY and fault.code not in _LOST):
        return 0
    index = fault.device.index if fault.device else None
    if index is not None and (fault.node, index) in where.devices:
        return 2
    return 1 if fault.node in where.nodes else 0


def _first_victim(facts: Facts) -> Exit | None:
    """Return the earliest exit that tells of something which broke where it ran."""
    victims = [
        e for e in facts.exits if e.said.role in ("root", "symptom") and e.said.cause_code.startswith(_OF_ITS_OWN)
    ]
    return min(victims, key=lambda e: (e.first_ms, e.rank), default=None)


def _missed_peers(facts: Facts) -> frozenset[str]:
    """Return the held nodes that most ranks miss by name, or that the scheduler's last word names."""
    named = {*_WORD.findall(facts.end.message or "")} if facts.end.scheduler else set()
    return _missed_by_ranks(facts) | (named & facts.held.keys())


def _missed_by_ranks(facts: Facts) -> frozenset[str]:
    named: Counter[str] = Counter()
    for leaving in facts.exits:
        if leaving.said.role == "cascade":
            named.update({*_WORD.findall(leaving.said.line)} & facts.held.keys() - {leaving.node})
    most = max(named.values(), default=0)
    return frozenset(node for node, times in named.items() if times == most)
