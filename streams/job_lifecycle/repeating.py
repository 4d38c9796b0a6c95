"""What a job brings along: faults of a program that it met on more than one device, over all its attempts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from streams.job_lifecycle.record import Attempt, JobRecord

# What a program's text says of a device that a broken device makes as well.
_MADE_ON_DEVICES: Final = frozenset({"app.illegal_access"})


def brought_along(job: JobRecord) -> tuple[str, ...]:
    """Return the causes that are the program's by default and that this job met on more than one device.

    A device that makes a fault by itself makes it to whoever holds it, again and again; a program makes it wherever it
    runs.
    """
    met: dict[str, Counter[tuple[str, int | None]]] = {}
    for attempt in job.attempts.values():
        for cause, place in {*_met(attempt)} if attempt.failed else ():
            met.setdefault(cause, Counter())[place] += 1
    return tuple(sorted(cause for cause, places in met.items() if len(places) > 1 and max(places.values()) == 1))


def _met(attempt: Attempt) -> Iterator[tuple[str, tuple[str, int | None]]]:
    """Yield cause and place of each such fault: of the driver's records, and of what the first rank to speak said."""
    for observation in attempt.observations.values():
        index = observation.device.index if observation.device else None
        within = (attempt.allocated_ms or 0) <= observation.last_ms and observation.since_ms <= attempt.window_ends_ms
        if observation.role == "application" and index is not None and within:
            yield observation.cause_code, (observation.node, index)
    first = min(attempt.exits, key=lambda e: (e.first_ms, e.rank), default=None)
    if first is not None and first.device is not None and first.said.cause_code in _MADE_ON_DEVICES:
        yield first.said.cause_code, (first.node, first.device)
