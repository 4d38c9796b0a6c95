"""What must hold of the catalogue as a whole: no gap, no overlap, no word that leads nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Final, TypeVar, get_args

from faultlens.catalogue.families import Families
from faultlens.catalogue.judgement import Judgement
from faultlens.catalogue.model import ANY_CODE, CHECK_KIND
from faultlens.catalogue.shelf import NO_UPPER_BRANCH, Patch, Placed, Shelf
from faultlens.events import FAULT_KINDS, Component
from faultlens.yaml_lines import Problem

LAST_XID: Final = 173
_NVLINK5: Final = frozenset(map(str, range(144, 151)))
UNHEALTHY: Final = ("fail", "timeout", "error", "missing", "warn")

_Content = TypeVar("_Content")


def overlaps(shelf: Shelf[_Content]) -> Iterator[Problem]:
    """Two entries that both hold for one code, sub-code, family and driver branch."""
    for (kind, code), entries in shelf.items():
        for first, second in combinations(entries, 2):
            if first.where.overlaps(second.where):
                yield Problem(
                    second.where.path,
                    second.where.line,
                    f"{kind} {code}: overlaps the entry at {first.where.path.name}:{first.where.line}; "
                    "narrow the families or drivers of one, or remove it",
                )


def gaps(shelf: Shelf[Judgement], families: Families, where: Path) -> Iterator[Problem]:
    """Xid codes 1 to 173 that no entry covers for a family of NVIDIA, on any driver branch."""
    for family in families.of_vendor("nvidia"):
        missing = [code for code in map(str, range(1, LAST_XID + 1)) if not _covered(shelf.of("xid", code), family)]
        if missing:
            yield Problem(
                where, 1, f"no entry for xid {', '.join(missing)} on {family} (or not on every driver branch)"
            )


def defaults(shelf: Shelf[Judgement], where: Path) -> Iterator[Problem]:
    """Kinds and components whose unknown codes and checks would have no answer."""
    for kind in sorted(FAULT_KINDS):
        if (kind, ANY_CODE) not in shelf:
            yield Problem(where, 1, f"no entry {ANY_CODE!r} for unknown codes of kind {kind}")
    for component in get_args(Component):
        for status in UNHEALTHY:
            if not _check_answered(shelf, component, status):
                yield Problem(where, 1, f"no entry for an unknown check of component {component} with status {status}")


def references(shelf: Shelf[Judgement]) -> Iterator[Problem]:
    """Codes and checks that entries name and that are not there, or yield to and that are never a root."""
    # The codes of one entry name the same others: it is looked at once.
    written = {(entry.where.path, entry.where.line): entry for _, _, entry in shelf.all()}
    for entry in written.values():
        for text in _reference_problems(shelf, entry.content):
            yield Problem(entry.where.path, entry.where.line, f"{entry.content.entry}: {text}")


def unknown_subcodes(shelf: Shelf[Judgement], subcodes: Iterable[str], where: Path) -> list[Problem]:
    """Sub-codes that lines of Xid 144 to 150 are read as and that no entry has."""
    known = {entry.where.subcode for kind, code, entry in shelf.all() if kind == "xid" and code in _NVLINK5}
    return [Problem(where, 1, f"sub-code {word} has no entry") for word in sorted(subcodes) if word not in known]


def patch_references(shelf: Shelf[Judgement], patch: Patch) -> list[str]:
    """Codes and checks that a site's patch names and that are not there."""
    named = [str(ref) for name in ("companions", "yields_to") for ref in _strings(patch.get(name))]
    checks = _strings(patch.get("clears"))
    return [*_unknown_refs(shelf, named), *_unknown_checks(shelf, checks)]


def _covered(entries: list[Placed[Judgement]], family: str) -> bool:
    spans = sorted(
        (entry.where.first_branch, entry.where.below_branch)
        for entry in entries
        if entry.where.subcode is None and entry.where.covers(family, None)
    )
    reached = 0
    for first, below in spans:
        if first > reached:
            return False
        reached = max(reached, below)
    return reached == NO_UPPER_BRANCH


def _check_answered(shelf: Shelf[Judgement], component: str, status: str) -> bool:
    codes = (f"component:{component}", ANY_CODE)
    return any(entry.where.subcode == status for code in codes for entry in shelf.of(CHECK_KIND, code))


def _reference_problems(shelf: Shelf[Judgement], judgement: Judgement) -> Iterator[str]:
    yield from _unknown_refs(shelf, [*judgement.companions, *judgement.yields_to])
    yield from _unknown_checks(shelf, judgement.clears)
    for ref in judgement.yields_to:
        entries = _entries_of(shelf, ref)
        if entries and not any(entry.content.role == "root" for entry in entries):
            yield f"yields to {ref}, which is never a root"


def _unknown_refs(shelf: Shelf[Judgement], refs: Iterable[str]) -> Iterator[str]:
    return (f"names {ref}, which has no entry" for ref in refs if not _entries_of(shelf, ref))


def _unknown_checks(shelf: Shelf[Judgement], clears: Iterable[str]) -> Iterator[str]:
    for word in clears:
        check = word.removeprefix("check:")
        if check not in {word, ANY_CODE} and (CHECK_KIND, check) not in shelf:
            yield f"is cleared by the check {check}, which has no entry"


def _entries_of(shelf: Shelf[Judgement], ref: str) -> list[Placed[Judgement]]:
    kind, _, code = ref.partition(":")
    return shelf.of(kind, code)


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, tuple) else ()
