"""Attribution: from the facts of a failed attempt to a verdict, by the first rule that applies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from faultlens.clock import moment_of
from faultlens.events import (
    Advice,
    Alternative,
    Basis,
    Cause,
    Culprit,
    DeviceRef,
    EvidenceItem,
    EvidenceRole,
    Retry,
)
from faultlens.internal import Observation
from streams.attribution.facts import Exit, Facts
from streams.attribution.precision import Precision
from streams.attribution.roots import cleared_by_progress, in_window, own_error, too_late
from streams.attribution.rules import RULES, name_of
from streams.attribution.verdict import Finding

_EVIDENCE_MAX: Final = 24
_EXITS_SHOWN: Final = 6
_ALTERNATIVES_MAX: Final = 2
_SAME_FAILURES: Final = 3


class Verdict(Struct, frozen=True):
    """The answer on one failed attempt, before revisions and costs are added."""

    cause: Cause
    basis: Basis
    confidence: float
    culprit: Culprit
    evidence: tuple[EvidenceItem, ...]
    alternatives: tuple[Alternative, ...]
    retry: Retry
    rule: str


def attribute(facts: Facts, precision: Precision) -> Verdict:
    """Return the verdict on the attempt: exactly one cause, whatever is known."""
    answers = [(name_of(rule), finding) for rule in RULES if (finding := rule(facts)) is not None]
    rule, finding = answers[0]
    confidence = precision.of(rule, finding.basis)
    return Verdict(
        cause=Cause(finding.cause_class, finding.code, finding.summary),
        basis=finding.basis,
        confidence=confidence,
        culprit=Culprit(finding.node, finding.device, finding.rank) if finding.node else Culprit(),
        evidence=_evidence(facts, finding),
        alternatives=_alternatives(finding, answers[1:], precision, 1.0 - confidence),
        retry=_retry(facts, finding),
        rule=rule,
    )


def _alternatives(
    finding: Finding, others: Sequence[tuple[str, Finding]], precision: Precision, left: float
) -> tuple[Alternative, ...]:
    """Return what else it could be: the next rules that apply, sharing what confidence is left."""
    found: list[Alternative] = []
    codes = {finding.code}
    for rule, other in others:
        if other.code in codes or len(found) >= _ALTERNATIVES_MAX:
            continue
        codes.add(other.code)
        share = round(left * precision.of(rule, other.basis), 4)
        left -= share
        found.append(Alternative(other.cause_class, other.code, share))
    return tuple(found)


# --- evidence ------------------------------------------------------------------------------------------


def _evidence(facts: Facts, finding: Finding) -> tuple[EvidenceItem, ...]:
    """Return the evidence, roots first, each observation with the part it plays in this verdict."""
    roots = {o.id for o in finding.roots}
    # The program's own words rest on the driver's report of them, but that report is no root fault of a device.
    root_role: EvidenceRole = "root" if finding.basis == "established" or finding.cause_class != "user" else "symptom"
    items = [_item(o, root_role) for o in finding.roots]
    items += finding.items
    known = {(item.source, item.id) for item in items}
    others = sorted((o for o in facts.observations if o.id not in roots), key=lambda o: (o.since_ms, o.id))
    items += [_item(o, _role(facts, finding, o)) for o in others]
    items += [
        _of_exit(e, finding) for e in sorted(facts.exits, key=lambda e: (e.first_ms, e.rank))[:_EXITS_SHOWN]
        if (e.source, e.id) not in known
    ]  # fmt: skip
    if facts.exits_total > _EXITS_SHOWN:
        rest = f"{facts.exits_total - min(_EXITS_SHOWN, len(facts.exits))} more ranks exited"
        items.append(EvidenceItem("cascade", facts.end.source, facts.end.id, moment_of(facts.end.at_ms), rest))
    order = {"root": 0, "contradicts": 1, "cascade": 2, "symptom": 3, "context": 4}
    return tuple(sorted(items, key=lambda item: order[item.role]))[:_EVIDENCE_MAX]


def _role(facts: Facts, finding: Finding, observation: Observation) -> EvidenceRole:
    first_ms = min((o.since_ms for o in finding.roots), default=None)
    if observation.role in ("sympathetic", "application") and in_window(facts, observation):
        return "cascade" if first_ms is not None and observation.since_ms >= first_ms else "symptom"
    if observation.role != "root" or not in_window(facts, observation) or observation.synthetic:
        return "context"
    if cleared_by_progress(facts, observation):
        return "context"
    if finding.cause_class == "user":
        return "context" if too_late(facts, observation) else "contradicts"
    return "cascade" if first_ms is not None and observation.since_ms >= first_ms else "context"


def _item(observation: Observation, role: EvidenceRole) -> EvidenceItem:
    return EvidenceItem(
        role, observation.source, observation.id, moment_of(observation.since_ms), described(observation)
    )


def described(observation: Observation) -> str:
    """Return an observation in words: `xid 48 on node-0042 GPU 5: double-bit ECC error (3 times)`."""
    device = observation.device
    where = observation.node + (f" GPU {device.index}" if device and device.index is not None else "")
    if device and device.index is None and device.link is not None:
        where += f" {device.link}"
    times = f" ({observation.count} times)" if observation.count > 1 else ""
    sub = f" {observation.subcode}" if observation.subcode else ""
    return f"{observation.kind} {observation.code}{sub} on {where}: {observation.meaning}{times}"


def _of_exit(leaving: Exit, finding: Finding) -> EvidenceItem:
    hostile = own_error(leaving.said) and finding.cause_class != "user"
    consequence = leaving.said.role == "cascade" or finding.basis == "established"
    role: EvidenceRole = "contradicts" if hostile else "cascade" if consequence else "symptom"
    how = leaving.said.line or leaving.reason or _ending(leaving)
    return EvidenceItem(role, leaving.source, leaving.id, moment_of(leaving.first_ms), f"rank {leaving.rank}: {how}")


def _ending(leaving: Exit) -> str:
    return f"signal {leaving.signal}" if leaving.signal else f"exit status {leaving.exit_code}"


# --- retry ---------------------------------------------------------------------------------------------


def _retry(facts: Facts, finding: Finding) -> Retry:
    """Return whether to try again: not what is broken itself, and not where the device is."""
    advice = finding.advice or _advice(facts, finding)
    if advice != "retry_elsewhere":
        return Retry(advice)
    if finding.node is None:
        return Retry("retry")
    return Retry(advice, (finding.node,), _devices(finding.node, finding.device))


def _devices(node: str, device: DeviceRef | None) -> tuple[str, ...]:
    return () if device is None or device.index is None else (f"{node}/{device.index}",)


def _advice(facts: Facts, finding: Finding) -> Advice:
    cause_class = finding.cause_class
    if cause_class != "user":
        return "retry_elsewhere" if finding.node else "retry"
    if finding.basis != "assumed":
        return "do_not_retry"
    same = [e for e in facts.earlier if e.how and e.how == facts.how]
    return "do_not_retry" if len(same) + 1 >= _SAME_FAILURES else "retry"
