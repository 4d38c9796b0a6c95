"""Which attempts an observation bears on, and the records that tell them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.codec import stable_id
from faultlens.internal import Held, NodeAnswer, NodeEvidence, NodeNews, Observation, Released
from streams.node_health import uses
from streams.node_health.conditions import whole_or_same_device
from streams.node_health.record import EVIDENCE_MAX, NodeRecord
from streams.processor import Emit
from streams.weighing import heaviest

# Contract, "Evidence window": opens 10 minutes before the first sign of trouble, closes 5 minutes after the end.
BEFORE_MS = 10 * 60_000
# Starts and unexplained failures of other jobs on this node count for this long before an attempt's end: a node that
# swallows jobs is offered few of them while the fleet is busy.
NEIGHBOURS_MS = 6 * HOUR_MS
# The objective for a start: what still runs after that has started.
STARTED_AFTER_MS = 10 * MINUTE_MS

# Starts that fail by these say nothing against the node: what is shared, and the user's own.
_NOT_THE_NODES = (
    "app.",
    "platform.registry",
    "platform.storage",
    "platform.network",
    "platform.auth",
    "platform.scheduler",
    "platform.maintenance",
)


def to_holders(
    record: NodeRecord, observations: Sequence[Observation], now_ms: int, *, cured: bool = False
) -> list[Emit]:
    """Return the observations as evidence for every attempt that holds, or held in its window, what they hit.

    `cured`: they are over now, and go to all who may have been told them as open, whoever learnt of what first.
    """
    if not observations:
        return []
    told = [(o, replace(o, open=True, until_ms=None) if cured else o) for o in observations]
    emits = []
    for held in record.held.values():
        mine = [o for o, as_told in told if bears_on(record, held, as_told)]
        if mine:
            emits.append(evidence(record, held.job_id, held.attempt, mine, now_ms=now_ms))
    for release in record.released:
        mine = [o for o, as_told in told if release.failed and _in_window(record, release, as_told)]
        if mine:
            emits.append(evidence(record, release.job_id, release.attempt, mine, now_ms=now_ms))
    return emits


def bears_on(record: NodeRecord, held: Held, observation: Observation) -> bool:
    """Return whether the observation is evidence for an attempt that still holds its devices."""
    if not whole_or_same_device(record, observation, held):
        return False
    return observation.last_ms >= held.since_ms - BEFORE_MS or _still_true(observation, held.since_ms)


def _still_true(observation: Observation, at_ms: int) -> bool:
    return observation.open or (observation.until_ms is not None and observation.until_ms >= at_ms)


def _in_window(record: NodeRecord, release: Released, observation: Observation) -> bool:
    if observation.since_ms - observation.latent_ms > release.closes_ms:
        return False
    if not whole_or_same_device(record, observation, release):
        return False
    return observation.last_ms >= release.opens_ms or _still_true(observation, release.opens_ms)


def evidence(
    record: NodeRecord,
    job_id: str,
    attempt: int,
    observations: Sequence[Observation],
    *,
    now_ms: int,
    pool: str | None = None,
) -> Emit:
    """Return the evidence record for one attempt; `pool`: what it is told of the node's pool."""
    observations = heaviest(observations, EVIDENCE_MAX)
    others = uses.others(record, job_id, attempt, observations)
    data = NodeEvidence(
        job_id=job_id,
        attempt=attempt,
        node=record.node,
        observations=tuple(observations),
        others=tuple(others),
        pool=pool,
    )
    told = [f"{o.id}/{o.count}/{o.until_ms}" for o in observations] + [f"{o.job_id}/{o.at_ms}" for o in others]
    told += [] if pool is None else ["pool", pool]
    key = stable_id(record.node, job_id, attempt, now_ms, *told)
    return Emit(topics.EVIDENCE, job_id, key, now_ms, data)


def relevant(record: NodeRecord, release: Released) -> list[Observation]:
    """Return all that this node knows now and that lies in the attempt's window."""
    pool = {o.id: o for o in (*record.conditions.values(), *record.faults)}
    return sorted((o for o in pool.values() if _in_window(record, release, o)), key=lambda o: (o.since_ms, o.id))


def answer(record: NodeRecord, release: Released, now_ms: int) -> list[Emit]:
    """Return the evidence for an attempt whose window has closed, and the word that there is no more."""
    found = relevant(record, release)
    emits = [evidence(record, release.job_id, release.attempt, found, now_ms=now_ms)] if found else []
    others = [r for r in record.released if _near(r, release)]
    failed_starts = [r for r in record.released if _failed_to_start(r) and _near_start(r, release)]
    in_a_row = [r for r in failed_starts if not _ran_between(record, r, release, now_ms)]
    unexplained = [r for r in others if _unexplained(r)]
    data = NodeAnswer(
        job_id=release.job_id,
        attempt=release.attempt,
        node=record.node,
        up_to_ms=release.closes_ms,
        start_failures=len({r.job_id for r in failed_starts}),
        start_failure_users=len({r.user for r in failed_starts} - {release.user}),
        start_failures_in_a_row=len({r.job_id for r in in_a_row}),
        start_failure_users_in_a_row=len({r.user for r in in_a_row} - {release.user}),
        start_failures_here=len({r.job_id for r in in_a_row if r.culprit == record.node}),
        start_tries=len(in_a_row),
        failures=len({r.job_id for r in unexplained}),
        failure_users=len({r.user for r in unexplained} - {release.user}),
        starts=len({r.job_id for r in others if _ran_well(r)}),
        covered=record.covered,
        loss=release.loss,
        pool=record.pool,
        domains=record.domains,
        gpus_total=record.gpus_total,
        sharers=_sharers(record, release),
    )
    counts = (
        data.start_failures,
        data.start_failure_users,
        data.start_failures_in_a_row,
        data.start_failure_users_in_a_row,
        data.start_failures_here,
        data.start_tries,
        data.failures,
        data.failure_users,
        data.starts,
        data.sharers,
    )
    key = stable_id(
        record.node, release.job_id, release.attempt, "answer", release.closes_ms, release.loss or 0, *counts
    )
    return [*emits, Emit(topics.EVIDENCE, release.job_id, key, now_ms, data)]


def _sharers(record: NodeRecord, release: Released) -> int:
    """Return how many other jobs held devices here while the attempt did; who holds none of them shares nothing."""
    since_ms = max(release.since_ms, release.opens_ms)
    holding = [h.job_id for h in record.held.values() if h.devices != () and h.since_ms < release.at_ms]
    let_go = [
        r.job_id for r in record.released if r.devices != () and r.since_ms < release.at_ms and r.at_ms > since_ms
    ]
    return len({*holding, *let_go} - {release.job_id})


def answered_again(record: NodeRecord, release: Released, before: Released | None, now_ms: int) -> list[Emit]:
    """Return the answers that an end which arrives later than they were given makes others; `before`: as known."""
    if not any(counts(release) != (before is not None and counts(before)) for counts in _COUNTS):
        return []
    due = {(r.job_id, r.attempt, r.loss) for r in record.answers_due}
    near = _near_start if _failed_to_start(release) else _near
    given = [
        r for r in record.released
        if r.failed and r.closes_ms <= now_ms and near(release, r) and (r.job_id, r.attempt, r.loss) not in due
    ]  # fmt: skip
    return [emit for r in given for emit in answer(record, r, now_ms)]


def _near(other: Released, release: Released) -> bool:
    """Return whether another job's end counts for an attempt's."""
    return other.job_id != release.job_id and 0 <= release.closes_ms - other.at_ms <= NEIGHBOURS_MS + BEFORE_MS


def _near_start(other: Released, release: Released) -> bool:
    """Return whether another job's failed start says something of an attempt's, before it or after."""
    return other.job_id != release.job_id and abs(release.at_ms - other.at_ms) <= NEIGHBOURS_MS


def _failed_to_start(release: Released) -> bool:
    named_another = release.culprit not in ("", release.node)
    return release.outcome == "never_started" and not named_another and not release.code.startswith(_NOT_THE_NODES)


def _ran_between(record: NodeRecord, other: Released, release: Released, now_ms: int) -> bool:
    """Return whether a job started well on the node between two ends: then what broke the one had been put right."""
    first_ms, last_ms = sorted((other.at_ms, release.at_ms))
    return any(first_ms < began_ms < last_ms for began_ms in _good_starts(record, now_ms))


def _good_starts(record: NodeRecord, now_ms: int) -> Iterator[int]:
    """Yield when jobs that ran on the node were given it; one that still holds it after that long has started."""
    yield from (r.since_ms for r in record.released if r.started)
    yield from (h.since_ms for h in record.held.values() if now_ms - h.since_ms >= STARTED_AFTER_MS)


def _unexplained(release: Released) -> bool:
    return release.failed and release.unexplained


def _ran_well(release: Released) -> bool:
    return release.started and not release.failed


_COUNTS = (_failed_to_start, _unexplained, _ran_well)


def news(record: NodeRecord, what: str, at_ms: int, told_ms: int, holders: Iterable[Held]) -> list[Emit]:
    """Return the word to attempts that hold this node that it is lost to them; `told_ms`: when that was learnt."""
    return [
        Emit(
            topics.EVIDENCE,
            held.job_id,
            stable_id(record.node, held.job_id, held.attempt, what, at_ms),
            told_ms,
            NodeNews(held.job_id, held.attempt, record.node, what, at_ms, told_ms),  # type: ignore[arg-type]
        )
        for held in holders
    ]


def overlapping(record: NodeRecord, new: Held) -> list[Held]:
    """Return the attempts whose devices are surely among those that another attempt was given later."""
    return [held for held in record.held.values() if _took_over(new, held)]


def missed_news(record: NodeRecord, held: Held, told_ms: int) -> list[Emit]:
    """Return the word to an attempt on what befell the node after its allocation and before the word of that came.

    `told_ms`: when the allocation was told.
    """
    emits = []
    for fault in record.faults:
        what = _LOST_BY.get((fault.kind, fault.code))
        if what is not None and (fault.open or fault.last_ms > held.since_ms):
            emits += news(record, what, fault.since_ms, max(told_ms, fault.arrived_ms), [held])
    holders: list[Held | Released] = [*record.held.values(), *record.released]
    since_ms = min((holder.since_ms for holder in holders if _took_over(holder, held)), default=None)
    return emits if since_ms is None else emits + news(record, "reallocated", since_ms, told_ms, [held])


def _took_over(later: Held | Released, held: Held) -> bool:
    """Return whether devices of an attempt were surely given to another one later."""
    if later.job_id == held.job_id or later.devices is None or held.devices is None or held.mig:
        return False
    shared = isinstance(later, Held) and later.mig
    return not shared and held.since_ms < later.since_ms and not {*later.devices}.isdisjoint(held.devices)


_LOST_BY = {
    ("kernel", "silent"): "silent",
    ("kernel", "rebooted"): "rebooted",
    ("other", "act_reboot"): "down",
    ("other", "act_replace"): "down",
    ("other", "act_remove"): "down",
}
