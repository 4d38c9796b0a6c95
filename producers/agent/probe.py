"""What a probe is: something to look at within a deadline, and the checks it reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from faultlens.events import Check, CheckStatus, Component, Device

# A probe that says nothing for so long hangs; the tools answer within a second or two when they are well.
DEADLINE_S: Final = 10.0
MESSAGE_CHARS: Final = 500


class MissingError(Exception):
    """What the probe needs is not there: a library, a tool, a file, a device node."""


class Looked(Struct):
    """What probes bring back: their checks, the GPUs, their driver's version, and how many links of a kind are up."""

    checks: list[Check]
    devices: tuple[Device, ...] | None = None
    driver_version: str | None = None
    links: dict[str, int] = {}


@dataclass(frozen=True)
class Probe:
    """`look` returns the checks named in `checks`; it is called in a process of its own, so it must be importable.

    It raises MissingError where a dependency is absent; any other error means that the probe or its tool is broken.
    Both become the status of every check that the probe was to report: none of them is ever left out.
    """

    name: str
    checks: Mapping[str, Component]
    look: Callable[..., list[Check] | Looked]
    arguments: tuple[object, ...] = ()
    deadline_s: float = DEADLINE_S

    def failed(self, status: CheckStatus, why: str, duration_ms: int) -> list[Check]:
        """Return all of its checks with a status that says that nothing is known."""
        return [
            Check(name, component, status, message=why[:MESSAGE_CHARS], duration_ms=duration_ms)
            for name, component in self.checks.items()
        ]

    def complete(self, found: list[Check], duration_ms: int) -> list[Check]:
        """Return the checks that were found, and `error` for what the probe did not say a word about."""
        told = {check.name for check in found}
        silent = [
            Check(name, component, "error", message="the probe said nothing of it", duration_ms=duration_ms)
            for name, component in self.checks.items()
            if name not in told
        ]
        return [_timed(check, duration_ms) for check in found] + silent


def _timed(check: Check, duration_ms: int) -> Check:
    return Check(
        check.name, check.component, check.status, check.device, check.code, _short(check.message), duration_ms
    )


def _short(message: str | None) -> str | None:
    return None if message is None else message[:MESSAGE_CHARS]
