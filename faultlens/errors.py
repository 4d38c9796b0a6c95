"""The errors that callers tell apart, drawn as a tree.

FaultlensError
├── InvalidEventError    one record is bad: it goes to dead-letters, everything else goes on
├── ConfigurationError   what a person wrote is wrong: say where and stop before starting
├── UsageError           the command was called wrongly (exit status 2)
└── WorldError           a broker, store or file failed (exit status 3)
"""

from __future__ import annotations

from typing import Literal

Reason = Literal[
    "not_json",
    "not_an_object",
    "too_large",
    "unknown_type",
    "missing_field",
    "bad_value",
    "subject_mismatch",
    "time_ahead",
    "processor_error",
]


class FaultlensError(Exception):
    """Base of all errors that faultlens raises on purpose."""


class InvalidEventError(FaultlensError):
    """A record is not an event of the contract; `reason` is what the dead letter is counted under."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class ConfigurationError(FaultlensError):
    """Settings, catalogue, signatures, policy or objectives are wrong; the message names file and line."""


class UsageError(FaultlensError):
    """The command line was wrong; the message says what to do instead."""


class WorldError(FaultlensError):
    """Something outside failed: no broker, no store, no disk."""
