"""Where an objective stands: budget, burn, what warns, and whether two ways of counting agree."""

import json
import math
from dataclasses import replace
from typing import Any

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, parse_moment
from faultlens.objectives import load_objectives
from slo.measure import Measure
from slo.queries import Reader
from slo.recompute import View
from slo.status import Standing, Streamed, standings
from slo.status_text import as_plain, as_text

OBJECTIVES = load_objectives()
NOW_MS = parse_moment("2026-11-23T04:12:07.500Z")
VIEW = View(NOW_MS, "c1")


def standing(name: str = "job_success", *, good: int = 990, total: int = 1000, **burn: float) -> Standing:
    measure = Measure(good, total, {"hardware": total - good} if total > good else {}, bounds=(0.98, 0.995))
    rates = {window.replace("_", ""): rate for window, rate in burn.items()}
    return Standing(OBJECTIVES[name], VIEW, "P28D", 28 * DAY_MS, measure, measure.attained, rates, None)


def streamed(good: float, total: float) -> Streamed:
    return Streamed(good, total, good / total, {}, {}, None, NOW_MS)


def test_a_share_below_the_target_is_a_miss_and_none_is_neither() -> None:
    assert standing(good=990).met is False
    assert standing(good=996).met is True
    assert standing(good=0, total=0).met is None


def test_the_rest_of_the_budget_lasts_as_long_as_the_last_days_burn_lets_it() -> None:
    assert math.isclose(standing(good=996, P1D=2.0).exhausted_in_ms, 0.2 * 28 * DAY_MS / 2, rel_tol=1e-9)
    assert standing(good=1000).exhausted_in_ms == math.inf
    assert standing(good=900, P1D=2.0).exhausted_in_ms == 0.0


def test_a_tier_warns_only_when_both_its_windows_burn() -> None:
    assert standing(PT1H=20.0, PT5M=20.0).firing == ("page_fast",)
    assert standing(PT1H=20.0, PT5M=0.0).firing == ()
    assert standing(PT6H=6.0, PT30M=6.0, P1D=3.0, PT2H=3.0).firing == ("page_slow", "ticket_fast")


def test_counts_agree_only_when_they_are_the_same_and_times_up_to_rounding() -> None:
    count, time = standing(good=990, total=1000), standing("goodput", good=10**12, total=10**12 + 5)
    assert replace(count, streamed=streamed(990.0, 1000.0)).agreement == "same"
    assert replace(count, streamed=streamed(989.0, 1000.0)).agreement == "differs"
    assert replace(time, streamed=streamed(10**12 - 3.0, 10**12 + 2.0)).agreement == "same"
    assert count.agreement == "alone"


def test_the_table_names_what_is_missed_and_the_details_whom_it_is_charged_to() -> None:
    found = [standing(good=990, total=1000, PT1H=14.0, PT5M=14.0), standing("goodput", good=0, total=0)]
    text = as_text(found, VIEW, "cluster c1", OBJECTIVES)
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "job_success MISSED 99.0 % 99.5 % 28 d used 2.0x used up" in rows
    assert "goodput no data \N{EN DASH} 90 % 28 d \N{EN DASH} \N{EN DASH}" in rows
    assert "990 good of 1,000 attempts" in text
    assert "not good: hardware 10" in text
    assert "between 98.0 % and 99.5 %, if everything assumed moved to either side" in text
    assert "burn rate, and what it used of the budget: 1 h 14.00 (2.1 %), 5 min 14.00 (0.2 %)" in text
    assert "the budget is worth 3 h 21 min of total outage in 28 d" in text
    assert "warns: page_fast" in text
    assert "goodput: tier page_fast is left out" in text


def test_a_difference_between_both_counts_is_shown() -> None:
    text = as_text([replace(standing(), streamed=streamed(980, 1000))], VIEW, "cluster c1", OBJECTIVES)
    assert "the processors' own count differs: 980 good of 1,000 (status of 2026-11-23 04:12 UTC)" in text


def test_as_plain_values_time_is_in_seconds_and_endless_is_null() -> None:
    found = [standing("goodput", good=9_500_000, total=10_000_000)]
    plain = json.loads(json.dumps(as_plain(found, VIEW, "cluster c1")))
    (goodput,) = plain["objectives"]
    assert goodput["recomputed"]["good"] == 9_500.0
    assert goodput["exhausted_in_s"] is None
    assert plain["missed"] == []


class Answers(Reader):
    """A store that knows its answers by a word of the question, and remembers what it was asked with."""

    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.asked: list[dict[str, object]] = []

    def query(self, sql: str, params: Any = None) -> list[dict[str, Any]]:
        self.asked.append(dict(params or {}))
        return next((rows for word, rows in self.rows.items() if f"FROM {word}" in sql), [])


def test_windows_begin_where_the_processors_begin_them_and_end_with_the_last_moment() -> None:
    reader = Answers()
    standings(reader, VIEW, OBJECTIVES)
    froms, tos = (reader.asked[0][name] for name in ("froms", "tos"))
    assert isinstance(froms, list)
    assert tos == [NOW_MS + 1] * len(froms)
    assert max(froms) == (NOW_MS - 5 * MINUTE_MS) // MINUTE_MS * MINUTE_MS
    assert min(froms) == (NOW_MS - 28 * DAY_MS) // HOUR_MS * HOUR_MS


def test_of_a_pool_nodes_and_jobs_are_asked_and_of_a_team_jobs_alone() -> None:
    of_pool, of_team = Answers(), Answers()
    standings(of_pool, View(NOW_MS, "c1", pool="h100"), OBJECTIVES)
    standings(of_team, View(NOW_MS, "c1", team="nlp"), OBJECTIVES)
    assert len(of_pool.asked) == 5
    assert len(of_team.asked) == 4


def test_what_only_the_processors_count_is_taken_from_their_last_status() -> None:
    row = {
        "objective": "coverage",
        "cluster": "c1",
        "window": "P28D",
        "good": 999.0,
        "total": 1000.0,
        "burn": {"PT1H": 1.0},
        "by_cause": {"overhead": 1.0},
        "low": 0.999,
        "high": 0.999,
        "at_ms": NOW_MS,
    }
    found = {s.objective.name: s for s in standings(Answers(slo_status=[row]), VIEW, OBJECTIVES)}
    assert found["coverage"].attained == 0.999
    assert found["coverage"].burn == {"PT1H": 1.0}
    assert found["serving_capacity"].attained is None
    other_window = standings(Answers(slo_status=[row]), VIEW, OBJECTIVES, window_ms=7 * DAY_MS)
    assert all(s.streamed is None for s in other_window)
