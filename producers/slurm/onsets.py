"""When what an outage tells of really began: Slurm writes it down later, sometimes by minutes."""

from __future__ import annotations

from typing import Final

from faultlens.clock import MINUTE_MS, SECOND_MS
from producers.slurm.outages import Outage, Stretch
from producers.slurm.runs import Run
from producers.slurm.states import GOES_ON
from producers.slurm.surroundings import TOGETHER_MS, Surroundings

# A node is set down when it has not answered for SlurmdTimeout; it is asked three times in that time, and an answer
# may take some seconds more. So it went at most one and a half of it before.
_TIMEOUTS_BEFORE: Final = 1.5
# Nobody lets a dead node stand longer than this without noticing; older signs are of something else.
_LOOK_BACK_MS: Final = 20 * MINUTE_MS
# A drain gets its row when the node's last job has ended; the epilog comes between.
_EMPTIED_MS: Final = MINUTE_MS
# Processes end with their job, give or take a grace time; longer, and they could not be killed. The node is drained
# as soon as that is given up.
_LINGER_MS: Final = 10 * SECOND_MS
_GIVEN_UP_MS: Final = 30 * SECOND_MS


def onset_ms(outage: Outage, stretch: Stretch, around: Surroundings) -> int:
    """Return when what the stretch tells of was true at the latest, before it was written down."""
    if stretch.code in ("not_responding", "unexpected_reboot"):
        return _gone_ms(outage.stretches[0], around)
    if stretch.code == "resume_timeout":
        waiting = around.ended_on(stretch.node, stretch.start_ms - TOGETHER_MS, stretch.start_ms + TOGETHER_MS)
        return min([run.start_ms for run in waiting if run.start_ms is not None], default=stretch.start_ms)
    if stretch.code == "kill_task_failed":
        return _unkillable_ms(stretch, around)
    if stretch.down:
        return stretch.start_ms
    return _emptied_ms(stretch, around)


def _gone_ms(first: Stretch, around: Surroundings) -> int:
    """Return when the node was gone: when the first run ended whose end it did not report, else when it was noticed.

    Without steps nobody knows what it reported, and it may have gone as long before as Slurm waits.
    """
    noticed_ms = first.start_ms
    if not around.has_steps:
        waits = first.code == "not_responding"
        return noticed_ms - int(_TIMEOUTS_BEFORE * (around.limits.slurmd_timeout_s or 0) * SECOND_MS) * waits
    before = around.ended_on(first.node, noticed_ms - _LOOK_BACK_MS, noticed_ms)
    return min((run.end_ms for run in before if run.end_ms and _end_unreported(run, first)), default=noticed_ms)


def _end_unreported(run: Run, first: Stretch) -> bool:
    """Return whether the node was gone when the run ended: a step there was closed only when the node was set down."""
    there = [step for step in run.steps if first.node in step.nodes]
    ended_ms = run.end_ms or 0
    late = any(step.end_ms is not None and step.end_ms > ended_ms + TOGETHER_MS for step in there)
    booked = any(step.end_ms is not None and abs(step.end_ms - first.start_ms) <= TOGETHER_MS for step in there)
    return booked and (late or any(step.exit is None for step in there) or run.state.name in GOES_ON)


def _unkillable_ms(stretch: Stretch, around: Surroundings) -> int:
    """Return when the run ended whose processes stayed: they were stuck by then."""
    before = around.ended_on(stretch.node, stretch.start_ms - _LOOK_BACK_MS, stretch.start_ms)
    return min((run.end_ms for run in before if run.end_ms and _lingered(run, stretch)), default=stretch.start_ms)


def _lingered(run: Run, stretch: Stretch) -> bool:
    """Return whether processes of the run stayed long after it, and until about when the node was drained for it."""
    latest_ms = max((step.end_ms or 0 for step in run.steps), default=0)
    given_up = -TOGETHER_MS <= stretch.start_ms - latest_ms <= _GIVEN_UP_MS
    return given_up and latest_ms - (run.end_ms or 0) > _LINGER_MS


def _emptied_ms(stretch: Stretch, around: Surroundings) -> int:
    """Return the end of the last run on the node: a drain is written down when it is over, and was set before."""
    last = around.ended_on(stretch.node, stretch.start_ms - _EMPTIED_MS, stretch.start_ms)
    return max((run.end_ms for run in last if run.end_ms is not None), default=stretch.start_ms)
