"""From Kubernetes' objects, as they change, to events: a state machine that can be put down and taken up again."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from faultlens.clock import SECOND_MS
from faultlens.codec import Event
from producers.kubernetes import attempts, devices, nodes, takings
from producers.kubernetes.asking import Asked, asked_for
from producers.kubernetes.device_objects import Claim, Slice, TaintRule
from producers.kubernetes.devices import DeviceTeller, Offer
from producers.kubernetes.early import has_ended, waiting
from producers.kubernetes.memory import KINDS, Named, PodSeen, aged, lean_pod, lean_work
from producers.kubernetes.model import Job, Step, worker_of
from producers.kubernetes.nodes import NodeTeller, Seen
from producers.kubernetes.objects import Metadata, Node, Notice, Pod, Work, condition
from producers.kubernetes.owners import (
    Owner,
    end_of,
    end_of_try,
    group_of,
    is_suspended,
    only_submits,
    owner_of,
    pods_each,
)
from producers.kubernetes.runs import Ending, claims_of, eviction_of, gpus_of, holds_accelerators, runs_of
from producers.kubernetes.takings import Taking
from producers.kubernetes.telling import ALIVE_EVERY_S, JobTeller, Names
from producers.kubernetes.words import load_words
from producers.launcher.redaction import redacted

MESSAGE_CHARS: Final = 1_000
_NUMBER: Final = re.compile(r"\d+")


class Translator:
    """Keeps what it needs of objects in `memory`; `changed` names what a shell has to save beside its cursor.

    The same objects in the same order give the same events; what is seen twice changes nothing. Of kinds that are
    `watched` a pod may be seen before what made it.
    """

    def __init__(
        self,
        names: Names,
        *,
        all_pods: bool = False,
        watched: Collection[str] = (),
        saved: Mapping[str, bytes] | None = None,
    ) -> None:
        self._names, self._all_pods, self._watched = names, all_pods, watched
        self.memory: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        self.changed: dict[str, Any] = {}
        for key, raw in (saved or {}).items():
            kind, _, name = key.partition(" ")
            if kind in KINDS:
                self.memory[kind][name] = msgspec.json.decode(raw, type=KINDS[kind])
        self._steps: dict[type, Callable[[Any, int], Iterator[Event]]] = {
            Pod: self._pod,
            Work: self._work,
            Node: self._node,
            Claim: self._claim,
            Slice: self._slice,
            TaintRule: self._rule,
            Notice: self._notice,
        }

    # --- what the watches bring ------------------------------------------------------------------------

    def seen(self, thing: Any, now_ms: int) -> list[Event]:
        """Return what follows from an object as it is now."""
        return list(self._steps[type(thing)](thing, now_ms))

    def deleted(self, thing: Any, now_ms: int) -> list[Event]:
        """Return what follows from an object's end; `thing` is how it was last."""
        if isinstance(thing, Pod):
            return [*self._pod(thing, now_ms, waits=False), *self._pod_gone(thing.metadata.uid, thing, now_ms)]
        if isinstance(thing, Work):
            self._work_gone(thing.metadata, now_ms)
            return []
        if isinstance(thing, Node):
            return list(self._node_gone(thing.metadata.name, thing.metadata.delete_asked_ms or now_ms))
        if isinstance(thing, Claim):
            self._put("claim", f"{thing.metadata.namespace}/{thing.metadata.name}", None)
        elif isinstance(thing, Slice):
            self._put("offer", thing.metadata.uid, None)
        elif isinstance(thing, TaintRule):
            self._taken_no_more({thing.metadata.uid}, now_ms)
        return []

    def swept(self, kind: str, there: set[str], now_ms: int) -> list[Event]:
        """Return what follows from a list of all objects of a kind, by uid: what is not in it any more is gone."""
        events: list[Event] = []
        if kind == "Pod":
            for uid in [uid for uid in self.memory["pod"] if uid not in there]:
                events += self._pod_gone(uid, self.memory["pod"][uid].last, now_ms)
            self._forget("early", there)
        elif kind == "Node":
            for name in [seen.name for seen in self.memory["node"].values() if seen.name not in there]:
                events += self._node_gone(name, now_ms)
        elif kind == "ResourceSlice":
            self._forget("offer", there)
        elif kind == "DeviceTaintRule":
            rules = {taking.uid for name, taking in self.memory["taking"].items() if name.startswith("device ")}
            self._taken_no_more(rules - there, now_ms)
        elif kind not in ("ResourceClaim", "Event"):
            for work in [w for uid, w in self.memory["work"].items() if w.kind == kind and uid not in there]:
                self._work_gone(work.metadata, now_ms)
        return events

    def _forget(self, kind: str, there: set[str]) -> None:
        for uid in [uid for uid in self.memory[kind] if uid not in there]:
            self._put(kind, uid, None)

    def on_time(self, now_ms: int, *, blind: Collection[str] = ()) -> list[Event]:
        """Return what is due: ends that were waited for, signs of life, reports of nodes without an agent. Of nodes to
        which the bridge is `blind` there are none: they may be gone."""
        early = sorted((early.pod for early in self.memory["early"].values()), key=has_ended)
        events = [event for pod in early for event in self._pod(pod, now_ms)]
        for uid, job in list(self.memory["job"].items()):
            due = attempts.due_ms(job)
            if due is not None and now_ms >= due:
                events += self._stepped(uid, attempts.settled(job, now_ms))
            events += self._alive(uid, now_ms)
        for name, named in list(aged(self.memory["name"], self.memory["job"], now_ms)):
            self._put("name", name, named)
        with_agent = {pod.node for pod in self.memory["pod"].values() if pod.is_agent}
        for name, node in list(self.memory["node"].items() if "Node" not in blind else ()):
            if node.is_due(now_ms) and node.ready != "Unknown" and name not in with_agent:
                self._put("node", name, replace(node, reported_ms=now_ms, is_news=False))
                events.append(NodeTeller(node, self._names).report(now_ms))
        return events

    def _alive(self, uid: str, now_ms: int) -> Iterator[Event]:
        job: Job | None = self.memory["job"].get(uid)
        for attempt in list(job.attempts.values()) if job is not None else ():
            running = attempt.started_ms is not None and attempt.over_ms is None
            if job is not None and running and now_ms - attempt.alive_ms >= ALIVE_EVERY_S * SECOND_MS:
                attempt = replace(attempt, alive_ms=now_ms)  # noqa: PLW2901 - the one that is kept and told
                job = replace(job, attempts={**job.attempts, attempt.number: attempt})
                self._put("job", uid, job)
                yield self._teller(job).alive(attempt, now_ms)

    # --- pods and what makes them ----------------------------------------------------------------------

    def _pod(self, pod: Pod, now_ms: int, *, waits: bool = True) -> Iterator[Event]:
        uid, known = pod.metadata.uid, self.memory["pod"].get(pod.metadata.uid)
        if nodes.has_agent(pod.metadata.labels or {}):
            self._put("pod", uid, PodSeen(job="", name=pod.metadata.name, node=pod.spec.node_name, is_agent=True))
            return
        if known is None and self._is_early(pod, now_ms, self._watched if waits else ()):
            return
        job = self._job_of(pod, now_ms) if known is None else self.memory["job"].get(known.job)
        if job is None:
            return
        told = known.sick if known is not None else ()
        yield from DeviceTeller(self._names, self.memory["offer"]).sick(pod, told, now_ms)
        # What was unhealthy once and the kubelet no longer speaks of, since the pod has ended, is not told again.
        sick = tuple(sorted({*devices.unhealthy(pod), *told}))
        kept = PodSeen(
            job=job.owner.uid,
            name=f"{pod.metadata.namespace}/{pod.metadata.name}",
            node=pod.spec.node_name,
            claims=claims_of(pod),
            sick=sick,
            last=lean_pod(pod),
        )
        self._put("pod", uid, kept)
        if not job.submitted:
            yield from self._submitted_by(pod, job)
        job = self.memory["job"][job.owner.uid]
        runs = runs_of(pod, self.memory["claim"], pods_each(pod.metadata, self.memory["work"]))
        group = group_of(pod.metadata, job.owner.word)
        yield from self._stepped(job.owner.uid, attempts.with_runs(job, runs, now_ms, group))
        yield from self._pending(pod, job.owner.uid, now_ms)

    def _is_early(self, pod: Pod, now_ms: int, watched: Collection[str]) -> bool:
        uid = pod.metadata.uid
        before = self.memory["early"].get(uid)
        early = waiting(pod, self.memory["early"], watched, self.memory["work"], now_ms)
        if early is not before:
            self._put("early", uid, early)
        return early is not None

    def _job_of(self, pod: Pod, now_ms: int) -> Job | None:
        """Return the job of a pod that is seen for the first time; None: it is of none that is told of."""
        if only_submits(pod.metadata, self.memory["work"]):
            return None
        owner = owner_of(pod.metadata, "Pod", self.memory["work"])
        known: Job | None = self.memory["job"].get(owner.uid)
        if known is not None:
            return known
        if owner.word.ignored or not (self._all_pods or holds_accelerators(pod)):
            return None
        work: Work | None = self.memory["work"].get(owner.uid)
        # What was over before anybody looked is not told.
        return None if work is not None and end_of(work) is not None else self._new_job(owner, now_ms)

    def _new_job(self, owner: Owner, now_ms: int) -> Job:
        """Return a new job, named after its owner, or by its uid where the name was another's before."""
        name = f"{owner.namespace}/{owner.name}"
        named: Named | None = self.memory["name"].get(name)
        is_free = named is None or named.uid == owner.uid
        job = Job(owner=owner, job_id=name if is_free else owner.uid)
        if is_free:
            self._put("name", name, Named(owner.uid, now_ms))
        self._put("job", owner.uid, job)
        return job

    def _submitted_by(self, pod: Pod, job: Job) -> Iterator[Event]:
        """Yield that a job was submitted of which only a pod is seen: it is one itself, or its owner is not watched."""
        image = pod.spec.containers[0].image if pod.spec.containers else ""
        asked = Asked(1, gpus_of(pod), bool(pod.spec.resource_claims), image or None, "", priority=pod.spec.priority)
        self._put("job", job.owner.uid, replace(job, submitted="pod", pods_asked=1))
        yield self._teller(job).submitted(asked, pod.metadata)

    def _work(self, work: Work, now_ms: int) -> Iterator[Event]:
        meta = work.metadata
        asked, word = asked_for(work), end_of(work)
        lean = lean_work(work, asked.pods, is_over=word is not None)
        if self.memory["work"].get(meta.uid) != lean:
            self._put("work", meta.uid, lean)
        owner = owner_of(meta, work.kind, self.memory["work"])
        job: Job | None = self.memory["job"].get(owner.uid)
        is_top = owner.uid == meta.uid or (owner.kind, owner.name) == (work.kind, meta.name)
        if not is_top or owner.word.ignored:
            return
        if job is None:
            wanted = self._all_pods or asked.gpus or asked.claims
            if not wanted or word is not None:
                return
            job = self._new_job(owner, now_ms)
        told = f"{asked.gpus} {asked.pods} {asked.spec_hash}"
        suspended_ms = (job.suspended_ms or now_ms) if is_suspended(work) else None
        is_new_word = word is not None and job.word is None
        after = replace(
            job,
            submitted=told,
            pods_asked=asked.pods,
            suspended_ms=suspended_ms,
            word=job.word or word,
            try_word=end_of_try(work) or job.try_word,
            word_ms=now_ms if is_new_word else job.word_ms,
        )
        if after != job:
            self._put("job", owner.uid, after)
        if job.submitted != told:
            yield self._teller(after).submitted(asked, meta)

    def _work_gone(self, meta: Metadata, now_ms: int) -> None:
        work: Work | None = self.memory["work"].get(meta.uid)
        self._put("work", meta.uid, None)
        owner = owner_of(meta, work.kind if work is not None else "", {})
        job: Job | None = self.memory["job"].get(owner.uid)
        if job is not None:
            job = replace(job, gone_ms=meta.delete_asked_ms or now_ms)
            is_over = job.last > 0 and not job.attempts and not job.done
            self._put("job", owner.uid, None if is_over else job)

    def _pod_gone(self, uid: str, pod: Pod | None, now_ms: int) -> Iterator[Event]:
        known: PodSeen | None = self.memory["pod"].get(uid)
        self._put("pod", uid, None)
        job: Job | None = self.memory["job"].get(known.job) if known is not None else None
        if job is None:
            return
        asked_ms = pod.metadata.delete_asked_ms if pod is not None else None
        told = eviction_of(pod) if pod is not None else None
        ending = told or Ending(outcome="cancelled", at_ms=asked_ms or now_ms, reason="PodDeleted", torn_down=True)
        if job.owner.kind == "Pod":
            job = replace(job, gone_ms=ending.at_ms)
        yield from self._stepped(job.owner.uid, attempts.without_pod(job, uid, ending, now_ms))

    def _stepped(self, uid: str, step: Step) -> Iterator[Event]:
        """Yield what happened, with the job as it is now kept; one that is over and gone is forgotten."""
        job, happened = step
        teller = self._teller(job)
        for one in happened:
            yield from teller.told(one)
        is_gone = job.gone_ms is not None and not job.attempts and not job.done
        if is_gone or job != self.memory["job"].get(uid):
            self._put("job", uid, None if is_gone else job)

    def _teller(self, job: Job) -> JobTeller:
        gpus = {name: node.gpus for name, node in self.memory["node"].items()}
        return JobTeller(job, self._names, gpus, self.memory["taking"])

    # --- waits -----------------------------------------------------------------------------------------

    def _pending(self, pod: Pod, uid: str, now_ms: int) -> Iterator[Event]:
        """Yield why the pod does not run, when that is new."""
        job: Job | None = self.memory["job"].get(uid)
        if job is None:
            return
        number, worker = worker_of(job, pod.metadata.uid)
        if worker is None or worker.run.started_ms is not None or worker.ending is not None:
            return
        scheduled = condition(pod.status.conditions, "PodScheduled")
        if scheduled is not None and scheduled.status == "False":
            since_ms = scheduled.since_ms or now_ms
            yield from self._waits(job, number, scheduled.reason or "Pending", scheduled.message or "", since_ms)
        elif worker.run.trouble is not None:
            yield from self._waits(job, number, *worker.run.trouble, worker.run.placed_ms or now_ms)

    def _waits(self, job: Job, number: int | None, reason: str, message: str, since_ms: int) -> Iterator[Event]:
        """Yield the wait when its reason is new; counts of nodes in a message change all the time, and are no news."""
        message = redacted(message)[:MESSAGE_CHARS]
        told = f"{number} {reason} {_NUMBER.sub('#', message)}"
        if told != job.pending:
            self._put("job", job.owner.uid, replace(job, pending=told))
            yield self._teller(job).pending(number, reason, message, since_ms, since_ms)

    def _notice(self, notice: Notice, now_ms: int) -> Iterator[Event]:
        about, reason = notice.involved_object, notice.reason or ""
        if about.kind == "Node":
            node: Seen | None = self.memory["node"].get(about.name)
            if node is not None:
                yield from NodeTeller(node, self._names).noticed(notice)
            return
        pod: PodSeen | None = self.memory["pod"].get(about.uid)
        job: Job | None = self.memory["job"].get(pod.job if pod is not None else about.uid)
        if job is None or reason not in load_words().pod_notices or not job.owner.uid:
            return
        message = redacted(notice.message or "")[:MESSAGE_CHARS]
        number = worker_of(job, about.uid)[0]
        if pod is not None and reason not in ("FailedScheduling", "FailedCreate"):
            job = attempts.in_trouble(job, about.uid, (reason, message))
            self._put("job", job.owner.uid, job)
        is_waiting = all(attempt.started_ms is None for attempt in job.attempts.values())
        if is_waiting and job.word is None:
            yield from self._waits(job, number, reason, message, notice.at_ms or now_ms)

    # --- nodes and devices -----------------------------------------------------------------------------

    def _node(self, node: Node, now_ms: int) -> Iterator[Event]:
        before: Seen | None = self.memory["node"].get(node.metadata.name)
        after = nodes.seen(node, before)
        yield from NodeTeller(after, self._names).changed(node, before, now_ms)
        if after != before:
            self._put("node", node.metadata.name, after)
        self._taken(f"node {node.metadata.name}", lambda known: takings.by_drain(node, known, now_ms), now_ms)

    def _node_gone(self, name: str, at_ms: int) -> Iterator[Event]:
        node: Seen | None = self.memory["node"].get(name)
        if node is not None:
            self._put("node", name, None)
            self._taken(f"node {name}", lambda known: takings.over(known, at_ms), at_ms)
            yield NodeTeller(node, self._names).came_or_went("remove", at_ms)

    def _claim(self, claim: Claim, now_ms: int) -> Iterator[Event]:
        name = f"{claim.metadata.namespace}/{claim.metadata.name}"
        allocation = claim.status.allocation
        if allocation is None:
            return
        refs = tuple(granted.ref for granted in allocation.devices.results or ())
        if self.memory["claim"].get(name) == refs:
            return
        self._put("claim", name, refs)
        holders = [pod.last for pod in self.memory["pod"].values() if name in pod.claims and pod.last is not None]
        for pod in holders:
            yield from self._pod(pod, now_ms)

    def _slice(self, slice_: Slice, now_ms: int) -> Iterator[Event]:
        uid, after = slice_.metadata.uid, devices.offer_of(slice_)
        before: Offer | None = self.memory["offer"].get(uid)
        if after == before:
            return
        self._put("offer", uid, after)
        yield from DeviceTeller(self._names, self.memory["offer"]).offered(before, after, now_ms)

    def _rule(self, rule: TaintRule, now_ms: int) -> Iterator[Event]:
        yield from DeviceTeller(self._names, self.memory["offer"]).ruled(rule, now_ms)
        if rule.spec.device_selector is not None:
            name = f"device {rule.spec.device_selector.ref}"
            self._taken(name, lambda known: takings.by_rule(rule, known, now_ms), now_ms)

    def _taken(self, name: str, step: Callable[[Taking | None], Taking | None], now_ms: int) -> None:
        known: Taking | None = self.memory["taking"].get(name)
        after = step(known)
        if after != known:
            self._put("taking", name, after)
            for past in [name for name, taking in self.memory["taking"].items() if taking.is_past(now_ms)]:
                self._put("taking", past, None)

    def _taken_no_more(self, uids: set[str], now_ms: int) -> None:
        for name in [name for name, taking in self.memory["taking"].items() if taking.uid in uids]:
            self._taken(name, lambda known: takings.over(known, now_ms), now_ms)

    def _put(self, kind: str, name: str, value: Any) -> None:
        if value is None:
            self.memory[kind].pop(name, None)
        else:
            self.memory[kind][name] = value
        self.changed[f"{kind} {name}"] = value
