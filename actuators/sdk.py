"""The class that an actuator is written as: what it can do, and how it does one command."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final, Protocol

from faultlens.events import Action, RemediationCommand

Beat = Callable[[], None]
# Why nothing more is done to a node for an incident that a person ended before we heard of it.
PUT_BACK: Final = "somebody has put the node back since it was taken out"


class Refused(Exception):  # noqa: N818 - an answer, and no error of ours
    """The command is not carried out, and nothing was changed. Begin the reason with `unsupported` if it never is."""


class Failed(Exception):  # noqa: N818 - as above
    """The command was begun and did not succeed."""


class Memory(Protocol):
    """What is kept of one command, so that whoever goes on after a kill finds it (`Ledger.memory_of`)."""

    def recall(self) -> bytes | None:
        """Return what was kept."""
        ...

    def keep(self, note: bytes) -> None:
        """Keep it; it is on disk when this returns."""
        ...


class Actuator(ABC):
    """Carries out commands. Write `do`, name your `actions`, and a `Worker` does the rest.

    The worker sees to it that each command is carried out once, not after its latest start, only on the boot that it
    is meant for, and that its end is told. `do` may be killed at any point and called again: it must be idempotent.
    """

    name: ClassVar[str] = "actuator"
    actions: frozenset[Action] = frozenset()

    @abstractmethod
    def do(self, command: RemediationCommand, beat: Beat) -> str:
        """Carry the command out and return what was done, in a few words. Raises Refused, Failed.

        Call `beat` now and then while it takes long: it says that the command is still being worked on, and raises
        Failed when it has run out of time.
        """

    def boot_id(self, node: str) -> str | None:
        """Return the boot that the node is in; None: that cannot be told, and nothing is fenced by it."""
        return None
