"""Programs of the host, run with argument lists and a limit on time, and the names that may be given to them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from typing import Final

from actuators.others_words import one_line
from actuators.sdk import Failed, Refused
from faultlens.events import RemediationCommand

# Names as schedulers and Kubernetes know them. Patterns that name many (`node[1-99]`, `ALL`) are none.
_NAME: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$")
UUID: Final = re.compile(r"^GPU-[0-9A-Fa-f-]{8,64}$")
_TIMEOUT_S: Final = 60.0
_SAID_CHARS: Final = 300


def one_node(name: str | None) -> str:
    """Return the name if it is that of a single node. Raises Refused: a name must not come to mean many nodes."""
    if name is None or not _NAME.match(name) or name.upper() == "ALL":
        raise Refused(f"{name!r} is no name of a node")
    return name


def gpu_of(command: RemediationCommand) -> str:
    """Return the GPU's UUID, else its index. Raises Failed: which one it is was not said."""
    device = command.device
    if device is not None and device.uuid is not None and UUID.match(device.uuid):
        return device.uuid
    if device is not None and device.index is not None and device.index >= 0:
        return str(device.index)
    raise Failed("the command names no GPU")


def run(program: Sequence[str], *, timeout_s: float = _TIMEOUT_S) -> str:
    """Run a program and return what it printed. Raises Failed: it cannot be run, failed, or took too long."""
    try:
        done = subprocess.run(  # noqa: S603 - an argument list, from configuration and checked names
            list(program), capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise Failed(f"{program[0]} cannot be run: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{program[0]} did not end within {timeout_s:g} s") from None
    if done.returncode != 0:
        said = one_line(_text(done.stderr or done.stdout), limit=_SAID_CHARS)
        raise Failed(f"{program[0]} ended with {done.returncode}: {said}")
    return _text(done.stdout)


def _text(raw: bytes) -> str:
    """Return what was printed as text: a reason that somebody gave in another code is one all the same."""
    return raw.decode("utf-8", "replace")
