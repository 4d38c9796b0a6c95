"""Documents of OpenSLO v1 as people write them, as far as they are used here, and one kind of our own: Exclusion.

What OpenSLO has no field for is an annotation that begins with `faultlens/`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from faultlens.causes import CAUSE_CLASSES
from faultlens.clock import DAY_MS, HOUR_MS, ms_of
from faultlens.objectives.durations import parse_duration_ms
from faultlens.objectives.model import INDICATORS, OF_NODES, Method, Severity

OPENSLO: Final = "openslo/v1"
OURS: Final = "faultlens/v1"
# Counters keep every hour of a window: a state must stay small.
LONGEST_MS: Final = 100 * DAY_MS
_MIDNIGHT: Final = "%Y-%m-%d %H:%M:%S"
_CALENDARS: Final = {"1w": "week", "1M": "month"}

Duration = Annotated[int, BeforeValidator(lambda value: parse_duration_ms(str(value)))]
# As Kubernetes names things.
DocumentName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
# What names of clusters, pools and teams are made of; it stands in alert rules, where quotes would end it.
ScopeName = Annotated[str, Field(pattern=r"^[\w./:@ -]{0,200}$")]
Share = Annotated[float, Field(gt=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ScopeLabels(_Strict):
    """Which part of the fleet an objective is about, as labels."""

    cluster: ScopeName = ""
    pool: ScopeName = ""
    team: ScopeName = ""
    workload: ScopeName = ""

    @model_validator(mode="after")
    def _one_part(self) -> ScopeLabels:
        if sum(map(bool, (self.pool, self.team, self.workload))) > 1:
            raise ValueError("an objective is about a pool, a team or a workload: keep one of them")
        return self


class Notes(_Strict):
    """Annotations of an SLO: the limits of `job_start`, and a version that is shown."""

    within: Duration | None = Field(default=None, alias="faultlens/within")
    pending_limit: Duration | None = Field(default=None, alias="faultlens/pending-limit")


class Metadata(_Strict):
    """What a document is called."""

    name: DocumentName
    display_name: str = Field(default="", max_length=80, alias="displayName")
    labels: ScopeLabels = ScopeLabels()
    annotations: Notes = Notes()


class CalendarEntry(_Strict):
    """From when on a calendar's windows are counted, and in which zone."""

    start_time: str = Field(alias="startTime")
    time_zone: str = Field(alias="timeZone")

    @model_validator(mode="after")
    def _known(self) -> CalendarEntry:
        try:
            ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"no time zone {self.time_zone!r} (write it like Europe/Zurich or UTC)") from None
        try:
            datetime.strptime(self.start_time, _MIDNIGHT)  # noqa: DTZ007 - it is local to the zone
        except ValueError:
            raise ValueError("`startTime` is written like 2026-01-05 00:00:00") from None
        return self


class TimeWindow(_Strict):
    """`28d` rolling, or `1w` or `1M` of the calendar."""

    duration: str
    is_rolling: bool = Field(default=True, alias="isRolling")
    calendar: CalendarEntry | None = None

    @model_validator(mode="after")
    def _consistent(self) -> TimeWindow:
        if self.is_rolling:
            if self.calendar is not None:
                raise ValueError("a rolling window has no `calendar`: say isRolling: false, or remove it")
            if not DAY_MS <= parse_duration_ms(self.duration) <= LONGEST_MS:
                raise ValueError("a rolling window lasts at least a day and at most 100 days")
            return self
        if self.calendar is None or self.duration not in _CALENDARS:
            raise ValueError("a window of the calendar lasts 1w or 1M and has a `calendar`")
        begins = datetime.strptime(self.calendar.start_time, _MIDNIGHT)  # noqa: DTZ007 - it is local to the zone
        first = begins.weekday() == 0 if self.duration == "1w" else begins.day == 1
        if not first or begins.time() != datetime.min.time():
            raise ValueError("a week begins on a Monday, a month on its first day, at 00:00:00: change `startTime`")
        return self

    @property
    def calendar_unit(self) -> Literal["week", "month"]:
        """The unit of a window that is not rolling."""
        return "week" if self.duration == "1w" else "month"


class Goal(_Strict):
    """The target of an SLO."""

    display_name: str = Field(default="", alias="displayName")
    target: float = Field(gt=0, lt=1)
    time_slice_target: Share | None = Field(default=None, alias="timeSliceTarget")
    time_slice_window: Duration | None = Field(default=None, alias="timeSliceWindow")


class PolicyRef(_Strict):
    """Names an AlertPolicy."""

    alert_policy_ref: str = Field(alias="alertPolicyRef")


class SloSpec(_Strict):
    """What an SLO promises."""

    description: str = Field(min_length=1, max_length=400)
    service: str = Field(min_length=1)
    indicator_ref: str = Field(alias="indicatorRef")
    time_window: tuple[TimeWindow] = Field(alias="timeWindow")
    budgeting_method: Method = Field(default="Occurrences", alias="budgetingMethod")
    objectives: tuple[Goal]
    alert_policies: tuple[PolicyRef, ...] = Field(default=(), alias="alertPolicies", max_length=12)

    @model_validator(mode="after")
    def _consistent(self) -> SloSpec:
        if self.indicator_ref.replace("-", "_") not in INDICATORS:
            raise ValueError(f"no indicator {self.indicator_ref!r} (known: {', '.join(INDICATORS)})")
        goal = self.objectives[0]
        if self.budgeting_method == "Occurrences":
            if goal.time_slice_target is not None or goal.time_slice_window is not None:
                raise ValueError("Occurrences are not counted by slices: remove timeSliceTarget and timeSliceWindow")
        elif goal.time_slice_window is None or goal.time_slice_window % HOUR_MS:
            # What was counted is kept by the hour beyond the last six.
            raise ValueError(f"{self.budgeting_method} needs a timeSliceWindow of whole hours")
        elif (goal.time_slice_target is None) == (self.budgeting_method == "Timeslices"):
            raise ValueError("timeSliceTarget belongs to Timeslices, and is needed there")
        return self


class Slo(_Strict):
    """An objective."""

    api_version: Literal["openslo/v1"] = Field(alias="apiVersion")
    kind: Literal["SLO"]
    metadata: Metadata
    spec: SloSpec

    @property
    def indicator(self) -> str:
        """The indicator by our name."""
        return self.spec.indicator_ref.replace("-", "_")

    @model_validator(mode="after")
    def _fits(self) -> Slo:
        labels, notes = self.metadata.labels, self.metadata.annotations
        limits = (notes.within, notes.pending_limit)
        if self.indicator in OF_NODES and (labels.team or labels.workload):
            raise ValueError("nodes are of no team or workload: narrow it by cluster or pool")
        if self.indicator == "serving_capacity" and labels.pool:
            raise ValueError("services are of no pool: narrow it by cluster, team or workload")
        if self.indicator == "job_start" and None in limits:
            raise ValueError("job_start needs the annotations faultlens/within and faultlens/pending-limit")
        if self.indicator != "job_start" and limits != (None, None):
            raise ValueError("faultlens/within and faultlens/pending-limit belong to job_start alone: remove them")
        return self


class BurnCondition(_Strict):
    """A burn rate over a long window; `threshold` counts where no share of the budget is named."""

    kind: Literal["burnrate"]
    op: Literal["gte"]
    threshold: float = Field(gt=0)
    lookback_window: Duration = Field(alias="lookbackWindow")
    alert_after: str = Field(default="0m", alias="alertAfter")


class ConditionSpec(_Strict):
    """How bad it is."""

    description: str = ""
    severity: Severity
    condition: BurnCondition


class TierNotes(_Strict):
    """The short window that ends the warning, and the budget that may be gone within the long one."""

    short: Duration = Field(alias="faultlens/short-window")
    budget_share: Annotated[Share, BeforeValidator(float)] | None = Field(default=None, alias="faultlens/budget-share")


class TierMetadata(_Strict):
    """What a condition is called, and what OpenSLO has no field for."""

    name: DocumentName
    annotations: TierNotes


class Condition(_Strict):
    """The one condition of a policy."""

    kind: Literal["AlertCondition"]
    metadata: TierMetadata
    spec: ConditionSpec

    @model_validator(mode="after")
    def _shorter(self) -> Condition:
        if self.metadata.annotations.short >= self.spec.condition.lookback_window:
            raise ValueError("faultlens/short-window must be shorter than lookbackWindow")
        return self


class PolicyMetadata(_Strict):
    """What a policy is called."""

    name: DocumentName
    display_name: str = Field(default="", alias="displayName")


class PolicySpec(_Strict):
    """When somebody is told. Whom is the Alertmanager's business: `notificationTargets` are not used."""

    description: str = ""
    alert_when_breaching: Literal[True] = Field(default=True, alias="alertWhenBreaching")
    conditions: tuple[Condition]
    notification_targets: tuple[Any, ...] = Field(default=(), alias="notificationTargets")


class AlertPolicy(_Strict):
    """A tier of warning."""

    api_version: Literal["openslo/v1"] = Field(alias="apiVersion")
    kind: Literal["AlertPolicy"]
    metadata: PolicyMetadata
    spec: PolicySpec


class ExclusionSpec(_Strict):
    """Which time does not count, for which objectives and classes (none named: all), why, and who says so."""

    begins: AwareDatetime = Field(alias="from")
    ends: AwareDatetime = Field(alias="to")
    reason: str = Field(min_length=1, max_length=400)
    author: str = Field(min_length=1, max_length=100)
    objectives: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> ExclusionSpec:
        if ms_of(self.begins) % HOUR_MS or ms_of(self.ends) % HOUR_MS:
            raise ValueError("`from` and `to` are whole hours (UTC): what was counted is kept by the hour")
        if self.ends <= self.begins:
            raise ValueError("`to` must be after `from`")
        if unknown := sorted({*self.classes} - {*CAUSE_CLASSES, "overhead"}):
            raise ValueError(f"no class {unknown[0]!r} (known: {', '.join(CAUSE_CLASSES)}, overhead)")
        return self


class Whereabouts(_Strict):
    """The cluster that an exclusion is of; none: every one."""

    cluster: str = ""


class ExclusionMetadata(_Strict):
    """What happened, by its name: an incident's id or a maintenance's."""

    name: str = Field(min_length=1, max_length=100)
    labels: Whereabouts = Whereabouts()


class ExclusionDocument(_Strict):
    """An exclusion."""

    api_version: Literal["faultlens/v1"] = Field(alias="apiVersion")
    kind: Literal["Exclusion"]
    metadata: ExclusionMetadata
    spec: ExclusionSpec


KINDS: Final[dict[str, type[BaseModel]]] = {
    "SLO": Slo,
    "AlertPolicy": AlertPolicy,
    "Exclusion": ExclusionDocument,
}
# Kinds of OpenSLO that say nothing to us: what is measured, and who is told, is ours or the Alertmanager's.
IGNORED: Final = frozenset({"SLI", "DataSource", "Service", "AlertNotificationTarget"})
