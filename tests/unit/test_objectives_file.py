"""Objectives as data: what ships, what a site may change, and what is refused with file and line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.budget import Slice
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, iso, parse_moment
from faultlens.errors import ConfigurationError
from faultlens.objectives import Objective, Window, iso_duration, load_objectives, parse_duration_ms, plain_duration

JOB_SUCCESS = """\
apiVersion: openslo/v1
kind: SLO
metadata:
  name: job-success
  displayName: Job success
spec:
  description: Attempts succeed.
  service: gpu-fleet
  indicatorRef: job_success
  timeWindow: [{duration: 28d}]
  budgetingMethod: Occurrences
  objectives: [{target: 0.93}]
  alertPolicies: [{alertPolicyRef: page-fast}, {alertPolicyRef: page-slow}]
"""
EXCLUSION = """\
---
apiVersion: faultlens/v1
kind: Exclusion
metadata: {name: INC-7}
spec:
  from: 2026-11-20T10:00:00+01:00
  to: 2026-11-20T12:00:00Z
  reason: the site lost its power
  author: ann
  classes: [platform]
"""
MONTHLY = "[{duration: 1M, isRolling: false, calendar: {startTime: '2026-01-01 00:00:00', timeZone: Europe/Zurich}}]"


def site_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "objectives.yaml"
    path.write_text(text)
    return path


def loaded(tmp_path: Path, *changes: tuple[str, str], more: str = "") -> Objective:
    text = JOB_SUCCESS
    for change in changes:
        text = text.replace(*change)
    return load_objectives(site_file(tmp_path, text + more))["job_success"]


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
    assert {objective.window for objective in load_objectives()} == {Window(28 * DAY_MS)}
    assert all(objective.name == objective.indicator for objective in load_objectives())


def test_job_start_has_ten_minutes_and_a_pending_limit_of_thirty() -> None:
    objectives = load_objectives()
    assert (objectives.start_within_ms, objectives.start_pending_limit_ms) == (10 * MINUTE_MS, 30 * MINUTE_MS)


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
    assert objectives.version != load_objectives().version


def test_of_a_folder_every_file_is_read(tmp_path: Path) -> None:
    site_file(tmp_path, JOB_SUCCESS)
    own = JOB_SUCCESS.replace("name: job-success", "name: nlp\n  labels: {team: nlp}").replace("0.93", "0.97")
    (tmp_path / "nlp.yml").write_text(own)
    objectives = load_objectives(tmp_path)
    assert (objectives["job_success"].target, objectives["nlp"].target) == (0.93, 0.97)
    assert objectives.promised("job_success", "c1", team="nlp") is objectives["nlp"]
    assert objectives.promised("job_success", "c1") is objectives["job_success"]
    assert objectives.promised("job_success", "c1", workload="batch") is objectives["job_success"]


def test_over_30_days_a_target_of_93_percent_cannot_trip_the_page_at_14_4(tmp_path: Path) -> None:
    thirty = ("28d", "30d")
    assert tier_names(loaded(tmp_path, thirty)) == ["page_slow"]
    assert tier_names(loaded(tmp_path, thirty, ("0.93", "0.9306"))) == ["page_fast", "page_slow"]


def test_an_objective_of_which_no_tier_can_fire_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"objectives.yaml:13: no alert policy of it can ever fire .* 82\.14"):
        loaded(tmp_path, ("0.93", "0.8"))


def test_an_exclusion_says_which_time_does_not_count_why_and_who_says_so(tmp_path: Path) -> None:
    (excluded,) = loaded(tmp_path, more=EXCLUSION).exclusions
    assert (iso(excluded.from_ms), excluded.to_ms - excluded.from_ms) == ("2026-11-20T09:00:00.000Z", 3 * HOUR_MS)
    assert (excluded.name, excluded.author, excluded.classes) == ("INC-7", "ann", ("platform",))


def test_a_month_of_the_calendar_begins_at_midnight_of_its_zone(tmp_path: Path) -> None:
    window = loaded(tmp_path, ("[{duration: 28d}]", MONTHLY)).window
    assert (window.name, window.length_ms) == ("P1M", 30 * DAY_MS)
    for now, start in (
        ("2026-11-15T12:00:00Z", "2026-10-31T23:00:00.000Z"),
        ("2026-10-31T22:59:59Z", "2026-09-30T22:00:00.000Z"),
        ("2026-10-31T23:00:00Z", "2026-10-31T23:00:00.000Z"),
    ):
        assert iso(window.start_ms(parse_moment(now))) == start


@given(
    st.integers(min_value=0, max_value=4_000_000_000_000),
    st.sampled_from(["UTC", "Europe/Zurich", "Asia/Kolkata", "Pacific/Auckland", "America/Los_Angeles"]),
    st.sampled_from(["week", "month"]),
)
def test_a_calendars_window_holds_now_and_is_never_longer_than_what_is_kept(now_ms: int, zone: str, unit: str) -> None:
    window = Window(7 * DAY_MS, "week" if unit == "week" else "month", zone)
    start_ms = window.start_ms(now_ms)
    assert start_ms <= now_ms
    assert now_ms - start_ms <= window.reach_ms + HOUR_MS
    assert start_ms % HOUR_MS == 0
    assert window.start_ms(start_ms) == start_ms


SLICED = "budgetingMethod: Timeslices"


@pytest.mark.parametrize(
    ("changes", "line", "words"),
    [
        ((("0.93", "1.0"),), 12, "less than 1"),
        ((("0.93", "93"),), 12, "less than 1"),
        ((("indicatorRef: job_success", "indicatorRef: luck"),), 7, "no indicator 'luck'"),
        ((("name: job-success", "name: job_success"),), 4, "pattern"),
        ((("displayName", "dispalyName"),), 5, "dispalyName"),
        ((("openslo/v1", "openslo/v3"),), 2, "openslo/v1 SLO"),
        ((("kind: SLO", "kind: Promise"),), 2, "openslo/v1 SLO"),
        ((("indicatorRef: job_success", "indicatorRef: job_start"),), 1, "faultlens/within"),
        ((("  displayName: Job success", "  annotations: {faultlens/within: 10m}"),), 1, "belong to job_start alone"),
        (
            (
                ("  displayName: Job success", "  labels: {pool: a}"),
                ("indicatorRef: job_success", "indicatorRef: serving_capacity"),
            ),
            1,
            "services are of no pool",
        ),
        ((("  displayName: Job success", "  labels: {team: a, workload: batch}"),), 5, "keep one of them"),
        ((("page-fast", "page-never"),), 13, "no alert policy 'page-never'"),
        ((("28d", "2d"), ("page-slow", "ticket-slow")), 10, "longer than that of alert policy ticket-slow"),
        ((("28d", "soon"),), 10, "not a duration: 'soon'"),
        ((("28d", "200d"),), 10, "at most 100 days"),
        ((("[{duration: 28d}]", MONTHLY.replace("Zurich", "Zürich")),), 10, "no time zone"),
        ((("[{duration: 28d}]", MONTHLY.replace("01-01", "01-02")),), 10, "first day"),
        ((("[{duration: 28d}]", MONTHLY.replace("1M", "28d")),), 10, "1w or 1M"),
        ((("budgetingMethod: Occurrences", SLICED),), 7, "timeSliceWindow of whole hours"),
        (
            (("budgetingMethod: Occurrences", SLICED), ("target: 0.93", "target: 0.93, timeSliceWindow: 1h")),
            7,
            "timeSliceTarget belongs to Timeslices",
        ),
        ((("target: 0.93", "target: 0.93, timeSliceTarget: 0.9"),), 7, "not counted by slices"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(
    tmp_path: Path, changes: tuple[tuple[str, str], ...], line: int, words: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, *changes)
    assert str(caught.value).startswith(f"{tmp_path / 'objectives.yaml'}:{line}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("10:00:00+01:00", "10:30:00+01:00"), 19, "whole hours"),
        (("2026-11-20T12", "2026-11-20T08"), 19, "must be after"),
        (("author: ann", "author: ''"), 22, "at least 1 character"),
        (("[platform]", "[gremlins]"), 19, "no class 'gremlins'"),
        (("author: ann", "author: ann\n  objectives: [luck]"), 23, "no objective 'luck'"),
    ],
)
def test_what_is_wrong_with_an_exclusion_is_named_too(
    tmp_path: Path, change: tuple[str, str], line: int, words: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, more=EXCLUSION.replace(*change))
    assert str(caught.value).startswith(f"{tmp_path / 'objectives.yaml'}:{line}: ")
    assert words in str(caught.value)


def test_two_documents_of_one_name_and_two_exclusions_of_one_time_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="SLO 'job-success' is given twice"):
        loaded(tmp_path, more="---\n" + JOB_SUCCESS)
    with pytest.raises(ConfigurationError, match="overlaps exclusion 'INC-7' of job-success"):
        loaded(tmp_path, more=EXCLUSION + EXCLUSION.replace("INC-7", "INC-8").replace("T10", "T11"))


def test_exclusions_of_one_time_may_be_of_several_clusters(tmp_path: Path) -> None:
    other = EXCLUSION.replace("{name: INC-7}", "{name: INC-8, labels: {cluster: c2}}")
    ours = EXCLUSION.replace("{name: INC-7}", "{name: INC-7, labels: {cluster: c1}}")
    exclusions = loaded(tmp_path, more=ours + other).exclusions
    assert [(e.name, e.meets("c1"), e.meets("c2"), e.meets("")) for e in exclusions] == [
        ("INC-7", True, False, True),
        ("INC-8", False, True, True),
    ]
    with pytest.raises(ConfigurationError, match="overlaps exclusion"):
        loaded(tmp_path, more=EXCLUSION + other)


def test_a_missing_file_and_a_folder_without_documents_are_configuration_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_objectives(tmp_path / "none.yaml")
    with pytest.raises(ConfigurationError, match=r"no \.yaml files"):
        load_objectives(tmp_path)


def test_the_three_ways_to_count_differ_as_openslo_says(tmp_path: Path) -> None:
    """One slice of a busy hour that is half good, three of quiet ones that are wholly good."""
    counted = [Slice(50, 100), Slice(10, 10), Slice(10, 10), Slice(10, 10), Slice(0, 0)]
    sliced = ("budgetingMethod: Occurrences", SLICED)
    by_time = loaded(tmp_path, sliced, ("0.93}", "0.93, timeSliceWindow: 1h, timeSliceTarget: 0.9}"))
    by_ratio = loaded(tmp_path, ("Occurrences", "RatioTimeslices"), ("0.93}", "0.93, timeSliceWindow: 1h}"))
    assert loaded(tmp_path).attained(counted) == 80 / 130
    assert by_time.attained(counted) == 3 / 4
    assert by_ratio.attained(counted) == 3.5 / 4
    assert by_ratio.attained([]) is None


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
    plain = plain_duration(duration_ms)
    assert len(plain) > 7 or parse_duration_ms(plain) == duration_ms
