"""A real Slurm's records of jobs that were ended on purpose: what the import makes of every trap in them."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultlens.codec import Event, encode
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
from faultlens.local import Places, replay
from faultlens.local_roles import load_roles
from faultlens.recordings import Recording
from producers.slurm.finding import find_exports
from producers.slurm.importing import Export, Imported, import_slurm
from producers.slurm.job_events import Names

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "slurm"
SHARED = ROOT.parent / "shared" / "data" / "slurm"
# A signal that root sent by hand looks like one that the program sent itself: accounting cannot know better.
UNKNOWABLE = {"1033", "1035"}


def lines(path: Path | None) -> Iterator[str] | None:
    return None if path is None else iter(path.read_text(encoding="utf-8").splitlines())


def read(folder: Path) -> Imported:
    found = find_exports(folder)
    assert found.sacct is not None
    sacct = lines(found.sacct)
    assert sacct is not None
    others = (lines(found.events), lines(found.jobs), lines(found.config), lines(found.nodes))
    return import_slurm(Export(sacct, *others), Names("lab"))


@pytest.fixture(scope="module")
def imported() -> Imported:
    return read(EXAMPLE)


@pytest.fixture(scope="module")
def ends(imported: Imported) -> dict[tuple[str, int], JobEnded]:
    return {(e.data.job_id, e.data.attempt): e.data for e in imported.events if isinstance(e.data, JobEnded)}


@pytest.fixture(scope="module")
def faults(imported: Imported) -> dict[str, list[tuple[str, int]]]:
    found: dict[str, list[tuple[str, int]]] = {}
    for event in imported.events:
        if isinstance(event.data, NodeFault):
            found.setdefault(event.subject, []).append((event.data.code, event.time_ms))
    return found


def of(imported: Imported, job: str, kind: type) -> list[Event]:
    return [event for event in imported.events if event.subject == job and isinstance(event.data, kind)]


def clock(text: str) -> int:
    hours, minutes, seconds = map(int, text.split(":"))
    return 1_795_910_400_000 + (hours * 3600 + minutes * 60 + seconds) * 1000


# --- the whole -----------------------------------------------------------------------------------------


def test_every_run_is_an_attempt_and_every_end_is_told_once(
    imported: Imported, ends: dict[tuple[str, int], JobEnded]
) -> None:
    assert imported.counts.runs == 176
    assert imported.counts.unended == 5
    assert len(ends) == 171
    assert all(not bad for bad in imported.bad.values())
    assert Counter(end.outcome for end in ends.values()) == {
        "succeeded": 66,
        "failed": 64,
        "cancelled": 17,
        "never_started": 11,
        "timed_out": 8,
        "preempted": 5,
    }


def test_every_run_that_slurm_calls_failed_is_one_failure(imported: Imported) -> None:
    raw = (EXAMPLE / "sacct_D_ALL_x1f.txt").read_text(encoding="utf-8").splitlines()
    names = raw[0].split("\x1f")
    job_id, state, end = names.index("JobID"), names.index("State"), names.index("End")
    rows = [cells for cells in (line.split("\x1f") for line in raw[1:]) if "." not in cells[job_id]]
    failed = {"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "BOOT_FAIL", "DEADLINE"}
    wanted = Counter(cells[job_id] for cells in rows if cells[state] in failed and cells[end] != "Unknown")
    told = Counter(
        event.subject
        for event in imported.events
        if isinstance(event.data, JobEnded)
        and event.data.outcome in ("failed", "timed_out", "never_started")
        and event.data.reason is not None
        and not event.data.reason.startswith(("REQUEUED", "CANCELLED"))
    )
    assert told == wanted


def test_both_accounting_files_and_both_layouts_of_the_controller_lead_to_the_same_events() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not there")
    recording = SHARED / "recording"
    made = [
        import_slurm(
            Export(
                (recording / sacct).read_text(encoding="utf-8").splitlines(),
                (recording / events).read_text(encoding="utf-8").splitlines(),
                (recording / jobs).read_text(encoding="utf-8").splitlines(),
            ),
            Names("lab"),
        ).events
        for sacct, events, jobs in (
            ("sacct_D_ALL_x1f.txt", "sacctmgr_event_epoch.psv", "scontrol_show_job_dd.txt"),
            ("sacct_D_ALL.psv", "sacctmgr_event.psv", "scontrol_show_job_dd_oneline.txt"),
        )
    ]
    assert [encode(event) for event in made[0]] == [encode(event) for event in made[1]]


# --- the state hides the cause -------------------------------------------------------------------------


def test_a_node_died_and_the_state_says_failed(
    ends: dict[tuple[str, int], JobEnded], faults: dict[str, list[tuple[str, int]]]
) -> None:
    assert (ends["1077", 1].outcome, ends["1077", 1].exit_code) == ("failed", 1)
    assert ("unexpected_reboot", clock("12:22:52")) in faults["node2"]


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("1139", "node1 set DOWN by root: jdoe: swapping NIC, ticket OPS-77"),
        ("1037", "nobody saw step batch end although its node answered: its slurmstepd is gone"),
        ("1148", "cloud1 DOWN~: ResumeTimeout reached"),
    ],
)
def test_a_node_fail_without_a_bad_node_says_what_it_was(
    ends: dict[tuple[str, int], JobEnded], job: str, message: str
) -> None:
    end = ends[job, 1]
    assert end.reason == "NODE_FAIL"
    assert message in (end.message or "").splitlines()


@pytest.mark.parametrize("node", ["node6", "node5", "rack02-gpu09"])
def test_slurmd_alone_was_gone_where_the_node_did_not_restart(
    faults: dict[str, list[tuple[str, int]]], node: str
) -> None:
    assert "daemon_lost" in {code for code, _ in faults[node]}
    assert "unexpected_reboot" not in {code for code, _ in faults[node]}


@pytest.mark.parametrize("job", ["1083", "1092"])
def test_a_failed_prolog_without_requeue_is_no_cancellation(ends: dict[tuple[str, int], JobEnded], job: str) -> None:
    assert (ends[job, 1].outcome, ends[job, 1].reason) == ("never_started", "CANCELLED by 0")


@pytest.mark.parametrize("job", ["1058", "1067"])
def test_roots_own_cancellation_is_one(ends: dict[tuple[str, int], JobEnded], job: str) -> None:
    assert (ends[job, 1].outcome, ends[job, 1].message) == ("cancelled", "cancelled by root")


@pytest.mark.parametrize("job", ["1082", "1084", "1085", "1086"])
def test_a_failed_prolog_with_requeue_never_started_and_is_tried_again(
    ends: dict[tuple[str, int], JobEnded], job: str
) -> None:
    assert (ends[job, 1].outcome, ends[job, 1].restarts_with_attempt) == ("never_started", 2)
    assert ends[job, 2].outcome == "succeeded"


def test_a_completed_job_stays_one_and_says_which_step_broke(ends: dict[tuple[str, int], JobEnded]) -> None:
    for job, step in (("1042", "step 0 OUT_OF_MEMORY 0:125"), ("1021", "step 1 FAILED 9:0"), ("1019", "step 0 FAILED")):
        assert ends[job, 1].outcome == "succeeded"
        assert step in (ends[job, 1].message or "")


def test_a_component_is_charged_with_the_node_of_its_sibling(
    imported: Imported, ends: dict[tuple[str, int], JobEnded]
) -> None:
    [allocated] = of(imported, "1105+0", JobAllocated)
    assert isinstance(allocated.data, JobAllocated)
    assert [slot.node for slot in allocated.data.allocation] == ["node7", "node8"]
    assert "node8 DOWN: Node unexpectedly rebooted" in (ends["1105+0", 1].message or "")


def test_a_time_limit_after_a_lost_slurmstepd_is_told_from_a_plain_one(ends: dict[tuple[str, int], JobEnded]) -> None:
    assert "slurmstepd is gone" not in (ends["1049", 1].message or "")
    assert all("slurmstepd is gone" in (ends[job, 1].message or "") for job in ("1036", "1038"))


def test_processes_stuck_in_the_kernel_are_told_of_their_node(faults: dict[str, list[tuple[str, int]]]) -> None:
    assert ("kill_task_failed", clock("12:29:45")) in faults["node1"]  # 1090
    assert ("kill_task_failed", clock("12:28:48")) in faults["node2"]  # 1089


def test_a_preempted_job_is_preempted_whatever_its_script_did(ends: dict[tuple[str, int], JobEnded]) -> None:
    assert {ends[job, 1].outcome for job in ("1094", "1095", "1096", "1097", "1098")} == {"preempted"}


# --- exit codes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("job", "code"), [("1003", 255), ("1009", 139), ("1018", 137), ("1023", 127)])
def test_exit_codes_have_the_bit_that_accounting_drops(
    ends: dict[tuple[str, int], JobEnded], job: str, code: int
) -> None:
    assert ends[job, 1].exit_code == code


def test_a_batch_process_that_died_of_a_signal_did_not_fail_to_launch(
    imported: Imported, ends: dict[tuple[str, int], JobEnded]
) -> None:
    assert (ends["1010", 1].outcome, ends["1010", 1].signal, ends["1010", 1].reason) == ("failed", 11, "FAILED")
    assert of(imported, "1010", JobStarted)


def test_slurms_own_numbers_are_no_signals(ends: dict[tuple[str, int], JobEnded]) -> None:
    assert (ends["1039", 1].signal, ends["1039", 1].reason) == (None, "OUT_OF_MEMORY")
    assert (ends["1028", 1].signal, ends["1070", 1].signal) == (None, None)
    assert "could not open stdout file" in (ends["1028", 1].message or "")


# --- requeues ------------------------------------------------------------------------------------------


def test_all_runs_of_a_job_are_told_in_their_order(ends: dict[tuple[str, int], JobEnded]) -> None:
    assert [ends["1074", number].reason for number in (1, 2, 3, 4)] == [
        "NODE_FAIL", "REQUEUED", "NODE_FAIL", "COMPLETED",
    ]  # fmt: skip


def test_the_reason_of_a_record_is_what_it_waited_for(imported: Imported) -> None:
    waits = [event.data for event in of(imported, "1075", JobPending)]
    assert [(w.attempt, w.reason) for w in waits if isinstance(w, JobPending)] == [(2, "ReqNodeNotAvail")]


def test_requeues_are_failures_only_where_the_run_failed(ends: dict[tuple[str, int], JobEnded]) -> None:
    assert {ends[job, 1].outcome for job in ("1116", "1117", "1118", "1099_6")} == {"failed"}
    assert {ends[job, 1].outcome for job in ("1054", "1114", "1115")} == {"cancelled"}
    assert ends["1119", 1].outcome == "succeeded"


def test_a_job_that_went_on_without_a_node_lost_it(imported: Imported, ends: dict[tuple[str, int], JobEnded]) -> None:
    [resized] = of(imported, "1079", JobResized)
    assert isinstance(resized.data, JobResized)
    assert [slot.node for slot in resized.data.lost] == ["node7"]
    assert ends["1079", 1].outcome == "succeeded"


# --- time, history, nodes, formats ---------------------------------------------------------------------


def test_a_suspended_job_that_was_cancelled_ended_with_its_processes(imported: Imported) -> None:
    [ended] = of(imported, "1121", JobEnded)
    assert ended.time_ms == clock("12:30:45")


def test_jobs_that_accounting_does_not_show_come_from_the_controller(
    imported: Imported, ends: dict[tuple[str, int], JobEnded]
) -> None:
    assert {ends[job, 1].outcome for job in ("1055", "1056", "1065")} == {"cancelled"}
    assert all(of(imported, job, JobPending) for job in ("1064", "1135", "1136", "1137"))
    assert imported.counts.waiting_arrays == 1


def test_a_request_that_no_node_can_meet_never_started(ends: dict[tuple[str, int], JobEnded]) -> None:
    for job in ("1133", "1134"):
        assert (ends[job, 1].outcome, ends[job, 1].reason) == ("never_started", "BadConstraints")


def test_names_with_the_delimiter_in_them_are_whole(imported: Imported) -> None:
    [submitted] = of(imported, "1030", JobSubmitted)
    assert isinstance(submitted.data, JobSubmitted)
    assert submitted.data.name == "lr=1e-4|bs 8,x`y` é"


def test_what_operators_did_is_told_as_an_action_and_not_as_a_fault(imported: Imported) -> None:
    acts = [e.data for e in imported.events if isinstance(e.data, NodeActed) and e.data.actor == "root"]
    assert [(act.node, act.action, act.planned) for act in acts] == [
        ("node1", "cordon", False),
        ("node2", "cordon", False),
        ("node1", "uncordon", False),
        ("node2", "uncordon", False),
    ]
    planned = {e.subject for e in imported.events if isinstance(e.data, NodeActed) and e.data.planned}
    assert planned == {"node5", "node8"}


def test_node_lists_of_several_prefixes_and_widths_are_expanded(imported: Imported) -> None:
    [allocated] = of(imported, "1147", JobAllocated)
    assert isinstance(allocated.data, JobAllocated)
    assert [slot.node for slot in allocated.data.allocation] == ["node7", "node8", "rack02-gpu09", "rack02-gpu10"]


# --- verdicts ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def verdicts(imported: Imported, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], dict[str, str]]:
    folder = tmp_path_factory.mktemp("slurm")
    recorded = folder / "events.jsonl"
    recorded.write_bytes(b"".join(encode(event) + b"\n" for event in imported.events))
    replay([Recording(str(recorded))], load_roles(), Places(out=folder / "out", fresh=True))
    found: dict[tuple[str, int], dict[str, str]] = {}
    for line in (folder / "out" / "attributions.jsonl").read_text(encoding="utf-8").splitlines():
        data = json.loads(line)["data"]
        if data["status"] in ("final", "amended"):
            found[data["job_id"], data["attempt"]] = data["cause"] | {"basis": data["basis"]}
    return found


def test_every_failure_has_a_verdict(
    verdicts: dict[tuple[str, int], dict[str, str]], ends: dict[tuple[str, int], JobEnded]
) -> None:
    failures = {key for key, end in ends.items() if end.outcome in ("failed", "timed_out", "never_started")}
    assert failures | {("1079", 1)} == set(verdicts)


def test_verdicts_are_what_was_really_done_to_the_jobs(verdicts: dict[tuple[str, int], dict[str, str]]) -> None:
    labels = SHARED / "labelled_jobs.jsonl"
    if not labels.is_file():
        pytest.skip(f"{labels} is not there")
    wrong = []
    checked = 0
    for line in labels.read_text(encoding="utf-8").splitlines():
        truth = json.loads(line)
        if truth["job"] is None or truth["staged"] or truth["source"] == "after_state_loss":
            continue
        for (job, attempt), cause in verdicts.items():
            if job.partition("_")[0].partition("+")[0] != truth["job"] or job in UNKNOWABLE:
                continue
            checked += 1
            if cause["class"] != truth["cause"]:
                wrong.append((job, attempt, truth["label"], truth["cause"], cause))
    assert wrong == []
    assert checked >= 30


def test_what_nobody_can_know_is_assumed(verdicts: dict[tuple[str, int], dict[str, str]]) -> None:
    for job in sorted(UNKNOWABLE):
        assert (verdicts[job, 1]["class"], verdicts[job, 1]["basis"]) == ("user", "assumed")
