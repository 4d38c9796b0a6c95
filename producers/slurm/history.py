"""From records to jobs: which records are runs of one job, and which only share an id that was given out again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from producers.slurm.controller import Known
from producers.slurm.runs import Run
from producers.slurm.states import GOES_ON, Exit, JobState


class Attempt(NamedTuple):
    """One run of a job. `stretches` are its records: more than one where it was resized while it ran.

    `exit` is the best that is known, `doubtful` whether it may have lost its bit 7.
    """

    job_id: str
    number: int
    stretches: tuple[Run, ...]
    known: Known | None = None
    exit: Exit | None = None
    doubtful: bool = False
    followed: bool = False

    @property
    def first(self) -> Run:
        """The record of its beginning."""
        return self.stretches[0]

    @property
    def last(self) -> Run:
        """The record of its end."""
        return self.stretches[-1]

    @property
    def waits(self) -> bool:
        """Whether it has not begun and may still do so."""
        return self.first.start_ms is None and self.first.state.name in ("PENDING", "REQUEUE_HOLD", "RESV_DEL_HOLD")


class Job(NamedTuple):
    """A job with its runs in the order of their start. `base` is the id without task, component or reuse."""

    job_id: str
    attempts: tuple[Attempt, ...]

    @property
    def first(self) -> Run:
        """The first record, which has what was asked for."""
        return self.attempts[0].first

    @property
    def base(self) -> str:
        """The id that its siblings in an array or a heterogeneous job share, with the reuse mark."""
        plain, tilde, again = self.job_id.partition("~")
        return plain.partition("_")[0].partition("+")[0] + tilde + again


class History(NamedTuple):
    """All jobs, by the time of their submission, and restarts of which no record is left."""

    jobs: list[Job]
    doubles: int
    restarts_unseen: int
    waiting_arrays: int


def jobs_of(runs: Sequence[Run], known: Sequence[Known] = (), *, keeps_bit_7: bool = False) -> History:
    """Return the jobs behind the records of accounting, completed by what the controller still knows."""
    distinct = _distinct(runs)
    matched = {(k.job_id, k.submit_ms): k for k in known}
    by_id: dict[str, list[Run]] = {}
    for run in distinct:
        by_id.setdefault(run.job_id, []).append(run)
    for one in known:
        mine = by_id.setdefault(one.job_id, []) if not one.waiting_array else None
        if mine is not None and _is_new(one, mine):
            mine.append(_run_of(one))
    jobs: list[Job] = []
    for job_id, records in by_id.items():
        if not records:
            continue
        for again, mine in enumerate(_told_apart(sorted(records, key=_begin_ms)), start=1):
            name = job_id if again == 1 else f"{job_id}~{again}"
            jobs.append(Job(name, _attempts(name, mine, matched, keeps_bit_7=keeps_bit_7)))
    jobs.sort(key=lambda job: (job.first.submit_ms, job.first.line, job.job_id))
    return History(
        jobs=jobs,
        doubles=len(runs) - len(distinct),
        restarts_unseen=_unseen(jobs),
        waiting_arrays=sum(k.waiting_array for k in known),
    )


def _begin_ms(run: Run) -> tuple[int, int]:
    return (run.submit_ms if run.start_ms is None else run.start_ms, run.line)


def _distinct(runs: Iterable[Run]) -> list[Run]:
    """Return the records without repetitions; of those the last one, which was written later."""
    return list({(run.job_id, run.submit_ms, run.start_ms, run.record): run for run in runs}.values())


def _is_new(known: Known, mine: Iterable[Run]) -> bool:
    """Return whether the controller knows of a run of this job that accounting has no record of."""
    return known.submit_ms is not None and not any(
        run.submit_ms == known.submit_ms or (known.start_ms is not None and run.start_ms == known.start_ms)
        for run in mine
    )


def _run_of(known: Known) -> Run:
    """Return the controller's knowledge as a record. The start of what has not begun is only an estimate."""
    began = bool(known.nodes)
    ended = known.state.name not in ("PENDING", "REQUEUE_HOLD", "RESV_DEL_HOLD", "RUNNING", "SUSPENDED", "CONFIGURING")
    return Run(
        job_id=known.job_id,
        state=known.state,
        exit=known.exit,
        nodes=known.nodes,
        submit_ms=known.submit_ms or 0,
        start_ms=known.start_ms if began else None,
        end_ms=known.end_ms if ended else None,
        line=known.line,
        user=known.user,
        uid=known.uid,
        account=known.account,
        name=known.name,
        partition=known.partition,
        gpus_wanted=known.gpus,
        gpus_held=known.gpus if began else None,
        nodes_wanted=known.nodes_wanted,
        waited_for=None if began else known.reason,
        recorded=False,
    )


def _told_apart(records: Sequence[Run]) -> list[list[Run]]:
    """Return the records by job: an id that was given out again after a reset is another job's."""
    groups: list[list[Run]] = []
    for run in records:
        if groups and _same_job(groups[-1][-1], run):
            groups[-1].append(run)
        else:
            groups.append([run])
    return groups


def _same_job(earlier: Run, later: Run) -> bool:
    if earlier.state.name not in GOES_ON:
        return False
    pairs = ((earlier.user, later.user), (earlier.name, later.name))
    return all(one is None or other is None or one == other for one, other in pairs)


def _attempts(
    job_id: str, records: Sequence[Run], matched: dict[tuple[str, int | None], Known], *, keeps_bit_7: bool
) -> tuple[Attempt, ...]:
    grouped: list[list[Run]] = []
    for run in records:
        if grouped and grouped[-1][-1].state.name == "RESIZING":
            grouped[-1].append(run)
        else:
            grouped.append([run])
    return tuple(
        _attempt(job_id, number, group, matched, keeps_bit_7=keeps_bit_7)._replace(followed=number < len(grouped))
        for number, group in enumerate(grouped, start=1)
    )


def _attempt(
    job_id: str,
    number: int,
    group: Sequence[Run],
    matched: dict[tuple[str, int | None], Known],
    *,
    keeps_bit_7: bool,
) -> Attempt:
    last = group[-1]
    known = matched.get((last.job_id, last.submit_ms))
    if known is not None and known.end_ms != last.end_ms:
        known = None if known.state.name != last.state.name else known
    best, doubtful = _best_exit(last, known, keeps_bit_7=keeps_bit_7)
    return Attempt(job_id, number, tuple(group), known, best, doubtful)


def _best_exit(run: Run, known: Known | None, *, keeps_bit_7: bool) -> tuple[Exit | None, bool]:
    """Return the controller's exit where it remembers the run: accounting of Slurm 22.05 drops bit 7 of a code."""
    if known is not None and known.exit is not None and _ended(known.state):
        return known.exit, False
    if run.exit is None:
        return None, False
    return run.exit, not keeps_bit_7 and run.exit.code != 0 and run.exit.signal == 0


def _ended(state: JobState) -> bool:
    return state.name not in ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING")


def _unseen(jobs: Iterable[Job]) -> int:
    """Return how many restarts the controller counted for which there is no record of an earlier run."""
    return sum(
        max(0, attempt.known.restarts - (attempt.number - 1))
        for job in jobs
        for attempt in job.attempts
        if attempt.known is not None
    )
