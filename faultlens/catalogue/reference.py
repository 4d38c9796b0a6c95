"""How people name a fault: `xid:79`, `xid:149/link_down/remote`, `check:ecc/fail`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from faultlens.catalogue.judgement import Judgement
from faultlens.catalogue.lookup import Catalogue
from faultlens.catalogue.model import CHECK_KIND
from faultlens.errors import UsageError
from faultlens.events import FAULT_KINDS

KINDS: Final[tuple[str, ...]] = tuple(sorted({*FAULT_KINDS, CHECK_KIND}))

_REF: Final = re.compile(r"^([a-z_]+):([^/\s]{1,80})(?:/(\S{1,80}))?$")


class FaultName(NamedTuple):
    """A fault as people name it."""

    kind: str
    code: str
    subcode: str | None

    def __str__(self) -> str:
        return f"{self.kind}:{self.code}" + (f"/{self.subcode}" if self.subcode else "")


def parse_name(text: str) -> FaultName:
    """The kind, code and sub-code of a name. Raises `UsageError`."""
    found = _REF.match(text.strip().lower())
    if found is None or found[1] not in KINDS:
        raise UsageError(
            f"{text!r} names no fault: write KIND:CODE or KIND:CODE/SUBCODE, such as xid:79 or check:ecc/fail; "
            f"kinds are {', '.join(KINDS)}"
        )
    return FaultName(found[1], found[2], found[3])


def judge(
    catalogue: Catalogue, name: FaultName, *, family: str | None, driver: str | None, component: str = ""
) -> Judgement:
    """What the catalogue says of a named fault; of a check without status: of its failing.

    `component`: of a check that the catalogue does not know by name. Raises `ValueError` with an unknown status.
    """
    if name.kind != CHECK_KIND:
        return catalogue.resolve(name.kind, name.code, subcode=name.subcode, family=family, driver=driver)
    status, _, code = (name.subcode or "fail").partition("/")
    return catalogue.resolve_check(name.code, component, status, code or None)


def known_family(catalogue: Catalogue, text: str | None) -> str | None:
    """The family that a person asked about. Raises `UsageError` with the known ones."""
    family = catalogue.families.canonical(text)
    if text is not None and family is None:
        raise UsageError(f"unknown GPU family {text!r}; known are {', '.join(catalogue.families.all())}")
    return family


def compact(codes: Iterable[str]) -> str:
    """Codes in few words: numbers in a row as ranges, `39-41, 70`."""
    listed = list(codes)
    if not all(code.isdecimal() for code in listed):
        return ", ".join(listed)
    numbers = sorted({int(code) for code in listed})
    starts = [number for before, number in pairwise([-2, *numbers]) if number != before + 1]
    ends = [number for number, after in pairwise([*numbers, numbers[-1] + 2]) if after != number + 1] if numbers else []
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
