"""Where the site, NVIDIA, EKS and the DRA driver judge a code otherwise than we do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct, structs

from faultlens.catalogue.integrity import LAST_XID
from faultlens.catalogue.judgement import Judgement
from faultlens.catalogue.lookup import Catalogue
from faultlens.catalogue.model import CHECK_KIND
from faultlens.catalogue.reference import FaultName, compact, judge

NVIDIA: Final = "NVIDIA's immediate action"
EKS: Final = "EKS node monitoring agent"
DRA: Final = "NVIDIA's DRA driver"
SITE: Final = "site"

_ENDS_NO_JOB: Final = frozenset({"application", "sympathetic", "informational", "trend"})


class Difference(Struct, frozen=True):
    """One judgement that somebody else does not share."""

    who: str
    kind: str
    codes: tuple[str, ...]
    families: str
    """`all`, or generations and families."""
    about: str
    theirs: str
    ours: str
    note: str = ""

    @property
    def refs(self) -> str:
        """The codes as people write them: `xid:39-41, 70`."""
        return f"{self.kind}:{compact(self.codes)}"


def diff(catalogue: Catalogue) -> list[Difference]:
    """Every disagreement, the site's first; codes on which one disagrees in the same way share a row."""
    rows = [*_site_rows(catalogue), *_nvidia_rows(catalogue), *_eks_rows(catalogue), *_dra_rows(catalogue)]
    joined: dict[Difference, list[str]] = {}
    for row in rows:
        joined.setdefault(structs.replace(row, codes=()), []).extend(row.codes)
    return [structs.replace(row, codes=tuple(codes)) for row, codes in joined.items()]


def opinions(catalogue: Catalogue, name: FaultName, judgement: Judgement) -> Iterator[tuple[str, str, bool]]:
    """What others say of an Xid code without sub-code, and whether our judgement agrees."""
    if name.kind != "xid" or name.subcode is not None or not name.code.isdecimal():
        return
    others = catalogue.others
    action = others.nvidia_action(name.code)
    if action is not None:
        yield NVIDIA, action, judgement.action_hint in others.nvidia_agrees_with[action]
    fatal = name.code in others.eks_fatal
    yield EKS, "fatal" if fatal else "not fatal", fatal == (judgement.role == "root")
    ignored = name.code in others.dra_ignored
    yield DRA, "ignored" if ignored else "device withdrawn", ignored == (judgement.role in _ENDS_NO_JOB)


def _site_rows(catalogue: Catalogue) -> Iterator[Difference]:
    for kind, code, entry in catalogue.site_entries():
        family = min(entry.where.families) if entry.where.families else None
        driver = str(entry.where.first_branch) if entry.where.is_bounded else None
        ours = _shipped(catalogue, FaultName(kind, code, entry.where.subcode), family, driver)
        for field, value in entry.content.items():
            if field != "source" and getattr(ours, field) != value:
                yield Difference(
                    who=SITE,
                    kind=kind,
                    codes=(code if entry.where.subcode is None else f"{code}/{entry.where.subcode}",),
                    families=catalogue.families.short(entry.where.families) if entry.where.families else "all",
                    about=field,
                    theirs=_text(value),
                    ours=_text(getattr(ours, field)),
                    note=str(entry.content["source"]).removeprefix("site: "),
                )


def _shipped(catalogue: Catalogue, name: FaultName, family: str | None, driver: str | None) -> Judgement:
    if name.kind == CHECK_KIND:
        status, _, code = (name.subcode or "fail").partition("/")
        return catalogue.resolve_shipped_check(name.code, "", status, code or None)
    return catalogue.resolve_shipped(name.kind, name.code, subcode=name.subcode, family=family, driver=driver)


def _nvidia_rows(catalogue: Catalogue) -> Iterator[Difference]:
    for action, codes in catalogue.others.nvidia_immediate_action.items():
        agreeing = catalogue.others.nvidia_agrees_with[action]
        for code in codes:
            judged = _by_generation(catalogue, code)
            defined = {generation: j for generation, j in judged.items() if j.known} or judged
            for judgement, generations in _grouped(defined).items():
                if judgement.action_hint not in agreeing:
                    ours = f"{judgement.action_hint} ({judgement.role})"
                    row = _xid_row(NVIDIA, code, "action", theirs=action, ours=ours)
                    everywhere = len(generations) == len(judged)
                    yield row if everywhere else structs.replace(row, families=", ".join(generations))


def _eks_rows(catalogue: Catalogue) -> Iterator[Difference]:
    for code, judgement in _xids(catalogue):
        fatal = code in catalogue.others.eks_fatal
        if fatal != (judgement.role == "root") and (fatal or judgement.known):
            theirs = "fatal" if fatal else "not fatal"
            yield _xid_row(EKS, code, "fatality", theirs=theirs, ours=judgement.role)


def _dra_rows(catalogue: Catalogue) -> Iterator[Difference]:
    for code, judgement in _xids(catalogue):
        ignored = code in catalogue.others.dra_ignored
        if ignored != (judgement.role in _ENDS_NO_JOB) and (ignored or judgement.known):
            theirs = "ignored" if ignored else "device withdrawn"
            yield _xid_row(DRA, code, "device", theirs=theirs, ours=judgement.role)


def _xids(catalogue: Catalogue) -> Iterator[tuple[str, Judgement]]:
    """Every Xid code as it is judged where the family is not known, which is how these two judge."""
    return ((code, catalogue.resolve("xid", code)) for code in map(str, range(1, LAST_XID + 1)))


def _by_generation(catalogue: Catalogue, code: str) -> dict[str, Judgement]:
    return {
        name: judge(catalogue, FaultName("xid", code, None), family=generation.families[0], driver=None)
        for name, generation in catalogue.families.generations.items()
        if generation.nvidia_column is not None
    }


def _grouped(judged: Mapping[str, Judgement]) -> dict[Judgement, list[str]]:
    groups: dict[Judgement, list[str]] = {}
    for generation, judgement in judged.items():
        groups.setdefault(judgement, []).append(generation)
    return groups


def _xid_row(who: str, code: str, about: str, *, theirs: str, ours: str) -> Difference:
    return Difference(who=who, kind="xid", codes=(code,), families="all", about=about, theirs=theirs, ours=ours)


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
