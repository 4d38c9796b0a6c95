"""Asks the store for the figures of the objectives, for several windows at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slo import measure
from slo.intervals import Interval
from slo.measure import Measure, Row
from slo.queries import Reader, ask


@dataclass(frozen=True, slots=True)
class Extent:
    """From when to when the store knows anything (`to_ms`: how far the processors had come), and of which clusters."""

    from_ms: int
    to_ms: int
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scopes:
    """The pools that nodes are in and the teams that jobs are of, each in order."""

    pools: tuple[str, ...]
    teams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class View:
    """What is looked at: a cluster, a pool, a team's or workload's jobs (empty: all), up to `as_of_ms`.

    `since_ms`: from when on anything is known. Attempts whose nodes are of several pools are of none. Nodes are of no
    team or workload: with one of these, only what is of jobs is asked.
    """

    as_of_ms: int
    cluster: str = ""
    pool: str = ""
    team: str = ""
    workload: str = ""
    since_ms: int = 0

    def params(self, **more: object) -> dict[str, object]:
        """The parameters that every question has, and `more`."""
        return {
            "as_of": self.as_of_ms,
            "cluster": self.cluster,
            "pool": self.pool,
            "team": self.team,
            "workload": self.workload,
            **more,
        }


def extent(reader: Reader) -> Extent | None:
    """Return what the store covers; None when it is empty."""
    row = ask(reader, "extent", {})[0]
    return Extent(row["from_ms"], row["to_ms"], tuple(row["clusters"])) if row["known"] else None


def scopes(reader: Reader) -> Scopes:
    """Return what a view can be narrowed to."""
    row = ask(reader, "scopes", {})[0]
    return Scopes(tuple(row["pools"]), tuple(row["teams"]))


@dataclass(frozen=True, slots=True)
class Rows:
    """What the store says of each of several windows; empty lists for what cannot be asked of the view."""

    availability: list[list[Row]]
    starts: list[list[Row]]
    attempts: list[list[Row]]
    ledger: list[list[Row]]

    def measures(self, window: int) -> dict[str, Measure]:
        """Return the measure of each objective that could be asked, in one window (from 0)."""
        found: dict[str, Measure] = {}
        if self.availability:
            found["node_availability"] = measure.node_availability(self.availability[window])
            found["gpu_availability"] = measure.gpu_availability(self.availability[window])
        if self.attempts:
            found["job_start"] = measure.job_start(self.starts[window])
            found["job_success"] = measure.job_success(self.attempts[window])
            found["goodput"] = measure.goodput(self.ledger[window])
        return found


def rows(reader: Reader, view: View, windows: Sequence[Interval], within_ms: int) -> Rows:
    """Ask the store for several windows at once."""
    params = view.params(froms=[w.from_ms for w in windows], tos=[w.to_ms for w in windows], within=within_ms)

    def split(name: str) -> list[list[Row]]:
        return measure.by_window(ask(reader, name, params), len(windows))

    return Rows(
        availability=[] if view.team or view.workload else split("availability"),
        starts=split("starts"),
        attempts=split("attempts"),
        ledger=split("ledger"),
    )


def streamed(reader: Reader, view: View, to_ms: int) -> list[dict[str, Any]]:
    """Return the processors' own last status of each objective up to a time, one row per objective and window."""
    return ask(reader, "streamed", view.params(to=to_ms))
