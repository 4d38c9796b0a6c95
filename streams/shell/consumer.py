"""A Faust consumer that commits no offset before everything up to it is acknowledged.

Faust 0.15.3 infers what may be committed from gaps between acknowledged offsets, and loses what was in flight; it
reads uncommitted records, and spreads partitions over workers without regard to those that belong together. This
rests on private names of that version: tests/contract/test_faust_shell.py says which.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

# How long a broker may wait for more before it answers a fetch: a verdict must not wait longer.
FETCH_WAIT_MS: Final = 100


class CommittedReader(driver.AIOKafkaConsumerThread):
    """Reads committed records only, promptly, and takes partition p of all topics or of none."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"  # noqa: SLF001
        consumer._partition_assignment_strategy = (RangePartitionAssignor,)  # noqa: SLF001
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # noqa: SLF001
        return consumer


class PrefixConsumer(driver.Consumer):
    """Remembers what was handed out, and commits the end of what is acknowledged without a gap.

    `leave` is awaited when partitions are taken away, before what is acknowledged is committed a last time.
    """

    leave: Callable[[], Awaitable[None]] | None = None

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._handed_out: dict[TP, deque[int]] = defaultdict(deque)
        super().__init__(*arguments, **settings)

    def lags(self) -> dict[tuple[str, int], int]:
        """Return how many offsets of each partition were not read yet, as of its broker's last answer."""
        reader = self._thread._consumer  # noqa: SLF001 - see above
        assignment = None if reader is None else reader._subscription.subscription  # noqa: SLF001
        if assignment is None or assignment.assignment is None:
            return {}
        found = {}
        for tp in assignment.assignment.tps:
            state = assignment.assignment.state_value(tp)
            if state is not None and state.has_valid_position and state.highwater is not None:
                found[tp.topic, tp.partition] = max(0, state.highwater - state.position)
        return found

    def _new_consumer_thread(self) -> CommittedReader:
        return CommittedReader(self, loop=self.loop, beacon=self.beacon)

    def _to_message(self, tp: TP, record: Any) -> Any:
        self._handed_out[tp].append(record.offset)
        return super()._to_message(tp, record)

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Do nothing: gaps are what aborted transactions leave, and say nothing of what is done."""

    def _new_offset(self, tp: TP) -> int | None:
        handed_out, acknowledged = self._handed_out[tp], self._acked_index[tp]
        last = None
        while handed_out and handed_out[0] in acknowledged:
            last = handed_out.popleft()
            acknowledged.discard(last)
        self._acked[tp].clear()
        self._acked[tp].extend(sorted(acknowledged))
        return None if last is None else last + 1

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Commit what is done before anything is forgotten; Faust forgets first."""
        if self.leave is not None:
            await self.leave()
            await self.commit()
        self._active_partitions.difference_update(revoked)
        self._paused_partitions.difference_update(revoked)
        await self._on_partitions_revoked(revoked)
        for tp in revoked:
            for known in (self._gap, self._acked, self._acked_index, self._read_offset, self._committed_offset):
                known.pop(tp, None)
            self._handed_out.pop(tp, None)

    async def perform_seek(self) -> None:
        """Read on from what is committed: what was handed out and is not done with will be handed out again."""
        for tp in list(self._handed_out):
            for known in (self._handed_out, self._acked, self._acked_index):
                known.pop(tp, None)
        await super().perform_seek()


class PrefixTransport(driver.Transport):
    """The way to Kafka with the consumer above."""

    Consumer = PrefixConsumer
