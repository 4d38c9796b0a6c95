"""Whether to try again, and where: the verdict decides, not the exit code."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from faultlens.events import JobAttributed
from producers.launcher.telling import Ending


class Decision(Struct, frozen=True):
    """What to do after an attempt: `again`, or not, away from which nodes; and why, in words."""

    again: bool
    why: str
    exclude: tuple[str, ...] = ()


class Here(Struct, frozen=True):
    """Where a launcher runs a command again: on this node, which it cannot leave; `under`: what runs all ranks."""

    node: str
    under: str | None = None


# Contract, retry advice: so many identical failures are the job's own, however little is known of them.
IDENTICAL: Final = 3


def decide(
    ending: Ending, verdict: JobAttributed | None, *, retries_left: int, here: Here | None, alike: int = 1
) -> Decision:
    """Return whether the command is run again. `here`: where that would be (None: a scheduler chooses another place);
    `alike`: how many failures in a row were like this one.

    Without a verdict (nothing could be said in time) it is run again: a retry costs less than a job that stands still.
    """
    if ending.succeeded:
        return Decision(False, "it succeeded")
    if ending.asked_to_end:
        return Decision(False, "it was asked to end")
    if retries_left <= 0:
        return Decision(False, "no retries are left")
    if here is not None and here.under is not None:
        return Decision(False, f"one rank alone would not help, and {here.under} starts all of them")
    if verdict is None:
        return Decision(True, "no verdict came in time")
    return _by_verdict(verdict, here, alike)


def is_sure(verdict: JobAttributed) -> bool:
    """Return whether a verdict is founded on something and will not change any more, as far as is known."""
    return verdict.basis != "assumed" and verdict.status in ("final", "amended")


def _by_verdict(verdict: JobAttributed, here: Here | None, alike: int) -> Decision:
    cause, exclude = verdict.cause, tuple(verdict.retry.exclude_nodes)
    blamed = f"{cause.cause_class} is to blame ({cause.code}, {verdict.basis})"
    if verdict.retry.advice == "do_not_retry" and (is_sure(verdict) or alike >= IDENTICAL):
        return Decision(False, f"{blamed}: the same would happen again")
    if verdict.retry.advice == "do_not_retry":
        return Decision(True, f"{blamed}, which is not sure yet")
    if verdict.retry.advice == "retry_elsewhere" and here is not None and (here.node in exclude or not exclude):
        where = f"{blamed}: it must run elsewhere, and a launcher cannot leave {here.node}"
        return Decision(False, where, exclude)
    return Decision(True, blamed, exclude)
