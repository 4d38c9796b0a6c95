"""What an attempt tells while it runs: signs of life, progress, checkpoints."""

from __future__ import annotations

from functools import partial
from typing import Final

from faultlens.events import JobAlive, JobCheckpoint, JobProgress, Quantiles
from producers.simulation.chance import happens, skewed, span_ms
from producers.simulation.model import Attempt
from producers.simulation.world import World

_WARM_UP_S: Final = (15.0, 150.0)
_SAVE_S: Final = (6.0, 90.0)
_FAILED_SAVES: Final = 0.01
_WITH_STEPS: Final = frozenset({"training", "batch"})
_QUANTILES_FROM: Final = 64


def begin(world: World, attempt: Attempt, at_ms: int) -> None:
    """Let a started attempt tell of itself until it is over."""
    rng = world.chances.lives
    attempt.first_step_ms = at_ms + span_ms(rng, _WARM_UP_S)
    attempt.checkpointed_ms = attempt.first_step_ms
    if attempt.job.saved_s > 0:
        took_s = rng.uniform(*_SAVE_S)
        step = _step(attempt.job.saved_s, attempt)
        restored = JobCheckpoint(attempt.job.id, attempt.number, step, round(took_s, 1), ok=True, restored=True)
        world.delivery.post(attempt.teller, attempt.first_step_ms, restored)


def beat(world: World, attempt: Attempt, at_ms: int) -> None:
    """Send what is due now, and come again after the interval."""
    if attempt.over or attempt.muted:
        return
    interval_s = world.shape.interval_s
    world.delivery.post(attempt.teller, at_ms, JobAlive(attempt.job.id, attempt.number, interval_s))
    steps = attempt.job.workload in _WITH_STEPS and attempt.doomed_ms is None and attempt.started_ms is not None
    if steps and at_ms > attempt.first_step_ms:
        _progress(world, attempt, at_ms)
        if at_ms - attempt.checkpointed_ms > attempt.job.checkpoint_every_s * 1_000:
            _checkpoint(world, attempt, at_ms)
    world.agenda.at(at_ms + round(interval_s * 1_000), partial(beat, world, attempt))


def worked_s(attempt: Attempt, at_ms: int) -> float:
    """Return the seconds of work that are done by now, those of earlier attempts that were saved included."""
    if attempt.started_ms is None:
        return attempt.job.saved_s
    return attempt.job.saved_s + max(0, at_ms - attempt.first_step_ms) / 1_000


def _progress(world: World, attempt: Attempt, at_ms: int) -> None:
    rng, job = world.chances.lives, attempt.job
    step_s = round(job.step_s * skewed(rng, 1.0, 0.02), 3)
    quantiles = None
    if job.gpus >= _QUANTILES_FROM:
        quantiles = Quantiles(step_s, round(step_s * 1.01, 3), round(step_s * 1.03, 3), round(step_s * 1.05, 3))
    ago_ms = round(rng.random() * job.step_s * 1_000)
    step = _step(worked_s(attempt, at_ms - ago_ms), attempt)
    progress = JobProgress(job.id, attempt.number, step, step_s, quantiles=quantiles)
    world.delivery.post(attempt.teller, at_ms, progress, happened_ms=at_ms - ago_ms)


def _checkpoint(world: World, attempt: Attempt, at_ms: int) -> None:
    rng, job = world.chances.lives, attempt.job
    good = not happens(rng, _FAILED_SAVES)
    took_s = round(rng.uniform(*_SAVE_S), 1)
    work_s = worked_s(attempt, at_ms)
    saved = JobCheckpoint(job.id, attempt.number, _step(work_s, attempt), took_s, ok=good, blocking=rng.random() < 0.7)
    world.delivery.post(attempt.teller, at_ms, saved)
    attempt.checkpointed_ms = at_ms
    if good:
        attempt.safe_s = work_s


def _step(work_s: float, attempt: Attempt) -> int:
    return int(work_s / attempt.job.step_s)
