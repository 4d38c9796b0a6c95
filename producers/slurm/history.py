"""From records to jobs: which records are runs of one job, and which only share an id that was given out again."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from producers.slurm.controller import Known
from producers.slurm.places import Key, Place
from producers.slurm.runs import Run
from producers.slurm.states import ENDED, GOES_ON, Exit, JobState


class Attempt(NamedTuple):
    """One run of a job. `stretches` are its records: more than one where it was resized while it ran.

    `exit` is the best that is known, `doubtful` whether it may have lost its bit 7; `submitted_ms` its first record's.
    """

    job_id: str
    number: int
    stretches: tuple[Run, ...]
    submitted_ms: int
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
    def was_resized(self) -> bool:
        """Whether there are, or were, records of it before the last one."""
        return len(self.stretches) > 1 or self.first.submit_ms != self.submitted_ms

    @property
    def waits(self) -> bool:
        """Whether it has not begun and may still do so."""
        return self.first.start_ms is None and self.first.state.name in ("PENDING", "REQUEUE_HOLD", "RESV_DEL_HOLD")


class Job(NamedTuple):
    """A job with its runs in the order of their start. `base` is the id without task, component or reuse.

    `submitted_ms`: when its first run was submitted, which may not be among these any more.
    """

    job_id: str
    attempts: tuple[Attempt, ...]
    submitted_ms: int

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


def jobs_of(
    runs: Sequence[Run],
    known: Sequence[Known] = (),
    *,
    keeps_bit_7: bool = False,
    places: Mapping[Key, Place] = MappingProxyType({}),
) -> History:
    """Return the jobs behind the records of accounting, completed by what the controller still knows.

    `places`: what is remembered of runs whose job had others before them.
    """
    distinct = _distinct(runs)
    matched = {(k.job_id, k.submit_ms): k for k in known}
    restarted = {name for name, one in matched.items() if one.restarts}
    by_id: dict[str, list[Run]] = {}
    for run in distinct:
        by_id.setdefault(run.job_id, []).append(run)
    for one in known:
        mine = by_id.setdefault(one.job_id, []) if not one.waiting_array else None
        if mine is not None and _is_new(one, mine, places):
            mine.append(_run_of(one))
    jobs: list[Job] = []
    for job_id, records in by_id.items():
        if not records:
            continue
        again = 0
        for mine in _told_apart(sorted(records, key=_begin_ms), restarted):
            again += 1
            place = places.get((job_id, mine[0].submit_ms)) or _first_place(job_id, again, mine[0].submit_ms)
            again = int(place.job_id.partition("~")[2] or 1)
            jobs.append(Job(place.job_id, _attempts(place, mine, matched, keeps_bit_7=keeps_bit_7), place.job_ms))
    jobs.sort(key=lambda job: (job.first.submit_ms, job.first.line, job.job_id))
    return History(
        jobs=jobs,
        doubles=len(runs) - len(distinct),
        restarts_unseen=_unseen(jobs),
        waiting_arrays=sum(k.waiting_array for k in known),
    )


def _first_place(job_id: str, again: int, submit_ms: int) -> Place:
    name = job_id if again == 1 else f"{job_id}~{again}"
    return Place(name, submit_ms, 1, submit_ms)


def places_of(jobs: Iterable[Job]) -> dict[Key, Place]:
    """Return the places of the runs that are not their job's only one, or do not have its id to themselves."""
    return {
        (run.job_id, run.submit_ms): Place(job.job_id, job.submitted_ms, attempt.number, attempt.submitted_ms)
        for job in jobs
        if "~" in job.job_id or len(job.attempts) > 1 or job.attempts[0].number > 1 or job.attempts[0].was_resized
        for attempt in job.attempts
        for run in attempt.stretches
    }


def _begin_ms(run: Run) -> tuple[int, int]:
    return (run.submit_ms if run.start_ms is None else run.start_ms, run.line)


def _distinct(runs: Iterable[Run]) -> list[Run]:
    """Return the records without repetitions; of those the last one, which was written later."""
    return list({(run.job_id, run.submit_ms, run.start_ms, run.record): run for run in runs}.values())


def _is_new(known: Known, mine: Iterable[Run], places: Mapping[Key, Place]) -> bool:
    """Return whether the controller knows of a run of this job that accounting has no record of.

    For accounting a run that was resized was submitted then, and for the controller when it was at first.
    """
    submitted = {run.submit_ms for run in mine}
    submitted |= {place.run_ms for run in mine if (place := places.get((run.job_id, run.submit_ms))) is not None}
    begun = known.start_ms is not None and any(run.start_ms == known.start_ms for run in mine)
    return known.submit_ms is not None and known.submit_ms not in submitted and not begun


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


def _told_apart(records: Sequence[Run], restarted: Container[tuple[str, int | None]]) -> list[list[Run]]:
    """Return the records by job: an id that was given out again after a reset is another job's.

    `restarted`: what the controller says of itself that it was started again; also what had ended well can be.
    """
    groups: list[list[Run]] = []
    for run in records:
        if groups and _same_job(groups[-1][-1], run, is_again=(run.job_id, run.submit_ms) in restarted):
            groups[-1].append(run)
        else:
            groups.append([run])
    return groups


def _same_job(earlier: Run, later: Run, *, is_again: bool) -> bool:
    """Return whether a record is of the same job. What has not ended for accounting has, where the controller knows of
    a later run: accounting is behind."""
    is_behind = earlier.recorded and not later.recorded and earlier.state.name not in ENDED
    if earlier.state.name not in GOES_ON and not is_behind and not is_again:
        return False
    pairs = ((earlier.user, later.user), (earlier.name, later.name))
    return all(one is None or other is None or one == other for one, other in pairs)


def _attempts(
    place: Place, records: Sequence[Run], matched: dict[tuple[str, int | None], Known], *, keeps_bit_7: bool
) -> tuple[Attempt, ...]:
    grouped: list[list[Run]] = []
    for run in records:
        if grouped and grouped[-1][-1].state.name == "RESIZING":
            grouped[-1].append(run)
        else:
            grouped.append([run])
    began = [place.run_ms, *(group[0].submit_ms for group in grouped[1:])]
    return tuple(
        _attempt(Place(place.job_id, place.job_ms, number, run_ms), group, matched, keeps_bit_7=keeps_bit_7)._replace(
            followed=group is not grouped[-1]
        )
        for number, (run_ms, group) in enumerate(zip(began, grouped, strict=True), start=place.number)
    )


def _attempt(
    place: Place,
    group: Sequence[Run],
    matched: dict[tuple[str, int | None], Known],
    *,
    keeps_bit_7: bool,
) -> Attempt:
    last = group[-1]
    known = matched.get((last.job_id, last.submit_ms)) or matched.get((last.job_id, place.run_ms))
    if known is not None and known.end_ms != last.end_ms:
        known = None if known.state.name != last.state.name else known
    best, doubtful = _best_exit(last, known, keeps_bit_7=keeps_bit_7)
    return Attempt(place.job_id, place.number, tuple(group), place.run_ms, known, best, doubtful)


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
