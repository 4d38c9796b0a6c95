"""What the page shows: the report's data as short texts, so that the template decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from faultlens.causes import CAUSE_CLASSES
from faultlens.clock import HOUR_MS
from slo.backing import TOO_LITTLE, attained_words, share_words
from slo.report.data import BASES, OVERHEAD, CauseLine, NodeLine, ObjectiveLine, Price, ReportData, WeekLine
from slo.report.figures import ranked_causes
from slo.wording import (
    NOTHING,
    day,
    duration,
    of_tenths,
    percent,
    points,
    share_of_budget,
    signed,
    target_percent,
    tenths_that_add_up,
    whole_hours,
)

CAUSES_LIMIT: Final = 20
FLEET_WORDS: Final = {
    "allocated": "Allocated to jobs",
    "idle_healthy": "Idle and healthy",
    "stranded": "Healthy, but on a node that is out",
    "blocked": "Blocked",
    "draining": "Draining",
    "in_repair": "Unhealthy on a node that works",
    "admission": "Not validated yet",
    "maintenance": "Maintenance",
    "down": "Down",
    "unknown": "Unknown (silent)",
}
UNIT_WORDS: Final = {
    "node_seconds": "node-hours",
    "gpu_seconds": "GPU-hours",
    "attempts": "attempts",
    "jobs": "jobs",
}


class Table(NamedTuple):
    """A table: its heads, and rows whose first cell names the row. `numeric` columns are set to the right."""

    caption: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric: frozenset[int]
    foot: tuple[str, ...] = ()


def verdict_on(line: ObjectiveLine) -> str:
    """Whether the objective was met, in one word."""
    return TOO_LITTLE if line.met and not line.enough else {True: "met", False: "missed", None: "no data"}[line.met]


def budget_text(line: ObjectiveLine) -> str:
    """What is left of the budget, or how far it is overspent; nothing where there is none to speak of."""
    if line.budget_left is None:
        return ""
    if line.budget_left < 0:
        return f"used {1 - line.budget_left:,.1f} times the budget"
    return f"{percent(line.budget_left, digits=0)} of the budget left"


def attained_text(line: ObjectiveLine) -> str:
    """The attained share, with as many more decimals as it takes for a miss not to look like the target."""
    return attained_words(line.shown, line.target, digits=line.digits)


def change_text(line: ObjectiveLine) -> str:
    """The difference to the period before, in points."""
    if line.attained is None or line.before is None:
        return NOTHING
    return points(line.attained - line.before, digits=line.digits)


def amount(line: ObjectiveLine, value: float) -> str:
    """An amount in the objective's unit; time comes in milliseconds and is written in hours."""
    if line.unit in ("attempts", "jobs") and line.name != "serving_capacity":
        return f"{value:,.0f}"
    return whole_hours(round(value))


def objectives_table(data: ReportData) -> Table:
    """Objectives against targets, and what became of their budgets."""
    heads = ("Objective", "Target", "Attained", "", "Against before", "Rolling window", "Budget left", "Spent here")
    rows = [_objective_row(line) for line in data.objectives]
    return Table("Objectives against their targets", heads, rows, frozenset({1, 2, 4, 5, 6, 7}))


def _objective_row(line: ObjectiveLine) -> tuple[str, ...]:
    return (
        line.title,
        target_percent(line.target),
        attained_text(line),
        verdict_on(line),
        change_text(line),
        share_words(line.rolling, digits=line.digits),
        share_of_budget(line.budget_left),
        percent(line.spent, digits=0),
    )


def bad_table(data: ReportData) -> Table:
    """What was not good, by whom it is charged to, and what moving everything assumed to either side would give."""
    classes = (*CAUSE_CLASSES, OVERHEAD)
    rows = [
        (
            line.title,
            *(amount(line, line.by_class[name]) if line.by_class.get(name) else NOTHING for name in classes),
            UNIT_WORDS[line.unit],
            _bounds(line),
        )
        for line in data.objectives
    ]
    heads = ("Objective", *classes, "unit", "Attained, at least and most")
    return Table("What was not good, by whom it is charged to", heads, rows, frozenset({1, 2, 3, 4, 5, 7}))


def _bounds(line: ObjectiveLine) -> str:
    if line.low is None or line.high is None or line.low == line.high:
        return NOTHING
    return f"{share_words(line.low, digits=line.digits)} {NOTHING} {share_words(line.high, digits=line.digits)}"


def causes_table(data: ReportData) -> Table:
    """Causes with failures and cost, the rest in one row, overhead last; GPU-hours add up to the sum that is shown."""
    causes = ranked_causes(data)
    tenths = tenths_that_add_up({line.key: line.gpu_ms for line in causes})
    blamed = [line for line in causes if line.cause_class != OVERHEAD]
    rest = blamed[CAUSES_LIMIT:]

    def amounts(lines: Sequence[CauseLine]) -> tuple[str, ...]:
        cost = (money(sum(line.gpu_ms for line in lines), data.price),) if data.price is not None else ()
        return (*_amounts(lines, tenths), *cost)

    rows = [(c.title, c.code, c.cause_class, *amounts([c])) for c in causes if c not in rest]
    if rest:
        rows.insert(CAUSES_LIMIT, (f"{len(rest)} more", "", "", *amounts(rest)))
    cost = ("Cost",) if data.price is not None else ()
    heads = ("Cause", "Code", "Charged to", "Failures", "of them assumed", "GPU-hours", *cost)
    foot = ("All", "", "", *amounts(causes))
    return Table("Causes: how often, and what they cost", heads, rows, frozenset({3, 4, 5, 6}), foot)


def _amounts(lines: Sequence[CauseLine], tenths: Mapping[str, int]) -> tuple[str, str, str]:
    failures, assumed = sum(line.failures for line in lines), sum(line.assumed for line in lines)
    return f"{failures:,}", f"{assumed:,}", of_tenths(sum(tenths[line.key] for line in lines))


def money(gpu_ms: float, price: Price) -> str:
    """What GPU time costs."""
    return f"{gpu_ms / HOUR_MS * price.per_gpu_hour:,.0f} {price.currency}"


def weeks_table(data: ReportData) -> Table | None:
    """The periods before this one and itself, a line each; None where nothing is known of any before."""
    if len(data.weeks) < 2:
        return None
    told = data.weeks[-1].attained.keys() - {"goodput"}  # it has a column of its own
    names = [line for line in data.objectives if line.source == "recomputed" and line.name in told]
    rows = [_week_row(week, names) for week in data.weeks]
    heads = ("From", "Attempts", *CAUSE_CLASSES, "Goodput", "GPU-hours lost", *(line.title for line in names))
    return Table("Week by week", heads, rows, frozenset(range(1, len(heads))))


def _week_row(week: WeekLine, objectives: Sequence[ObjectiveLine]) -> tuple[str, ...]:
    totals = week.totals
    return (
        day(week.from_ms),
        f"{totals.attempts:,}",
        *(f"{totals.failures.get(name, 0):,}" for name in CAUSE_CLASSES),
        percent(totals.ledger.goodput),
        whole_hours(totals.ledger.lost_ms),
        *(share_words(week.attained[line.name], digits=line.digits) for line in objectives),
    )


def movers_table(data: ReportData) -> Table | None:
    """The causes that changed most against the period before; None where none did."""
    if not data.movers:
        return None
    rows = [
        (
            mover.cause.title,
            mover.cause.cause_class,
            f"{mover.failures_before:,}",
            f"{mover.cause.failures:,}",
            signed(mover.failures),
            signed(mover.gpu_ms / HOUR_MS, digits=0 if abs(mover.gpu_ms) >= 1_000 * HOUR_MS else 1),
        )
        for mover in data.movers
    ]
    heads = ("Cause", "Charged to", "Failures before", "Now", "Change", "Change in GPU-hours")
    return Table("Causes that moved most", heads, rows, frozenset({2, 3, 4, 5}))


def remedies_table(data: ReportData) -> Table | None:
    """What was done by itself, and how well; None where nothing was."""
    if not data.remedies:
        return None
    rows = [
        (
            remedy.action.replace("_", " ") + (" (shadow)" if remedy.shadow else ""),
            *(f"{count:,}" for count in (remedy.commands, remedy.succeeded, remedy.failed, remedy.refused)),
            f"{remedy.expired:,}",
            f"{remedy.relapsed:,}",
            duration(remedy.median_ms) if remedy.median_ms else NOTHING,
        )
        for remedy in data.remedies
    ]
    heads = ("Action", "Commands", "Succeeded", "Failed", "Refused", "Expired", "In vain", "Took (median)")
    return Table("What was done about it", heads, rows, frozenset(range(1, 8)))


def fleet_table(data: ReportData) -> Table | None:
    """What every known GPU-hour of the fleet was used for; None when the fleet did not report."""
    if not data.fleet:
        return None
    total = sum(data.fleet.values())
    tenths = tenths_that_add_up(data.fleet)
    order = {name: index for index, name in enumerate(FLEET_WORDS)}
    names = sorted(data.fleet, key=lambda name: (order.get(name, len(order)), name))
    rows = [
        (FLEET_WORDS.get(name, name), of_tenths(tenths[name]), percent(data.fleet[name] / total if total else None))
        for name in names
    ]
    foot = ("All known GPUs", of_tenths(sum(tenths.values())), percent(1.0) if total else NOTHING)
    return Table("What the fleet's GPUs were used for", ("Use", "GPU-hours", "Share"), rows, frozenset({1, 2}), foot)


def nodes_table(data: ReportData) -> Table:
    """The nodes and devices with most to their charge."""
    heads = ("Node", "Pool", "Failures", "GPUs (failures)", "GPU-hours lost", "Out of service", "Faults seen", "Causes")
    return Table("Nodes with most to their charge", heads, [_node_row(n) for n in data.nodes], frozenset({2, 4, 5, 6}))


def _node_row(line: NodeLine) -> tuple[str, ...]:
    devices = ", ".join(f"{index} ({count:,})" for index, count in line.devices.items())
    return (
        line.node,
        line.pool or NOTHING,
        f"{line.failures:,}",
        devices or NOTHING,
        whole_hours(line.gpu_ms),
        duration(line.down_ms) if line.down_ms else NOTHING,
        f"{line.faults:,}",
        ", ".join(line.causes) or NOTHING,
    )


def comparison_table(data: ReportData) -> Table | None:
    """This period's figures beside those of the one before; None when there is none."""
    if data.before is None:
        return None
    now, then = data.totals, data.before
    rows = [_counted("Attempts that ended", now.attempts, then.attempts)]
    rows += [
        _counted(f"Failures charged to {c}", now.failures.get(c, 0), then.failures.get(c, 0)) for c in CAUSE_CLASSES
    ]
    rows.append(_hours("GPU-hours allocated", now.ledger.allocated_ms, then.ledger.allocated_ms))
    rows.append(_hours("GPU-hours not productive", now.ledger.lost_ms, then.ledger.lost_ms))
    here, there = now.ledger.goodput, then.ledger.goodput
    change = points(here - there) if here is not None and there is not None else NOTHING
    rows.append(("Goodput", percent(here), percent(there), change))
    heads = ("Figure", "This period", "Before", "Change")
    return Table("Figures of this period and of the one before it", heads, rows, frozenset({1, 2, 3}))


def _counted(name: str, now: int, then: int) -> tuple[str, ...]:
    return name, f"{now:,}", f"{then:,}", signed(now - then)


def _hours(name: str, now_ms: int, then_ms: int) -> tuple[str, ...]:
    difference = (now_ms - then_ms) / HOUR_MS
    return (
        name,
        whole_hours(now_ms),
        whole_hours(then_ms),
        signed(difference, digits=0 if abs(difference) >= 1_000 else 1),
    )


def quality_table(data: ReportData) -> Table | None:
    """What the verdicts of each class rest on, and the bounds that moving the assumed ones gives; None without any."""
    quality = data.quality
    if not quality.count():
        return None
    rows = []
    for name in CAUSE_CLASSES:
        low, high = quality.bounds(name)
        by_basis = [f"{quality.count(cause_class=name, basis=basis):,}" for basis in BASES]
        rows.append((name, f"{quality.count(cause_class=name):,}", *by_basis, f"{low:,}", f"{high:,}"))
    foot = ("all", f"{quality.count():,}", *(f"{quality.count(basis=basis):,}" for basis in BASES), "", "")
    heads = ("Charged to", "Failures", "Established", "Supported", "Assumed", "At least", "At most")
    return Table("What the verdicts rest on", heads, rows, frozenset(range(1, 7)), foot)
