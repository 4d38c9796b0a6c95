"""Which figures of a report are drawn, and what each says in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from markupsafe import Markup

from faultlens.causes import CAUSE_CLASSES
from faultlens.clock import HOUR_MS
from slo.report.charts import Bar, Column, Frame, bars, columns, meter
from slo.report.data import OVERHEAD, CauseLine, Ledger, ObjectiveLine, ReportData
from slo.report.summary import CATEGORY_WORDS
from slo.wording import day, listed, many, of_tenths, percent, tenths_that_add_up, whole_hours

WIDE: Final = 860
NARROW: Final = 340
BARS_LIMIT: Final = 12


class Figure(NamedTuple):
    """One chart, drawn for a wide page and for a narrow one; the style sheet shows one of them."""

    wide: Markup
    narrow: Markup


def _both(name: str, title: str, words: str, draw: Callable[[Frame], Markup]) -> Figure:
    wide = draw(Frame(f"{name}-wide", title, words, WIDE))
    return Figure(wide, draw(Frame(f"{name}-narrow", title, words, NARROW)))


def failures_by_cause(data: ReportData) -> Figure | None:
    """The Pareto chart: the most frequent causes with their running share; None without failures."""
    ranked = sorted((c for c in data.causes if c.failures), key=lambda c: (-c.failures, c.code))
    total = sum(line.failures for line in ranked)
    if not total:
        return None
    rows, running = [], 0
    for line in ranked[:BARS_LIMIT]:
        running += line.failures
        note = f"{line.failures:,} · {percent(running / total, digits=0)}"
        rows.append(Bar(line.title, line.failures, note, line.cause_class))
    if rest := total - running:
        rows.append(Bar(f"{len(ranked) - BARS_LIMIT} more causes", rest, f"{rest:,} · 100 %", OVERHEAD))
    words = f"{many(total, 'failure')}. " + ", ".join(f"{c.title}: {c.failures:,}" for c in ranked[:BARS_LIMIT])
    return _both("causes", "Failures by cause, most frequent first", words, lambda frame: bars(frame, rows))


def failures_per_day(data: ReportData) -> Figure | None:
    """Failures of each day, stacked by class; None without failures."""
    if not any(line.failures for line in data.days):
        return None
    stacks = [
        Column(day(line.day_ms), [(name, line.by_class.get(name, 0)) for name in CAUSE_CLASSES]) for line in data.days
    ]
    words = "; ".join(f"{day(line.day_ms)}: {_by_class(line.by_class)}" for line in data.days)
    return _both("days", "Failures per day, by class", words, lambda frame: columns(frame, stacks))


def _by_class(counts: Mapping[str, int]) -> str:
    named = [f"{count:,} {name}" for name, count in counts.items() if count]
    return listed(named) if named else "none"


def goodput_waterfall(ledger: Ledger) -> Figure | None:
    """From allocated time down, loss by loss, to the work that was kept; None when nothing was allocated."""
    if not ledger.allocated_ms:
        return None
    tenths = tenths_that_add_up({"productive": ledger.productive_ms, **dict(ledger.losses)})

    def note(name: str, amount: int) -> str:
        return f"{of_tenths(tenths[name])} h · {percent(amount / ledger.allocated_ms)}"

    left = ledger.allocated_ms
    rows = [Bar("Allocated", left / HOUR_MS, f"{of_tenths(sum(tenths.values()))} h", "neutral")]
    for name, amount in ledger.losses:
        left -= amount
        rows.append(Bar(CATEGORY_WORDS.get(name, name), amount / HOUR_MS, note(name, amount), "loss", left / HOUR_MS))
    rows.append(Bar("Work that was kept", left / HOUR_MS, note("productive", left), "kept"))
    words = "GPU-hours. " + ", ".join(f"{row.label}: {row.note}" for row in rows)
    return _both("goodput", "From allocated GPU time to work that was kept", words, lambda frame: bars(frame, rows))


def cost_by_cause(data: ReportData) -> Figure | None:
    """What each cause cost in GPU-hours, dearest first; None when nothing was lost to a cause."""
    ranked = sorted((c for c in data.causes if c.gpu_ms > 0), key=lambda c: (-c.gpu_ms, c.code))
    if not ranked:
        return None
    rows = [Bar(c.title, c.gpu_ms / HOUR_MS, f"{whole_hours(c.gpu_ms)} h", c.cause_class) for c in ranked[:BARS_LIMIT]]
    if rest := ranked[BARS_LIMIT:]:
        amount = sum(c.gpu_ms for c in rest)
        rows.append(Bar(many(len(rest), "more cause"), amount / HOUR_MS, f"{whole_hours(amount)} h", OVERHEAD))
    words = "GPU-hours. " + ", ".join(f"{row.label}: {row.note}" for row in rows)
    return _both("cost", "What each cause cost in GPU-hours", words, lambda frame: bars(frame, rows))


def budget_meter(line: ObjectiveLine) -> Markup:
    """How much of an objective's budget is left."""
    words = f"{line.title}: {percent(line.budget_left, digits=0)} of the error budget is left"
    return meter(Frame(f"budget-{line.name}", "Error budget left", words, 160), line.budget_left)


def ranked_causes(data: ReportData) -> list[CauseLine]:
    """Every cause, most failures first, then the dearest; overhead last."""
    return sorted(data.causes, key=lambda c: (c.cause_class == OVERHEAD, -c.failures, -c.gpu_ms, c.code))
