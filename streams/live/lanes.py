"""The lanes of a worker: each takes its records in order, one batch at a time; several work side by side."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from faultlens.clock import monotonic_s
from streams.live.arrived import Consumed, is_waited_for
from streams.live.lane import Lane

# A batch is at least one run (500 records), and not much more than this.
BATCH_RECORDS: Final = 2_000
QUEUED_RUNS: Final = 8


@dataclass(frozen=True)
class Pace:
    """Small runs are gathered for `gather_s`, so that a transaction is worth its cost. States alone wait up to `hold_s`
    for something to be sent with them. A lane in which nothing happens is written every `settle_s`, so that its time
    need not be read again from far behind."""

    gather_s: float = 0.1
    hold_s: float = 1.0
    settle_s: float = 10.0


# Somebody waits for every step of a recording that is played.
LIVE: Final = Pace()
PLAYED: Final = Pace(gather_s=0.02, hold_s=0.0, settle_s=0.0)


@dataclass(frozen=True)
class Run:
    """Consecutive records of one partition, when they came (`monotonic_s`), and how to say that they are done with."""

    records: Sequence[Consumed]
    came_s: float
    done: Callable[[], Awaitable[object]]


class _Place:
    """One lane with the runs that are not done with: waiting, being stepped, or stepped and not yet written."""

    def __init__(self, lane: Lane, pace: Pace) -> None:
        self.lane = lane
        self.pace = pace
        self.waiting: asyncio.Queue[Run] = asyncio.Queue(QUEUED_RUNS)
        self.unwritten: list[Run] = []
        self.undone: deque[Run] = deque()
        self.written_s = monotonic_s()
        self.busy = False
        self.leaving = False
        self.task: asyncio.Task[None] | None = None

    def leave(self) -> None:
        """Let nothing begin here any more."""
        self.leaving = True
        if self.task is not None and not self.busy:
            self.task.cancel()

    @property
    def must_settle(self) -> bool:
        """Whether the next step is written, whatever comes of it."""
        return monotonic_s() - self.written_s >= self.pace.settle_s

    @property
    def may_hold(self) -> bool:
        """Whether states alone need not be written with the next step."""
        size = sum(len(run.records) for run in self.unwritten)
        return monotonic_s() - self.written_s < self.pace.hold_s and size < BATCH_RECORDS

    async def clear(self) -> None:
        """Drop what waits, and let go whoever waits to bring more."""
        while not self.waiting.empty():
            self.waiting.get_nowait()
            await asyncio.sleep(0)

    async def gathered(self) -> list[Run]:
        """Return the next runs: what comes within a moment of the first, up to the size of a batch.

        What somebody waits for is not gathered with what may come, unless a batch was written just now. None where
        nothing came until it was time to write what is open.
        """
        longest_s = self.pace.hold_s if self.lane.holds else self.pace.settle_s
        patience_s = max(0.0, self.written_s + longest_s - monotonic_s()) if self.unwritten else None
        runs: list[Run] = []
        size, until_s = 0, 0.0
        while size < BATCH_RECORDS and (run := await self._next(patience_s)) is not None:
            if not runs:
                until_s = monotonic_s() + self.pace.gather_s
            if is_waited_for(run.records):
                until_s = min(until_s, self.written_s + self.pace.gather_s)
            runs.append(run)
            size += len(run.records)
            patience_s = until_s - monotonic_s()
        return runs

    async def _next(self, patience_s: float | None) -> Run | None:
        """Return the next run, at once if it is there; None: none came in time."""
        if not self.waiting.empty():
            return self.waiting.get_nowait()
        if patience_s is not None and patience_s <= 0:
            return None
        try:
            return await asyncio.wait_for(self.waiting.get(), patience_s)
        except TimeoutError:
            return None


class Lanes:
    """Opens a lane for every partition that is assigned, and drops it when it is not any more.

    `failed` is called with whatever else ends a lane; it is not expected to return.
    """

    def __init__(
        self,
        new_lane: Callable[[int], Lane],
        failed: Callable[[BaseException], None],
        pace: Pace = LIVE,
        *,
        parallel: int = 4,
    ) -> None:
        self._new_lane = new_lane
        self._failed = failed
        self._pace = pace
        self._places: dict[int, _Place] = {}
        self._threads = ThreadPoolExecutor(parallel, thread_name_prefix="lane")

    @property
    def owned(self) -> list[int]:
        """The partitions whose lanes are here."""
        return sorted(self._places)

    @property
    def are_open(self) -> bool:
        """Whether all that are here have their states."""
        return all(place.lane.is_open for place in list(self._places.values()))

    def oldest(self) -> Run | None:
        """Return the oldest run that is not done with; None: there is none."""
        heads = [place.undone[0] for place in list(self._places.values()) if place.undone]
        return min(heads, key=lambda run: run.came_s, default=None)

    def oldest_s(self) -> float | None:
        """Return when the oldest run came that is not done with (`monotonic_s`); None: there is none."""
        run = self.oldest()
        return None if run is None else run.came_s

    def assign(self, partitions: Iterable[int]) -> None:
        """Begin to open the lanes of these partitions."""
        for number in partitions:
            place = self._places[number] = _Place(self._new_lane(number), self._pace)
            place.task = asyncio.get_running_loop().create_task(self._work(place), name=f"lane {number}")

    async def release(self) -> None:
        """Drop all lanes, each once it has written the batch it is at; what it has not begun is dropped with it."""
        places, self._places = list(self._places.values()), {}
        for place in places:
            place.leave()
        await asyncio.gather(*(place.task for place in places if place.task is not None), return_exceptions=True)
        for place in places:
            await place.clear()

    async def put(self, number: int, run: Run) -> bool:
        """Hand a run to its lane, waiting while that is full; return False if the lane is not here any more."""
        place = self._places.get(number)
        if place is None:
            return False
        place.undone.append(run)
        await place.waiting.put(run)
        return True

    async def _work(self, place: _Place) -> None:
        try:
            await self._in_thread(place, place.lane.open)
            while not place.leaving:
                runs = await place.gathered()
                place.unwritten += runs
                records = [record for run in runs for record in run.records]
                step = partial(place.lane.step, records, settle=place.must_settle, hold=place.may_hold)
                if await self._in_thread(place, step):
                    await _done(place)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, this worker cannot go on
            self._failed(error)

    async def _in_thread(self, place: _Place, work: Callable[[], bool | None]) -> bool | None:
        place.busy = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            place.busy = False


async def _done(place: _Place) -> None:
    done, place.unwritten = place.unwritten, []
    place.written_s = monotonic_s()
    for run in done:
        place.undone.popleft()
        await run.done()
