"""From exports of Slurm to events: everything put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, tzinfo
from types import MappingProxyType
from typing import Final, NamedTuple

from faultlens.codec import Event
from producers.slurm.accounting import Accounting, read_accounting
from producers.slurm.cluster import Limits, read_limits, read_nodes
from producers.slurm.controller import KnownJobs, read_known_jobs
from producers.slurm.history import History, jobs_of, places_of
from producers.slurm.job_events import Names, in_order, job_events
from producers.slurm.node_events import node_events, restarts_show
from producers.slurm.outages import Outages, read_outages
from producers.slurm.outcomes import ended
from producers.slurm.places import Key, Place
from producers.slurm.states import RUNNING
from producers.slurm.surroundings import Surroundings
from producers.slurm.tables import BadLine
from producers.slurm.times import TimeReader

Lines = Iterable[str]
# Among so many jobs some are tried again, if nothing else.
_MANY_RUNS: Final = 100


class Export(NamedTuple):
    """The lines of what Slurm's programs printed; all but the first may be missing."""

    sacct: Lines
    events: Lines | None = None
    jobs: Lines | None = None
    config: Lines | None = None
    nodes: Lines | None = None


class Counts(NamedTuple):
    """What an import found. `unended` are runs that were not over, or whose end nobody knows yet."""

    jobs: int
    runs: int
    outcomes: dict[str, int]
    unended: int
    outages: int
    doubles: int
    repaired: int
    waiting_arrays: int
    restarts_unseen: int
    times_without_zone: int
    times_twice: int


class Imported(NamedTuple):
    """The events in the order of their arrival, what was left out, and what should be said about the export.

    `running`: the attempts (job id, number) that the controller says are running; `unsettled`: those of
    which accounting has not heard yet, or not of the end of each step, whatever is said of the attempt; `places`: what
    has to be remembered of runs, since the earlier ones of their jobs are not shown for ever.
    """

    events: list[Event]
    bad: dict[str, list[BadLine]]
    counts: Counts
    warnings: list[str]
    running: list[tuple[str, int]] = []
    unsettled: frozenset[tuple[str, int]] = frozenset()
    places: Mapping[Key, Place] = MappingProxyType({})


def import_slurm(
    export: Export,
    names: Names,
    *,
    zone: tzinfo | None = None,
    places: Mapping[Key, Place] = MappingProxyType({}),
    with_steps: bool = False,
) -> Imported:
    """Return everything an export tells. `zone`: that of its text times; UTC is assumed, with a warning, without one.

    `places`: what was to be remembered of earlier exports; `with_steps`: there are none where none are shown.

    Raises `TableError` when a file is no table that can be read.
    """
    times = TimeReader(zone or UTC)
    accounting = read_accounting(export.sacct, times)
    outages = read_outages(export.events, times, clusters=accounting.clusters) if export.events is not None else None
    known = read_known_jobs(export.jobs, times) if export.jobs is not None else None
    limits = read_limits(export.config) if export.config is not None else Limits()
    history = jobs_of(accounting.runs, known.jobs if known else (), keeps_bit_7=accounting.keeps_bit_7, places=places)
    around = Surroundings(
        history.jobs,
        outages.outages if outages is not None else None,
        limits=limits,
        nodes=read_nodes(export.nodes, times) if export.nodes is not None else {},
        has_steps=with_steps or accounting.has_steps,
    )
    read = _Read(accounting, outages, known, history, around, times)
    return Imported(
        events=_events(read, names),
        bad={
            "sacct": accounting.bad,
            "events": outages.bad if outages else [],
            "jobs": known.bad if known else [],
        },
        counts=_counts(read),
        warnings=list(_warnings(read, assumed=zone is None)),
        running=[
            (names.of(attempt.job_id), attempt.number)
            for job in history.jobs
            for attempt in job.attempts
            if attempt.known is not None and attempt.known.state.name in RUNNING and attempt.first.nodes
        ],
        unsettled=_unsettled(history, names),
        places=places_of(history.jobs),
    )


def _unsettled(history: History, names: Names) -> frozenset[tuple[str, int]]:
    attempts = (attempt for job in history.jobs for attempt in job.attempts if attempt.last.is_unsettled)
    return frozenset((names.of(attempt.job_id), attempt.number) for attempt in attempts)


class _Read(NamedTuple):
    accounting: Accounting
    outages: Outages | None
    known: KnownJobs | None
    history: History
    around: Surroundings
    times: TimeReader


def _events(read: _Read, names: Names) -> list[Event]:
    found = [event for job in read.history.jobs for event in job_events(job, names, read.around)]
    outages = read.outages.outages if read.outages else []
    show = restarts_show(outages, read.around.limits.return_to_service)
    for outage in outages:
        found += node_events(outage, names, read.around, restarts_show=show)
    return in_order(found)


def _counts(read: _Read) -> Counts:
    attempts = [attempt for job in read.history.jobs for attempt in job.attempts]
    ends = [ended(attempt, read.around) for attempt in attempts]
    outcomes = Counter(end.outcome for end in ends if end is not None)
    return Counts(
        jobs=len(read.history.jobs),
        runs=len(attempts),
        outcomes=dict(sorted(outcomes.items())),
        unended=sum(end is None for end in ends),
        outages=len(read.outages.outages) if read.outages else 0,
        doubles=read.history.doubles,
        repaired=read.accounting.repaired + (read.outages.repaired if read.outages else 0),
        waiting_arrays=read.history.waiting_arrays + read.accounting.waiting_arrays,
        restarts_unseen=read.history.restarts_unseen,
        times_without_zone=read.times.without_zone,
        times_twice=read.times.twice,
    )


def _warnings(read: _Read, *, assumed: bool) -> Iterator[str]:
    """Yield what somebody should know who relies on the events: what could not be seen, and what was assumed."""
    times, accounting = read.times, read.accounting
    if assumed and times.without_zone:
        yield (
            f"{times.without_zone} times carry no time zone and --timezone was not given: taken for UTC. If the export"
            " was made with another TZ, every time is wrong by its offset; export with SLURM_TIME_FORMAT=%s instead"
        )
    if times.twice:
        yield f"{times.twice} times lie in the hour that the clock was set back: taken for the first of the two"
    if len(accounting.clusters) > 1:
        yield f"records of {len(accounting.clusters)} clusters ({', '.join(sorted(accounting.clusters))}): export one"
    if read.outages is not None and len(read.outages.clusters) > 1:
        yield (
            f"node events of {len(read.outages.clusters)} clusters ({', '.join(sorted(read.outages.clusters))}) and no"
            " column Cluster in the jobs: nodes of one name are taken for one"
        )
    if read.outages is None:
        yield "no node events (sacctmgr show event): what nodes did to jobs cannot be seen"
    if not accounting.has_steps:
        yield "no steps in the export (sacct -X): jobs that were never launched may look cancelled"
    runs = sum(len(job.attempts) for job in read.history.jobs)
    if runs >= _MANY_RUNS and runs == len(read.history.jobs):
        yield f"none of {runs} jobs ran twice: without sacct -D, runs that were tried again are missing"
    if read.history.restarts_unseen:
        yield f"{read.history.restarts_unseen} restarts without a record of the run before: export with sacct -D"
    doubtful = sum(a.doubtful for job in read.history.jobs for a in job.attempts)
    if doubtful:
        yield f"{doubtful} exit codes may lack 128 (accounting drops bit 7; scontrol show job, while it lasts, has it)"
