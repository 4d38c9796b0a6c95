"""Nodes as they were under the jobs: what is a fault, of what, and since when."""

import pytest

from faultlens.events import NodeActed
from producers.slurm.importing import Export, import_slurm
from producers.slurm.job_events import Names
from tests.unit.slurm_exports import EVENTS_HEADER, NODE, T0, faults, imported, outage, run, step


def test_a_node_that_restarted_was_lost_and_one_that_only_fell_silent_was_not() -> None:
    outages = [
        outage("node3", (50, 80), "DOWN*", "Not responding"),
        outage("node3", (80, 90), "DOWN", "Node unexpectedly rebooted"),
        outage("node6", (50, 80), "DOWN*", "Not responding"),
    ]
    assert faults(imported([], outages)) == [
        ("node3", "not_responding", 50, 50),
        ("node6", "not_responding", 50, 50),
        ("node3", "unexpected_reboot", 50, 80),
        ("node6", "daemon_lost", 50, 80),
    ]


def test_where_restarts_are_never_told_of_silence_is_all_that_is_known() -> None:
    silent = [outage("node6", (50, 80), "DOWN*", "Not responding")]
    assert [code for _, code, _, _ in faults(imported([], silent))] == ["not_responding"]
    assert [code for _, code, _, _ in faults(imported([], silent, config="ReturnToService         = 1\n"))] == [
        "not_responding",
        "daemon_lost",
    ]
    assert [code for _, code, _, _ in faults(imported([], silent, config="ReturnToService         = 2\n"))] == [
        "not_responding"
    ]


def test_a_restart_within_the_silence_is_told_by_the_boot_time() -> None:
    booted = NODE.replace("1795950674", str(T0 + 60))
    silent = [outage("node1", (50, 80), "DOWN*", "Not responding")]
    found = faults(imported([], silent, config="ReturnToService         = 1\n", nodes=booted))
    assert [code for _, code, _, _ in found] == ["not_responding"]


def test_a_node_was_gone_when_a_run_ended_whose_end_it_did_not_report() -> None:
    rows = [
        run("7", "FAILED", (0, 10, 20), exit_="1:0", nodes="node[1-2]"),
        step("7", "batch", "FAILED", (10, 20), exit_="1:0", nodes="node1"),
        step("7", "0", "CANCELLED", (10, 50), exit_="", nodes="node2"),
        run("8", "FAILED", (0, 1, 5), exit_="1:0", nodes="node2"),
        step("8", "batch", "FAILED", (1, 5), exit_="1:0", nodes="node2"),
    ]
    found = faults(imported(rows, [outage("node2", (50, None), "DOWN*", "Not responding")]))
    assert found == [("node2", "not_responding", 20, 50)]


def test_without_steps_a_node_may_have_been_gone_as_long_as_the_controller_waits() -> None:
    out = [outage("node2", (50, None), "DOWN*", "Not responding")]
    found = faults(imported([run("7", "FAILED", (0, 1, 30))], out, config="SlurmdTimeout           = 20 sec\n"))
    assert found == [("node2", "not_responding", 20, 50)]


def test_a_prolog_that_hung_is_told_from_one_that_refused() -> None:
    rows = [
        run("7", "REQUEUED", (0, 10, 40), nodes="node3"),
        step("7", "batch", "CANCELLED", (10, 40), exit_="", nodes="node3"),
        run("8", "REQUEUED", (0, 40, 40), nodes="node4"),
        step("8", "batch", "CANCELLED", (40, 40), exit_="", nodes="node4"),
    ]
    out = [outage(node, (40, 90), "DRAIN", "Prolog error") for node in ("node3", "node4")]
    found = faults(imported(rows, out, config="PrologEpilogTimeout     = 30\n"))
    assert {node: code for node, code, _, _ in found} == {"node3": "prolog_timed_out", "node4": "prolog_failed"}


def test_processes_that_could_not_be_killed_were_stuck_when_their_run_ended() -> None:
    rows = [run("7", "TIMEOUT", (0, 10, 40)), step("7", "batch", "FAILED", (10, 70))]
    found = faults(imported(rows, [outage("node1", (75, 90), "DRAIN", "Kill task failed")]))
    assert found == [("node1", "kill_task_failed", 40, 75)]


def test_a_drain_is_written_down_when_the_node_is_empty_and_was_set_before() -> None:
    rows = [run("7", "FAILED", (0, 10, 45))]
    out = [outage("node1", (50, 90), "DRAIN", "NHC: Xid 79 GPU 3 (0000:3b:00.0) has fallen off the bus")]
    assert faults(imported(rows, out)) == [("node1", "reported_gpu", 45, 50)]


def test_processes_from_before_show_that_a_node_did_not_restart() -> None:
    rows = [
        run("7", "NODE_FAIL", (0, 10, 50), nodes="node1"),
        run("7", "COMPLETED", (50, 60, 300), nodes="node2"),
        step("7", "0", "COMPLETED", (60, 132), nodes="node2"),
    ]
    outages = [
        outage("node1", (50, 130), "DOWN*", "Not responding"),
        outage("node1", (130, 135), "DOWN", "Node unexpectedly rebooted"),
    ]
    assert [code for _, code, _, _ in faults(imported(rows, outages))] == ["not_responding", "daemon_lost"]


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        ("DOWN", "Node unexpectedly rebooted", "unexpected_reboot"),
        ("DRAIN", "Kill task failed", "kill_task_failed"),
        ("DRAIN", "Prolog error", "prolog_failed"),
        ("DRAIN", "Epilog error", "epilog_failed"),
        ("DOWN~", "ResumeTimeout reached", "resume_timeout"),
        ("DOWN*", "fw update : reboot issued : reboot timed out", "reboot_timed_out"),
        ("INVAL", "gres/gpu count reported lower than configured (7 < 8)", "gpu_count_low"),
        ("INVAL", "Low RealMemory (reported:1015000 < 100.00% of configured:2063000)", "resources_low"),
        ("DRAIN", "batch job complete failure", "launch_failed"),
        ("DRAIN", "GPU5 row remap pending; ECC uncorrectable", "reported_gpu"),
        ("DRAIN", "NHC: check_fs_mount:  /scratch not mounted", "reported_storage"),
        ("DRAIN", "ops: ib0 link down, ticket 7", "reported_network"),
        ("DRAIN", "nvlink errors on GPU board", "reported_fabric"),
        ("FAIL", "fan 3 dead", "reported_cooling"),
        ("DRAIN", "DIMM A3 replaced soon, uncorrectable errors", "reported_memory"),
        ("DRAIN", "PSU 2 failed", "reported_power"),
        ("DRAIN", "nvme1 failed, waiting for spare", "reported_disk"),
    ],
)
def test_a_reason_has_its_code(state: str, reason: str, code: str) -> None:
    assert [found for _, found, _, _ in faults(imported([], [outage("node1", (50, 60), state, reason)]))] == [code]


@pytest.mark.parametrize(
    ("state", "reason", "planned"),
    [
        ("DOWN", "jdoe: swapping NIC, ticket OPS-77", False),
        ("DRAIN", "for the course on Friday", False),
        ("BOOT^", "kernel 6.1.99 : reboot issued", True),
        ("MAINT", "firmware", True),
    ],
)
def test_what_people_do_to_a_node_is_no_fault_of_it(state: str, reason: str, planned: bool) -> None:
    result = imported([], [outage("node1", (50, 60), state, reason, "root(0)")])
    acts = [event.data for event in result.events if isinstance(event.data, NodeActed)]
    assert faults(result) == []
    assert [(act.action, act.actor, act.planned) for act in acts] == [
        ("cordon", "root", planned),
        ("uncordon", "root", planned),
    ]


@pytest.mark.parametrize(
    ("state", "reason", "user", "setting", "actor"),
    [
        ("DOWN", "Not responding", "slurm(64030)", 1, "slurm"),
        ("DOWN", "Not responding", "root(0)", 2, "slurm"),
        ("DOWN", "Not responding", "slurm(64030)", 0, "scontrol"),
        ("DOWN", "Node unexpectedly rebooted", "slurm(64030)", 1, "scontrol"),
        ("DOWN", "Node unexpectedly rebooted", "slurm(64030)", 2, "slurm"),
        ("DRAIN", "Kill task failed", "root(0)", 2, "root"),
        ("DRAIN", "for the course on Friday", "slurm(64030)", 2, "scontrol"),
        ("DRAIN", "for the course on Friday", "ann(1001)", 2, "ann"),
    ],
)
def test_slurm_is_said_to_take_a_node_back_only_where_it_does_so_by_itself(
    state: str, reason: str, user: str, setting: int, actor: str
) -> None:
    result = imported([], [outage("node1", (50, 60), state, reason, user)], config=f"ReturnToService = {setting}")
    acts = [event.data for event in result.events if isinstance(event.data, NodeActed)]
    assert [act.actor for act in acts if act.action == "uncordon"] == [actor]


def test_a_restart_that_was_asked_for_and_failed_is_no_longer_planned() -> None:
    outages = [
        outage("node8", (50, 80), "BOOT^", "fw update : reboot issued"),
        outage("node8", (80, 90), "DOWN*", "fw update : reboot issued : reboot timed out"),
    ]
    acts = [event.data for event in imported([], outages).events if isinstance(event.data, NodeActed)]
    assert [(act.action, act.planned) for act in acts] == [("cordon", True), ("cordon", False), ("uncordon", False)]


def test_nodes_that_save_power_and_rows_of_the_whole_cluster_tell_nothing() -> None:
    outages = [
        outage("", (0, None), "", "Cluster Registered TRES", ""),
        outage("cloud1", (0, 9), "IDLE~", "Powered down"),
        outage("cloud1", (9, 10), "IDLE#", "Powered up"),
    ]
    assert imported([], outages).events == []


def test_nodes_of_another_cluster_in_the_same_database_are_others() -> None:
    rows = [EVENTS_HEADER, *(f"{name}|node1|{T0 + 50}|{T0 + 60}|DOWN|Node unexpectedly rebooted|" for name in "ab")]
    jobs = ["JobID|Cluster|State|Start|End", f"7|a|NODE_FAIL|{T0}|{T0 + 50}"]
    for sacct, warned in ((jobs, False), ([line.replace("|a", "").replace("|Cluster", "") for line in jobs], True)):
        result = import_slurm(Export(sacct, rows), Names("c1"))
        assert any("node events of 2 clusters (a, b)" in said for said in result.warnings) is warned
        assert len(faults(result)) == 1
