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
# How a person says that a verdict is not to keep a command from being run again.
ANYWAY: Final = "--retry-on failure"


def decide(
    ending: Ending,
    verdict: JobAttributed | None,
    *,
    retries_left: int,
    here: Here | None,
    alike: int = 1,
    anyway: bool = False,
) -> Decision:
    """Return whether the command is run again. `here`: where that would be (None: a scheduler chooses another place);
    `alike`: how many failures in a row were like this one; `anyway`: whatever the verdict says.

    Without a verdict (nothing could be said in time) it is run again: a retry costs less than a job that stands still.
    """
    why = settled(ending, retries_left, here)
    if why is not None:
        return Decision(False, why)
    if verdict is None:
        return Decision(True, "no verdict came in time")
    decision = _by_verdict(verdict, here, alike)
    if decision.again:
        return decision
    if anyway:
        return Decision(True, f"{ANYWAY} asks for it, whoever is to blame", decision.exclude)
    left = "1 retry is" if retries_left == 1 else f"{retries_left} retries are"
    return Decision(False, f"{decision.why}; {left} left, and {ANYWAY} uses them all the same", decision.exclude)


def settled(ending: Ending, retries_left: int, here: Here | None) -> str | None:
    """Return why it is not run again whatever the verdict; None: the verdict decides."""
    if ending.succeeded:
        return "it succeeded"
    if ending.asked_to_end:
        return "it was asked to end"
    if retries_left <= 0:
        return "no retries are left"
    if here is not None and here.under is not None:
        return f"one rank alone would not help, and {here.under} starts all of them"
    return None


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
