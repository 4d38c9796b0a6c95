"""One lane of a role: records in, new state and records out, decided purely from what the lane holds.

A lane's memory moves with every step; what has moved since the last `seal` is the open batch. A batch is written
whole (state, records, lane record) or not at all, and a lane whose batch could not be written is dropped and loaded
again from what was: there is nothing to undo.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from faultlens.arrival import placed
from faultlens.clock import MINUTE_MS, SECOND_MS
from faultlens.codec import Decoder, Event
from faultlens.dead_letters import Origin
from faultlens.errors import FaultlensError, InvalidEventError
from faultlens.internal import ContextChange
from faultlens.topics import TOPICS, TYPE_OF, TYPES
from streams.context import apply_change
from streams.processor import Effects, Emit, Shelf, Shelved
from streams.runtime.dead_letters import dead_letter, origin_of, told
from streams.runtime.failures import FailureRate
from streams.runtime.records import Batch, LaneRecord, Record, Role, Sent
from streams.runtime.state import Kept, MemoryStates, StateStore
from streams.runtime.wakes import NEVER, Wakes

INPUTS: Final = frozenset(name for name, topic in TOPICS.items() if topic.kind == "input")
# A wake that fails is tried again after 1, 2, 4 … minutes, at most this many.
MAX_BACKOFF_MINUTES: Final = 64
# Surveys of one gap without records: then one more at its end. A quiet weekend is not counted every half minute.
MAX_SURVEYS_OF_A_GAP: Final = 40


class ProcessorFailingError(FaultlensError):
    """A processor fails on more than 1 % of a minute's records: the program is wrong, not the records."""


class Log(Protocol):
    """Where batches are written: state, records and lane record at once, or not at all."""

    def commit(self, role: str, lane: int, batch: Batch) -> None:
        """Write the batch; WorldError when it could not be written (then the lane must be loaded again)."""


class _States:
    """A lane's states without what is kept beside them."""

    def __init__(self, states: StateStore) -> None:
        self._states = states

    def get(self, key: str) -> Struct | None:
        """Return the state of the key."""
        kept = self._states.get(key)
        return None if kept is None else kept.state


@dataclass
class Counts:
    """What a task did so far."""

    steps: int = 0
    duplicates: int = 0
    failures: int = 0


def _decoder_of(topic: str) -> Decoder:
    """Return the decoder of a topic's types: a record of another topic's type has no business there."""
    return Decoder({name: event_type for name, event_type in TYPES.items() if event_type.topic == topic})


def _not_at_once(effects: Effects, key: str, now_ms: int) -> Effects:
    """Return what a wake asks for: what it has just been woken for cannot be due again at once, as time must go on."""
    if effects.wake_ms is not None and effects.wake_ms <= now_ms:
        return Effects(effects.state, effects.emits, now_ms + SECOND_MS)
    own = effects.shelved.get(key)
    if own is None or own.wake_ms is None or own.wake_ms > now_ms:
        return effects
    return Effects(None, effects.emits, shelved={**effects.shelved, key: Shelved(own.state, now_ms + SECOND_MS)})


class Task:
    """A lane of a role. `ticking`: only the role's first topic moves the clock (live, where it carries ticks).

    `hole_ms`: when more than this lies between two ticks, nobody was there to hear (None: they are not so regular).
    """

    def __init__(
        self,
        role: Role,
        number: int = 0,
        *,
        states: StateStore | None = None,
        lane: LaneRecord | None = None,
        ticking: bool = False,
        hole_ms: int | None = None,
    ) -> None:
        lane = lane or LaneRecord()
        self.role = role
        self.number = number
        self.counts = Counts()
        self.clock_ms = lane.clock_ms
        # Live, the context's lane has a clock of its own: until that is announced, nothing can have been told.
        self.context = replace(lane.context, clock_ms=lane.context.clock_ms or 0) if ticking else lane.context
        self.states: StateStore = MemoryStates() if states is None else states
        self._shelf = _States(self.states) if role.wide else None
        self._processor = role.processor
        self._source = f"faultlens/{role.name}"
        self._decode = {topic: _decoder_of(topic).decode for topic in role.topics}
        self._hole_ms = hole_ms
        self._clock_topics = frozenset(role.topics[:1] if ticking else role.topics)
        self._next = dict(lane.next)
        self._wakes = Wakes((key, kept.wake_ms) for key, kept in self.states.items() if kept.wake_ms is not None)
        self._every_ms = role.processor.survey_every_ms
        self._surveyed_ms = lane.surveyed_ms
        self._surveys_of_gap = 0
        self._ticked_ms = lane.ticked_ms
        self._rate = FailureRate()
        self._changed: dict[str, None] = {}
        self._sent: list[Sent] = []
        # A time before which nothing is due: never later than what is, so that a glance at it is enough.
        self.soonest_ms = min(self._wakes.soonest_ms(), self._survey_ms())

    @property
    def has_sent(self) -> bool:
        """Whether there is something to `collect`."""
        return bool(self._sent)

    @property
    def has_changed(self) -> bool:
        """Whether a state is another one than when the last batch was sealed."""
        return bool(self._changed)

    # --- batches ---------------------------------------------------------------------------------------

    def step(self, records: Iterable[Record]) -> Batch:
        """Return what follows from the records and from the wakes that they make due."""
        for record in records:
            self.take(record)
        return self.seal()

    def seal(self) -> Batch:
        """Return the open batch and begin the next one."""
        changed = {key: self.states.get(key) for key in self._changed}
        batch = Batch(changed, self.collect(), self.lane)
        self._changed = {}
        return batch

    def collect(self) -> list[Sent]:
        """Return the records sent since the last call, and leave them out of the batch: they are on their way."""
        sent, self._sent = self._sent, []
        return sent

    @property
    def lane(self) -> LaneRecord:
        """What the lane knows of itself now."""
        return LaneRecord(self.clock_ms, dict(self._next), self._surveyed_ms, self.context, self._ticked_ms)

    # --- records ---------------------------------------------------------------------------------------

    def take(self, record: Record) -> None:
        """Step one record: first the wakes it makes due, then its key. What is done already is skipped."""
        topic = record.topic
        if record.offset < self._next.get(topic, 0):
            return
        self._next[topic] = record.offset + 1
        arrived_ms = record.arrived_ms
        if arrived_ms > self.clock_ms and topic in self._clock_topics:
            if self.soonest_ms <= arrived_ms:
                self.advance(arrived_ms, surveys=not record.after or self._processor.surveys_while_idle)
            self._reach(arrived_ms)
            self._surveys_of_gap = 0
        elif self.soonest_ms <= self.clock_ms:
            self.advance(self.clock_ms, surveys=False)
        try:
            event = self._event(record)
        except InvalidEventError as error:
            self._bury(record, error.reason, str(error))
            return
        if event is not None:
            self._on_event(event, record)
        elif self._hole_ms is not None:
            self._tick(record.arrived_ms, self._hole_ms)

    def _tick(self, at_ms: int, hole_ms: int) -> None:
        """Note that time went on; after a hole every silence begins anew."""
        if self._ticked_ms is not None and at_ms - self._ticked_ms > hole_ms:
            self.context = replace(self.context, blind_ms=at_ms)
        self._ticked_ms = at_ms

    def _event(self, record: Record) -> Event | None:
        """Return the event of a record, with the time it is processed at; None: it is a tick."""
        event = record.event
        if event is None:
            if not record.value:
                return None
            event = self._decode[record.topic](record.value)
        if record.topic in INPUTS:
            return placed(event, arrived_ms=record.arrived_ms, clock_ms=self.clock_ms)
        return event

    def _on_event(self, event: Event, record: Record) -> None:
        now_ms = self.clock_ms
        if type(event.data) is ContextChange:
            # It arrived when the context's lane took it, however late this one reads its copy.
            self.context = apply_change(self.context, event.data, arrived_ms=event.time_ms)
            return
        try:
            key = self._processor.key_of(event)
            if key is None:
                return
            effects = self._processor.on_event(event, now_ms, self.context, self._given(key))
            sent = self._events(effects.emits) if effects.emits else None
        except Exception as error:  # noqa: BLE001 - a processor must not stop its partition, whatever it raises
            self._fail(origin_of(record), record.value, error)
            return
        if effects.duplicate:
            self.counts.duplicates += 1
        self._apply(key, effects, sent)

    def _given(self, key: str) -> Shelf | Struct | None:
        """Return what a step of the key is given: its state, or the shelf of all of them."""
        if self._shelf is not None:
            return self._shelf
        kept = self.states.get(key)
        return None if kept is None else kept.state

    def _apply(self, key: str, effects: Effects, sent: list[Sent] | None) -> None:
        self.counts.steps += 1
        if sent is not None:
            self._sent += sent
        if self._shelf is None:
            self._put(key, effects.state, effects.wake_ms)
        for name, shelved in effects.shelved.items():
            self._put(name, shelved.state, shelved.wake_ms)

    def _put(self, key: str, state: Struct | None, wake_ms: int | None) -> None:
        self._changed[key] = None
        if state is None:
            self.states.drop(key)
            self._wakes.set(key, None)
            return
        self.states.put(key, Kept(state, wake_ms))
        self._wakes.set(key, wake_ms)
        if wake_ms is not None and wake_ms < self.soonest_ms:
            self.soonest_ms = wake_ms

    def _events(self, emits: Sequence[Emit]) -> list[Sent]:
        return [Sent(emit.topic, emit.key, self._event_of(emit)) for emit in emits]

    def _event_of(self, emit: Emit) -> Event:
        event_type = TYPE_OF[type(emit.data)]
        subject = getattr(emit.data, event_type.subject) or emit.key
        return Event(event_type.name, self._source, emit.id, subject, emit.time_ms, emit.data)

    # --- time ------------------------------------------------------------------------------------------

    def advance(self, to_ms: int, *, surveys: bool = True) -> None:
        """Fire everything due by `to_ms` in time order, and set the clock. `surveys`: a record drives the clock."""
        while self.fire(to_ms, surveys=surveys) is not None:
            pass
        self._reach(to_ms)

    def looks_due(self, limit_ms: int) -> bool:
        """Return whether something may be due by `limit_ms`: whether it is more than a wake that was put off since."""
        if self.soonest_ms > limit_ms:
            return False
        self._wakes.first(limit_ms)
        self._look_ahead()
        return self.soonest_ms <= limit_ms

    def due(self, limit_ms: int, *, surveys: bool = True) -> int | None:
        """Return when the first thing is due that is due by `limit_ms`; None: nothing is."""
        wake = self._wakes.first(limit_ms)
        self._look_ahead()
        due_ms = NEVER if wake is None else wake[0]
        if surveys:
            due_ms = min(due_ms, self._survey_ms())
        return due_ms if due_ms <= limit_ms else None

    def fire(self, limit_ms: int, *, surveys: bool = True) -> int | None:
        """Fire the first thing due by `limit_ms` at its due time and return that; None: nothing is due.

        Wakes go before a survey of the same time, and by key among each other. The clock never goes back: what was
        due earlier than it has reached fires at once.
        """
        wake = self._wakes.first(limit_ms)
        survey_ms = self._survey_ms() if surveys else NEVER
        fired_ms = None
        if wake is not None and wake[0] <= survey_ms:
            fired_ms = wake[0]
            self._reach(fired_ms)
            self._wake(wake[1])
        elif survey_ms <= limit_ms:
            fired_ms = survey_ms
            self._reach(fired_ms)
            self._survey(fired_ms, limit_ms)
        self._look_ahead()
        return fired_ms

    def _look_ahead(self) -> None:
        self.soonest_ms = min(self._wakes.soonest_ms(), self._survey_ms())

    def _reach(self, at_ms: int) -> None:
        self.clock_ms = max(self.clock_ms, at_ms)
        if self.clock_ms >= self._rate.ends_ms:
            self._rate.turn(self.clock_ms, self.counts.steps + self.counts.failures)
        if self._every_ms is not None and self._surveyed_ms is None:
            self._surveyed_ms = at_ms // self._every_ms * self._every_ms
            self._look_ahead()

    def _wake(self, key: str) -> None:
        now_ms = self.clock_ms
        kept = self.states.get(key)
        if kept is None:
            self._wakes.set(key, None)
            return
        if self._shelf is not None:
            # The step itself says whether the key is to be woken again.
            self._wakes.set(key, None)
        try:
            effects = self._processor.on_time(key, now_ms, self.context, self._shelf or kept.state)
            sent = self._events(effects.emits)
        except Exception as error:  # noqa: BLE001 - as above
            self._put_off(key, kept)
            self._fail(self._origin(key), b"", error)
            return
        self._apply(key, _not_at_once(effects, key, now_ms), sent)

    def finish(self) -> None:
        """Let every key say what it knows and has not written yet: the recording ends here."""
        for key, kept in sorted(self.states.items(), key=itemgetter(0)):
            try:
                effects = self._processor.on_end(key, self.clock_ms, self.context, self._shelf or kept.state)
                sent = self._events(effects.emits)
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(self._origin(key), b"", error)
                continue
            self._apply(key, effects, sent)

    def _put_off(self, key: str, kept: Kept) -> None:
        minutes = min(1 << min(kept.failures, 16), MAX_BACKOFF_MINUTES)
        again_ms = self.clock_ms + minutes * MINUTE_MS
        self.states.put(key, Kept(kept.state, again_ms, kept.failures + 1))
        self._wakes.set(key, again_ms)
        self.soonest_ms = min(self.soonest_ms, again_ms)
        self._changed[key] = None

    # --- surveys ---------------------------------------------------------------------------------------

    def _survey_ms(self) -> int:
        if self._every_ms is None or self._surveyed_ms is None:
            return NEVER
        return self._surveyed_ms + self._every_ms

    def _survey(self, at_ms: int, limit_ms: int) -> None:
        states = ((key, kept.state) for key, kept in self.states.items())
        try:
            self._sent += self._events(self._processor.survey(at_ms, states, self.number))
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(self._origin("survey"), b"", error)
        self._surveyed_ms = at_ms
        self._surveys_of_gap += 1
        if self._every_ms is not None and self._surveys_of_gap >= MAX_SURVEYS_OF_A_GAP:
            self._surveyed_ms = max(at_ms, (limit_ms // self._every_ms - 1) * self._every_ms)

    # --- failures --------------------------------------------------------------------------------------

    def _origin(self, key: str) -> Origin:
        """Return the origin of what no record caused: a wake or a survey of this lane."""
        return Origin(self.role.topics[0], self.number, -1, key, {"role": self.role.name, "key": key})

    def _bury(self, record: Record, reason: str, error: str) -> None:
        letter = dead_letter(record.value, origin_of(record), reason=reason, error=error, at_ms=record.arrived_ms)
        self._sent.append(letter)

    def _fail(self, origin: Origin, value: bytes, error: Exception) -> None:
        counts = self.counts
        counts.failures += 1
        at_ms = self.clock_ms
        self._sent.append(dead_letter(value, origin, reason="processor_error", error=told(error), at_ms=at_ms))
        if self._rate.fail(counts.steps + counts.failures):
            raise ProcessorFailingError(
                f"{self.role.name} failed on more than 1 % of the records of a minute; the last time with "
                f"{type(error).__name__}: {error}"
            ) from error
