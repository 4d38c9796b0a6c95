"""Which attempts an observation bears on, and the records that tell them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import HOUR_MS
from faultlens.codec import stable_id
from faultlens.events import DeviceRef
from faultlens.internal import Held, NodeAnswer, NodeEvidence, NodeNews, Observation, OtherUse, Released
from streams.node_health.conditions import whole_or_same_device
from streams.node_health.judging import device_key
from streams.node_health.record import (
    USE_KEYS_MAX,
    USES_KEPT_MS,
    USES_MAX,
    NodeRecord,
    Use,
    index_of,
)
from streams.processor import Emit

# Contract, "Evidence window": opens 10 minutes before the first sign of trouble, closes 5 minutes after the end.
BEFORE_MS = 10 * 60_000
# Starts and unexplained failures of other jobs on this node count for this long before an attempt's end: a node that
# swallows jobs is offered few of them while the fleet is busy.
NEIGHBOURS_MS = 6 * HOUR_MS

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


def to_holders(record: NodeRecord, observations: Sequence[Observation], now_ms: int) -> list[Emit]:
    """Return the observations as evidence for every attempt that holds, or held in its window, what they hit."""
    if not observations:
        return []
    emits = []
    for held in record.held.values():
        mine = [o for o in observations if bears_on(record, held, o)]
        if mine:
            emits.append(evidence(record, held.job_id, held.attempt, mine, now_ms=now_ms))
    for release in record.released:
        mine = [o for o in observations if release.failed and _in_window(record, release, o)]
        if mine:
            emits.append(evidence(record, release.job_id, release.attempt, mine, now_ms=now_ms))
    return emits


def bears_on(record: NodeRecord, held: Held, observation: Observation) -> bool:
    """Return whether the observation is evidence for an attempt that still holds its devices."""
    if not whole_or_same_device(record, observation, held.devices):
        return False
    return observation.last_ms >= held.since_ms - BEFORE_MS or _still_true(observation, held.since_ms)


def _still_true(observation: Observation, at_ms: int) -> bool:
    return observation.open or (observation.until_ms is not None and observation.until_ms >= at_ms)


def _in_window(record: NodeRecord, release: Released, observation: Observation) -> bool:
    if observation.since_ms > release.closes_ms:
        return False
    held = release.devices
    if not whole_or_same_device(record, observation, held):
        return False
    return observation.last_ms >= release.opens_ms or _still_true(observation, release.opens_ms)


def evidence(
    record: NodeRecord, job_id: str, attempt: int, observations: Sequence[Observation], *, now_ms: int
) -> Emit:
    """Return the evidence record for one attempt."""
    data = NodeEvidence(
        job_id=job_id,
        attempt=attempt,
        node=record.node,
        observations=tuple(observations),
        others=tuple(_other_uses(record, job_id, observations)),
    )
    key = stable_id(record.node, job_id, attempt, now_ms, *(f"{o.id}/{o.count}/{o.until_ms}" for o in observations))
    return Emit(topics.EVIDENCE, job_id, key, now_ms, data)


def _other_uses(record: NodeRecord, job_id: str, observations: Iterable[Observation]) -> list[OtherUse]:
    """Return which other jobs met the same application-like code on the same device alone."""
    found = []
    for observation in observations:
        if observation.role != "application":
            continue
        for use in record.uses.get(use_key(record, observation), ()):
            if use.job_id != job_id and observation.since_ms - use.at_ms <= USES_KEPT_MS:
                device = observation.device or DeviceRef()
                found.append(OtherUse(observation.code, device, use.job_id, use.user, use.image, use.at_ms))
    return found


def use_key(record: NodeRecord, observation: Observation) -> str:
    """Return code and device, by what stays with the GPU when the node is renamed."""
    device = observation.device
    stays = None if device is None else device.uuid or device.serial
    return f"{observation.code}@{stays or device_key(device)}"


def with_use(record: NodeRecord, observation: Observation) -> NodeRecord:
    """Return the record with the jobs that hold the device noted as having met the code there."""
    if observation.role != "application" or index_of(record, observation.device) is None:
        return record
    key = use_key(record, observation)
    uses = dict(record.uses)
    known = [u for u in uses.pop(key, ()) if observation.since_ms - u.at_ms <= USES_KEPT_MS]
    for user in _users_of(record, observation):
        known = [u for u in known if (u.job_id, u.attempt) != (user.job_id, user.attempt)] + [user]
    if known:
        uses[key] = tuple(known[-USES_MAX:])
    while len(uses) > USE_KEYS_MAX:
        uses.pop(next(iter(uses)))
    return replace(record, uses=uses)


def _users_of(record: NodeRecord, observation: Observation) -> list[Use]:
    holders = [(h.job_id, h.attempt, h.user, h.image, h.devices) for h in record.held.values()]
    holders += [
        (r.job_id, r.attempt, r.user, r.image, r.devices)
        for r in record.released
        if r.at_ms - BEFORE_MS <= observation.since_ms <= r.at_ms + BEFORE_MS
    ]
    return [
        Use(job_id, attempt, user or job_id, image or "", observation.since_ms)
        for job_id, attempt, user, image, devices in holders
        if whole_or_same_device(record, observation, devices)
    ]


def relevant(record: NodeRecord, release: Released) -> list[Observation]:
    """Return all that this node knows now and that lies in the attempt's window."""
    pool = {o.id: o for o in (*record.conditions.values(), *record.faults)}
    return sorted((o for o in pool.values() if _in_window(record, release, o)), key=lambda o: (o.since_ms, o.id))


def answer(record: NodeRecord, release: Released, now_ms: int) -> list[Emit]:
    """Return the evidence for an attempt whose window has closed, and the word that there is no more."""
    found = relevant(record, release)
    emits = [evidence(record, release.job_id, release.attempt, found, now_ms=now_ms)] if found else []
    others = [
        r
        for r in record.released
        if r.job_id != release.job_id and 0 <= release.closes_ms - r.at_ms <= NEIGHBOURS_MS + BEFORE_MS
    ]
    failed_starts = {
        (r.job_id, r.user) for r in others if r.outcome == "never_started" and not r.code.startswith(_NOT_THE_NODES)
    }
    unexplained = {(r.job_id, r.user) for r in others if r.failed and r.unexplained}
    data = NodeAnswer(
        job_id=release.job_id,
        attempt=release.attempt,
        node=record.node,
        up_to_ms=release.closes_ms,
        start_failures=len({job for job, _ in failed_starts}),
        start_failure_users=len({user for _, user in failed_starts}),
        failures=len({job for job, _ in unexplained}),
        failure_users=len({user for _, user in unexplained}),
        starts=len({r.job_id for r in others if r.started and not r.failed}),
        covered=record.covered,
        loss=release.loss,
        pool=record.pool,
        domains=record.domains,
        gpus_total=record.gpus_total,
    )
    key = stable_id(record.node, release.job_id, release.attempt, "answer", release.closes_ms, release.loss or 0)
    return [*emits, Emit(topics.EVIDENCE, release.job_id, key, now_ms, data)]


def news(record: NodeRecord, what: str, at_ms: int, now_ms: int, holders: Iterable[Held]) -> list[Emit]:
    """Return the word to attempts that hold this node that it is lost to them."""
    return [
        Emit(
            topics.EVIDENCE,
            held.job_id,
            stable_id(record.node, held.job_id, held.attempt, what, at_ms),
            now_ms,
            NodeNews(held.job_id, held.attempt, record.node, what, at_ms),  # type: ignore[arg-type]
        )
        for held in holders
    ]


def overlapping(record: NodeRecord, new: Held) -> list[Held]:
    """Return the attempts whose devices are surely among those that another attempt was given now."""
    if new.devices is None:
        return []
    mine = set(new.devices)
    return [
        held
        for held in record.held.values()
        if held.job_id != new.job_id
        and held.devices is not None
        and mine & set(held.devices)
        and not (held.mig or new.mig)
        and held.since_ms < new.since_ms
    ]
