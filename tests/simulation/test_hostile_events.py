"""Events of every type with the strangest values that the contract allows: nothing stops, nothing is lost."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, iso, parse_moment
from faultlens.codec import Decoder
from faultlens.local import Places, replay
from faultlens.local_roles import load_roles
from faultlens.local_state import load
from faultlens.recordings import Recording
from faultlens.store import Store, open_store
from faultlens.topics import INPUT_TYPES
from sinks.migrate import migrate
from sinks.writer import StoreWriter

T0 = parse_moment("2026-11-23T04:00:00Z")
ROLES = load_roles()
# Few names, so that events meet; and some that nobody would give.
NAMES = st.sampled_from(["n1", "n2", "c1", "j1", "j2", "1", "*", "\x00", "\x1b[2J", "<b>", "'", "🔥", "x" * 512])
MOMENTS = st.sampled_from([0, 1, MINUTE_MS, HOUR_MS, -HOUR_MS, DAY_MS, -380 * DAY_MS, 4_000 * DAY_MS])


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Return JSON values of a type, its extremes among them."""
    return MAKERS[type(kind)](kind)


def structs(kind: Any) -> st.SearchStrategy[Any]:
    needed = {f.encode_name: values(f.type) for f in kind.fields if f.required}
    return st.fixed_dictionaries(
        needed, optional={f.encode_name: values(f.type) for f in kind.fields if not f.required}
    )


def integers(kind: Any) -> st.SearchStrategy[int]:
    return st.sampled_from([kind.ge, kind.le]) | st.integers(max(kind.ge, 0), max(kind.ge, 0) + 3)


def floats(kind: Any) -> st.SearchStrategy[float]:
    low = 1e-9 if kind.gt is not None else kind.ge
    return st.sampled_from([low, kind.le, 0.5, 1.0, 30.0])


MAKERS: dict[type, Callable[[Any], st.SearchStrategy[Any]]] = {
    inspect.StructType: structs,
    inspect.UnionType: lambda kind: st.one_of(*(values(one) for one in kind.types)),
    inspect.LiteralType: lambda kind: st.sampled_from(kind.values),
    inspect.VarTupleType: lambda kind: st.lists(values(kind.item_type), max_size=3),
    inspect.DictType: lambda kind: st.dictionaries(NAMES, values(kind.value_type), max_size=2),
    inspect.IntType: integers,
    inspect.FloatType: floats,
    inspect.BoolType: lambda _: st.booleans(),
    inspect.DateTimeType: lambda _: MOMENTS.map(lambda offset: iso(T0 + offset)),
    inspect.NoneType: lambda _: st.none(),
    inspect.StrType: lambda _: NAMES,
}


@st.composite
def events(draw: st.DrawFn) -> bytes:
    event_type = draw(st.sampled_from(sorted(INPUT_TYPES)))
    kind = INPUT_TYPES[event_type]
    data = draw(values(inspect.type_info(kind.data)))
    at_ms = T0 + draw(st.integers(0, 40)) * MINUTE_MS
    source = draw(st.sampled_from(["agent/a", "scheduler/s", "launcher/l", ""]))
    envelope = {
        "specversion": "1.0", "type": event_type, "source": source,
        "id": draw(NAMES), "subject": data[kind.subject], "time": iso(at_ms + draw(MOMENTS)), "data": data,
        "recordedtime": iso(at_ms),
    }  # fmt: skip
    return msgspec.json.encode(envelope | draw(st.sampled_from([{}, {"senttime": envelope["time"]}])))


@given(st.lists(events(), min_size=1, max_size=25))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_event_that_the_contract_allows_makes_a_processor_fail(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "events.jsonl").write_bytes(b"\n".join(lines))
        places = Places(directory / "out", state=directory / "state")
        tally = replay([Recording(str(directory / "events.jsonl"))], ROLES, places)
        letters = directory / "out" / "dead-letters.jsonl"
        assert tally.failures == 0, letters.read_text()
        assert set(tally.dead_letters) <= {"time_ahead", "bad_value"}, letters.read_text()
        assert tally.events + sum(tally.dead_letters.values()) >= len(lines)
        load(directory / "state", ROLES)
        for file in (directory / "out").iterdir():
            for line in file.read_bytes().splitlines():
                Decoder().decode(line)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(f"chdb://{tmp_path_factory.mktemp('hostile') / 'store'}") as opened:
        migrate(opened)
        yield opened


@pytest.mark.store
@given(st.lists(events(), min_size=20, max_size=60))
@settings(max_examples=12, suppress_health_check=list(HealthCheck), deadline=None)
def test_the_store_takes_every_event_that_the_contract_allows(store: Store, lines: list[bytes]) -> None:
    writer = StoreWriter(store)
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(lines))
        file.flush()
        replay([Recording(file.name)], ROLES, Places(store=writer))
    assert writer.refused == 0
