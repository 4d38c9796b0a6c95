"""What mostly goes by without harm keeps no work away: it does when it lasts, comes again, or has cost a job."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from faultlens.clock import MINUTE_MS
from faultlens.internal import Condition, Intervened, Observation
from tests.unit.test_remediation_jobs import T0, Cluster, facts, verdict

BLOCKED = [("block_new_work", "n1")]


def trouble(
    fault: str, cause: str, severity: int, *, minute: float = 0, phase: str = "opened", role: str = "root"
) -> Condition:
    kind, _, code = fault.partition(":")
    at_ms = T0 + round(minute * MINUTE_MS)
    seen = Observation(
        fault, "agent/n1", "n1", kind, code, at_ms, at_ms, "hardware", cause, role, severity, "so", False,
        hint="reset_device",
    )  # fmt: skip
    return Condition("n1", "c1", phase, fault, seen, at_ms)  # type: ignore[arg-type]


PUT_BACK = Intervened("n2", "c1", "uncordon", "ann", False, T0, watched=True)
SILENT = trouble("kernel:silent", "host.lost.silent", 55)


def flap(minute: float, phase: str = "opened") -> Condition:
    return trouble("nic:link_flap", "network.link.flap", 50, minute=minute, phase=phase)


def nvlink(minute: float) -> Condition:
    return trouble("xid:74", "fabric.nvlink.link", 65, minute=minute)


def wearing(minute: float) -> Condition:
    return trouble("xid:63", "gpu.memory.remap_pending", 10, minute=minute, role="trend")


def blamed(**more: Any) -> Any:
    return verdict(**({"rule": "device_fault_on_allocated_gpu"} | more))


def goes_by(cluster: Cluster, minute: float) -> Cluster:
    """Let a link flap, be well by the next report, and the incident end."""
    cluster.tell(flap(minute), minute=minute).tell(flap(minute + 1, "cleared"), minute=minute + 1)
    return cluster.tell(facts(), minute=minute + 10)


def test_a_link_that_flaps_once_keeps_no_work_away() -> None:
    assert goes_by(Cluster(), 0).done == []


def test_a_link_that_flaps_a_third_time_within_a_day_does() -> None:
    cluster = goes_by(goes_by(Cluster(), 0), 60)
    assert cluster.done == []
    assert cluster.tell(flap(120), minute=120).done == BLOCKED


def test_a_flap_that_cost_a_job_keeps_work_away_at_once() -> None:
    cluster = Cluster().tell(flap(0))
    assert cluster.tell(blamed(basis="supported"), minute=5).done == []
    assert cluster.tell(blamed(), minute=6).done == BLOCKED


def test_an_nvlink_error_is_waited_for_unless_the_links_check_confirms_it() -> None:
    assert Cluster().tell(nvlink(0)).tell(facts(), minute=9).done == []
    assert Cluster().tell(nvlink(0)).tell(facts(), minute=11).done == BLOCKED
    failing = trouble("check:nvlink", "fabric.nvlink.link", 64, minute=5)
    assert Cluster().tell(nvlink(0)).tell(failing, minute=5).done == BLOCKED


def test_what_has_worn_out_for_long_does_not_count_as_time_in_trouble() -> None:
    cluster = Cluster().tell(wearing(0)).tell(nvlink(60), minute=60)
    assert cluster.tell(facts(), minute=65).done == []
    assert cluster.tell(facts(), minute=71).done == BLOCKED


@pytest.mark.parametrize(("jobs", "done"), [((), BLOCKED), (("j/1",), [])])
def test_a_silent_node_is_held_when_no_work_on_it_shows_that_it_lives(jobs: tuple[str, ...], done: list[Any]) -> None:
    cluster = Cluster().tell(facts(jobs=jobs)).tell(SILENT).tell(facts(jobs=jobs), minute=29)
    assert cluster.done == []
    assert cluster.tell(facts(jobs=jobs), minute=31).done == done


@pytest.mark.parametrize("jobs", [(), ("j/1",)])
def test_where_schedulers_tell_of_nodes_somebody_is_asked_about_one_that_only_fell_silent(
    jobs: tuple[str, ...],
) -> None:
    cluster = Cluster().tell(PUT_BACK).tell(facts(jobs=jobs)).tell(SILENT).tell(facts(jobs=jobs), minute=59)
    assert cluster.done == []
    assert cluster.tell(facts(jobs=jobs), minute=61).done == [("open_ticket", "n1")]


def test_a_node_that_fell_silent_and_lost_a_job_is_held_whoever_tells_of_it() -> None:
    cluster = Cluster().tell(PUT_BACK).tell(facts(jobs=("j/1",))).tell(SILENT)
    assert cluster.tell(blamed(), minute=5).done == BLOCKED


def test_a_bridge_that_told_of_no_node_for_four_weeks_is_not_relied_on() -> None:
    late = 29 * 1440
    silent = trouble("kernel:silent", "host.lost.silent", 55, minute=late)
    cluster = Cluster().tell(PUT_BACK).tell(silent, minute=late).tell(facts(), minute=late + 31)
    assert cluster.done == BLOCKED


def test_a_silent_node_and_an_nvlink_error_that_cost_a_job_are_not_waited_for() -> None:
    for cluster in (Cluster().tell(facts(jobs=("j/2",))).tell(SILENT), Cluster().tell(nvlink(0))):
        assert cluster.done == []
        assert cluster.tell(blamed(), minute=5).done == BLOCKED


def test_a_verdict_takes_over_an_incident_in_which_nothing_is_done() -> None:
    cluster = Cluster().tell(wearing(0)).tell(verdict(rule="black_hole_node"), minute=30)
    assert cluster.done == BLOCKED


def test_only_trouble_that_did_harm_makes_a_lemon() -> None:
    well, sick = Cluster(), Cluster()
    for day in range(0, 8, 2):
        minute = day * 1440
        goes_by(well, minute)
        goes_by(sick, minute).tell(replace(blamed(), ended_ms=T0 + minute * MINUTE_MS), minute=minute + 12)
    gone = trouble("xid:109", "gpu.compute.timeout", 60, minute=9 * 1440)
    assert well.tell(gone, minute=9 * 1440).commands[-1].policy.endswith(" reset")
    assert sick.tell(gone, minute=9 * 1440).commands[-1].policy.endswith(" lemon")
