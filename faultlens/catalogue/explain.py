"""Everything the catalogue has to say about one code, for people who ask."""

from __future__ import annotations

from msgspec import Struct

from faultlens.catalogue.diff import opinions
from faultlens.catalogue.judgement import Judgement
from faultlens.catalogue.lookup import Catalogue, driver_branch
from faultlens.catalogue.model import CHECK_KIND
from faultlens.catalogue.reference import FaultName, judge, known_family, parse_name
from faultlens.causes import title_of

_NVIDIA_KINDS = frozenset({"xid", "sxid"})


class View(Struct, frozen=True):
    """How a code is judged in another case: on other families, or with a sub-code."""

    case: str
    entry: str
    meaning: str
    role: str
    cause_code: str
    action_hint: str


class Opinion(Struct, frozen=True):
    """What another system makes of the code, and whether we agree."""

    who: str
    says: str
    agrees: bool


class Explanation(Struct, frozen=True):
    """The answer to `faultlens catalogue KIND:CODE`."""

    ref: str
    catalogue: str
    family: str | None
    driver_branch: int | None
    judgement: Judgement
    cause_title: str
    by_family: tuple[View, ...]
    """Empty when every family means the same by it."""
    by_subcode: tuple[View, ...]
    announced: str | None
    """How Xid 154 overrides the hint."""
    opinions: tuple[Opinion, ...]


def explain(catalogue: Catalogue, ref: str, *, family: str | None = None, driver: str | None = None) -> Explanation:
    """What a code means, where else it means something else, and who sees it differently. Raises `UsageError`."""
    name = parse_name(ref)
    known = known_family(catalogue, family)
    judgement = judge(catalogue, name, family=known, driver=driver)
    return Explanation(
        ref=str(name),
        catalogue=catalogue.version,
        family=known,
        driver_branch=driver_branch(driver),
        judgement=judgement,
        cause_title=title_of(judgement.cause_code),
        by_family=_by_family(catalogue, name, driver),
        by_subcode=_by_subcode(catalogue, name, known, driver),
        announced=_announced(catalogue, name, judgement),
        opinions=tuple(Opinion(*opinion) for opinion in opinions(catalogue, name, judgement)),
    )


def _by_family(catalogue: Catalogue, name: FaultName, driver: str | None) -> tuple[View, ...]:
    if name.kind == CHECK_KIND:
        return ()
    families = catalogue.families.of_vendor("nvidia") if name.kind in _NVIDIA_KINDS else catalogue.families.all()
    groups: dict[Judgement, list[str]] = {}
    for family in families:
        groups.setdefault(judge(catalogue, name, family=family, driver=driver), []).append(family)
    if len(groups) == 1:
        return ()
    return tuple(_view(catalogue.families.short(members), judgement) for judgement, members in groups.items())


def _by_subcode(catalogue: Catalogue, name: FaultName, family: str | None, driver: str | None) -> tuple[View, ...]:
    if name.subcode is not None:
        return ()
    subcodes = dict.fromkeys(
        entry.where.subcode
        for kind, code, entry in catalogue.shipped_entries()
        if (kind, code) == (name.kind, name.code) and entry.where.subcode and entry.where.covers(family, None)
    )
    return tuple(
        _view(str(subcode), judge(catalogue, name._replace(subcode=subcode), family=family, driver=driver))
        for subcode in subcodes
    )


def _view(case: str, judgement: Judgement) -> View:
    return View(
        case=case,
        entry=judgement.entry,
        meaning=judgement.meaning,
        role=judgement.role,
        cause_code=judgement.cause_code,
        action_hint=judgement.action_hint,
    )


def _announced(catalogue: Catalogue, name: FaultName, judgement: Judgement) -> str | None:
    if name.kind != "xid" or judgement.announced_from_driver is None:
        return None
    return (
        f"from driver branch {judgement.announced_from_driver} on Xid 154 announces the step; "
        f"within {catalogue.recovery.window_ms // 1000} s of the code it overrides the hint"
    )
