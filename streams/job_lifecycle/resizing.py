"""What an attempt holds: by its allocation and its changes of size, in whatever order they and their parts arrive."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from faultlens.codec import Event
from faultlens.events import JobAllocated, JobResized, Slot
from streams import goodput
from streams.job_lifecycle.record import LOSSES_MAX, SAME_LOSS_MS, Attempt, JobRecord, Loss, gpus_of


def allocated(job: JobRecord, attempt: Attempt, event: Event, data: JobAllocated) -> Attempt:
    """Return the attempt with what it was allocated, and since when; of its changes of size the newest still holds."""
    at_ms = event.time_ms if attempt.allocated_ms is None else min(attempt.allocated_ms, event.time_ms)
    late = event.time_ms <= attempt.resized_ms
    new = {} if late else {slot.node: slot for slot in data.allocation if slot.node not in attempt.gone}
    attempt = replace(attempt, cluster=data.cluster, slots={**attempt.slots, **new}, allocated_ms=at_ms)
    ledger = attempt.ledger
    if ledger is None:
        return replace(attempt, ledger=opened_ledger(job, attempt, at_ms))
    gpus = held_gpus(job, attempt)
    if late:
        gpus = ledger.gpus if data.part is not None else gpus_of(data.allocation, job.gpus)
    if (at_ms, gpus) != (ledger.from_ms, ledger.gpus) and (late or not ledger.sizes):
        ledger = goodput.on_allocated(ledger, at_ms, gpus)
    return replace(attempt, ledger=ledger)


def resized(job: JobRecord, attempt: Attempt, event: Event, data: JobResized) -> Attempt:
    """Return the attempt with what it goes on with, and what it lost by that; what a newer one says still holds."""
    ledger = attempt.ledger
    if ledger is None and attempt.allocated_ms is None:
        ledger = opened_ledger(job, attempt, event.time_ms)
    slots = said = {slot.node: slot for slot in data.allocation}
    if data.part is not None and event.time_ms == attempt.resized_ms:
        slots = said = {**attempt.slots, **said}
    elif event.time_ms < attempt.resized_ms:
        slots = attempt.slots
    gpus = gpus_of(said.values(), _share(job, attempt, len(said)))
    given_back = {node: "" for node in attempt.slots if node not in slots}
    lost = {slot.node: slot for slot in data.lost}
    losses, number = _with_loss(attempt, event, data) if lost else (attempt.losses, 0)
    return replace(
        attempt,
        slots=slots,
        gone={node: slot for node, slot in {**attempt.gone, **lost}.items() if node not in slots},
        pools={**given_back, **attempt.pools},
        losses=losses,
        overflow=attempt.overflow + len({*_numbers(attempt.losses)} - {*_numbers(losses)}),
        resized_ms=max(attempt.resized_ms, event.time_ms),
        ledger=ledger and goodput.on_resized(ledger, event.time_ms, gpus, loss=number),
    )


def _share(job: JobRecord, attempt: Attempt, nodes: int) -> int:
    """Return how many GPUs so many nodes have of a job that names none of them."""
    return job.gpus * nodes // (job.nodes or len(attempt.slots) or 1)


def held_gpus(job: JobRecord, attempt: Attempt) -> int:
    """Return how many GPUs the attempt holds: those that are named, or as many as its job wants."""
    return gpus_of(attempt.slots.values(), job.gpus) or job.gpus


def opened_ledger(job: JobRecord, attempt: Attempt, at_ms: int) -> goodput.Ledger:
    """Return a new ledger for the attempt, which goes on from the attempt before it."""
    before = job.attempts.get(attempt.attempt - 1)
    ledger = goodput.open_ledger(
        attempt.attempt,
        at_ms,
        held_gpus(job, attempt),
        keeps_work=goodput.keeps_work(job.workload),
        previous=before.ledger if before is not None else None,
    )
    return ledger if attempt.started_ms is None else goodput.on_started(ledger, attempt.started_ms)


def refitted(job: JobRecord, attempt: Attempt) -> Attempt:
    """Return the attempt with its ledger by what was submitted, where that is heard only after the allocation."""
    ledger, keeps_work = attempt.ledger, goodput.keeps_work(job.workload)
    if ledger is None:
        return attempt
    if ledger.keeps_work != keeps_work:
        ledger = replace(ledger, keeps_work=keeps_work)
    if not (ledger.gpus or attempt.gpus or ledger.sizes) and job.gpus:
        ledger = goodput.on_allocated(ledger, ledger.from_ms, job.gpus)
    return attempt if ledger is attempt.ledger else replace(attempt, ledger=ledger)


def _with_loss(attempt: Attempt, event: Event, data: JobResized) -> tuple[tuple[Loss, ...], int]:
    """Return the losses with this one, and its number; the same nodes or devices within five minutes are one loss."""
    for loss in attempt.losses:
        if abs(loss.at_ms - event.time_ms) <= SAME_LOSS_MS and _same_slots(loss.lost, data.lost):
            return attempt.losses, loss.number
    number = attempt.losses[-1].number + 1 if attempt.losses else 1
    loss = Loss(number, event.time_ms, event.id, event.source, data.lost, data.reason)
    return (*_with_room(attempt.losses), loss), number


def _numbers(losses: tuple[Loss, ...]) -> list[int]:
    return [loss.number for loss in losses]


def _with_room(losses: tuple[Loss, ...]) -> tuple[Loss, ...]:
    """Return the losses without the oldest that has had its final verdict, where they are as many as may be."""
    oldest = next((loss for loss in losses if loss.is_decided), None)
    return losses if len(losses) < LOSSES_MAX else tuple(loss for loss in losses if loss is not oldest)


def _same_slots(one: Iterable[Slot], other: Iterable[Slot]) -> bool:
    devices = {slot.node: slot.devices for slot in other}
    return devices.keys() == {slot.node for slot in one} and all(
        slot.devices is None or (theirs := devices[slot.node]) is None or not {*slot.devices}.isdisjoint(theirs)
        for slot in one
    )
