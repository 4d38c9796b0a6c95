"""What Kubernetes says of nodes, as events: their own silence, conditions, cordons, and that they come and go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from faultlens.clock import SECOND_MS, iso, ms_of
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import Check, Data, FaultKind, NodeActed, NodeFault, NodeHealth
from faultlens.kubernetes_marks import COMMAND, MANAGER
from producers.kubernetes.keepers import Keeper, keeper_of, let_go_by, writers_of
from producers.kubernetes.objects import Condition, Node, Notice, condition, held_by
from producers.kubernetes.telling import SOURCE, Names
from producers.kubernetes.words import FaultWord, accelerators_in, fault_of_reason, first_of, load_words
from producers.launcher.redaction import redacted

REPORT_EVERY_S: Final = 60.0
# What has changed is reported at once, but no node more often than this, however it flaps.
REPORT_AGAIN_S: Final = 5.0
MESSAGE_CHARS: Final = 500
# Written over all conditions of a node whose kubelet is not heard: that is told by itself.
_NOT_HEARD: Final = "NodeStatus"
_WORD: Final = re.compile(r"[A-Za-z]+\d+[A-Za-z0-9]*")


class Seen(Struct, frozen=True, kw_only=True):
    """A node as it was seen last. `ready_ms`: since when its kubelet is heard, or is not; `command`: our last one.

    `cordoned`: somebody keeps it from new work, `marked_by`: who does by a mark of its own; `writers`: when each client
    wrote what it holds of the node. `reported_ms`: when it was reported last; `is_news`: what was reported then is not
    so any more.
    """

    name: str
    ready: str = "Unknown"
    ready_ms: int = 0
    boot_id: str | None = None
    cordoned: bool = False
    marked_by: str | None = None
    conditions: dict[str, tuple[str, str]] = {}
    gpus: int = 0
    allocatable: int = 0
    pool: str | None = None
    domains: dict[str, str] = {}
    family: str | None = None
    provider_id: str | None = None
    reported_ms: int = 0
    is_news: bool = False
    command: str | None = None
    writers: dict[str, int] = {}

    def is_due(self, now_ms: int) -> bool:
        """Return whether a report is due."""
        every_s = REPORT_AGAIN_S if self.is_news else REPORT_EVERY_S
        return now_ms - self.reported_ms >= every_s * SECOND_MS


def seen(node: Node, before: Seen | None) -> Seen:
    """Return what is kept of a node."""
    words, marks = load_words(), node.metadata.marks
    ready, keeper = condition(node.status.conditions, "Ready"), keeper_of(node)
    product = first_of(marks, words.family_labels) or ""
    now = Seen(
        name=node.metadata.name,
        ready=ready.status if ready is not None else "Unknown",
        ready_ms=(ready.since_ms if ready is not None else None) or node.metadata.created_ms,
        boot_id=node.status.node_info.boot_id or None,
        cordoned=keeper is not None,
        marked_by=keeper.name if keeper is not None and keeper.is_marked else None,
        conditions={
            c.type: (c.status, c.reason or "")
            for c in node.status.conditions or ()
            if c.type in words.conditions and not (c.status == "Unknown" and (c.reason or "").startswith(_NOT_HEARD))
        },
        gpus=accelerators_in(node.status.capacity),
        allocatable=accelerators_in(node.status.allocatable),
        pool=first_of(marks, words.pool_labels),
        domains={name: v for name, labels in words.domain_labels.items() if (v := first_of(marks, labels))},
        family=next(iter(_WORD.findall(product)), None),
        provider_id=node.spec.provider_id or None,
        command=_command(node),
        writers=writers_of(node.metadata),
    )
    if before is None:
        return now
    # Reported is neither since when it is ready, nor by which command it is out, nor who writes to it.
    same = replace(
        now, ready_ms=before.ready_ms, command=before.command, writers=before.writers, is_news=before.is_news
    )
    is_news = before.is_news or replace(same, reported_ms=before.reported_ms) != before
    return replace(now, reported_ms=before.reported_ms, is_news=is_news)


def _command(node: Node) -> str | None:
    return (node.metadata.annotations or {}).get(COMMAND)


class NodeTeller:
    """Makes the events of one node."""

    def __init__(self, node: Seen, names: Names) -> None:
        self._seen = node
        self._names = names
        self._node = names.of(node.name)

    def _say(self, data: Data, at_ms: int, *parts: str | int) -> Event:
        id_ = stable_id("kubernetes", self._names.cluster, self._node, type(data).__name__, *parts)
        return event_of(data, source=SOURCE, id_=id_, time_ms=at_ms)

    def changed(self, node: Node, before: Seen | None, now_ms: int) -> Iterator[Event]:
        """Yield what is new of the node. `before` None: it is seen for the first time; then only what is wrong is."""
        yield from self._readiness(node, before)
        for one in node.status.conditions or ():
            word = load_words().conditions.get(one.type)
            told = before.conditions.get(one.type) if before is not None else None
            if word is not None and one.status == word.bad and told != (one.status, one.reason or ""):
                yield from self._condition(one, word.fault, now_ms)
        if (before is not None or self._seen.cordoned) and self._seen.cordoned != (
            before is not None and before.cordoned
        ):
            yield self._cordon(node, before, now_ms)

    def _readiness(self, node: Node, before: Seen | None) -> Iterator[Event]:
        now, ready = self._seen, condition(node.status.conditions, "Ready")
        if ready is None or (before is not None and before.ready == now.ready):
            return
        said = f"{ready.reason or 'Ready'} {ready.status}: {redacted(ready.message or '')}"[:MESSAGE_CHARS]
        if now.ready != "True":
            code = "not_responding" if now.ready == "Unknown" else "kubelet_not_ready"
            yield self.fault(FaultWord(kind="other", code=code), said, now.ready_ms)
        elif before is not None and before.ready == "Unknown" and before.boot_id and now.boot_id:
            again = iso(now.ready_ms)
            if before.boot_id != now.boot_id:
                word = FaultWord(kind="other", code="unexpected_reboot")
                yield self.fault(word, f"came back at {again} with another boot id", before.ready_ms)
            else:
                word = FaultWord(kind="other", code="daemon_lost")
                told = f"answered again at {again} without a restart: only its kubelet was gone"
                yield self.fault(word, told, before.ready_ms)

    def _condition(self, one: Condition, fault: FaultWord | None, now_ms: int) -> Iterator[Event]:
        word = fault_of_reason(one.reason) or fault
        if word is not None:
            said = f"{one.type}={one.status} {one.reason or ''}: {redacted(one.message or '')}"[:MESSAGE_CHARS]
            yield self.fault(word, said, one.since_ms or now_ms)

    def _cordon(self, node: Node, before: Seen | None, now_ms: int) -> Event:
        by, command = self._by_whom(node, before)
        at_ms = by.since_ms if by.since_ms is not None else now_ms
        action: Literal["cordon", "uncordon"] = "cordon" if self._seen.cordoned else "uncordon"
        data = NodeActed(
            node=self._node,
            cluster=self._names.cluster,
            action=action,
            actor=by.name,
            planned=by.is_planned,
            command_id=command,
        )
        return self._say(data, at_ms, action, at_ms)

    def _by_whom(self, node: Node, before: Seen | None) -> tuple[Keeper, str | None]:
        """Return who keeps the node from work or let it go, and by which command of ours."""
        now, keeper = self._seen, keeper_of(node)
        if keeper is not None:
            return keeper, now.command if keeper.is_us else None
        if before is not None and now.command not in (None, before.command):
            # Nobody holds a field that is gone: what we take back is known by the command that we write beside it.
            by = held_by(node.metadata, COMMAND.encode(), MANAGER)
            return Keeper(MANAGER, ms_of(by.time) if by is not None and by.time is not None else None), now.command
        if before is not None and before.marked_by is not None:
            return Keeper(before.marked_by, None), None
        return let_go_by(now.writers, {} if before is None else before.writers), None

    def came_or_went(self, action: str, at_ms: int) -> Event:
        """Return that the node was added or removed."""
        data = NodeActed(
            node=self._node,
            cluster=self._names.cluster,
            action="add" if action == "add" else "remove",
            actor="kubernetes",
            planned=True,
            reason="its object was made" if action == "add" else "its object was deleted",
        )
        return self._say(data, at_ms, action, at_ms)

    def fault(self, word: FaultWord, message: str, at_ms: int) -> Event:
        """Return a fault of the node."""
        kind: FaultKind = word.kind
        data = NodeFault(
            node=self._node,
            cluster=self._names.cluster,
            kind=kind,
            code=word.code,
            detected_by="npd" if kind != "other" else "other",
            pool=self._seen.pool,
            boot_id=self._seen.boot_id,
            domains=self._seen.domains,
            gpu_family=self._seen.family,
            message=message,
        )
        return self._say(data, at_ms, word.kind, word.code, at_ms)

    def noticed(self, notice: Notice) -> Iterator[Event]:
        """Yield the fault that an event about the node tells of, if it is one of those that are known."""
        word = fault_of_reason(notice.reason)
        if word is not None:
            said = f"{notice.reason}: {redacted(notice.message or '')}"[:MESSAGE_CHARS]
            yield self.fault(word, said, notice.at_ms)

    def report(self, at_ms: int) -> Event:
        """Return a health report by what the API server knows, for a node that has no agent."""
        now, words = self._seen, load_words().conditions
        checks = {"kubelet": Check("kubelet", "runtime", "pass" if now.ready == "True" else "fail")}
        for type_, (status, reason) in now.conditions.items():
            word = words[type_]
            state = "error" if status == "Unknown" else "fail" if status == word.bad else "pass"
            worse = checks.get(word.check)
            if worse is None or worse.status == "pass":
                said = None if state == "pass" else f"{type_}={status} {reason}"
                checks[word.check] = Check(word.check, word.component, state, message=said)  # type: ignore[arg-type]
        if now.gpus and "gpu_count" not in checks:
            checks["gpu_count"] = self._gpu_count(checks.values())
        data = NodeHealth(
            node=self._node,
            cluster=self._names.cluster,
            interval_s=REPORT_EVERY_S,
            gpus_total=now.gpus,
            gpus_allocatable=0 if now.cordoned or now.ready != "True" else now.allocatable,
            checks=tuple(checks.values()),
            pool=now.pool,
            boot_id=now.boot_id,
            domains=now.domains,
            gpu_family=now.family,
            provider_id=now.provider_id,
            agent_version="bridge/kubernetes",
        )
        return self._say(data, at_ms, at_ms)

    def _gpu_count(self, checks: Iterable[Check]) -> Check:
        """Return the check of how many GPUs there are, by how many the kubelet would give to pods."""
        now = self._seen
        if missing := now.gpus - now.allocatable:
            said = f"{missing} of {now.gpus} are not allocatable"
            return Check("gpu_count", "gpu", "fail", message=said)
        if bad := next((check.name for check in checks if check.component == "gpu" and check.status != "pass"), None):
            # What a device plugin counted last, or does not look after, says nothing against what has looked.
            return Check("gpu_count", "gpu", "off", message=f"not known by what is allocatable: {bad} does not pass")
        return Check("gpu_count", "gpu", "pass")


def has_agent(labels: Mapping[str, str]) -> bool:
    """Return whether a pod with these labels is a node agent of ours."""
    return load_words().agent_labels.items() <= labels.items()
