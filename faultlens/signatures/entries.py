"""Signatures as people write them in YAML, and how one becomes a checked signature."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from faultlens.causes import class_of, is_known
from faultlens.signatures.matcher import PatternError, compile_pattern
from faultlens.signatures.model import Role, Scope, Signature, Strength, Where

PATTERN_CHARS_LIMIT: Final = 800

_Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)+$", max_length=80)]
_Pattern = Annotated[str, StringConstraints(min_length=3, max_length=PATTERN_CHARS_LIMIT)]
_Words = Annotated[str, StringConstraints(min_length=3, max_length=2000)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SignatureEntry(_Strict):
    """One signature. A site's own must say why and since when (`reason`, `date`)."""

    id: _Identifier
    pattern: _Pattern
    cause_code: str
    role: Role = "root"
    strength: Strength = "strong"
    scope: Scope = "rank"
    where: tuple[Where, ...] = Field(default=("log_tail", "message"), min_length=1)
    example: _Words
    counter_example: _Words | None = None
    also: tuple[str, ...] = ()
    reason: _Words | None = None
    date: dt.date | None = None

    def complaints(self, *, site: bool) -> Iterator[str]:
        """What is wrong with this entry beyond its shape, and what to do."""
        if site and (self.reason is None or self.date is None):
            yield "a site's signature needs `reason` and `date`: add them"
        for code in (self.cause_code, *self.also):
            if not is_known(code):
                yield f"unknown cause code {code!r}: use one of faultlens.causes.CAUSES"
        yield from self._pattern_complaints()

    def _pattern_complaints(self) -> Iterator[str]:
        try:
            pattern = compile_pattern(self.pattern, role=self.role)
        except PatternError as error:
            yield str(error)
            return
        if pattern.search(b"") is not None:
            yield "the pattern matches an empty text: make it longer"
        if pattern.search(self.example.encode()) is None:
            yield "the pattern does not match its own example: correct one of them"
        if self.counter_example is not None and pattern.search(self.counter_example.encode()) is not None:
            yield "the pattern matches its counter-example: narrow it"

    def signature(self, origin: str) -> Signature:
        """The signature that this entry, free of complaints, describes."""
        fields = self.model_dump(exclude={"reason", "date"})
        return Signature(origin=origin, cause_class=class_of(self.cause_code), **fields)


class SignatureFile(_Strict):
    """A file of signatures with one origin (`cuda`, `nccl`, `slurm` …)."""

    origin: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=40)]
    signatures: tuple[SignatureEntry, ...] = Field(min_length=1)


class Manifest(_Strict):
    """What version the shipped signatures are."""

    version: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}(\.\d+)?$")]
