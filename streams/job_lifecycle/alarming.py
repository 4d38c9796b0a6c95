"""What of a job concerns remediation: settled verdicts that blame a node, and trouble of jobs that still run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from faultlens import topics
from faultlens.clock import ms_of
from faultlens.events import JobAttributed, JobFinding
from faultlens.internal import JobTrouble, JobVerdict
from streams.processor import Emit

_EVIDENCE_TOLD: Final = 8


def alarmed(emits: Sequence[Emit]) -> list[Emit]:
    """Return the records, and behind them the word to remediation on those that concern it."""
    found = [alarm for emit in emits if (alarm := _alarm(emit)) is not None]
    return [*emits, *found]


def _alarm(emit: Emit) -> Emit | None:
    data = emit.data
    if isinstance(data, JobAttributed):
        word = _verdict(data, emit.time_ms)
        return None if word is None else Emit(topics.CONDITIONS, data.cluster, f"{emit.id}-verdict", emit.time_ms, word)
    if isinstance(data, JobFinding):
        trouble = JobTrouble(data.cluster, data.job_id, data)
        return Emit(topics.CONDITIONS, data.cluster, f"{emit.id}-trouble", emit.time_ms, trouble)
    return None


def _verdict(verdict: JobAttributed, now_ms: int) -> JobVerdict | None:
    """Return the verdict as remediation needs it; None: it is not settled, or blames no node."""
    node = verdict.culprit.node
    if verdict.status == "provisional" or node is None:
        return None
    return JobVerdict(
        cluster=verdict.cluster,
        job_id=verdict.job_id,
        attempt=verdict.attempt,
        loss=verdict.loss,
        at_ms=now_ms,
        ended_ms=ms_of(verdict.ended_at),
        withdrawn=verdict.status == "withdrawn",
        cause_class=verdict.cause.cause_class,
        code=verdict.cause.code,
        basis=verdict.basis,
        rule=verdict.rule,
        node=node,
        device=verdict.culprit.device,
        evidence=tuple(item.id for item in verdict.evidence if item.role == "root")[:_EVIDENCE_TOLD],
    )
