"""From exports to events: the life of a job, and the order of everything."""

from zoneinfo import ZoneInfo

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
)
from producers.slurm.importing import Export, import_slurm
from producers.slurm.job_events import SLOTS_PER_PART, Names
from tests.unit.slurm_exports import EVENTS_HEADER, HEADER, NODE, SBATCH, T0, ends, imported, outage, run, stamp, step


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
