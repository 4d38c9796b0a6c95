"""What is said of the end of a failed attempt: outcome, exit code, and the scheduler's own word for it."""

from __future__ import annotations

from typing import Final

from faultlens.events import JobEnded, Outcome
from producers.simulation.model import Attempt, Blow, Reporter

OOM_KILLED: Final = "oom_killed"
_USUAL: Final[dict[Reporter, str]] = {"slurm": "NonZeroExitCode", "kubernetes": "Error", "launcher": "Error"}
_NODE_LOST: Final[dict[Reporter, str]] = {"slurm": "NODE_FAIL", "kubernetes": "NodeLost", "launcher": "Error"}
_OUT_OF_MEMORY: Final[dict[Reporter, str]] = {
    "slurm": "OUT_OF_MEMORY",
    "kubernetes": "OOMKilled",
    "launcher": "Error",
}


def end_of(attempt: Attempt, blow: Blow, outcome: Outcome) -> JobEnded:
    """Return how the end of an attempt is reported."""
    job = attempt.job
    if blow.manner == "stuck":
        return JobEnded(job.id, attempt.number, outcome, exit_code=143, signal=15, reason="TIMEOUT")
    message = blow.message
    if blow.manner == "node_lost" and blow.node is not None and message is None:
        message = f"node {blow.node.name} not responding"
    return JobEnded(
        job.id,
        attempt.number,
        outcome,
        exit_code=blow.exit_code,
        signal=blow.signal,
        reason=_reason(job.reporter, blow),
        message=message,
    )


def _reason(reporter: Reporter, blow: Blow) -> str:
    if blow.reason == OOM_KILLED:
        return _OUT_OF_MEMORY[reporter]
    if blow.reason is not None:
        return blow.reason
    return _NODE_LOST[reporter] if blow.manner == "node_lost" else _USUAL[reporter]
