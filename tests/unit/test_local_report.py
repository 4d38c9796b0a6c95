"""What a replay says when it has no verdict to tell of."""

from collections import Counter

import pytest

from faultlens.local_report import Run, as_text
from faultlens.local_tally import Tally
from faultlens.topics import JOB_EVENTS


@pytest.mark.parametrize(
    ("tally", "said"),
    [
        (Tally(), "The input is empty"),
        (Tally(dead_letters=Counter(not_json=3)), "No line was an event"),
        (Tally(by_topic=Counter({JOB_EVENTS: 4}), duplicates=4), "Nothing new"),
        (Tally(too_old=2), "Nothing new"),
        (Tally(by_topic=Counter({JOB_EVENTS: 4}), duplicates=1), "No job failed in what was new (1 of it"),
        (Tally(by_topic=Counter({JOB_EVENTS: 4})), "No job failed\n"),
    ],
)
def test_why_there_is_no_verdict(tally: Tally, said: str) -> None:
    assert said in as_text(Run(tally, 1.0, None, None))


def test_arrivals_that_were_not_believed_are_told() -> None:
    assert "Not believed: 2 times" in as_text(Run(Tally(doubted=2), 1.0, None, None))
    assert "Not believed" not in as_text(Run(Tally(), 1.0, None, None))


def test_nodes_that_stopped_reporting_are_told_with_when() -> None:
    last_ms = {f"n{number}": number * 60_000 for number in range(7)}
    said = as_text(Run(Tally(stopped=last_ms), 1.0, None, None))
    assert "7 nodes stopped reporting before the recordings end (n0 since 1970-01-01 00:00 UTC" in said
    assert ", and 2 more)" in said
    assert "stopped" not in as_text(Run(Tally(), 1.0, None, None))
