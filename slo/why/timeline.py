"""The order of what happened to an attempt, from its life, its nodes' faults and the verdicts on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from slo.why.story import Judgement, Moment
from slo.wording import many

MOMENTS_LIMIT: Final = 40
MESSAGE_LIMIT: Final = 160
NODES_NAMED: Final = 4

# Of what happened at the same moment, in the order in which it makes sense.
_ORDER: Final = ("life", "fault", "trouble", "end", "verdict")

Row = Mapping[str, Any]


def timeline(moments: Iterable[Moment]) -> tuple[tuple[Moment, ...], int]:
    """Return the moments in order, each once, and how many were left out: of too many, faults go first."""
    seen = sorted(dict.fromkeys(moments), key=lambda m: (m.at_ms, _ORDER.index(m.mark)))
    surplus = len(seen) - MOMENTS_LIMIT
    if surplus <= 0:
        return tuple(seen), 0
    faults = [moment for moment in seen if moment.mark == "fault"]
    # The first faults tell what began it: later ones are dropped.
    dropped = set(faults[-surplus:]) if surplus <= len(faults) else set(faults)
    kept = [moment for moment in seen if moment not in dropped][:MOMENTS_LIMIT]
    return tuple(kept), len(seen) - len(kept)


def of_life(job: Row, attempt: Row) -> Iterator[Moment]:
    """The attempt's own milestones."""
    nodes = list(attempt["node_names"])
    named = ", ".join(nodes[:NODES_NAMED]) + (
        f" and {len(nodes) - NODES_NAMED} more" if len(nodes) > NODES_NAMED else ""
    )
    if job["submitted_ms"] is not None and attempt["attempt"] == 1:
        yield Moment(job["submitted_ms"], "life", f"submitted{_wanted(job)}")
    if attempt["allocated_ms"] is not None:
        yield Moment(attempt["allocated_ms"], "life", f"allocated {many(len(nodes), 'node')}: {named}")
    if attempt["started_ms"] is not None:
        yield Moment(attempt["started_ms"], "life", "started: every rank runs user code")
    if attempt["ended_ms"] is not None:
        yield Moment(attempt["ended_ms"], "end", _end(attempt))


def _wanted(job: Row) -> str:
    by = f" by {job['user']}" if job["user"] else ""
    wanted = f", wants {many(job['gpus'], 'GPU')} on {many(job['nodes'], 'node')}" if job["gpus"] else ""
    return by + wanted


def _end(attempt: Row) -> str:
    parts = [attempt["outcome"]]
    if attempt["exit_code"] is not None:
        parts.append(f"exit code {attempt['exit_code']}")
    if attempt["signal"]:
        parts.append(f"signal {attempt['signal']}")
    said = " ".join(word for word in (attempt["reason"], attempt["message"][:MESSAGE_LIMIT]) if word)
    by = f" by {attempt['preempted_by']}" if attempt["preempted_by"] else ""
    return f"ended: {', '.join(parts)}{by}" + (f" ({said})" if said else "")


def of_waiting(rows: Iterable[Row]) -> Iterator[Moment]:
    """Why the scheduler let it wait."""
    for row in rows:
        message = f": {row['message'][:MESSAGE_LIMIT]}" if row["message"] else ""
        yield Moment(row["at_ms"], "life", f"waits, {row['reason']}{message}")


def of_reports(rows: Iterable[Row]) -> Iterator[Moment]:
    """What the attempt told of its progress, checkpoints and exits."""
    for row in rows:
        kind = row["type"]
        if kind == "faultlens.job.progress.v1":
            yield Moment(row["last_ms"], "life", f"last progress: step {row['last_step']}")
        elif kind == "faultlens.job.rank_exited.v1":
            more = f"; {many(row['reports'], 'exit')} in all" if row["reports"] > 1 else ""
            status = f" ({row['first_status']})" if row["first_status"] else ""
            yield Moment(
                row["first_ms"], "trouble", f"first exit: rank {row['first_rank']} on {row['first_node']}{status}{more}"
            )
        elif row["restored"]:
            yield Moment(row["last_ms"], "life", f"restored the checkpoint of step {row['last_step']}{_failed(row)}")
        else:
            which = "last good checkpoint" if row["good"] else "last checkpoint that failed"
            yield Moment(row["last_ms"], "life" if row["good"] else "trouble", f"{which}: step {row['last_step']}")


def _failed(row: Row) -> str:
    return "" if row["good"] else ", which failed"


def of_faults(rows: Iterable[Row]) -> Iterator[Moment]:
    """What the nodes reported."""
    for row in rows:
        device = f" GPU {row['device_index']}" if row["device_index"] is not None else ""
        code = f"{row['kind']} {row['code']}" + (f" ({row['subcode']})" if row["subcode"] else "")
        times = f", {row['count']} times" if row["count"] > 1 else ""
        message = f": {row['message'][:MESSAGE_LIMIT]}" if row["message"] else ""
        yield Moment(row["at_ms"], "fault", f"{code} on {row['node']}{device}{times}{message}")


def of_states(rows: Sequence[Row]) -> Iterator[Moment]:
    """When a node's state or its cause became another."""
    before: dict[str, tuple[str, str]] = {}
    for row in rows:
        now = (row["state"], row["cause"])
        if before.get(row["node"]) != now and not (row["node"] not in before and row["state"] == "available"):
            why = f" ({row['cause']})" if row["cause"] else ""
            planned = ", as planned" if row["planned"] else ""
            yield Moment(row["at_ms"], "fault", f"{row['node']} is {row['state']}{why}{planned}")
        before[row["node"]] = now


def of_findings(rows: Iterable[Row]) -> Iterator[Moment]:
    """What was noticed while it ran."""
    for row in rows:
        where = f" on {row['node']}" if row["node"] else ""
        cause = f": {row['summary'] or row['code']}" if row["code"] else ""
        yield Moment(row["at_ms"], "trouble", f"{row['kind'].replace('_', ' ')}{where}{cause}")


def of_verdicts(revisions: Iterable[Judgement]) -> Iterator[Moment]:
    """When which verdict was given."""
    for verdict in revisions:
        said = "" if verdict.status == "withdrawn" else f": {verdict.cause_class}, {verdict.code} ({verdict.basis})"
        yield Moment(verdict.emitted_ms, "verdict", f"{verdict.status} verdict{said}")
