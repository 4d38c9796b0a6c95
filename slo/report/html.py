"""The report as one HTML file that needs nothing else: no script, no font, no request."""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from faultlens.causes import CAUSE_CLASSES
from slo.report import figures, notes, telling_changes, view, view_machines
from slo.report.data import OVERHEAD, ObjectiveLine, ReportData
from slo.report.summary import summary
from slo.wording import duration, minute, printable, target_percent

CLASS_LEGEND: Final = tuple((name, name) for name in CAUSE_CLASSES)


class Tile(NamedTuple):
    """An objective at a glance."""

    title: str
    verdict: str
    attained: str
    target: str
    left: str
    meter: Markup


def render_html(data: ReportData) -> str:
    """Return the whole page. Everything that came from outside is escaped, its control characters too."""
    page = _template().render(
        data=data,
        paragraphs=summary(data),
        scope_words=scope_words(data),
        as_of=minute(data.as_of_ms),
        tiles=[_tile(line) for line in data.objectives],
        objectives=view.objectives_table(data),
        bad=view.bad_table(data),
        seconds=notes.second_numbers(data),
        by_cause=figures.failures_by_cause(data),
        per_day=figures.failures_per_day(data),
        class_legend=CLASS_LEGEND,
        waterfall=figures.goodput_waterfall(data.totals.ledger),
        queued=duration(data.totals.ledger.queued_ms) if data.totals.ledger.queued_ms else "",
        fleet=view.fleet_table(data),
        cost=figures.cost_by_cause(data),
        cost_legend=(*CLASS_LEGEND, (OVERHEAD, "no failure behind it")),
        causes=view.causes_table(data),
        nodes=view.nodes_table(data),
        comparison=view.comparison_table(data),
        reliability=list(notes.reliability_lines(data)),
        outlook=list(notes.outlook_lines(data)),
        outlook_gpus=f"{notes.outlook_gpus(data):,}",
        quality=view.quality_table(data),
        blindness=notes.blindness(data),
        actions=telling_changes.actions(data),
        weeks=view.weeks_table(data),
        movers=view.movers_table(data),
        news=list(telling_changes.news_lines(data.news)),
        remedies=view.remedies_table(data),
        disputes=list(telling_changes.dispute_lines(data.disputes)),
        lost_cost=_lost_cost(data),
        sizes=view_machines.sizes_table(data),
        trainings=view_machines.trainings_table(data),
        saves=view_machines.saves_table(data),
        returned=view_machines.returned_table(data),
        corrections=view_machines.corrections_table(data),
        corrected=telling_changes.correction_lines(data),
    )
    # What escaping leaves: characters that HTML forbids or that turn the text around them.
    page = "\n".join(printable(line, limit=len(line)) for line in page.split("\n"))
    # A figure and its unit stay on one line.
    return page.replace(" %", "\N{NO-BREAK SPACE}%")


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("slo.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("weekly.html.j2")


def _lost_cost(data: ReportData) -> str:
    """What the GPU time that was not productive cost; empty without a price."""
    return "" if data.price is None else view.money(data.totals.ledger.lost_ms, data.price)


def _tile(line: ObjectiveLine) -> Tile:
    left = view.budget_text(line)
    target = target_percent(line.target)
    return Tile(line.title, view.verdict_on(line), view.attained_text(line), target, left, figures.budget_meter(line))


def scope_words(data: ReportData) -> str:
    """Return what the report is about, and whether its period is over."""
    period = data.period
    until = "" if period.complete else "; the period is not over, its figures are so far"
    return f"{data.scope} · {minute(period.from_ms)} to {minute(period.to_ms)}{until}"
