"""The life of jobs as events of the contract."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from faultlens.clock import moment_of
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import (
    Data,
    JobAllocated,
    JobEnded,
    JobPending,
    JobResized,
    JobStarted,
    JobSubmitted,
    Slot,
    Workload,
)
from producers.slurm.history import Attempt, Job
from producers.slurm.outcomes import Ended, ended
from producers.slurm.runs import BATCH, Run
from producers.slurm.surroundings import TOGETHER_MS, Surroundings
from producers.slurm.wording import exit_code_of, message_of, reason_of, signal_of

SOURCE: Final = "scheduler/slurm"
# A record is at most 256 KiB; a slot takes 100 bytes, or 200 where it names many devices.
SLOTS_PER_PART: Final = 800
NAME_CHARS: Final = 256

_INTERACTIVE: Final = re.compile(r"^\S*(?:srun|salloc)\b")
_IMAGE: Final = re.compile(r"--container-image[= ](\S+)")
_NO_KILL: Final = re.compile(r"(?:^|\s)(?:--no-kill|-k)(?:[\s=]|$)")


class Names(NamedTuple):
    """How an installation names this cluster: `prefix` stands before the names of jobs and nodes of a second one."""

    cluster: str
    prefix: str = ""

    def of(self, name: str) -> str:
        """Return the name as the installation knows it."""
        return self.prefix + name


def job_events(job: Job, names: Names, around: Surroundings) -> Iterator[Event]:
    """Yield everything that is known of a job, each event as a live bridge would have sent it."""
    teller = _Teller(job, names, around)
    yield teller.say(teller.submitted(), job.submitted_ms, 0)
    for attempt in job.attempts:
        yield from teller.attempt(attempt)


class _Teller:
    """Makes the events of one job."""

    def __init__(self, job: Job, names: Names, around: Surroundings) -> None:
        self._job = job
        self._names = names
        self._around = around
        self._id = names.of(job.job_id)

    def say(self, data: Data, at_ms: int, *parts: str | int) -> Event:
        """Return the event; accounting tells of it when it happens."""
        kind = type(data).__name__
        key = stable_id("slurm", self._names.cluster, kind, self._id, self._job.submitted_ms, *parts)
        return event_of(data, source=SOURCE, id_=key, time_ms=at_ms, recorded_ms=at_ms)

    def submitted(self) -> JobSubmitted:
        first = self._job.first
        image = _IMAGE.search(first.submit_line)
        return JobSubmitted(
            job_id=self._id,
            cluster=self._names.cluster,
            workload=_workload(first),
            gpus=max(first.gpus_wanted, first.gpus_held or 0),
            nodes=max(first.nodes_wanted, len(first.nodes)),
            user=first.user,
            team=first.account,
            name=first.name[:NAME_CHARS] if first.name else None,
            priority=first.priority,
            image=image[1] if image else None,
        )

    def attempt(self, attempt: Attempt) -> Iterator[Event]:
        """Yield an attempt's events in the order in which they happened."""
        first, number = attempt.first, attempt.number
        if first.waited_for is not None and (first.start_ms is None or first.start_ms - first.submit_ms > TOGETHER_MS):
            waiting = JobPending(self._id, first.waited_for, moment_of(first.submit_ms), number)
            yield self.say(waiting, first.submit_ms, number)
        if first.start_ms is not None and first.nodes:
            slots = self._slots(attempt, first)
            mates = self._around.mates(self._job, attempt)
            held = {slot.node for slot in slots}
            shared = sorted({self._names.of(node) for mate in mates for node in mate.nodes} - held)
            yield from self._allocated(attempt, [*slots, *(Slot(node, devices=()) for node in shared)])
        end = ended(attempt, self._around)
        started_ms = _started_ms(first, end)
        if started_ms is not None:
            yield self.say(JobStarted(self._id, number), started_ms, number)
        for before, after in zip(attempt.stretches, attempt.stretches[1:], strict=False):
            yield self._resized(attempt, before, after)
        if end is not None:
            # An end that turns out to be another one is told again.
            yield self.say(self._ended(attempt, end), end.end_ms, number, end.outcome)

    def _allocated(self, attempt: Attempt, slots: list[Slot]) -> Iterator[Event]:
        parts = [slots[at : at + SLOTS_PER_PART] for at in range(0, len(slots), SLOTS_PER_PART)]
        for number, part in enumerate(parts, start=1):
            data = JobAllocated(
                self._id,
                attempt.number,
                self._names.cluster,
                tuple(part),
                user=attempt.first.user,
                part=number if len(parts) > 1 else None,
                parts=len(parts) if len(parts) > 1 else None,
            )
            yield self.say(data, attempt.first.start_ms or 0, attempt.number, number)

    def _slots(self, attempt: Attempt, run: Run) -> list[Slot]:
        """Return a slot for each node. The devices are known where none are held, all are, or the job still runs."""
        known = attempt.known.devices if attempt.known is not None else {}
        whole = self._whole_nodes(run)
        return [
            Slot(self._names.of(node), devices=() if run.gpus_held == 0 else known.get(node, whole.get(node)))
            for node in run.nodes
        ]

    def _whole_nodes(self, run: Run) -> dict[str, tuple[int, ...]]:
        """Return all devices of the run's nodes when it holds as many as there are."""
        counts = {node: self._around.nodes[node].gpus for node in run.nodes if node in self._around.nodes}
        if run.gpus_held and len(counts) == len(run.nodes) and sum(counts.values()) == run.gpus_held:
            return {node: tuple(range(count)) for node, count in counts.items()}
        return {}

    def _resized(self, attempt: Attempt, before: Run, after: Run) -> Event:
        """Return that a run goes on with other nodes. Nodes that were given back on request are no loss."""
        at_ms = after.start_ms if after.start_ms is not None else after.submit_ms
        gone = [node for node in before.nodes if node not in after.nodes]
        out = {stretch.node: stretch for stretch in self._around.outages_at(gone, at_ms)}
        if self._around.knows_outages:
            gone = [node for node in gone if node in out]
        elif not _NO_KILL.search(before.submit_line):
            gone = []
        reasons = ", ".join(f"{stretch.node} {stretch.state}: {stretch.reason}" for stretch in out.values())
        data = JobResized(
            self._id,
            attempt.number,
            tuple(self._slots(attempt, after)),
            tuple(slot for slot in self._slots(attempt, before) if slot.node in {self._names.of(n) for n in gone}),
            reason=f"{before.state.name}: {reasons}" if reasons else before.state.name,
        )
        return self.say(data, at_ms, attempt.number, at_ms)

    def _ended(self, attempt: Attempt, end: Ended) -> JobEnded:
        clean = end.outcome == "succeeded"
        ran = end.outcome != "never_started" and bool(attempt.last.nodes)
        return JobEnded(
            job_id=self._id,
            attempt=attempt.number,
            outcome=end.outcome,
            exit_code=0 if clean else exit_code_of(attempt.exit) if ran else None,
            signal=signal_of(attempt.exit) if ran and not clean else None,
            reason=reason_of(attempt),
            message=message_of(self._job, attempt, end, self._around),
            restarts_with_attempt=attempt.number + 1 if attempt.followed else None,
        )


def _workload(run: Run) -> Workload:
    if run.submit_line:
        return "interactive" if _INTERACTIVE.match(run.submit_line) else "batch"
    has_script = any(step.name == BATCH for step in run.steps)
    return "interactive" if run.steps and not has_script and run.was_launched else "batch"


def _started_ms(run: Run, end: Ended | None) -> int | None:
    """Return when the user's code began; without steps in the export, when the nodes were given."""
    if run.start_ms is None or not run.nodes or (end is not None and end.outcome == "never_started"):
        return None
    begun = [step.start_ms for step in run.user_steps if step.start_ms is not None]
    return min(begun, default=run.start_ms)


def in_order(events: Iterable[Event]) -> list[Event]:
    """Return events as they would have arrived. Within a second what was there before ends before the next begins."""
    listed = list(events)
    begun = {
        (event.subject, event.data.attempt): event.time_ms for event in listed if isinstance(event.data, JobAllocated)
    }
    return sorted(listed, key=lambda event: (event.recorded_ms or event.time_ms, _rank(event, begun), event.subject))


_RANKS: Final[dict[str, int]] = {
    "JobSubmitted": 3,
    "JobPending": 4,
    "JobAllocated": 5,
    "JobStarted": 6,
    "JobResized": 7,
    "JobEnded": 8,
}


def _rank(event: Event, begun: dict[tuple[str, int], int]) -> int:
    """Return the place within one moment: old ends, then nodes, then what begins, then ends of what began just now."""
    if isinstance(event.data, JobEnded):
        began_ms = begun.get((event.subject, event.data.attempt))
        return 0 if began_ms is not None and began_ms < event.time_ms else _RANKS["JobEnded"]
    return _RANKS.get(type(event.data).__name__, 1)
