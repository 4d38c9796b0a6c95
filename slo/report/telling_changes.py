"""What is new, what is disputed and what to do next, in sentences: for the page, for chat and for mail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from slo.report.corrections import after_the_end
from slo.report.data import OVERHEAD, Disputes, News, ReportData
from slo.wording import day, duration, many, percent, printable, whole_hours

ACTIONS: Final = 6
# From so much on it is worth a sentence.
ASSUMED_SHARE: Final = 0.2
LOST_SHARE: Final = 0.05
_NAME: Final = 120


def news_lines(news: News | None) -> Iterator[str]:
    """Yield what was not there in the four weeks before, and which roll-outs came first."""
    if news is None:
        return
    for code, faults, nodes in news.codes:
        yield f"New fault code {_shown(code)}: {many(faults, 'fault')} on {many(nodes, 'node')}."
    for node, failures, causes in news.lemons:
        yield f"{_shown(node)} is new among those to blame: {many(failures, 'failure')} ({', '.join(causes)})."
    for began_ms, what in news.rollouts:
        yield f"A roll-out began on {day(began_ms)}: {_shown(what)}."


def correction_lines(data: ReportData) -> list[str]:
    """Return how many verdicts changed after the period had ended, and so its figures with them; none: nothing."""
    late = after_the_end(data.corrections, data.period.to_ms)
    said = []
    if late:
        count = many(len(late), "verdict of this period was", "verdicts of this period were")
        said.append(f"{count} changed after it had ended: what was reported of it before differs by that.")
    if data.corrections.left_out:
        said.append(f"{many(data.corrections.left_out, 'older change is', 'older changes are')} not listed.")
    return said


def dispute_lines(disputes: Disputes) -> Iterator[str]:
    """Yield how much people disputed, and the rules that erred."""
    if not disputes.labels:
        yield "Nobody disputed a verdict in this period."
        return
    yield f"People gave {many(disputes.labels, 'label')}; {disputes.overruled} of them overruled whose fault it was."
    for rule, labelled, overruled in disputes.rules:
        yield f"{rule} was overruled {overruled} of {labelled} times that somebody looked."


def actions(data: ReportData) -> list[str]:
    """Return what is most worth doing next, at most six things, each with its reason."""
    return [*_nodes(data), *_causes(data), *_checkpoints(data), *_evidence(data), *_in_vain(data)][:ACTIONS]


def _nodes(data: ReportData) -> Iterator[str]:
    for line in [line for line in data.nodes[:2] if line.failures >= 2]:
        most = [index for index, count in line.devices.items() if count * 2 > line.failures]
        what = f"GPU {most[0]} of {_shown(line.node)}" if most else _shown(line.node)
        lost = f", {whole_hours(line.gpu_ms)} GPU-hours lost" if line.gpu_ms else ""
        yield f"Have {what} looked at: {many(line.failures, 'failure')}{lost} ({', '.join(line.causes)})."


def _causes(data: ReportData) -> Iterator[str]:
    ranked = sorted(data.causes, key=lambda c: (-c.gpu_ms, c.code))
    for line in [c for c in ranked if c.cause_class not in (OVERHEAD, "user") and c.gpu_ms > 0][:1]:
        cost = f"{whole_hours(line.gpu_ms)} GPU-hours"
        yield f"Work on {_inside(line.title)}: it cost most of what is not the users' own, {cost}."


def _checkpoints(data: ReportData) -> Iterator[str]:
    ledger = data.totals.ledger
    lost, held = ledger.by_category.get("lost_work", 0), ledger.allocated_ms
    if held and lost / held > LOST_SHARE:
        yield f"Save more often: {percent(lost / held)} of what jobs held was work lost since their last checkpoint."


def _evidence(data: ReportData) -> Iterator[str]:
    whole, assumed = data.quality.count(), data.quality.count(basis="assumed")
    if whole and assumed / whole > ASSUMED_SHARE:
        share = percent(assumed / whole, digits=0)
        yield f"Give faultlens more to see: {share} of verdicts rest on a default. Kernel logs and agents tell most."


def _in_vain(data: ReportData) -> Iterator[str]:
    worst = max(data.remedies, key=lambda r: r.relapsed, default=None)
    if worst is not None and worst.relapsed:
        name = worst.action.replace("_", " ")
        took = f" (it takes {duration(worst.median_ms)})" if worst.median_ms else ""
        yield f"Look at what {name} is for: {worst.relapsed} of {worst.succeeded} that succeeded were in vain{took}."


def _inside(title: str) -> str:
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def _shown(text: str) -> str:
    return printable(text, limit=_NAME)
