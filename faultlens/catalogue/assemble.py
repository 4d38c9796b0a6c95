"""From what people wrote to entries: profiles filled in, codes and families spelt out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError

from faultlens.catalogue.families import Families
from faultlens.catalogue.judgement import Judgement
from faultlens.catalogue.model import ANY_CODE, REQUIRED, CatalogueFile, Entry, Fields, SiteFile
from faultlens.catalogue.shelf import NO_UPPER_BRANCH, Patch, Placed, Where
from faultlens.causes import class_of
from faultlens.yaml_lines import Problem, YamlDocument

Key = tuple[str, str]


class Assembled(NamedTuple):
    """The entries of one shipped file, by kind and code, and what is wrong with others."""

    entries: list[tuple[Key, Placed[Judgement]]]
    problems: list[Problem]


class AssembledSite(NamedTuple):
    """The patches of one site file, by kind and code, and what is wrong with others."""

    entries: list[tuple[Key, Placed[Patch]]]
    problems: list[Problem]


class _EntryError(Exception):
    """Why one entry cannot be used."""


def assemble(document: YamlDocument, file: CatalogueFile, families: Families) -> Assembled:
    """The entries of a shipped file."""
    result = Assembled([], [])
    for index, entry in enumerate(file.entries):
        try:
            judgement = _judgement(_completed(entry, file))
            where = _places(entry, document, index, families, file.vendor)
            result.entries.extend(
                ((kind, code), Placed(place, _named(judgement, kind, code, place, entry)))
                for kind, code, place in _spelt_out(entry, file.kind, where)
            )
        except _EntryError as error:
            result.problems.append(document.problem(("entries", index), str(error)))
    return result


def assemble_site(document: YamlDocument, file: SiteFile, families: Families) -> AssembledSite:
    """The patches of a site's file."""
    result = AssembledSite([], [])
    for index, entry in enumerate(file.entries):
        try:
            patch = _patch(entry, source=f"site: {entry.reason} ({entry.date.isoformat()})")
            where = _places(entry, document, index, families, None)
            result.entries.extend(
                ((kind, code), Placed(place, patch)) for kind, code, place in _spelt_out(entry, file.kind, where)
            )
        except _EntryError as error:
            result.problems.append(document.problem(("entries", index), str(error)))
    return result


def complete(patch: Patch) -> list[str]:
    """The fields that a patch lacks to stand alone, for a code that we have no entry for."""
    names = {"cause": "cause_code"}
    return [field for field in REQUIRED if names.get(field, field) not in patch]


def _completed(entry: Entry, file: CatalogueFile) -> Fields:
    if entry.profile is not None and entry.profile not in file.profiles:
        raise _EntryError(f"unknown profile {entry.profile!r}; this file has: {', '.join(file.profiles) or 'none'}")
    profile = file.profiles.get(entry.profile) if entry.profile is not None else None
    values: dict[str, Any] = {"source": file.source}
    values |= profile.model_dump(exclude_none=True) if profile is not None else {}
    values |= {name: value for name in Fields.model_fields if (value := getattr(entry, name)) is not None}
    missing = [name for name in REQUIRED if name not in values]
    if missing:
        raise _EntryError(f"missing {', '.join(missing)} (here and in its profile)")
    try:
        return Fields.model_validate(values)
    except ValidationError as error:
        raise _EntryError(error.errors()[0]["msg"]) from None


def _places(entry: Entry, document: YamlDocument, index: int, families: Families, vendor: str | None) -> list[Where]:
    drivers = entry.drivers
    first = drivers.first or 0 if drivers is not None else 0
    below = drivers.below or NO_UPPER_BRANCH if drivers is not None else NO_UPPER_BRANCH
    named = _families(entry, families, vendor)
    line = document.line(("entries", index))
    return [Where(subcode, named, first, below, document.path, line) for subcode in entry.subcodes or (None,)]


def _families(entry: Entry, families: Families, vendor: str | None) -> frozenset[str] | None:
    try:
        if entry.families is not None:
            return families.expand(entry.families)
        everyone = frozenset(families.of_vendor(vendor)) if vendor is not None else None
        if entry.families_except is None:
            return everyone
        return (everyone or families.expand(families.names())) - families.expand(entry.families_except)
    except KeyError as error:
        known = ", ".join(families.names())
        raise _EntryError(f"unknown family or generation {error.args[0]!r}; known are {known}") from None


def _spelt_out(entry: Entry, file_kind: str | None, where: list[Where]) -> Iterator[tuple[str, str, Where]]:
    kind = entry.kind or file_kind
    if kind is None:
        raise _EntryError("say `kind`, here or at the top of the file")
    for code in entry.codes:
        for place in where:
            yield kind, code, place


def _judgement(fields: Fields) -> Judgement:
    """What an entry says, without the names of its codes."""
    unnamed = {"entry": "", "known": fields.role != "unexpected"}
    return msgspec.convert(unnamed | _patch(fields, source=str(fields.source)), Judgement)


def _named(judgement: Judgement, kind: str, code: str, where: Where, entry: Entry) -> Judgement:
    known = judgement.known and code != ANY_CODE
    return msgspec.structs.replace(judgement, entry=_entry_id(kind, code, where, entry), known=known)


def _patch(fields: Fields, *, source: str) -> dict[str, object]:
    """The fields of a judgement that are given, under their names there."""
    values = {name: value for name in Fields.model_fields if (value := getattr(fields, name)) is not None}
    cause = values.pop("cause", None)
    if cause is not None:
        values |= {"cause_code": cause, "cause_class": class_of(cause)}
    return values | {"source": source}


def _entry_id(kind: str, code: str, where: Where, entry: Entry) -> str:
    parts = [f"{kind}:{code}"]
    if where.subcode is not None:
        parts.append(f"/{where.subcode}")
    if entry.families is not None:
        parts.append("@" + "+".join(entry.families))
    elif entry.families_except is not None:
        parts.append("@not-" + "-".join(entry.families_except))
    if entry.drivers is not None:
        below = "" if entry.drivers.below is None else str(entry.drivers.below)
        parts.append(f"@r{where.first_branch or ''}-{below}")
    return "".join(parts)
