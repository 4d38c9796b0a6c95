"""Which objectives a view is held to, and what the store says of each over any time, less what is excluded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from faultlens.budget import Slice
from faultlens.objectives import Objective, Objectives
from slo import recompute
from slo.intervals import Interval
from slo.measure import Measure
from slo.queries import Reader
from slo.recompute import Rows, View


class Promise(NamedTuple):
    """An objective and the part of the fleet that it is looked at over."""

    objective: Objective
    view: View


def promises(objectives: Objectives, view: View) -> list[Promise]:
    """Return what a view is held to, in the order of the documents.

    Of a pool, team or workload: what is promised of exactly that, else what is promised in general. Of a whole cluster
    or of all: what is promised in general, and what is promised of their parts, each over its own.
    """
    narrow = bool(view.pool or view.team or view.workload)
    found = []
    for objective in objectives:
        scope = objective.scope
        if scope.cluster and view.cluster not in ("", scope.cluster):
            continue
        if narrow and not scope.narrow and _promised_in_particular(objectives, objective.indicator, view):
            continue
        if narrow and scope.narrow and not scope.covers(view.cluster, view.pool, view.team, view.workload):
            continue
        own = replace(
            view,
            cluster=scope.cluster or view.cluster,
            pool=scope.pool or view.pool,
            team=scope.team or view.team,
            workload=scope.workload or view.workload,
        )
        found.append(Promise(objective, own))
    return found


def _promised_in_particular(objectives: Objectives, indicator: str, view: View) -> bool:
    mine = (o.scope for o in objectives if o.indicator == indicator and o.scope.narrow)
    return any(scope.covers(view.cluster, view.pool, view.team, view.workload) for scope in mine)


class Answers:
    """What the store says of promises over several times: one set of questions for each view."""

    def __init__(
        self,
        reader: Reader,
        wanted: Mapping[Promise, Iterable[Interval]],
        *,
        within_ms: int,
        first: tuple[View, Sequence[Interval]] | None = None,
    ) -> None:
        """`first`: a view whose rows are wanted too, over these times in this order."""
        by_view: dict[View, dict[Interval, None]] = {}
        for (objective, view), windows in wanted.items():
            known = by_view.setdefault(view, {})
            for window in windows:
                known[window] = None
                for index, part in _excluded(objective, view, window).items():
                    by_view.setdefault(_of_exclusion(objective, index, view), {})[part] = None
        # What is wanted first keeps its order, and its place if it is there twice.
        asked = {view: [*known] for view, known in by_view.items()}
        if first is not None:
            view, times = first
            asked[view] = [*times, *(window for window in by_view.get(view, {}) if window not in times)]
        self._windows = {v: {w: i for i, w in reversed([*enumerate(windows)])} for v, windows in asked.items()}
        self.rows = {view: recompute.rows(reader, view, windows, within_ms) for view, windows in asked.items()}
        self._measured = {view: _measured(self.rows[view], len(windows)) for view, windows in asked.items()}

    def measure(self, promise: Promise, window: Interval) -> Measure | None:
        """Return the measure over one of the times that were asked for; None: only the processors can count it."""
        objective, view = promise
        of_window = self._measured[view]
        whole = of_window[self._windows[view][window]].get(objective.indicator)
        if whole is None:
            return None
        for index, part in _excluded(objective, view, window).items():
            its = _of_exclusion(objective, index, view)
            excluded = self._measured[its][self._windows[its][part]][objective.indicator]
            whole = whole.less(excluded, objective.exclusions[index].classes)
        return whole

    def attained(self, promise: Promise, window: Interval) -> float | None:
        """Return what was attained over a time that was asked for, by the objective's way of counting."""
        objective = promise.objective
        if objective.slice_ms is None:
            whole = self.measure(promise, window)
            return None if whole is None else whole.attained
        parts = [self.measure(promise, part) for part in slices(objective, window)]
        return objective.attained(Slice(part.good, part.total) for part in parts if part is not None)


def windows_of(objective: Objective, window: Interval) -> list[Interval]:
    """Return a time and, where the objective is counted by slices of it, those."""
    return [window, *slices(objective, window)]


def slices(objective: Objective, window: Interval) -> list[Interval]:
    """Return the slices of a time, cut where multiples of their length since the epoch are; none for occurrences."""
    if objective.slice_ms is None:
        return []
    size = objective.slice_ms
    numbers = range(window.from_ms // size, (window.to_ms - 1) // size + 1)
    return [Interval(number * size, (number + 1) * size).clipped(window) for number in numbers]


def _excluded(objective: Objective, view: View, window: Interval) -> dict[int, Interval]:
    """Return the parts of a time that exclusions take of a view, by the number of the exclusion."""
    mine = ((index, e) for index, e in enumerate(objective.exclusions) if e.meets(view.cluster))
    parts = {index: Interval(e.from_ms, e.to_ms).clipped(window) for index, e in mine}
    return {index: part for index, part in parts.items() if part.length_ms}


def _of_exclusion(objective: Objective, index: int, view: View) -> View:
    """Return the part of a view that an exclusion is of."""
    return replace(view, cluster=view.cluster or objective.exclusions[index].cluster)


def _measured(rows: Rows, windows: int) -> list[dict[str, Measure]]:
    return [rows.measures(index) for index in range(windows)]
