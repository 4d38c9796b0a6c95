"""A sink on a log and a store in memory, and what must be true of them in the end."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

from faultlens.codec import Decoder, encode, event_of
from faultlens.errors import InvalidEventError
from faultlens.events import DeadLetter, JobEnded, NodeFault, NodeHealth
from faultlens.meters import SinkMeters
from faultlens.store import StoreBusyError
from sinks.delivery import Delivery
from sinks.intake import Intake
from sinks.log import Place, Taken
from sinks.memory import MemoryStore
from sinks.memory_log import MemoryBroker, MemoryLetters, MemoryLog
from sinks.rows import rows_of
from sinks.sink import Limits, Sink
from sinks.tables import TABLES, Table

AT_MS = 1_795_000_000_000
TOPICS = {"node-events": 2, "job-events": 2, "dead-letters": 1}
# No exit code is as large; the store refuses it.
IMPOSSIBLE = 2**40
GROUP = "sink"


class Inline:
    """Delivers at once, in the caller's thread."""

    def submit(self, work: Callable[[], None], /) -> Future[None]:
        future: Future[None] = Future()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - as the executors of the standard library do
            future.set_exception(error)
        else:
            future.set_result(None)
        return future


class Shaky:
    """The store behind a connection that fails as a test says: before the insert, or after it."""

    def __init__(self, store: MemoryStore, fate: Callable[[], str]) -> None:
        self._store = store
        self._fate = fate

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], token: str = "") -> int:
        fate = self._fate()
        if fate == "away":
            raise StoreBusyError("connection refused")
        done = self._store.insert(table, columns, rows, token)
        if fate == "silent":
            raise StoreBusyError("the connection was closed")
        if fate == "killed":
            raise KilledError
        return done

    def close(self) -> None:
        """Stay as it is."""


class KilledError(Exception):
    """The process ends here, without another word."""


class Silent:
    """Nobody is told."""

    def retrying(self, error: StoreBusyError, attempt: int, wait_s: float) -> None: ...
    def recovered(self, attempts: int) -> None: ...
    def refused(self, topic: str, error: str) -> None: ...


class World:
    """A broker and a store that outlive the sinks on them."""

    def __init__(self, fate: Callable[[], str] = lambda: "well") -> None:
        self.broker = MemoryBroker(TOPICS)
        self.store = MemoryStore(lambda _, row: row.get("exit_code") == IMPOSSIBLE)
        self.letters = MemoryLetters()
        self._fate = fate
        self._letters_read = 0

    def sink(self, limits: Limits | None = None) -> tuple[Sink, MemoryLog]:
        """Start a sink: a member of the group."""
        log = MemoryLog(self.broker, list(TOPICS), GROUP)
        shaky = Shaky(self.store, self._fate)
        delivery = Delivery(lambda: shaky, self.letters, Silent(), pause=lambda _: False, dice=lambda: 0.5)
        chosen = limits or Limits(rows=7, age_s=1.0, idle_s=5.0)
        return Sink(log, delivery, Inline(), SinkMeters(), limits=chosen, intake=Intake()), log

    def post(self) -> None:
        """Append the dead letters that were sent to their topic."""
        for key, value in self.letters.sent[self._letters_read :]:
            self.broker.append(("dead-letters", 0), value, key=key, at_ms=AT_MS)
        self._letters_read = len(self.letters.sent)

    def runs(self) -> dict[Place, list[Mapping[str, int]]]:
        """Return the runs in the store, by partition and in order."""
        found: dict[Place, list[Mapping[str, int]]] = {place: [] for place in self.broker.places}
        for row in self.store.rows("sink_runs"):
            numbers = {name: value for name, value in row.items() if isinstance(value, int)}
            found[(str(row["topic"]), numbers["partition"])].append(numbers)
        return {place: sorted(rows, key=lambda row: row["start"]) for place, rows in found.items()}


def value_of(kind: str, number: int) -> tuple[Place, bytes]:
    """Return a record of a kind: where it goes, and its bytes."""
    at_ms = AT_MS + number
    node, job = f"n{number % 5}", f"j{number % 7}"
    if kind == "fault":
        data: NodeFault | JobEnded | NodeHealth = NodeFault(node, "c1", "xid", "79", "kmsg")
    elif kind == "report":
        data = NodeHealth(node, "c1", 30.0, 8, number % 9, ())
    else:
        data = JobEnded(job, 1 + number, "failed", exit_code=IMPOSSIBLE if kind == "poison" else 1)
    place = ("job-events" if isinstance(data, JobEnded) else "node-events", number % 2)
    if kind == "broken":
        return place, b'{"specversion": "1.0"'
    if kind == "stray":
        return ("node-events", number % 2), encode(event_of(data, source="s", id_=f"e{number}", time_ms=at_ms))
    return place, encode(event_of(data, source="s", id_=f"e{number}", time_ms=at_ms))


Keys = dict[str, set[str]]


def expected(records: Iterable[Taken]) -> tuple[Keys, set[tuple[str, int, int]]]:
    """Return the keys of the rows by table that the records make, and which of them are dead letters."""
    keys: Keys = {table.name: set() for table in TABLES.values()}
    dead: set[tuple[str, int, int]] = set()
    intake = Intake()
    for record in records:
        if not record.value:
            continue
        try:
            event, _ = intake.event(record)
        except InvalidEventError:
            dead.add((record.topic, record.partition, record.offset))
            continue
        for row in rows_of(event, arrived_ms=record.appended_ms):
            table = TABLES[type(row)]
            named = dict(zip(table.columns, row, strict=True))
            if named.get("exit_code") == IMPOSSIBLE:
                dead.add((record.topic, record.partition, record.offset))
            else:
                keys[table.name].add(repr([named[name] for name in table.key]))
    return keys, dead


def stored(rows: Callable[[Table], Iterable[Mapping[str, object]]]) -> Keys:
    """Return the keys of the rows in a store, by table; `rows` reads one. A key that is there twice fails the test."""
    found = {table.name: [repr([row[name] for name in table.key]) for row in rows(table)] for table in TABLES.values()}
    assert all(len(keys) == len(set(keys)) for keys in found.values())
    return {name: set(keys) for name, keys in found.items()}


def buried(world: World) -> Counter[tuple[str, int, int]]:
    """Return which records dead letters in the store are about."""
    return Counter(
        (str(r["topic"]), int(str(r["partition"])), int(str(r["offset"]))) for r in world.store.rows("dead_letters")
    )


def letter_about(value: bytes) -> tuple[str, int, int, bytes]:
    """Return what a dead letter is about, and the bytes in it."""
    data = Decoder().decode(value).data
    assert isinstance(data, DeadLetter)
    return data.topic, data.partition, data.offset, base64.b64decode(data.value)


def assert_all_is_there(world: World) -> None:
    """Every record is in the store once or a dead letter, and the runs tell of each offset without a hole."""
    records_of = world.broker.records.values()
    keys, dead = expected(record for records in records_of for record in records if record is not None)
    assert stored(lambda table: world.store.rows(table.name)) == keys
    assert set(buried(world)) == dead
    for place, runs in world.runs().items():
        records = world.broker.records[place]
        reached = world.broker.low[place]
        for run in runs:
            assert run["start"] <= reached, f"{place}: nothing was taken from {reached} to {run['start']}"
            seen = [record for record in records[run["start"] : run["stop"]] if record is not None]
            assert run["records"] == len(seen) == run["events"] + run["ticks"] + run["dead"]
            reached = max(reached, run["stop"])
        last = max((record.offset for record in records if record is not None), default=-1)
        assert reached == last + 1
        assert world.broker.committed.get(GROUP, {}).get(place, 0) == last + 1
