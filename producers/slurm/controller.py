"""`scontrol show job`, in both of its layouts: what the controller still remembers of each job's last run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from producers.slurm.accounting import gpus_of
from producers.slurm.node_lists import NodeListError, expand
from producers.slurm.states import Exit, JobState, exit_of, job_state
from producers.slurm.tables import BadLine
from producers.slurm.times import TimeReader

# Names of jobs come first and may hold anything; what is trusted begins after this.
_HEAD: Final = re.compile(r"^JobId=(?P<id>\S+)(?P<ids>(?: (?:Array|Het|Pack)\w+=\S+)*) JobName=", re.DOTALL)
_BODY: Final = re.compile(r"\s(?:HetJobIdSet=\S+\s+)?UserId=(?P<user>[^\s(]*)\((?P<uid>\d+)\) GroupId=")
_HET_SET: Final = re.compile(r"\s+(?:Het|Pack)JobIdSet=\S+$")
_FIELD: Final[dict[str, re.Pattern[str]]] = {
    name: re.compile(rf"\s{re.escape(name)}=(\S*)")
    for name in (
        "JobState",
        "Account",
        "Requeue",
        "Restarts",
        "ExitCode",
        "DerivedExitCode",
        "SubmitTime",
        "EligibleTime",
        "StartTime",
        "EndTime",
        "SuspendTime",
        "Partition",
        "NodeList",
        "TRES",
        "AllocTRES",
        "ReqTRES",
        "NumNodes",
        "Priority",
        "BatchHost",
    )
}
_REASON: Final = re.compile(r"\sReason=(.*?)\s+(?:FailedNode=|Dependency=)", re.DOTALL)
_HELD: Final = re.compile(r"\sNodes=(?P<nodes>\S+)\s+CPU_IDs=\S*\s+Mem=\S*\s+GRES=(?P<gres>\S*)")
_IDX: Final = re.compile(r"gpu[^()]*\(IDX:([\d,-]+)\)")


class Known(NamedTuple):
    """What the controller knows of a job: its last run. `devices` maps nodes to GPU indexes, while it runs."""

    job_id: str
    state: JobState
    reason: str | None
    exit: Exit | None
    submit_ms: int | None
    start_ms: int | None
    end_ms: int | None
    line: int
    suspend_ms: int | None = None
    eligible_ms: int | None = None
    restarts: int = 0
    nodes: tuple[str, ...] = ()
    user: str | None = None
    uid: int | None = None
    account: str | None = None
    name: str | None = None
    partition: str | None = None
    gpus: int = 0
    nodes_wanted: int = 0
    devices: dict[str, tuple[int, ...]] = {}

    @property
    def waiting_array(self) -> bool:
        """Whether it stands for tasks of an array that have not been told apart yet."""
        return "[" in self.job_id


class KnownJobs(NamedTuple):
    """The jobs of one `scontrol show job`, and the blocks that could not be read."""

    jobs: list[Known]
    bad: list[BadLine]


def read_known_jobs(lines: Iterable[str], times: TimeReader) -> KnownJobs:
    """Return what the controller knows, from either layout."""
    found = KnownJobs([], [])
    for line, block in _blocks(lines):
        try:
            found.jobs.append(_known(block, line, times))
        except (ValueError, NodeListError) as error:
            found.bad.append(BadLine(line, str(error)))
    return found


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield each job's text with its first line's number; a block begins with `JobId=` at the line's start."""
    begun, text = 0, ""
    for number, raw in enumerate(lines, start=1):
        line = raw.rstrip("\r\n")
        if line.startswith("JobId="):
            if begun:
                yield begun, text
            begun, text = number, line
        elif begun:
            text += "\n" + line
    if begun:
        yield begun, text


def _known(block: str, line: int, times: TimeReader) -> Known:
    head, body = _HEAD.match(block), _BODY.search(block)
    if head is None or body is None:
        raise ValueError("a job without JobName= and UserId=")
    rest = block[body.start() :]
    fields = {name: found[1] for name, pattern in _FIELD.items() if (found := pattern.search(rest))}
    reason = _REASON.search(rest)
    start_ms = times.read(fields.get("StartTime", ""))
    return Known(
        job_id=_job_id(head["id"], head["ids"]),
        state=job_state(fields.get("JobState", "")),
        reason=None if reason is None or reason[1] in ("None", "") else reason[1],
        exit=exit_of(fields.get("ExitCode", "")),
        submit_ms=times.read(fields.get("SubmitTime", "")),
        start_ms=start_ms,
        end_ms=times.read(fields.get("EndTime", ""), not_before=start_ms),
        line=line,
        suspend_ms=times.read(fields.get("SuspendTime", "")),
        eligible_ms=times.read(fields.get("EligibleTime", "")),
        restarts=int(fields.get("Restarts") or 0),
        nodes=expand(fields.get("NodeList", "")),
        user=body["user"] or None,
        uid=int(body["uid"]),
        account=_given(fields.get("Account")),
        name=_HET_SET.sub("", block[head.end() : body.start()]).strip() or None,
        partition=_given(fields.get("Partition")),
        gpus=gpus_of(fields.get("AllocTRES") or fields.get("TRES") or fields.get("ReqTRES") or ""),
        nodes_wanted=int((re.match(r"\d+", fields.get("NumNodes", "")) or ["0"])[0]),
        devices=_devices(rest),
    )


def _given(text: str | None) -> str | None:
    return None if text in (None, "", "(null)", "N/A") else text


def _job_id(raw: str, ids: str) -> str:
    """Return the id as sacct prints it: `1099_5` for a task, `1105+1` for a component."""
    more = dict(item.partition("=")[::2] for item in ids.split())
    if "ArrayJobId" in more and "ArrayTaskId" in more:
        task = more["ArrayTaskId"]
        return f"{more['ArrayJobId']}_{task if task.isdigit() else f'[{task}]'}"
    het_id = more.get("HetJobId") or more.get("PackJobId")
    if het_id is not None:
        return f"{het_id}+{more.get('HetJobOffset') or more.get('PackJobOffset') or 0}"
    return raw


def _devices(text: str) -> dict[str, tuple[int, ...]]:
    """Return the GPU indexes on each node; Slurm prints them only while the job runs."""
    found: dict[str, tuple[int, ...]] = {}
    for held in _HELD.finditer(text):
        indexes = tuple(int(number) for listed in _IDX.findall(held["gres"]) for number in expand(f"[{listed}]"))
        if indexes:
            found.update(dict.fromkeys(expand(held["nodes"]), indexes))
    return found
