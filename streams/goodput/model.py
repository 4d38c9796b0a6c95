"""What a ledger of one attempt keeps, and the limits of it."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from faultlens.clock import MINUTE_MS
from faultlens.events import Category, Cause, Outcome

# The newest of each that are kept as they were told. Beyond that the older half is settled: kept as pieces of time.
MAX_STEPS: Final = 256
MAX_SAVES: Final = 64
MAX_SIZES: Final = 64
MAX_STALLS: Final = 8
# Settled pieces: more are laid together, an hour's slow steps into one piece.
MAX_BLOCKS: Final = 128
# Without a flush between them more changes of size than this are not kept one by one.
MAX_UNFLUSHED_BLOCKS: Final = 1_024
# So many good checkpoints a later restore can go back to.
MAX_KEEPS: Final = 4
# Causes that parts of the time are charged to (recovery, slow, stalled, one for each loss).
MAX_CHARGES: Final = 64

# Contract: a step is slow when longer than the job's median by more than 3 MAD and 5 %.
SLOW_MADS: Final = 3.0
SLOW_SHARE: Final = 0.05
# Fewer steps than this have no median worth the name.
MIN_SAMPLES: Final = 5
# Nothing for so many normal intervals between two progress records is a stall, like the contract's three missed
# reports are silence; never less than a minute.
STALL_INTERVALS: Final = 3
STALL_AT_LEAST_MS: Final = MINUTE_MS
# User code that ran so long without a word on its progress belongs to a job that does not report any; below that it
# was still starting. As long as the cap that Kokolis et al. (HPCA 2025) put on what a failure can have lost.
SILENT_START_MS: Final = 30 * MINUTE_MS

# Outcomes after which what was done since the last good checkpoint is lost.
LOSING: Final[frozenset[str]] = frozenset({"failed", "timed_out", "never_started", "preempted"})
# Workloads whose work is done when it is done: a served request or an hour of a session is not lost by the end.
KEEPING_WORKLOADS: Final[frozenset[str]] = frozenset({"inference", "interactive"})

# What a part of the time is charged to: `end` the attempt's own end, `recovery` what the attempt recovers from,
# `slow` and `stalled` findings, `loss N` a loss that the attempt survived; empty: to nobody.
ChargeTo = Literal["recovery", "slow", "stalled"]


class Step(Struct, frozen=True, array_like=True, gc=False):
    """`step` was complete at `at_ms`; `took_ms` is its reported duration, 0 where none was given."""

    at_ms: int
    step: int
    took_ms: int = 0


class Save(Struct, frozen=True, array_like=True, gc=False):
    """A checkpoint of `step` was saved or restored in [from_ms, to_ms)."""

    from_ms: int
    to_ms: int
    step: int
    ok: bool
    restored: bool
    blocking: bool

    @property
    def stops_work(self) -> bool:
        """Whether no steps are done meanwhile."""
        return self.blocking or self.restored


def order(save: Save) -> tuple[int, int, int, bool, bool, bool]:
    """Return the order in which saves are kept: the same for the same saves, in whatever order they were told."""
    return save.to_ms, save.from_ms, save.step, save.restored, save.ok, save.blocking


class Keep(Struct, frozen=True, array_like=True, gc=False):
    """What was done before `at_ms`, up to `step`, is in a good checkpoint."""

    at_ms: int
    step: int


class Size(Struct, frozen=True, array_like=True, gc=False):
    """The attempt holds `gpus` from `at_ms` on; `loss` numbers the loss that made it smaller (0: none)."""

    at_ms: int
    gpus: int
    loss: int = 0


class Pace(Struct, frozen=True, array_like=True, gc=False):
    """How long a step of the job normally takes on so many GPUs, and how long it is between two progress records."""

    gpus: int
    median_ms: float
    mad_ms: float
    interval_ms: float

    @property
    def slow_from_ms(self) -> float:
        """A step longer than this is slow."""
        return self.median_ms + max(SLOW_MADS * self.mad_ms, SLOW_SHARE * self.median_ms)


class Piece(Struct, frozen=True, array_like=True, gc=False):
    """What [from_ms, to_ms) was spent on, and what it is charged to, before the outcome has its say."""

    category: Category
    from_ms: int
    to_ms: int
    gpus: int = 0
    charge: str = ""


class Interval(Struct, frozen=True, array_like=True, gc=False):
    """What [from_ms, to_ms) of an attempt was spent on; `cause` is whose fault that was, where it was a fault."""

    category: Category
    from_ms: int
    to_ms: int
    gpus: int
    cause: Cause | None = None

    @property
    def gpu_ms(self) -> int:
        """GPU-milliseconds, exact."""
        return (self.to_ms - self.from_ms) * self.gpus


class Ledger(Struct, frozen=True, omit_defaults=True):
    """The evidence of what one attempt's time was spent on, bounded; `intervals` says what follows from it.

    What is older than `settled_ms` is kept as `blocks`, what is older than those only as sums of GPU-milliseconds.
    `anchor` is the last step before `settled_ms`, `begun` that there was one. `written` is what the last flush said;
    `late` counts what came too late, or beyond a limit, to be kept.
    """

    attempt: int
    from_ms: int
    gpus: int
    settled_ms: int
    keeps_work: bool = False
    base_step: int = 0
    started_ms: int | None = None
    pace: Pace | None = None
    anchor: Step | None = None
    begun: bool = False
    steps: tuple[Step, ...] = ()
    saves: tuple[Save, ...] = ()
    sizes: tuple[Size, ...] = ()
    stalls_ms: tuple[int, ...] = ()
    keeps: tuple[Keep, ...] = ()
    charges: dict[str, Cause] = {}
    next_restore: int | None = None
    end_ms: int | None = None
    outcome: Outcome | None = None
    cause: Cause | None = None
    blocks: tuple[Piece, ...] = ()
    sums: dict[str, int] = {}
    written: tuple[Interval, ...] = ()
    revision: int = 0
    late: int = 0

    @property
    def closed(self) -> bool:
        """Whether the attempt has ended."""
        return self.end_ms is not None
