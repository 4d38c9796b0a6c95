"""The books kept a second time: what the objectives must say, from the events and the answers alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from faultlens.arrival import placed
from faultlens.causes import class_of, is_known
from faultlens.clock import MINUTE_MS, ms_of
from faultlens.codec import Event
from faultlens.events import (
    FAILURES,
    JobAlive,
    JobAllocated,
    JobAttributed,
    JobCheckpoint,
    JobEnded,
    JobProgress,
    JobResized,
    JobStarted,
    JobSubmitted,
    JobTime,
    NodeState,
    RankExited,
    SloStatus,
    Slot,
)
from tests.simulation.stories import Arrival

START_WITHIN_MS = 10 * MINUTE_MS
OUT_OF_SERVICE = frozenset({"blocked", "draining", "down", "silent", "maintenance"})
OVERHEAD = "overhead"
WORDS = (JobAllocated, JobStarted, JobAlive, JobProgress, JobCheckpoint, RankExited, JobResized)

Scope = tuple[str, str, str, str, str]
Attempt = tuple[str, int]
# Good, total, and what the difference is charged to.
FiguresTold = tuple[int, int, dict[str, int]]


# --- what was told of jobs -------------------------------------------------------------------------------


@dataclass
class Told:
    """What the input says of an attempt, whatever the order it came in."""

    allocated_ms: int | None = None
    slots: dict[str, Slot] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    started_ms: int | None = None
    heard_ms: int = 0
    ran: bool = False
    ends: dict[bool, tuple[int, str]] = field(default_factory=dict)

    @property
    def end(self) -> tuple[int, str] | None:
        """The end that counts, as (time, outcome): the scheduler's word before the launcher's."""
        return self.ends.get(True) or self.ends.get(False)

    def gpu_ms(self, until_ms: int) -> int:
        """Return the GPU-milliseconds allocated until then."""
        assert self.allocated_ms is not None
        steps = [(self.allocated_ms, _gpus(self.slots.values())), *sorted(self.sizes)]
        borders = [*(max(at_ms, self.allocated_ms) for at_ms, _ in steps), until_ms]
        spans = [max(0, min(until_ms, after) - before) for before, after in pairwise(borders)]
        return sum(span * gpus for span, (_, gpus) in zip(spans, steps, strict=True))


def _gpus(slots: Iterable[Slot]) -> int:
    return sum(len(slot.devices or ()) for slot in slots)


def told_of(arrivals: Sequence[Arrival]) -> tuple[dict[Attempt, Told], dict[str, JobSubmitted]]:
    """Return what the input says of every attempt and job."""
    attempts: dict[Attempt, Told] = defaultdict(Told)
    jobs: dict[str, JobSubmitted] = {}
    for event in _once(arrivals):
        data = event.data
        if isinstance(data, JobSubmitted):
            jobs[data.job_id] = data
        elif isinstance(data, (*WORDS, JobEnded)):
            _note(attempts[data.job_id, data.attempt], event)
    return dict(attempts), jobs


def _once(arrivals: Sequence[Arrival]) -> Iterable[Event]:
    seen = set()
    for arrival in arrivals:
        name = (arrival.event.source, arrival.event.id)
        if name not in seen:
            seen.add(name)
            yield placed(arrival.event, arrived_ms=arrival.at_ms, clock_ms=arrival.at_ms)


def _note(told: Told, event: Event) -> None:
    data, at_ms = event.data, event.time_ms
    if isinstance(data, WORDS):
        told.heard_ms = max(told.heard_ms, at_ms)
    if isinstance(data, JobAllocated):
        told.allocated_ms = at_ms if told.allocated_ms is None else min(told.allocated_ms, at_ms)
        told.slots.update({slot.node: slot for slot in data.allocation})
        told.given.update(told.slots)
    elif isinstance(data, JobResized):
        told.given.update(slot.node for slot in data.allocation)
        told.sizes.append((at_ms, _gpus(data.allocation)))
    elif isinstance(data, JobStarted):
        told.started_ms = at_ms if told.started_ms is None else min(told.started_ms, at_ms)
    elif isinstance(data, JobProgress | RankExited | JobCheckpoint):
        told.ran = True
    elif isinstance(data, JobEnded):
        told.ends[event.source.startswith(("scheduler/", "bridge/"))] = (at_ms, data.outcome)


# --- the ledger --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """What a stretch of an attempt's time was spent on."""

    from_ms: int
    to_ms: int
    category: str
    gpus: int
    charged: str

    @property
    def gpu_ms(self) -> int:
        return (self.to_ms - self.from_ms) * self.gpus


def ledgers(records: Iterable[Event]) -> dict[Attempt, list[Span]]:
    """Return each attempt's time by the replacement rule: a later revision replaces what it overlaps."""
    told: dict[Attempt, dict[int, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for event in {(event.source, event.id): event for event in records}.values():
        data = event.data
        if isinstance(data, JobTime) and data.category != "queued":
            charged = OVERHEAD if data.cause is None else data.cause.cause_class
            span = Span(ms_of(data.start), ms_of(data.stop), data.category, data.gpus, charged)
            assert span.from_ms < span.to_ms, data
            told[data.job_id, data.attempt][data.revision].append(span)
    return {name: _laid(revisions) for name, revisions in sorted(told.items())}


def _laid(revisions: dict[int, list[Span]]) -> list[Span]:
    spans: list[Span] = []
    for number in sorted(revisions):
        new = sorted(revisions[number], key=lambda span: span.from_ms)
        for one, other in pairwise(new):
            assert one.to_ms <= other.from_ms, "spans of one revision overlap"
        for span in new:
            spans = [part for old in spans for part in _without(old, span)] + [span]
    return sorted((span for span in spans if span.gpus), key=lambda span: span.from_ms)


def _without(old: Span, new: Span) -> Iterable[Span]:
    if old.to_ms <= new.from_ms or new.to_ms <= old.from_ms:
        yield old
        return
    if old.from_ms < new.from_ms:
        yield Span(old.from_ms, new.from_ms, old.category, old.gpus, old.charged)
    if new.to_ms < old.to_ms:
        yield Span(new.to_ms, old.to_ms, old.category, old.gpus, old.charged)


# --- the objectives ----------------------------------------------------------------------------------------


@dataclass
class Figures:
    """Good and bad by what it is charged to, in milliseconds or counts."""

    good: int = 0
    by_cause: Counter[str] = field(default_factory=Counter)

    @property
    def told(self) -> FiguresTold:
        """Good, total and what the difference is charged to."""
        bad = {name: amount for name, amount in sorted(self.by_cause.items()) if amount}
        return self.good, self.good + sum(bad.values()), bad


Books = dict[Scope, Figures]


def _scopes(objective: str, cluster: str, **parts: str | None) -> Iterable[Scope]:
    names = ("pool", "team", "workload")
    yield (objective, cluster, "", "", "")
    for name in names:
        if parts.get(name):
            yield (objective, cluster, *(parts[name] or "" if other == name else "" for other in names))  # type: ignore[misc]


def _add(books: Books, scopes: Iterable[Scope], charged: str | None, amount: int) -> None:
    for scope in scopes:
        figures = books.setdefault(scope, Figures())
        if charged is None:
            figures.good += amount
        else:
            figures.by_cause[charged] += amount


Pools = dict[str, list[tuple[int, str]]]


def pools_of(states: Iterable[Event]) -> Pools:
    """Return by node in which pools its states say that it was, each with since when."""
    pools: Pools = defaultdict(list)
    for event in states:
        assert isinstance(event.data, NodeState)
        if event.data.pool is not None:
            pools[event.subject].append((ms_of(event.data.since), event.data.pool))
    return pools


def _pool(told: Told, verdict: JobAttributed | None, pools: Pools) -> str | None:
    """Return the pool that every node that it was ever given was in when it was allocated, else in force first then."""
    closed_ms = ms_of(verdict.ended_at) if verdict is not None else 1 << 62
    ended_ms = told.end[0] if told.end is not None else closed_ms
    allocated_ms = told.allocated_ms or 0
    found = set()
    for node in told.given:
        known = [pool for since_ms, pool in pools.get(node, ()) if since_ms <= allocated_ms][-1:]
        found.update(known or [pool for since_ms, pool in pools.get(node, ()) if since_ms < ended_ms][:1] or [""])
    return found.pop() or None if len(found) == 1 else None


def of_jobs(
    arrivals: Sequence[Arrival],
    verdicts: dict[str, JobAttributed],
    spans: dict[Attempt, list[Span]],
    pools: Pools,
    now_ms: int,
) -> Books:
    """Return what goodput, job start and job success must say."""
    attempts, jobs = told_of(arrivals)
    books: Books = {}
    for (job, number), told in attempts.items():
        submitted, verdict = jobs[job], verdicts.get(f"{job}/{number}")
        pool = _pool(told, verdict, pools)
        scopes = {"pool": pool, "team": submitted.team, "workload": submitted.workload}
        for span in spans.get((job, number), ()):
            charged = None if span.category == "productive" else span.charged
            _add(books, _scopes("goodput", submitted.cluster, **scopes), charged, span.gpu_ms)
        for objective, charged in (
            ("job_start", _start(told, verdict, now_ms)),
            ("job_success", _success(told, verdict, submitted.workload)),
        ):
            if charged != "nothing":
                _add(books, _scopes(objective, submitted.cluster, **scopes), charged, 1)
    return books


def _outcome(told: Told, verdict: JobAttributed | None) -> str | None:
    if told.end is not None:
        return told.end[1]
    return "failed" if verdict is not None else None


def _class(verdict: JobAttributed | None, *, usual: str = "platform", users: str) -> str:
    found = usual if verdict is None else verdict.cause.cause_class
    return users if found == "user" else found


def _start(told: Told, verdict: JobAttributed | None, now_ms: int) -> str | None:
    """Return whom a start is charged to; None: it was good, `nothing`: it does not count."""
    started_ms = told.started_ms if told.started_ms is not None else told.allocated_ms if told.ran else None
    outcome = _outcome(told, verdict)
    if started_ms is not None or outcome == "succeeded":
        late = started_ms is not None and told.allocated_ms is not None
        if late and (started_ms or 0) - (told.allocated_ms or 0) > START_WITHIN_MS:
            return _class(verdict, users="platform")
        return None
    if outcome is not None:
        return _class(verdict, users="nothing") if outcome in FAILURES else "nothing"
    overdue = told.allocated_ms is not None and now_ms - told.allocated_ms > START_WITHIN_MS
    return _class(verdict, users="platform") if overdue else "nothing"


def _success(told: Told, verdict: JobAttributed | None, workload: str) -> str | None:
    outcome = _outcome(told, verdict)
    started = told.started_ms is not None or told.ran or outcome == "succeeded"
    if not started or outcome is None or workload == "inference":
        return "nothing"
    if outcome == "succeeded":
        return None
    return _class(verdict, users="nothing") if outcome in FAILURES and verdict is not None else "nothing"


def of_nodes(states: Iterable[Event], now_ms: int) -> Books:
    """Return what the availability of nodes and GPUs must say."""
    by_node: dict[str, list[NodeState]] = defaultdict(list)
    for event in states:
        assert isinstance(event.data, NodeState)
        by_node[event.subject].append(event.data)
    books: Books = {}
    for told in by_node.values():
        ends = [*(ms_of(state.since) for state in told[1:]), now_ms]
        for state, until_ms in zip(told, ends, strict=True):
            span_ms = until_ms - ms_of(state.since)
            assert span_ms >= 0, (state, until_ms)
            _add_state(books, state, span_ms)
    return books


def _add_state(books: Books, state: NodeState, span_ms: int) -> None:
    down = state.state in OUT_OF_SERVICE
    if state.state == "removed" or (down and state.planned) or not span_ms:
        return
    charged = class_of(state.cause) if state.cause is not None and is_known(state.cause) else OVERHEAD
    healthy = 0 if down else min(state.gpus_allocatable, state.gpus_total)
    node, gpu = (_scopes(f"{what}_availability", state.cluster, pool=state.pool) for what in ("node", "gpu"))
    _add(books, node, charged if down else None, span_ms)
    for scope in gpu:
        _add(books, [scope], None, healthy * span_ms)
        _add(books, [scope], charged, (state.gpus_total - healthy) * span_ms)


# --- what was said of them -----------------------------------------------------------------------------------


def standings(statuses: Iterable[Event]) -> dict[Scope, FiguresTold]:
    """Return the last status of each objective and scope in milliseconds or counts; every one must add up."""
    newest: dict[Scope, tuple[int, SloStatus]] = {}
    for event in statuses:
        status = event.data
        assert isinstance(status, SloStatus)
        assert 0 <= status.good <= status.total, status
        unit = _unit(status)
        amounts = {name: round(amount * unit) for name, amount in status.by_cause.items()}
        assert all(amount > 0 for amount in amounts.values()), status
        assert sum(amounts.values()) == round(status.total * unit) - round(status.good * unit), status
        scope = status.scope
        key = (status.objective, scope.cluster, scope.pool or "", scope.team or "", scope.workload or "")
        if key not in newest or event.time_ms >= newest[key][0]:
            newest[key] = (event.time_ms, status)
    return {key: _said(status) for key, (_, status) in sorted(newest.items())}


def _unit(status: SloStatus) -> int:
    """Return how many milliseconds a unit of a status is; of counts one. A service's replicas are told in seconds."""
    counts = status.unit in ("attempts", "jobs") and status.objective != "serving_capacity"
    return 1 if counts else 1_000


def _said(status: SloStatus) -> FiguresTold:
    unit = _unit(status)
    by_cause = {name: round(amount * unit) for name, amount in sorted(status.by_cause.items())}
    return round(status.good * unit), round(status.total * unit), by_cause
