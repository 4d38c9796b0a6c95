"""What nodes are told: that an attempt holds them, and that it let them go."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from faultlens import topics
from faultlens.codec import stable_id
from faultlens.events import Slot
from faultlens.internal import Held, Released
from streams import goodput
from streams.attribution import End
from streams.job_lifecycle.record import (
    LOOK_AGAIN_MS,
    RESEND_MS,
    WINDOW_AFTER_MS,
    WINDOW_BEFORE_MS,
    Attempt,
    JobRecord,
    Loss,
)
from streams.job_lifecycle.repeating import brought_along
from streams.processor import Emit

# What PyTorch's watchdog prints of a collective that it gave up: for how long it had waited.
_WAITED: Final = re.compile(r"collective operation timeout: .*?\bTimeout\(ms\)=(\d{3,8})\b")


class Known(Struct, frozen=True):
    """What is known so far of an end: the cause's code, whether that is only a guess, and the node that is named."""

    code: str = ""
    unexplained: bool = False
    culprit: str = ""


def held(job: JobRecord, attempt: Attempt, slots: list[Slot], now_ms: int) -> list[Emit]:
    """Return the word to each of these nodes that the attempt holds it."""
    return [
        Emit(
            topics.ALLOCATIONS,
            slot.node,
            stable_id(job.job_id, attempt.attempt, slot.node, "held"),
            now_ms,
            Held(
                node=slot.node,
                job_id=job.job_id,
                attempt=attempt.attempt,
                cluster=attempt.cluster or job.cluster,
                since_ms=attempt.allocated_ms or now_ms,
                devices=slot.devices,
                mig=slot.mig,
                user=job.user,
                image=job.image,
                gpus=len(slot.devices or slot.device_refs or ()) or _share(job, attempt),
                refs=slot.device_refs,
                job_gpus=max(attempt.gpus, job.gpus),
                priority=job.priority,
            ),
        )
        for slot in slots
    ]


def _share(job: JobRecord, attempt: Attempt) -> int:
    """Return the GPUs per node of an allocation that does not name its devices."""
    return job.gpus // max(1, len(attempt.slots))


def opens_ms(attempt: Attempt) -> int:
    """Return when the evidence window opens: ten minutes before the first sign of trouble."""
    return trouble_ms(attempt) - WINDOW_BEFORE_MS


def trouble_ms(attempt: Attempt) -> int:
    """Return the first sign of trouble: the progress before a stall, the first error or exit, or the end."""
    end = attempt.end
    signs = [end.at_ms] if end is not None else [attempt.heard_ms]
    if attempt.losses:
        signs += [leaving.first_ms for leaving in attempt.last_exits]
    elif attempt.first_exit_ms is not None:
        signs.append(attempt.first_exit_ms)
    stalled_ms = stalled_since_ms(attempt)
    if stalled_ms is not None:
        signs.append(stalled_ms)
    return min([*signs, *_waiting_since(attempt)])


def _waiting_since(attempt: Attempt) -> list[int]:
    """Return since when ranks had waited in collectives that timed out, by their own words."""
    leaving = attempt.last_exits if attempt.losses else attempt.exits
    told = [(e.first_ms, e.said.line) for e in leaving]
    if attempt.end is not None:
        told.append((attempt.end.at_ms, attempt.end.said.line))
    began_ms = attempt.started_ms or attempt.allocated_ms or 0
    return [max(began_ms, at_ms - int(found[1])) for at_ms, line in told if (found := _WAITED.search(line))]


def stalled_since_ms(attempt: Attempt) -> int | None:
    """Return since when the attempt made no progress before its end, where that is longer than its pace explains."""
    if attempt.stalled_ms is not None:
        return attempt.stalled_ms
    end = attempt.end
    if attempt.ledger is None or end is None:
        return None
    return goodput.stalled_since(attempt.ledger, end.at_ms)


def released(job: JobRecord, attempt: Attempt, now_ms: int, known: Known) -> tuple[Attempt, list[Emit]]:
    """Return the word to the nodes that the attempt ended, when it is new or five minutes went by unanswered."""
    end = attempt.end
    if end is None:
        return attempt, []
    release = _release(job, attempt, end, known)
    word = (release.opens_ms, release.closes_ms, release.outcome, release.brought)
    slots = attempt.answering
    nodes = list(slots)
    if word == attempt.told:
        if not attempt.failed or now_ms < sent_again_ms(attempt.sent_ms, attempt.closes_ms):
            return attempt, []
        nodes = unanswered(attempt)
    emits = [_to_node(replace(release, node=node, devices=slots[node].devices), now_ms) for node in nodes]
    return replace(attempt, told=word, sent_ms=now_ms), emits


def sent_again_ms(sent_ms: int, closes_ms: int) -> int:
    """Return when to ask again: nobody can answer before the window closes."""
    return max(sent_ms, closes_ms) + RESEND_MS


def looked_again_ms(closes_ms: int, now_ms: int) -> int:
    """Return when to look again whether the context's clock, which is all that is missing, has come as far.

    It is a moment behind the nodes' as a rule; the longer it is, the more seldom one looks.
    """
    return now_ms + max(LOOK_AGAIN_MS, (now_ms - closes_ms) // 8)


def unanswered(attempt: Attempt) -> list[str]:
    """Return the nodes whose evidence is not known to be complete up to the end of the window."""
    closes_ms, answers = attempt.closes_ms, attempt.answers
    return [node for node in attempt.answering if node not in answers or answers[node].up_to_ms < closes_ms]


def _release(job: JobRecord, attempt: Attempt, end: End, known: Known) -> Released:
    """Return what every node is told, without the node: a gang has thousands."""
    return Released(
        node="",
        job_id=job.job_id,
        attempt=attempt.attempt,
        cluster=attempt.cluster or job.cluster,
        at_ms=end.at_ms,
        failed=attempt.failed,
        started=attempt.started_ms is not None or end.outcome == "succeeded",
        opens_ms=opens_ms(attempt),
        closes_ms=attempt.closes_ms,
        user=job.user,
        image=job.image,
        outcome=end.outcome,
        unexplained=known.unexplained,
        code=known.code,
        since_ms=attempt.allocated_ms or 0,
        culprit=known.culprit,
        brought=brought_along(job) if attempt.failed else (),
    )


def _to_node(release: Released, now_ms: int) -> Emit:
    told = (release.job_id, release.attempt, release.node, "released", release.opens_ms, release.closes_ms, now_ms)
    return Emit(topics.ALLOCATIONS, release.node, stable_id(*told), now_ms, release)


def left(job: JobRecord, attempt: Attempt, slots: list[Slot], at_ms: int, now_ms: int) -> list[Emit]:
    """Return the word to nodes that the attempt gave back while it goes on elsewhere, and lost nothing by that."""
    return [
        Emit(
            topics.ALLOCATIONS,
            slot.node,
            stable_id(job.job_id, attempt.attempt, slot.node, "left", at_ms),
            now_ms,
            Released(
                node=slot.node,
                job_id=job.job_id,
                attempt=attempt.attempt,
                cluster=attempt.cluster or job.cluster,
                at_ms=at_ms,
                failed=False,
                started=attempt.started_ms is not None,
                devices=slot.devices,
                user=job.user,
                image=job.image,
                since_ms=attempt.allocated_ms or 0,
            ),
        )
        for slot in slots
    ]


def lost(job: JobRecord, attempt: Attempt, loss: Loss, now_ms: int) -> tuple[Loss, list[Emit]]:
    """Return the word to the nodes of a loss that the attempt survived, until they have answered."""
    closes_ms = loss.at_ms + WINDOW_AFTER_MS
    waiting = [s for s in loss.lost if s.node not in loss.answers]
    if not waiting or (loss.sent_ms and now_ms < sent_again_ms(loss.sent_ms, closes_ms)):
        return loss, []
    emits = []
    for slot in waiting:
        data = Released(
            node=slot.node,
            job_id=job.job_id,
            attempt=attempt.attempt,
            cluster=attempt.cluster or job.cluster,
            at_ms=loss.at_ms,
            failed=True,
            started=True,
            opens_ms=loss.at_ms - WINDOW_BEFORE_MS,
            closes_ms=closes_ms,
            loss=loss.number,
            devices=slot.devices,
            user=job.user,
            image=job.image,
            outcome="failed",
            keeps=slot.node in attempt.slots,
            since_ms=attempt.allocated_ms or 0,
        )
        key = stable_id(job.job_id, attempt.attempt, slot.node, "lost", loss.number, now_ms)
        emits.append(Emit(topics.ALLOCATIONS, slot.node, key, now_ms, data))
    return replace(loss, sent_ms=now_ms), emits
