"""The catalogue as a list, one row for the codes that share an entry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from faultlens.catalogue.judgement import Judgement
from faultlens.catalogue.lookup import Catalogue
from faultlens.catalogue.reference import KINDS, FaultName, compact, judge, known_family
from faultlens.catalogue.shelf import Where
from faultlens.errors import UsageError


class Row(Struct, frozen=True):
    """Codes of one entry, and how they are judged."""

    kind: str
    codes: tuple[str, ...]
    subcode: str | None
    families: str
    """`all`, or generations and families."""
    judgement: Judgement
    """Of the first of the codes, on the first of the families."""

    @property
    def ref(self) -> str:
        """The codes as people write them: `xid:39-41, 70` or `xid:149/link_down`."""
        return f"{self.kind}:{compact(self.codes)}" + (f"/{self.subcode}" if self.subcode else "")


_Entry = tuple[str, str | None, Path, int]


def listing(catalogue: Catalogue, *, kind: str | None = None, family: str | None = None) -> list[Row]:
    """Entries of a kind (all when None) that hold for a family (any when None), sites included. Raises `UsageError`."""
    if kind is not None and kind not in KINDS:
        raise UsageError(f"unknown kind {kind!r}; known are {', '.join(KINDS)}")
    known = known_family(catalogue, family)
    entries: dict[_Entry, list[str]] = {}
    places: dict[_Entry, Where] = {}
    for entry_kind, code, where in _places(catalogue):
        if (kind is not None and entry_kind != kind) or not where.covers(known, None):
            continue
        key = (entry_kind, where.subcode, where.path, where.line)
        entries.setdefault(key, []).append(code)
        places[key] = where
    return [_row(catalogue, key[0], codes, places[key], known) for key, codes in entries.items()]


def _places(catalogue: Catalogue) -> Iterator[tuple[str, str, Where]]:
    shipped = [(kind, code, entry.where) for kind, code, entry in catalogue.shipped_entries()]
    yield from shipped
    known = {(kind, code) for kind, code, _ in shipped}
    for kind, code, patch in catalogue.site_entries():
        if (kind, code) not in known:
            yield kind, code, patch.where


def _row(catalogue: Catalogue, kind: str, codes: list[str], where: Where, family: str | None) -> Row:
    example = family or (min(where.families) if where.families else None)
    driver = str(where.first_branch) if where.first_branch else None
    return Row(
        kind=kind,
        codes=tuple(codes),
        subcode=where.subcode,
        families=catalogue.families.short(where.families) if where.families else "all",
        judgement=judge(catalogue, FaultName(kind, codes[0], where.subcode), family=example, driver=driver),
    )
