"""What is said beside an outcome: the scheduler's own word, and one line for each thing that bears on the cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from producers.slurm.history import Attempt, Job
from producers.slurm.node_lists import compress
from producers.slurm.outages import Stretch
from producers.slurm.outcomes import ROOT_UID, Ended
from producers.slurm.runs import BATCH, Run, Step
from producers.slurm.states import Exit
from producers.slurm.surroundings import TOGETHER_MS, Surroundings

MESSAGE_CHARS: Final = 4_000
# Slurm's signal numbers beyond the machine's: out of memory, and an output file that could not be opened.
_OUT_OF_MEMORY: Final = 125
_NO_OUTPUT: Final = 53
_LAST_SIGNAL: Final = 64
_SIGNALS: Final = {
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
    15: "SIGTERM",
}
# Words of the controller that say no more than the state does, or, for a signal, what is not so.
_SAYS_NOTHING: Final = frozenset(
    {"NonZeroExitCode", "RaisedSignal", "JobLaunchFailure", "SystemFailure", "None", "WaitingForScheduling"}
)


def reason_of(attempt: Attempt) -> str:
    """Return the scheduler's word: the state, or the controller's reason where that says more than `FAILED`."""
    state = attempt.last.state
    word = state.name if state.by_uid is None else f"{state.name} by {state.by_uid}"
    said = attempt.known.reason if attempt.known else None
    if state.name == "FAILED" and said is not None and said.partition(":")[0] not in _SAYS_NOTHING:
        return said
    return word


def exit_code_of(best: Exit | None) -> int | None:
    """Return the exit code; None where there was a signal or nothing."""
    return best.code if best is not None and best.code != 0 else None


def signal_of(best: Exit | None) -> int | None:
    """Return the signal, but for the numbers that are Slurm's own."""
    if best is None or not 0 < best.signal <= _LAST_SIGNAL or best.signal == _NO_OUTPUT:
        return None
    return best.signal


def message_of(job: Job, attempt: Attempt, end: Ended, around: Surroundings) -> str | None:
    """Return what bears on the cause, a line each; None when there is nothing to say."""
    lines = [
        *_of_outcome(attempt, end),
        *_of_nodes(job, attempt, end, around),
        *_of_steps(attempt.last, end),
        *_of_exit(attempt, end),
        *attempt.last.remarks,
    ]
    return "\n".join(lines)[:MESSAGE_CHARS] or None


def _of_outcome(attempt: Attempt, end: Ended) -> Iterator[str]:
    run = attempt.last
    if end.how == "refused":
        yield "request refused: ended before it was given nodes"
    elif end.how == "record_lost":
        yield "no record of this job: the controller lost its state, all its jobs were cancelled in this second"
    elif end.how == "requeue_exit":
        yield "requeued because of its exit code"
    elif end.how in ("requeued", "requeued_afterwards"):
        yield "requeued" + (" after it had ended" if end.how == "requeued_afterwards" else " on request")
    if run.state.name == "CANCELLED" and run.state.by_uid is not None and end.outcome == "cancelled":
        by = "root" if run.state.by_uid == ROOT_UID else f"user {run.state.by_uid}"
        yield f"cancelled by {by}" + (", its owner" if run.state.by_uid == run.uid else "")
    if run.state.name == "TIMEOUT" and run.time_limit:
        yield f"time limit {run.time_limit}"
    if run.state.name == "OUT_OF_MEMORY" and run.memory:
        yield f"memory limit {run.memory}"


def _of_nodes(job: Job, attempt: Attempt, end: Ended, around: Surroundings) -> Iterator[str]:
    """Yield which nodes were out at the end, and what follows from none being out."""
    run = attempt.last
    if not run.nodes or end.outcome in ("succeeded", "cancelled", "preempted") or end.how == "record_lost":
        return
    mates = {node for mate in around.mates(job, attempt) for node in mate.nodes}
    out = around.outages_at([*run.nodes, *sorted(mates)], end.end_ms)
    hung = around.waited_for_prolog(run)
    yield from dict.fromkeys(_line_of(stretch, hung=hung) for stretch in out)
    if out or not around.knows_outages or not run.recorded:
        return  # accounting that has not heard of the run has not heard of the node either
    if end.outcome == "never_started":
        yield f"ended before any step was launched, and {compress(run.nodes)} was not taken out"
    vanished = [s for s in run.vanished_steps if (s.end_ms or 0) <= end.end_ms + TOGETHER_MS]
    if vanished and end.outcome != "never_started":
        names = ", ".join(step.name for step in vanished)
        yield f"nobody saw step {names} end although its node answered: its slurmstepd is gone"
    elif run.state.name == "NODE_FAIL":
        yield f"{compress(run.nodes)} was not out: the scheduler lost the job there"


def _line_of(stretch: Stretch, *, hung: bool) -> str:
    if stretch.set_by_person:
        return f"{stretch.node} set {stretch.state} by {stretch.user}: {stretch.reason}"
    late = ", it ran into its time limit" if hung and stretch.code == "prolog_failed" else ""
    return f"{stretch.node} {stretch.state}: {stretch.reason}{late}"


def _of_steps(run: Run, end: Ended) -> Iterator[str]:
    """Yield how steps ended that were over by then; what ends later is told by the node."""
    for step in run.user_steps:
        over = step.end_ms is not None and step.end_ms <= end.end_ms + TOGETHER_MS
        if step.name != BATCH and over and _says_more(step):
            where = f" on {compress(step.nodes)}" if step.nodes else ""
            yield f"step {step.name} {step.state.name}" + (f" {step.exit}" if step.exit else "") + where


def _says_more(step: Step) -> bool:
    return step.state.name not in ("COMPLETED", "RUNNING", "RESIZING") and (step.exit is None or not step.exit.clean)


def _of_exit(attempt: Attempt, end: Ended) -> Iterator[str]:
    best, derived = attempt.exit, attempt.last.derived
    if best is not None and best.signal == _NO_OUTPUT:
        yield "could not open stdout file or stderr file (exit 0:53)"
    if best is not None and attempt.doubtful and 1 < best.code < 128 and end.how != "requeue_exit":
        name = _SIGNALS.get(best.code)
        other = best.code + 128
        yield f"exit code {best.code} may be {other}" + (f" ({name})" if name else "") + ": accounting drops bit 7"
    if derived is not None and not derived.clean and not attempt.last.steps:
        yield f"highest exit code of a step {derived}"
