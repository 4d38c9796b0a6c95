"""Who is told of which verdict: routes, words, and at most so much an hour."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from faultlens.clock import HOUR_MS, MINUTE_MS
from slo.notices import WAITING_LIMIT, Cursor, Line, Route, cursor_of, next_notice, queued, sent

NOW_MS = 1_800_000_000_000
VERDICT: dict[str, Any] = {
    "job_id": "llm-7", "attempt": 3, "loss": 0, "revision": 2, "status": "final", "cluster": "c1", "class": "hardware",
    "code": "gpu.off_bus", "summary": "GPU is gone\x1b[31m", "basis": "established", "node": "n1", "user": "ada",
    "advice": "retry_elsewhere", "exclude_nodes": ["n1"], "team": "nlp", "said_ms": 7,
}  # fmt: skip


def route(**wanted: Any) -> Route:
    return Route.model_validate({"name": "r", "to": "https://hook.example/x"} | wanted)


def test_the_usual_words_say_whose_fault_it_was_and_what_to_do() -> None:
    notice = next_notice(queued(Line(), route(), [VERDICT]), route(), NOW_MS)
    assert notice is not None
    assert notice.subject == "llm-7/3 failed: hardware"
    assert notice.text == (
        "llm-7 (attempt 3) failed. Whose fault: hardware, GPU lost from the bus on n1 (established).\n"
        "GPU is gone\\x1b[31m\nWhat to do: retry elsewhere, away from n1."
    )


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({}, True),
        ({"classes": ["hardware"], "teams": ["nlp"], "clusters": ["c1"], "codes": ["gpu"]}, True),
        ({"classes": ["user"]}, False),
        ({"teams": ["vision"]}, False),
        ({"clusters": ["c2"]}, False),
        ({"codes": ["gpu.off"]}, False),
        ({"better_than_assumed": True}, True),
    ],
)
def test_a_route_is_told_of_what_it_asks_for(wanted: dict[str, Any], told: bool) -> None:
    assert bool(queued(Line(), route(**wanted), [VERDICT]).waiting) is told


def test_what_is_assumed_can_be_left_to_others() -> None:
    assert not queued(Line(), route(better_than_assumed=True), [VERDICT | {"basis": "assumed"}]).waiting


@pytest.mark.parametrize(
    ("user", "to"), [("ada", "smtp://m?to=ada@x"), ("a&to=evil", None), ("", None), ("../x", None)]
)
def test_an_owners_name_becomes_part_of_an_address_only_if_it_is_a_plain_one(user: str, to: str | None) -> None:
    line = queued(Line(), route(to="smtp://m?to={user}@x"), [VERDICT | {"user": user}])
    assert [notice.to for notice in line.waiting] == ([] if to is None else [to])
    assert line.left_out == (to is None)


def test_of_too_many_the_rest_waits_for_the_next_hour_and_what_is_left_out_is_told() -> None:
    mine = route(per_hour=2)
    line = queued(Line(), mine, [VERDICT] * (WAITING_LIMIT + 3))
    for minute in range(2):
        notice = next_notice(line, mine, NOW_MS + minute * MINUTE_MS)
        assert notice is not None
        assert ("3 more were not sent" in notice.text) is (minute == 0)
        line = sent(line, NOW_MS + minute * MINUTE_MS)
    assert next_notice(line, mine, NOW_MS + 59 * MINUTE_MS) is None
    assert next_notice(line, mine, NOW_MS + HOUR_MS + 1) is not None


@given(st.lists(st.integers(min_value=0, max_value=4 * HOUR_MS), max_size=60), st.integers(min_value=1, max_value=5))
def test_no_hour_ever_holds_more_than_is_allowed(offsets: list[int], per_hour: int) -> None:
    mine, line, times = route(per_hour=per_hour), Line(), []
    for offset in sorted(offsets):
        line = queued(line, mine, [VERDICT])
        if next_notice(line, mine, NOW_MS + offset) is not None:
            line = sent(line, NOW_MS + offset)
            times.append(offset)
    assert all(sum(begin <= at < begin + HOUR_MS for at in times) <= per_hour for begin in times)


@pytest.mark.parametrize("template", ["{{ luck }}", "{% for %}", "{{ ''.__class__.__mro__ }}"])
def test_a_template_that_cannot_be_filled_is_refused_when_it_is_read(template: str) -> None:
    with pytest.raises(ValidationError, match="no template"):
        route(text=template)


def test_the_place_of_a_verdict_is_kept() -> None:
    assert cursor_of(VERDICT) == Cursor(7, "llm-7", 3, 0, 2)
