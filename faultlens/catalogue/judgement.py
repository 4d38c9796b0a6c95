"""What the catalogue answers: the words it uses and the judgement on one code."""

from __future__ import annotations

from typing import Final, Literal, get_args

from msgspec import Struct

from faultlens.events import CauseClass

Role = Literal["root", "sympathetic", "trend", "informational", "unexpected", "application"]
"""What a code can be in the story of a failed job.

- `root`: it can be the cause;
- `sympathetic`: it follows another fault and is never the cause;
- `trend`: it says that something wears out, and ends no job;
- `informational`: it says nothing against the device;
- `unexpected`: nobody says what it means here: it is held for a person and never ignored;
- `application`: the program's by default, the device's when it repeats under different users.
"""

Scope = Literal["device", "node", "link", "fabric"]

ActionHint = Literal[
    "none",
    "watch",
    "block_new_work",
    "exclude_device",
    "drain",
    "validate",
    "reset_device",
    "restart_services",
    "reboot",
    "power_cycle",
    "replace",
    "open_ticket",
]
"""The first step that the code asks for: the contract's actions, or `none`. A hint; policy decides."""

ACTION_HINTS: Final[tuple[str, ...]] = get_args(ActionHint)


class Judgement(Struct, frozen=True, gc=False, kw_only=True):
    """What a code means on a family and driver branch, and what follows from it."""

    entry: str
    """Which entry of the catalogue said so, such as `xid:64@ampere`."""
    meaning: str
    cause_class: CauseClass
    cause_code: str
    role: Role
    severity: int
    """0 to 100; ranks competing roots (the scale is in `docs/catalogue.md`)."""
    fatal_to_job: bool
    """A job that holds what is hit is expected to be lost by it."""
    scope: Scope
    acts_late: bool = False
    """The harm shows after further steps (corrupted data, degradation): progress does not clear it."""
    latent_s: int = 0
    """Seconds for which a test's finding dates back: what it finds broken may have been so before. 0: not at all."""
    clears: tuple[str, ...]
    """What ends the condition, any of: `check:<name>` passes, `boot`, `remediation`; or `once`, alone."""
    cause_after_reset: str | None = None
    """The cause when the device shows the code again after a restart: what a restart does not cure is not software."""
    boot_phase_s: int = 0
    """Seconds after a boot within which the code is informational before the first allocation; 0: never."""
    companions: tuple[str, ...] = ()
    """Codes that belong to the same incident when they are near, such as `xid:63`."""
    yields_to: tuple[str, ...] = ()
    """Codes whose consequence this one is when they are near, on the same device or at the link's other end."""
    action_hint: ActionHint
    known: bool
    """False when the code is not defined for this family: nothing but its number is known."""
    source: str
    announced_from_driver: int | None = None
    """The driver branch from which Xid 154 announces the step that this code needs."""


def fault_ref(kind: str, code: str) -> str:
    """The name of a fault as companions are listed: `xid:48`."""
    return f"{kind}:{code}"


def role_beside(judgement: Judgement, near: frozenset[str]) -> Role:
    """The role of a code given the other faults (`fault_ref`) near it, on its device or its link's other end."""
    if judgement.role == "root" and not near.isdisjoint(judgement.yields_to):
        return "sympathetic"
    return judgement.role
