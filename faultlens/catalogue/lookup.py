"""The catalogue in memory: what a code or a failing check means on a family and driver branch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from faultlens.catalogue.families import Families
from faultlens.catalogue.judgement import Judgement
from faultlens.catalogue.model import ANY_CODE, CHECK_KIND
from faultlens.catalogue.nvlink5 import DecodeFile
from faultlens.catalogue.others import Others
from faultlens.catalogue.recovery import AnnouncedAction, Recovery
from faultlens.catalogue.shelf import Patch, Placed, Shelf, subcode_chain, widest

# A fleet sees some hundred combinations; codes come from logs, so what is remembered must be bounded.
REMEMBERED: Final = 8192
_TEXT_LIMIT: Final = 200

_BRANCH: Final = re.compile(r"^\s*(\d{3,4})(?:\.|\s*$)")
_NUMBER: Final = re.compile(r"^0*(\d{1,9})$")
_HEALTHY: Final = frozenset({"pass", "off"})


class Site(NamedTuple):
    """What a site laid over our catalogue, directory by directory, and a digest of it."""

    layers: tuple[Shelf[Patch], ...]
    digest: str


class Reading(NamedTuple):
    """How what drivers print is read: recovery steps of Xid 154, sub-codes of NVLink5."""

    recovery: Recovery
    nvlink5: DecodeFile


class Catalogue:
    """What codes and failing checks mean. Immutable; lookups are pure and remembered."""

    def __init__(
        self,
        *,
        families: Families,
        shipped: Shelf[Judgement],
        reading: Reading,
        others: Others,
        site: Site,
    ) -> None:
        self.families = families
        self.recovery = reading.recovery
        self._nvlink5 = reading.nvlink5
        self.others = others
        self.version = f"{others.version}+site.{site.digest}" if site.digest else others.version
        self._shipped = shipped
        self._site = site.layers
        self._resolve = lru_cache(REMEMBERED)(self._resolve_anew)
        self._resolve_check = lru_cache(REMEMBERED)(self._resolve_check_anew)

    def resolve(
        self, kind: str, code: str, *, subcode: str | None = None, family: str | None = None, driver: str | None = None
    ) -> Judgement:
        """What a code means on a family (as agents write it) and driver version.

        Never fails: a code, kind or family that nobody knows is `unexpected`. With an unknown family (None) the
        meaning that most of the families share which define the code; with an unknown driver the newest branch's.
        """
        return self._resolve(kind, code, subcode, family, driver)

    def resolve_check(self, name: str, component: str, status: str, code: str | None = None) -> Judgement:
        """What a check that did not pass means as an open condition.

        `fail` accuses the device, the ways of not knowing (`timeout`, `error`, `missing`) its tool or driver; a name
        without an entry goes by its component. Raises `ValueError` for `pass` and `off`, which mean no condition.
        """
        return self._resolve_check(name, component, status, code)

    def resolve_shipped(
        self, kind: str, code: str, *, subcode: str | None = None, family: str | None = None, driver: str | None = None
    ) -> Judgement:
        """Like `resolve`, without what the site laid over it."""
        return self._shipped_judgement(
            kind, normal_code(code), normal_subcode(subcode), self.families.canonical(family), driver_branch(driver)
        )

    def resolve_shipped_check(self, name: str, component: str, status: str, code: str | None = None) -> Judgement:
        """Like `resolve_check`, without what the site laid over it."""
        return self._shipped_check(name, component, _check_subcode(name, status, code))

    def announced_action(self, subcode_or_message: str | None) -> AnnouncedAction | None:
        """The recovery step that a sub-code or line of Xid 154 announces, or None."""
        return self.recovery.announced_action(subcode_or_message)

    def nvlink5_subcode(self, line: str) -> str | None:
        """The sub-code in a driver's line of Xid 144 to 150, or None where it has none."""
        return self._nvlink5.subcode(line)

    def shipped_entries(self) -> Iterator[tuple[str, str, Placed[Judgement]]]:
        """Every shipped entry with its kind and code, in the order of the files."""
        return self._shipped.all()

    def site_entries(self) -> Iterator[tuple[str, str, Placed[Patch]]]:
        """Every entry of the site with its kind and code, in the order of directories and files."""
        return (entry for shelf in self._site for entry in shelf.all())

    def _resolve_anew(
        self, kind: str, code: str, subcode: str | None, family: str | None, driver: str | None
    ) -> Judgement:
        key = (kind, normal_code(code))
        special, known_family, branch = normal_subcode(subcode), self.families.canonical(family), driver_branch(driver)
        judgement = self._shipped_judgement(*key, special, known_family, branch)
        return self._with_site(key, judgement, special, known_family, branch)

    def _shipped_judgement(
        self, kind: str, code: str, subcode: str | None, family: str | None, branch: int | None
    ) -> Judgement:
        found = (
            widest(self._shipped.candidates((kind, code), subcode, family, branch))
            or widest(self._shipped.candidates((kind, ANY_CODE), None, None, None))
            or widest(self._shipped.candidates(("other", ANY_CODE), None, None, None))
        )
        assert found is not None, "the loader refuses a catalogue without an entry for unknown codes"  # noqa: S101
        return found.content

    def _with_site(
        self, key: tuple[str, str], judgement: Judgement, subcode: str | None, family: str | None, branch: int | None
    ) -> Judgement:
        for shelf in self._site:
            patch = _patch_for(shelf, key, subcode, family, branch)
            if patch is not None:
                judgement = patched(judgement, patch)
        return judgement

    def _resolve_check_anew(self, name: str, component: str, status: str, code: str | None) -> Judgement:
        subcode = _check_subcode(name, status, code)
        judgement = self._shipped_check(name, component, subcode)
        judgement = self._with_site((CHECK_KIND, name), judgement, subcode, None, None)
        clears = tuple(f"check:{name}" if word == f"check:{ANY_CODE}" else word for word in judgement.clears)
        return msgspec.structs.replace(judgement, clears=clears)

    def _shipped_check(self, name: str, component: str, subcode: str | None) -> Judgement:
        for special in (subcode, "error"):  # a status that nobody knows is a way of not knowing
            for key in (name, f"component:{component}", ANY_CODE):
                found = widest(self._shipped.candidates((CHECK_KIND, key), special, None, None))
                if found is not None:
                    return found.content
        raise AssertionError("the loader refuses a catalogue without an entry for unknown checks")


def patched(judgement: Judgement, patch: Patch) -> Judgement:
    """A judgement with what a site changes of it."""
    changed = msgspec.structs.replace(judgement, **patch, entry=f"{judgement.entry}+site")
    return msgspec.structs.replace(changed, known=changed.role != "unexpected")


def normal_code(code: str) -> str:
    """A code as entries write it: lower case, a number without leading zeros."""
    text = code[:_TEXT_LIMIT].strip().lower()
    number = _NUMBER.match(text)
    return number[1] if number is not None else text


def normal_subcode(subcode: str | None) -> str | None:
    """A sub-code as entries write it, or None."""
    return subcode[:_TEXT_LIMIT].strip().lower() or None if subcode is not None else None


def driver_branch(version: str | None) -> int | None:
    """The branch of a driver version: 570 of `570.133.20`; None where there is none to be read."""
    found = _BRANCH.match(version) if version is not None else None
    return int(found[1]) if found is not None else None


def _check_subcode(name: str, status: str, code: str | None) -> str | None:
    if status in _HEALTHY:
        raise ValueError(f"check {name!r} is {status!r}: there is no condition to judge")
    return normal_subcode(f"{status}/{code}" if code else status)


def _patch_for(
    shelf: Shelf[Patch], key: tuple[str, str], subcode: str | None, family: str | None, branch: int | None
) -> Patch | None:
    """A site's entry for some families or branches says nothing of a device whose family or branch is unknown."""
    for special in subcode_chain(subcode):
        for entry in shelf.of(*key):
            where = entry.where
            if where.subcode != special or not where.covers(family, branch):
                continue
            if (family is None and where.families is not None) or (branch is None and where.is_bounded):
                continue
            return entry.content
    return None
