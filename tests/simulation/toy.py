"""A processor small enough to know by heart, which does everything that a processor may do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from msgspec import Struct

from faultlens import topics
from faultlens.clock import MINUTE_MS, moment_of
from faultlens.codec import Event, encode, event_of, fingerprint, stable_id
from faultlens.events import NodeFault, NodeState
from faultlens.internal import Held, LaneCensus
from streams.context import Context
from streams.processor import Effects, Emit

# Faults of these codes make it fail: at once, or when it is woken.
BOOM = "boom"
FAILS_LATER = "fails-later"
FORGET = "forget"
NAP_MS = 10 * MINUTE_MS


class Tally(Struct, frozen=True):
    """What the toy keeps of a node: how often what was seen, and what it woke up to."""

    faults: int = 0
    held: int = 0
    wakes: int = 0
    seen: tuple[bytes, ...] = ()
    nap_ms: int | None = None
    fails: bool = False


class Toy:
    """Counts faults by node, sends itself a record for each, and sleeps ten minutes after the last one.

    What it keeps does not depend on the order in which the two topics are read.
    """

    name = "toy"
    topics = (topics.NODE_EVENTS, topics.ALLOCATIONS)
    state_type: Any = Tally
    surveys_while_idle = False

    def __init__(self, survey_every_ms: int | None = None) -> None:
        self.survey_every_ms = survey_every_ms

    def key_of(self, event: Event) -> str | None:
        return event.subject if isinstance(event.data, NodeFault | Held) else None

    def on_event(self, event: Event, now_ms: int, context: Context, state: Struct | None) -> Effects:
        tally = cast("Tally", state) or Tally()
        data = event.data
        if isinstance(data, Held):
            return Effects(_with(tally, held=tally.held + 1), (), tally.nap_ms)
        assert isinstance(data, NodeFault)
        if data.code == BOOM:
            raise ValueError(f"{data.node} went boom")
        mark = fingerprint(event.source, event.id)
        if mark in tally.seen:
            return Effects(tally, (), tally.nap_ms, duplicate=True)
        if data.code == FORGET:
            return Effects(None)
        held = Held(data.node, f"job-{event.id}", 1, data.cluster, now_ms)
        emits = (
            _state(data.node, f"seen-{event.id}", event.time_ms),
            Emit(topics.ALLOCATIONS, data.node, stable_id("held", event.id), now_ms, held),
        )
        tally = _with(tally, faults=tally.faults + 1, seen=(*tally.seen, mark), nap_ms=now_ms + NAP_MS)
        return Effects(_with(tally, fails=data.code == FAILS_LATER), emits, tally.nap_ms)

    def on_time(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        tally = cast("Tally", state)
        if tally.fails:
            raise RuntimeError("it is later now")
        woken = _with(tally, wakes=tally.wakes + 1, nap_ms=None)
        return Effects(woken, (_state(key, f"woken-{woken.wakes}", now_ms),))

    def survey(self, now_ms: int, states: Iterable[tuple[str, Struct]], lane: int) -> Sequence[Emit]:
        census = LaneCensus("c1", lane, now_ms, sum(1 for _ in states), 0)
        return [Emit(topics.CENSUS, "c1", stable_id("census", lane, now_ms), now_ms, census)]

    def on_end(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        return Effects(state, (_state(key, "end", now_ms),), cast("Tally", state).nap_ms)


def _with(tally: Tally, **changes: Any) -> Tally:
    return Tally(**{name: changes.get(name, getattr(tally, name)) for name in Tally.__struct_fields__})


def _state(node: str, cause: str, at_ms: int) -> Emit:
    data = NodeState(node, "c1", "available", moment_of(at_ms), 8, 8, planned=False, cause=cause)
    return Emit(topics.NODE_STATES, node, stable_id(node, cause), at_ms, data)


def fault(id_: str, node: str, time_ms: int, code: str = "79", **envelope: int) -> Event:
    """Return a fault of a node, as its agent tells it."""
    data = NodeFault(node, "c1", "xid", code, "kmsg")
    event = event_of(data, source=f"agent/{node}", id_=id_, time_ms=time_ms, recorded_ms=envelope.get("recorded_ms"))
    return Event(
        event.type, event.source, id_, node, time_ms, data, envelope.get("sent_ms"), envelope.get("recorded_ms")
    )


def line(event: Event) -> bytes:
    """Return the event as a recording has it."""
    return encode(event)
