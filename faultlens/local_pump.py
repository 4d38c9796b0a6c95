"""The embedded log: every role's lane in one process, fed in order of arrival until nothing is on its way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from faultlens.arrival import Entry
from faultlens.codec import Event
from faultlens.topics import TOPICS, TYPES
from streams.runtime.records import Record, Sent
from streams.runtime.task import Task

TOPIC_OF: Final = {name: event_type.topic for name, event_type in TYPES.items()}
INTERNAL: Final = frozenset(name for name, topic in TOPICS.items() if topic.kind == "internal")

Deliver = Callable[[Sent, int], None]


class Pump:
    """Feeds the lanes. All of them share one clock: whatever is due anywhere fires in time order before a record
    that moves the clock past it, and what a step sends is taken by those who read it before anything else happens.

    `deliver` gets every record that is sent, internal ones too, with the clock of its cause.
    """

    def __init__(self, tasks: Sequence[Task], deliver: Deliver) -> None:
        self.tasks = tasks
        self.clock_ms = max((task.clock_ms for task in tasks), default=0)
        self._deliver = deliver
        self._readers = {topic: [task for task in tasks if topic in task.role.topics] for topic in TOPICS}
        self._offsets = {topic: max((t.lane.next.get(topic, 0) for t in tasks), default=0) for topic in TOPICS}
        self._first = dict(self._offsets)

    def take(self, entry: Entry, event: Event) -> None:
        """Take one recorded event to the end of everything that follows from it at once."""
        now_ms = entry.arrived_ms
        if now_ms > self.clock_ms:
            self.clock_ms = now_ms
        else:
            now_ms = self.clock_ms
        for task in self.tasks:
            if task.soonest_ms <= now_ms and task.looks_due(now_ms):
                self._advance(now_ms, records=True)
                break
        topic = TOPIC_OF[event.type]
        offset = self._offsets[topic]
        self._offsets[topic] = offset + 1
        for task in self._readers[topic]:
            task.take(
                Record(
                    topic,
                    offset,
                    entry.arrived_ms,
                    event,
                    entry.raw,
                    event.subject,
                    0,
                    entry.file,
                    entry.line,
                )
            )
            if task.has_sent:
                self._settle(task)

    def taken(self) -> dict[str, int]:
        """Return how many records of each topic were taken or delivered so far."""
        counts = {topic: offset - self._first[topic] for topic, offset in self._offsets.items()}
        return {topic: count for topic, count in counts.items() if count}

    def finish(self, at_ms: int) -> None:
        """Let time pass to `at_ms` without a record and end: wakes fire, and every key writes what it still holds."""
        self._advance(at_ms, records=False)
        self.clock_ms = max(self.clock_ms, at_ms)
        for task in self.tasks:
            task.advance(self.clock_ms, surveys=task.role.processor.surveys_while_idle)
            self._settle(task)
        for task in self.tasks:
            task.finish()
            self._settle(task)

    def seal(self) -> None:
        """End every lane's batch. What it sent is delivered already, and states are saved whole at the end."""
        for task in self.tasks:
            task.seal()

    def _advance(self, to_ms: int, *, records: bool) -> None:
        """Fire what is due anywhere, in time order. `records`: it is a record that moves the clock."""
        while True:
            first: Task | None = None
            first_ms = to_ms + 1
            for task in self.tasks:
                if task.soonest_ms < first_ms:
                    due_ms = task.due(first_ms - 1, surveys=records or task.role.processor.surveys_while_idle)
                    if due_ms is not None:
                        first, first_ms = task, due_ms
            if first is None:
                return
            first.fire(to_ms, surveys=records or first.role.processor.surveys_while_idle)
            self._settle(first)

    def _settle(self, task: Task) -> None:
        """Hand on what the task has sent, and what follows from that, until nothing is on its way."""
        on_their_way = deque((record, task.clock_ms) for record in task.collect())
        while on_their_way:
            record, at_ms = on_their_way.popleft()
            self._deliver(record, at_ms)
            topic = record.topic
            if topic not in INTERNAL:
                continue
            offset = self._offsets[topic]
            self._offsets[topic] = offset + 1
            for reader in self._readers[topic]:
                reader.take(Record(topic, offset, at_ms, record.event, key=record.key))
                if reader.has_sent:
                    on_their_way.extend((answer, reader.clock_ms) for answer in reader.collect())
