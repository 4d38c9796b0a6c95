"""Programs of the host, run with argument lists and a limit on time; nothing goes through a shell."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from typing import Final

from actuators.sdk import Failed, Refused

# Names as schedulers and Kubernetes know them. Patterns that name many (`node[1-99]`, `ALL`) are none.
_NAME: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$")
_TIMEOUT_S: Final = 60.0
_SAID_CHARS: Final = 300


def one_node(name: str | None) -> str:
    """Return the name if it is that of a single node. Raises Refused: a name must not come to mean many nodes."""
    if name is None or not _NAME.match(name) or name.upper() == "ALL":
        raise Refused(f"{name!r} is no name of a node")
    return name


def run(program: Sequence[str], *, timeout_s: float = _TIMEOUT_S) -> str:
    """Run a program and return what it printed. Raises Failed: it cannot be run, failed, or took too long."""
    try:
        done = subprocess.run(  # noqa: S603 - an argument list, from configuration and checked names
            list(program), capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise Failed(f"{program[0]} cannot be run: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{program[0]} did not end within {timeout_s:g} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[:_SAID_CHARS]
        raise Failed(f"{program[0]} ended with {done.returncode}: {said}")
    return done.stdout
