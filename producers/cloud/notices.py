"""What providers say, in one form, and what of it is told: what is new. A provider's "ok" clears nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import moment_of
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import Data, NodeFault, PlatformMaintenance, Scope

MESSAGE_CHARS: Final = 300
# What is not announced any more is over, or was called off; what was to begin has begun at its time.
Phase = Literal["scheduled", "started", "ended"]


class Notice(Struct, frozen=True, kw_only=True):
    """Something announced for a machine: `planned` unless the provider only takes it away. `starts_ms` None: now.

    `ends_ms`: when it will be over, where that is said. `phase`: as far as the provider says it has come.
    """

    id: str
    node: str
    what: str
    planned: bool = True
    phase: Phase = "scheduled"
    starts_ms: int | None = None
    ends_ms: int | None = None
    message: str = ""


class Impaired(Struct, frozen=True, kw_only=True):
    """A check of the provider's that a machine fails, since when."""

    node: str
    check: Literal["system", "instance"]
    since_ms: int | None = None
    message: str = ""


class Answer(Struct, frozen=True):
    """What a provider says at one time."""

    notices: tuple[Notice, ...] = ()
    impaired: tuple[Impaired, ...] = ()


class Known(Struct, frozen=True):
    """What was told: notices by id with the phase that was told last, and the checks that failed, by name."""

    notices: dict[str, Notice] = {}
    impaired: dict[str, int] = {}


def told(known: Known, answer: Answer, *, provider: str, cluster: str, now_ms: int) -> tuple[Known, list[Event]]:
    """Return what is known now, and the events of what is new in the answer."""
    teller = _Teller(provider, cluster)
    listed = {notice.id: _now(notice, known.notices.get(notice.id), now_ms) for notice in answer.notices}
    events = [
        teller.maintenance(notice, phase, now_ms)
        for notice in listed.values()
        for phase in _new_phases(known.notices.get(notice.id), notice)
    ]
    events += [teller.maintenance(n, "ended", now_ms) for n in _over(known.notices, listed) if n.phase != "ended"]
    impaired = {_name(one): known.impaired.get(_name(one), one.since_ms or now_ms) for one in answer.impaired}
    events += [teller.fault(one, impaired[_name(one)]) for one in answer.impaired if _name(one) not in known.impaired]
    return Known({i: n for i, n in listed.items() if n.phase != "ended"}, impaired), events


def _now(notice: Notice, before: Notice | None, now_ms: int) -> Notice:
    """Return the notice as it stands now; one that does not say when began when it was first seen."""
    if notice.starts_ms is None:
        notice = replace(notice, starts_ms=before.starts_ms if before is not None else now_ms)
    begun = notice.phase == "scheduled" and notice.starts_ms is not None and notice.starts_ms <= now_ms
    return replace(notice, phase="started") if begun else notice


_PHASES: Final[tuple[Phase, ...]] = ("scheduled", "started", "ended")


def _new_phases(before: Notice | None, notice: Notice) -> Iterator[Phase]:
    """Yield the phases that were not told yet, in their order; a time that was moved is told again."""
    last = -1 if before is None else _PHASES.index(before.phase)
    moved = before is not None and before.starts_ms != notice.starts_ms and notice.phase == "scheduled"
    for number, phase in enumerate(_PHASES[: _PHASES.index(notice.phase) + 1]):
        if number > last or (moved and number == last):
            yield phase


def _over(before: Mapping[str, Notice], listed: Mapping[str, Notice]) -> Iterable[Notice]:
    return [notice for id_, notice in before.items() if id_ not in listed]


def _name(one: Impaired) -> str:
    return f"{one.node}/{one.check}"


class _Teller:
    """Makes the events of one provider."""

    def __init__(self, provider: str, cluster: str) -> None:
        self._source = f"bridge/{provider}"
        self._cluster = cluster

    def maintenance(self, notice: Notice, phase: Phase, now_ms: int) -> Event:
        """Return that a machine's maintenance was announced, has begun or is over."""
        data = PlatformMaintenance(
            maintenance_id=notice.id,
            cluster=self._cluster,
            planned=notice.planned,
            phase=phase,
            scope=Scope(nodes=(notice.node,)),
            starts_at=None if notice.starts_ms is None else moment_of(notice.starts_ms),
            ends_at=None if notice.ends_ms is None else moment_of(notice.ends_ms),
        )
        at_ms = min(now_ms, notice.starts_ms or now_ms) if phase == "started" else now_ms
        return self._say(data, at_ms, notice.id, phase, notice.starts_ms or 0)

    def fault(self, one: Impaired, since_ms: int) -> Event:
        """Return that a machine fails a check of the provider's."""
        data = NodeFault(
            node=one.node,
            cluster=self._cluster,
            kind="other",
            code=f"cloud_{one.check}_impaired",
            detected_by="other",
            message=one.message[:MESSAGE_CHARS] or None,
        )
        return self._say(data, since_ms, one.node, one.check, since_ms)

    def _say(self, data: Data, at_ms: int, *parts: str | int) -> Event:
        id_ = stable_id(self._source, self._cluster, type(data).__name__, *parts)
        return event_of(data, source=self._source, id_=id_, time_ms=at_ms)
