"""What the processors counted as they went is what the store gives afterwards, for every objective and class."""

from pathlib import Path

import pytest

from faultlens.cli import main
from faultlens.objectives import Objectives, load_objectives
from faultlens.store import open_store
from slo.recompute import extent
from slo.report.collect import view_of
from slo.status import Standing, standings

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

RECOMPUTED = ("node_availability", "gpu_availability", "job_start", "job_success", "goodput")


def called(*arguments: str) -> None:
    """Run the program; it must end well."""
    try:
        main(list(arguments))
    except SystemExit as ended:
        assert not ended.code  # noqa: PT017 - the program always ends its process


# Every way to count that is not the shipped one: a calendar in a zone, slices, times and classes that do not count.
SITE = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: node-availability}
spec:
  description: Nodes are up in nine hours of ten.
  service: fleet
  indicatorRef: node-availability
  timeWindow: [{duration: 28d}]
  budgetingMethod: Timeslices
  objectives: [{target: 0.9, timeSliceTarget: 0.99, timeSliceWindow: 1h}]
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: gpu-availability}
spec:
  description: GPUs are up this week, as Kolkata has it.
  service: fleet
  indicatorRef: gpu-availability
  timeWindow: [{duration: 1w, isRolling: false, calendar: {startTime: "2026-01-05 00:00:00", timeZone: Asia/Kolkata}}]
  objectives: [{target: 0.99}]
  alertPolicies: [{alertPolicyRef: page-slow}]
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: research, labels: {team: TEAM}}
spec:
  description: One team's jobs, by the mean of two-hour slices.
  service: fleet
  indicatorRef: job-success
  timeWindow:
    - {duration: 1M, isRolling: false, calendar: {startTime: "2026-01-01 00:00:00", timeZone: America/Los_Angeles}}
  budgetingMethod: RatioTimeslices
  objectives: [{target: 0.9, timeSliceWindow: 2h}]
---
apiVersion: faultlens/v1
kind: Exclusion
metadata: {name: INC-1}
spec: {from: "2026-11-30T04:00:00Z", to: "2026-11-30T09:00:00Z", reason: the power went, author: ann}
---
apiVersion: faultlens/v1
kind: Exclusion
metadata: {name: INC-2}
spec:
  from: "2026-11-30T12:00:00Z"
  to: "2026-11-30T20:00:00Z"
  reason: a switch was changed
  author: ann
  classes: [hardware, platform]
  objectives: [job-success, node-availability, gpu-availability]
"""

# Attempts that INC-2 leaves out of job success, since they are charged to what it names.
LEFT_OUT = """\
SELECT concat(v.job_id, '/', toString(v.attempt)) AS attempt
FROM attributions_latest AS v
INNER JOIN attempts AS a ON a.job_id = v.job_id AND a.attempt = v.attempt
INNER JOIN jobs AS j ON j.job_id = v.job_id
WHERE v.loss = 0 AND v.class IN ('hardware', 'platform') AND a.started_at IS NOT NULL AND j.workload != 'inference'
    AND v.ended_at >= '2026-11-30 12:00:00' AND v.ended_at < '2026-11-30 20:00:00'
ORDER BY attempt
"""


def stands(store: Path, objectives: Objectives) -> dict[str, Standing]:
    with open_store(str(store)) as opened:
        known = extent(opened)
        assert known is not None
        return {found.objective.name: found for found in standings(opened, view_of(known), objectives)}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the events of a small simulated fleet."""
    out = tmp_path_factory.mktemp("fleet")
    shape = ("--nodes", "6", "--days", "1", "--interval-s", "3600", "--seed", "11")
    called("simulate", *shape, "--json", "--out", str(out))
    return out / "events.jsonl.zst"


def test_a_simulated_fleet_gives_the_same_figures_both_ways(fleet: Path, tmp_path: Path) -> None:
    called("replay", str(fleet), "--store", str(tmp_path / "store"), "--json")
    found = stands(tmp_path / "store", load_objectives())
    for name in RECOMPUTED:
        counted, streamed = found[name].measure, found[name].streamed
        assert counted is not None
        assert streamed is not None
        assert counted.total > 0
        assert 0 <= counted.good <= counted.total
        assert found[name].agreement == "same", (counted, streamed)
        assert sum(counted.by_class.values()) == counted.bad
        # Which incident was open when an attempt started late, only the processors know.
        if name != "job_start":
            assert {k: pytest.approx(v, rel=1e-6, abs=2) for k, v in streamed.by_class.items()} == counted.by_class
        if counted.bounds is not None and streamed.bounds is not None:
            assert counted.bounds == pytest.approx(streamed.bounds)


@pytest.fixture(scope="module")
def narrowed(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the store of a fleet that was held to a site's own objectives, and those."""
    store = tmp_path_factory.mktemp("narrowed") / "store"
    (site := store.parent / "site.yaml").write_text(SITE.replace("TEAM", "vision"))
    called("replay", str(fleet), "--store", str(store), "--objectives", str(site), "--json")
    return store, site


def test_calendars_slices_and_exclusions_are_counted_the_same_both_ways(narrowed: tuple[Path, Path]) -> None:
    store, site = narrowed
    found, usual = (stands(store, load_objectives(path)) for path in (site, None))
    for name in ("node_availability", "gpu_availability", "job_start", "job_success", "research"):
        standing = found[name]
        assert standing.agreement == "same", (standing.measure, standing.attained, standing.streamed)
        assert standing.measure is not None
        assert standing.measure.total > 0
    whole, part = usual["job_success"].measure, found["job_success"].measure
    assert whole is not None
    assert part is not None
    assert 0 < part.total < whole.total
    assert found["node_availability"].attained != usual["node_availability"].attained
    assert found["gpu_availability"].window == "P1W"


def test_a_verdict_that_a_person_overrules_leaves_the_exclusion_of_its_class_both_ways(
    narrowed: tuple[Path, Path],
) -> None:
    store, site = narrowed
    before = stands(store, load_objectives(site))["job_success"]
    with open_store(str(store)) as opened:
        left_out = opened.query(LEFT_OUT)[0]["attempt"]
    said = ("--class", "driver", "--why", "the module was rebuilt")
    called("label", left_out, *said, "--store", str(store), "--objectives", str(site))
    after = stands(store, load_objectives(site))["job_success"]
    assert before.measure is not None
    assert after.measure is not None
    assert (before.agreement, after.agreement) == ("same", "same"), (after.measure, after.streamed)
    assert after.measure.by_class.get("driver", 0) == before.measure.by_class.get("driver", 0) + 1
    assert (after.measure.good, after.measure.total) == (before.measure.good, before.measure.total + 1)
