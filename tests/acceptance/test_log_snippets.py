"""Real log tails whose causes the people of their threads found out: how many are decided, and how many rightly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from faultlens.signatures import LogVerdict, decide, load_signatures

TAILS = Path(__file__).parents[3] / "shared" / "data" / "log_snippets.jsonl"

pytestmark = pytest.mark.skipif(not TAILS.exists(), reason="the labelled log tails are not part of the repository")

Judged = tuple[dict[str, Any], LogVerdict]


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    known = load_signatures()
    tails = [json.loads(line) for line in TAILS.read_text().splitlines() if line.strip()]
    return [(tail, decide(known.scan(tail["snippet"]))) for tail in tails]


def decided(judged: Sequence[Judged]) -> list[Judged]:
    return [(tail, verdict) for tail, verdict in judged if verdict.basis == "supported"]


def is_right(tail: dict[str, Any], verdict: LogVerdict) -> bool:
    return verdict.cause_class in {tail["true_cause"], *tail["also_acceptable"]}


def test_most_of_the_tails_with_a_certain_cause_are_decided(judged: list[Judged]) -> None:
    certain = [(tail, verdict) for tail, verdict in judged if tail["confidence"] == "high"]
    assert len(decided(certain)) >= 0.7 * len(certain)


def test_what_is_decided_is_right(judged: list[Judged]) -> None:
    told = [(tail, verdict) for tail, verdict in decided(judged) if tail["true_cause"] != "unknown"]
    wrong = [(tail["id"], verdict.cause_code) for tail, verdict in told if not is_right(tail, verdict)]
    assert len(wrong) <= 0.05 * len(told), wrong


def test_where_nobody_found_the_cause_none_is_claimed(judged: list[Judged]) -> None:
    claimed = [tail["id"] for tail, verdict in decided(judged) if tail["true_cause"] == "unknown"]
    assert claimed == []
