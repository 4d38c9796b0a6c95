"""Asks Slurm's own programs for what an import reads."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from faultlens.errors import WorldError
from producers.slurm.importing import Export

DEADLINE_S: Final = 300
OUTPUT_BYTES_LIMIT: Final = 2 << 30
# Nobody types it into a job's name.
DELIMITER: Final = "\x1f"

# What an import uses, of which older versions lack some.
FIELDS: Final = (
    "JobID",
    "JobIDRaw",
    "JobName",
    "User",
    "UID",
    "Account",
    "Partition",
    "Cluster",
    "State",
    "ExitCode",
    "DerivedExitCode",
    "Submit",
    "Start",
    "End",
    "NodeList",
    "NNodes",
    "ReqNodes",
    "AllocTRES",
    "ReqTRES",
    "Reason",
    "Priority",
    "Timelimit",
    "ReqMem",
    "AdminComment",
    "SystemComment",
    "SubmitLine",
    "Container",
    "DBIndex",
)


def ask_slurm(since: str, *, deadline_s: float = DEADLINE_S) -> Export:
    """Return what Slurm says since a time, in epochs. `since` is what sacct's -S takes, such as `now-7days`.

    Raises `WorldError` when a program is not there, fails, or takes longer than the deadline.
    """
    offered = {name.lower() for name in _run(["sacct", "--helpformat"], deadline_s).split()}
    fields = ",".join(name for name in FIELDS if name.lower() in offered)
    sacct = [
        "sacct", "--allusers", "--duplicates", "--parsable2", f"--delimiter={DELIMITER}", f"--starttime={since}",
        f"--format={fields}",
    ]  # fmt: skip
    events = [
        "sacctmgr", "--parsable2", "--readonly", "show", "event", f"start={since}",
        "format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,User",
    ]  # fmt: skip
    return Export(
        sacct=_run(sacct, deadline_s).split("\n"),
        events=_run(events, deadline_s).split("\n"),
        jobs=_run(["scontrol", "--details", "--all", "show", "job"], deadline_s).split("\n"),
        config=_run(["scontrol", "show", "config"], deadline_s).split("\n"),
        nodes=_run(["scontrol", "--all", "show", "nodes"], deadline_s).split("\n"),
    )


def _run(command: Sequence[str], deadline_s: float) -> str:
    """Return what a program prints. Times come as epochs, words in English."""
    program = shutil.which(command[0])
    if program is None:
        raise WorldError(f"{command[0]}: not found; run this where Slurm's programs are, or export files and name them")
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(  # noqa: S603  a fixed list, no shell
            [program, *command[1:]], capture_output=True, check=False, timeout=deadline_s, env=environment
        )
    except subprocess.TimeoutExpired:
        raise WorldError(f"{command[0]}: no answer within {deadline_s:g} s; is slurmdbd or slurmctld down?") from None
    except OSError as error:
        raise WorldError(f"{command[0]}: cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise WorldError(f"{command[0]}: exit status {done.returncode}: {said[-1] if said else 'no message'}")
    if len(done.stdout) > OUTPUT_BYTES_LIMIT:
        raise WorldError(f"{command[0]}: more than {OUTPUT_BYTES_LIMIT} bytes; ask for less with --since")
    return done.stdout.decode("utf-8", errors="backslashreplace")
