"""What people write into a catalogue file, and how it is checked."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from faultlens.catalogue.judgement import ActionHint, Role, Scope
from faultlens.causes import is_known
from faultlens.events import FAULT_KINDS

CHECK_KIND: Final = "check"
"""Failing checks are entries of this kind: code = the check's name, subcode = its status, or status/code."""
ANY_CODE: Final = "*"
"""The entry of a kind (or, as `component:<name>`, of a component's checks) for codes that have none of their own."""

RANGE_LIMIT: Final = 2000
_Item = TypeVar("_Item")
_RANGE: Final = re.compile(r"^(\d{1,6})-(\d{1,6})$")


def _known_kind(kind: str) -> str:
    if kind not in FAULT_KINDS and kind != CHECK_KIND:
        raise ValueError(f"unknown kind {kind!r}; known are {', '.join(sorted(FAULT_KINDS))} and {CHECK_KIND}")
    return kind


def _known_cause(code: str) -> str:
    if not is_known(code):
        raise ValueError(f"cause {code!r} is not in the registry (faultlens/causes.py)")
    return code


def expanded_codes(codes: Any) -> tuple[str, ...]:
    """Codes as people list them, ranges spelt out. Raises `ValueError` when it is no list."""
    if not isinstance(codes, list):
        raise ValueError("codes must be a list, such as [79] or [39-41, 70]")  # noqa: TRY004  pydantic wants ValueError
    return tuple(code for item in codes for code in _codes_of(item))


def _codes_of(item: object) -> list[str]:
    found = _RANGE.match(str(item))
    if found is None:
        return [str(item).lower()]
    first, last = int(found[1]), int(found[2])
    if not first < last < first + RANGE_LIMIT:
        raise ValueError(f"range {item!r} must go up and hold at most {RANGE_LIMIT} codes")
    return [str(code) for code in range(first, last + 1)]


def _not_empty(items: tuple[_Item, ...]) -> tuple[_Item, ...]:
    # Not `min_length`, which complains of emptiness once more when an item is wrong.
    if not items:
        raise ValueError("must not be empty")
    return items


_Kind = Annotated[str, AfterValidator(_known_kind)]
_Cause = Annotated[str, AfterValidator(_known_cause)]
_Text = Annotated[str, StringConstraints(min_length=3, max_length=400)]
_Code = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_.:*/-]{1,80}$")]
_Subcode = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(/[a-z0-9_]+)*$", max_length=80)]
_Ref = Annotated[str, StringConstraints(pattern=r"^[a-z_]+:[a-z0-9_]+$", max_length=80)]
_Clears = Annotated[str, StringConstraints(pattern=r"^(boot|remediation|once|check:([a-z0-9_]+|\*))$")]
_Branch = Annotated[int, Field(ge=100, le=9999)]
_NotEmpty = AfterValidator(_not_empty)


class Strict(BaseModel):
    """Base of what people write: unknown keys are mistakes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DriverRange(Strict):
    """Driver branches (`570` of `570.133.20`): from the first, below the second."""

    first: _Branch | None = Field(default=None, alias="from")
    below: _Branch | None = None

    @model_validator(mode="after")
    def _goes_up(self) -> DriverRange:
        if self.first is None and self.below is None:
            raise ValueError("say `from`, `below` or both")
        if self.first is not None and self.below is not None and self.first >= self.below:
            raise ValueError("`from` must be less than `below`")
        return self


class Fields(Strict):
    """What an entry says. In a profile and in a site's entry each field may be left out."""

    meaning: _Text | None = None
    cause: _Cause | None = None
    role: Role | None = None
    severity: Annotated[int, Field(ge=0, le=100)] | None = None
    fatal_to_job: bool | None = None
    scope: Scope | None = None
    acts_late: bool | None = None
    latent_s: Annotated[int, Field(ge=0, le=86400)] | None = None
    clears: Annotated[tuple[_Clears, ...], _NotEmpty] | None = None
    cause_after_reset: _Cause | None = None
    boot_phase_s: Annotated[int, Field(ge=0, le=3600)] | None = None
    companions: tuple[_Ref, ...] | None = None
    yields_to: tuple[_Ref, ...] | None = None
    action_hint: ActionHint | None = None
    source: _Text | None = None
    announced_from_driver: _Branch | None = None

    @model_validator(mode="after")
    def _once_stands_alone(self) -> Fields:
        if self.clears is not None and "once" in self.clears and len(self.clears) > 1:
            raise ValueError("`once` cannot be joined with another way to clear")
        return self


REQUIRED: Final = (
    "meaning",
    "cause",
    "role",
    "severity",
    "fatal_to_job",
    "scope",
    "clears",
    "action_hint",
    "source",
)


class Entry(Fields):
    """One entry: for which codes, sub-codes, families and driver branches its fields hold."""

    kind: _Kind | None = None
    codes: Annotated[tuple[_Code, ...], _NotEmpty]
    subcodes: tuple[_Subcode, ...] = ()
    families: Annotated[tuple[str, ...], _NotEmpty] | None = None
    families_except: Annotated[tuple[str, ...], _NotEmpty] | None = None
    drivers: DriverRange | None = None
    profile: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _expand_codes(cls, raw: Any) -> Any:
        return {**raw, "codes": expanded_codes(raw["codes"])} if isinstance(raw, dict) and "codes" in raw else raw

    @model_validator(mode="after")
    def _families_once(self) -> Entry:
        if self.families is not None and self.families_except is not None:
            raise ValueError("give `families` or `families_except`, not both")
        return self


class CatalogueFile(Strict):
    """A shipped file: entries of one or more kinds, with profiles that they share."""

    kind: _Kind | None = None
    vendor: Literal["nvidia", "amd", "aws"] | None = None
    source: _Text
    profiles: dict[str, Fields] = {}
    entries: Annotated[tuple[Entry, ...], _NotEmpty]


class SiteEntry(Entry):
    """A site's own judgement, laid over ours: only what differs, and why and since when."""

    reason: _Text
    date: dt.date

    @model_validator(mode="after")
    def _no_profile(self) -> SiteEntry:
        if self.profile is not None:
            raise ValueError("a site's entry has no profile: write its fields out")
        return self


class SiteFile(Strict):
    """A file of a site's catalogue directory."""

    kind: _Kind | None = None
    entries: Annotated[tuple[SiteEntry, ...], _NotEmpty]
