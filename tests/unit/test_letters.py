"""Which dead letters are meant, which get another chance, and with what."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from faultlens.codec import Event
from faultlens.dead_letters import Origin, letter
from sinks.intake import buried
from sinks.letters import RETRIES, Chosen, Letter, chosen, decoded, headers_again, is_whole, letter_of, obstacle
from sinks.log import Taken

AT_MS = 1_795_000_000_000


def event(value: bytes = b"{", *, offset: int = 7, topic: str = "job-events", headers: dict[str, str] = {}) -> Event:  # noqa: B006
    origin = Origin(topic, 0, offset, "j1", headers)
    return letter(value, origin, reason="not_json", error="no JSON", at_ms=AT_MS + offset)


def read(value: bytes = b"{", **changed: Any) -> Letter:
    found = letter_of(event(value), b"j1")
    assert found is not None
    return replace(found, **changed)


def test_a_letter_has_the_records_bytes_and_key() -> None:
    found = read(b"\xff{")
    assert (found.value, found.key, found.topic, found.offset, found.retries) == (b"\xff{", b"j1", "job-events", 7, 0)


def test_a_letter_under_its_topics_name_is_of_a_record_without_key() -> None:
    found = letter_of(event(), b"job-events")
    assert found is not None
    assert found.key is None


@pytest.mark.parametrize("value", ["e30", "é", "=", "e30=x"])
def test_a_value_that_is_no_base64_is_empty(value: str) -> None:
    assert decoded(value) == b""


@pytest.mark.parametrize(
    ("which", "fits"),
    [
        (Chosen(), True),
        (Chosen(reason="not_json"), True),
        (Chosen(reason="bad_value"), False),
        (Chosen(topic="node-events"), False),
        (Chosen(since_ms=AT_MS + 7), True),
        (Chosen(since_ms=AT_MS + 8), False),
        (Chosen(until_ms=AT_MS + 7), False),
        (Chosen(frozenset({"another"})), False),
    ],
)
def test_letters_are_chosen_by_all_that_is_given(which: Chosen, fits: bool) -> None:
    assert which.fits(read()) is fits


def test_a_letter_that_was_written_twice_is_one_and_the_newest_come_first() -> None:
    events = [event(offset=offset) for offset in (1, 3, 2, 3)]
    letters = [found for written in events if (found := letter_of(written, None)) is not None]
    assert [found.offset for found in chosen(letters, Chosen())] == [3, 2, 1]


@pytest.mark.parametrize(
    ("changed", "again", "why"),
    [
        ({}, False, None),
        ({"topic": "store/job_facts"}, False, "no_topic"),
        ({"topic": "old.jsonl"}, True, "no_topic"),
        ({"headers": {RETRIES: "1"}}, False, "failed_again"),
        ({"headers": {RETRIES: "1"}}, True, None),
        ({"headers": {RETRIES: "x"}}, False, None),
    ],
)
def test_what_failed_again_is_not_sent_a_third_time_by_itself(
    changed: dict[str, Any], again: bool, why: str | None
) -> None:
    assert obstacle(read(**changed), again=again) == why


def test_a_record_that_is_sent_again_and_buried_again_tells_how_often() -> None:
    first = read(headers={"content-type": "x"})
    for tried in (1, 2):
        headers = [
            (name, value.encode() if isinstance(value, str) else value or b"") for name, value in headers_again(first)
        ]
        record = Taken("job-events", 0, 90 + tried, AT_MS, first.value, first.key, tuple(headers))
        key, again = buried(record, "not_json", "no JSON")
        found = letter_of(again, key)
        assert found is not None
        assert (found.retries, found.headers["content-type"], found.key) == (tried, "x", b"j1")
        first = found


def test_of_a_large_record_only_the_whole_is_sent_again() -> None:
    large = b"x" * 300_000
    found = read(large)
    assert found.is_cut
    assert len(found.value) == 64 * 1024
    assert is_whole(found, large)
    assert not is_whole(found, found.value)
    assert found.sha256 == hashlib.sha256(large).hexdigest()
