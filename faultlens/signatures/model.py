"""What a log signature is, and what a match of one says."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from faultlens.causes import CauseClass

Role: TypeAlias = Literal["root", "cascade", "symptom", "advice", "quote", "progress"]
Strength: TypeAlias = Literal["strong", "weak", "name", "wrapper"]
Scope: TypeAlias = Literal["device", "node", "rank", "job", "service"]
Where: TypeAlias = Literal["log_tail", "message", "reason"]

TEXT_LIMIT: Final = 200

ROLE_MEANINGS: Final = MappingProxyType(
    {
        "root": "says what broke",
        "cascade": "a consequence of something else: another rank, an earlier fault, a teardown",
        "symptom": "says that something broke, not what",
        "advice": "a hint printed with an error; the rest of its line is never evidence",
        "quote": "source code or an echoed command; never evidence",
        "progress": "the job went on; what was printed before did not stop it",
    }
)

STRENGTH_MEANINGS: Final = MappingProxyType(
    {
        "strong": "decides the class by itself",
        "weak": "points to a class",
        "name": "only a name (of an exception, of a signal); counts when nothing explicit was printed",
        "wrapper": "a name given to anything (RuntimeError); counts when no symptom was printed before it",
    }
)


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern that real programs, drivers or schedulers print, and what it is evidence of.

    `pattern` is RE2 syntax, matched anywhere in the text; `^` and `$` are the ends of a line. Named groups
    of the pattern (`rank`, `device`, `node` …) are handed on with a match. `also` lists other causes that
    experts see behind the same words.
    """

    id: str
    origin: str
    pattern: str
    cause_code: str
    cause_class: CauseClass
    role: Role
    strength: Strength
    scope: Scope
    where: tuple[Where, ...]
    example: str
    counter_example: str | None = None
    also: tuple[str, ...] = ()


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """A signature found in a text: which one, what it means, and where it stands.

    `line_number` counts from 1 and `offset` characters from 0 in the text as it was read: without terminal colours,
    and unwrapped where lines were JSON; `log_line` is the line of the log as it was given.
    `span` is the number of characters that the pattern covered; `text` is the line, at most 200 characters.
    """

    id: str
    role: Role
    strength: Strength
    scope: Scope
    cause_code: str
    cause_class: CauseClass
    line_number: int
    log_line: int
    offset: int
    span: int
    text: str
    groups: dict[str, str]
    also: tuple[str, ...] = ()
