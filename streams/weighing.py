"""What is kept of observations where there are too many: what can be a root, then the severe, then the early."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from faultlens.internal import Observation

_ROLES: Final = {"root": 3, "unexpected": 2, "application": 1}


def weight(observation: Observation) -> tuple[int, int, int]:
    """Return what the observation counts for: of two the one that weighs more is kept."""
    return _ROLES.get(observation.role, 0), observation.severity, -observation.since_ms


def heaviest(observations: Iterable[Observation], limit: int) -> list[Observation]:
    """Return at most `limit` of the observations, in the order in which they came."""
    known = list(observations)
    if len(known) <= limit:
        return known
    kept = {o.id for o in sorted(known, key=weight, reverse=True)[:limit]}
    return [o for o in known if o.id in kept]
