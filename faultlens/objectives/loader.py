"""Reads objectives from YAML, and names file and line of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from faultlens.errors import ConfigurationError
from faultlens.events import Objective as ObjectiveName
from faultlens.objectives.durations import parse_duration_ms
from faultlens.objectives.model import Objective, Objectives, Severity, Tier, Unit, split_tiers
from faultlens.yaml_lines import YamlProblemError, read_yaml

SHIPPED: Final = Path(__file__).parent / "data" / "objectives.yaml"
TIERS_LIMIT: Final = 12


def _duration(value: object) -> int:
    return parse_duration_ms(str(value))


Duration = Annotated[int, BeforeValidator(_duration)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TierEntry(_Strict):
    """A pair of windows and the share of the budget that may be gone within the long one before somebody is told."""

    name: str = Field(min_length=1, max_length=40)
    severity: Severity
    long: Duration
    short: Duration
    budget_share: float = Field(gt=0, le=1)

    @model_validator(mode="after")
    def _shorter(self) -> TierEntry:
        if self.short >= self.long:
            raise ValueError("`short` must be shorter than `long`")
        return self


class ObjectiveEntry(_Strict):
    """An objective as people write it; `period` here is for this objective alone."""

    title: str = Field(min_length=1, max_length=80)
    promise: str = Field(min_length=1, max_length=400)
    target: float = Field(gt=0, lt=1)
    unit: Unit
    period: Duration | None = None
    within: Duration | None = None
    pending_limit: Duration | None = None


class ObjectivesFile(_Strict):
    """A file of objectives. A site's own may leave out `period` and `tiers`."""

    version: str = Field(min_length=1, max_length=40)
    period: Duration | None = None
    tiers: tuple[TierEntry, ...] | None = Field(default=None, min_length=1, max_length=TIERS_LIMIT)
    objectives: dict[ObjectiveName, ObjectiveEntry] = Field(min_length=1)


def load_objectives(path: Path | None = None) -> Objectives:
    """Return the shipped objectives, with those of the file at `path` in place of the shipped ones of their names.

    Raises ConfigurationError, which names file and line of every problem. A tier that could never fire at an
    objective's target is left out of it and named in `Objective.never_fire`.
    """
    file = _read(SHIPPED)
    if path is not None:
        file = _over(file, _read(path, under=file))
    tiers, period_ms = file.tiers or (), file.period or 0
    by_name = {str(name): _objective(name, entry, period_ms, tiers) for name, entry in file.objectives.items()}
    return Objectives(file.version, by_name)


def _over(shipped: ObjectivesFile, site: ObjectivesFile) -> ObjectivesFile:
    changed = {
        "version": f"{shipped.version}+{site.version}",
        "period": site.period or shipped.period,
        "tiers": site.tiers or shipped.tiers,
        "objectives": dict(shipped.objectives) | dict(site.objectives),
    }
    return shipped.model_copy(update=changed)


def _objective(name: str, entry: ObjectiveEntry, period_ms: int, tiers: tuple[TierEntry, ...]) -> Objective:
    window_ms = entry.period or period_ms
    can_fire, never_fire = split_tiers(name, entry.target, tuple(_tier(tier, window_ms) for tier in tiers))
    return Objective(
        name=name,
        title=entry.title,
        promise=entry.promise,
        target=entry.target,
        unit=entry.unit,
        window_ms=window_ms,
        tiers=can_fire,
        never_fire=never_fire,
        within_ms=entry.within,
        pending_limit_ms=entry.pending_limit,
    )


def _tier(entry: TierEntry, period_ms: int) -> Tier:
    return Tier(entry.name, entry.severity, entry.long, entry.short, entry.budget_share, period_ms)


def _read(path: Path, under: ObjectivesFile | None = None) -> ObjectivesFile:
    """Read one file; `under` is what holds where it says nothing."""
    try:
        document = read_yaml(path)
        file = ObjectivesFile.model_validate(document.data)
    except YamlProblemError as error:
        raise ConfigurationError(str(error)) from None
    except ValidationError as error:
        raise ConfigurationError("\n".join(str(problem) for problem in document.problems_of(error))) from None
    for location, text in (*_tier_names(file), *_periods(file, under), *_job_start(file)):
        raise ConfigurationError(str(document.problem(location, text)))
    return file


_Findings = Iterator[tuple[tuple[int | str, ...], str]]


def _tier_names(file: ObjectivesFile) -> _Findings:
    names = [tier.name for tier in file.tiers or ()]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield ("tiers", index, "name"), f"tier {name!r} is given twice: rename one"


def _periods(file: ObjectivesFile, under: ObjectivesFile | None) -> _Findings:
    """A window as long as the period would warn when the budget is gone, which is too late."""
    tiers, period_ms = file.tiers or (under and under.tiers), file.period or (under and under.period)
    if not tiers or not period_ms:
        yield (), "`period` and `tiers` are needed: add them"
        return
    longest = max(tier.long for tier in tiers)
    text = "a period must be longer than the longest window of a tier: lengthen it, or shorten the tiers"
    if period_ms <= longest:
        yield ("period" if file.period else "tiers",), text
    for name, entry in file.objectives.items():
        if entry.period is not None and entry.period <= longest:
            yield ("objectives", name, "period"), text


def _job_start(file: ObjectivesFile) -> _Findings:
    for name, entry in file.objectives.items():
        limits = (entry.within, entry.pending_limit)
        if name == "job_start" and None in limits:
            yield ("objectives", name), "job_start needs `within` and `pending_limit`: add them"
        if name != "job_start" and limits != (None, None):
            yield ("objectives", name), "`within` and `pending_limit` belong to job_start alone: remove them"
