"""How much of each scope is out, and whether one more node may be: caps that hold whatever is asked for."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from faultlens.internal import NodeFacts
from streams.remediation.desk import Desk
from streams.remediation.policy import Cap, Limits
from streams.remediation.record import NodeCard, ScopeCount, Seat

# Contract, "Limits": what counts as disrupted; planned maintenance is counted in the budget too.
_OUT: Final = frozenset({"blocked", "draining", "down", "maintenance"})
_GONE: Final = "removed"


def scopes_of(facts: NodeFacts) -> tuple[str, ...]:
    """Return the names of the scopes that a node lies in: the cluster, its pool, each of its failure domains."""
    pool = () if facts.pool is None else (f"pool/{facts.pool}",)
    return ("cluster", *pool, *(f"{kind}/{name}" for kind, name in sorted(facts.domains.items())))


def is_out(card: NodeCard) -> bool:
    """Return whether the node is out, or about to be by an open command of ours."""
    facts = card.facts
    # One that is silent is still out when somebody holds it back.
    held = facts is not None and (facts.state in _OUT or facts.actor is not None)
    return held or card.taken or card.taking == "node"


def keep(desk: Desk, card: NodeCard) -> NodeCard:
    """Keep the card, with the node counted as it now is in every scope it lies in; return it."""
    seat = _seat(card)
    if seat != card.seat:
        _moved(desk, card.seat, seat)
        if card.seat.out and not seat.out:
            desk.freed = True
        card = replace(card, seat=seat)
    desk.put(card)
    return card


def _seat(card: NodeCard) -> Seat:
    facts = card.facts
    if facts is None or facts.state == _GONE:
        return Seat()
    out = is_out(card)
    devices = len(card.excluded) + (card.taking == "device")
    gpus_out = facts.gpus_total if out else min(devices, facts.gpus_total)
    return Seat(scopes_of(facts), facts.gpus_total, out, gpus_out, card.taking == "shadow")


def _moved(desk: Desk, before: Seat, after: Seat) -> None:
    for name in dict.fromkeys((*before.scopes, *after.scopes)):
        count = desk.scope(name)
        if name in before.scopes:
            count = _added(count, before, -1)
        if name in after.scopes:
            count = _added(count, after, 1)
        desk.put(count)


def _added(count: ScopeCount, seat: Seat, by: int) -> ScopeCount:
    of_size = count.sizes | {seat.gpus: count.sizes.get(seat.gpus, 0) + by}
    return replace(
        count,
        nodes=count.nodes + by,
        gpus=count.gpus + by * seat.gpus,
        nodes_out=count.nodes_out + by * seat.out,
        gpus_out=count.gpus_out + by * seat.gpus_out,
        nodes_shadow=count.nodes_shadow + by * seat.shadow,
        gpus_shadow=count.gpus_shadow + by * seat.shadow * seat.gpus,
        sizes={gpus: nodes for gpus, nodes in of_size.items() if nodes > 0},
    )


def cap_of(limits: Limits, name: str) -> Cap:
    """Return the cap of a scope by its name."""
    return limits.cluster if name == "cluster" else limits.pool if name.startswith("pool/") else limits.domain


def nodes_cap(cap: Cap, count: ScopeCount) -> int:
    """Return how many nodes of the scope may be out: max(1, floor(share x nodes)), and no more than is said."""
    by_share = max(1, int(cap.share * count.nodes + 1e-9))
    return by_share if cap.nodes is None else min(by_share, cap.nodes)


def gpus_cap(cap: Cap, count: ScopeCount, gpus: int) -> int:
    """Return how many GPUs of a scope, in which a node has `gpus`, may be out: their share, or its largest node's."""
    return max(gpus, max(count.sizes, default=0), int(cap.share * count.gpus + 1e-9))


def over_cap(desk: Desk, card: NodeCard, *, device: bool = False, shadow: bool = False) -> str | None:
    """Return the cap that taking the node (or one device of it) would break; None: it breaks none.

    What is out already costs nothing. Shadow commands have a budget of their own, of the same size.
    """
    if (card.seat.out and not shadow) or (card.seat.shadow and shadow):
        return None
    nodes, gpus = (0, 1) if device else (1, card.seat.gpus - card.seat.gpus_out)
    for name in card.seat.scopes:
        count, cap = desk.scope(name), cap_of(desk.policy.limits, name)
        nodes_out = count.nodes_shadow if shadow else count.nodes_out
        gpus_out = count.gpus_shadow if shadow else count.gpus_out
        if nodes_out + nodes > nodes_cap(cap, count) and nodes:
            return f"cap of {name}: {nodes_out} of at most {nodes_cap(cap, count)} nodes are out"
        at_most = gpus_cap(cap, count, card.seat.gpus)
        if gpus_out + gpus > at_most:
            return f"cap of {name}: {gpus_out} of at most {at_most} GPUs are out"
    return None if card.seat.scopes else "it is not known where the node is"
