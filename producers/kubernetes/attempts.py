"""A job's attempts, by what becomes of its pods and of what made them: a pure state machine.

An attempt is a set of workers (containers). When all of them have ended, or all were restarted together, it is over and
the next one begins; when some end or are restarted while others go on, it lost them and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import MINUTE_MS, SECOND_MS
from faultlens.events import Outcome
from producers.kubernetes.owners import Owner, Word
from producers.kubernetes.runs import Ending, Run

# Workers that are restarted within this of each other are one restart of all (contract: the same loss).
TOGETHER_MS: Final = 5 * MINUTE_MS
# What a job's own controller says of its end comes a moment after its pods' ends, by another watch.
SETTLE_MS: Final = 5 * SECOND_MS
# A job that has ended has its pods taken down; those that cannot be (their node is gone) are not waited for longer.
TEAR_DOWN_MS: Final = MINUTE_MS


class Worker(Struct, frozen=True, kw_only=True):
    """A container as a worker of an attempt. `restarted_ms`: when its run before ended, if within this attempt.

    `placed`: its node was told; `lost`: its end was told as the attempt's loss; `gone`: its pod is not there any more.
    """

    run: Run
    rank: int
    ending: Ending | None = None
    restarted_ms: int | None = None
    placed: str = ""
    lost: bool = False
    gone: bool = False


class Attempt(Struct, frozen=True, kw_only=True):
    """An attempt that goes on, or whose end is about to be told. `over_ms`: when it was seen that all had ended.

    `began_ms`: not before that its workers hold what they hold for it, since they held it for the attempt before.
    """

    number: int
    workers: dict[str, Worker] = {}
    started_ms: int | None = None
    over_ms: int | None = None
    began_ms: int = 0
    alive_ms: int = 0
    generation: str = ""


class Job(Struct, frozen=True, kw_only=True):
    """A job. `last`: its newest attempt's number; `attempts`: those whose end was not told; `gone_ms`: when its owner
    was deleted; `word`: what its owner says of its end, `word_ms` when that was seen; `done`: of each container that is
    still there up to which restart its runs were told.
    """

    owner: Owner
    job_id: str
    last: int = 0
    attempts: dict[int, Attempt] = {}
    done: dict[str, int] = {}
    word: Word | None = None
    word_ms: int = 0
    gone_ms: int | None = None
    suspended_ms: int | None = None
    pods_asked: int = 0
    submitted: str = ""
    pending: str = ""


class Placed(Struct, frozen=True):
    """A worker was given its node; `grown`: while the attempt ran already."""

    attempt: Attempt
    worker: Worker
    grown: bool


class Started(Struct, frozen=True):
    """All workers run."""

    attempt: Attempt
    at_ms: int


class Exited(Struct, frozen=True):
    """A worker's run ended."""

    attempt: Attempt
    worker: Worker
    ending: Ending


class Lost(Struct, frozen=True):
    """Workers were lost, and the attempt goes on."""

    attempt: Attempt
    workers: tuple[Worker, ...]
    at_ms: int


class Ended(Struct, frozen=True):
    """The attempt is over. `following`: the number of the next one, where that has begun."""

    attempt: Attempt
    ending: Ending
    following: int | None


Happened = Placed | Started | Exited | Lost | Ended
Step = tuple[Job, list[Happened]]


def with_runs(job: Job, runs: Iterable[Run], now_ms: int, generation: str = "") -> Step:
    """Return the job after one of its pods was seen. `generation`: what its controller counts restarts of all by."""
    happened: list[Happened] = []
    for run in runs:
        if run.restarts > job.done.get(run.key, -1):
            job, more = _with_run(job, run, now_ms, generation)
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


def _with_run(job: Job, run: Run, now_ms: int, generation: str) -> Step:
    attempt = next((a for a in job.attempts.values() if run.key in a.workers), None)
    if attempt is None:
        job, attempt, happened = _joined(job, run, generation)
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


def _joined(job: Job, run: Run, generation: str) -> tuple[Job, Attempt | None, list[Happened]]:
    """Return the attempt that a new worker belongs to, the next one if the present one is over."""
    happened: list[Happened] = []
    current = job.attempts.get(job.last)
    if current is None and job.word is not None and (job.last or run.ending is not None):
        return job, None, []  # what is left of a job whose end was told, or that had ended before anybody looked
    is_next = current is None or job.owner.word.replica
    if current is not None and not is_next:
        is_next = current.generation != generation or not _going_on(current)
        if is_next:
            job, happened = _ended(job, current, job.last + 1)
    if is_next or current is None:
        current = Attempt(number=job.last + 1, generation=generation)
        job = replace(job, last=current.number)
    else:
        current, happened = _with_losses_told(current)
    rank = run.rank if run.rank is not None else len(current.workers)
    current = replace(current, workers={**current.workers, run.key: Worker(run=run, rank=rank)})
    return _keep(job, current), current, happened


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
    new = Attempt(number=job.last + 1, workers=workers, began_ms=ending.at_ms, generation=attempt.generation)
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
    wanted = 1 if job.owner.word.replica else job.pods_asked
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


def ending_of_attempt(job: Job, attempt: Attempt) -> Ending:
    """Return how the attempt ended: as its owner says, in the words of the first of its workers that failed."""
    endings = [w.ending for w in attempt.workers.values() if w.ending is not None]
    failures = sorted((e for e in endings if e.failed), key=lambda e: e.at_ms)
    word = job.word
    at_ms = max((e.at_ms for e in endings), default=job.gone_ms or (word.at_ms if word is not None else 0))
    if word is not None and word.outcome == "succeeded":
        return Ending(outcome="succeeded", at_ms=max(at_ms, word.at_ms), exit_code=0, reason=word.reason)
    if word is not None and word.outcome == "timed_out":
        return Ending(outcome="timed_out", at_ms=at_ms, reason=word.reason, message=word.message)
    if failures:
        return replace(_in_words(attempt, failures[0]), at_ms=at_ms)
    if word is not None:
        outcome: Outcome = "failed" if attempt.workers else "never_started"
        return Ending(outcome=outcome, at_ms=at_ms, reason=word.reason, message=word.message)
    if endings and all(e.outcome == "succeeded" for e in endings):
        return Ending(outcome="succeeded", at_ms=at_ms, exit_code=0)
    return _given_up(job, attempt, at_ms)


def _in_words(attempt: Attempt, ending: Ending) -> Ending:
    """Return the end; one that never started is told in the words of why it could not."""
    trouble = _trouble(attempt)
    if ending.outcome == "never_started" and not ending.message and trouble is not None:
        return replace(ending, message=trouble[1])
    return ending


def _given_up(job: Job, attempt: Attempt, at_ms: int) -> Ending:
    """Return the end of what was taken down: of what could not start it is that, else whoever took it down meant it."""
    trouble = _trouble(attempt)
    if attempt.started_ms is None and trouble is not None:
        return Ending(outcome="never_started", at_ms=at_ms, reason=trouble[0], message=trouble[1] or None)
    if job.suspended_ms is not None:
        return Ending(outcome="preempted", at_ms=at_ms, reason="Suspended")
    return Ending(outcome="cancelled", at_ms=at_ms, reason="Deleted" if job.gone_ms is not None else "PodDeleted")


def _trouble(attempt: Attempt) -> tuple[str, str] | None:
    return next((w.run.trouble for w in attempt.workers.values() if w.run.trouble is not None), None)
