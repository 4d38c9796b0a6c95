"""How much data stands behind a figure: how exactly it can be said, and whether anything follows from it yet."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from faultlens.objectives import parse_duration_ms
from faultlens.yaml_lines import load_model
from slo.wording import NOTHING, digits_for, duration, percent

DATA: Final = Path(__file__).parent / "floors.yaml"
TOO_LITTLE: Final = "too little data"
# A node tells where it stands every half a minute: what happened between two reports is known to the minute.
_GRAIN_MS: Final = MINUTE_MS
_MOST_DIGITS: Final = 8
_UNITS: Final = (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS), ("s", SECOND_MS))


class Floors(BaseModel):
    """The least that something is concluded from: time known of a window (ms), attempts, failures, saves of a job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    known_ms: Annotated[int, BeforeValidator(parse_duration_ms), Field(alias="known", ge=0)]
    attempts: int = Field(ge=1)
    failures: int = Field(ge=1)
    saves: int = Field(ge=2)


@cache
def floors() -> Floors:
    """Return the shipped floors."""
    return load_model(DATA, Floors)


def is_enough(total: float, *, of_time: bool, known_ms: int, window_ms: int) -> bool:
    """Return whether a target that looks kept may be called so: of a total of milliseconds or counts in a window."""
    least = floors()
    return known_ms >= min(least.known_ms, window_ms) and (of_time or total >= least.attempts)


def digits_of(target: float, total: float, *, of_time: bool) -> int:
    """Return how many decimals of a percentage a share of `total` (milliseconds or counts) has, by what it is of.

    One more or less of n changes a share by 1 / n: decimals beyond that say nothing. Never more than the target has.
    """
    parts = total / _GRAIN_MS if of_time else total
    known = math.floor(math.log10(parts)) - 2 if parts >= 1 else 0
    return max(0, min(digits_for(target), known))


def share_words(share: float | None, *, digits: int) -> str:
    """Return a share in percent; one that is less than whole but not by what its digits can say is `> 99 %`."""
    if share is not None and share < 1 and round(share * 100, digits) >= 100:
        return f"> {percent(1 - 10 ** -(digits + 2), digits=digits)}"
    return percent(share, digits=digits)


def attained_words(share: float | None, target: float, *, digits: int) -> str:
    """Return a share in percent, with as many more decimals as it takes for a miss not to look like the target."""
    if share is not None and share < target:
        while digits < _MOST_DIGITS and round(share * 100, digits) >= target * 100:
            digits += 1
    return share_words(share, digits=digits)


def known_words(known_ms: int, window_ms: int) -> str:
    """Return how much of a window is known, where that is not all of it; empty: all of it."""
    return "" if known_ms >= window_ms else f"{duration(known_ms) if known_ms > 0 else 'nothing'} of it known"


def mean_words(mean_ms: float | None, count: int) -> str:
    """Return a mean time between so many events, no more exactly than they allow; or that they are too few."""
    if mean_ms is None:
        return NOTHING
    return TOO_LITTLE if count < floors().failures else rough(mean_ms)


def rough(span_ms: float) -> str:
    """Return a span of time to two digits, in the largest unit that it has two of: `37 h`, `2.1 d`, `140 d`."""
    if math.isinf(span_ms):
        return duration(span_ms)
    name, size = next((unit for unit in _UNITS if span_ms >= 2 * unit[1]), _UNITS[-1])
    return f"{float(f'{span_ms / size:.2g}'):,.6g} {name}"
