"""From what lines tell to events: a storm of one fault is a few records with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, cast

from faultlens.clock import MINUTE_MS
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import DetectedBy, FaultKind, NodeFault, Process
from producers.kernel_log.devices import device_ref
from producers.kernel_log.lines import KERNEL
from producers.kernel_log.scanning import Seen

# The first of its kind is sent at once; what follows within a minute is counted and sent together.
FOLD_MS: Final = MINUTE_MS
MESSAGE_CHARS: Final = 1_000

Key = tuple[object, ...]


class Node(NamedTuple):
    """The node whose log it is."""

    name: str
    cluster: str
    family: str | None = None
    pool: str | None = None


class _Fold(NamedTuple):
    first_ms: int
    number: int
    repeat: Seen | None = None
    last_ms: int = 0
    repeats: int = 0


def fault_events(seen: Iterable[Seen], node: Node) -> list[Event]:
    """Return the faults as events, in the order of their arrival: each as an agent would have sent it."""
    return sorted(_folded(seen, node), key=lambda event: event.recorded_ms or event.time_ms)


def _folded(seen: Iterable[Seen], node: Node) -> Iterator[Event]:
    open_folds: dict[Key, _Fold] = {}
    # A clock that was set back gives a fault the time of an earlier one.
    begun: Counter[tuple[Key, int]] = Counter()
    for one in seen:
        key = _key(one)
        fold = open_folds.get(key)
        if fold is not None and abs(one.at_ms - fold.first_ms) <= FOLD_MS:
            last_ms = max(one.at_ms, fold.last_ms)
            open_folds[key] = fold._replace(repeat=fold.repeat or one, last_ms=last_ms, repeats=fold.repeats + 1)
            continue
        if fold is not None:
            yield from _repeats(fold, node)
        begun[key, one.at_ms] += 1
        fold = open_folds[key] = _Fold(one.at_ms, begun[key, one.at_ms], last_ms=one.at_ms)
        yield _event(one, node, fold, count=1)
    for fold in open_folds.values():
        yield from _repeats(fold, node)


def _key(one: Seen) -> Key:
    return one.kind, one.code, one.subcode, one.pci, one.link, one.pid, one.boot_id, one.synthetic


def _repeats(fold: _Fold, node: Node) -> Iterator[Event]:
    if fold.repeat is not None:
        yield _event(fold.repeat, node, fold, count=fold.repeats)


def _event(one: Seen, node: Node, fold: _Fold, *, count: int) -> Event:
    """Return the event of a fold: of its first fault, or of all that followed."""
    first = one is not fold.repeat
    known = one.pid is not None or one.process is not None
    detected_by: DetectedBy = "kmsg" if one.speaker == KERNEL else "other"
    data = NodeFault(
        node=node.name,
        cluster=node.cluster,
        kind=cast("FaultKind", one.kind),
        code=one.code,
        detected_by=detected_by,
        pool=node.pool,
        boot_id=one.boot_id,
        gpu_family=node.family,
        driver_version=one.told.driver,
        subcode=one.subcode,
        device=device_ref(one.pci, one.link, one.told.gpus),
        process=Process(one.pid, one.process) if known else None,
        message=one.message[:MESSAGE_CHARS],
        count=count,
        synthetic=one.synthetic,
    )
    part = ("first" if first else "more", fold.number)
    id_ = stable_id("kernel-log", node.cluster, node.name, *map(str, _key(one)), fold.first_ms, *part)
    recorded_ms = one.at_ms if first else fold.last_ms
    return event_of(data, source=f"agent/{node.name}", id_=id_, time_ms=one.at_ms, recorded_ms=recorded_ms)
