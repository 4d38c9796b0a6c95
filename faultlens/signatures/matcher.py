"""Finds every signature in a text with one pass, then looks only for those that occur."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import re2

from faultlens.signatures.model import TEXT_LIMIT, Match, Signature, Where
from faultlens.signatures.normalise import normalise

# Of a line that a loop prints a thousand times the first and the last ones say everything.
OCCURRENCES_KEPT: Final = 8
# A gang's thousand ranks print the same tail; at most 8 KiB each, so the memory is bounded by 4 MiB.
TEXTS_REMEMBERED: Final = 512
# A DFA over hundreds of patterns outgrows RE2's default of 8 MiB; it fills lazily, with what texts need.
DFA_MEMORY_BYTES: Final = 256 << 20

_MASKING_ROLES: Final = frozenset({"advice", "quote"})
_Span = tuple[int, int]


class PatternError(ValueError):
    """A pattern that RE2 does not take."""


def pattern_options(max_mem: int | None = None) -> re2.Options:
    """Options for all patterns: bytes for letters, so that any encoding can be read and offsets are cheap."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    if max_mem is not None:
        options.max_mem = max_mem
    return options


def compile_pattern(pattern: str) -> re2._Regexp:
    """The pattern with `^` and `$` at the ends of lines. Raises `PatternError`."""
    if not pattern.isascii():
        raise PatternError("a pattern must be ASCII, since texts are matched byte by byte")
    try:
        # Not re2.compile: its cache of 128 patterns is smaller than a set.
        return re2._Regexp(f"(?m:{pattern})".encode(), pattern_options())  # noqa: SLF001
    except re2.error as error:
        raise PatternError(f"not RE2 syntax: {error}") from error


class _Located:
    """A text with what is needed to say on which line a byte stands."""

    def __init__(self, text: str) -> None:
        self.data = text.encode("utf-8", "replace")
        self._ascii = len(self.data) == len(text)
        self._starts = [0]
        position = self.data.find(b"\n")
        while position >= 0:
            self._starts.append(position + 1)
            position = self.data.find(b"\n", position + 1)

    def line_number(self, position: int) -> int:
        return bisect_right(self._starts, position)

    def line_end(self, position: int) -> int:
        end = self.data.find(b"\n", position)
        return len(self.data) if end < 0 else end

    def characters(self, start: int, end: int) -> int:
        return end - start if self._ascii else len(self.data[start:end].decode("utf-8", "ignore"))

    def line_around(self, start: int) -> str:
        """The line that holds byte `start`, cut so that what matched stays in view."""
        begin = max(self.data.rfind(b"\n", 0, start), self.data.rfind(b"\r", 0, start)) + 1
        begin = max(begin, start - TEXT_LIMIT // 2)
        line = self.data[begin : min(self.line_end(start), begin + 4 * TEXT_LIMIT)]
        return line.decode("utf-8", "ignore").split("\r", 1)[0].strip()[:TEXT_LIMIT]


class _Compiled:
    """The signatures that apply to one kind of text, as one automaton and as single patterns."""

    def __init__(self, signatures: Sequence[Signature], dfa_memory_bytes: int) -> None:
        self.signatures = signatures
        self.patterns = [compile_pattern(signature.pattern) for signature in signatures]
        self.groups = [
            {name.decode(): index for name, index in pattern.groupindex.items()} for pattern in self.patterns
        ]
        self._set = re2.Set.SearchSet(pattern_options(dfa_memory_bytes))
        for signature in signatures:
            self._set.Add(f"(?m:{signature.pattern})".encode())
        # It matches every text. A set that ran out of memory reports no match at all: then this is missing.
        self._always = self._set.Add(b"(?:)")
        self._set.Compile()

    def occurring(self, data: bytes) -> Iterable[int]:
        """Indexes of the signatures that occur in the data, or of all when the automaton gave up."""
        found = self._set.Match(data)
        if found is None or self._always not in found:
            return range(len(self.signatures))
        return sorted(index for index in found if index != self._always)


class SignatureSet:
    """Compiled signatures. Reading is free of side effects but for a bounded memory of texts seen."""

    def __init__(
        self,
        signatures: Iterable[Signature],
        *,
        version: str,
        dfa_memory_bytes: int = DFA_MEMORY_BYTES,
    ) -> None:
        self.signatures: tuple[Signature, ...] = tuple(signatures)
        self.version = version
        kinds: tuple[Where, ...] = ("log_tail", "message", "reason")
        self._compiled: Mapping[Where, _Compiled] = {
            kind: _Compiled([s for s in self.signatures if kind in s.where], dfa_memory_bytes) for kind in kinds
        }
        self._scan = lru_cache(maxsize=TEXTS_REMEMBERED)(self._scan_anew)

    def scan(self, text: str, *, where: Where = "log_tail") -> tuple[Match, ...]:
        """All matches in the order of the text, without those inside advice or quoted source code.

        Of a signature that occurs more than 16 times the first 8 and the last 8 are kept.
        """
        return self._scan(text, where)

    def _scan_anew(self, text: str, where: Where) -> tuple[Match, ...]:
        compiled = self._compiled[where]
        located = _Located(normalise(text))
        indexes = compiled.occurring(located.data)
        masks = [
            span
            for index in indexes
            if compiled.signatures[index].role in _MASKING_ROLES
            for span in _masks(compiled, index, located)
        ]
        matches = [match for index in indexes for match in _matches(compiled, index, located, sorted(masks))]
        return tuple(sorted(matches, key=lambda match: (match.offset, match.id)))


def _masks(compiled: _Compiled, index: int, located: _Located) -> Iterator[_Span]:
    """From where an advice begins to the end of its line; exactly what a quote covers."""
    to_line_end = compiled.signatures[index].role == "advice"
    for found in compiled.patterns[index].finditer(located.data):
        start, end = found.span()
        yield start, located.line_end(end) if to_line_end else end


def _matches(compiled: _Compiled, index: int, located: _Located, masks: Sequence[_Span]) -> Iterator[Match]:
    signature = compiled.signatures[index]
    if signature.role == "quote":
        return
    spans = [
        found
        for found in compiled.patterns[index].finditer(located.data)
        if signature.role == "advice" or not _masked(found.start(), masks)
    ]
    kept = spans if len(spans) <= 2 * OCCURRENCES_KEPT else spans[:OCCURRENCES_KEPT] + spans[-OCCURRENCES_KEPT:]
    for found in kept:
        yield _match(signature, compiled.groups[index], found, located)


def _masked(position: int, masks: Sequence[_Span]) -> bool:
    return any(start <= position < end for start, end in masks)


def _match(signature: Signature, groups: Mapping[str, int], found: re2._Match, located: _Located) -> Match:
    start, end = found.span()
    return Match(
        id=signature.id,
        role=signature.role,
        strength=signature.strength,
        scope=signature.scope,
        cause_code=signature.cause_code,
        cause_class=signature.cause_class,
        line_number=located.line_number(start),
        offset=located.characters(0, start),
        span=located.characters(start, end),
        text=located.line_around(start),
        groups={
            name: value.decode("utf-8", "replace")[:TEXT_LIMIT]
            for name, number in groups.items()
            if (value := found.group(number)) is not None
        },
        also=signature.also,
    )
