"""From what lines tell to events: a storm of one fault is a few records with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, cast

from msgspec import Struct

from faultlens.clock import MINUTE_MS
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import DetectedBy, FaultKind, NodeFault, Process
from producers.kernel_log.devices import device_ref
from producers.kernel_log.lines import KERNEL
from producers.kernel_log.scanning import Seen

# The first of its kind is sent at once; what follows within a minute is counted and sent together.
FOLD_MS: Final = MINUTE_MS
MESSAGE_CHARS: Final = 1_000
# Distinct faults (kind, code, device, process …) that are counted at a time, and first ones whose number is known.
FOLDS_LIMIT: Final = 2_000
BEGUN_LIMIT: Final = 20_000

Key = tuple[object, ...]


class Node(NamedTuple):
    """The node whose log it is."""

    name: str
    cluster: str
    family: str | None = None
    pool: str | None = None


class _Fold(Struct):
    """What one kind of fault came to since it was told: the first of those that followed, the last one's time."""

    first_ms: int
    number: int
    repeat: Seen | None = None
    last_ms: int = 0
    repeats: int = 0


def fault_events(seen: Iterable[Seen], node: Node) -> list[Event]:
    """Return the faults as events, in the order of their arrival: each as an agent would have sent it."""
    folder = Folder(node)
    events = [event for one in seen for event in folder.take(one)] + folder.rest()
    return sorted(events, key=lambda event: event.recorded_ms or event.time_ms)


class Folder:
    """Turns faults into events as they come. At most `FOLDS_LIMIT` kinds of fault are open at a time."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._open: dict[Key, _Fold] = {}
        # A clock that was set back gives a fault the time of an earlier one.
        self._begun: Counter[tuple[Key, int]] = Counter()

    def take(self, one: Seen) -> Iterator[Event]:
        """Yield what is to be told now that one more fault was seen."""
        key = _key(one)
        fold = self._open.get(key)
        if fold is not None and abs(one.at_ms - fold.first_ms) <= FOLD_MS:
            fold.last_ms = max(one.at_ms, fold.last_ms)
            fold.repeat = fold.repeat or one
            fold.repeats += 1
            return
        if fold is not None:
            yield from self._repeats(self._open.pop(key))
        elif len(self._open) >= FOLDS_LIMIT:
            yield from self._repeats(self._open.pop(next(iter(self._open))))
        yield self._first(one, key)

    def _first(self, one: Seen, key: Key) -> Event:
        if len(self._begun) > BEGUN_LIMIT:
            self._begun.clear()
        self._begun[key, one.at_ms] += 1
        fold = self._open[key] = _Fold(one.at_ms, self._begun[key, one.at_ms], last_ms=one.at_ms)
        return _event(one, self._node, fold, count=1)

    def due(self, now_ms: int) -> list[Event]:
        """Return what followed the first ones, of faults whose minute is over, and forget those."""
        over = [key for key, fold in self._open.items() if now_ms - fold.first_ms > FOLD_MS]
        return [event for key in over for event in self._repeats(self._open.pop(key))]

    def rest(self) -> list[Event]:
        """Return what followed the first ones and was not told yet: the log ends here."""
        folds, self._open = self._open, {}
        return [event for fold in folds.values() for event in self._repeats(fold)]

    def _repeats(self, fold: _Fold) -> Iterator[Event]:
        if fold.repeat is not None:
            yield _event(fold.repeat, self._node, fold, count=fold.repeats)


def _key(one: Seen) -> Key:
    return one.kind, one.code, one.subcode, one.pci, one.link, one.pid, one.boot_id, one.synthetic


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
