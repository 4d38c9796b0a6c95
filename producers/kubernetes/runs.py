"""A pod's containers as runs: which one works for the job, where, on what, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from faultlens.clock import ms_of
from faultlens.events import Outcome
from producers.kubernetes.objects import Container, ContainerStatus, Pod, Terminated, condition
from producers.kubernetes.words import accelerators_in, first_of, load_words
from producers.launcher.redaction import redacted

# Contract, "Sizes": a tail is at most 8 KiB; Kubernetes keeps 4 KiB of a container's last words.
TAIL_CHARS: Final = 8_000
MESSAGE_CHARS: Final = 1_000


class Ending(Struct, frozen=True, kw_only=True):
    """How a run ended. `torn_down`: it was made to, after its deletion had been asked for; then it says nothing."""

    outcome: Outcome
    at_ms: int
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    log_tail: str | None = None
    torn_down: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended by itself, and not well."""
        return not self.torn_down and self.outcome != "succeeded"


class Run(Struct, frozen=True, kw_only=True):
    """One run of one container. `restarts`: how many there were before it; `previous`: how the one before ended.

    `refs`: the devices that it was given by dynamic resource allocation; None: it was given none yet.
    `trouble`: why it does not start (reason, message), if something is wrong.
    """

    key: str
    pod: str
    name: str
    restarts: int = 0
    node: str | None = None
    placed_ms: int | None = None
    gpus: int = 0
    refs: tuple[str, ...] | None = ()
    started_ms: int | None = None
    ending: Ending | None = None
    previous: Ending | None = None
    trouble: tuple[str, str] | None = None
    image: str | None = None
    rank: int | None = None


def runs_of(pod: Pod, granted: Mapping[str, tuple[str, ...]], pods_each: int = 1) -> list[Run]:
    """Return the pod's runs that work for its job. `granted`: devices by claim, `namespace/name`; `pods_each`: how many
    pods each of several Jobs has that work together."""
    statuses = {status.name: status for status in pod.status.container_statuses or ()}
    working, rank = working_containers(pod), _rank(pod, pods_each)
    return [_run(pod, container, statuses.get(container.name), _refs(pod, granted), rank) for container in working]


def _rank(pod: Pod, pods_each: int) -> int | None:
    """Return the number of the pod among all that work together, where its labels say it."""
    words, marks = load_words(), pod.metadata.marks
    index, of_job = (_number(first_of(marks, names)) for names in (words.rank_labels, words.job_rank_labels))
    return index if index is None or of_job is None else of_job * pods_each + index


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def working_containers(pod: Pod) -> list[Container]:
    """Return the containers that ask for accelerators or claims, or all where none does."""
    containers = list(pod.spec.containers)
    asking = [c for c in containers if accelerators_in(_asked(c)) or c.resources.claims]
    return asking or containers


def gpus_of(pod: Pod) -> int:
    """Return how many accelerators the pod asks for by number; claims say it when they are granted."""
    return sum(accelerators_in(_asked(container)) for container in pod.spec.containers)


def holds_accelerators(pod: Pod) -> bool:
    """Return whether the pod asks for accelerators, or for devices by claims."""
    return bool(pod.spec.resource_claims) or gpus_of(pod) > 0


def _asked(container: Container) -> Mapping[str, str | int | float]:
    return {**(container.resources.requests or {}), **(container.resources.limits or {})}


def claims_of(pod: Pod) -> tuple[str, ...]:
    """Return the names of the pod's claims as they are kept, as far as they have been made."""
    named = (*(pod.spec.resource_claims or ()), *(pod.status.resource_claim_statuses or ()))
    return tuple(f"{pod.metadata.namespace}/{c.resource_claim_name}" for c in named if c.resource_claim_name)


def _refs(pod: Pod, granted: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    wanted, claims = len(pod.spec.resource_claims or ()), claims_of(pod)
    if len(claims) < wanted or any(claim not in granted for claim in claims):
        return None
    return tuple(ref for claim in claims for ref in granted[claim])


def _run(
    pod: Pod, container: Container, status: ContainerStatus | None, refs: tuple[str, ...] | None, rank: int | None
) -> Run:
    meta = pod.metadata
    scheduled = condition(pod.status.conditions, "PodScheduled")
    is_placed = pod.spec.node_name is not None
    placed_ms = scheduled.since_ms if scheduled is not None and scheduled.status == "True" else None
    started, before = None if status is None else _started(status), pod.status.init_container_statuses or ()
    return Run(
        key=f"{meta.uid}/{container.name}",
        pod=meta.uid,
        name=meta.name,
        restarts=0 if status is None else status.restart_count,
        node=pod.spec.node_name,
        placed_ms=(placed_ms or _ms(pod.status.start_time) or meta.created_ms) if is_placed else None,
        gpus=accelerators_in(_asked(container)),
        refs=refs,
        started_ms=_ms(started),
        ending=ending_of(pod, status),
        previous=_previous(pod, status),
        trouble=next((told for one in (status, *before) if (told := _trouble(one)) is not None), None),
        image=_digest(status),
        rank=rank,
    )


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else ms_of(moment)


def _started(status: ContainerStatus) -> datetime | None:
    state = status.state
    if state is None:
        return None
    if state.running is not None:
        return state.running.started_at
    if state.terminated is not None:
        return None if _never_ran(state.terminated) else state.terminated.started_at
    last = status.last_state.terminated if status.last_state is not None else None
    return None if last is None or _never_ran(last) else last.started_at


def _never_ran(end: Terminated) -> bool:
    word = load_words().ends.get(end.reason or "")
    return word is not None and word.outcome == "never_started"


def ending_of(pod: Pod, status: ContainerStatus | None) -> Ending | None:
    """Return how the container's present run ended; None: as far as is known it has not.

    What evicted a pod comes before what its containers made of it.
    """
    done = _terminated(status)
    evicted = eviction_of(pod, done)
    if evicted is not None and not _may_stay(pod, status):
        return evicted
    if pod.status.phase == "Failed" and pod.status.reason:
        finished_ms = _ms(done.finished_at) if done is not None else None
        return _ending(pod.status.reason, finished_ms or _failed_ms(pod), done, pod.status.message)
    if done is not None:
        return _of_container(pod, done)
    prepared = _failed_before(pod) if pod.status.phase == "Failed" else None
    if prepared is not None:
        return _of_container(pod, prepared)
    if pod.status.phase in ("Failed", "Succeeded"):
        outcome: Outcome = "succeeded" if pod.status.phase == "Succeeded" else "failed"
        return Ending(outcome=outcome, at_ms=_failed_ms(pod), reason=pod.status.reason)
    return None


def eviction_of(pod: Pod, done: Terminated | None = None) -> Ending | None:
    """Return how the pod ends by what evicted or preempted it; None: nothing did."""
    disrupted = condition(pod.status.conditions, "DisruptionTarget")
    if disrupted is None or disrupted.status != "True" or pod.status.phase == "Succeeded":
        return None
    at_ms = disrupted.since_ms or pod.metadata.created_ms
    reason = disrupted.reason or "DisruptionTarget"
    # The kubelet's own word for it is the more special one: Evicted, Preempting, NodeShutdown.
    if reason == "TerminationByKubelet" and pod.status.reason:
        reason = pod.status.reason
    return _ending(reason, at_ms, done, pod.status.message or disrupted.message)


def _may_stay(pod: Pod, status: ContainerStatus | None) -> bool:
    """Return whether a pod is only meant to be evicted: the condition comes first, and is taken back (after two
    minutes) where the pod is not deleted then."""
    runs = status is not None and status.state is not None and status.state.running is not None
    return runs and pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None


def _terminated(status: ContainerStatus | None) -> Terminated | None:
    """Return how the present run ended: what waits with an ended run behind it waits to be run again."""
    if status is None or status.state is None:
        return None
    if status.state.terminated is not None:
        return status.state.terminated
    if status.state.waiting is not None and status.last_state is not None:
        return status.last_state.terminated
    return None


def _failed_before(pod: Pod) -> Terminated | None:
    """Return how the first of the pod's init containers failed; None: none did."""
    ends = [_terminated(status) for status in pod.status.init_container_statuses or ()]
    failed = [end for end in ends if end is not None and end.exit_code]
    return min(failed, key=lambda end: _ms(end.finished_at) or 0, default=None)


def _previous(pod: Pod, status: ContainerStatus | None) -> Ending | None:
    if status is None or status.last_state is None or status.last_state.terminated is None:
        return None
    return _of_container(pod, status.last_state.terminated)


def _of_container(pod: Pod, done: Terminated) -> Ending:
    at_ms = _ms(done.finished_at) or _failed_ms(pod)
    asked_ms = pod.metadata.delete_asked_ms
    torn_down = asked_ms is not None and at_ms >= asked_ms
    if done.exit_code == 0 and not torn_down:
        return Ending(outcome="succeeded", at_ms=at_ms, exit_code=0, reason=done.reason)
    return _ending(done.reason or "Error", at_ms, done, None, torn_down=torn_down)


def _ending(
    reason: str, at_ms: int, done: Terminated | None, message: str | None, *, torn_down: bool = False
) -> Ending:
    word = load_words().ends.get(reason)
    words = (done.message or "") if done is not None else ""
    return Ending(
        outcome="failed" if word is None else word.outcome,
        at_ms=at_ms,
        exit_code=None if done is None else done.exit_code,
        signal=None if done is None else done.signal,
        reason=reason,
        message=redacted(message)[:MESSAGE_CHARS] if message else None,
        log_tail=redacted(words)[-TAIL_CHARS:] or None,
        torn_down=torn_down,
    )


def _failed_ms(pod: Pod) -> int:
    """Return the best time of an end that nothing tells the time of: the newest change of the pod's conditions."""
    changes = [c.since_ms for c in pod.status.conditions or () if c.since_ms is not None]
    return max(changes, default=_ms(pod.status.start_time) or pod.metadata.created_ms)


def _trouble(status: ContainerStatus | None) -> tuple[str, str] | None:
    waiting = status.state.waiting if status is not None and status.state is not None else None
    if waiting is None or waiting.reason not in load_words().cannot_start:
        return None
    return waiting.reason or "", redacted(waiting.message or "")[:MESSAGE_CHARS]


def _digest(status: ContainerStatus | None) -> str | None:
    """Return the image's digest, by which the same image is the same whatever it is called."""
    _, at, digest = (status.image_id if status is not None else "").rpartition("@")
    return digest if at else None
