"""From rows to jobs: which records are runs of one job, what their steps are, and which exit is believed."""

import pytest

from producers.slurm.accounting import Accounting, gpus_of, gres_gpus, read_accounting
from producers.slurm.controller import read_known_jobs
from producers.slurm.history import History, jobs_of
from producers.slurm.states import Exit, JobState, exit_of, job_state, node_state
from producers.slurm.tables import TableError
from producers.slurm.times import TimeReader

HEADER = "JobID|JobName|User|State|ExitCode|NodeList|Submit|Start|End|AllocTRES|DBIndex"
TRES = "cpu=1,gres/gpu:h100=8,gres/gpu=8,node=1"


def row(
    job: str,
    state: str,
    *,
    at: tuple[str, str, str] = ("10", "20", "30"),
    exit_: str = "0:0",
    nodes: str = "node1",
    name: str = "train",
    index: str = "",
) -> str:
    times = "|".join(at_ if not at_.isdigit() else str(1_795_954_000 + int(at_)) for at_ in at)
    return f"{job}|{name}|ann|{state}|{exit_}|{nodes}|{times}|{TRES}|{index}"


def accounting(*rows: str) -> Accounting:
    return read_accounting([HEADER, *rows], TimeReader())


def history(*rows: str, known: str = "") -> History:
    read = accounting(*rows)
    jobs = read_known_jobs(known.splitlines(), TimeReader()).jobs
    return jobs_of(read.runs, jobs, keeps_bit_7=read.keeps_bit_7)


def scontrol(job: str, *, state: str, submit: str, start: str = "Unknown", end: str = "Unknown", more: str = "") -> str:
    return (
        f"JobId={job} JobName=train\n   UserId=ann(5) GroupId=ann(5) MCS_label=N/A\n"
        f"   JobState={state} Reason=NonZeroExitCode Dependency=(null)\n   Requeue=1 Restarts=0 ExitCode=139:0\n"
        f"   SubmitTime={submit} EligibleTime={submit}\n   StartTime={start} EndTime={end} Deadline=N/A\n"
        f"   ReqNodeList=(null) ExcNodeList=node[8-9]\n   NodeList=node1\n   TRES=cpu=1,node=1,gres/gpu=4\n{more}\n"
    )


def test_a_requeued_job_has_an_attempt_for_each_run_in_the_order_of_their_start() -> None:
    [job] = history(
        row("7", "COMPLETED", at=("60", "70", "80")),
        row("7", "NODE_FAIL", at=("10", "20", "30")),
        row("7", "PREEMPTED", at=("30", "40", "60")),
    ).jobs
    assert [(a.number, a.last.state.name, a.followed) for a in job.attempts] == [
        (1, "NODE_FAIL", True),
        (2, "PREEMPTED", True),
        (3, "COMPLETED", False),
    ]


def test_an_id_that_is_given_out_again_after_an_end_is_another_job() -> None:
    jobs = history(
        row("7", "COMPLETED"), row("7", "FAILED", at=("90", "91", "92")), row("7", "COMPLETED", at=("95", "96", "97"))
    ).jobs
    assert [job.job_id for job in jobs] == ["7", "7~2", "7~3"]


def test_an_id_whose_owner_or_name_differs_is_another_job_although_the_first_could_have_gone_on() -> None:
    jobs = history(row("7", "NODE_FAIL"), row("7", "COMPLETED", at=("90", "91", "92"), name="other")).jobs
    assert [job.job_id for job in jobs] == ["7", "7~2"]


def test_records_before_and_after_a_resize_are_one_attempt() -> None:
    [job] = history(
        row("7", "RESIZING", nodes="node[1-2]", at=("10", "20", "30")),
        row("7", "COMPLETED", nodes="node1", at=("30", "30", "40")),
    ).jobs
    [attempt] = job.attempts
    assert [run.nodes for run in attempt.stretches] == [("node1", "node2"), ("node1",)]


def test_a_record_that_stands_twice_counts_once() -> None:
    read = history(row("7", "FAILED"), row("8", "FAILED"), row("7", "FAILED"))
    assert (len(read.jobs), read.doubles) == (2, 1)


def test_array_tasks_and_components_keep_the_id_that_sacct_prints() -> None:
    jobs = history(row("1099_5", "COMPLETED"), row("1105+1", "COMPLETED"), row("1099_6", "COMPLETED")).jobs
    assert {job.job_id: job.base for job in jobs} == {"1099_5": "1099", "1099_6": "1099", "1105+1": "1105"}


def test_an_array_that_waits_for_its_tasks_is_counted_and_makes_no_job() -> None:
    read = accounting(row("1100_[1-9,21-32%2]", "PENDING", at=("10", "Unknown", "Unknown"), nodes="None assigned"))
    assert (read.runs, read.waiting_arrays, read.bad) == ([], 1, [])


def test_steps_belong_to_the_run_with_their_database_index_or_else_to_the_run_they_began_in() -> None:
    runs = accounting(
        row("7", "NODE_FAIL", at=("10", "20", "30"), index="1"),
        row("7", "COMPLETED", at=("30", "40", "50"), index="2"),
        row("7.batch", "CANCELLED", at=("20", "20", "30"), exit_="", index="1"),
        row("7.batch", "COMPLETED", at=("40", "40", "50"), index=""),
        row("9.0", "COMPLETED"),
    ).runs
    assert [[step.exit for step in run.steps] for run in runs] == [[None], [Exit(0, 0)]]
    assert [run.was_launched for run in runs] == [False, True]


def test_rows_that_cannot_be_read_are_named_and_stop_nothing() -> None:
    read = accounting(
        row("1", "COMPLETED"),
        row("2", "EXPLODED"),
        row("3", "FAILED", at=("10", "soon", "30")),
        row("4", "FAILED", nodes="node[1-"),
        row("5", "FAILED", exit_="one"),
        row("6", "FAILED"),
    )
    assert [run.job_id for run in read.runs] == ["1", "6"]
    assert [bad.line for bad in read.bad] == [3, 4, 5, 6]
    assert [bad.why.partition(":")[0] for bad in read.bad] == [
        "not a job state", "not a time", "unbalanced brackets", "not an exit code",
    ]  # fmt: skip


def test_the_controllers_exit_is_believed_where_accounting_drops_bit_7() -> None:
    known = scontrol("7", state="FAILED", submit="1795954010", start="1795954020", end="1795954030")
    [job] = history(row("7", "FAILED", exit_="11:0"), known=known).jobs
    assert (job.attempts[0].exit, job.attempts[0].doubtful) == (Exit(139, 0), False)


def test_without_the_controller_a_lost_bit_7_is_only_a_doubt() -> None:
    jobs = history(row("7", "FAILED", exit_="11:0"), row("8", "FAILED", exit_="0:11"), row("9", "COMPLETED")).jobs
    assert [(job.attempts[0].exit, job.attempts[0].doubtful) for job in jobs] == [
        (Exit(11, 0), True),
        (Exit(0, 11), False),
        (Exit(0, 0), False),
    ]


def test_an_accounting_that_prints_large_codes_drops_no_bit() -> None:
    jobs = history(row("7", "FAILED", exit_="11:0"), row("8", "FAILED", exit_="255:0")).jobs
    assert [job.attempts[0].doubtful for job in jobs] == [False, False]


def test_a_job_that_only_the_controller_knows_is_a_job_too() -> None:
    known = scontrol("8", state="PENDING", submit="1795954010", start="1795999999").replace(
        "NodeList=node1", "NodeList="
    )
    jobs = history(row("7", "COMPLETED"), known=known).jobs
    waiting = next(job for job in jobs if job.job_id == "8").attempts[0]
    assert waiting.waits
    assert waiting.first.start_ms is None


def test_a_requeued_job_that_waits_again_gets_its_next_attempt_from_the_controller() -> None:
    known = scontrol("7", state="PENDING", submit="1795954030").replace("NodeList=node1", "NodeList=")
    [job] = history(row("7", "NODE_FAIL"), known=known).jobs
    assert [attempt.last.state.name for attempt in job.attempts] == ["NODE_FAIL", "PENDING"]


def test_restarts_without_a_record_are_counted() -> None:
    known = scontrol("7", state="COMPLETED", submit="1795954010", start="1795954020", end="1795954030")
    assert history(row("7", "COMPLETED"), known=known.replace("Restarts=0", "Restarts=2")).restarts_unseen == 2


def test_both_layouts_of_the_controller_say_the_same() -> None:
    block = scontrol(
        "1127",
        state="RUNNING",
        submit="1795954010",
        start="1795954020",
        more="   JOB_GRES=gpu:h100:4\n     Nodes=node1 CPU_IDs=0 Mem=200 GRES=gpu:h100:4(IDX:0-2,5)\n",
    ).replace("JobId=1127", "JobId=1127 ArrayJobId=1099 ArrayTaskId=5")
    oneline = " ".join(line.strip() for line in block.splitlines())
    [one], [other] = (read_known_jobs(text.splitlines(), TimeReader()).jobs for text in (block, oneline))
    assert one == other
    assert (one.job_id, one.devices, one.nodes, one.gpus) == ("1099_5", {"node1": (0, 1, 2, 5)}, ("node1",), 4)


def test_a_name_that_looks_like_fields_misleads_neither_layout() -> None:
    block = scontrol("7", state="FAILED", submit="1795954010")
    named = block.replace("JobName=train", "JobName=a JobState=COMPLETED NodeList=evil[1-9] b=c")
    [job] = read_known_jobs([" ".join(line.strip() for line in named.splitlines())], TimeReader()).jobs
    assert (job.state.name, job.nodes, job.name) == (
        "FAILED",
        ("node1",),
        "a JobState=COMPLETED NodeList=evil[1-9] b=c",
    )


def test_excluded_and_wanted_nodes_are_not_the_nodes_of_the_job() -> None:
    [job] = read_known_jobs(scontrol("7", state="FAILED", submit="1795954010").splitlines(), TimeReader()).jobs
    assert job.nodes == ("node1",)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 5", JobState("CANCELLED", 5)),
        ("CANCELLED+", JobState("CANCELLED")),
        ("OUT_OF_ME+", JobState("OUT_OF_MEMORY")),
        ("NODE_FAIL", JobState("NODE_FAIL")),
    ],
)
def test_states_have_arguments_and_may_be_cut(text: str, state: JobState) -> None:
    assert job_state(text) == state


@pytest.mark.parametrize("text", ["RE+", "DONE", "", "cancelled by 5"])
def test_a_state_that_could_be_several_or_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a job state"):
        job_state(text)


def test_node_states_have_suffixes() -> None:
    assert [node_state(text) for text in ("DOWN*", "IDLE~", "BOOT^", "drain")] == [
        ("DOWN", "*"), ("IDLE", "~"), ("BOOT", "^"), ("DRAIN", ""),
    ]  # fmt: skip


def test_no_exit_is_not_a_clean_exit() -> None:
    assert exit_of("") is None
    assert exit_of("0:0") == Exit(0, 0)
    assert exit_of("0:125") == Exit(0, 125)


def test_gpus_are_counted_once_whatever_they_are_called() -> None:
    assert gpus_of("cpu=1,gres/gpu:h100=8,gres/gpu=8") == 8
    assert gpus_of("gres/gpu:a100=2,gres/gpu:h100=1") == 3
    assert gpus_of("cpu=1,node=1") == 0
    assert gres_gpus("gpu:h100:8(IDX:0-7)") == 8
    assert gres_gpus("gpu:4") == 4
    assert gres_gpus("gpu:" + "4" * 5_000) == gpus_of("gres/gpu=" + "4" * 5_000) == 0


def test_numbers_by_which_slurm_means_none_are_none() -> None:
    table = [
        "JobID|State|Start|End|NNodes|UID|Priority",
        "1|FAILED|1795954000|1795954060|4294967294|4294967294|4294967295",
        "2|FAILED|1795954000|1795954060|4|1000|4294901757",
    ]
    none, some = read_accounting(table, TimeReader()).runs
    assert (none.nodes_wanted, none.uid, none.priority) == (0, None, None)
    assert (some.nodes_wanted, some.uid, some.priority) == (4, 1000, 4294901757)


def test_an_export_without_what_is_needed_says_which_column_to_add() -> None:
    with pytest.raises(TableError, match="no column end, start"):
        read_accounting(["JobID|State", "1|FAILED"], TimeReader())
