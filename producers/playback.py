"""A recording played into Kafka: its events with the times they had arrived at, and the time that passed between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from faultlens.arrival import End, Entry
from faultlens.clock import SECOND_MS
from faultlens.dead_letters import glance
from faultlens.errors import WorldError
from faultlens.kafka import AFTER, ARRIVED, ENDS, Connection, producer_config
from faultlens.topics import TOPICS, TYPES

TICK_EVERY_MS: Final = 2 * SECOND_MS
_HEADERS: Final = ("content-type", b"application/cloudevents+json")
_FLUSH_SECONDS: Final = 130.0
_POLL_EVERY: Final = 1_000


@dataclass
class Played:
    """What was played: events by topic, ticks, and lines that are no event of a known type."""

    events: Counter[str] = field(default_factory=Counter)
    ticks: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    first_ms: int | None = None
    last_ms: int = 0


@dataclass(frozen=True)
class Tick:
    """Time has come this far. `after`: beyond the last event, when nobody reports and nobody is missed for that."""

    arrived_ms: int
    after: bool = False


def timeline(entries: Iterable[Entry], until_ms: int | None = None) -> Iterator[Entry | Tick]:
    """Yield the entries with the time that passes between them.

    In the end time goes on as long as in a replay, or to `until_ms`; the last tick is of the end itself.
    """
    next_ms: int | None = None
    end = End()
    for entry in entries:
        end.see(entry)
        at_ms = entry.arrived_ms
        if next_ms is None:
            next_ms = at_ms // TICK_EVERY_MS * TICK_EVERY_MS
        while next_ms <= at_ms:
            yield Tick(next_ms)
            next_ms += TICK_EVERY_MS
        yield entry
    if next_ms is not None:
        end_ms = max(next_ms, end.at_ms if until_ms is None else until_ms)
        for at_ms in range(next_ms, end_ms, TICK_EVERY_MS):
            yield Tick(at_ms, after=True)
        yield Tick(end_ms, after=True)


class Player:
    """Sends a timeline. Whatever cannot be delivered ends it: a recording with a hole would tell another story."""

    def __init__(self, connection: Connection, ticking: Mapping[str, int]) -> None:
        """`ticking`: the topics that carry ticks, with their partitions."""
        self.played = Played()
        self._failed: list[str] = []
        self._ticking = [(topic, number) for topic, count in ticking.items() for number in range(count)]
        self._producer = Producer(producer_config(connection) | {"linger.ms": 20})
        self._sent = 0

    def play(self, what: Entry | Tick) -> None:
        """Send an event or a tick without waiting for it; WorldError if an earlier one could not be delivered."""
        if isinstance(what, Tick):
            self._tick(what)
        else:
            self._event(what)
        self.played.last_ms = what.arrived_ms
        if self.played.first_ms is None:
            self.played.first_ms = self.played.last_ms

    def end(self, topic: str) -> None:
        """Say in every partition of a topic that the recording is over, at the time of the last tick."""
        for ticking, number in self._ticking:
            if ticking == topic:
                self._send(topic, None, self.played.last_ms, partition=number, more=[(ENDS, b"1")])

    def finish(self) -> None:
        """Wait until all is delivered; WorldError says how much is not."""
        left = self._producer.flush(_FLUSH_SECONDS)
        self._check()
        if left:
            raise WorldError(f"{left} records are not delivered after {_FLUSH_SECONDS:.0f} s")

    def _event(self, entry: Entry) -> None:
        event = entry.event
        topic, key = glance(entry.raw) if event is None else (TYPES[event.type].topic, event.subject)
        if topic not in TOPICS or TOPICS[topic].kind != "input" or entry.sha256 is not None:
            self.played.refused[entry.reason or "unknown_type"] += 1
            return
        self.played.events[topic] += 1
        self._send(topic, entry.raw, entry.arrived_ms, key=key.encode(), more=[_HEADERS])

    def _tick(self, tick: Tick) -> None:
        more = [(AFTER, b"1")] if tick.after else []
        for topic, number in self._ticking:
            self.played.ticks += 1
            self._send(topic, None, tick.arrived_ms, partition=number, more=more)

    def _send(
        self,
        topic: str,
        value: bytes | None,
        at_ms: int,
        *,
        more: Iterable[tuple[str, bytes]] = (),
        **where: Any,
    ) -> None:
        headers: list[tuple[str, str | bytes | None]] = [*more, (ARRIVED, str(at_ms).encode())]
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._producer.poll(0)
            self._check()
        while True:
            try:
                self._producer.produce(topic, value, headers=headers, on_delivery=self._delivered, **where)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise WorldError(f"{topic}: {error.args[0].str()}") from error
            else:
                return

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(f"{message.topic()}: {error.str()}")

    def _check(self) -> None:
        if self._failed:
            raise WorldError(f"{len(self._failed)} records could not be delivered, the first to {self._failed[0]}")
