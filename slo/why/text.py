"""A story as a terminal shows it: the answer first, then what it rests on, then what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from faultlens.causes import title_of
from faultlens.clock import DAY_MS, iso, moment_of
from slo.report.summary import CATEGORY_WORDS
from slo.why.story import Judgement, Moment, Story
from slo.wording import MINUS, duration, listed, minute, percent, printable, whole_hours

WIDTH: Final = 100
PER_ROLE: Final = 6
TO_BLAME: Final = {
    "hardware": "hardware is to blame",
    "driver": "the driver is to blame",
    "platform": "the platform is to blame",
    "user": "the job itself is to blame",
}
RESTS_ON: Final = {
    "established": "a root fault was observed on what the attempt held, inside its window",
    "supported": "a symptom or a log line points there, but no root fault was seen",
    "assumed": "nothing pointed anywhere, and this class is the default",
}
ROLES: Final = {
    "root": "What broke",
    "contradicts": "What speaks against it",
    "cascade": "What followed from it",
    "symptom": "What was noticed",
    "context": "What else was going on",
}


def as_text(story: Story) -> str:
    """Return the whole story; control characters of what others wrote are escaped."""
    lines = [_wrapped(answer(story)), ""]
    for section in (_certainty, _advice, _timeline, _evidence, _cost, _losses, _attempts, _origin):
        told = list(section(story))
        lines += [*told, ""] if told else []
    return "\n".join(lines).rstrip()


def answer(story: Story) -> str:
    """Return the verdict in one sentence: what failed, whose fault it was, what happened and where."""
    name, verdict = f"{printable(story.job_id)} (attempt {story.attempt})", story.verdict
    if verdict is not None:
        what = printable(verdict.summary or title_of(verdict.code))
        return f"{name} failed: {TO_BLAME[verdict.cause_class]}. {what[:1].upper()}{what[1:]}."
    if story.withdrawn:
        return f"{name}: its verdict was withdrawn, since it turned out not to have failed."
    if not story.outcome:
        return f"{name} has not ended; nothing failed so far."
    return f"{name} ended as {story.outcome}: nothing failed, so nobody is to blame."


def _certainty(story: Story) -> Iterator[str]:
    verdict = story.verdict
    if verdict is None:
        return
    yield f"How sure    {verdict.basis}: {RESTS_ON[verdict.basis]}"
    right = percent(verdict.confidence, digits=0)
    yield f"            such verdicts were right in {right} of the failures whose cause is known"
    if verdict.status == "provisional":
        yield "            provisional: the evidence window is still open, it may change"
    if verdict.status == "amended":
        yield "            amended: later evidence changed an earlier final verdict"
    yield f"Cause       {verdict.code} ({title_of(verdict.code)})"
    if culprit := _culprit(verdict):
        yield f"Culprit     {culprit}"
    for cause_class, code, confidence in verdict.alternatives[:3]:
        yield f"Or else     {cause_class}, {code} ({title_of(code)}), {percent(confidence, digits=0)}"


def _culprit(verdict: Judgement) -> str:
    parts = [printable(verdict.node)] if verdict.node else []
    parts += [f"GPU {verdict.device_index}"] if verdict.device_index is not None else []
    parts += [f"rank {verdict.rank}"] if verdict.rank is not None else []
    return ", ".join(parts)


def _advice(story: Story) -> Iterator[str]:
    verdict = story.verdict
    if verdict is None:
        return
    yield f"What to do  {advice(verdict)}"
    if verdict.basis == "assumed":
        yield "            if it fails the same way again, look at the end of its log: nothing else pointed anywhere"


def certainty_lines(story: Story) -> list[tuple[str, str]]:
    """Return how sure the verdict is, its cause and culprit: what a line is about (empty: as before), and the line."""
    return [(line[:12].strip(), line[12:]) for line in _certainty(story)]


def cost_lines(story: Story) -> list[str]:
    """Return what the attempt cost, in words."""
    return [" ".join(line.split()) for line in list(_cost(story))[1:]]


def advice(verdict: Judgement) -> str:
    """Return what to do about the job, in words."""
    if verdict.advice == "do_not_retry":
        return "do not retry it as it is: the job itself has to change first"
    avoid = [printable(name) for name in verdict.exclude_nodes]
    # A device of a node that is avoided whole needs no words of its own.
    avoid += [
        f"device {printable(name)}"
        for name in verdict.exclude_devices
        if name.rpartition("/")[0] not in verdict.exclude_nodes
    ]
    return f"retry it, away from {listed(avoid)}" if avoid else "retry it as it is"


def _timeline(story: Story) -> Iterator[str]:
    if not story.timeline:
        return
    yield "Timeline (UTC)"
    day = -1
    for moment in story.timeline:
        if moment.at_ms // DAY_MS != day:
            day = moment.at_ms // DAY_MS
            yield f"  {moment_of(moment.at_ms):%A, %d %B %Y}"
        yield from _moment(moment, story.end_ms)
    if story.moments_left_out:
        yield f"  … {story.moments_left_out:,} more left out"


def _moment(moment: Moment, end_ms: int | None) -> Iterator[str]:
    offset = "" if end_ms is None else _offset(moment.at_ms - end_ms)
    mark = {"fault": "!", "trouble": "!", "end": ">", "verdict": "*"}.get(moment.mark, " ")
    head = f"  {moment_of(moment.at_ms):%H:%M:%S}  {offset:>13} {mark} "
    yield from _indented(head, printable(moment.what))


def _offset(difference_ms: int) -> str:
    if abs(difference_ms) < 1:
        return "end"
    return f"{MINUS if difference_ms < 0 else '+'}{duration(abs(difference_ms))}"


def _evidence(story: Story) -> Iterator[str]:
    roles = [*ROLES, *sorted({line.role for line in story.evidence} - ROLES.keys())]
    for role in roles:
        lines = [line for line in story.evidence if line.role == role]
        if lines:
            yield ROLES.get(role, role)
        for line in lines[:PER_ROLE]:
            head = f"  {moment_of(line.at_ms):%H:%M:%S}  "
            yield from _indented(head, f"{printable(line.what)}  [{printable(line.source)}]")
        if len(lines) > PER_ROLE:
            yield f"  … {len(lines) - PER_ROLE:,} more of the same kind"


def _cost(story: Story) -> Iterator[str]:
    spent = {name: amount for name, amount in story.spent_ms.items() if amount and name != "queued"}
    if story.verdict is None or not (spent or story.verdict.lost_gpu_seconds):
        return
    lost_ms = round(story.verdict.lost_gpu_seconds * 1000)
    since = duration(story.verdict.since_checkpoint_s * 1000)
    yield "What it cost"
    if lost_ms:
        yield f"  lost since the last good checkpoint: {whole_hours(lost_ms)} GPU-hours ({since} of work)"
    else:
        yield "  no work was lost, only the time that it held"
    if spent:
        parts = [f"{CATEGORY_WORDS.get(n, n).lower()} {whole_hours(a)}" for n, a in spent.items()]
        held = whole_hours(sum(spent.values()))
        yield from _indented("  ", f"of the {held} GPU-hours that it held: {', '.join(parts)}")
    if story.effective is not None and len(story.attempts) > 1:
        made = percent(story.effective)
        yield f"  all its attempts together made progress {made} of the time (its own failures left out)"


def _losses(story: Story) -> Iterator[str]:
    if story.losses:
        yield "Losses that it survived"
    for loss in story.losses:
        yield from _indented(
            "  ", f"{minute(loss.ended_ms)}: {loss.cause_class}, {printable(loss.summary or loss.code)}"
        )


def _attempts(story: Story) -> Iterator[str]:
    if len(story.attempts) < 2:
        return
    yield "Its attempts"
    for line in story.attempts[-10:]:
        cause = f"{line.cause_class}, {line.code}" if line.code else ""
        where = f" on {printable(line.node)}" if line.node else ""
        ended = minute(line.ended_ms) if line.ended_ms is not None else ""
        here = " <- this one" if line.attempt == story.attempt else ""
        yield f"  {line.attempt:>3}  {line.outcome:<13} {ended:<21} {cause}{where}{here}".rstrip()


def _origin(story: Story) -> Iterator[str]:
    verdict = story.verdict
    facts = ", ".join(f"{name} {printable(value)}" for name, value in story.facts.items())
    yield from _indented("", facts)
    if verdict is not None:
        yield f"rule {verdict.rule}, {verdict.catalog}; revision {verdict.revision}, {verdict.status}"


def _wrapped(words: str) -> str:
    return textwrap.fill(words, WIDTH, break_long_words=False)


def _indented(head: str, words: str) -> Iterator[str]:
    wrapped = textwrap.wrap(words, WIDTH - len(head), break_long_words=False) or [""]
    yield head + wrapped[0]
    yield from (" " * len(head) + more for more in wrapped[1:])


def as_plain(story: Story) -> dict[str, Any]:
    """Return the story as plain values, with its answer and advice in words; times are RFC 3339."""
    plain: dict[str, Any] = _with_times(asdict(story))
    plain["answer"] = answer(story)
    plain["advice"] = None if story.verdict is None else advice(story.verdict)
    return plain


def _with_times(value: Any) -> Any:
    """Write every number called `…_ms` as the moment that it is; `spent_ms` holds amounts in a dict of its own."""
    if isinstance(value, dict):
        return dict(_with_time(name, part) for name, part in value.items())
    if isinstance(value, list | tuple):
        return [_with_times(part) for part in value]
    return value


def _with_time(name: str, part: Any) -> tuple[str, Any]:
    if name.endswith("_ms") and isinstance(part, int):
        return name.removesuffix("_ms"), iso(part)
    return name, _with_times(part)
