"""`faultlens report` over an embedded store: its figures are those of the events, exactly."""

import json
from pathlib import Path
from typing import Any

import pytest

from faultlens.cli import main
from faultlens.clock import HOUR_MS, MINUTE_MS

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store


def called(*arguments: str) -> int:
    """Run the program and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def answered(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert called(*arguments, "--json") == code
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def week(fortnight: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("report") / "week.json"
    assert called("report", "--store", fortnight, "--out", str(path)) == 0
    return json.loads(path.read_text())


def line(report: Any, name: str) -> Any:
    return next(entry for entry in report["objectives"] if entry["name"] == name)


def test_without_a_wish_the_report_is_about_the_last_whole_week(week: Any) -> None:
    assert week["period"]["label"] == "week 47, 16 to 22 November 2026"
    assert week["period"]["complete"] is True


def test_each_failure_is_counted_once_under_its_cause_and_day(week: Any) -> None:
    assert week["totals"]["failures"] == {"hardware": 3, "platform": 1, "user": 1, "driver": 1}
    assert week["totals"]["attempts"] == 10
    counted = {entry["code"]: (entry["failures"], entry["assumed"]) for entry in week["causes"] if entry["failures"]}
    assert counted == {
        "gpu.off_bus": (3, 1),
        "platform.registry": (1, 0),
        "app.exception": (1, 1),
        "driver.hang": (1, 0),
    }
    assert [sum(day["by_class"].values()) for day in week["days"]] == [0, 1, 0, 3, 1, 1, 0]
    assert week["quality"]["withdrawn"] == 1


def test_every_allocated_gpu_millisecond_is_in_the_report_once(week: Any) -> None:
    hours_held = 1 + 1 + 1 + 1 + 1 + 3 + 1 + 1 + 1
    assert week["totals"]["allocated_gpu_ms"] == sum(week["totals"]["gpu_ms"].values()) == hours_held * 8 * HOUR_MS
    lost = sum(week["totals"]["gpu_ms"].values()) - week["totals"]["productive_gpu_ms"]
    assert sum(entry["gpu_ms"] for entry in week["causes"]) == lost
    dearest = next(entry for entry in week["causes"] if entry["code"] == "app.exception")
    assert dearest["gpu_ms"] == (3 * HOUR_MS - MINUTE_MS) * 8


def test_objectives_are_recomputed_from_what_happened(week: Any) -> None:
    nodes = line(week, "node_availability")
    assert (nodes["good"], nodes["total"]) == ((14 * 24 - 5) * HOUR_MS, (14 * 24 - 3) * HOUR_MS)
    assert nodes["by_class"] == {"hardware": 2 * HOUR_MS}
    assert nodes["also"][0][1] == pytest.approx(1 - 5 / (14 * 24))
    assert line(week, "gpu_availability")["by_class"] == {"hardware": (2 * 8 + 1) * HOUR_MS}
    success = line(week, "job_success")
    assert (success["good"], success["total"], success["by_class"]) == (2, 4, {"hardware": 2})
    assert (success["low"], success["high"]) == (2 / 5, 2 / 3)
    start = line(week, "job_start")
    assert (start["good"], start["total"], start["by_class"]) == (7, 10, {"platform": 2, "hardware": 1})
    assert line(week, "coverage")["rolling"] == 0.9995


def test_budgets_are_those_of_the_rolling_window(week: Any) -> None:
    success = line(week, "job_success")
    assert success["rolling"] == 2 / 5
    assert success["budget_left"] == pytest.approx(1 - 3 / (5 * 0.005))
    assert success["spent"] == pytest.approx(2 / (5 * 0.005))


def test_the_week_before_is_there_to_compare_with(week: Any) -> None:
    assert week["before"]["failures"] == {"driver": 1}
    assert week["before"]["attempts"] == 1


def test_each_week_stands_in_its_own_line(week: Any) -> None:
    lines = [(entry["from"][:10], entry["totals"]["attempts"], entry["totals"]["failures"]) for entry in week["weeks"]]
    assert lines == [
        ("2026-11-09", 1, {"driver": 1}),
        ("2026-11-16", 10, {"hardware": 3, "platform": 1, "user": 1, "driver": 1}),
    ]
    newest = {name: attained for name, attained in week["weeks"][-1]["attained"].items() if attained is not None}
    assert newest == {name: line(week, name)["attained"] for name in newest}
    before = week["weeks"][0]["attained"]
    assert {name: before[name] for name in newest} == {name: line(week, name)["before"] for name in newest}


def test_the_worst_nodes_come_with_devices_cost_and_outages(week: Any) -> None:
    first, second = week["nodes"]
    assert (first["node"], first["failures"], first["devices"], first["gpu_ms"]) == ("n1", 2, {"3": 2}, 4 * HOUR_MS)
    assert (first["down_ms"], first["faults"], first["pool"]) == (2 * HOUR_MS, 1, "")
    assert (second["node"], second["failures"], second["down_ms"]) == ("n2", 1, 0)


def test_what_could_not_be_read_and_what_the_fleet_was_used_for_is_told(week: Any) -> None:
    assert week["intake"]["dead_letters"] == {"not_json": 1}
    assert week["fleet"] == {"allocated": 16_500}
    assert week["catalogs"] == ["catalogue 2026-11"]


def test_the_report_is_written_in_the_form_that_the_files_name_ends_with(
    fortnight: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, begins in (("r.html", "<!DOCTYPE html>"), ("r.md", "# GPU fleet: week 46")):
        assert called("report", "--week", "2026-W46", "--store", fortnight, "--out", str(tmp_path / name)) == 0
        assert (tmp_path / name).read_text().startswith(begins)
        assert f"Wrote {tmp_path / name}" in capsys.readouterr().err


def test_days_can_be_chosen_and_a_period_that_is_not_over_is_said_to_be_so_far(
    fortnight: str, capsys: pytest.CaptureFixture[str]
) -> None:
    days = answered(capsys, "report", "--from", "2026-11-17", "--to", "2026-11-17", "--store", fortnight)
    assert days["totals"]["failures"] == {"hardware": 1}
    unfinished = answered(capsys, "report", "--from", "2026-11-22", "--to", "2026-11-25", "--store", fortnight)
    assert unfinished["period"]["complete"] is False
    assert unfinished["period"]["to"] == "2026-11-23T00:00:00.001Z"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--week", "47"), "write it like 2026-W47"),
        (("--week", "2026-W47", "--from", "2026-11-16"), "either --week or --from and --to"),
        (("--from", "2026-11-16"), "go together"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_to_do(
    arguments: tuple[str, ...], words: str, fortnight: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("report", *arguments, "--store", fortnight) == 2
    assert words in capsys.readouterr().err


def test_where_the_report_cannot_be_written_the_world_failed(
    fortnight: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("report", "--store", fortnight, "--out", "/nowhere/r.html") == 3
    assert "cannot be written to /nowhere/r.html" in capsys.readouterr().err


def test_the_report_of_an_empty_store_says_that_nothing_is_known(
    empty: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("report", "--store", empty, "--format", "md") == 0
    assert "Nothing is known of this period" in capsys.readouterr().out
