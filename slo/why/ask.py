"""Asks the store for what there is to tell of a job's attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from faultlens.clock import DAY_MS, MINUTE_MS
from faultlens.errors import FaultlensError
from slo.indicators import effective_time_ratio
from slo.queries import Reader, ask
from slo.why import timeline
from slo.why.story import AttemptLine, EvidenceLine, Judgement, Moment, Story, judgement

# As the evidence window: ten minutes before the first sign of trouble, five after the end.
BEFORE_MS: Final = 10 * MINUTE_MS
AFTER_MS: Final = 5 * MINUTE_MS
# A run of weeks has many faults behind it; what is older than this before the end did not stop it.
LOOK_BACK_MS: Final = DAY_MS

Row = Mapping[str, Any]


class UnknownJobError(FaultlensError):
    """The store knows no such job, or no such attempt of it; `similar` are jobs that may be meant."""

    def __init__(self, message: str, similar: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.similar = tuple(similar)


def story_of(reader: Reader, job_id: str, attempt: int | None = None) -> Story:
    """Return the story of an attempt; without one of the last that failed, else of the last.

    `job_id` may be written with its attempt, as `llm-7/3`. Raises UnknownJobError.
    """
    jobs = ask(reader, "why_job", {"job": job_id})
    prefix, slash, number = job_id.rpartition("/")
    if not jobs and slash and number.isdigit() and attempt is None:
        jobs, attempt = ask(reader, "why_job", {"job": prefix}), int(number)
    if not jobs:
        raise UnknownJobError("no such job", _similar(reader, job_id))
    job = jobs[0]
    verdicts = ask(reader, "why_verdicts", {"job": job["job_id"]})
    attempts = [_as_judged(row, verdicts) for row in ask(reader, "why_attempts", {"job": job["job_id"]})]
    return _told(reader, job, _chosen(attempts, verdicts, attempt), attempts, verdicts)


def _similar(reader: Reader, job_id: str) -> list[str]:
    return [row["job_id"] for row in ask(reader, "why_similar", {"job": job_id})]


def _as_judged(row: Row, verdicts: Sequence[Row]) -> Row:
    """Return an attempt's row with what it came to: a verdict in force says that it failed.

    Nobody may have told of its end, and a scheduler that was asked to run it again calls it cancelled.
    """
    is_judged = _in_force(row, verdicts) is not None
    return {**row, "outcome": "failed"} if is_judged and row["outcome"] in ("", "cancelled") else row


def _in_force(attempt: Row, verdicts: Sequence[Row]) -> Row | None:
    """Return the verdict in force on how an attempt ended; None: none is."""
    own = (v for v in verdicts if v["attempt"] == attempt["attempt"] and not v["loss"] and v["in_force"])
    return next(own, None)


def _chosen(attempts: Sequence[Row], verdicts: Sequence[Row], wanted: int | None) -> Row:
    """Return the attempt that is asked for."""
    if wanted is not None:
        found = next((row for row in attempts if row["attempt"] == wanted), None)
        if found is None:
            known = ", ".join(str(row["attempt"]) for row in attempts) or "none"
            raise UnknownJobError(f"no attempt {wanted} of it is known (known: {known})")
        return found
    if not attempts:
        raise UnknownJobError("it was submitted, but no attempt of it was allocated yet")
    failed = {row["attempt"] for row in verdicts if row["in_force"]}
    return next((row for row in reversed(attempts) if row["attempt"] in failed), attempts[-1])


def _told(reader: Reader, job: Row, attempt: Row, attempts: Sequence[Row], verdicts: Sequence[Row]) -> Story:
    mine = [row for row in verdicts if row["attempt"] == attempt["attempt"]]
    revisions = tuple(judgement(row) for row in mine if row["loss"] == 0)
    verdict = next((judgement(row) for row in mine if row["loss"] == 0 and row["in_force"]), None)
    moments, left_out = timeline.timeline(_moments(reader, job, attempt, verdict, revisions))
    time = ask(reader, "why_time", {"job": job["job_id"]})
    mine_time = [row for row in time if row["attempt"] == attempt["attempt"]]
    return Story(
        job_id=job["job_id"],
        attempt=attempt["attempt"],
        facts={name: str(job[name]) for name in ("cluster", "user", "team", "name", "workload") if job[name]},
        outcome=attempt["outcome"],
        verdict=verdict,
        withdrawn=bool(revisions) and revisions[-1].status == "withdrawn",
        losses=tuple(judgement(row) for row in mine if row["loss"] and row["in_force"]),
        timeline=moments,
        moments_left_out=left_out,
        evidence=_evidence(reader, job, attempt, verdict),
        spent_ms=_spent(mine_time),
        effective=_effective(time),
        attempts=tuple(_attempt_line(row, verdicts) for row in attempts),
        revisions=revisions,
    )


def _of(job: Row, attempt: Row, **more: object) -> dict[str, object]:
    return {"job": job["job_id"], "attempt": attempt["attempt"], **more}


def _moments(
    reader: Reader, job: Row, attempt: Row, verdict: Judgement | None, revisions: Sequence[Judgement]
) -> list[Moment]:
    reports = ask(reader, "why_progress", _of(job, attempt))
    moments = [
        *timeline.of_life(job, attempt),
        *timeline.of_waiting(ask(reader, "why_pending", _of(job, attempt))),
        *timeline.of_reports(reports),
        *timeline.of_findings(ask(reader, "why_findings", _of(job, attempt))),
        *timeline.of_verdicts(revisions),
    ]
    end_ms: int | None = attempt["ended_ms"]
    if end_ms is None and verdict is not None:
        end_ms = verdict.ended_ms
    if end_ms is not None and attempt["node_names"]:
        began_ms = attempt["allocated_ms"] if attempt["allocated_ms"] is not None else end_ms
        window = {
            "cluster": job["cluster"],
            "nodes": list(attempt["node_names"]),
            "from": max(began_ms, end_ms - LOOK_BACK_MS) - BEFORE_MS,
            "to": end_ms + AFTER_MS,
        }
        moments += timeline.of_faults(ask(reader, "why_faults", window))
        moments += timeline.of_states(ask(reader, "why_states", window))
    return moments


def _evidence(reader: Reader, job: Row, attempt: Row, verdict: Judgement | None) -> tuple[EvidenceLine, ...]:
    if verdict is None:
        return ()
    rows = ask(reader, "why_evidence", _of(job, attempt, loss=0, revision=verdict.revision))
    return tuple(EvidenceLine(row["role"], row["at_ms"], row["what"], row["source"]) for row in rows)


def _attempt_line(row: Row, verdicts: Sequence[Row]) -> AttemptLine:
    said = _in_force(row, verdicts)
    return AttemptLine(
        attempt=row["attempt"],
        outcome=row["outcome"] or "not ended",
        ended_ms=said["ended_ms"] if said and row["ended_ms"] is None else row["ended_ms"],
        nodes=tuple(row["node_names"]),
        cause_class=said["class"] if said else "",
        code=said["code"] if said else "",
        node=said["node"] if said else "",
    )


def _spent(rows: Sequence[Row]) -> dict[str, int]:
    spent: Counter[str] = Counter()
    for row in rows:
        spent[row["category"]] += row["gpu_ms"] or row["wall_ms"]
    return dict(spent.most_common())


def _effective(rows: Sequence[Row]) -> float | None:
    """Return the effective training time ratio of the whole job; what its own failures lost does not count."""
    wall: Counter[str] = Counter()
    for row in rows:
        if row["class"] != "user":
            wall[row["category"]] += row["wall_ms"]
    productive, queued = wall["productive"], wall["queued"]
    return effective_time_ratio(productive, wall.total() - productive - queued, queued)
