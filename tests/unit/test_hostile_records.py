"""Whatever bytes arrive, the decoder says what is wrong with them, and never anything else."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from faultlens.codec import MAX_RECORD_BYTES, Decoder, Event, encode
from faultlens.dead_letters import glance
from faultlens.errors import InvalidEventError
from faultlens.topics import INPUT_TYPES

DECODER = Decoder(INPUT_TYPES)
FAULT = {"node": "n", "cluster": "c1", "kind": "xid", "code": "79", "detected_by": "kmsg"}


def record(**changes: object) -> bytes:
    envelope = {
        "specversion": "1.0", "type": "faultlens.node.fault.v1", "source": "agent/n", "id": "1", "subject": "n",
        "time": "2026-11-23T04:00:00Z", "data": FAULT,
    }  # fmt: skip
    return json.dumps(envelope | changes).encode()


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def refusal(raw: bytes) -> str:
    with pytest.raises(InvalidEventError) as refused:
        DECODER.decode(raw)
    return refused.value.reason


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not_json"),
        (b"\x00\x01", "not_json"),
        (b"NaN", "not_json"),
        (b"null", "not_an_object"),
        (b'"text"', "not_an_object"),
        (record()[:-1], "not_json"),
        (record() + b"{}", "not_json"),
        (record().decode().encode("utf-16"), "not_json"),
        (record().replace(b'"79"', b'"\xff"'), "not_json"),
        (record(unknown="x").replace(b'"x"', b'"\xff"'), "not_json"),
        (record().replace(b'"79"', b'"\\ud800"'), "not_json"),
        (deep(100_000), "bad_value"),
        (record(data={"deep": 0}).replace(b": 0}", b": " + deep(100_000) + b"}"), "bad_value"),
        (record(data=FAULT | {"kind": "new", "x": 0}).replace(b": 0}", b": " + deep(50_000) + b"}"), "bad_value"),
        (record(time="0001-01-01T00:00:00+14:00"), "bad_value"),
        (record(time="9999-12-31T23:59:59-14:00"), "bad_value"),
        (record(senttime="0001-01-01T00:00:00+14:00"), "bad_value"),
        (record(time="2026-02-30T00:00:00Z"), "bad_value"),
        (record(time="2026-11-23T04:00:00"), "bad_value"),
        (record(data=FAULT | {"count": 1e300}), "bad_value"),
        (record(data=FAULT | {"count": 10**30}), "bad_value"),
        (record(data=FAULT | {"device": {"index": 2**63}}), "bad_value"),
        (record(data=FAULT | {"x": "y" * MAX_RECORD_BYTES}), "too_large"),
        (record(type="faultlens.node.state.v1"), "unknown_type"),
    ],
)
def test_what_is_no_event_is_refused_with_the_reason(raw: bytes, reason: str) -> None:
    assert refusal(raw) == reason


def test_null_is_an_optional_field_that_was_left_out_and_a_required_one_that_is_missing() -> None:
    left_out = dict.fromkeys(("domains", "count", "synthetic", "device", "message"))
    told = DECODER.decode(record(data=FAULT | left_out | {"domains": {"rack": None, "zone": "z1"}}))
    assert told.data == DECODER.decode(record(data=FAULT | {"domains": {"zone": "z1"}})).data
    assert DECODER.decode(record(data=FAULT | left_out)).data == DECODER.decode(record()).data
    assert refusal(record(data=FAULT | {"code": None})) == "missing_field"


def test_text_of_any_language_and_unknown_fields_are_accepted() -> None:
    event = DECODER.decode(record(unknown={"any": ["thing"]}, data=FAULT | {"message": "Ошибка 错误 🔥", "new": 1}))
    assert getattr(event.data, "message", None) == "Ошибка 错误 🔥"


@given(st.binary(max_size=200))
@example(deep(50_000))
@example(record(data={"deep": 0}).replace(b": 0}", b": " + deep(50_000) + b"}"))
def test_no_bytes_do_anything_but_be_an_event_or_be_refused(raw: bytes) -> None:
    assert isinstance(decoded(raw), Event | str)
    assert all(isinstance(part, str) for part in glance(raw))


@given(st.data())
def test_a_record_that_was_damaged_anywhere_is_an_event_or_is_refused(data: st.DataObject) -> None:
    raw = bytearray(record(senttime="2026-11-23T04:00:00Z"))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    found = decoded(bytes(raw))
    if isinstance(found, Event):
        assert DECODER.decode(encode(found)) == found


def decoded(raw: bytes) -> Event | str:
    try:
        return DECODER.decode(raw)
    except InvalidEventError as refused:
        return refused.reason
