"""Asks the store for everything that a report says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from faultlens.objectives import Objectives
from slo import recompute
from slo.intervals import Interval
from slo.promises import Answers, Promise, promises, windows_of
from slo.queries import Reader, ask
from slo.recompute import Extent, View
from slo.report import assemble
from slo.report.data import Intake, Period, ReportData
from slo.report.period import before, up_to


def collect(reader: Reader, view: View, period: Period, objectives: Objectives) -> ReportData:
    """Return the report of a period, as far as the store's data reach."""
    earlier = before(period, view.as_of_ms)
    shown = up_to(period, view.as_of_ms)
    here = Interval(shown.from_ms, shown.to_ms)
    asked = promises(objectives, view)
    wanted = {p: [w for of in _windows(p, here, earlier) for w in windows_of(p.objective, of)] for p in asked}
    answers = Answers(reader, wanted, within_ms=objectives.start_within_ms, first=(view, (here, earlier)))
    rows = answers.rows[view]
    failures = _asked(reader, "failures", view, here)
    failures_before = _asked(reader, "failures", view, earlier)
    streamed = {row["objective"]: row for row in recompute.streamed(reader, view, here.to_ms)}
    taken_back = _asked(reader, "withdrawn", view, here)[0]
    outages = assemble.outages(_asked(reader, "outages", view, here) if not view.team else [])
    nodes, left_out = assemble.nodes(_node_rows(reader, view, here), outages)
    return ReportData(
        period=shown,
        scope=scope_words(view),
        as_of_ms=view.as_of_ms,
        objectives=assemble.objective_lines(
            [(promise, _windows(promise, here, earlier)) for promise in asked], answers, streamed
        ),
        causes=assemble.causes(failures, rows.ledger[0] if rows.ledger else []),
        days=assemble.days(failures, here),
        totals=assemble.totals(failures, rows, 0),
        before=assemble.totals(failures_before, rows, 1) if _has_data(rows, 1) else None,
        nodes=nodes,
        quality=assemble.quality(failures, taken_back["withdrawn"]),
        reliability=assemble.reliability(failures, rows, outages, here),
        intake=Intake({row["reason"]: row["records"] for row in _asked(reader, "dead_letters", view, here)}),
        fleet={row["use"]: row["gpu_ms"] for row in _asked(reader, "fleet", view, here)} if not view.team else {},
        catalogs=tuple(taken_back["catalogs"]),
        never_fire=tuple(str(left) for left in objectives.never_fire),
        nodes_left_out=left_out,
    )


def _windows(promise: Promise, here: Interval, earlier: Interval) -> tuple[Interval, Interval, Interval]:
    """Return the period, the one before, and the objective's own window that ends with the period."""
    window = promise.objective.window
    begins_ms = here.to_ms - window.length_ms if window.calendar is None else window.start_ms(here.to_ms - 1)
    return here, earlier, Interval(begins_ms, here.to_ms)


def _asked(reader: Reader, name: str, view: View, window: Interval) -> list[dict[str, Any]]:
    return ask(reader, name, view.params(**{"from": window.from_ms, "to": window.to_ms}))


def _node_rows(reader: Reader, view: View, window: Interval) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    return {
        "charged": _asked(reader, "worst_nodes", view, window),
        "faults": _asked(reader, "node_faults", view, window),
    }


def _has_data(rows: recompute.Rows, window: int) -> bool:
    return any(of_window[window] for of_window in (rows.availability, rows.attempts, rows.ledger) if of_window)


def scope_words(view: View, clusters: Sequence[str] = ()) -> str:
    """Return what is looked at, in words."""
    parts = [
        f"cluster {view.cluster}" if view.cluster else "all clusters",
        f"pool {view.pool}" if view.pool else "",
        f"team {view.team}" if view.team else "",
    ]
    named = f" ({', '.join(clusters)})" if clusters and not view.cluster else ""
    return ", ".join(part for part in parts if part) + named


def view_of(known: Extent, *, cluster: str = "", pool: str = "", team: str = "") -> View:
    """Return the view of what the store covers; the one cluster where there is only one."""
    only = known.clusters[0] if len(known.clusters) == 1 else ""
    return View(known.to_ms, cluster or only, pool, team)
