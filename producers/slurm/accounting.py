"""`sacct`: rows of runs and steps, in any columns that suffice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from producers.slurm.node_lists import NodeListError, expand
from producers.slurm.runs import Run, Step
from producers.slurm.states import exit_of, job_state
from producers.slurm.tables import BadLine, Row, read_table
from producers.slurm.times import TimeReader

NEEDED: Final = frozenset({"jobid", "state", "start", "end"})
WANTED: Final = NEEDED | frozenset(
    {
        "account",
        "admincomment",
        "allocgres",
        "alloctres",
        "cluster",
        "comment",
        "container",
        "dbindex",
        "derivedexitcode",
        "exitcode",
        "jobidraw",
        "jobname",
        "nnodes",
        "nodelist",
        "partition",
        "priority",
        "reason",
        "reqgres",
        "reqmem",
        "reqnodes",
        "reqtres",
        "submit",
        "submitline",
        "systemcomment",
        "timelimit",
        "uid",
        "user",
    }
)
# Slurm's counts have 32 bits; the last of them mean that there is none (NO_VAL, INFINITE in slurm.h).
_NO_COUNT: Final = 0xFFFF_FFFC
_GPUS: Final = re.compile(r"(?:^|,)gres/gpu(?P<kind>:[^=]*)?=(?P<count>\d{1,9})(?!\d)")
_GRES_GPUS: Final = re.compile(r"(?:^|,)gpu(?::[^,:(]*)?:(\d{1,9})(?!\d)")
_WAITING_ARRAY: Final = re.compile(r"_\[")
REMARK_CHARS: Final = 500


class Accounting(NamedTuple):
    """What an export of sacct holds. `clusters` are Slurm's own names, `waiting_arrays` ids without tasks yet."""

    runs: list[Run]
    bad: list[BadLine]
    clusters: frozenset[str]
    waiting_arrays: int
    repaired: int
    has_steps: bool
    keeps_bit_7: bool


def read_accounting(lines: Iterable[str], times: TimeReader, *, what: str = "sacct") -> Accounting:
    """Return the runs in the order of the export, with their steps. Raises `TableError`."""
    table = read_table(lines, needed=NEEDED, wanted=WANTED, what=what)
    runs: list[Run] = []
    steps: list[tuple[str, str, Step]] = []
    bad = list(table.bad)
    waiting = 0
    for row in table.rows:
        try:
            job_id, _, step = row.cells["jobid"].partition(".")
            if _WAITING_ARRAY.search(job_id):
                waiting += 1
            elif step:
                steps.append((job_id, row.cells.get("dbindex", ""), _step(row, step, times)))
            else:
                runs.append(_run(row, times))
        except (ValueError, NodeListError) as error:
            bad.append(BadLine(row.line, str(error)))
    return Accounting(
        runs=_with_steps(runs, steps),
        bad=bad,
        clusters=frozenset(row.cells["cluster"] for row in table.rows if row.cells.get("cluster")),
        waiting_arrays=waiting,
        repaired=table.repaired,
        has_steps=bool(steps),
        keeps_bit_7=any(run.exit is not None and run.exit.code > 127 for run in runs),
    )


def _run(row: Row, times: TimeReader) -> Run:
    cells = row.cells
    if not cells["jobid"]:
        raise ValueError("no JobID")
    submit_ms = times.read(cells.get("submit", ""))
    start_ms = times.read(cells["start"], not_before=submit_ms)
    end_ms = times.read(cells["end"], not_before=start_ms if start_ms is not None else submit_ms)
    known_ms = next((at for at in (submit_ms, start_ms, end_ms) if at is not None), None)
    if known_ms is None:
        raise ValueError("no time at all")
    return Run(
        job_id=cells["jobid"],
        state=job_state(cells["state"]),
        exit=exit_of(cells.get("exitcode", "")),
        nodes=expand(cells.get("nodelist", "")),
        submit_ms=known_ms,
        start_ms=start_ms,
        end_ms=end_ms,
        line=row.line,
        raw_id=cells.get("jobidraw", ""),
        derived=exit_of(cells.get("derivedexitcode", "")),
        user=cells.get("user") or None,
        uid=_count(cells.get("uid", "")),
        account=cells.get("account") or None,
        name=cells.get("jobname") or None,
        partition=cells.get("partition") or None,
        priority=_count(cells.get("priority", "")),
        gpus_wanted=gpus_of(cells.get("reqtres", "")) or gres_gpus(cells.get("reqgres", "")),
        gpus_held=_held(cells),
        nodes_wanted=_count(cells.get("reqnodes", "")) or _count(cells.get("nnodes", "")) or 0,
        waited_for=cells.get("reason") if cells.get("reason") not in (None, "", "None") else None,
        submit_line=cells.get("submitline", ""),
        remarks=_remarks(cells),
        record=cells.get("dbindex", ""),
        time_limit=cells.get("timelimit", ""),
        memory=cells.get("reqmem", ""),
    )


def _step(row: Row, name: str, times: TimeReader) -> Step:
    cells = row.cells
    start_ms = times.read(cells["start"])
    return Step(
        name=name,
        state=job_state(cells["state"]),
        exit=exit_of(cells.get("exitcode", "")),
        nodes=expand(cells.get("nodelist", "")),
        start_ms=start_ms,
        end_ms=times.read(cells["end"], not_before=start_ms),
    )


def _held(cells: dict[str, str]) -> int | None:
    """Return how many GPUs the run holds; None where the export has no column that says so."""
    if cells.get("alloctres"):
        return gpus_of(cells["alloctres"])
    return gres_gpus(cells["allocgres"]) if cells.get("allocgres") else None


def gpus_of(tres: str) -> int:
    """Return the GPUs in `cpu=4,gres/gpu:h100=8,gres/gpu=8`: the untyped count, else the sum of the typed ones."""
    counts = [(found["kind"], int(found["count"])) for found in _GPUS.finditer(tres)]
    untyped = [count for kind, count in counts if kind is None]
    return untyped[0] if untyped else sum(count for _, count in counts)


def gres_gpus(gres: str) -> int:
    """Return the GPUs in the notation of older Slurm and of nodes, `gpu:h100:8(IDX:0-7)`."""
    return sum(int(count) for count in _GRES_GPUS.findall(gres))


def _count(text: str) -> int | None:
    """Return a count of Slurm's; None for a word, or for its numbers that mean none."""
    number = int(text) if text.isdigit() else _NO_COUNT
    return number if number < _NO_COUNT else None


def _remarks(cells: dict[str, str]) -> tuple[str, ...]:
    """Return what operators and plug-ins noted; a user's own comment says nothing of how the job ended."""
    found = [(name, cells.get(name, "").strip()) for name in ("admincomment", "systemcomment")]
    return tuple(f"{name}: {text[:REMARK_CHARS]}" for name, text in found if text)


def _with_steps(runs: list[Run], steps: list[tuple[str, str, Step]]) -> list[Run]:
    """Return the runs, each with the steps that are its own: by database index, else by job id and time."""
    by_index = {(run.job_id, run.record): at for at, run in enumerate(runs) if run.record}
    by_job: dict[str, list[int]] = {}
    for at, run in enumerate(runs):
        by_job.setdefault(run.job_id, []).append(at)
    found: dict[int, list[Step]] = {}
    for job_id, index, step in steps:
        owner = by_index.get((job_id, index)) if index else None
        if owner is None:
            owner = _by_time(runs, by_job.get(job_id, ()), step)
        if owner is not None:
            found.setdefault(owner, []).append(step)
    return [run._replace(steps=tuple(found.get(at, ()))) for at, run in enumerate(runs)]


def _by_time(runs: list[Run], candidates: Iterable[int], step: Step) -> int | None:
    """Return the latest of the job's runs that began no later than the step; None if there is none."""
    begun = [
        at
        for at in candidates
        if (start_ms := runs[at].start_ms) is not None and (step.start_ms is None or start_ms <= step.start_ms)
    ]
    return max(begun, key=lambda at: runs[at].start_ms or 0, default=None)
