"""What the processors counted as they went is what the store gives afterwards, for every objective and class."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from faultlens.cli import main
from faultlens.clock import parse_moment
from faultlens.codec import Decoder, Event, encode
from faultlens.events import NodeHealth
from faultlens.objectives import Objectives, load_objectives
from faultlens.recordings import Recording
from faultlens.store import open_store
from slo.recompute import extent
from slo.report.collect import view_of
from slo.status import Standing, standings
from tests.unit.scenes import Scene, at_ms

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

MOVED_MS = parse_moment("2026-11-30T08:00:00Z")
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


def stands(store: Path, objectives: Objectives, pool: str = "", cluster: str = "") -> dict[str, Standing]:
    with open_store(str(store)) as opened:
        known = extent(opened)
        assert known is not None
        return {
            found.objective.name: found
            for found in standings(opened, view_of(known, cluster=cluster, pool=pool), objectives)
        }


def in_pools(event: Event) -> Event:
    """Return a report with its node's pool: of one node in three it is known after a while only, another one moves."""
    if not isinstance(event.data, NodeHealth):
        return event
    first = event.time_ms < MOVED_MS
    pool = ((None, "a", "b") if first else ("a", "b", "b"))[int(event.subject[-4:]) % 3]
    return replace(event, data=replace(event.data, pool=pool))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the events of a small simulated fleet."""
    out = tmp_path_factory.mktemp("fleet")
    shape = ("--nodes", "6", "--days", "1", "--interval-s", "3600", "--seed", "11")
    called("simulate", *shape, "--json", "--out", str(out))
    lines = (line for line in Recording(str(out / "events.jsonl.zst")).lines() if isinstance(line, bytes))
    told = [encode(in_pools(Decoder().decode(line))) for line in lines]
    (out / "events.jsonl").write_bytes(b"\n".join(told))
    return out / "events.jsonl"


@pytest.fixture(scope="module")
def usual(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the store of the fleet, held to the shipped objectives."""
    store = tmp_path_factory.mktemp("usual") / "store"
    called("replay", str(fleet), "--store", str(store), "--json")
    return store


def test_a_simulated_fleet_gives_the_same_figures_both_ways(usual: Path) -> None:
    found = stands(usual, load_objectives())
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


def test_a_pool_and_the_attempts_on_its_nodes_give_the_same_figures_both_ways(usual: Path) -> None:
    pools = {pool: stands(usual, load_objectives(), pool) for pool in ("a", "b")}
    whole = stands(usual, load_objectives())
    for name in RECOMPUTED:
        total = whole[name].measure
        assert total is not None
        parts = [found[name].measure for found in pools.values()]
        for pool, found in pools.items():
            assert found[name].agreement == "same", (pool, name, found[name].measure, found[name].streamed)
        assert all(part is not None and part.total > 0 for part in parts), (name, parts)
        # Some time is of no pool: before it is known, and of attempts over several.
        assert sum(part.total for part in parts if part is not None) < total.total


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
    for pool in ("a", "b"):
        part = stands(store, load_objectives(site), pool)["job_success"]
        assert part.agreement == "same", (pool, part.measure, part.streamed)


OUTAGE = """\
apiVersion: faultlens/v1
kind: Exclusion
metadata: {name: INC-3}
spec: {from: "2026-11-23T04:00:00Z", to: "2026-11-23T05:00:00Z", reason: the launchers were cut off, author: ann}
"""


def test_an_incident_leaves_the_count_of_its_own_cluster_alone_both_ways(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Storage was away in c1 for an hour, and a job failed of it in each of two clusters."""
    scenes = []
    for cluster in ("c1", "c2"):
        scene = Scene(cluster).node(f"{cluster}-n", until=90)
        for number, minute in enumerate((10, 70)):
            name = f"{cluster}-{number}"
            scene.job(name, f"{cluster}-n", minute=minute - 5)
            scene.end(minute, name, "failed", "OSError: [Errno 116] Stale file handle: '/mnt/data'")
        scenes.append(scene)
    scenes[0].incident(8, "storage", name='INC 4: "home"').incident(12, "storage", "ended", name='INC 4: "home"')
    told = sorted((told for scene in scenes for told in scene.events()), key=lambda one: one[0])
    (file := tmp_path / "events.jsonl").write_bytes(
        b"\n".join(encode(replace(event, recorded_ms=at)) for at, event in told)
    )
    store = ("--store", str(tmp_path / "store"))
    called("replay", str(file), *store, "--json")
    usual = stands(tmp_path / "store", load_objectives())["job_success"]
    capsys.readouterr()
    called("objectives", "exclude", 'INC 4: "home"', "--reason", "a fire: drill", "--author", "ann", *store)
    (site := tmp_path / "site.yaml").write_text(capsys.readouterr().out)
    assert "from: 2026-11-23T04:00:00.000Z\n  to: 2026-11-23T05:00:00.000Z" in site.read_text()
    with pytest.raises(SystemExit) as ended:
        main(["objectives", "exclude", "INC-5", "--reason", "a fire", "--author", "ann", *store])
    assert ended.value.code == 1
    assert "the store knows no incident INC-5" in capsys.readouterr().err
    called("replay", str(file), *store, "--fresh", "--objectives", str(site), "--json")
    left = {cluster: stands(tmp_path / "store", load_objectives(site), cluster=cluster) for cluster in ("", "c1", "c2")}
    for cluster, total in (("", 3), ("c1", 1), ("c2", 2)):
        standing = left[cluster]["job_success"]
        assert standing.measure is not None
        assert (standing.measure.total, standing.agreement) == (total, "same"), (cluster, standing.streamed)
    assert usual.measure is not None
    assert (usual.measure.total, usual.agreement) == (4, "same")


def test_a_verdict_within_an_exclusion_that_is_withdrawn_counts_where_the_attempt_really_ended(tmp_path: Path) -> None:
    """It fell silent in the excluded hour and was given up; then it was heard of again, and ended well at six."""
    (site := tmp_path / "site.yaml").write_text(OUTAGE)
    scene = Scene().node("n1", until=190).job("j", "n1").alive("j", 1, 20)
    scene.alive("j", 100, 130).end(130, "j", "succeeded")
    found = []
    for number, first in enumerate((True, False)):
        told = [encode(replace(e, recorded_ms=at)) for at, e in scene.events() if (at < at_ms(90)) == first]
        (file := tmp_path / f"{number}.jsonl").write_bytes(b"\n".join(told))
        called("replay", str(file), "--store", str(tmp_path / "store"), "--objectives", str(site), "--json")
        found.append(stands(tmp_path / "store", load_objectives(site)))
    with open_store(str(tmp_path / "store")) as opened:
        said = [row["status"] for row in opened.query("SELECT status FROM attributions ORDER BY revision")]
    assert said[-1] == "withdrawn"
    for standing, total in zip((at["job_success"] for at in found), (0, 1), strict=True):
        assert standing.measure is not None
        assert standing.streamed is not None
        assert (standing.measure.good, standing.measure.total) == (total, total)
        assert (standing.streamed.good, standing.streamed.total) == (total, total)
    assert {found[1][name].agreement for name in RECOMPUTED} == {"same"}
