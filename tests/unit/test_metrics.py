"""Metrics say what the meters say, in Prometheus' conventions, and /healthz and /readyz what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from faultlens.clock import moment_of
from faultlens.codec import event_of
from faultlens.errors import ConfigurationError, WorldError
from faultlens.events import (
    Cause,
    Culprit,
    JobAttributed,
    Lost,
    Retry,
    SloScope,
    SloStatus,
    Status,
)
from faultlens.meters import MAX_STANDINGS, Durations, Position, RoleMeters, SinkMeters, Standings

exposition = pytest.importorskip("faultlens.exposition", reason="prometheus-client is not installed (extra `stream`)")
metrics = pytest.importorskip("faultlens.metrics", reason="prometheus-client is not installed (extra `stream`)")
parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed (extra `stream`)")

ROOT = Path(__file__).parents[2]
NOW_MS = 1_795_000_000_000


def status(team: str = "nlp", *, attained: float | None = 0.99) -> SloStatus:
    return SloStatus(
        "job_success", SloScope("c1", team=team), "P28D", "attempts", 99.0, 100.0, attained, 0.995, -1.0, {"PT1H": 2.0},
        {"hardware": 1.0},
    )  # fmt: skip


def verdict(revision: int, standing: Status, *, ended_ms: int) -> JobAttributed:
    at = moment_of(ended_ms)
    return JobAttributed(
        "j1", 1, "c1", revision, standing, Cause("hardware", "gpu.off_bus", "fell off"), "established", 0.9, Culprit(),
        (), (), Retry("retry"), Lost(0.0, 0.0), "r", "c", at,
    )  # fmt: skip


def sink_meters() -> SinkMeters:
    meters = SinkMeters()
    meters.position = Position({("node-events", 0): 7}, NOW_MS - 2500, 3, 100.0, ready=True)
    meters.records["node-events"] = 12
    meters.ticks["node-events"] = 2
    meters.dead[("node-events", "not_json")] = 1
    meters.expired["job-events"] = 4
    meters.rows["events_raw"] = 9
    meters.delivering.observe(0.3)
    meters.delay.observe(0.2)
    meters.standings.tell(status(), 0)
    return meters


def role_meters() -> RoleMeters:
    meters = RoleMeters("job")
    meters.records["job-events"] = 5
    meters.state_keys[3] = 8
    meters.state_bytes[3] = 4096
    meters.clock_ms[3] = NOW_MS - 1500
    meters.committing.observe(0.012)
    for data in (verdict(1, "provisional", ended_ms=NOW_MS - 700), verdict(2, "final", ended_ms=NOW_MS - 300_000)):
        meters.tell("attributions", event_of(data, source="faultlens", id_="v", time_ms=NOW_MS), NOW_MS)
    return meters


@pytest.fixture
def shown() -> Iterator[str]:
    families = [metrics.SinkMetrics(sink_meters(), lambda: NOW_MS)]
    health = exposition.Health(lambda: "", lambda: "the store is not reachable")
    with closing(exposition.Exposition("127.0.0.1:0", families, health)) as server:
        yield f"http://127.0.0.1:{server.port}"


def samples(text: str) -> dict[str, float]:
    return {
        f"{sample.name}{json.dumps(sample.labels, sort_keys=True) if sample.labels else ''}": sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def told(families: object) -> dict[str, float]:
    class Once:
        def collect(self) -> object:
            return families.collect()  # type: ignore[attr-defined]

    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(Once())  # type: ignore[arg-type]
    return samples(generate_latest(registry).decode())


def test_what_the_sink_counted_is_what_prometheus_reads(shown: str) -> None:
    with urlopen(f"{shown}/metrics", timeout=10) as response:  # noqa: S310 - loopback
        found = samples(response.read().decode())
    assert found['faultlens_records_total{"role": "sink", "topic": "node-events"}'] == 12
    assert found['faultlens_lag_records{"partition": "0", "role": "sink", "topic": "node-events"}'] == 7
    assert found['faultlens_oldest_unacknowledged_seconds{"role": "sink"}'] == 2.5
    assert found['faultlens_dead_letters_total{"reason": "not_json", "role": "sink", "topic": "node-events"}'] == 1
    assert found['faultlens_sink_delivery_seconds_bucket{"le": "0.25"}'] == 0
    assert found['faultlens_sink_delivery_seconds_bucket{"le": "0.5"}'] == 1
    assert found["faultlens_sink_delivery_seconds_sum"] == 0.3
    assert found["process_cpu_seconds_total"] > 0
    scope = {"objective": "job_success", "cluster": "c1", "pool": "", "team": "nlp", "workload": "", "window": "P28D"}
    labels = json.dumps(scope, sort_keys=True)
    assert found[f"faultlens_slo_attained_ratio{labels}"] == 0.99
    assert found[f"faultlens_slo_budget_remaining_ratio{labels}"] == -1.0
    assert found[f"faultlens_slo_burn_rate{json.dumps(scope | {'over': 'PT1H'}, sort_keys=True)}"] == 2.0


def test_a_verdicts_latency_is_that_of_its_first_provisional_revision() -> None:
    found = told(metrics.RoleMetrics(role_meters(), lambda: NOW_MS))
    assert found["faultlens_verdict_latency_seconds_count"] == 1
    assert found["faultlens_verdict_latency_seconds_sum"] == 0.7
    assert found['faultlens_clock_behind_seconds{"lane": "3", "role": "job"}'] == 1.5
    assert found['faultlens_verdicts_total{"basis": "established", "class": "hardware", "status": "final"}'] == 1


def test_health_and_readiness_say_what_is_wrong(shown: str) -> None:
    with urlopen(f"{shown}/healthz", timeout=10) as response:  # noqa: S310
        assert response.read() == b"ok\n"
    with pytest.raises(HTTPError, match="503") as refused:
        urlopen(f"{shown}/readyz", timeout=10)  # noqa: S310
    assert refused.value.read() == b"the store is not reachable\n"
    refused.value.close()


def test_a_loop_that_stands_still_is_not_alive() -> None:
    position = Position(turned_s=100.0)
    assert exposition.health_of(position, lambda: 101.0, not_ready="").alive() == ""
    assert exposition.health_of(position, lambda: 190.0, not_ready="").alive() == "the loop stands still for 90 s"


def test_what_moved_to_another_process_is_not_shown_here_any_more() -> None:
    standings = Standings()
    standings.tell(status("a"), 0)
    standings.tell(status("b"), 1)
    standings.keep(lambda partition: partition == 1)
    assert [scope[3] for scope, _ in standings.all()] == ["b"]


def test_there_are_never_more_standings_than_prometheus_can_bear() -> None:
    standings = Standings()
    for number in range(MAX_STANDINGS + 5):
        standings.tell(status(f"t{number}"), number % 3)
    standings.tell(status("t0", attained=0.5), 0)
    assert len(standings.all()) == MAX_STANDINGS
    assert {told.attained for scope, told in standings.all() if scope[3] == "t0"} == {0.5}


@pytest.mark.parametrize(("seconds", "bucket"), [(-1.0, 0), (0.01, 0), (0.011, 1), (1e9, 13)])
def test_a_duration_falls_into_the_bucket_that_it_fits(seconds: float, bucket: int) -> None:
    durations = Durations()
    durations.observe(seconds)
    assert durations.counts.index(1) == bucket


@pytest.mark.parametrize(
    ("text", "address"), [("9464", ("127.0.0.1", 9464)), (":1", ("127.0.0.1", 1)), ("[::1]:2", ("::1", 2))]
)
def test_metrics_are_on_loopback_unless_said_otherwise(text: str, address: tuple[str, int]) -> None:
    assert exposition.parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host:", "host:x", "h:70000"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not HOST:PORT"):
        exposition.parse_address(text)


def test_a_port_that_is_taken_is_told(shown: str) -> None:
    address = shown.removeprefix("http://")
    with pytest.raises(WorldError, match=f"metrics cannot be shown at {address}"):
        exposition.Exposition(address, [], exposition.Health(str, str))


def test_every_metric_is_documented() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    families = [
        family
        for source in (metrics.SinkMetrics(sink_meters(), int), metrics.RoleMetrics(role_meters(), int))
        for family in source.collect()
    ]
    names = {f.name + ("_total" if f.type == "counter" else "") for f in families}
    assert {name for name in names if f"`{name}`" not in page} == set()
