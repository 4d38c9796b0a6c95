"""What jobs bring along: errors of their programs, their data, their settings, and their time limits."""

from __future__ import annotations

from producers.simulation import signs
from producers.simulation.chance import happens, pick
from producers.simulation.model import Attempt, Blow
from producers.simulation.world import World


def user_blow(world: World, attempt: Attempt, at_ms: int) -> Blow:
    """Return how the job's own fault ends this attempt, after sending what the driver logs of it."""
    kind = world.happenings.user_faults[attempt.job.fate.fault]
    rng = world.chances.lives
    node, device = rng.choice(attempt.seats)
    if attempt.job.own_error is None:  # a job that is tried again prints the same again
        attempt.job.own_error = world.texts.draft(pick(rng, kind.texts))
    told = False
    if kind.signs:
        seats = attempt.seats[: len(node.gpus)] if kind.ranks == "all" else [(node, device)]
        for seat_node, seat_device in seats:
            told |= signs.show(world, seat_node, kind.signs, at_ms, seat_device)
    return Blow(
        at_ms,
        kind.code,
        kind.why,
        kind.manner,
        tells=told,
        draft=attempt.job.own_error,
        text_tells=kind.tells,
        node=node,
        device=device,
        all_ranks=kind.ranks == "all",
        exit_code=kind.exit_code,
        signal=kind.signal,
        reason=kind.reason,
        message=kind.message,
    )


def comes_again(world: World, attempt: Attempt) -> bool:
    """Whether the job fails the same way when it is tried again."""
    return happens(world.chances.lives, world.happenings.user_faults[attempt.job.fate.fault].persists)


def time_limit_blow(at_ms: int) -> Blow:
    """Return the end of a healthy job whose time is up."""
    return Blow(
        at_ms,
        "app.time_limit",
        "the job needed longer than the time it asked for; it made progress to the end",
        "killed",
        tells=True,
        text_tells=True,
        outcome="timed_out",
        exit_code=143,
        signal=15,
        reason="TIMEOUT",
        message="time limit reached",
    )
