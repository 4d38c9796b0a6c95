"""The words Slurm has for the state of a job, a step and a node."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

JOB_STATES: Final = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "COMPLETING",
    "CONFIGURING",
    "DEADLINE",
    "EXPEDITING",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "POWER_UP_NODE",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESIZING",
    "RESV_DEL_HOLD",
    "REVOKED",
    "RUNNING",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
    "TIMEOUT",
)
ENDED: Final = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "RECONFIG_FAIL",
        "REQUEUED",
        "SPECIAL_EXIT",
        "TIMEOUT",
    }
)
# It holds its nodes, and its processes are there.
RUNNING: Final = frozenset({"RUNNING", "SUSPENDED", "SIGNALING", "RESIZING", "STOPPED"})
# After these the same job may run again; after any other end a later record with the same id is another job.
GOES_ON: Final = frozenset(
    {"BOOT_FAIL", "LAUNCH_FAILED", "NODE_FAIL", "PREEMPTED", "REQUEUED", "RESIZING", "SPECIAL_EXIT"}
)

_NODE_FLAGS: Final = "*~#!%$@^-+"
_BY: Final = re.compile(r"^(\w+)\+? by (\d+)$")


class JobState(NamedTuple):
    """A job's state and, of `CANCELLED by 5`, who did it."""

    name: str
    by_uid: int | None = None


class Exit(NamedTuple):
    """`code:signal` as Slurm prints it."""

    code: int
    signal: int

    @property
    def clean(self) -> bool:
        """Whether it says that nothing went wrong."""
        return self.code == 0 and self.signal == 0

    def __str__(self) -> str:
        return f"{self.code}:{self.signal}"


def job_state(text: str) -> JobState:
    """Return the state; a name that a narrow column cut (`OUT_OF_ME+`) is completed. ValueError if unknown."""
    text = text.strip()
    found = _BY.match(text)
    name, by_uid = (found[1], int(found[2])) if found else (text, None)
    if name in JOB_STATES:
        return JobState(name, by_uid)
    matches = [state for state in JOB_STATES if name.endswith("+") and state.startswith(name[:-1])]
    if len(matches) != 1:
        raise ValueError(f"not a job state: {text[:40]!r}")
    return JobState(matches[0], by_uid)


def exit_of(text: str) -> Exit | None:
    """Return the exit; None where Slurm has none (the process was never started, or nobody saw it end)."""
    text = text.strip()
    if not text:
        return None
    code, colon, signal = text.partition(":")
    if not (code.isdigit() and (signal.isdigit() or not colon)):
        raise ValueError(f"not an exit code: {text[:40]!r}")
    return Exit(int(code), int(signal or 0))


class NodeState(NamedTuple):
    """A node's base state and its suffixes (`DOWN*`: down and not responding)."""

    name: str
    flags: str

    def __str__(self) -> str:
        return self.name + self.flags


def node_state(text: str) -> NodeState:
    """Return base and suffixes; of `IDLE+DRAIN` the base is the whole word before the suffixes."""
    text = text.strip().upper()
    base = text.rstrip(_NODE_FLAGS)
    return NodeState(base, text[len(base) :])
