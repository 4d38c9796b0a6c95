"""A Faust consumer that commits no offset before everything up to it is acknowledged, and hands out without a gap.

Faust 0.15.3 infers what may be committed from gaps between acknowledged offsets, and loses what was in flight; it
drops fetched records when flow is stopped and then reads on behind them, or, where nothing was committed yet, does not
go back at all; it reads uncommitted records, and spreads partitions over workers without regard to those that belong
together. This rests on private names of that version: tests/contract/test_faust_shell.py says which.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import structlog
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.structs import TopicPartition
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

# How long a broker may wait for more before it answers a fetch: a verdict must not wait longer.
FETCH_WAIT_MS: Final = 100
# Of topics with many records for which nobody waits, it waits as long unless this much lies there: a fetch costs more
# than the few that it would bring.
FETCH_BYTES: Final = 64 * 1024
_SEEK_AGAIN_SECONDS: Final = 0.2

log = structlog.get_logger()


class CommittedReader(driver.AIOKafkaConsumerThread):
    """Reads committed records only, and takes partition p of all topics or of none."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"  # noqa: SLF001
        consumer._partition_assignment_strategy = (RangePartitionAssignor,)  # noqa: SLF001
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # noqa: SLF001
        consumer._fetch_min_bytes = transport.app.fetch_bytes  # noqa: SLF001
        return consumer


class PrefixConsumer(driver.Consumer):
    """Remembers what was handed out, and commits the end of what is acknowledged without a gap.

    `leave` is awaited when partitions are taken away, before what is acknowledged is committed a last time.

    What was fetched and not handed out in its place is lost to whoever reads on, and records after it would be taken
    for its successors. So each time flow stops or something is dropped (`_breaks` counts), nothing is handed out before
    all partitions were read again from what is committed; and what was fetched before that is not handed out either.
    """

    leave: Callable[[], Awaitable[None]] | None = None

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._handed_out: dict[TP, deque[int]] = defaultdict(deque)
        self._breaks = self._mended = 0
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

    def stop_flow(self) -> None:
        """Hand nothing out until flow resumes; what was fetched by then is read again."""
        self._breaks += 1
        super().stop_flow()

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:  # noqa: ASYNC109 - as Faust calls it
        """Hand out what one fetch brings, as runs; nothing if flow stopped or partitions were sought meanwhile."""
        if not self.flow_active:
            await self.wait(self.can_resume_flow.wait())
        if self._mended != self._breaks:
            await self._mend()
            return
        begun = self._breaks
        records, _ = await self._wait_next_records(timeout)
        if not records or self.should_stop:
            return
        for tp, run in self.scheduler.iterate(records):
            if self._breaks != begun:
                self._breaks += 1
                return
            yield tp, self._to_message(tp, run)

    async def _mend(self) -> None:
        """Seek, if partitions are ours just now; else those who rebalance do, or it is tried again."""
        try:
            await self.perform_seek()
        except (IllegalStateError, AssertionError, KafkaError) as error:
            log.info("partitions cannot be sought for now", error=str(error))
            await self.sleep(_SEEK_AGAIN_SECONDS)

    async def perform_seek(self) -> None:
        """Read on from what is committed: what was handed out and is not done with will be handed out again.

        Where nothing is committed that is the beginning; Faust and its client leave such partitions where they are.
        """
        self._breaks += 1
        begun = self._breaks
        for tp in list(self._handed_out):
            for known in (self._handed_out, self._acked, self._acked_index):
                known.pop(tp, None)
        await super().perform_seek()
        never = [TopicPartition(*tp) for tp in self.assignment() if not self._committed_offset.get(tp)]
        if never:
            await self._thread.seek_to_beginning(*never)
        self._mended = begun


class PrefixTransport(driver.Transport):
    """The way to Kafka with the consumer above."""

    Consumer = PrefixConsumer
