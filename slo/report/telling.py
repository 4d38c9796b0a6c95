"""The few findings of a report that most GPU time is behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from slo.backing import attained_words
from slo.report.data import OVERHEAD, ReportData
from slo.report.summary import CATEGORY_WORDS, CLASS_WORDS, charge
from slo.wording import many, percent, target_percent, whole_hours


class _Finding(NamedTuple):
    gpu_ms: int
    words: str


def telling(data: ReportData, most: int = 3) -> list[str]:
    """Return the findings with most GPU time behind them, the greatest first; of each kind only its greatest one.

    Kinds are: a cause of failures, a node, what lost time went into, and GPUs that were not available. What no GPU
    time is behind is not told.
    """
    found = [*_cause(data), *_node(data), *_loss(data), *_availability(data)]
    found.sort(key=lambda finding: finding.gpu_ms, reverse=True)
    return [finding.words for finding in found[:most] if finding.gpu_ms > 0]


def _cause(data: ReportData) -> Iterator[_Finding]:
    causes = [line for line in data.causes if line.failures and line.cause_class != OVERHEAD]
    if causes:
        dearest = max(causes, key=lambda line: line.gpu_ms)
        blamed = CLASS_WORDS.get(dearest.cause_class, dearest.cause_class)
        failures = many(dearest.failures, "failure")
        cost = f"{whole_hours(dearest.gpu_ms)} GPU-hours"
        what = f"“{dearest.title}” ({dearest.code})"
        yield _Finding(
            dearest.gpu_ms,
            f"The dearest cause of failures is {what}, charged to {blamed}: {failures}, {cost}.",
        )


def _node(data: ReportData) -> Iterator[_Finding]:
    failing = [line for line in data.nodes if line.failures]
    if failing:
        worst = max(failing, key=lambda line: line.gpu_ms)
        causes = ", ".join(worst.causes)
        yield _Finding(worst.gpu_ms, f"No node cost jobs more than {worst.node}: {charge(worst)} ({causes}).")


def _loss(data: ReportData) -> Iterator[_Finding]:
    ledger = data.totals.ledger
    if ledger.losses:
        name, gpu_ms = max(ledger.losses, key=lambda loss: loss[1])
        words = CATEGORY_WORDS.get(name, name)
        yield _Finding(
            gpu_ms,
            f"{words} took {whole_hours(gpu_ms)} of the {whole_hours(ledger.allocated_ms)} GPU-hours that jobs held; "
            f"{percent(ledger.goodput)} of those became work that was kept.",
        )


def _availability(data: ReportData) -> Iterator[_Finding]:
    line = next((line for line in data.objectives if line.name == "gpu_availability"), None)
    if line is not None and line.met is False:
        charged = sorted(line.by_class.items(), key=lambda item: -item[1])
        whose = ", ".join(f"{_whose(name)} {whole_hours(round(amount))}" for name, amount in charged if amount)
        gpu_ms = round(line.total - line.good)
        shown = attained_words(line.shown, line.target, digits=line.digits)
        yield _Finding(
            gpu_ms,
            f"GPUs were available {shown} of the time, promised are "
            f"{target_percent(line.target)}: {whole_hours(gpu_ms)} GPU-hours were missing ({whose}).",
        )


def _whose(name: str) -> str:
    return "no failure" if name == OVERHEAD else CLASS_WORDS.get(name, name)
