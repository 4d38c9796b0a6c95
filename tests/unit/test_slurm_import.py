"""From exports to events: outcomes that the state alone does not tell, and nodes as they were under the jobs."""

from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.codec import Decoder, Event, encode
from faultlens.events import (
    JobAllocated,
    JobEnded,
    JobPending,
    JobResized,
    JobStarted,
    JobSubmitted,
    NodeActed,
    NodeFault,
)
from producers.slurm.importing import Export, Imported, import_slurm
from producers.slurm.job_events import SLOTS_PER_PART, Names

T0 = 1_795_954_000
HEADER = "JobID|JobName|User|UID|Account|State|ExitCode|NodeList|Submit|Start|End|AllocTRES|ReqTRES|Reason|SubmitLine"
EVENTS_HEADER = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"
SBATCH = "sbatch train.sh"
GPUS = "cpu=1,gres/gpu:h100=8,gres/gpu=8,node=1"


def stamp(at: int | None) -> str:
    return "Unknown" if at is None else str(T0 + at)


def run(
    job: str,
    state: str,
    at: tuple[int, int | None, int | None],
    *,
    exit_: str = "0:0",
    nodes: str = "node1",
    tres: str = GPUS,
    reason: str = "None",
) -> str:
    times = "|".join(map(stamp, at))
    return f"{job}|train|ann|5|lab|{state}|{exit_}|{nodes}|{times}|{tres}|{tres}|{reason}|{SBATCH}"


def outage(node: str, at: tuple[int, int | None], state: str, reason: str, user: str = "slurm(64030)") -> str:
    return f"c|{node}|{stamp(at[0])}|{stamp(at[1])}|{state}|{reason}|{user}"


def imported(
    rows: Sequence[str], outages: Sequence[str] | None = (), *, config: str = "", nodes: str = "", jobs: str = ""
) -> Imported:
    export = Export(
        sacct=[HEADER, *rows],
        events=None if outages is None else [EVENTS_HEADER, *outages],
        jobs=jobs.splitlines() or None,
        config=config.splitlines() or None,
        nodes=nodes.splitlines() or None,
    )
    return import_slurm(export, Names("c1"))


def ends(result: Imported) -> list[JobEnded]:
    return [event.data for event in result.events if isinstance(event.data, JobEnded)]


def end_and_time(result: Imported) -> tuple[str, int]:
    [(end, at_ms)] = [(event.data, event.time_ms) for event in result.events if isinstance(event.data, JobEnded)]
    return end.outcome, at_ms // 1000 - T0


def the_end(rows: Sequence[str], outages: Sequence[str] | None = ()) -> JobEnded:
    [end] = ends(imported(rows, outages))
    return end


def faults(result: Imported) -> list[tuple[str, str, int, int]]:
    return [
        (event.subject, event.data.code, event.time_ms // 1000 - T0, (event.recorded_ms or 0) // 1000 - T0)
        for event in result.events
        if isinstance(event.data, NodeFault)
    ]


def step(job: str, name: str, state: str, at: tuple[int, int], *, exit_: str = "0:0", nodes: str = "node1") -> str:
    return run(f"{job}.{name}", state, (at[0], *at), exit_=exit_, nodes=nodes)


# --- outcomes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "exit_", "outcome", "code", "signal"),
    [
        ("COMPLETED", "0:0", "succeeded", 0, None),
        ("FAILED", "1:0", "failed", 1, None),
        ("FAILED", "0:11", "failed", None, 11),
        ("OUT_OF_MEMORY", "0:125", "failed", None, None),
        ("TIMEOUT", "0:0", "timed_out", None, None),
        ("DEADLINE", "0:0", "timed_out", None, None),
        ("NODE_FAIL", "0:0", "failed", None, None),
        ("PREEMPTED", "0:0", "preempted", None, None),
        ("CANCELLED by 5", "0:0", "cancelled", None, None),
        ("BOOT_FAIL", "0:0", "never_started", None, None),
        ("LAUNCH_FAILED", "0:0", "never_started", None, None),
    ],
)
def test_a_state_has_its_outcome(state: str, exit_: str, outcome: str, code: int | None, signal: int | None) -> None:
    end = the_end([run("7", state, (0, 10, 60), exit_=exit_)])
    assert (end.outcome, end.exit_code, end.signal) == (outcome, code, signal)
    assert end.reason == state


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "SUSPENDED", "COMPLETING", "REQUEUE_HOLD"])
def test_a_run_that_is_not_over_has_no_end(state: str) -> None:
    result = imported([run("7", state, (0, 10, None))])
    assert ends(result) == []
    assert result.counts.unended == 1


def test_half_a_record_of_a_database_that_catches_up_has_no_end_yet() -> None:
    assert ends(imported([run("7", "FAILED", (0, 10, None))])) == []


def test_a_failed_prolog_is_no_cancellation_although_root_is_said_to_have_cancelled() -> None:
    rows = [
        run("7", "CANCELLED by 0", (0, 10, 10), nodes="node5"),
        step("7", "batch", "CANCELLED", (10, 10), exit_="", nodes="node5"),
    ]
    end = the_end(rows, [outage("node5", (10, 90), "DRAIN", "Prolog error")])
    assert end.outcome == "never_started"
    assert end.message == "node5 DRAIN: Prolog error"


def test_a_cancellation_by_root_is_one_when_processes_had_been_started() -> None:
    rows = [run("7", "CANCELLED by 0", (0, 10, 10)), step("7", "batch", "CANCELLED", (10, 11), exit_="0:15")]
    end = the_end(rows, [outage("node1", (10, 90), "DRAIN", "Prolog error")])
    assert (end.outcome, end.message) == ("cancelled", "cancelled by root")


def test_a_cancellation_by_root_is_one_when_no_prolog_failed() -> None:
    rows = [run("7", "CANCELLED by 0", (0, 10, 10)), step("7", "batch", "CANCELLED", (10, 10), exit_="")]
    assert the_end(rows).outcome == "cancelled"


def test_without_node_events_a_launch_that_failed_is_told_by_its_steps() -> None:
    rows = [run("7", "CANCELLED by 0", (0, 10, 10)), step("7", "batch", "CANCELLED", (10, 10), exit_="")]
    assert the_end(rows, None).outcome == "never_started"


def test_a_requeue_by_its_exit_code_is_a_failure_that_is_tried_again() -> None:
    rows = [run("7", "REQUEUED", (0, 10, 12), exit_="99:0"), run("7", "COMPLETED", (12, 130, 140))]
    first, second = ends(imported(rows))
    assert (first.outcome, first.exit_code, first.restarts_with_attempt) == ("failed", 99, 2)
    assert (second.outcome, second.attempt, second.restarts_with_attempt) == ("succeeded", 2, None)


def test_a_requeue_on_request_is_a_cancellation() -> None:
    rows = [run("7", "REQUEUED", (0, 10, 40)), step("7", "batch", "CANCELLED", (10, 41), exit_="0:15")]
    assert the_end(rows).outcome == "cancelled"


def test_a_requeue_of_a_run_that_had_ended_well_takes_nothing_from_it() -> None:
    rows = [run("7", "REQUEUED", (0, 10, 40)), step("7", "batch", "COMPLETED", (10, 20))]
    assert end_and_time(imported(rows)) == ("succeeded", 20)


def test_a_launch_that_failed_on_a_node_that_stayed_is_the_schedulers() -> None:
    rows = [
        run("7", "REQUEUED", (0, 10, 10)),
        step("8", "batch", "COMPLETED", (1, 2)),
        run("8", "COMPLETED", (0, 1, 2)),
    ]
    end = next(end for end in ends(imported(rows)) if end.job_id == "7")
    assert end.outcome == "never_started"
    assert end.message == "ended before any step was launched, and node1 was not taken out"


def test_a_request_that_was_refused_never_started_and_says_so() -> None:
    end = the_end([run("7", "FAILED", (0, 0, 0), exit_="1:0", nodes="None assigned", tres="")])
    assert (end.outcome, end.exit_code) == ("never_started", None)
    assert end.message == "request refused: ended before it was given nodes"


def test_a_job_without_a_step_on_a_node_that_failed_never_started() -> None:
    rows = [
        run("7", "NODE_FAIL", (0, 10, 50)),
        run("8", "COMPLETED", (0, 10, 50)),
        step("8", "batch", "COMPLETED", (10, 50)),
    ]
    assert [end.outcome for end in ends(imported(rows)) if end.job_id == "7"] == ["never_started"]


def test_jobs_that_nobody_cancelled_in_one_second_were_lost_by_the_controller() -> None:
    rows = [run("7", "CANCELLED", (0, 10, 50)), run("8", "CANCELLED", (5, 20, 50)), run("9", "COMPLETED", (0, 10, 40))]
    result = {end.job_id: end for end in ends(imported(rows))}
    assert [result[job].outcome for job in ("7", "8")] == ["failed", "failed"]
    assert (result["7"].message or "").startswith("no record of this job")


def test_jobs_that_end_together_while_another_lives_on_were_cancelled() -> None:
    rows = [run("7", "CANCELLED", (0, 10, 50)), run("8", "CANCELLED", (5, 20, 50)), run("9", "COMPLETED", (0, 10, 60))]
    assert {end.outcome for end in ends(imported(rows)) if end.job_id != "9"} == {"cancelled"}


def test_one_lost_job_alone_may_have_been_cancelled() -> None:
    assert the_end([run("7", "CANCELLED", (0, 10, 50))]).outcome == "cancelled"


def test_a_slurmstepd_that_vanished_is_told_where_its_node_was_well() -> None:
    rows = [run("7", "TIMEOUT", (0, 10, 70)), step("7", "batch", "CANCELLED", (10, 70), exit_="")]
    assert "nobody saw step batch end although its node answered" in (the_end(rows).message or "")
    out = the_end(rows, [outage("node1", (70, 90), "DOWN*", "Not responding")])
    assert out.message == "node1 DOWN*: Not responding"


def test_a_node_that_somebody_set_down_is_told_with_who_and_why() -> None:
    out = [outage("node1", (50, 90), "DOWN", "jdoe: swapping NIC", "root(0)")]
    assert the_end([run("7", "NODE_FAIL", (0, 10, 50))], out).message == "node1 set DOWN by root: jdoe: swapping NIC"


def test_a_doubt_about_an_exit_code_is_said_and_not_decided() -> None:
    end = the_end([run("7", "FAILED", (0, 10, 50), exit_="11:0")])
    assert end.exit_code == 11
    assert end.message == "exit code 11 may be 139 (SIGSEGV): accounting drops bit 7"


def test_a_step_that_failed_is_told_even_where_the_job_completed() -> None:
    rows = [run("7", "COMPLETED", (0, 10, 50)), step("7", "0", "OUT_OF_MEMORY", (11, 20), exit_="0:125")]
    end = the_end(rows)
    assert (end.outcome, end.message) == ("succeeded", "step 0 OUT_OF_MEMORY 0:125 on node1")


def test_a_suspended_job_that_was_cancelled_ended_with_its_processes() -> None:
    rows = [run("7", "CANCELLED by 5", (0, 10, 30)), step("7", "batch", "CANCELLED", (10, 45), exit_="0:9")]
    known = (
        f"JobId=7 JobName=x\n   UserId=ann(5) GroupId=ann(5)\n   JobState=CANCELLED Reason=None Dependency=(null)\n"
        f"   ExitCode=0:9\n   SubmitTime={stamp(0)} StartTime={stamp(10)} EndTime={stamp(30)} SuspendTime={stamp(30)}\n"
        f"   NodeList=node1\n"
    )
    assert end_and_time(imported(rows, jobs=known)) == ("cancelled", 45)


# --- the life before the end ---------------------------------------------------------------------------


def test_a_job_is_submitted_waits_is_allocated_starts_and_ends() -> None:
    rows = [
        run("7", "COMPLETED", (0, 60, 100), nodes="node[1-2]", reason="Resources", tres="gres/gpu=16,node=2"),
        step("7", "batch", "COMPLETED", (62, 100)),
    ]
    kinds = [type(event.data) for event in imported(rows).events]
    assert kinds == [JobSubmitted, JobPending, JobAllocated, JobStarted, JobEnded]
    submitted, pending, allocated, started, _ = imported(rows).events
    assert isinstance(submitted.data, JobSubmitted)
    assert (submitted.data.gpus, submitted.data.nodes, submitted.data.team) == (16, 2, "lab")
    assert isinstance(pending.data, JobPending)
    assert pending.data.reason == "Resources"
    assert isinstance(allocated.data, JobAllocated)
    assert [slot.node for slot in allocated.data.allocation] == ["node1", "node2"]
    assert [event.time_ms // 1000 - T0 for event in (allocated, started)] == [60, 62]


def test_a_reason_that_a_run_did_not_wait_for_is_not_told() -> None:
    rows = [run("7", "REQUEUED", (0, 1, 1), reason="JobHeldUser")]
    assert not any(isinstance(event.data, JobPending) for event in imported(rows).events)


def test_the_words_of_an_interactive_job_and_its_image_are_kept() -> None:
    line = "srun --container-image=registry/x:1 --pty bash"
    [submitted] = [e.data for e in imported([run("7", "COMPLETED", (0, 1, 2)).replace(SBATCH, line)]).events[:1]]
    assert isinstance(submitted, JobSubmitted)
    assert (submitted.workload, submitted.image) == ("interactive", "registry/x:1")


NODE = "NodeName=node1 Arch=x86_64\n   Gres=gpu:h100:8(S:0-1)\n   Partitions=batch,spot \n   BootTime=1795950674\n"


def test_all_devices_are_named_where_a_run_holds_all_and_none_where_it_holds_none() -> None:
    rows = [
        run("7", "COMPLETED", (0, 1, 2)),
        run("8", "COMPLETED", (0, 1, 2), tres="gres/gpu=4"),
        run("9", "COMPLETED", (0, 1, 2), tres="cpu=1"),
    ]
    found = {
        event.subject: event.data.allocation[0].devices
        for event in imported(rows, nodes=NODE).events
        if isinstance(event.data, JobAllocated)
    }
    assert found == {"7": tuple(range(8)), "8": None, "9": ()}


def test_a_large_allocation_comes_in_parts_that_hold_every_node_once() -> None:
    count = SLOTS_PER_PART * 2 + 1
    events = imported([run("7", "COMPLETED", (0, 1, 2), nodes=f"n[1-{count}]")]).events
    parts = [event.data for event in events if isinstance(event.data, JobAllocated)]
    assert [(part.part, part.parts) for part in parts] == [(1, 3), (2, 3), (3, 3)]
    assert len({slot.node for part in parts for slot in part.allocation}) == count


def test_components_of_one_job_share_their_fate_and_not_their_devices() -> None:
    rows = [
        run("9+0", "NODE_FAIL", (0, 10, 50), nodes="node7"),
        run("9+1", "NODE_FAIL", (0, 10, 50), nodes="node8"),
    ]
    result = imported(rows, [outage("node8", (50, 60), "DOWN", "Node unexpectedly rebooted")])
    slots = {
        event.subject: [(slot.node, slot.devices) for slot in event.data.allocation]
        for event in result.events
        if isinstance(event.data, JobAllocated)
    }
    assert slots == {"9+0": [("node7", None), ("node8", ())], "9+1": [("node8", None), ("node7", ())]}
    assert {end.message for end in ends(result)} == {"node8 DOWN: Node unexpectedly rebooted"}


def test_a_run_that_goes_on_without_a_lost_node_lost_it() -> None:
    rows = [
        run("7", "RESIZING", (0, 10, 40), nodes="node[6-7]"),
        run("7", "COMPLETED", (40, 40, 60), nodes="node6"),
    ]
    [resized] = [
        event.data
        for event in imported(rows, [outage("node7", (40, 90), "DOWN*", "Not responding")]).events
        if isinstance(event.data, JobResized)
    ]
    assert [slot.node for slot in resized.lost] == ["node7"]
    assert [slot.node for slot in resized.allocation] == ["node6"]


def test_a_node_that_was_given_back_is_no_loss() -> None:
    rows = [
        run("7", "RESIZING", (0, 10, 40), nodes="node[6-7]"),
        run("7", "COMPLETED", (40, 40, 60), nodes="node6"),
    ]
    [resized] = [event.data for event in imported(rows).events if isinstance(event.data, JobResized)]
    assert resized.lost == ()


def test_without_node_events_only_a_job_that_asked_for_it_can_lose_a_node() -> None:
    for line, lost in (("sbatch --no-kill x.sh", 1), ("sbatch -k x.sh", 1), ("sbatch --kill-on-bad x.sh", 0)):
        rows = [
            run("7", "RESIZING", (0, 10, 40), nodes="node[6-7]").replace(SBATCH, line),
            run("7", "COMPLETED", (40, 40, 60), nodes="node6").replace(SBATCH, line),
        ]
        [resized] = [e.data for e in imported(rows, None).events if isinstance(e.data, JobResized)]
        assert len(resized.lost) == lost, line


# --- nodes ---------------------------------------------------------------------------------------------


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


# --- the whole -----------------------------------------------------------------------------------------


def test_events_come_in_the_order_in_which_they_would_have_arrived() -> None:
    rows = [
        run("9", "NODE_FAIL", (0, 10, 50), nodes="node1"),
        run("8", "COMPLETED", (40, 50, 50), nodes="node1"),
        run("7", "COMPLETED", (45, 60, 70), nodes="node1"),
    ]
    events = imported(rows, [outage("node1", (50, 80), "DOWN*", "Not responding")]).events
    arrivals = [event.recorded_ms or 0 for event in events]
    assert arrivals == sorted(arrivals)
    at_50 = [(e.subject, type(e.data).__name__) for e in events if e.recorded_ms == (T0 + 50) * 1000]
    assert at_50 == [
        ("9", "JobEnded"),
        ("node1", "NodeActed"),
        ("node1", "NodeFault"),
        ("8", "JobAllocated"),
        ("8", "JobStarted"),
        ("8", "JobEnded"),
    ]


def test_events_are_of_the_contract_and_the_same_export_gives_the_same_events() -> None:
    rows = [run("7", "NODE_FAIL", (0, 10, 50)), run("7", "COMPLETED", (50, 60, 70)), run("7", "FAILED", (80, 81, 82))]
    first, second = (
        imported(rows, [outage("node1", (50, 55), "DOWN", "Node unexpectedly rebooted")]) for _ in range(2)
    )
    assert [encode(event) for event in first.events] == [encode(event) for event in second.events]
    decoder = Decoder()
    for event in first.events:
        assert decoder.decode(encode(event)) == event
        assert event.source in ("scheduler/slurm", "bridge/slurm")
    assert len({(event.source, event.id) for event in first.events}) == len(first.events)


def test_a_second_cluster_prefixes_the_names_of_jobs_and_nodes() -> None:
    export = Export(
        [HEADER, run("7", "FAILED", (0, 1, 2))], [EVENTS_HEADER, outage("node1", (2, 9), "DOWN", "x", "a(1)")]
    )
    events = import_slurm(export, Names("west", "west:")).events
    assert {event.subject for event in events} == {"west:7", "west:node1"}


def test_times_without_a_zone_are_taken_for_utc_and_said_loudly() -> None:
    local = run("7", "FAILED", (0, 1, 2)).replace(stamp(1), "2026-11-29T12:18:48")
    result = import_slurm(Export([HEADER, local]), Names("c"))
    assert any("--timezone was not given" in warning for warning in result.warnings)
    told = import_slurm(Export([HEADER, local]), Names("c"), zone=ZoneInfo("America/Los_Angeles"))
    assert not any("--timezone" in warning for warning in told.warnings)
    at = {type(event.data): event.time_ms for event in told.events}
    assert at[JobAllocated] == 1_795_954_728_000 + 8 * 3_600_000


def test_what_an_export_lacks_is_said() -> None:
    result = import_slurm(Export([HEADER, run("7", "FAILED", (0, 1, 2), exit_="7:0")]), Names("c"))
    said = " ".join(result.warnings)
    assert "no node events" in said
    assert "no steps in the export" in said
    assert "1 exit codes may lack 128" in said


STATES = st.sampled_from(
    ["COMPLETED", "FAILED", "NODE_FAIL", "REQUEUED", "CANCELLED", "CANCELLED by 0", "TIMEOUT", "PREEMPTED", "RUNNING"]
)
RUNS = st.lists(
    st.tuples(st.integers(1, 4), STATES, st.integers(0, 50), st.integers(0, 9), st.integers(0, 90)), max_size=12
)


@given(RUNS)
def test_whatever_accounting_holds_every_run_is_one_attempt_and_every_attempt_ends_at_most_once(
    drawn: list[tuple[int, str, int, int, int]],
) -> None:
    rows = [
        run(str(job), state, (submit, submit + wait, None if state == "RUNNING" else submit + wait + ran))
        for job, state, submit, wait, ran in drawn
    ]
    result = imported(rows)
    attempts = _keys(result.events, JobAllocated)
    ended = _keys(result.events, JobEnded)
    assert len(attempts) == len(set(attempts)) == result.counts.runs
    assert len(ended) == len(set(ended))
    assert set(ended) <= set(attempts)
    assert result.counts.runs + result.counts.doubles == len(rows)
    for subject, number in attempts:
        assert number == 1 or (subject, number - 1) in attempts


def _keys(events: list[Event], kind: type[JobAllocated | JobEnded]) -> list[tuple[str, int]]:
    return [(event.subject, event.data.attempt) for event in events if isinstance(event.data, kind)]
