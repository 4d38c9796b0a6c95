"""What counts for the objectives: samples of nodes and jobs, one for every scope that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from faultlens import topics
from faultlens.causes import UnknownCauseError, class_of
from faultlens.codec import stable_id
from faultlens.events import FAILURES, Basis, CauseClass, NodeStateName, Outcome
from faultlens.internal import Sample, UseSample
from streams.goodput import OVERHEAD, Change
from streams.processor import Emit

# Contract, "What counts": down is this unless planned. A maintenance that nobody planned is down too.
DOWN: Final[frozenset[str]] = frozenset({"blocked", "draining", "down", "silent", "maintenance"})
FLEET_TIME: Final = "fleet_time"


class Place(Struct, frozen=True, gc=False):
    """What a sample concerns: an objective is measured over a cluster, and within it over each of the others."""

    cluster: str
    pool: str | None = None
    team: str | None = None
    workload: str | None = None


def scopes(place: Place) -> tuple[Place, ...]:
    """Return the scopes that a place belongs to: its cluster, and that with its pool, team or workload, if known."""
    cluster = place.cluster
    wanted = (
        Place(cluster, pool=place.pool or None),
        Place(cluster, team=place.team or None),
        Place(cluster, workload=place.workload or None),
    )
    whole = Place(cluster)
    return (whole, *(scope for scope in wanted if scope != whole))


def sample_key(sample: Sample | UseSample) -> str:
    """Return the key of a sample's objective and scope: `objective|cluster|pool|team|workload`, empty parts kept.

    What GPUs were used for goes by `fleet_time|cluster|pool`.
    """
    if isinstance(sample, UseSample):
        return f"{FLEET_TIME}|{sample.cluster}|{sample.pool or ''}"
    parts = (sample.objective, sample.cluster, sample.pool, sample.team, sample.workload)
    return "|".join(part or "" for part in parts)


def sample_emits(samples: Iterable[Sample | UseSample], *, about: str, time_ms: int) -> list[Emit]:
    """Return the samples as records. `about` must differ between a sample and its later correction."""
    emits = []
    for sample in samples:
        key = sample_key(sample)
        emits.append(Emit(topics.SAMPLES, key, stable_id(about, key, sample.from_ms, sample.to_ms), time_ms, sample))
    return emits


def _everywhere(objective: str, place: Place, from_ms: int, to_ms: int, amount: Amount) -> list[Sample]:
    return _in(scopes(place), objective, from_ms, to_ms, amount)


def _in(places: Iterable[Place], objective: str, from_ms: int, to_ms: int, amount: Amount) -> list[Sample]:
    return [
        Sample(
            objective,
            scope.cluster,
            from_ms,
            to_ms,
            amount.good,
            amount.total,
            amount.by_cause,
            scope.pool,
            scope.team,
            scope.workload,
            amount.assumed_bad,
            amount.assumed_out,
        )
        for scope in places
    ]


class Amount(Struct, frozen=True, omit_defaults=True, gc=False):
    """How much is good, and how much bad for each class of cause; whole milliseconds or counts.

    `assumed_bad` of the bad, and `assumed_out` that left the total as the user's own, rest on an assumed verdict.
    """

    good: int = 0
    by_cause: dict[str, int] = {}
    assumed_bad: int = 0
    assumed_out: int = 0

    @property
    def total(self) -> int:
        """Good and bad together."""
        return self.good + sum(self.by_cause.values())

    def less(self, other: Amount) -> Amount:
        """Return by how much this differs from `other`."""
        names = sorted({*self.by_cause, *other.by_cause})
        by_cause = {name: self.by_cause.get(name, 0) - other.by_cause.get(name, 0) for name in names}
        return Amount(
            self.good - other.good,
            {name: amount for name, amount in by_cause.items() if amount},
            self.assumed_bad - other.assumed_bad,
            self.assumed_out - other.assumed_out,
        )


NOTHING: Final = Amount()


# --- nodes -----------------------------------------------------------------------------------------------


class NodeTime(Struct, frozen=True, kw_only=True, gc=False):
    """[from_ms, to_ms) of a node's time in one state; `late_ms` of it no report vouched for."""

    cluster: str
    pool: str | None
    from_ms: int
    to_ms: int
    state: NodeStateName
    planned: bool
    gpus_total: int
    gpus_allocatable: int
    cause: str | None
    covered: bool
    late_ms: int


def node_samples(time: NodeTime) -> list[Sample]:
    """Return samples of node and GPU availability and of coverage for a node that was in one state all the time.

    Planned down time leaves the totals, and so does a removed node. A degraded node is available, its unhealthy GPUs
    are not. While a node is down as planned no report is expected. Down without a cause that is known (a person's
    cordon) is `overhead`.
    """
    span_ms = time.to_ms - time.from_ms
    if span_ms <= 0 or time.state == "removed":
        return []
    down, charged = time.state in DOWN, _class_of(time.cause)
    samples: list[Sample] = []
    if not (down and time.planned):
        node = _split(0 if down else span_ms, span_ms, charged)
        samples += _of_time("node_availability", time, node)
        if time.gpus_total > 0:
            healthy = 0 if down else max(0, min(time.gpus_allocatable, time.gpus_total))
            gpu = _split(healthy * span_ms, time.gpus_total * span_ms, charged)
            samples += _of_time("gpu_availability", time, gpu)
    if time.covered:
        on_time_ms = span_ms - max(0, min(time.late_ms, span_ms))
        expected_ms = on_time_ms if down and time.planned else span_ms
        samples += _of_time("coverage", time, _split(on_time_ms, expected_ms, OVERHEAD))
    return samples


def _of_time(objective: str, time: NodeTime, amount: Amount) -> list[Sample]:
    return _everywhere(objective, Place(time.cluster, time.pool), time.from_ms, time.to_ms, amount)


def _split(good: int, total: int, charged: str) -> Amount:
    return Amount(good, {charged: total - good} if total > good else {})


def _class_of(cause: str | None) -> str:
    if cause is None:
        return OVERHEAD
    try:
        return class_of(cause)
    except UnknownCauseError:
        return OVERHEAD


def use_samples(
    *, cluster: str, pool: str | None, from_ms: int, to_ms: int, gpu_ms: Mapping[str, int]
) -> list[UseSample]:
    """Return what a node's GPUs were used for, for the cluster and for its pool."""
    pools = (None, pool) if pool else (None,)
    return [UseSample(cluster, from_ms, to_ms, dict(gpu_ms), name) for name in pools]


# --- jobs ------------------------------------------------------------------------------------------------


class Blame(Struct, frozen=True, gc=False):
    """Whose fault something was, and how well that is known."""

    cause_class: CauseClass
    basis: Basis


class Start(Struct, frozen=True, kw_only=True, gc=False):
    """What is known of how an attempt started. Times in milliseconds since the epoch; None: not (yet) so.

    `blame` is the verdict of an attempt that failed before it started, or for a late start the incident or condition
    that was open then. `waits_for_lost_capacity_since_ms`: since when the scheduler's reason names lost capacity.
    """

    allocated_ms: int | None = None
    started_ms: int | None = None
    outcome: Outcome | None = None
    blame: Blame | None = None
    waits_for_lost_capacity_since_ms: int | None = None


# Contract: a late start that no incident or condition explains is the scheduler's, assumed.
_SCHEDULER: Final = Blame("platform", "assumed")


def start_amount(start: Start, now_ms: int, *, within_ms: int, pending_limit_ms: int) -> Amount:
    """Return how an attempt counts for `job_start` by what is known at `now_ms`: nothing, one good or one bad.

    Good is every rank running user code within `within_ms` of the allocation. The user's own cancels before the
    start, preemptions and user-caused failures count as nothing; so does waiting for busy capacity or quota.
    """
    if start.started_ms is not None or start.outcome == "succeeded":
        late = (
            start.started_ms is not None
            and start.allocated_ms is not None
            and start.started_ms - start.allocated_ms > within_ms
        )
        return _failed(_not_the_users(start.blame)) if late else Amount(good=1)
    if start.outcome is not None:
        return _failed(start.blame or _SCHEDULER) if start.outcome in FAILURES else NOTHING
    if start.allocated_ms is not None:
        overdue = now_ms - start.allocated_ms > within_ms
    else:
        since_ms = start.waits_for_lost_capacity_since_ms
        overdue = since_ms is not None and now_ms - since_ms > pending_limit_ms
    return _failed(_not_the_users(start.blame)) if overdue else NOTHING


def start_due_ms(start: Start, *, within_ms: int, pending_limit_ms: int) -> int | None:
    """Return when `start_amount` may next change by time alone; None: only by an event."""
    if start.started_ms is not None or start.outcome is not None:
        return None
    if start.allocated_ms is not None:
        return start.allocated_ms + within_ms + 1
    since_ms = start.waits_for_lost_capacity_since_ms
    return None if since_ms is None else since_ms + pending_limit_ms + 1


def _not_the_users(blame: Blame | None) -> Blame:
    """A start is late by what schedules and runs it, never by what the user's own code is."""
    return _SCHEDULER if blame is None or blame.cause_class == "user" else blame


def success_amount(*, started: bool, outcome: Outcome | None, blame: Blame | None, workload: str | None) -> Amount:
    """Return how an attempt counts for `job_success`: nothing, one good or one bad.

    Valid are started attempts less user-attributed failures (a healthy job's time limit is one), cancels and
    preemptions. Replicas of `inference` count for `serving_capacity` instead.
    """
    if not started or outcome is None or workload == "inference":
        return NOTHING
    if outcome == "succeeded":
        return Amount(good=1)
    return _failed(blame) if outcome in FAILURES and blame is not None else NOTHING


def _failed(blame: Blame) -> Amount:
    assumed = int(blame.basis == "assumed")
    if blame.cause_class == "user":
        return Amount(assumed_out=assumed)
    return Amount(by_cause={blame.cause_class: 1}, assumed_bad=assumed)


def count_samples(objective: str, place: Place, at_ms: int, before: Amount, after: Amount) -> list[Sample]:
    """Return samples that bring what was said of one attempt (`before`) to what is now known of it (`after`).

    `at_ms` must be the same each time: a correction takes back what was said where it was said.
    """
    change = after.less(before)
    return [] if change == NOTHING else _everywhere(objective, place, at_ms, at_ms, change)


def moved_samples(
    objective: str, before: Place, after: Place, *, from_ms: int, to_ms: int, amount: Amount
) -> list[Sample]:
    """Return samples that take what was said of a place out of the scopes it is not of, and say it in those it is of.

    Whose job it was may be told after what became of it.
    """
    old, new = scopes(before), scopes(after)
    left = _in((scope for scope in old if scope not in new), objective, from_ms, to_ms, NOTHING.less(amount))
    return left + _in((scope for scope in new if scope not in old), objective, from_ms, to_ms, amount)


def goodput_samples(place: Place, changes: Iterable[Change]) -> list[Sample]:
    """Return samples for the changes that a flush of a ledger made to its sums."""
    return [
        sample
        for change in changes
        for sample in _everywhere(
            "goodput", place, change.from_ms, change.to_ms, Amount(change.good, dict(change.by_cause))
        )
    ]


def serving_samples(place: Place, from_ms: int, to_ms: int, *, ready: int, missing: Mapping[str, int]) -> list[Sample]:
    """Return samples of `serving_capacity`, in replica-milliseconds, for a time in which nothing changed.

    `missing`: replicas that were wanted and not there, by the class of what they failed of.
    """
    span_ms = to_ms - from_ms
    if span_ms <= 0 or not (ready or missing):
        return []
    amount = Amount(ready * span_ms, {charged: count * span_ms for charged, count in missing.items()})
    return _everywhere("serving_capacity", place, from_ms, to_ms, amount)
