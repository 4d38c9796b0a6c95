"""Takes events at any time from any thread, and hands them to the broker in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from typing import Final, Protocol

from msgspec.structs import replace

from faultlens.clock import monotonic_s, wall_ms
from faultlens.codec import Decoder, Event, encode
from faultlens.errors import InvalidEventError, WorldError
from faultlens.topics import TYPES
from producers.delivery.spool import Spool, Waiting

BATCH: Final = 500
# Contract: a record is at most this large; no topic takes more.
MAX_VALUE_BYTES: Final = 256 << 10
# While the disk takes nothing: about as many as a node says in an hour.
MEMORY_EVENTS: Final = 500
FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0


class Broker(Protocol):
    """Where records go."""

    def publish(self, records: Sequence[Parcel]) -> int:
        """Hand the records over in their order; return how many of the first ones have surely arrived.

        Waits no longer than its own deadline, and never raises for a broker that is away.
        """


class Parcel:
    """A record as it is handed over: `senttime` is stamped anew each time."""

    __slots__ = ("key", "topic", "value")

    def __init__(self, event: Event, sent_ms: int) -> None:
        self.topic = TYPES[event.type].topic
        self.key = event.subject
        self.value = encode(replace(event, sent_ms=sent_ms))


class Outbox:
    """Keeps what it is given in the spool until the broker has it; a thread delivers.

    `delivered`, `refused` (hand-overs that did not arrive) and `unkept` (events dropped while disk and memory took no
    more) are counts.
    """

    def __init__(self, spool: Spool, broker: Broker, *, now_ms: Callable[[], int] = wall_ms) -> None:
        self.spool = spool
        self._broker = broker
        self._now_ms = now_ms
        self._decode = Decoder().decode
        self._memory: deque[Event] = deque()
        self._changed = Condition()
        self._news = 0
        self._closing = False
        self.delivered = 0
        self.refused = 0
        self.unkept = 0
        self.disk_error: str | None = None
        self._thread = Thread(target=self._deliver, name="outbox", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Take an event to deliver. Never raises and never waits for a broker."""
        with self._changed:
            self._memory.append(event)
            self._keep()
            if len(self._memory) > MEMORY_EVENTS:
                self._memory.popleft()
                self.unkept += 1
            self._news += 1
            self._changed.notify_all()

    def _keep(self) -> None:
        """Move what is only in memory to the disk, if that takes it."""
        try:
            while self._memory:
                self.spool.add(self._memory[0])
                self._memory.popleft()
            self.disk_error = None
        except WorldError as error:
            self.disk_error = str(error)

    def trouble(self) -> str | None:
        """Return what is wrong with the delivery, in words; None: nothing."""
        lost = self.spool.lost + self.unkept
        told = [
            f"{self.disk_error}" if self.disk_error else "",
            f"{lost} events were lost" if lost else "",
            f"{self.spool.folded} events were folded" if self.spool.folded else "",
            "a damaged spool was put aside" if self.spool.damaged else "",
        ]
        return "; ".join(part for part in told if part) or None

    def settle(self, timeout_s: float) -> bool:
        """Wait until all that was put has arrived, for no longer than that; return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._memory and not len(self.spool), timeout_s)

    def close(self, timeout_s: float, *, quiet_s: float | None = None) -> bool:
        """Deliver what waits, for no longer than that; return whether nothing is left. The rest stays in the spool.

        `quiet_s`: when nothing arrived for so long, and all that waits is on the disk, that is enough.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        ends_s, quiet_s = monotonic_s() + timeout_s, timeout_s if quiet_s is None else quiet_s
        while self._thread.is_alive() and (left_s := ends_s - monotonic_s()) > 0:
            before = self.delivered
            self._thread.join(min(quiet_s, left_s))
            if self.delivered == before and not self._memory:
                break
        left = len(self.spool) + len(self._memory)
        if not self._thread.is_alive():
            self.spool.close()
        return left == 0

    # --- the thread ------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        wait_s = FIRST_WAIT_S
        is_last = False
        while True:
            with self._changed:
                seen = self._news
            batch, complete = self._hand_over()
            if not complete:
                if is_last:
                    return
                # Who is closed while it waits tries once more: the brokers may be back.
                is_last = self._pause(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)
                continue
            wait_s = FIRST_WAIT_S
            if batch:
                continue
            with self._changed:
                if self._news != seen:
                    continue  # what came since the spool was found empty is not left behind
                if self._closing:
                    return
                self._changed.notify_all()
                self._changed.wait()

    def _hand_over(self) -> tuple[int, bool]:
        """Hand over the oldest batch; return its size and whether all of it arrived."""
        try:
            batch = self.spool.oldest(BATCH)
            if not batch:
                return 0, True
            parcels, good = self._parcels(batch)
            arrived = self._broker.publish(parcels)
            self.spool.done(good[:arrived])
        except WorldError as error:
            self.disk_error = str(error)
            return 0, False
        self.delivered += arrived
        self.refused += len(parcels) - arrived
        return len(batch), arrived == len(parcels)

    def _parcels(self, batch: Sequence[Waiting]) -> tuple[list[Parcel], list[Waiting]]:
        """Return what can be sent. What no broker would take, or only another version could read, blocks nothing."""
        parcels, good, bad = [], [], []
        for waiting in batch:
            try:
                parcel = Parcel(self._decode(waiting.raw), self._now_ms())
            except InvalidEventError:
                bad.append(waiting)
                continue
            if len(parcel.value) > MAX_VALUE_BYTES:
                bad.append(waiting)
                continue
            parcels.append(parcel)
            good.append(waiting)
        self.spool.done(bad)
        self.unkept += len(bad)
        return parcels, good

    def _pause(self, wait_s: float) -> bool:
        """Wait before the next try; return whether that is the last one, since the outbox is being closed."""
        with self._changed:
            if self._memory:
                self._keep()
            self._changed.wait_for(lambda: self._closing, wait_s)
            return self._closing
