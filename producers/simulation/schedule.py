"""The life of jobs: submitted, given GPUs, running, over, tried again."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final

from msgspec.structs import replace

from faultlens.causes import class_of
from faultlens.clock import MINUTE_MS, moment_of
from faultlens.events import AttemptRef, JobAllocated, JobEnded, JobPending, JobStarted, JobSubmitted, Outcome
from faultlens.truth import Truth
from producers.simulation import elastic, endings, faults_of_users, herrings, holding, running, starts
from producers.simulation.chance import happens, span_ms, wait_ms
from producers.simulation.lastwords import end_of
from producers.simulation.model import CLUSTER, Attempt, Blow, Job, Node, Sender
from producers.simulation.population import arrivals_per_day, draw_job
from producers.simulation.world import World

QUEUE_LIMIT: Final = 300
_LOOK_AHEAD: Final = 40
# A job at the head of the queue that waited this long stops smaller ones from overtaking it.
_PATIENCE_MS: Final = 90 * MINUTE_MS
_URGENT: Final = 90.0
_URGENT_WAITS_MS: Final = 2 * MINUTE_MS
_PREEMPTIBLE: Final = 10.0
# After so many failures of its own a job is not tried again, whatever its limit.
_PATIENCE_WITH_USERS: Final = 3
_TELLS_PENDING_AFTER_MS: Final = 3 * MINUTE_MS
_CANCELS_IN_THE_QUEUE: Final = 0.04
_SLOTS_PER_PART: Final = 64
_START_S: Final = (8.0, 120.0)
_REQUEUE_S: Final = (15.0, 240.0)
_BESIDE_S: Final = (2.0, 560.0)
_ENDS_BEFORE_START: Final = 0.4


class Schedule:
    """Submits jobs, places them, and ends them; everything that strikes an attempt comes through `fail`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._queues: dict[str, deque[Job]] = {node.pool: deque() for node in world.fleet}
        self._per_day = arrivals_per_day(world)

    def open(self, at_ms: int) -> None:
        """Let jobs come from now on."""
        self._world.agenda.at(at_ms + wait_ms(self._world.chances.jobs, self._per_day), self._arrive)

    def freed(self, node: Node, at_ms: int) -> None:
        """Look at a node again whose GPUs or fitness for work changed."""
        self._world.placement.changed(node)
        self._dispatch(node.pool, at_ms)

    def fail(self, attempt: Attempt, blow: Blow) -> None:
        """Let `blow` end an attempt, unless something has before, or an elastic job survives it."""
        world = self._world
        if attempt.over or attempt.doomed_ms is not None or (blow.blamed and blow.node in attempt.leaving):
            return
        if blow.at_ms + endings.longest_ms(blow) > world.quiet_from_ms:
            attempt.doomed_ms = blow.at_ms
            return
        if elastic.survives(attempt, blow):
            elastic.lose(world, attempt, blow)
            return
        attempt.doomed_ms, attempt.failed = blow.at_ms, True
        ending = endings.tell(world, attempt, blow)
        world.told(_truth(attempt, blow, ending))
        world.count("failures")
        end = end_of(attempt, blow, ending.outcome or blow.outcome) if ending.reported else None
        again = end is not None and self._tries_again(attempt, blow)
        world.agenda.at(ending.at_ms, partial(self._over, attempt, end, ending.tail, again))

    def stop(self, attempt: Attempt, at_ms: int, outcome: Outcome, by: AttemptRef | None = None) -> None:
        """End an attempt without a failure: it succeeded, somebody cancelled it, or another one takes its place."""
        if attempt.over or attempt.doomed_ms is not None:
            return
        attempt.doomed_ms = at_ms
        code, signal = (0, None) if outcome == "succeeded" else (143, 15)
        reason = None if outcome == "succeeded" else outcome.upper()
        end = JobEnded(
            attempt.job.id, attempt.number, outcome, exit_code=code, signal=signal, reason=reason, preempted_by=by
        )
        self._over(attempt, end, None, by is not None, at_ms)

    def _arrive(self, at_ms: int) -> None:
        world = self._world
        if at_ms > world.shape.end_ms:
            return
        world.agenda.at(at_ms + wait_ms(world.chances.jobs, self._per_day), self._arrive)
        job = draw_job(world, at_ms)
        queue = self._queues[job.pool]
        if len(queue) >= QUEUE_LIMIT:
            world.count("turned away")
            return
        submitted = JobSubmitted(
            job.id,
            CLUSTER,
            job.workload,
            job.gpus * job.replicas,
            job.nodes * job.replicas,
            user=job.user,
            team=job.team,
            name=job.name,
            replicas=job.replicas if job.workload == "inference" else None,
            priority=job.priority,
            image=job.image,
            image_digest=job.image_digest,
        )
        world.delivery.post(self._speaker(job), at_ms, submitted)
        queue.extend([job] * job.replicas)
        self._dispatch(job.pool, at_ms)

    def _dispatch(self, pool: str, at_ms: int) -> None:
        queue = self._queues[pool]
        if at_ms > self._world.shape.end_ms:
            return
        patient = not queue or at_ms - queue[0].queued_ms <= _PATIENCE_MS
        waiting = [queue.popleft() for _ in range(min(_LOOK_AHEAD if patient else 1, len(queue)))]
        queue.extendleft(reversed([job for job in waiting if not self._place(job, at_ms)]))

    def _place(self, job: Job, at_ms: int) -> bool:
        """Give a job its GPUs; return whether it need not wait any longer."""
        world = self._world
        seats = world.placement.find(job.pool, job.gpus)
        if seats is None and job.priority >= _URGENT and at_ms - job.queued_ms > _URGENT_WAITS_MS:
            self._make_room(job, at_ms)
            seats = world.placement.find(job.pool, job.gpus)
        if seats is None:
            return self._gives_up(job, at_ms)
        job.attempts += 1
        scheduler = None if job.reporter == "launcher" else self._speaker(job)
        attempt = Attempt(job, job.attempts, seats, self._teller(job, seats[0][0], scheduler), scheduler, at_ms)
        attempt.safe_s = job.saved_s
        holding.take(world, attempt)
        self._post_allocation(attempt, at_ms)
        self._set_out(attempt, at_ms)
        return True

    def _make_room(self, job: Job, at_ms: int) -> None:
        """Preempt attempts of low priority until an urgent job finds enough whole nodes; none if it would not help."""
        world = self._world
        missing = job.nodes - world.placement.idle(job.pool)
        cleared = [node for node in world.fleet if node.pool == job.pool and _gives_way(node)][:missing]
        if len(cleared) < missing:
            return
        by = AttemptRef(job.id, job.attempts + 1)
        for attempt in dict.fromkeys(attempt for node in cleared for attempt in node.holders):
            world.count("preempted")
            self.stop(attempt, at_ms, "preempted", by)

    def _set_out(self, attempt: Attempt, at_ms: int) -> None:
        world = self._world
        if attempt.launched_on is None:
            running.beat(world, attempt, at_ms)
        hindered = starts.hindrance(world, attempt, at_ms)
        if hindered is not None:
            world.agenda.at(hindered.at_ms, lambda _at_ms: self.fail(attempt, hindered))
        else:
            world.agenda.at(at_ms + span_ms(world.chances.lives, _START_S), partial(self._start, attempt))

    def _start(self, attempt: Attempt, at_ms: int) -> None:
        world, job = self._world, attempt.job
        if attempt.over or attempt.doomed_ms is not None:
            return
        kind = world.happenings.user_faults.get(job.fate.fault)
        at_start = kind is not None and kind.when == "start"
        if at_start and happens(world.chances.lives, _ENDS_BEFORE_START):
            self.fail(attempt, faults_of_users.user_blow(world, attempt, at_ms))
            return
        attempt.started_ms = at_ms
        world.delivery.post(attempt.teller, at_ms, JobStarted(job.id, attempt.number))
        running.begin(world, attempt, at_ms)
        if attempt.launched_on is not None:
            running.beat(world, attempt, at_ms)
        left_s = max(1.0, job.fate.at_s - job.saved_s)
        fated_ms = (at_ms if at_start else attempt.first_step_ms) + round(left_s * 1_000)
        world.agenda.at(fated_ms, partial(self._meet_fate, attempt))
        if kind is not None and happens(world.chances.luck, world.mix.herring_beside_failure):
            node, device = world.chances.luck.choice(attempt.seats)
            near_ms = max(at_ms, fated_ms - span_ms(world.chances.luck, _BESIDE_S))
            world.agenda.at(near_ms, partial(herrings.show_herring, world, node, device))

    def _meet_fate(self, attempt: Attempt, at_ms: int) -> None:
        if attempt.over or attempt.doomed_ms is not None:
            return
        match attempt.job.fate.kind:
            case "succeeds":
                self.stop(attempt, at_ms, "succeeded")
            case "cancelled":
                self.stop(attempt, at_ms, "cancelled")
            case "time_limit":
                self.fail(attempt, faults_of_users.time_limit_blow(at_ms))
            case "user_fault":
                self.fail(attempt, faults_of_users.user_blow(self._world, attempt, at_ms))

    def _over(self, attempt: Attempt, end: JobEnded | None, tail: str | None, again: bool, at_ms: int) -> None:
        world, job = self._world, attempt.job
        attempt.over = True
        if end is not None:
            restarts_with = job.attempts + 1 if again and job.replicas == 1 else None
            endings.post_end(world, attempt, at_ms, replace(end, restarts_with_attempt=restarts_with, log_tail=tail))
        if again:
            job.saved_s = attempt.safe_s
            job.restarts_left -= 1
            world.agenda.at(at_ms + span_ms(world.chances.lives, _REQUEUE_S), partial(self._requeue, job))
        holding.release(world, attempt, attempt.seats, at_ms)
        self._dispatch(job.pool, at_ms)

    def _requeue(self, job: Job, at_ms: int) -> None:
        job.queued_ms, job.told_pending = at_ms, False
        self._queues[job.pool].appendleft(job)
        self._dispatch(job.pool, at_ms)

    def _tries_again(self, attempt: Attempt, blow: Blow) -> bool:
        job = attempt.job
        if job.restarts_left <= 0 or blow.outcome == "timed_out":
            return False
        if class_of(blow.code) != "user":
            return True
        job.own_failures += 1
        return job.own_failures <= _PATIENCE_WITH_USERS and faults_of_users.comes_again(self._world, attempt)

    def _gives_up(self, job: Job, at_ms: int) -> bool:
        """Say once why a job waits; return whether its user has had enough of that and cancels it."""
        if job.told_pending or at_ms - job.queued_ms < _TELLS_PENDING_AFTER_MS or job.reporter == "launcher":
            return False
        job.told_pending = True
        world, attempt = self._world, job.attempts + 1
        if happens(world.chances.lives, _CANCELS_IN_THE_QUEUE):
            world.delivery.post(self._speaker(job), at_ms, JobEnded(job.id, attempt, "cancelled", reason="CANCELLED"))
            return True
        reason = "Resources" if job.reporter == "slurm" else "Unschedulable"
        pending = JobPending(job.id, reason, moment_of(job.queued_ms), attempt=attempt)
        world.delivery.post(self._speaker(job), at_ms, pending)
        return False

    def _post_allocation(self, attempt: Attempt, at_ms: int) -> None:
        job, slots = attempt.job, attempt.slots()
        chunks = [slots[first : first + _SLOTS_PER_PART] for first in range(0, len(slots), _SLOTS_PER_PART)]
        for part, chunk in enumerate(chunks, start=1):
            parts = (part, len(chunks)) if len(chunks) > 1 else (None, None)
            allocated = JobAllocated(
                job.id, attempt.number, CLUSTER, chunk, user=job.user, image_digest=job.image_digest,
                part=parts[0], parts=parts[1],
            )  # fmt: skip
            self._world.delivery.post(attempt.scheduler or attempt.teller, at_ms, allocated)

    def _speaker(self, job: Job) -> Sender:
        source = f"launcher/{job.id}" if job.reporter == "launcher" else f"bridge/{job.reporter}"
        return Sender(source) if job.reporter == "launcher" else self._world.sender(source)

    def _teller(self, job: Job, head: Node, scheduler: Sender | None) -> Sender:
        """Who tells of an attempt's ranks: its launcher, on its first node, or a bridge that sees pods."""
        if scheduler is not None and job.reporter == "kubernetes" and job.gpus <= self._world.shape.gpus_per_node:
            return scheduler
        return Sender(f"launcher/{job.id}", head.agent.clock_off_ms)


def _gives_way(node: Node) -> bool:
    return (
        bool(node.holders)
        and not node.cordoned
        and all(a.job.priority <= _PREEMPTIBLE and a.doomed_ms is None and a.job.replicas == 1 for a in node.holders)
    )


def _truth(attempt: Attempt, blow: Blow, ending: endings.Ending) -> Truth:
    return Truth(
        attempt.job.id,
        attempt.number,
        class_of(blow.code),
        blow.code,
        blow.tells or ending.text_tells,
        blow.why,
        moment_of(ending.at_ms),
        attempt.started_ms is not None,
        node=blow.node.name if blow.blamed and blow.node else None,
        device_index=blow.device if blow.blamed else None,
    )
