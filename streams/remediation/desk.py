"""What one step of remediation sees and changes: reads go to the shelf, writes are kept until the step is over."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct

from faultlens.codec import stable_id
from faultlens.events import Data
from faultlens.internal import Tended
from faultlens.topics import ALLOCATIONS, INCIDENTS, REMEDIATION_COMMANDS
from streams.processor import Effects, Emit, Shelf, Shelved
from streams.remediation.policy import Policy, Route
from streams.remediation.record import (
    Card,
    ClusterCard,
    CommandCard,
    HungJob,
    IncidentCard,
    Machine,
    NodeCard,
    Place,
    Recent,
    ScopeCount,
    Trait,
    cluster_key,
    command_key,
    due_ms,
    incident_key,
    job_key,
    key_of,
    machine_key,
    node_key,
    place_key,
    recent_key,
    scope_key,
)

_Kind = TypeVar("_Kind", bound=Struct)


class Desk:
    """One step on one cluster at `now_ms`. `replayed`: nobody carries out what is decided here.

    `learnt_ms`: when what the step is about was learnt by whoever told us, which other lanes may have said late.
    """

    def __init__(
        self,
        cluster: str,
        shelf: Shelf,
        now_ms: int,
        policy: Policy,
        *,
        learnt_ms: int | None = None,
        replayed: bool = False,
    ) -> None:
        self.cluster = cluster
        self.now_ms = now_ms
        self.learnt_ms = now_ms if learnt_ms is None else min(now_ms, learnt_ms)
        self.policy = policy
        self.replayed = replayed
        # Whether something that was out came back in this step: others may wait for that.
        self.freed = False
        self.closed: list[str] = []
        # Nodes that leave a common incident to go their own ways, and the incident that one of them is tried for.
        self.released: list[tuple[str, str | None]] = []
        # Nodes that leave one because what they shared is over there.
        self.cleared: list[str] = []
        self._shelf = shelf
        self._changed: dict[str, Shelved] = {}
        self._emits: list[Emit] = []

    def begun(self, id_: str, route: Route, trait: Trait, first_ms: int) -> IncidentCard:
        """Return an incident about what is wrong somewhere, on a route; it is not kept yet."""
        return IncidentCard(
            cluster=self.cluster,
            id=id_,
            route=route.name,
            ladder=route.ladder,
            mode=route.mode,
            cause=trait.cause,
            cause_class=trait.cause_class,
            severity=trait.severity,
            rule=route.name,
            first_ms=first_ms,
            last_ms=self.learnt_ms,
            policy=self.policy.version,
            faults=(trait.fault,),
        )

    def effects(self) -> Effects:
        """Return all that the step asks for."""
        return Effects(None, self._emits, shelved=self._changed)

    def put(self, card: Card) -> None:
        """Keep the card, to be woken when it is due."""
        self._changed[key_of(card)] = Shelved(card, due_ms(card))

    def drop(self, key: str) -> None:
        """Forget what is kept under the key."""
        self._changed[key] = Shelved(None)

    def send(self, topic: str, key: str, name: str, data: Data) -> None:
        """Send a record; the name tells it from others about the same thing."""
        self._emits.append(Emit(topic, key, name, self.now_ms, data))

    def tend(self, word: Tended) -> None:
        """Tell a node's processor that we have an eye on it, or what we did there."""
        self.send(ALLOCATIONS, word.node, stable_id(word.node, "tended", word.done or "", self.now_ms), word)

    def tell(self, name: str, incident: Data) -> None:
        """Publish how an incident stands."""
        self.send(INCIDENTS, self.cluster, name, incident)

    def command(self, key: str, command_id: str, command: Data) -> None:
        """Issue a command."""
        self.send(REMEDIATION_COMMANDS, key, command_id, command)

    # --- cards -----------------------------------------------------------------------------------------

    def card(self, key: str) -> Any:
        """Return what is kept under the key, as this step left it; None: nothing."""
        changed = self._changed.get(key)
        return self._shelf.get(key) if changed is None else changed.state

    def own(self) -> ClusterCard:
        """Return the cluster's card."""
        return self._or_new(cluster_key(self.cluster), ClusterCard(self.cluster))

    def node(self, name: str) -> NodeCard:
        """Return a node's card."""
        return self._or_new(node_key(self.cluster, name), NodeCard(self.cluster, name))

    def scope(self, name: str) -> ScopeCount:
        """Return a scope's counts."""
        return self._or_new(scope_key(self.cluster, name), ScopeCount(self.cluster, name))

    def recent(self, name: str) -> Recent:
        """Return the nodes that turned bad in a domain by a cause."""
        return self._or_new(recent_key(self.cluster, name), Recent(self.cluster, name))

    def machine(self, name: str) -> Machine:
        """Return what a machine or GPU had."""
        return self._or_new(machine_key(self.cluster, name), Machine(self.cluster, name))

    def place(self, name: str) -> Place | None:
        """Return where a machine or GPU was when something was wrong with it; None: nothing was."""
        known: Place | None = self.card(place_key(self.cluster, name))
        return known

    def job(self, job_id: str) -> HungJob | None:
        """Return a job that runs on nodes in trouble; None: it is not known."""
        known: HungJob | None = self.card(job_key(self.cluster, job_id))
        return known

    def incident(self, incident_id: str | None) -> IncidentCard | None:
        """Return an incident; None: it is forgotten."""
        return None if incident_id is None else self.card(incident_key(self.cluster, incident_id))

    def issued(self, command_id: str | None) -> CommandCard | None:
        """Return a command that was issued; None: it is forgotten, or none of ours."""
        return None if command_id is None else self.card(command_key(self.cluster, command_id))

    def _or_new(self, key: str, new: _Kind) -> _Kind:
        known = self.card(key)
        return new if known is None else known
