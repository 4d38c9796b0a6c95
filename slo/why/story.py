"""What there is to tell of one attempt, as plain data; times are milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Mark = Literal["life", "fault", "trouble", "end", "verdict"]


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened at a time."""

    at_ms: int
    mark: Mark
    what: str


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One observation that the verdict rests on, or that speaks against it."""

    role: str
    at_ms: int
    what: str
    source: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """A revision of a verdict."""

    revision: int
    status: str
    cause_class: str
    code: str
    summary: str
    basis: str
    confidence: float
    node: str
    device_index: int | None
    rank: int | None
    alternatives: tuple[tuple[str, str, float], ...]
    advice: str
    exclude_nodes: tuple[str, ...]
    exclude_devices: tuple[str, ...]
    lost_gpu_seconds: float
    since_checkpoint_s: float
    rule: str
    catalog: str
    ended_ms: int
    emitted_ms: int


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """An attempt of the job and what became of it; `code` is empty where nothing is charged to anyone."""

    attempt: int
    outcome: str
    ended_ms: int | None
    nodes: tuple[str, ...]
    cause_class: str = ""
    code: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """All that is told of an attempt. `verdict` is the one in force; None: nothing failed, or it was withdrawn.

    `spent_ms` is what its time went into by category, in GPU-milliseconds; `queued` in plain ones.
    `effective` is the effective training time ratio of the whole job.
    """

    job_id: str
    attempt: int
    facts: Mapping[str, str]
    outcome: str
    verdict: Judgement | None
    withdrawn: bool
    losses: tuple[Judgement, ...]
    timeline: tuple[Moment, ...]
    moments_left_out: int
    evidence: tuple[EvidenceLine, ...]
    spent_ms: Mapping[str, int]
    effective: float | None
    attempts: tuple[AttemptLine, ...]
    revisions: tuple[Judgement, ...] = field(default=())

    @property
    def end_ms(self) -> int | None:
        """When the attempt ended, as far as that is known."""
        ended = next((line.ended_ms for line in self.attempts if line.attempt == self.attempt), None)
        return ended if ended is not None or self.verdict is None else self.verdict.ended_ms


def judgement(row: Mapping[str, Any]) -> Judgement:
    """Return a verdict's row as a judgement."""
    return Judgement(
        revision=row["revision"],
        status=row["status"],
        cause_class=row["class"],
        code=row["code"],
        summary=row["summary"],
        basis=row["basis"],
        confidence=row["confidence"],
        node=row["node"],
        device_index=row["device_index"],
        rank=row["rank"],
        alternatives=tuple((a["class"], a["code"], a["confidence"]) for a in row["alternatives"]),
        advice=row["advice"],
        exclude_nodes=tuple(row["exclude_nodes"]),
        exclude_devices=tuple(row["exclude_devices"]),
        lost_gpu_seconds=row["lost_gpu_seconds"],
        since_checkpoint_s=row["since_checkpoint_s"],
        rule=row["rule"],
        catalog=row["catalog"],
        ended_ms=row["ended_ms"],
        emitted_ms=row["emitted_ms"],
    )
