"""Trouble of jobs that have not failed: slow ranks, hangs, slow links, crash loops, waits for lost capacity."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from statistics import median
from typing import Final

from msgspec import Struct

from faultlens.clock import MINUTE_MS
from faultlens.events import FAILURES, Outcome, Quantiles
from faultlens.internal import Observation
from streams.goodput import Ledger, last_progress_ms, recent_slowdown, stalled_since

# A rank is slow when it takes so much longer than the middle of the others, and by more than 3 MAD like a slow step.
SLOW_RANK_RATIO: Final = 1.2
SLOW_RANK_MADS: Final = 3.0
# It is told when that held for so long and so many reports in a row. Four minutes: Minder (NSDI 2025), whose
# candidate must persist that long; five rounds: ByteRobust (SOSP 2025).
SLOW_RANK_FOR_MS: Final = 4 * MINUTE_MS
SLOW_RANK_REPORTS: Final = 5
# Two ranks cannot tell which of them is the slow one.
MIN_RANKS: Final = 3
MAX_SLOW_RANKS: Final = 16

# A job that says nothing is told to hang only after this, half of the ten minutes in which collectives time out.
HANG_AFTER_MS: Final = 5 * MINUTE_MS

# All ranks slow: the newest steps take so much longer than the earlier ones.
LOW_BANDWIDTH_RATIO: Final = 1.2
LINK_CAUSES: Final = ("network.nic", "network.link", "fabric.nvlink", "fabric.nvswitch")

# Contract, retry advice: the third identical failure. Attempts that end within ten minutes loop even when their ends
# differ; that is the crash loop which looked like 95.8 % goodput by utilisation.
CRASHES_OF_A_LOOP: Final = 3
SHORT_LIVED_MS: Final = 10 * MINUTE_MS


# --- slow ranks ------------------------------------------------------------------------------------------


class SlowRank(Struct, frozen=True, array_like=True, gc=False):
    """A rank that was slower than the others in every one of `reports` reports since `since_ms`."""

    rank: int
    since_ms: int
    last_ms: int
    reports: int
    ratios: float

    @property
    def ratio(self) -> float:
        """How many times as long as the others it took, on average."""
        return self.ratios / self.reports

    @property
    def persists(self) -> bool:
        """Whether that is more than a moment's weakness."""
        return self.reports >= SLOW_RANK_REPORTS and self.last_ms - self.since_ms >= SLOW_RANK_FOR_MS


SlowRanks = tuple[SlowRank, ...]


def observe_ranks(
    known: SlowRanks, at_ms: int, ranks: Mapping[str, float] | None, quantiles: Quantiles | None = None
) -> SlowRanks:
    """Return the ranks that are slow now, with how long they have been; one report among the others clears a rank.

    `ranks` are step times in seconds: all of a small job, the outliers of a large one; then `quantiles` has the
    middle of all. A report without ranks, or older than the last, changes nothing.
    """
    if not ranks or any(slow.last_ms >= at_ms for slow in known):
        return known
    before = {slow.rank: slow for slow in known}
    found = []
    for rank, ratio in sorted(_ratios(ranks, quantiles).items(), key=lambda entry: (-entry[1], entry[0])):
        slow = before.get(rank, SlowRank(rank, at_ms, at_ms, 0, 0.0))
        found.append(SlowRank(rank, slow.since_ms, at_ms, slow.reports + 1, slow.ratios + ratio))
    return tuple(sorted(found[:MAX_SLOW_RANKS], key=lambda slow: slow.rank))


def _ratios(ranks: Mapping[str, float], quantiles: Quantiles | None) -> dict[int, float]:
    """Return, for each slow rank, its time over the middle of all."""
    times = {int(rank): time for rank, time in ranks.items() if rank.isdecimal() and time > 0}
    if quantiles is not None and quantiles.p50 > 0:
        middle, spread = quantiles.p50, 0.0
    elif len(times) >= MIN_RANKS:
        middle = median(times.values())
        spread = median(abs(time - middle) for time in times.values())
    else:
        return {}
    limit = max(SLOW_RANK_RATIO * middle, middle + SLOW_RANK_MADS * spread)
    return {rank: time / middle for rank, time in times.items() if time > limit}


def persistent(known: SlowRanks) -> SlowRanks:
    """Return the ranks whose slowness is to be told, the slowest first."""
    return tuple(sorted((slow for slow in known if slow.persists), key=lambda slow: (-slow.ratio, slow.rank)))


# --- hangs and slow links --------------------------------------------------------------------------------


def hang_since(ledger: Ledger, now_ms: int) -> int | None:
    """Return since when a running attempt hangs; None: it does not, as far as is known.

    A stall that a launcher reports is told at once, silence only after `HANG_AFTER_MS`.
    """
    since_ms = stalled_since(ledger, now_ms)
    if since_ms is None:
        return None
    silent_only = since_ms == last_progress_ms(ledger) and since_ms not in ledger.stalls_ms
    return None if silent_only and now_ms - since_ms < HANG_AFTER_MS else since_ms


class LowBandwidth(Struct, frozen=True, gc=False):
    """All ranks are slow by `ratio` while a node that they run on has a link in trouble."""

    link: Observation
    ratio: float


def low_bandwidth(ledger: Ledger, slow: SlowRanks, observations: Iterable[Observation]) -> LowBandwidth | None:
    """Return that all ranks of an attempt are slow while a link of what it holds is out of order.

    A single slow rank holds the others up too: then that is the finding. Of several links the earliest is named.
    """
    links = [seen for seen in observations if seen.open and seen.cause_code.startswith(LINK_CAUSES)]
    if not links or persistent(slow):
        return None
    ratio = recent_slowdown(ledger)
    if ratio is None or ratio < LOW_BANDWIDTH_RATIO:
        return None
    return LowBandwidth(min(links, key=lambda seen: (seen.since_ms, seen.id)), ratio)


# --- crash loops -----------------------------------------------------------------------------------------


class Crash(Struct, frozen=True, gc=False):
    """How an attempt ended: `signature` is what its failure is known by (cause code and first error line)."""

    attempt: int
    ended_ms: int
    ran_ms: int
    outcome: Outcome
    signature: str


class CrashLoop(Struct, frozen=True, gc=False):
    """The newest attempts in a row failed alike, or hardly ran."""

    attempts: tuple[int, ...]
    since_ms: int
    same: bool


def crash_loop(ends: Sequence[Crash]) -> CrashLoop | None:
    """Return the loop that a job's newest ends make: three failures in a row alike, or all short-lived; else None.

    An attempt that did not fail breaks a loop, except a preempted one, which says nothing of the job.
    """
    newest: list[Crash] = []
    for end in sorted(ends, key=lambda end: end.attempt, reverse=True):
        if end.outcome == "preempted":
            continue
        if end.outcome not in FAILURES:
            break
        newest.append(end)
    alike = takewhile(lambda end: end.signature and end.signature == newest[0].signature, newest)
    short = takewhile(lambda end: end.ran_ms < SHORT_LIVED_MS, newest)
    for same, run in ((True, alike), (False, short)):
        loop = list(run)
        if len(loop) >= CRASHES_OF_A_LOOP:
            return CrashLoop(tuple(end.attempt for end in reversed(loop)), loop[-1].ended_ms, same)
    return None


# --- waits for lost capacity -----------------------------------------------------------------------------

# What a scheduler says when devices or nodes that could serve the job are out of order.
# Slurm: job_reason_codes; a reservation is planned, and without names the list of unavailable nodes says nothing.
# Kubernetes: the scheduler's and the kubelet's events; taints of nodes by the node life cycle, of devices by KEP 5055.
_LOST_CAPACITY: Final = re.compile(
    r"""
      \bNodeDown\b | \bPartitionDown\b
    | \bUnavailableNodes\s*:\s*[\w\[]
    | \bnodes\ required\ for\ job\ are\ DOWN
    | \bdevice\(s\)\ had\ untolerated\ taint
    | \btaint\b .{0,12} node\.(?:cloudprovider\.)?kubernetes\.io/
    | \btaint\b .{0,80} (?:\blost\b|fault|fail|unhealthy|not-?ready|broken|degraded|quarantine|repair|\bxid\b)
    | \bnode\(s\)\ were\ (?:unschedulable|not\ ready|unhealthy)
    | \bunhealthy\ (?:device|gpu|node) | \bno\ healthy\ (?:device|gpu|node)
    | \bgpu\ is\ lost\b
    | \bUnexpectedAdmissionError\b | \bTopologyAffinityError\b
    | \bFailedBinding\b | \bfailed\ (?:to\ bind|binding) | \bbinding\ (?:failed|timed\ out|conditions?\ failed)
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
# Busy healthy capacity, quota, limits, holds and reservations: then it is these that the job waits for, even if some
# node of a large cluster is out of order at the same time.
_OTHERWISE: Final = re.compile(
    r"""
      \binsufficient\b | \bquota\b | \bexceeded\b | \b(?:Assoc|QOS|Max)\w*(?:Limit|Grp|Max|Per) | \bjob_?held
    | \bReservation\b | \breserved\ for\ maintenance | \bpersistent\ ?volume
    """,
    re.IGNORECASE | re.VERBOSE,
)
# A message is bounded by its record; what counts stands at its beginning.
_READ_CHARS: Final = 4_096


def pending_names_lost_capacity(reason: str, message: str | None) -> bool:
    """Return whether a scheduler's reason for letting a job wait names capacity that is lost.

    Lost are tainted or unhealthy devices and nodes, errors at admission and failed bindings; capacity that is busy
    with healthy work, quota, limits and holds are not.
    """
    text = f"{reason} {message or ''}"[:_READ_CHARS]
    return _LOST_CAPACITY.search(text) is not None and _OTHERWISE.search(text) is None
