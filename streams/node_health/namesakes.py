"""Nodes of one name in several clusters: each is stepped on a record of its own, and none is evidence for another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from faultlens.codec import Event, stable_id
from streams.context import Context
from streams.node_health.processor import NodeHealthProcessor
from streams.node_health.record import NodeRecord
from streams.processor import Effects, Emit

# Far more clusters than one installation has; what a further one says of the name is left out, and counted.
NAMESAKES_MAX: Final = 16


class NamesakesProcessor(NodeHealthProcessor):
    """Steps what is known of a node's name. Key: the name.

    Names are unique in an installation, by the contract. Where they are not (a second cluster without a prefix, a log
    imported under another cluster's name), the cluster first heard of has the record and each other one a record in
    its `namesakes`: a cluster's jobs meet the evidence that was reported for that cluster.
    """

    def on_event(self, event: Event, now_ms: int, context: Context, state: Struct | None) -> Effects:
        """Return what follows from a report, fault, action or allocation for the node of that cluster."""
        home = cast("NodeRecord | None", state)
        cluster: str = cast("Any", event.data).cluster  # whatever has a node has a cluster
        if home is None or cluster == home.cluster or not (cluster and home.cluster):
            return super().on_event(event, now_ms, context, home)
        known = home.namesakes.get(cluster)
        if known is None and len(home.namesakes) >= NAMESAKES_MAX:
            return Effects(replace(home, overflow=home.overflow + 1), (), self._next_wake(home))
        done = super().on_event(event, now_ms, context, known)
        records = {**home.namesakes, cluster: done.state}
        return self._together(home, records, _told_apart(cluster, done.emits), duplicate=done.duplicate)

    def on_time(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        """Return what is due for each of them."""
        return self._each(cast("NodeRecord", state), partial(super().on_time, key, now_ms, context))

    def on_end(self, key: str, now_ms: int, context: Context, state: Struct) -> Effects:
        """Return what is known of each of them but not yet written when a recording ends at `now_ms`."""
        return self._each(cast("NodeRecord", state), partial(super().on_end, key, now_ms, context))

    def survey(self, now_ms: int, states: Iterable[tuple[str, Struct]], lane: int) -> Sequence[Emit]:
        """Return how many covered nodes of each cluster reported on time."""
        return super().survey(now_ms, _with_namesakes(states), lane)

    def _each(self, home: NodeRecord, step: Callable[[Any], Effects]) -> Effects:
        done = step(home)
        if not home.namesakes:
            return done
        emits = list(done.emits)
        records: dict[str, Struct | None] = {}
        for cluster, record in home.namesakes.items():
            its = step(record)
            records[cluster] = its.state
            emits += _told_apart(cluster, its.emits)
        return self._together(cast("NodeRecord | None", done.state), records, emits)

    def _together(
        self,
        home: NodeRecord | None,
        records: dict[str, Struct | None],
        emits: Sequence[Emit],
        *,
        duplicate: bool = False,
    ) -> Effects:
        """Return the records as one state; where the first one was forgotten the next takes its place."""
        left = {cluster: cast("NodeRecord", record) for cluster, record in records.items() if record is not None}
        if home is None and left:
            home = left.pop(next(iter(left)))
        if home is None:
            return Effects(None, emits)
        home = replace(home, namesakes=left)
        return Effects(home, emits, self._next_wake(home), duplicate)

    def _next_wake(self, record: NodeRecord) -> int | None:
        if not record.namesakes:  # nearly every node, at nearly every report
            return super()._next_wake(record)
        wakes = [super()._next_wake(record)]
        for namesake in record.namesakes.values():
            wakes.append(super()._next_wake(namesake))  # noqa: PERF401 - a comprehension has no super()
        return min((wake for wake in wakes if wake is not None), default=None)


def _with_namesakes(states: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Struct]]:
    """Yield every record; nearly all are nobody's namesake, and all of a lane's come through here each minute."""
    for entry in states:
        yield entry
        if entry[1].namesakes:
            for record in entry[1].namesakes.values():
                yield entry[0], record


def _told_apart(cluster: str, emits: Sequence[Emit]) -> list[Emit]:
    """Return the records with ids that no namesake's have: ids are made of the node's name and of times."""
    return [replace(emit, id=stable_id(cluster, emit.id)) for emit in emits]


def shared_names(states: Iterable[tuple[str, Struct]]) -> dict[str, tuple[str, ...]]:
    """Return the names that nodes of more than one cluster have, with these clusters."""
    homes = ((name, cast("NodeRecord", state)) for name, state in states)
    return {name: (home.cluster, *home.namesakes) for name, home in homes if home.namesakes}
