"""A log's verdict in words: what decided, what was read as consequence or advice, how sure, what else, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from faultlens.causes import CauseClass, title_of
from faultlens.signatures.decide import NOTHING_KNOWN_RULE, LogBasis, LogVerdict
from faultlens.signatures.measured import RIGHT_OF
from faultlens.signatures.model import Match
from faultlens.signatures.next_steps import NextSteps

LINES_SHOWN: Final = 6

_OWNERS: Final[Mapping[CauseClass, str]] = MappingProxyType(
    {
        "hardware": "the hardware",
        "driver": "the driver or its services",
        "platform": "the platform",
        "user": "the job itself",
    }
)
_WHY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "node_evidence_in_log": "a fault of a device, driver or node outranks the errors that programs make of it",
        "explicit_root_in_log": "it is the earliest line of the last episode that says by itself what broke",
        "pointing_root_in_log": "no line says by itself what broke; this is the earliest that points somewhere",
        "exception_name_in_log": "nothing more explicit was printed than the program's own exception",
        "symptom_in_log": "only symptoms were found, which have several causes",
        "consequence_in_log": "only consequences were found, of something that this log does not show",
        "cleared_by_progress_in_log": "the job went on after every fault that it printed",
        "nothing_known_in_log": "no known line was found",
    }
)

_NOTHING_TO_DO: Final = (
    "If the job failed, look for the rank that broke first, at the scheduler's word for its end, and at the kernel log "
    "of its nodes at that time."
)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log and the signature that knows it."""

    line: int
    text: str
    signature: str
    found: dict[str, str]


class Other(msgspec.Struct, frozen=True, kw_only=True):
    """What else it could be."""

    cause_class: CauseClass = msgspec.field(name="class")
    code: str
    title: str
    because: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a person or program is told of a log. `measured`: how often such verdicts were right, of how many."""

    cause_class: CauseClass = msgspec.field(name="class")
    code: str
    title: str
    basis: LogBasis
    confidence: float
    measured: tuple[int, int]
    rule: str
    because: str
    deciding: Line | None
    symptoms: tuple[Line, ...]
    consequences: tuple[Line, ...]
    earlier: tuple[Line, ...]
    advice: tuple[Line, ...]
    alternatives: tuple[Other, ...]
    next_step: str


def explain(verdict: LogVerdict, steps: NextSteps, *, first_line: int = 1) -> Answer:
    """The verdict in words. `first_line` is the number, in the log, of the first line that was read."""
    deciding = None if verdict.deciding is None else _line(verdict.deciding, first_line)
    return Answer(
        cause_class=verdict.cause_class,
        code=verdict.cause_code,
        title=title_of(verdict.cause_code),
        basis=verdict.basis,
        confidence=verdict.confidence,
        measured=RIGHT_OF[verdict.rule],
        rule=verdict.rule,
        because=_WHY[verdict.rule],
        deciding=deciding,
        symptoms=_lines(verdict.symptoms, deciding, first_line),
        consequences=_lines(verdict.consequences, deciding, first_line),
        earlier=_lines(verdict.earlier, deciding, first_line),
        advice=_lines(verdict.advice, None, first_line),
        alternatives=tuple(
            Other(cause_class=o.cause_class, code=o.cause_code, title=title_of(o.cause_code), because=o.because)
            for o in verdict.alternatives
        ),
        next_step=_NOTHING_TO_DO if verdict.rule == NOTHING_KNOWN_RULE else steps.for_cause(verdict.cause_code),
    )


def as_text(answer: Answer) -> Iterator[str]:
    """The answer as lines for a terminal; what the log printed is not yet escaped."""
    yield _headline(answer)
    yield f"  cause          {answer.code} ({answer.cause_class}), {answer.basis}"
    if answer.deciding is not None:
        yield f"  decided by     {_shown(answer.deciding)}"
    yield f"  because        {answer.because}"
    yield f"  how sure       {_how_sure(answer)}"
    for name, lines in (
        ("symptoms", answer.symptoms),
        ("consequences", answer.consequences),
        ("overcome", answer.earlier),
        ("only advice", answer.advice),
    ):
        yield from _block(name, [_shown(line) for line in lines])
    yield from _block("could also be", [f"{o.title} ({o.code}): {_OWNERS[o.cause_class]}" for o in answer.alternatives])
    yield f"  what to do     {answer.next_step}"


def _headline(answer: Answer) -> str:
    owner = _OWNERS[answer.cause_class]
    if answer.rule == NOTHING_KNOWN_RULE:
        return f"Nothing in this log says that anything broke. Of a job that failed all the same: {owner} (assumed)"
    sure = "" if answer.basis == "supported" else " (assumed)"
    return f"{answer.title}: {owner}{sure}"


def _how_sure(answer: Answer) -> str:
    right, of = answer.measured
    return f"{answer.confidence:.0%}: this rule was right on {right} of {of} labelled logs"


def _block(name: str, lines: list[str]) -> Iterator[str]:
    for number, line in enumerate(lines[:LINES_SHOWN]):
        yield f"  {name if number == 0 else '':<14} {line}"
    if len(lines) > LINES_SHOWN:
        yield f"  {'':<14} and {len(lines) - LINES_SHOWN} more"


def _shown(line: Line) -> str:
    return f"line {line.line}: {line.text}  [{line.signature}]"


def _lines(matches: Iterable[Match], deciding: Line | None, first_line: int) -> tuple[Line, ...]:
    """One entry a line of the log, without the deciding one."""
    by_number: dict[int, Line] = {}
    for match in matches:
        line = _line(match, first_line)
        if deciding is None or line.line != deciding.line:
            by_number.setdefault(line.line, line)
    return tuple(by_number.values())


def _line(match: Match, first_line: int) -> Line:
    return Line(line=match.log_line + first_line - 1, text=match.text, signature=match.id, found=match.groups)
