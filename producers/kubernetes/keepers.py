"""Who keeps a node from new work, and who let it go again, as far as the server and controllers' own marks say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from faultlens.clock import ms_of
from faultlens.kubernetes_marks import CORDON_FIELD, MANAGER
from producers.kubernetes.objects import Metadata, Node, held_by
from producers.kubernetes.words import load_words

# Who it was when nothing says so.
UNKNOWN: Final = "kubernetes"
_MADE_UNSCHEDULABLE: Final = CORDON_FIELD.encode()
_KEEPS_OUT: Final = frozenset({"NoSchedule", "NoExecute"})
_WRITERS_MAX: Final = 32


class Keeper(NamedTuple):
    """Who keeps a node from work, and since when (None: that is not told).

    `is_us`: it is cordoned by us; `is_marked`: by a mark that only this one sets and takes away. `is_planned`: it is
    not wanted any more.
    """

    name: str
    since_ms: int | None
    is_us: bool = False
    is_marked: bool = False
    is_planned: bool = False


def keeper_of(node: Node) -> Keeper | None:
    """Return who keeps the node from new work; None: nobody does.

    A cordon is whose the server says that it is; controllers that put a taint or label there instead are known by it.
    """
    if node.spec.unschedulable:
        by = held_by(node.metadata, _MADE_UNSCHEDULABLE)
        if by is None:
            return Keeper(UNKNOWN, None)
        name = _named(by.manager)
        return Keeper(name, _ms(by.time), is_us=by.manager == MANAGER, is_planned=_is_planned(name))
    return next(_by_marks(node), None)


def _by_marks(node: Node) -> Iterator[Keeper]:
    labels = node.metadata.labels or {}
    for name, word in load_words().keepers.items():
        for taint in node.spec.taints or ():
            if taint.key in word.taints and taint.effect in _KEEPS_OUT:
                yield Keeper(name, _ms(taint.time_added), is_marked=True, is_planned=word.planned)
        if any(fnmatchcase(labels.get(label, ""), pattern) for label, pattern in word.labels.items()):
            yield Keeper(name, None, is_marked=True, is_planned=word.planned)


def writers_of(meta: Metadata) -> dict[str, int]:
    """Return when each client that may cordon nodes wrote something of the object that still holds."""
    idle = load_words().bystanders
    times = {f.manager: _ms(f.time) or 0 for f in meta.managed_fields or () if not f.subresource}
    known = sorted((name for name in times if name not in idle), key=lambda name: -times[name])
    return {name: times[name] for name in known[:_WRITERS_MAX]}


def let_go_by(now: Mapping[str, int], before: Mapping[str, int]) -> Keeper:
    """Return who ended what kept a node, by who wrote what of it before and after.

    Nobody holds a field that is gone. Known is only who wrote something else with it, such as a label that says so;
    `kubectl uncordon` and whoever else writes nothing more leave no name, and of two who wrote nobody is named.
    """
    wrote = [name for name, at_ms in now.items() if at_ms > before.get(name, 0)]
    if not before or len(wrote) != 1:
        return Keeper(UNKNOWN, None)
    return Keeper(_named(wrote[0]), now[wrote[0]])


def _named(manager: str) -> str:
    """Return what a client is called here: controllers by their name, and others as they call themselves."""
    keepers = load_words().keepers.items()
    known = (name for name, word in keepers if any(fnmatchcase(manager, pattern) for pattern in word.managers))
    return next(known, manager) or UNKNOWN


def _is_planned(name: str) -> bool:
    word = load_words().keepers.get(name)
    return word is not None and word.planned


def _ms(time: datetime | None) -> int | None:
    return None if time is None else ms_of(time)
