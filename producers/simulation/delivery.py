"""How records get from a sender to the log: late, twice, out of order, by wrong clocks."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Final

from faultlens.clock import MINUTE_MS, iso
from faultlens.codec import Event, encode
from faultlens.events import Data
from faultlens.topics import TYPE_OF
from producers.simulation.chance import happens, skewed, span_ms
from producers.simulation.model import Sender
from producers.simulation.tables import Transport

_LATENCIES: Final = 4_096
_MINUTES_REMEMBERED: Final = 4_096


class Delivery:
    """Puts records into the order in which they arrive and writes them; keeps only what is under way."""

    def __init__(self, write: Callable[[bytes], None], transport: Transport, seed: int, rng: Random) -> None:
        self.delivered = 0
        self._write = write
        self._transport = transport
        self._rng = rng
        self._prefix = f"{seed:x}-"
        self._made = 0
        self._under_way: list[tuple[int, int, bytes]] = []
        self._pushed = 0
        self._latency_ms = [
            min(20_000, round(skewed(rng, transport.median_ms, transport.spread))) for _ in range(_LATENCIES)
        ]

    def new_id(self) -> str:
        """Return an id that no other record has."""
        self._made += 1
        return f"{self._prefix}{self._made:09x}"

    def post(self, sender: Sender, at_ms: int, data: Data, *, happened_ms: int | None = None) -> None:
        """Send at `at_ms` (true time) what happened then, or at `happened_ms`; the sender's clock stamps both."""
        time_ms = at_ms if happened_ms is None else happened_ms
        event_type = TYPE_OF[type(data)]
        subject = getattr(data, event_type.subject)
        id_, off_ms = self.new_id(), sender.clock_off_ms

        def record(sent_ms: int, arrival_ms: int) -> bytes:
            return encode(
                Event(
                    event_type.name, sender.source, id_, subject, time_ms + off_ms, data,
                    sent_ms + off_ms, arrival_ms,
                )
            )  # fmt: skip

        self.carry(sender, at_ms, record)

    def carry(self, sender: Sender, at_ms: int, record: Callable[[int, int], bytes]) -> None:
        """Put `record(sent_ms, arrival_ms)` under way, now and then twice. Both times are true times."""
        rng, transport = self._rng, self._transport
        ready_ms = max(at_ms, sender.cut_until_ms)
        latency_ms = self._latency_ms[rng.getrandbits(12)]
        luck = rng.random()
        if luck < transport.tardy:
            ready_ms += span_ms(rng, transport.tardy_s)
        arrival_ms = ready_ms + latency_ms
        self._push(arrival_ms, record(ready_ms, arrival_ms))
        if luck > 1 - transport.duplicated:
            ready_ms += span_ms(rng, transport.again_after_s)
            arrival_ms = ready_ms + latency_ms
            self._push(arrival_ms, record(ready_ms, arrival_ms))

    def advance(self, now_ms: int) -> None:
        """Write what has arrived by now."""
        under_way, write = self._under_way, self._write
        while under_way and under_way[0][0] <= now_ms:
            write(heappop(under_way)[2])
            self.delivered += 1

    def finish(self) -> None:
        """Write what is still under way."""
        while self._under_way:
            self.advance(self._under_way[0][0])

    def evidence_lost(self, chance: float) -> bool:
        """Whether a piece of evidence never reaches us."""
        return happens(self._rng, chance)

    def _push(self, arrival_ms: int, raw: bytes) -> None:
        self._pushed += 1
        heappush(self._under_way, (arrival_ms, self._pushed, raw))


class Stamps:
    """Writes times as the contract does, remembering the minutes it has written lately."""

    def __init__(self) -> None:
        self._minutes: dict[int, str] = {}

    def __call__(self, at_ms: int) -> str:
        """Return `2026-11-23T04:12:07.512Z`."""
        minute, rest = divmod(at_ms, MINUTE_MS)
        known = self._minutes.get(minute)
        if known is None:
            if len(self._minutes) >= _MINUTES_REMEMBERED:
                self._minutes.clear()
            known = self._minutes[minute] = iso(minute * MINUTE_MS)[:-7]
        return f"{known}{rest / 1_000:06.3f}Z"
