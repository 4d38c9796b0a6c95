"""What went on around a run: outages of its nodes, other runs there, and what the controller itself lost."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from faultlens.clock import SECOND_MS
from producers.slurm.cluster import Limits, Node
from producers.slurm.history import Attempt, Job
from producers.slurm.outages import Outage, Stretch
from producers.slurm.runs import Run

# The controller writes what belongs together within a second or two: whole seconds, one after the other.
TOGETHER_MS: Final = 2 * SECOND_MS
# Where the site's limit is not known: a prolog that fails this late has most likely run into it.
_PROLOG_HANGS_S: Final = 30


class Use(NamedTuple):
    """A run on a node, by the time of its end; runs that have not ended come last."""

    end_ms: int
    run: Run


class Surroundings:
    """Look-ups by node and time over one import. Nothing here changes once it is made."""

    def __init__(
        self,
        jobs: Sequence[Job],
        outages: Sequence[Outage] | None,
        *,
        limits: Limits = Limits(),  # noqa: B008  immutable
        nodes: dict[str, Node] | None = None,
        has_steps: bool = True,
    ) -> None:
        """`outages` is None when no events of nodes were given: then nothing can be said of their absence."""
        self.limits = limits
        self.nodes = nodes or {}
        self.has_steps = has_steps
        self.knows_outages = outages is not None
        self.lost_at = _lost_at(jobs)
        self._stretches: dict[str, list[Stretch]] = defaultdict(list)
        for outage in outages or ():
            self._stretches[outage.node] += outage.stretches
        self._uses: dict[str, list[Use]] = defaultdict(list)
        self._mates: dict[tuple[str, int | None], list[Run]] = defaultdict(list)
        self._runs: dict[str, list[Run]] = defaultdict(list)
        for job in jobs:
            for attempt in job.attempts:
                self._index(job, attempt)
        for uses in self._uses.values():
            uses.sort(key=lambda use: (use.end_ms, use.run.line))

    def _index(self, job: Job, attempt: Attempt) -> None:
        if "+" in job.job_id:
            self._mates[job.base, attempt.first.start_ms].append(attempt.last)
        for run in attempt.stretches:
            self._runs[run.job_id].append(run)
            if run.end_ms is not None and run.start_ms is not None:
                for node in run.nodes:
                    self._uses[node].append(Use(run.end_ms, run))

    def outages_at(self, nodes: Iterable[str], at_ms: int) -> list[Stretch]:
        """Return what these nodes were out for at a time, or within two seconds of it."""
        return [
            stretch
            for node in nodes
            for stretch in self._stretches.get(node, ())
            if stretch.start_ms <= at_ms + TOGETHER_MS
            and (stretch.end_ms is None or stretch.end_ms >= at_ms - TOGETHER_MS)
        ]

    def begun_at(self, nodes: Iterable[str], at_ms: int, codes: frozenset[str]) -> list[Stretch]:
        """Return outages with one of these meanings that began within two seconds of a time."""
        return [
            stretch
            for stretch in self.outages_at(nodes, at_ms)
            if stretch.code in codes and abs(stretch.start_ms - at_ms) <= TOGETHER_MS
        ]

    def ended_on(self, node: str, from_ms: int, to_ms: int) -> list[Run]:
        """Return the runs that ended on the node in a time (both ends included), the earliest first."""
        uses = self._uses.get(node, [])
        first = bisect_left(uses, from_ms, key=lambda use: use.end_ms)
        last = bisect_right(uses, to_ms, key=lambda use: use.end_ms)
        return [use.run for use in uses[first:last]]

    def waited_for_prolog(self, run: Run) -> bool:
        """Return whether a run that was never launched had waited as long as the site lets a prolog run."""
        limit_ms = (self.limits.prolog_timeout_s or _PROLOG_HANGS_S) * SECOND_MS
        return not run.was_launched and run.ran_ms >= limit_ms - TOGETHER_MS

    def runs_after(self, run: Run) -> list[Run]:
        """Return the later records with the same job id."""
        return [other for other in self._runs[run.job_id] if (other.start_ms or 0) >= (run.end_ms or 0)]

    def mates(self, job: Job, attempt: Attempt) -> list[Run]:
        """Return the other components of a heterogeneous job that run with this one and share its fate."""
        return [r for r in self._mates.get((job.base, attempt.first.start_ms), []) if r.job_id != attempt.last.job_id]


def _lost_at(jobs: Sequence[Job]) -> frozenset[int]:
    """Return the times at which the controller lost all its jobs.

    Then every job that ran is `CANCELLED` by nobody in one second, none lives on, and the controller does not know
    them any more. Two different jobs at least: one alone may have lost its canceller to a restart.
    """
    ran = [a for job in jobs for a in job.attempts if a.first.start_ms is not None]
    gone: dict[int, set[str]] = defaultdict(set)
    for job in jobs:
        last = job.attempts[-1]
        nobody = last.last.state.name == "CANCELLED" and last.last.state.by_uid is None and last.known is None
        if nobody and last.last.end_ms is not None and last.first.start_ms is not None and last.last.nodes:
            gone[last.last.end_ms].add(job.base)
    return frozenset(at_ms for at_ms, bases in gone.items() if len(bases) > 1 and not _lives_across(ran, at_ms))


def _lives_across(attempts: Iterable[Attempt], at_ms: int) -> bool:
    return any((a.first.start_ms or 0) < at_ms and (a.last.end_ms is None or a.last.end_ms > at_ms) for a in attempts)
