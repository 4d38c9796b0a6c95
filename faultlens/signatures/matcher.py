"""Finds signatures in a text: one pass says which can occur where, and only those are looked for, only there."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any, Final

import re2

from faultlens.signatures.model import TEXT_LIMIT, Match, Role, Signature, Where
from faultlens.signatures.normalise import Normalised, normalise

# Of a line that a loop prints a thousand times the first and the last ones say everything.
OCCURRENCES_KEPT: Final = 4
# A gang's thousand ranks print the same tail; at most 8 KiB each, so the memory is bounded by 4 MiB.
TEXTS_REMEMBERED: Final = 512

# What one pass over so many bytes finds no trace of is not looked for in them; each pass costs some microseconds.
_BLOCK_BYTES: Final = 1024
# Of what matched in a long line so many characters are shown at least.
_IN_VIEW: Final = 60
_SENTENCE_END: Final = re.compile(rb"[.!?;](?=\s)")
_Span = tuple[int, int]


class PatternError(ValueError):
    """A pattern that RE2 does not take."""


def pattern_options(*, across_lines: bool) -> re2.Options:
    """Bytes for letters, so that any encoding can be read and offsets are cheap; `\\s` stops at a line's end."""
    options = re2.Options()
    options.never_nl = not across_lines
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    return options


def compile_pattern(pattern: str, *, role: Role) -> Any:
    """The pattern as it is matched: within a line, but for quotes. Raises `PatternError`."""
    if not pattern.isascii():
        raise PatternError("a pattern must be ASCII, since texts are matched byte by byte")
    try:
        return re2.compile(_lines(pattern), pattern_options(across_lines=role == "quote"))
    except re2.error as error:
        raise PatternError(f"not RE2 syntax: {_said(error, pattern)}") from error


def _said(error: Exception, pattern: str) -> str:
    """What RE2 says of a pattern, about the pattern as it was written."""
    said = error.args[0] if error.args else ""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return text.replace(_lines(pattern).decode(), pattern)


def _lines(pattern: str) -> bytes:
    """The pattern for RE2, with `^` and `$` at the ends of lines."""
    return f"(?m:{pattern})".encode()


def _any_of(signatures: Iterable[Signature], *, role: Role) -> Any:
    """One pattern for all of a role; for none, one that nothing matches."""
    patterns = [f"(?:{signature.pattern})" for signature in signatures if signature.role == role]
    return compile_pattern("|".join(patterns) or r"[^\x00-\xff]", role=role)


class _Located:
    """A text with what is needed to say on which line a byte stands."""

    def __init__(self, normalised: Normalised) -> None:
        self.data = normalised.text.encode("utf-8", "replace")
        self._ascii = len(self.data) == len(normalised.text)
        self._log_lines = normalised.log_lines
        self._starts = [0]
        position = self.data.find(b"\n")
        while position >= 0:
            self._starts.append(position + 1)
            position = self.data.find(b"\n", position + 1)

    def blocks(self) -> Iterator[_Span]:
        """Yield the text in pieces of whole lines, which no pattern but a quote's reaches across."""
        begin = 0
        for start in self._starts:
            if start - begin >= _BLOCK_BYTES:
                yield begin, start - 1
                begin = start
        yield begin, len(self.data)

    def line_number(self, position: int) -> int:
        return bisect_right(self._starts, position)

    def log_line(self, position: int) -> int:
        line_number = self.line_number(position)
        return self._log_lines[line_number - 1] if self._log_lines else line_number

    def line_start(self, line_number: int) -> int:
        return self._starts[line_number - 1]

    def line_end(self, position: int) -> int:
        end = self.data.find(b"\n", position)
        return len(self.data) if end < 0 else end

    def sentence_end(self, position: int) -> int:
        end = self.line_end(position)
        stop = _SENTENCE_END.search(self.data, position, end)
        return end if stop is None else stop.end()

    def aside_end(self, position: int) -> int | None:
        """Where the parentheses end that `position` stands in; nothing if it stands in none on its line."""
        begin, end = self.line_start(self.line_number(position)), self.line_end(position)
        opened = self.data.rfind(b"(", begin, position + 1)
        if opened < 0 or self.data.rfind(b")", opened, position) >= 0:
            return None
        closed = self.data.find(b")", position, end)
        return None if closed < 0 else closed + 1

    def characters(self, start: int, end: int) -> int:
        return end - start if self._ascii else len(self.data[start:end].decode("utf-8", "ignore"))

    def line_around(self, start: int) -> str:
        """The line that holds byte `start`, cut so that what matched stays in view."""
        begin = max(self.data.rfind(b"\n", 0, start), self.data.rfind(b"\r", 0, start)) + 1
        begin = max(begin, start - TEXT_LIMIT + _IN_VIEW)
        line = self.data[begin : min(self.line_end(start), begin + 4 * TEXT_LIMIT)]
        return line.decode("utf-8", "ignore").split("\r", 1)[0].strip()[:TEXT_LIMIT]


class _Compiled:
    """The signatures that apply to one kind of text.

    RE2's filter looks, in one pass, for the literals that each pattern needs, and names the few patterns that can
    occur. (One automaton over all patterns is slower on texts it has not seen: it builds a new state for nearly
    every byte of them; `bench/signatures.py` shows both.)
    """

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.signatures = signatures
        self.patterns = [compile_pattern(signature.pattern, role=signature.role) for signature in signatures]
        self.groups = [
            {name.decode(): index for name, index in pattern.groupindex.items()} for pattern in self.patterns
        ]
        self.advice = _any_of(signatures, role="advice")
        self.quotes = _any_of(signatures, role="quote")
        self._filter = re2.Filter()
        for signature in signatures:
            self._filter.Add(_lines(signature.pattern), pattern_options(across_lines=signature.role == "quote"))
        if signatures:
            self._filter.Compile()

    def candidates(self, located: _Located) -> Mapping[int, Sequence[_Span]]:
        """The blocks that each signature can occur in, by its index; none for quotes, which only mask others."""
        found: dict[int, list[_Span]] = {}
        for begin, end in located.blocks() if self.signatures else ():
            for index in self._filter.Match(located.data[begin:end], potential=True) or ():
                if self.signatures[index].role != "quote":
                    found.setdefault(index, []).append((begin, end))
        return found


class SignatureSet:
    """Compiled signatures. Reading is free of side effects but for a bounded memory of texts seen."""

    def __init__(self, signatures: Iterable[Signature], *, version: str) -> None:
        self.signatures: tuple[Signature, ...] = tuple(signatures)
        self.version = version
        kinds: tuple[Where, ...] = ("log_tail", "message", "reason")
        self._compiled: Mapping[Where, _Compiled] = {
            kind: _Compiled([s for s in self.signatures if kind in s.where]) for kind in kinds
        }
        self._scan = lru_cache(maxsize=TEXTS_REMEMBERED)(self._scan_anew)

    def scan(self, text: str, *, where: Where = "log_tail") -> tuple[Match, ...]:
        """All matches in the order of the text, without those inside advice or quoted source code.

        Of a signature that occurs more than 8 times the first 4 and the last 4 are kept.
        """
        return self._scan(text, where)

    def _scan_anew(self, text: str, where: Where) -> tuple[Match, ...]:
        compiled = self._compiled[where]
        located = _Located(normalise(text))
        masks = _Masks(compiled, located)
        candidates = compiled.candidates(located)
        matches = [match for index, blocks in candidates.items() for match in _matches(compiled, index, blocks, masks)]
        return tuple(sorted(matches, key=lambda match: (match.offset, match.id)))


class _Masks:
    """What advice and quotes cover. Looked for only around lines that matter: a traceback quotes every other line."""

    def __init__(self, compiled: _Compiled, located: _Located) -> None:
        self._compiled = compiled
        self.located = located
        self._of_line: dict[int, list[_Span]] = {}

    def cover(self, found: Any) -> bool:
        """Whether the match begins inside advice or a quote."""
        position = found.start()
        line_number = self.located.line_number(position)
        if line_number not in self._of_line:
            self._of_line[line_number] = list(self._around(line_number))
        return any(start <= position < end for start, end in self._of_line[line_number])

    def _around(self, line_number: int) -> Iterator[_Span]:
        """Advice masks to the end of its sentence, an aside in parentheses to theirs.

        A quote masks what it matches, which may begin on the line before.
        """
        data = self.located.data
        before, begin = (self.located.line_start(number) for number in (max(line_number - 1, 1), line_number))
        end = self.located.line_end(begin)
        for found in self._compiled.advice.finditer(data, begin, end):
            aside = self.located.aside_end(found.end() - 1)
            yield found.start(), self.located.sentence_end(found.end()) if aside is None else max(aside, found.end())
        for found in self._compiled.quotes.finditer(data, before, end):
            yield found.span()


def _matches(compiled: _Compiled, index: int, blocks: Sequence[_Span], masks: _Masks) -> Iterator[Match]:
    signature = compiled.signatures[index]
    pattern, data = compiled.patterns[index], masks.located.data

    def bare(block: _Span) -> Iterator[Any]:
        found = pattern.finditer(data, *block)
        return (one for one in found if signature.role == "advice" or not masks.cover(one))

    for found in _first_and_last(bare, blocks):
        yield _match(signature, compiled.groups[index], found, masks.located)


def _first_and_last(bare: Callable[[_Span], Iterable[Any]], blocks: Sequence[_Span]) -> list[Any]:
    """The first and the last few of what the blocks hold; no more of it is looked for than that takes."""
    first = list(islice((found for block in blocks for found in bare(block)), OCCURRENCES_KEPT))
    if len(first) < OCCURRENCES_KEPT:
        return first
    backwards = (found for block in reversed(blocks) for found in reversed(list(bare(block))))
    later = takewhile(lambda found: found.start() > first[-1].start(), backwards)
    return first + list(islice(later, OCCURRENCES_KEPT))[::-1]


def _match(signature: Signature, groups: Mapping[str, int], found: Any, located: _Located) -> Match:
    start, end = found.span()
    return Match(
        id=signature.id,
        role=signature.role,
        strength=signature.strength,
        scope=signature.scope,
        cause_code=signature.cause_code,
        cause_class=signature.cause_class,
        line_number=located.line_number(start),
        log_line=located.log_line(start),
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
