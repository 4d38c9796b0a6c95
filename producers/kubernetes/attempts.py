"""A job's attempts, by what becomes of its pods and of what made them: a pure state machine.

An attempt is a set of workers (containers). When all of them have ended, or all were restarted together, it is over and
the next one begins; when some end or are restarted while others go on, it lost them and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from faultlens.clock import MINUTE_MS, SECOND_MS
from producers.kubernetes.model import (
    Attempt,
    Ended,
    Exited,
    Happened,
    Job,
    Lost,
    Placed,
    Started,
    Step,
    Worker,
    ending_of_attempt,
)
from producers.kubernetes.owners import Group
from producers.kubernetes.runs import Ending, Run

# Workers that are restarted within this of each other are one restart of all (contract: the same loss).
TOGETHER_MS: Final = 5 * MINUTE_MS
# What a job's own controller says of its end comes a moment after its pods' ends, by another watch.
SETTLE_MS: Final = 5 * SECOND_MS
# A job that has ended has its pods taken down; those that cannot be (their node is gone) are not waited for longer.
TEAR_DOWN_MS: Final = MINUTE_MS


def with_runs(job: Job, runs: Iterable[Run], now_ms: int, group: Group) -> Step:
    """Return the job after one of its pods was seen. `group`: what that pod says of the attempt that it is of."""
    happened: list[Happened] = []
    for run in runs:
        if run.restarts > job.done.get(run.key, -1):
            job, more = _with_run(job, run, now_ms, group)
            happened += more
    return job, happened


def without_pod(job: Job, pod: str, ending: Ending, now_ms: int) -> Step:
    """Return the job after a pod was deleted: its runs that had not ended ended with that."""
    happened: list[Happened] = []
    for attempt in list(job.attempts.values()):
        for worker in attempt.workers.values():
            if worker.run.pod == pod:
                job, more = _gone(job, job.attempts[attempt.number], worker, ending)
                happened += more
    gone = {key: restarts for key, restarts in job.done.items() if not key.startswith(f"{pod}/")}
    return _seen_over(replace(job, done=gone), now_ms), happened


def in_trouble(job: Job, pod: str, trouble: tuple[str, str]) -> Job:
    """Return the job with the reason noted for which one of its pods does not start."""
    for attempt in job.attempts.values():
        told = {
            key: replace(w, run=replace(w.run, trouble=trouble))
            for key, w in attempt.workers.items()
            if w.run.pod == pod and w.run.started_ms is None
        }
        if told:
            job = _keep(job, replace(attempt, workers={**attempt.workers, **told}))
    return job


def settled(job: Job, now_ms: int) -> Step:
    """Return the job with the attempts ended whose end is due."""
    happened: list[Happened] = []
    podless_ms = _podless_ms(job)
    if podless_ms is not None and now_ms >= podless_ms:
        # It never came to a pod.
        job = replace(job, last=1, attempts={1: Attempt(number=1, over_ms=now_ms - SETTLE_MS)})
    for attempt in list(job.attempts.values()):
        due = _due_ms(job, attempt)
        if due is not None and now_ms >= due:
            job, more = _ended(job, attempt, None)
            happened += more
    return job, happened


def due_ms(job: Job) -> int | None:
    """Return when something of the job is due if nothing is heard of it; None: nothing."""
    waits = [_podless_ms(job), *(_due_ms(job, attempt) for attempt in job.attempts.values())]
    return min((due for due in waits if due is not None), default=None)


def _podless_ms(job: Job) -> int | None:
    """Return when a job that has ended is taken to have had no pods; theirs are another watch, which may be behind."""
    if job.last or (job.word is None and job.gone_ms is None):
        return None
    return (job.word_ms if job.word is not None else job.gone_ms or 0) + TEAR_DOWN_MS


def _due_ms(job: Job, attempt: Attempt) -> int | None:
    """Return when the attempt's end is told; None: it goes on."""
    if attempt.over_ms is not None:
        return attempt.over_ms + SETTLE_MS
    return None if job.word is None else job.word_ms + TEAR_DOWN_MS


# --- one run -------------------------------------------------------------------------------------------


def _with_run(job: Job, run: Run, now_ms: int, group: Group) -> Step:
    attempt = next((a for a in job.attempts.values() if run.key in a.workers), None)
    if attempt is None:
        job, attempt, happened = _joined(job, run, group)
        if attempt is None:
            return job, happened
    else:
        happened = []
    worker = attempt.workers[run.key]
    if run.restarts > worker.run.restarts:
        job, attempt, more = _restarted(job, attempt, worker, run)
        happened += more
        worker = attempt.workers[run.key]
    worker = replace(worker, run=replace(run, trouble=_more_telling(worker.run.trouble, run.trouble)))
    job, attempt, more = _placed(job, attempt, worker)
    happened += more
    job, more = _started(job, attempt.number)
    happened += more
    if run.ending is not None and worker.ending is None:
        attempt = job.attempts[attempt.number]
        job, more = _exited(job, attempt, attempt.workers[run.key], run.ending)
        happened += more
    return _seen_over(job, now_ms), happened


def _more_telling(known: tuple[str, str] | None, told: tuple[str, str] | None) -> tuple[str, str] | None:
    """Return the longer word: that it waits before it tries again says less than what went wrong."""
    return max((t for t in (told, known) if t is not None), key=lambda trouble: len(trouble[1]), default=None)


def _joined(job: Job, run: Run, group: Group) -> tuple[Job, Attempt | None, list[Happened]]:
    """Return the attempt that a new worker belongs to, the next one if the present one is over."""
    happened: list[Happened] = []
    current = job.attempts.get(job.last)
    if current is None and job.word is not None and (job.last or run.ending is not None):
        return job, None, []  # what is left of a job whose end was told, or that had ended before anybody looked
    if job.owner.word.replica:
        current = _same_replica(job, group)
    elif current is not None and (_is_of_another(current, group) or not _going_on(current)):
        job, happened = _ended(job, current, job.last + 1)
        if _is_of_another(current, group):
            # What is left of it is seen until it is deleted, and is not of the attempt that comes after.
            left = {key: w.run.restarts for key, w in current.workers.items() if not w.gone}
            job = replace(job, done={**job.done, **left})
        current = None
    if current is None:
        current = Attempt(number=job.last + 1, generation=group.name, pods=group.pods)
        job = replace(job, last=current.number)
    else:
        current, happened = _with_losses_told(replace(current, generation=current.generation or group.name))
    rank = run.rank if run.rank is not None else len(current.workers)
    current = replace(current, workers={**current.workers, run.key: Worker(run=run, rank=rank)})
    return _keep(job, current), current, happened


def _is_of_another(attempt: Attempt, group: Group) -> bool:
    return bool(group.name and attempt.generation) and attempt.generation != group.name


def _same_replica(job: Job, group: Group) -> Attempt | None:
    """Return the attempt of a replica of several pods that is still being put together, or goes on whole."""
    same = (a for a in job.attempts.values() if group.name and a.generation == group.name)
    return next((a for a in same if all(w.ending is None and not w.gone for w in a.workers.values())), None)


def _going_on(attempt: Attempt, but: str = "") -> bool:
    """Return whether a worker of the attempt has not ended, or has done its part well."""
    return any(
        worker.ending is None or worker.ending.outcome == "succeeded"
        for key, worker in attempt.workers.items()
        if key != but
    )


def _with_losses_told(attempt: Attempt) -> tuple[Attempt, list[Happened]]:
    """Return that the attempt goes on without the workers that failed, now that another takes a place."""
    lost = tuple(w for w in attempt.workers.values() if w.ending is not None and w.ending.failed and not w.lost)
    if not lost:
        return attempt, []
    told = {w.run.key: replace(w, lost=True) for w in lost}
    attempt = replace(attempt, workers={**attempt.workers, **told})
    return attempt, [Lost(attempt, lost, min(w.ending.at_ms for w in lost if w.ending is not None))]


def _restarted(job: Job, attempt: Attempt, worker: Worker, run: Run) -> tuple[Job, Attempt, list[Happened]]:
    """Return what follows from a restart in place: the next attempt if nobody goes on, else a loss."""
    happened: list[Happened] = []
    ending = worker.ending or run.previous or Ending(outcome="failed", at_ms=run.started_ms or 0, reason="Restarted")
    if worker.ending is None:
        happened.append(Exited(attempt, worker, ending))
    ended = replace(worker, ending=ending)
    attempt = replace(attempt, workers={**attempt.workers, run.key: ended})
    others = [w for key, w in attempt.workers.items() if key != run.key]
    again = replace(worker, run=run, ending=None, restarted_ms=ending.at_ms, placed="")
    if any(_stayed(other, ending.at_ms) for other in others):
        happened.append(Lost(attempt, (ended,), ending.at_ms))
        attempt = replace(attempt, workers={**attempt.workers, run.key: replace(again, placed=worker.placed)})
        return _keep(job, attempt), attempt, happened
    job, more = _ended(job, attempt, job.last + 1)
    anew = {w.run.key: replace(w, placed="", restarted_ms=None) for w in others if w.ending is None}
    workers = {**anew, run.key: replace(again, restarted_ms=None)}
    fixed = Attempt(number=job.last + 1, generation=attempt.generation, pods=attempt.pods)
    new = replace(fixed, workers=workers, began_ms=ending.at_ms)
    return _keep(replace(job, last=new.number), new), new, happened + more


def _stayed(worker: Worker, at_ms: int) -> bool:
    """Return whether a worker went on while another was restarted."""
    if worker.ending is not None:
        return worker.ending.outcome == "succeeded"
    return worker.restarted_ms is None or abs(at_ms - worker.restarted_ms) > TOGETHER_MS


def _placed(job: Job, attempt: Attempt, worker: Worker) -> tuple[Job, Attempt, list[Happened]]:
    """Return that the worker has its node, once it is known which devices it was given there."""
    run = worker.run
    place = "" if run.node is None else f"{run.node} {' '.join(run.refs or ())}"
    is_known = run.refs is not None or run.started_ms is not None or run.ending is not None
    happened: list[Happened] = []
    if place and is_known and worker.placed != place:
        worker = replace(worker, placed=place)
        attempt = replace(attempt, workers={**attempt.workers, run.key: worker})
        happened.append(Placed(attempt, worker, attempt.started_ms is not None))
    attempt = replace(attempt, workers={**attempt.workers, run.key: worker})
    return _keep(job, attempt), attempt, happened


def _started(job: Job, number: int) -> Step:
    attempt = job.attempts.get(number)
    if attempt is None or attempt.started_ms is not None:
        return job, []
    begun = [w.run.started_ms for w in attempt.workers.values() if w.run.started_ms is not None]
    wanted = attempt.pods or (1 if job.owner.word.replica else job.pods_asked)
    if len(begun) < len(attempt.workers) or len({w.run.pod for w in attempt.workers.values()}) < wanted:
        return job, []
    attempt = replace(attempt, started_ms=max(begun))
    return _keep(job, attempt), [Started(attempt, max(begun))]


def _exited(job: Job, attempt: Attempt, worker: Worker, ending: Ending) -> Step:
    ended = replace(worker, ending=ending)
    attempt = replace(attempt, workers={**attempt.workers, worker.run.key: ended})
    return _keep(job, attempt), [Exited(attempt, ended, ending)]


def _gone(job: Job, attempt: Attempt, worker: Worker, ending: Ending) -> Step:
    gone = replace(worker, gone=True)
    if worker.ending is None:
        return _exited(job, attempt, gone, ending)
    return _keep(job, replace(attempt, workers={**attempt.workers, worker.run.key: gone})), []


def _seen_over(job: Job, now_ms: int) -> Job:
    """Return the job with those attempts marked whose workers have all ended."""
    for attempt in job.attempts.values():
        over = all(worker.ending is not None for worker in attempt.workers.values())
        if over and attempt.over_ms is None:
            job = _keep(job, replace(attempt, over_ms=now_ms))
        elif not over and attempt.over_ms is not None:
            job = _keep(job, replace(attempt, over_ms=None))
    return job


def _keep(job: Job, attempt: Attempt) -> Job:
    return replace(job, attempts={**job.attempts, attempt.number: attempt})


# --- the end of an attempt -----------------------------------------------------------------------------


def _ended(job: Job, attempt: Attempt, following: int | None) -> Step:
    left = {number: other for number, other in job.attempts.items() if number != attempt.number}
    done = {key: w.run.restarts for key, w in attempt.workers.items() if w.ending is not None and not w.gone}
    return replace(job, attempts=left, done={**job.done, **done}), [
        Ended(attempt, ending_of_attempt(job, attempt), following)
    ]
