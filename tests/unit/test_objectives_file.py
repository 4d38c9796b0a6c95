"""Objectives as data: what ships, what a site may change, and what is refused with file and line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS
from faultlens.errors import ConfigurationError
from faultlens.objectives import Objective, iso_duration, load_objectives, parse_duration_ms

JOB_SUCCESS = """\
version: site-1
objectives:
  job_success:
    title: Job success
    promise: Attempts succeed.
    target: 0.93
    unit: attempts
"""


def site_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "objectives.yaml"
    path.write_text(text)
    return path


def tier_names(objective: Objective) -> list[str]:
    return [tier.name for tier in objective.tiers]


def test_the_shipped_targets_are_those_of_the_contract() -> None:
    targets = {objective.name: objective.target for objective in load_objectives()}
    assert targets == {
        "node_availability": 0.9995,
        "gpu_availability": 0.9995,
        "job_start": 0.99,
        "job_success": 0.995,
        "goodput": 0.90,
        "serving_capacity": 0.999,
        "coverage": 0.999,
    }
    assert {objective.window_ms for objective in load_objectives()} == {28 * DAY_MS}


def test_job_start_has_ten_minutes_and_a_pending_limit_of_thirty() -> None:
    job_start = load_objectives()["job_start"]
    assert (job_start.within_ms, job_start.pending_limit_ms) == (10 * MINUTE_MS, 30 * MINUTE_MS)


def test_the_shipped_factors_over_28_days_are_those_that_sloth_computes() -> None:
    factors = [round(tier.factor, 3) for tier in load_objectives()["node_availability"].tiers]
    assert factors == [13.44, 5.6, 2.8, 0.933]


def test_the_windows_of_the_tiers_are_listed_once_and_shortest_first() -> None:
    windows = load_objectives()["job_success"].burn_windows_ms
    assert windows == tuple(n * MINUTE_MS for n in (5, 30, 60, 120, 360, 1440, 4320))


def test_a_tier_that_can_never_fire_is_left_out_and_named() -> None:
    objectives = load_objectives()
    assert tier_names(objectives["goodput"]) == ["page_slow", "ticket_fast", "ticket_slow"]
    assert [(left_out.objective, left_out.tier) for left_out in objectives.never_fire] == [("goodput", "page_fast")]
    assert "goodput: tier page_fast is left out: it needs a burn rate of 13.44" in str(objectives.never_fire[0])


def test_a_site_changes_one_objective_and_keeps_the_others(tmp_path: Path) -> None:
    objectives = load_objectives(site_file(tmp_path, JOB_SUCCESS))
    assert objectives["job_success"].target == 0.93
    assert objectives["job_start"].target == 0.99
    assert objectives.version.endswith("+site-1")


def test_over_30_days_a_target_of_93_percent_cannot_trip_the_page_at_14_4(tmp_path: Path) -> None:
    objectives = load_objectives(site_file(tmp_path, "period: 30d\n" + JOB_SUCCESS))
    assert "page_fast" not in tier_names(objectives["job_success"])
    at_limit = JOB_SUCCESS.replace("0.93", "0.9306")
    assert "page_fast" in tier_names(load_objectives(site_file(tmp_path, "period: 30d\n" + at_limit))["job_success"])


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("0.93", "1.0"), 6, "less than 1"),
        (("0.93", "93"), 6, "less than 1"),
        (("unit: attempts", "unit: percent"), 7, "node_seconds"),
        (("job_success:", "job_sucess:"), 4, "job_success"),
        (("title: Job", "tittle: Job"), 4, "tittle"),
        (("job_success:", "job_start:"), 4, "needs `within` and `pending_limit`"),
        (("target: 0.93", "target: 0.93\n    within: 10m"), 4, "belong to job_start alone"),
        (("version: site-1", "version: site-1\nperiod: 3d"), 2, "longer than the longest window"),
        (("target: 0.93", "target: 0.93\n    period: 1d"), 7, "longer than the longest window"),
        (("version: site-1", "version: site-1\nperiod: soon"), 2, "not a duration: 'soon'"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(
    tmp_path: Path, change: tuple[str, str], line: int, words: str
) -> None:
    path = site_file(tmp_path, JOB_SUCCESS.replace(*change))
    with pytest.raises(ConfigurationError) as caught:
        load_objectives(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert words in str(caught.value)


def test_two_tiers_of_one_name_are_refused(tmp_path: Path) -> None:
    tier = "  - {name: a, severity: page, long: 1h, short: 5m, budget_share: 0.02}\n"
    path = site_file(tmp_path, JOB_SUCCESS + "tiers:\n" + tier + tier)
    with pytest.raises(ConfigurationError, match="tier 'a' is given twice"):
        load_objectives(path)


def test_a_missing_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_objectives(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5m", 5 * MINUTE_MS),
        ("28d", 28 * DAY_MS),
        ("4w", 28 * DAY_MS),
        ("week", 7 * DAY_MS),
        ("P28D", 28 * DAY_MS),
        ("PT1H", HOUR_MS),
        ("P1DT12H", 36 * HOUR_MS),
    ],
)
def test_durations_are_read_as_people_and_the_contract_write_them(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "0d", "P", "PT", "-1h", "1.5h", "1 h", "28", "forever"])
def test_what_is_no_duration_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write 5m, 1h, 28d"):
        parse_duration_ms(text)


@given(st.integers(min_value=1, max_value=400 * 86_400).map(lambda seconds: seconds * 1000))
def test_a_written_duration_reads_back_as_itself(duration_ms: int) -> None:
    assert parse_duration_ms(iso_duration(duration_ms)) == duration_ms
