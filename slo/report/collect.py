"""Asks the store for everything that a report says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from faultlens.catalogue.loader import load_families
from faultlens.clock import DAY_MS
from faultlens.objectives import Objectives
from slo import recompute
from slo.intervals import Interval
from slo.labels import labels
from slo.promises import Answers, Promise, promises, windows_of
from slo.queries import Reader, ask
from slo.recompute import Extent, View
from slo.report import assemble, changes, machines
from slo.report.corrections import corrections
from slo.report.data import Intake, News, Period, Price, ReportData, WeekLine
from slo.report.noted import Noted
from slo.report.period import before, up_to

WEEKS: Final = 8
MOVERS: Final = 10


def collect(
    reader: Reader, view: View, period: Period, objectives: Objectives, *, price: Price | None = None
) -> ReportData:
    """Return the report of a period, as far as the store's data reach; `price` is what its GPU-hours cost."""
    noted = Noted(reader)
    earlier = before(period, view.as_of_ms)
    shown = up_to(period, view.as_of_ms)
    here = Interval(shown.from_ms, shown.to_ms)
    past = _past(period)
    asked = promises(objectives, view)
    wanted = {p: [w for of in (*_windows(p, here, earlier), *past) for w in windows_of(p.objective, of)] for p in asked}
    times = (here, earlier, *past)
    answers = Answers(noted, wanted, within_ms=objectives.start_within_ms, first=(view, times))
    rows = answers.rows[view]
    failures = _asked(noted, "failures", view, here)
    failures_before = _asked(noted, "failures", view, earlier)
    causes = assemble.causes(failures, _ledger(rows, 0))
    is_known = _has_data(rows, 1)
    streamed = {row["objective"]: row for row in recompute.streamed(noted, view, here.to_ms)}
    taken_back = _asked(noted, "withdrawn", view, here)[0]
    outages = assemble.outages(_asked(noted, "outages", view, here) if not view.team else [])
    nodes, left_out = assemble.nodes(_node_rows(noted, view, here), outages)
    data = ReportData(
        period=shown,
        scope=scope_words(view),
        as_of_ms=view.as_of_ms,
        objectives=assemble.objective_lines([(p, _windows(p, here, earlier)) for p in asked], answers, streamed),
        causes=causes,
        days=assemble.days(failures, here),
        totals=assemble.totals(failures, rows, 0),
        before=assemble.totals(failures_before, rows, 1) if is_known else None,
        nodes=nodes,
        quality=assemble.quality(failures, taken_back["withdrawn"]),
        reliability=assemble.reliability(failures, rows, outages, here),
        known_ms=max(0, min(here.to_ms, view.as_of_ms) - max(here.from_ms, view.since_ms)),
        intake=Intake({row["reason"]: row["records"] for row in _asked(noted, "dead_letters", view, here)}),
        fleet={row["use"]: row["gpu_ms"] for row in _asked(noted, "fleet", view, here)} if not view.team else {},
        catalogs=tuple(taken_back["catalogs"]),
        never_fire=tuple(str(left) for left in objectives.never_fire),
        nodes_left_out=left_out,
        weeks=_weeks(noted, view, (*reversed(past), here), asked, answers),
        movers=changes.movers(causes, assemble.causes(failures_before, _ledger(rows, 1)))[:MOVERS] if is_known else (),
        news=_news(noted, view, here) if is_known and not view.team else None,
        remedies=changes.remedies(_asked(noted, "report_remedies", view, here)) if not view.team else (),
        disputes=changes.disputes(labels(noted, cluster=view.cluster, from_ms=here.from_ms, to_ms=here.to_ms)),
        price=price,
        corrections=corrections(_asked(noted, "report_corrections", view, here)),
    )
    return replace(_with_machines(data, noted, view, here), sources=noted.sources())


def _with_machines(data: ReportData, reader: Reader, view: View, here: Interval) -> ReportData:
    """Return the report with how jobs and machines lasted."""
    gone = [] if view.team else _asked(reader, "report_returned", view, here)
    return replace(
        data,
        sizes=machines.sizes(_asked(reader, "report_sizes", view, here)),
        trainings=machines.trainings(_asked(reader, "report_trainings", view, here)),
        saves=machines.saves(
            _asked(reader, "report_saves", view, here), data.reliability.failures, data.reliability.gpu_ms / DAY_MS
        ),
        returned=machines.returned(gone, load_families()),
    )


def _ledger(rows: recompute.Rows, window: int) -> Sequence[Mapping[str, Any]]:
    return rows.ledger[window] if rows.ledger else ()


def _news(reader: Reader, view: View, here: Interval) -> News:
    names = ("report_codes", "report_lemons", "report_rollouts")
    return changes.news(*(_asked(reader, name, view, here) for name in names))


def _past(period: Period) -> tuple[Interval, ...]:
    """Return the times before the period, each as long as it, the newest first."""
    length_ms = period.to_ms - period.from_ms
    starts = [period.from_ms - back * length_ms for back in range(1, WEEKS)]
    return tuple(Interval(start_ms, start_ms + length_ms) for start_ms in starts)


def _weeks(
    reader: Reader, view: View, times: Sequence[Interval], asked: Sequence[Promise], answers: Answers
) -> tuple[WeekLine, ...]:
    """Return a line for each of the times, from the first of which anything is known."""
    here = times[-1]
    positions = [*(len(times) - index for index in range(len(times) - 1)), 0]
    whole = _asked(reader, "failures", view, Interval(times[0].from_ms, here.to_ms))
    lines: list[WeekLine] = []
    for time, position in zip(times, positions, strict=True):
        failures = [row for row in whole if time.from_ms <= row["day_ms"] < time.to_ms]
        attained = {p.objective.name: answers.attained(p, time) for p in asked if p.view == view}
        totals = assemble.totals(failures, answers.rows[view], position)
        if lines or totals.attempts or totals.all_failures or totals.ledger.allocated_ms or time is here:
            lines.append(WeekLine(time.from_ms, totals, attained))
    return tuple(lines)


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
    return View(known.to_ms, cluster or only, pool, team, since_ms=known.from_ms)
