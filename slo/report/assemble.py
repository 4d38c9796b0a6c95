"""From the store's rows to the lines of a report: grouping and adding up, nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from faultlens.budget import attained, budget_allowed, budget_remaining
from faultlens.causes import title_of
from faultlens.clock import DAY_MS, SECOND_MS
from faultlens.objectives import Objective
from slo.backing import is_enough
from slo.intervals import Interval, covered_ms, union
from slo.measure import OVERHEAD, Measure, Row
from slo.promises import Answers, Promise
from slo.recompute import Rows
from slo.report.data import (
    CauseLine,
    DayLine,
    Ledger,
    NodeLine,
    ObjectiveLine,
    Quality,
    Reliability,
    Totals,
)

NODES_LIMIT: Final = 12
CAUSES_OF_A_NODE: Final = 3
OF_MACHINES: Final = frozenset({"hardware", "driver"})

# By cluster and node.
Outages = Mapping[tuple[str, str], list[Interval]]


# --- objectives -----------------------------------------------------------------------------------------


def objective_lines(
    asked: Iterable[tuple[Promise, tuple[Interval, Interval, Interval]]], answers: Answers, streamed: Mapping[str, Row]
) -> tuple[ObjectiveLine, ...]:
    """Return a line for each objective that was measured, or that the processors counted.

    Each with the period, the one before, and the objective's own window that ends with the period.
    """
    lines = []
    for promise, windows in asked:
        objective = promise.objective
        measured = [answers.measure(promise, window) for window in windows]
        here, before, whole = measured
        if here is not None and before is not None and whole is not None:
            if whole.total or here.total:
                lines.append(_line(promise, windows, answers))
        elif objective.indicator in streamed and not objective.scope.narrow:
            lines.append(_streamed_line(objective, streamed[objective.indicator]))
    return tuple(lines)


def _line(promise: Promise, windows: tuple[Interval, Interval, Interval], answers: Answers) -> ObjectiveLine:
    objective = promise.objective
    here, whole = (answers.measure(promise, window) or Measure() for window in (windows[0], windows[2]))
    attained_here, before, rolling = (answers.attained(promise, window) for window in windows)
    allowed = budget_allowed(whole.total, objective.target)
    left = budget_remaining(whole.good, whole.total, objective.target)
    if objective.slice_ms is not None:
        left = None if rolling is None else budget_remaining(rolling, 1, objective.target)
    low, high = here.bounds or (None, None)
    return ObjectiveLine(
        name=objective.name,
        title=objective.title,
        promise=objective.promise,
        target=objective.target,
        unit=objective.unit,
        good=here.good,
        total=here.total,
        attained=attained_here,
        before=before,
        rolling=rolling,
        budget_left=left,
        spent=here.bad / allowed if allowed and objective.slice_ms is None else None,
        by_class=here.by_class,
        low=low,
        high=high,
        also=here.also,
        excluded=tuple(
            f"{e.name}: {e.reason} (says {e.author})" for e in objective.exclusions if e.meets(promise.view.cluster)
        ),
        enough=is_enough(
            here.total,
            of_time=objective.of_time,
            known_ms=_known_ms(promise, windows[0]),
            window_ms=windows[0].length_ms,
        ),
    )


def _known_ms(promise: Promise, window: Interval) -> int:
    """Return how much of a time lies between the first and the last that is known."""
    view = promise.view
    return max(0, min(window.to_ms, view.as_of_ms) - max(window.from_ms, view.since_ms))


def _streamed_line(objective: Objective, row: Row) -> ObjectiveLine:
    scale = SECOND_MS if objective.of_time else 1
    good, total = row["good"], row["total"]
    return ObjectiveLine(
        name=objective.name,
        title=objective.title,
        promise=objective.promise,
        target=row["target"],
        unit=objective.unit,
        good=good * scale,
        total=total * scale,
        attained=None,
        before=None,
        rolling=attained(good, total),
        budget_left=budget_remaining(good, total, row["target"]),
        spent=None,
        by_class={name: amount * scale for name, amount in row["by_cause"].items() if amount},
        low=row["low"],
        high=row["high"],
        source="streamed",
    )


# --- failures -------------------------------------------------------------------------------------------


def causes(failures: Iterable[Row], ledger: Iterable[Row]) -> tuple[CauseLine, ...]:
    """Return every cause that failures or lost GPU time are charged to, by code."""
    count: Counter[tuple[str, str]] = Counter()
    assumed: Counter[tuple[str, str]] = Counter()
    cost: Counter[tuple[str, str]] = Counter()
    for row in failures:
        key = (row["class"], row["code"])
        count[key] += row["failures"]
        assumed[key] += row["failures"] * (row["basis"] == "assumed")
    for row in ledger:
        if row["category"] not in ("productive", "queued"):
            cost[row["class"] or OVERHEAD, row["code"]] += row["gpu_ms"]
    keys = sorted({*count, *(key for key, amount in cost.items() if amount)})
    return tuple(
        CauseLine(code, cls, _title(code, cls), count[cls, code], assumed[cls, code], cost[cls, code])
        for cls, code in keys
    )


def _title(code: str, cause_class: str) -> str:
    return "No failure behind it" if cause_class == OVERHEAD else title_of(code)


def days(failures: Iterable[Row], period: Interval) -> tuple[DayLine, ...]:
    """Return the failures of each day of the period, also of those without any."""
    by_day: dict[int, Counter[str]] = {}
    for row in failures:
        by_day.setdefault(row["day_ms"], Counter())[row["class"]] += row["failures"]
    return tuple(DayLine(day, dict(by_day.get(day, {}))) for day in range(period.from_ms, period.to_ms, DAY_MS))


def quality(failures: Iterable[Row], withdrawn: int) -> Quality:
    """Return what the verdicts rest on."""
    by_basis: Counter[tuple[str, str]] = Counter()
    by_status: Counter[str] = Counter()
    for row in failures:
        by_basis[row["class"], row["basis"]] += row["failures"]
        by_status[row["status"]] += row["failures"]
    return Quality(dict(by_basis), by_status["amended"], withdrawn, by_status["provisional"])


def totals(failures: Iterable[Row], rows: Rows, window: int) -> Totals:
    """Return the figures that are compared between periods."""
    by_class: Counter[str] = Counter()
    survived = 0
    for row in failures:
        by_class[row["class"]] += row["failures"]
        survived += row["failures"] * bool(row["survived"])
    attempts = sum(row["attempts"] for row in rows.attempts[window]) if rows.attempts else 0
    return Totals(attempts, dict(by_class), ledger(rows.ledger[window] if rows.ledger else []), survived)


def ledger(rows: Iterable[Row]) -> Ledger:
    """Return what GPU time went into, by category."""
    by_category: Counter[str] = Counter()
    queued_ms = 0
    for row in rows:
        if row["category"] == "queued":
            queued_ms += row["wall_ms"]
        else:
            by_category[row["category"]] += row["gpu_ms"]
    return Ledger(dict(by_category), queued_ms)


# --- nodes ----------------------------------------------------------------------------------------------


def outages(rows: Iterable[Row]) -> dict[tuple[str, str], list[Interval]]:
    """Return each node's unplanned outages, by its cluster and name; states that follow each other are one outage."""
    by_node: dict[tuple[str, str], list[Interval]] = {}
    for row in rows:
        by_node.setdefault((row["cluster"], row["node"]), []).append(Interval(row["from_ms"], row["to_ms"]))
    return {node: union(spans) for node, spans in by_node.items()}


def nodes(rows: Mapping[str, Sequence[Row]], out: Outages) -> tuple[tuple[NodeLine, ...], int]:
    """Return the nodes with most to their charge, and how many more have something."""
    faults = {row["node"]: row["faults"] for row in rows["faults"]}
    charged = {row["node"]: row for row in rows["charged"]}
    down_ms: Counter[str] = Counter()
    for (_, node), spans in out.items():
        down_ms[node] += covered_ms(spans)
    lines = [_node(node, charged.get(node), down_ms[node], faults.get(node, 0)) for node in {*charged, *down_ms}]
    lines.sort(key=lambda line: (-line.failures, -line.gpu_ms, -line.down_ms, line.node))
    return tuple(lines[:NODES_LIMIT]), max(0, len(lines) - NODES_LIMIT)


def _node(node: str, row: Row | None, down_ms: int, faults: int) -> NodeLine:
    devices = Counter(row["devices"]) if row else Counter[int]()
    return NodeLine(
        node=node,
        pool=row["pool"] if row else "",
        failures=row["failures"] if row else 0,
        devices={str(index): count for index, count in devices.most_common()},
        gpu_ms=row["gpu_ms"] if row else 0,
        down_ms=down_ms,
        faults=faults,
        causes=tuple(row["causes"][:CAUSES_OF_A_NODE]) if row else (),
    )


def reliability(failures: Iterable[Row], rows: Rows, out: Outages, period: Interval) -> Reliability:
    """Return what failure rates are made of, and how long each unplanned outage that ended was."""
    count = sum(row["failures"] for row in failures if row["class"] in OF_MACHINES)
    node_ms = (
        sum(row["node_ms"] for row in rows.availability[0] if row["state"] != "removed") if rows.availability else 0
    )
    gpu_ms = sum(row["gpu_ms"] for row in rows.ledger[0]) if rows.ledger else 0
    repairs = tuple(span.length_ms for spans in out.values() for span in spans if span.to_ms < period.to_ms)
    return Reliability(count, node_ms, gpu_ms, repairs)
