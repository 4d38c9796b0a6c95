"""What is known of a job and its attempts, and what can happen to them."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from faultlens.events import Outcome
from producers.kubernetes.owners import Owner, TryWord, Word
from producers.kubernetes.runs import Ending, Run


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
    `generation`: the name that its pods' labels share, if they do; `pods`: how many there are to be, if that is said.
    """

    number: int
    workers: dict[str, Worker] = {}
    started_ms: int | None = None
    over_ms: int | None = None
    began_ms: int = 0
    alive_ms: int = 0
    generation: str = ""
    pods: int | None = None


class Job(Struct, frozen=True, kw_only=True):
    """A job. `last`: its newest attempt's number; `attempts`: those whose end was not told; `gone_ms`: when its owner
    was deleted; `word`: what its owner says of its end, `word_ms` when that was seen; `try_word`: what its owner said
    last of the end of one attempt; `done`: of each container that is still there, up to which restart it was told.
    """

    owner: Owner
    job_id: str
    last: int = 0
    attempts: dict[int, Attempt] = {}
    done: dict[str, int] = {}
    word: Word | None = None
    word_ms: int = 0
    try_word: TryWord | None = None
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


def ending_of_attempt(job: Job, attempt: Attempt) -> Ending:
    """Return how the attempt ended: as its owner says, in the words of the first of its workers that failed."""
    endings = [w.ending for w in attempt.workers.values() if w.ending is not None]
    failures = sorted((e for e in endings if e.failed), key=lambda e: e.at_ms)
    word = job.word or _word_on(job, attempt)
    at_ms = max((e.at_ms for e in endings), default=job.gone_ms or (word.at_ms if word is not None else 0))
    if word is not None and word.outcome == "succeeded":
        return Ending(outcome="succeeded", at_ms=max(at_ms, word.at_ms), exit_code=0, reason=word.reason)
    if word is not None and word.outcome in ("timed_out", "cancelled"):
        return Ending(outcome=word.outcome, at_ms=at_ms, reason=word.reason, message=word.message)
    if failures:
        return replace(_in_words(attempt, failures[0]), at_ms=at_ms)
    if word is not None:
        outcome: Outcome = "failed" if attempt.workers else "never_started"
        return Ending(outcome=outcome, at_ms=at_ms, reason=word.reason, message=word.message)
    if endings and all(e.outcome == "succeeded" for e in endings):
        return Ending(outcome="succeeded", at_ms=at_ms, exit_code=0)
    return _given_up(job, attempt, at_ms)


def _word_on(job: Job, attempt: Attempt) -> Word | None:
    """Return what the owner said of this attempt's end where it goes on with another."""
    said = job.try_word
    return said.word if said is not None and said.group == attempt.generation else None


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


def worker_of(job: Job, pod: str) -> tuple[int | None, Worker | None]:
    """Return the attempt that a pod works for and its first worker there."""
    for number, attempt in job.attempts.items():
        for worker in attempt.workers.values():
            if worker.run.pod == pod:
                return number, worker
    return None, None
