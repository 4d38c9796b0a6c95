"""Entries in memory, and the choice among those of one code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from faultlens.catalogue.judgement import Judgement

NO_UPPER_BRANCH: Final = 1 << 30

_Content = TypeVar("_Content")


class Where(NamedTuple):
    """For which sub-code, families and driver branches an entry holds, and where it is written."""

    subcode: str | None
    families: frozenset[str] | None
    """None: every family of every vendor."""
    first_branch: int
    below_branch: int
    path: Path
    line: int

    @property
    def is_bounded(self) -> bool:
        """Whether it holds for some driver branches only."""
        return self.first_branch > 0 or self.below_branch < NO_UPPER_BRANCH

    def covers(self, family: str | None, branch: int | None) -> bool:
        """Whether it holds for a family and branch; an unknown one (None) excludes nothing."""
        if family is not None and self.families is not None and family not in self.families:
            return False
        return branch is None or self.first_branch <= branch < self.below_branch

    def overlaps(self, other: Where) -> bool:
        """Whether both hold for one sub-code, family and branch."""
        if self.subcode != other.subcode:
            return False
        if self.first_branch >= other.below_branch or other.first_branch >= self.below_branch:
            return False
        if self.families is None or other.families is None:
            return True
        return not self.families.isdisjoint(other.families)


class Placed(NamedTuple, Generic[_Content]):
    """An entry of one code: what it says and where that holds."""

    where: Where
    content: _Content


class Shelf(Generic[_Content]):
    """Entries by kind and code."""

    def __init__(self, entries: Iterable[tuple[tuple[str, str], Placed[_Content]]] = ()) -> None:
        self._entries: dict[tuple[str, str], list[Placed[_Content]]] = {}
        for key, placed in entries:
            self._entries.setdefault(key, []).append(placed)

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._entries

    def items(self) -> Iterator[tuple[tuple[str, str], list[Placed[_Content]]]]:
        """Every kind and code with its entries, in the order of the files."""
        return iter(self._entries.items())

    def all(self) -> Iterator[tuple[str, str, Placed[_Content]]]:
        """Every entry with its kind and code, in the order of the files."""
        return ((kind, code, entry) for (kind, code), entries in self._entries.items() for entry in entries)

    def of(self, kind: str, code: str) -> list[Placed[_Content]]:
        """All entries of a code, whatever their sub-code, family and branch."""
        return self._entries.get((kind, code), [])

    def candidates(
        self, key: tuple[str, str], subcode: str | None, family: str | None, branch: int | None
    ) -> list[Placed[_Content]]:
        """The entries that hold, of the most special sub-code that has any: `a/b`, then `a`, then none."""
        entries = self._entries.get(key, ())
        for special in subcode_chain(subcode):
            found = [e for e in entries if e.where.subcode == special and e.where.covers(family, branch)]
            if found:
                return found
        return []


def subcode_chain(subcode: str | None) -> Iterator[str | None]:
    """A sub-code and its more general ones: `a/b` gives `a/b`, `a`, None."""
    while subcode:
        yield subcode
        subcode = subcode.rpartition("/")[0]
    yield None


def widest(candidates: list[Placed[Judgement]]) -> Placed[Judgement] | None:
    """The entry to take when family or branch are unknown.

    A family that defines the code before those that do not (a code that was seen is defined where it was seen),
    of these the entry that most families share, then the newest driver branch.
    """
    return max(candidates, key=_width, default=None)


def _width(placed: Placed[Judgement]) -> tuple[bool, float, int]:
    families = placed.where.families
    return (
        placed.content.known,
        float("inf") if families is None else len(families),
        placed.where.below_branch,
    )


Patch = Mapping[str, object]
"""What a site changes of a judgement: field names of `Judgement` and their values."""
