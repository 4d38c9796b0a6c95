"""`faultlens report`, `slo` and `why` over an embedded store: their figures are those of the events, exactly."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from faultlens.cli import main
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, moment_of, parse_moment
from faultlens.codec import event_of
from faultlens.events import (
    Basis,
    Category,
    Cause,
    CauseClass,
    Culprit,
    Data,
    DeadLetter,
    DeviceRef,
    EvidenceItem,
    FleetTime,
    JobAllocated,
    JobAttributed,
    JobCheckpoint,
    JobEnded,
    JobProgress,
    JobStarted,
    JobSubmitted,
    JobTime,
    Lost,
    NodeFault,
    NodeState,
    NodeStateName,
    Outcome,
    Retry,
    SloScope,
    SloStatus,
    Slot,
    Status,
    Workload,
)
from faultlens.store import open_store
from sinks.migrate import migrate
from sinks.writer import StoreWriter

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

MONDAY_MS = parse_moment("2026-11-16T00:00:00Z")
CODES: dict[str, CauseClass] = {
    "gpu.off_bus": "hardware",
    "driver.hang": "driver",
    "platform.registry": "platform",
    "app.exception": "user",
}

Said = tuple[str, int, Data]


def job(  # noqa: PLR0913 - each test changes another of them
    name: str,
    at_ms: int,
    *,
    hours: float = 1.0,
    outcome: Outcome = "succeeded",
    code: str = "",
    basis: Basis = "established",
    node: str = "n1",
    late_ms: int = 0,
    started: bool = True,
    workload: Workload = "training",
    statuses: Sequence[Status] = ("provisional", "final"),
) -> list[Said]:
    """Everything that is said of a job with one attempt on eight GPUs of a node."""
    started_ms, end_ms = at_ms + MINUTE_MS + late_ms, at_ms + round(hours * HOUR_MS)
    said: list[Said] = [
        ("scheduler/s", at_ms - MINUTE_MS, JobSubmitted(name, "c1", workload, 8, 1, user="ann", team="nlp", name=name)),
        ("scheduler/s", at_ms, JobAllocated(name, 1, "c1", (Slot(node, devices=tuple(range(8))),))),
        ("scheduler/s", end_ms, JobEnded(name, 1, outcome, exit_code=int(outcome != "succeeded"))),
    ]
    if started:
        said += [
            ("launcher/l", started_ms, JobStarted(name, 1)),
            ("launcher/l", end_ms - 2 * MINUTE_MS, JobProgress(name, 1, 7)),
            ("launcher/l", end_ms - 3 * MINUTE_MS, JobCheckpoint(name, 1, 6, 2.0, ok=True)),
        ]
    cause = Cause(CODES[code], code, f"{code} on {node}") if code else None
    if cause is not None:
        said += [verdict(name, end_ms, cause, basis, node, n, status) for n, status in enumerate(statuses, 1)]
    kept: Category = "lost_work" if code else "productive"
    said += [
        ledger(name, at_ms, started_ms, "startup", None),
        ledger(name, started_ms, end_ms, "productive", None),
        ledger(name, started_ms, end_ms, kept, cause, revision=2),
    ]
    return said


def verdict(name: str, end_ms: int, cause: Cause, basis: Basis, node: str, revision: int, status: Status) -> Said:
    blamed = cause.cause_class in ("hardware", "driver")
    data = JobAttributed(
        job_id=name,
        attempt=1,
        cluster="c1",
        revision=revision,
        status=status,
        cause=cause,
        basis=basis,
        confidence=0.9,
        culprit=Culprit(node, DeviceRef(index=3)) if blamed else Culprit(),
        evidence=(EvidenceItem("root", f"agent/{node}", "e1", moment_of(end_ms - 1000), "xid 79 on n1 \x1b[31mGPU 3"),),
        alternatives=(),
        retry=Retry("retry_elsewhere", (node,)) if blamed else Retry("do_not_retry"),
        lost=Lost(7200.0, 900.0),
        rule="device_fault_on_allocated_gpu",
        catalog="catalogue 2026-11",
        ended_at=moment_of(end_ms),
    )
    return "faultlens", end_ms + 5 * MINUTE_MS * (revision - 1), data


def ledger(name: str, from_ms: int, to_ms: int, what: Category, cause: Cause | None, *, revision: int = 1) -> Said:
    data = JobTime(name, 1, revision, "c1", what, moment_of(from_ms), moment_of(to_ms), 8, team="nlp", cause=cause)
    return "faultlens", to_ms, data


def state(node: str, since_ms: int, name: NodeStateName, *, planned: bool = False, cause: str | None = None) -> Said:
    healthy = 8 if name == "available" else 7
    return "faultlens", since_ms, NodeState(node, "c1", name, moment_of(since_ms), 8, healthy, planned, "h100", cause)


def a_fortnight() -> list[Said]:
    """Two weeks of two nodes; n1 is out unplanned for two hours of the second week and planned for three."""
    day = [MONDAY_MS + n * DAY_MS for n in range(-7, 7)]
    said = [state("n1", day[0], "available"), state("n2", day[0], "available")]
    said += job("old", day[2], outcome="failed", code="driver.hang")
    said += [
        state("n1", day[8], "degraded", cause="gpu.off_bus"),
        state("n1", day[8] + HOUR_MS, "down", cause="host.lost.silent"),
        state("n1", day[8] + 3 * HOUR_MS, "available"),
        state("n1", day[9], "maintenance", planned=True, cause="platform.maintenance"),
        state("n1", day[9] + 3 * HOUR_MS, "available"),
    ]
    said += job("good", day[7])
    said += job("late", day[7] + 2 * HOUR_MS, late_ms=15 * MINUTE_MS)
    said += job("hw", day[8], outcome="failed", code="gpu.off_bus")
    said += job("hw-assumed", day[10], outcome="failed", code="gpu.off_bus", basis="assumed", node="n2")
    said += job("plat", day[10], outcome="never_started", code="platform.registry", started=False)
    said += job("mine", day[11], outcome="failed", code="app.exception", basis="assumed", hours=3)
    said += job("cancelled", day[11], outcome="cancelled", node="n2")
    said += job("served", day[12], outcome="failed", code="driver.hang", workload="inference")
    said += job("taken-back", day[12], code="gpu.off_bus", outcome="cancelled", statuses=("final", "withdrawn"))
    said.append(
        ("agent/n1", day[8] + HOUR_MS - 1000, NodeFault("n1", "c1", "xid", "79", "kmsg", device=DeviceRef(index=3)))
    )
    said.append(
        ("faultlens", day[9], FleetTime("c1", moment_of(day[8]), moment_of(day[8] + HOUR_MS), {"allocated": 16.5}))
    )
    said.append(("faultlens", day[9], DeadLetter("job-events", 0, 7, "not_json", "broken", "e30=")))
    said.append(("faultlens", MONDAY_MS + 7 * DAY_MS, coverage()))
    return said


def coverage() -> SloStatus:
    return SloStatus(
        objective="coverage",
        scope=SloScope("c1"),
        window="P28D",
        unit="node_seconds",
        good=999.5,
        total=1000.0,
        attained=0.9995,
        target=0.999,
        budget_remaining=0.5,
        burn={"PT1H": 0.5},
        by_cause={"overhead": 0.5},
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    dsn = str(tmp_path_factory.mktemp("answers") / "store")
    with open_store(dsn) as opened:
        migrate(opened)
        with StoreWriter(opened) as writer:
            for number, (source, at_ms, data) in enumerate(a_fortnight()):
                writer.add(event_of(data, source=source, id_=f"e{number}", time_ms=at_ms), at_ms)
    return dsn


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> str:
    dsn = str(tmp_path_factory.mktemp("empty") / "store")
    with open_store(dsn) as opened:
        migrate(opened)
    return dsn


def called(*arguments: str) -> int:
    """Run the program and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def answered(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert called(*arguments, "--json") == code
    return json.loads(capsys.readouterr().out)


# --- report ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def week(store: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("report") / "week.json"
    assert called("report", "--store", store, "--out", str(path)) == 0
    return json.loads(path.read_text())


def line(report: Any, name: str) -> Any:
    return next(entry for entry in report["objectives"] if entry["name"] == name)


def test_without_a_wish_the_report_is_about_the_last_whole_week(week: Any) -> None:
    assert week["period"]["label"] == "week 47, 16 to 22 November 2026"
    assert week["period"]["complete"] is True


def test_each_failure_is_counted_once_under_its_cause_and_day(week: Any) -> None:
    assert week["totals"]["failures"] == {"hardware": 2, "platform": 1, "user": 1, "driver": 1}
    assert week["totals"]["attempts"] == 9
    counted = {entry["code"]: (entry["failures"], entry["assumed"]) for entry in week["causes"] if entry["failures"]}
    assert counted == {
        "gpu.off_bus": (2, 1),
        "platform.registry": (1, 0),
        "app.exception": (1, 1),
        "driver.hang": (1, 0),
    }
    assert [sum(day["by_class"].values()) for day in week["days"]] == [0, 1, 0, 2, 1, 1, 0]
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
    assert (start["good"], start["total"], start["by_class"]) == (7, 9, {"platform": 2})
    assert line(week, "coverage")["rolling"] == 0.9995


def test_budgets_are_those_of_the_rolling_window(week: Any) -> None:
    success = line(week, "job_success")
    assert success["rolling"] == 2 / 5
    assert success["budget_left"] == pytest.approx(1 - 3 / (5 * 0.005))
    assert success["spent"] == pytest.approx(2 / (5 * 0.005))


def test_the_week_before_is_there_to_compare_with(week: Any) -> None:
    assert week["before"]["failures"] == {"driver": 1}
    assert week["before"]["attempts"] == 1


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
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, begins in (("r.html", "<!DOCTYPE html>"), ("r.md", "# GPU fleet: week 46")):
        assert called("report", "--week", "2026-W46", "--store", store, "--out", str(tmp_path / name)) == 0
        assert (tmp_path / name).read_text().startswith(begins)
        assert f"Wrote {tmp_path / name}" in capsys.readouterr().err


def test_days_can_be_chosen_and_a_period_that_is_not_over_is_said_to_be_so_far(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    days = answered(capsys, "report", "--from", "2026-11-17", "--to", "2026-11-17", "--store", store)
    assert days["totals"]["failures"] == {"hardware": 1}
    unfinished = answered(capsys, "report", "--from", "2026-11-22", "--to", "2026-11-25", "--store", store)
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
    arguments: tuple[str, ...], words: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("report", *arguments, "--store", store) == 2
    assert words in capsys.readouterr().err


def test_where_the_report_cannot_be_written_the_world_failed(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("report", "--store", store, "--out", "/nowhere/r.html") == 3
    assert "cannot be written to /nowhere/r.html" in capsys.readouterr().err


# --- slo -------------------------------------------------------------------------------------------------


def test_a_missed_objective_ends_with_1_and_is_named(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = answered(capsys, "slo", "--store", store, code=1)
    assert set(said["missed"]) == {"node_availability", "gpu_availability", "job_start", "job_success", "goodput"}
    by_name = {entry["objective"]: entry for entry in said["objectives"]}
    success = by_name["job_success"]
    assert (success["recomputed"]["good"], success["recomputed"]["total"]) == (2, 5)
    assert success["recomputed"]["by_cause"] == {"hardware": 2, "driver": 1}
    assert success["recomputed"]["bounds"] == {"low": 2 / 6, "high": 2 / 4}
    assert success["agreement"] == "alone"
    assert by_name["coverage"]["streamed"]["good"] == 999.5
    assert by_name["serving_capacity"]["attained"] is None


def test_a_shorter_window_looks_at_less(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = answered(capsys, "slo", "--window", "7d", "--store", store, code=1)
    success = next(entry for entry in said["objectives"] if entry["objective"] == "job_success")
    assert (success["window"], success["recomputed"]["total"]) == ("P7D", 4)


def test_of_a_pool_the_nodes_are_shown_and_of_a_team_the_jobs(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    def measured(*scope: str) -> set[str]:
        said = answered(capsys, "slo", *scope, "--store", store, code=1)
        return {entry["objective"] for entry in said["objectives"] if entry["attained"] is not None}

    assert measured("--pool", "h100") == {"node_availability", "gpu_availability"}
    assert measured("--team", "nlp") == {"job_start", "job_success", "goodput"}


def test_the_table_is_readable_without_json(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("slo", "--store", store) == 1
    said = capsys.readouterr().out
    assert "Objectives of cluster c1, as of 2026-11-23 00:00 UTC" in said
    assert "weighted by GPU time: 40.00 %" in said


def test_a_window_that_is_no_duration_is_wrong_use(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("slo", "--window", "forever", "--store", store) == 2
    assert "write 5m, 1h, 28d" in capsys.readouterr().err


# --- why -------------------------------------------------------------------------------------------------


def test_why_tells_the_whole_story_of_a_job(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("why", "hw", "--store", store) == 0
    said = capsys.readouterr().out
    assert said.startswith("hw (attempt 1) failed: hardware is to blame. gpu.off_bus on n1.")
    for words in (
        "allocated 1 node: n1",
        "last good checkpoint: step 6",
        "xid 79 on n1 GPU 3",
        "n1 is down (host.lost.silent)",
        "final verdict: hardware, gpu.off_bus (established)",
        r"xid 79 on n1 \x1b[31mGPU 3",
        "retry it, away from n1",
        "lost since the last good checkpoint: 2.0 GPU-hours (15 min of work)",
    ):
        assert words in said


def test_why_finds_the_attempt_in_the_name_and_says_when_there_is_none(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(capsys, "why", "good/1", "--store", store)["outcome"] == "succeeded"
    said = answered(capsys, "why", "good", "--attempt", "4", "--store", store, code=1)
    assert said["error"] == "no attempt 4 of it is known (known: 1)"


def test_a_verdict_that_was_taken_back_blames_nobody(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("why", "taken-back", "--store", store) == 0
    assert "its verdict was withdrawn" in capsys.readouterr().out


def test_an_unknown_job_ends_with_1_and_the_likest_are_offered(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("why", "hw-asumed", "--store", store) == 1
    said = capsys.readouterr().err
    assert "hw-asumed: no such job" in said
    assert "Did you mean hw-assumed, " in said


# --- empty and absent stores -----------------------------------------------------------------------------


def test_an_empty_store_misses_nothing_and_its_report_says_that_nothing_is_known(
    empty: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called("slo", "--store", empty) == 0
    assert capsys.readouterr().out.count("no data") == 7
    assert called("report", "--store", empty, "--format", "md") == 0
    assert "Nothing is known of this period" in capsys.readouterr().out
    assert called("why", "x", "--store", empty) == 1


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (("slo",), ("report",), ("why", "x")):
        assert called(*verb, "--store", str(tmp_path / "typo")) == 3
        assert "there is no store at" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()
