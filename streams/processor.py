"""What a processor is: a pure state machine, and what it may ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from faultlens.codec import Event
from faultlens.events import Data
from streams.context import Context


class Emit(Struct, frozen=True, gc=False):
    """A record to send: `key` is the record key and partitions it; `id` derives from what the record is about."""

    topic: str
    key: str
    id: str
    time_ms: int
    data: Data


class Shelf(Protocol):
    """The states of a lane, by key: what a processor of a wide role reads."""

    def get(self, key: str) -> Struct | None:
        """Return the state of the key; None: there is none."""


class Shelved(Struct, frozen=True, gc=False):
    """The next state of a key (None: forget it), and when to wake it."""

    state: Struct | None
    wake_ms: int | None = None


class Effects(Struct, frozen=True, gc=False):
    """What a step asks for: the key's next state (None: forget the key), records, and when to wake the key next.

    `wake_ms` None: no wake is wanted. A wake earlier than one asked for before replaces it; a step always says the
    key's next wake anew. `duplicate`: the event was known already and nothing followed from it (it is counted).
    A step of a wide role says in `shelved` what becomes of every key that it changed; `state` is not looked at.
    """

    state: Struct | None
    emits: Sequence[Emit] = ()
    wake_ms: int | None = None
    duplicate: bool = False
    shelved: Mapping[str, Shelved] = {}


class Processor(Protocol):
    """A state machine without clock, I/O or randomness: the same events in the same order, the same effects.

    `state` is None for a key that was never seen. `now_ms` is the lane's clock, never going back.

    One whose subject is too large for one state (a cluster) has a wide role: it keeps what it knows under many small
    keys, is given the lane's `Shelf` in place of a state, and says in `Effects.shelved` which keys change.
    """

    @property
    def name(self) -> str:
        """The name of its role."""

    @property
    def topics(self) -> tuple[str, ...]:
        """What it reads, the topic that carries ticks first; the runtime reads `context` for it."""

    @property
    def state_type(self) -> Any:
        """The type of its states, or a union of tagged ones."""

    @property
    def survey_every_ms(self) -> int | None:
        """How often all keys are looked at together; None: never."""

    @property
    def surveys_while_idle(self) -> bool:
        """Whether surveys also run when a recording's clock is advanced past its last record."""

    def key_of(self, event: Event) -> str | None:
        """Return the key whose state the event steps; None: the event is not for this processor."""

    def on_event(self, event: Event, now_ms: int, context: Context, state: Any) -> Effects:
        """Return what follows from the event."""

    def on_time(self, key: str, now_ms: int, context: Context, state: Any) -> Effects:
        """Return what is due for the key at `now_ms`: silence, windows, deadlines."""

    def survey(self, now_ms: int, states: Iterable[tuple[str, Struct]], lane: int) -> Sequence[Emit]:
        """Return what follows from looking at all keys of the lane together (every `survey_every_ms`)."""

    def on_end(self, key: str, now_ms: int, context: Context, state: Any) -> Effects:
        """Return what is known but not yet written when a recording ends at `now_ms`; live, this is never called."""
