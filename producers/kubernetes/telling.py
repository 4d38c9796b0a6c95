"""What became of a job's attempts, as events. Ids derive from what they are about: told twice, they count once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from faultlens.clock import moment_of
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import (
    Data,
    JobAlive,
    JobAllocated,
    JobEnded,
    JobPending,
    JobResized,
    JobStarted,
    JobSubmitted,
    RankExited,
    Slot,
)
from producers.kubernetes.asking import Asked
from producers.kubernetes.model import Attempt, Ended, Exited, Happened, Job, Lost, Placed, Started, Worker
from producers.kubernetes.objects import Metadata
from producers.kubernetes.takings import Taking, behind
from producers.kubernetes.words import first_of, load_words

SOURCE: Final = "bridge/kubernetes"
# A record is at most 256 KiB; a slot takes 100 bytes, or 200 where it names devices.
SLOTS_PER_PART: Final = 800
ALIVE_EVERY_S: Final = 60.0


class Names(NamedTuple):
    """How an installation names this cluster: `prefix` stands before the names of jobs and nodes of a second one."""

    cluster: str
    prefix: str = ""

    def of(self, name: str) -> str:
        """Return the name as the installation knows it."""
        return self.prefix + name


class JobTeller:
    """Makes the events of one job. `gpus`: how many each node has; `takings`: what our commands take work from."""

    def __init__(self, job: Job, names: Names, gpus: Mapping[str, int], takings: Mapping[str, Taking]) -> None:
        self._job = job
        self._names = names
        self._gpus = gpus
        self._takings = takings
        self._id = names.of(job.job_id)

    def _say(self, data: Data, at_ms: int, *parts: str | int) -> Event:
        id_ = stable_id("kubernetes", self._names.cluster, self._job.owner.uid, type(data).__name__, *parts)
        return event_of(data, source=SOURCE, id_=id_, time_ms=at_ms)

    def submitted(self, asked: Asked, meta: Metadata) -> Event:
        """Return what was asked for; the name of a namespace is a team's where no label says more."""
        words, owner = load_words(), self._job.owner
        data = JobSubmitted(
            self._id,
            self._names.cluster,
            owner.word.workload,
            asked.gpus,
            asked.pods,
            user=first_of(meta.marks, words.user_labels),
            team=first_of(meta.marks, words.team_labels) or owner.namespace or None,
            name=owner.name,
            replicas=asked.pods // asked.pods_each if owner.word.replica else None,
            priority=asked.priority,
            image=asked.image,
            spec_hash=asked.spec_hash,
        )
        return self._say(data, meta.created_ms, asked.gpus, asked.pods, asked.spec_hash)

    def pending(self, attempt: int | None, reason: str, message: str, since_ms: int, at_ms: int) -> Event:
        """Return why it waits."""
        data = JobPending(self._id, reason, moment_of(since_ms), attempt, message or None)
        return self._say(data, at_ms, attempt or 0, since_ms, reason, message)

    def alive(self, attempt: Attempt, at_ms: int) -> Event:
        """Return a sign of life."""
        return self._say(JobAlive(self._id, attempt.number, ALIVE_EVERY_S), at_ms, attempt.number, at_ms)

    def told(self, happened: Happened) -> Iterator[Event]:
        """Yield the events of something that happened."""
        if isinstance(happened, Placed):
            yield from self._placed(happened)
        elif isinstance(happened, Started):
            data = JobStarted(self._id, happened.attempt.number)
            yield self._say(data, happened.at_ms, happened.attempt.number)
        elif isinstance(happened, Exited):
            yield from self._exited(happened)
        elif isinstance(happened, Lost):
            yield from self._lost(happened)
        else:
            yield self._ended(happened)

    def _placed(self, placed: Placed) -> Iterator[Event]:
        attempt, worker = placed.attempt, placed.worker
        at_ms = max(worker.run.placed_ms or 0, attempt.began_ms)
        if placed.grown:
            yield from self._resized(attempt, (), None, at_ms, worker.run.key, worker.placed)
            return
        slot = self._slot(attempt, worker.run.node or "")
        data = JobAllocated(self._id, attempt.number, self._names.cluster, (slot,), image_digest=worker.run.image)
        yield self._say(data, at_ms, attempt.number, worker.run.key, worker.placed)

    def _exited(self, exited: Exited) -> Iterator[Event]:
        ending, run = exited.ending, exited.worker.run
        if ending.torn_down or run.node is None:
            return
        word = load_words().ends.get(ending.reason or "")
        data = RankExited(
            self._id,
            exited.attempt.number,
            exited.worker.rank,
            self._names.of(run.node),
            exit_code=ending.exit_code,
            signal=ending.signal,
            reason=word.rank if word is not None and word.rank is not None else ending.reason,
            log_tail=ending.log_tail,
        )
        yield self._say(data, ending.at_ms, exited.attempt.number, run.key, run.restarts)

    def _lost(self, lost: Lost) -> Iterator[Event]:
        nodes = {w.run.node for w in lost.workers if w.run.node is not None}
        gone = tuple(self._slot_of(node, [w for w in lost.workers if w.run.node == node]) for node in sorted(nodes))
        if not gone:
            return
        first = min((w.ending for w in lost.workers if w.ending is not None), key=lambda e: e.at_ms)
        reason = f"{first.reason}: {first.message}" if first.message else first.reason
        key = " ".join(f"{w.run.key} {w.run.restarts}" for w in lost.workers)
        yield from self._resized(lost.attempt, gone, reason, lost.at_ms, key)

    def _resized(
        self, attempt: Attempt, lost: tuple[Slot, ...], reason: str | None, at_ms: int, *parts: str
    ) -> Iterator[Event]:
        slots = self._slots(attempt)
        cut = [slots[at : at + SLOTS_PER_PART] for at in range(0, len(slots), SLOTS_PER_PART)] or [()]
        for number, some in enumerate(cut, start=1):
            data = JobResized(
                self._id,
                attempt.number,
                some,
                lost if number == 1 else (),
                reason=reason,
                part=number if len(cut) > 1 else None,
                parts=len(cut) if len(cut) > 1 else None,
            )
            yield self._say(data, at_ms, attempt.number, number, *parts)

    def _ended(self, ended: Ended) -> Event:
        ending, number = ended.ending, ended.attempt.number
        ran = ending.outcome != "never_started"
        data = JobEnded(
            self._id,
            number,
            ending.outcome,
            exit_code=ending.exit_code if ran else None,
            signal=ending.signal if ran else None,
            reason=ending.reason,
            message=ending.message,
            log_tail=ending.log_tail,
            restarts_with_attempt=ended.following,
            command_id=behind(ended.attempt, ending, self._takings),
        )
        return self._say(data, ending.at_ms, number)

    # --- what is held ----------------------------------------------------------------------------------

    def _slots(self, attempt: Attempt) -> tuple[Slot, ...]:
        nodes = {w.run.node for w in attempt.workers.values() if w.run.node is not None and w.ending is None}
        return tuple(self._slot(attempt, node) for node in sorted(nodes))

    def _slot(self, attempt: Attempt, node: str) -> Slot:
        on_it = [w for w in attempt.workers.values() if w.run.node == node and w.ending is None and w.placed]
        return self._slot_of(node, on_it)

    def _slot_of(self, node: str, workers: list[Worker]) -> Slot:
        """Return the node's slot. The devices are known where none are held, all are, or claims name them."""
        refs = tuple(dict.fromkeys(ref for w in workers for ref in w.run.refs or ()))
        gpus = sum(w.run.gpus for w in workers)
        devices: tuple[int, ...] | None = None
        if gpus and gpus == self._gpus.get(node):
            devices = tuple(range(gpus))
        elif gpus == 0 and not refs:
            devices = ()
        ranks = tuple(sorted(w.rank for w in workers))
        return Slot(self._names.of(node), devices, device_refs=refs or None, ranks=ranks)
