"""How right remediation is, against what is truly wrong with machines: nodes taken out in vain, and those missed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, ms_of
from faultlens.truth import Breakage, Truth

# A node that broke is to be out by half an hour after the failure it caused. Where only failures are known, what
# broke within the hour before a node was taken out, or the day after, was the reason for it.
CAUGHT_BEFORE_MS: Final = HOUR_MS
CAUGHT_AFTER_MS: Final = 30 * MINUTE_MS
FOUNDED_AFTER_MS: Final = DAY_MS
_BLAMED: Final = frozenset({"hardware", "driver"})
_SILENCE: Final = "kernel:silent"
_EVER: Final = 1 << 62


class Isolation(NamedTuple):
    """When a node was first taken from work for an incident, and up to when that held; `faults` are `kind:code`."""

    node: str
    incident_id: str
    at_ms: int
    until_ms: int = _EVER
    faults: tuple[str, ...] = ()


class Episode(NamedTuple):
    """An incident that was open in [from_ms, until_ms): its nodes, whether it is about what they share (`common`), and
    whether it waited for somebody else who kept the node.
    """

    nodes: frozenset[str]
    from_ms: int
    until_ms: int = _EVER
    common: bool = False
    kept: bool = False


class Remedies(Struct, frozen=True):
    """Of `faults` (failures that a machine caused) so many had their node out, or soon: `isolated`; were held back on
    what nodes share, and a person told: `common`; were seen while somebody else kept the node: `kept`; had none
    of it, and the machine was well again half an hour later: `over`. The rest is `missed`.

    Of `isolations` `silent` took a node that was well and said nothing, and `unfounded` any other that was well.
    """

    faults: int
    isolated: int
    common: int
    kept: int
    over: int
    missed: int
    isolations: int
    silent: int
    unfounded: int


class Said(NamedTuple):
    """What remediation did."""

    isolations: Sequence[Isolation]
    episodes: Sequence[Episode] = ()


def remedies(truths: Iterable[Truth], breakages: Iterable[Breakage], said: Said) -> Remedies:
    """Hold what remediation did against failures that machines caused and, where known, what was wrong with them."""
    faults = [(t.node, ms_of(t.ended_at)) for t in truths if t.node is not None and t.cause_class in _BLAMED]
    broken = _by_node(breakages)
    became = Counter(_became(node, ended_ms, said, broken) for node, ended_ms in faults)
    founded = _founded_by_breakages(broken) if broken else _founded_by_failures(faults)
    vain = [one for one in said.isolations if not founded(one)]
    silent = sum(_SILENCE in one.faults for one in vain)
    return Remedies(
        faults=len(faults),
        isolated=became["isolated"],
        common=became["common"],
        kept=became["kept"],
        over=became["over"],
        missed=became["missed"],
        isolations=len(said.isolations),
        silent=silent,
        unfounded=len(vain) - silent,
    )


_Broken = Mapping[str, Sequence[tuple[int, int]]]


def _by_node(breakages: Iterable[Breakage]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for one in breakages:
        over_ms = _EVER if one.over_at is None else ms_of(one.over_at)
        found.setdefault(one.node, []).append((ms_of(one.began_at), over_ms))
    return found


def _became(node: str, ended_ms: int, said: Said, broken: _Broken) -> str:
    """Return what became of a machine that made a job fail, by half an hour later."""
    from_ms, by_ms = ended_ms - CAUGHT_BEFORE_MS, ended_ms + CAUGHT_AFTER_MS
    if any(one.node == node and one.at_ms <= by_ms and one.until_ms >= from_ms for one in said.isolations):
        return "isolated"
    open_then = [e for e in said.episodes if node in e.nodes and e.from_ms <= by_ms and e.until_ms >= ended_ms]
    if any(episode.common for episode in open_then):
        return "common"
    if any(episode.kept for episode in open_then):
        return "kept"
    struck = [over_ms for began_ms, over_ms in broken.get(node, ()) if began_ms <= ended_ms <= over_ms + HOUR_MS]
    return "over" if struck and all(over_ms <= by_ms for over_ms in struck) else "missed"


def _founded_by_breakages(broken: _Broken) -> Callable[[Isolation], bool]:
    """Return what says whether anything was wrong with the node when it was taken out."""
    return lambda one: any(began <= one.at_ms <= over for began, over in broken.get(one.node, ()))


def _founded_by_failures(faults: Sequence[tuple[str, int]]) -> Callable[[Isolation], bool]:
    """Return what says whether a failure is near: the most that can be in vain, since idle nodes make no job fail."""
    return lambda one: any(
        node == one.node and one.at_ms - CAUGHT_BEFORE_MS <= ended_ms <= one.at_ms + FOUNDED_AFTER_MS
        for node, ended_ms in faults
    )


def as_json(found: Remedies) -> dict[str, Any]:
    """Return the counts as plain values."""
    return {name: getattr(found, name) for name in found.__struct_fields__}


def as_text(found: Remedies) -> str:
    """Return the counts in lines."""
    others = (
        f"isolated {found.isolated:,}, held back for a common cause {found.common:,}, "
        f"kept out by others {found.kept:,}, over by themselves {found.over:,}"
    )
    return "\n".join(
        (
            f"Faults missed by remediation:     {_share(found.missed, found.faults)}",
            f"  of the others: {others}",
            f"Isolations without a fault:       {_share(found.unfounded, found.isolations)}",
            f"  and for silence alone:          {_share(found.silent, found.isolations)}",
        )
    )


def _share(part: int, total: int) -> str:
    return f"{part:,} of {total:,}" + (f" ({part / total:.1%})" if total else "")
