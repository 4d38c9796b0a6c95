"""What a drill knows to be true of the jobs that it ran, and how verdicts are held against it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from faultlens.codec import Event
from faultlens.events import FAILURES, JobAttributed, JobEnded, JobFinding

# The verdict on a failure may not be worse than this, in one of several defensible answers.
IN_FORCE: Final = frozenset({"final", "amended"})


class Failure(Struct, frozen=True, omit_defaults=True):
    """A failed attempt, or a loss that an attempt survived: who may be blamed, with which code, and where."""

    job_id: str
    classes: tuple[str, ...]
    codes: tuple[str, ...] = ()
    attempt: int = 1
    loss: int | None = None
    node: str | None = None
    device: str | None = None
    what: str = ""


class Truth(Struct, frozen=True, omit_defaults=True):
    """Every failure that there was, how every attempt that did not fail ended, and which findings there must be."""

    failures: tuple[Failure, ...]
    other_ends: dict[str, str] = {}
    findings: tuple[tuple[str, str], ...] = ()


def save(truth: Truth) -> bytes:
    """Return the truth in JSON, an entry a line."""
    return msgspec.json.format(msgspec.json.encode(truth), indent=1) + b"\n"


def load(raw: bytes) -> Truth:
    """Return the truth from JSON."""
    return msgspec.json.decode(raw, type=Truth)


def latest(events: Iterable[Event]) -> dict[tuple[str, int, int | None], JobAttributed]:
    """Return the verdict in force of each failure: the newest revision, unless that withdraws it."""
    newest: dict[tuple[str, int, int | None], JobAttributed] = {}
    for event in events:
        said = event.data
        if isinstance(said, JobAttributed):
            key = said.job_id, said.attempt, said.loss
            if key not in newest or newest[key].revision < said.revision:
                newest[key] = said
    return {key: said for key, said in newest.items() if said.status != "withdrawn"}


def waits_for(truth: Truth, events: Iterable[Event]) -> list[str]:
    """Return the failures that have no final verdict yet."""
    there = {key for key, said in latest(events).items() if said.status in IN_FORCE}
    wanted = {(f.job_id, f.attempt, f.loss): f for f in truth.failures}
    return [_named(failure) for key, failure in wanted.items() if key not in there]


def _named(failure: Failure) -> str:
    loss = f" loss {failure.loss}" if failure.loss is not None else ""
    return f"{failure.job_id}/{failure.attempt}{loss}"


def wrong(truth: Truth, outputs: Iterable[Event], inputs: Iterable[Event]) -> list[str]:
    """Return what does not agree with the truth, in words; nothing: all of it does."""
    outputs, inputs = list(outputs), list(inputs)
    verdicts = latest(outputs)
    wanted = {(f.job_id, f.attempt, f.loss): f for f in truth.failures}
    told = [
        f"{job}/{attempt} loss {loss}: {said.cause.cause_class} {said.cause.code}, but nothing failed"
        for (job, attempt, loss), said in verdicts.items()
        if (job, attempt, loss) not in wanted
    ]
    for key, failure in wanted.items():
        verdict = verdicts.get(key)
        if verdict is None:
            told.append(f"{_named(failure)}: no verdict")
        else:
            told += [f"{_named(failure)} ({failure.what}): {why}" for why in _differs(failure, verdict)]
    return told + _ends(truth, inputs) + _findings(truth, outputs) + _doubles(inputs)


def _differs(failure: Failure, verdict: JobAttributed) -> list[str]:
    found, cause = [], verdict.cause
    if cause.cause_class not in failure.classes:
        found.append(f"{cause.cause_class} ({cause.code}, {verdict.rule}), expected {' or '.join(failure.classes)}")
    if failure.codes and not any(cause.code == code or cause.code.startswith(f"{code}.") for code in failure.codes):
        found.append(f"{cause.code} ({verdict.rule}), expected {' or '.join(failure.codes)}")
    if failure.node is not None and verdict.culprit.node != failure.node:
        found.append(f"culprit {verdict.culprit.node}, expected {failure.node}")
    device = verdict.culprit.device
    dra = device.dra.device if device is not None and device.dra is not None else None
    if failure.device is not None and dra != failure.device:
        found.append(f"device {dra}, expected {failure.device}")
    if verdict.status not in IN_FORCE:
        found.append(f"only {verdict.status}")
    return found


def _ends(truth: Truth, inputs: Iterable[Event]) -> list[str]:
    """Return how ends of attempts that did not fail were told otherwise, and failures that nobody told as one."""
    told_ends = [event for event in inputs if isinstance(event.data, JobEnded)]
    # Contract: of a launcher's and a scheduler's word on the same end the scheduler's counts.
    told_ends.sort(key=lambda event: not event.source.startswith("launcher/"))
    ends = {f"{e.data.job_id}/{e.data.attempt}": e.data.outcome for e in told_ends if isinstance(e.data, JobEnded)}
    said = {(f"{e.data.job_id}/{e.data.attempt}", e.data.outcome) for e in told_ends if isinstance(e.data, JobEnded)}
    failed = {f"{f.job_id}/{f.attempt}" for f in truth.failures if f.loss is None}
    told = [
        f"{name}: ended {ends.get(name)}, expected {want}"
        for name, want in truth.other_ends.items()
        if ends.get(name) != want
    ]
    told += [
        f"{name}: ended {ends.get(name)}, but it failed"
        for name in sorted(failed)
        if not any((name, outcome) in said for outcome in FAILURES)
    ]
    unknown = ends.keys() - truth.other_ends.keys() - failed
    return told + [f"{name}: ended {ends[name]}, and was never run" for name in sorted(unknown)]


def _findings(truth: Truth, outputs: Iterable[Event]) -> list[str]:
    """Return the findings that are missing or told more than once."""
    counts: Counter[tuple[str, str]] = Counter()
    for event in outputs:
        if isinstance(event.data, JobFinding):
            counts[event.data.job_id, event.data.kind] += 1
    return [
        f"{job}: {counts[job, kind]} findings {kind}, expected 1"
        for job, kind in truth.findings
        if counts[job, kind] != 1
    ]


def _doubles(inputs: Iterable[Event]) -> list[str]:
    """Return the ends that one reporter told twice with different content."""
    ends: dict[tuple[str, int, str], set[str]] = {}
    for event in inputs:
        if isinstance(event.data, JobEnded):
            ends.setdefault((event.data.job_id, event.data.attempt, event.source), set()).add(event.id)
    return [
        f"{job}/{attempt}: its end was told {len(ids)} times" for (job, attempt, _), ids in ends.items() if len(ids) > 1
    ]
