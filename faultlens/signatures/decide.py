"""Whose fault a log alone says it was: the named rules, in order; the first that applies decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from faultlens.causes import CauseClass, class_of
from faultlens.signatures.measured import confidence_of
from faultlens.signatures.model import Match, Strength

LogBasis: TypeAlias = Literal["supported", "assumed"]

ALTERNATIVES_KEPT: Final = 4
# A fault after which the job's ranks completed two further steps did not stop it.
STEPS_THAT_CLEAR: Final = 2
NOTHING_KNOWN_CODE: Final = "app.crash"
NOTHING_KNOWN_RULE: Final = "nothing_known_in_log"

_EXPLICIT: Final = frozenset({"strong", "weak"})


class Alternative(msgspec.Struct, frozen=True):
    """Another cause the log could mean; `because` is the signature that says so."""

    cause_class: CauseClass
    cause_code: str
    because: str


class LogVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says of a failure when nothing else is known.

    `basis` is `supported` when a line points to the cause, `assumed` when only symptoms or nothing was found;
    never `established`: that takes a fault seen on what the job held. `rule` names the rule that decided, and
    `confidence` is how often it was right where that was measured.
    `consequences` and `symptoms` were read as such, `earlier` was followed by two steps of progress.
    """

    cause_class: CauseClass
    cause_code: str
    basis: LogBasis
    confidence: float
    rule: str
    strength: Strength | None
    deciding: Match | None
    alternatives: tuple[Alternative, ...] = ()
    consequences: tuple[Match, ...] = ()
    symptoms: tuple[Match, ...] = ()
    earlier: tuple[Match, ...] = ()
    advice: tuple[Match, ...] = ()


class _Reading(msgspec.Struct, frozen=True):
    """The matches of a text by what they are read as, in the order of the text."""

    roots: tuple[Match, ...]
    symptoms: tuple[Match, ...]
    consequences: tuple[Match, ...]
    earlier: tuple[Match, ...]
    advice: tuple[Match, ...]


_Decision: TypeAlias = tuple[LogBasis, Match] | None
_Rule: TypeAlias = Callable[[_Reading], _Decision]


def _node_evidence(reading: _Reading) -> _Decision:
    """A fault of a device, driver or node printed in the log outranks the errors that programs made of it."""
    return _first(
        match
        for match in reading.roots
        if match.strength == "strong"
        and match.scope in {"device", "node"}
        and match.cause_class in {"hardware", "driver"}
    )


def _explicit_root(reading: _Reading) -> _Decision:
    """The earliest line that decides by itself wins over all that follows."""
    return _first(match for match in reading.roots if match.strength == "strong")


def _pointing_root(reading: _Reading) -> _Decision:
    """No line decides by itself: the earliest that points somewhere."""
    return _first(match for match in reading.roots if match.strength == "weak")


def _exception_name(reading: _Reading) -> _Decision:
    """Nothing explicit was printed: the program's own exception ended it, if it is not the wrapper of a symptom."""
    telling = min((match.offset for match in reading.symptoms if match.strength != "name"), default=None)
    return _first(
        match
        for match in reading.roots
        if match.strength == "name" or (match.strength == "wrapper" and (telling is None or match.offset < telling))
    )


def _symptom_only(reading: _Reading) -> _Decision:
    """Only symptoms: the default of the first that says more than how the process ended, assumed."""
    telling = [match for match in reading.symptoms if match.strength != "name"]
    return ("assumed", (telling or reading.symptoms)[0]) if reading.symptoms else None


def _consequence_only(reading: _Reading) -> _Decision:
    """Only consequences of something that this log does not show: the first one's default, assumed."""
    return ("assumed", reading.consequences[0]) if reading.consequences else None


def _cleared_by_progress(reading: _Reading) -> _Decision:
    """Faults were printed, but the job went on after them: the last one, assumed."""
    roots = [match for match in reading.earlier if match.role == "root"]
    return ("assumed", roots[-1]) if roots else None


RULES: Final[tuple[tuple[str, _Rule], ...]] = (
    ("node_evidence_in_log", _node_evidence),
    ("explicit_root_in_log", _explicit_root),
    ("pointing_root_in_log", _pointing_root),
    ("exception_name_in_log", _exception_name),
    ("symptom_in_log", _symptom_only),
    ("consequence_in_log", _consequence_only),
    ("cleared_by_progress_in_log", _cleared_by_progress),
)


def decide(matches: Iterable[Match]) -> LogVerdict:
    """Class and code that the matches of one text support, or the default where they support none."""
    reading = _read(tuple(matches))
    for name, rule in RULES:
        decision = rule(reading)
        if decision is not None:
            return _verdict(name, decision, reading)
    return LogVerdict(
        cause_class="user",
        cause_code=NOTHING_KNOWN_CODE,
        basis="assumed",
        confidence=confidence_of(NOTHING_KNOWN_RULE),
        rule=NOTHING_KNOWN_RULE,
        strength=None,
        deciding=None,
        advice=reading.advice,
    )


def _read(matches: Sequence[Match]) -> _Reading:
    begins = _terminal_episode(matches)
    evidence = [match for match in matches if match.role in {"root", "cascade", "symptom"}]
    episode = _without_mere_names(_without_parts([match for match in evidence if match.offset >= begins]))
    return _Reading(
        roots=_by_line(match for match in episode if match.role == "root"),
        symptoms=_by_line(match for match in episode if match.role == "symptom"),
        consequences=_by_line(match for match in episode if match.role == "cascade"),
        earlier=_by_line(match for match in evidence if match.offset < begins),
        advice=_by_line(match for match in matches if match.role == "advice"),
    )


def _terminal_episode(matches: Iterable[Match]) -> int:
    """Where the last episode begins: at the last but one sign of progress, or at the start.

    A line that two signatures know is one sign; one that a progress bar wrote over is several.
    """
    steps: list[Match] = []
    for match in sorted((m for m in matches if m.role == "progress"), key=lambda m: (m.offset, m.id)):
        if not steps or match.line_number != steps[-1].line_number or match.id == steps[-1].id:
            steps.append(match)
    return steps[-STEPS_THAT_CLEAR].offset if len(steps) >= STEPS_THAT_CLEAR else 0


def _without_parts(matches: Sequence[Match]) -> list[Match]:
    """Without what only points somewhere and stands inside a longer match that is known to be a symptom."""
    whole = [match for match in matches if match.role == "symptom" and match.strength in _EXPLICIT]
    return [match for match in matches if match.strength == "strong" or not any(_inside(match, w) for w in whole)]


def _inside(part: Match, whole: Match) -> bool:
    return (
        part.role == "root"
        and part.span < whole.span
        and whole.offset <= part.offset
        and part.offset + part.span <= whole.offset + whole.span
    )


def _without_mere_names(matches: Sequence[Match]) -> list[Match]:
    """A name says nothing more on a line whose words are known, an exception's name none where it is a symptom's."""
    explicit = {match.line_number for match in matches if match.strength in _EXPLICIT}
    symptoms = {match.line_number for match in matches if match.role != "root"}
    return [
        match
        for match in matches
        if match.strength in _EXPLICIT
        or (match.line_number not in explicit and (match.role != "root" or match.line_number not in symptoms))
    ]


def _by_line(matches: Iterable[Match]) -> tuple[Match, ...]:
    """In the order of lines; on one line the longer match first, since it says more."""
    return tuple(sorted(matches, key=lambda match: (match.line_number, -match.span, match.id, match.offset)))


def _first(matches: Iterable[Match]) -> _Decision:
    match = next(iter(matches), None)
    return None if match is None else ("supported", match)


def _verdict(rule: str, decision: tuple[LogBasis, Match], reading: _Reading) -> LogVerdict:
    basis, deciding = decision
    return LogVerdict(
        cause_class=deciding.cause_class,
        cause_code=deciding.cause_code,
        basis=basis,
        confidence=confidence_of(rule),
        rule=rule,
        strength=deciding.strength,
        deciding=deciding,
        alternatives=_alternatives(deciding, reading),
        consequences=reading.consequences,
        symptoms=reading.symptoms,
        earlier=reading.earlier,
        advice=reading.advice,
    )


def _alternatives(deciding: Match, reading: _Reading) -> tuple[Alternative, ...]:
    """What else it could be: what experts see behind the deciding words, then other roots, then telling symptoms."""
    others = [match for match in (*reading.roots, *reading.symptoms) if match.strength in _EXPLICIT]
    candidates = [
        *(Alternative(class_of(code), code, deciding.id) for code in deciding.also),
        *(Alternative(match.cause_class, match.cause_code, match.id) for match in others),
    ]
    first: dict[str, Alternative] = {}
    for candidate in candidates:
        if candidate.cause_code != deciding.cause_code:
            first.setdefault(candidate.cause_code, candidate)
    return tuple(first.values())[:ALTERNATIVES_KEPT]
