"""Whose fault it was, said in process by the same processors, from nothing but what this process was told."""

from __future__ import annotations

from typing import Final

from faultlens.codec import Event, encode
from faultlens.events import JobAlive, JobAttributed
from faultlens.topics import ATTRIBUTIONS

# Of a job's life the first words and the last ones; signs of life between them say nothing more.
EVENTS_KEPT: Final = 5_000


class LocalJudge:
    """Keeps what it is told of a job and judges it anew when asked; a job that succeeds costs next to nothing."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def tell(self, event: Event) -> None:
        """Keep an event; of signs of life only the newest."""
        if self._events and isinstance(event.data, JobAlive) and isinstance(self._events[-1].data, JobAlive):
            self._events[-1] = event
            return
        if len(self._events) >= EVENTS_KEPT:
            del self._events[EVENTS_KEPT // 2]
        self._events.append(event)

    def verdict(self, job_id: str, attempt: int, *, decides: bool = True) -> JobAttributed | None:
        """Return the verdict that follows from what was told, as if nothing more were to come."""
        said = [v for v in _judged(self._events) if (v.job_id, v.attempt, v.loss) == (job_id, attempt, None)]
        return said[-1] if said and said[-1].status != "withdrawn" else None


def _judged(events: list[Event]) -> list[JobAttributed]:
    """Return every revision of every verdict. The processors and their data are loaded only here."""
    from faultlens.arrival import TAIL_MS, Entry  # noqa: PLC0415
    from faultlens.local_pump import Pump  # noqa: PLC0415
    from faultlens.local_roles import load_roles  # noqa: PLC0415
    from streams.runtime.records import Sent  # noqa: PLC0415
    from streams.runtime.task import Task  # noqa: PLC0415

    said: list[JobAttributed] = []

    def deliver(sent: Sent, _at_ms: int) -> None:
        data = sent.event.data
        if sent.topic == ATTRIBUTIONS and isinstance(data, JobAttributed):
            said.append(data)

    pump = Pump([Task(role) for role in load_roles()], deliver)
    for line, event in enumerate(events, 1):
        pump.take(Entry("launcher", line, encode(event), event, arrived_ms=event.time_ms), event)
    pump.finish(pump.clock_ms + TAIL_MS)
    return said
