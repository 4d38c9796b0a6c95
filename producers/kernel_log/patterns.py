"""Lines of the kernel that carry no number: what they mean is data."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import re2
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from faultlens.errors import ConfigurationError
from faultlens.events import FaultKind
from faultlens.yaml_lines import YamlProblemError, read_yaml, validate
from producers.kernel_log.xid import normal_pci, pid_of

_FILE: Final = Path(__file__).parent / "kernel_patterns.yaml"
_GROUPS: Final = frozenset({"pci", "pid", "name", "link", "pci2", "pid2", "name2"})
TEXT_CHARS: Final = 2_000


_NAMED: Final = re.compile(r"\(\?P<\w+>")


def _compiles(pattern: str) -> str:
    try:
        unknown = set(re.compile(pattern).groupindex) - _GROUPS
        _which([pattern])
    except (re.error, re2.error) as error:
        raise ValueError(f"no regular expression: {error}") from None
    if unknown:
        raise ValueError(f"unknown groups {', '.join(sorted(unknown))}; known are {', '.join(sorted(_GROUPS))}")
    return pattern


_Pattern = Annotated[str, Field(min_length=3, max_length=600), AfterValidator(_compiles)]


def _which(patterns: Iterable[str]) -> Any:
    """Return what tells in one pass, in time that grows with the text alone, which of the patterns are in it."""
    options = re2.Options()
    options.log_errors = False
    found = re2.Set.SearchSet(options)
    for pattern in patterns:
        found.Add(_NAMED.sub("(?:", pattern))
    found.Compile()
    return found


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PatternEntry(_Strict):
    """A pattern, and the fault that a line with it tells of."""

    kind: FaultKind
    code: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")]
    subcode: Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")] | None = None
    after_boot_s: Annotated[int, Field(ge=0, le=3600)] = 0
    speaker: Literal["kernel", "fabricmanager", "systemd"] = "kernel"
    pattern: _Pattern
    example: str = Field(min_length=3, max_length=600)


class PatternFile(_Strict):
    """`kernel_patterns.yaml`."""

    ignore: tuple[_Pattern, ...] = ()
    patterns: tuple[PatternEntry, ...] = Field(min_length=1, max_length=500)


class Worded(NamedTuple):
    """A fault that a line tells of in words."""

    kind: FaultKind
    code: str
    subcode: str | None
    pci: str | None
    link: str | None
    pid: int | None
    process: str | None


class Patterns:
    """The patterns, compiled."""

    def __init__(self, file: PatternFile) -> None:
        self._ignore = re.compile("|".join(f"(?:{pattern})" for pattern in file.ignore) or r"(?!)")
        self._entries = [(entry, re.compile(entry.pattern, re.ASCII)) for entry in file.patterns]
        self._which = _which(entry.pattern for entry in file.patterns)
        self._ages_s = sorted({entry.after_boot_s for entry in file.patterns})

    def age(self, since_boot_s: int | None) -> int:
        """Return a number for how long after its boot a kernel speaks: of the same number a text means the same."""
        return -1 if since_boot_s is None else bisect_right(self._ages_s, since_boot_s)

    def worded(self, text: str, speaker: str, *, since_boot_s: float | None = None) -> Worded | None:
        """Return the fault that a speaker's text tells of, or None."""
        text = text[:TEXT_CHARS]
        numbers = self._which.Match(text)
        if not numbers or self._ignore.search(text):
            return None
        for entry, pattern in (self._entries[number] for number in sorted(numbers)):
            found = pattern.search(text) if entry.speaker == speaker else None
            if found is not None:
                early = since_boot_s is not None and since_boot_s < entry.after_boot_s
                return None if early else _worded(entry, found.groupdict())
        return None


def _worded(entry: PatternEntry, groups: dict[str, str | None]) -> Worded:
    pci, pid = groups.get("pci") or groups.get("pci2"), groups.get("pid") or groups.get("pid2")
    name = groups.get("name") or groups.get("name2")
    return Worded(
        kind=entry.kind,
        code=entry.code,
        subcode=entry.subcode,
        pci=normal_pci(pci) if pci else None,
        link=groups.get("link"),
        pid=pid_of(pid),
        process=name.strip() if name else None,
    )


def read_patterns(path: Path = _FILE) -> PatternFile:
    """Return the file's patterns. Raises `ConfigurationError`, which names file and line."""
    try:
        document = read_yaml(path)
    except YamlProblemError as error:
        raise ConfigurationError(str(error)) from None
    found = validate(document, PatternFile)
    if isinstance(found, PatternFile):
        return found
    raise ConfigurationError("\n".join(map(str, found)))


@cache
def load_patterns() -> Patterns:
    """Return the shipped patterns."""
    return Patterns(read_patterns())
