"""Draws that the simulation makes again and again, each from a stream of chance that it is given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

_Choice = TypeVar("_Choice")


def stream(seed: int, name: str) -> Random:
    """Return the stream of chance of one part of the simulation: drawing from one never moves another."""
    return Random(f"{seed}/{name}")  # noqa: S311 - a simulation must be repeatable, not secret


def happens(rng: Random, chance: float) -> bool:
    """Whether something of this chance (0 to 1) happens."""
    return rng.random() < chance


def pick(rng: Random, weights: Mapping[_Choice, float]) -> _Choice:
    """Return one of the keys, each as often as its weight says; the weights need not add up to anything."""
    left = rng.random() * sum(weights.values())
    chosen = None
    for choice, weight in weights.items():
        if weight > 0:
            chosen = choice
            left -= weight
            if left < 0:
                break
    if chosen is None:
        raise ValueError("nothing to pick from: every weight is 0")
    return chosen


def between(rng: Random, span: tuple[float, float]) -> float:
    """Return a number of the span, each as likely."""
    return rng.uniform(*span)


def span_ms(rng: Random, span_s: tuple[float, float]) -> int:
    """Return a time of the span (given in seconds) in milliseconds."""
    return round(rng.uniform(*span_s) * 1_000)


def skewed(rng: Random, median: float, spread: float) -> float:
    """Return a log-normal draw: half of them below the median, the spread is that of the logarithm."""
    return median * math.exp(rng.gauss(0.0, spread))


def wait_ms(rng: Random, per_day: float) -> int:
    """Return the time to the next of events that come at random, `per_day` of them a day, in milliseconds."""
    return max(1, round(rng.expovariate(per_day / 86_400_000)))


def sample(rng: Random, items: Sequence[_Choice], most: int) -> list[_Choice]:
    """Return at most this many of the items, in their order."""
    if len(items) <= most:
        return list(items)
    return [items[index] for index in sorted(rng.sample(range(len(items)), most))]
