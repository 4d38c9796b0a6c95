"""Rules on how the attempt ended, when nothing else explains it."""

from __future__ import annotations

from typing import Final

from faultlens.clock import MINUTE_MS, moment_of
from faultlens.events import EvidenceItem
from streams.attribution.facts import Facts
from streams.attribution.roots import spoken
from streams.attribution.verdict import Finding

_SIGNALS: Final = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
# A job that reported progress within its usual pace until minutes before its limit was healthy.
_HEALTHY_MS: Final = 10 * MINUTE_MS


def lost_capacity(facts: Facts) -> Finding | None:
    """An attempt that waited for capacity that is broken, until the scheduler gave up, failed by the platform."""
    if facts.started_ms is not None or not facts.lost_capacity:
        return None
    item = EvidenceItem(
        "symptom",
        facts.end.source,
        facts.end.id,
        moment_of(facts.end.at_ms),
        facts.pending.line or facts.end.message or "",
    )
    return Finding(
        "platform.scheduler", "supported", "Waited for capacity that was out of order", items=(item,), advice="retry"
    )


def hang(facts: Facts) -> Finding | None:
    """Progress stopped long before the end while no node shows a fault: the program hangs."""
    if facts.stalled_ms is None or spoken(facts).role == "root":
        return None
    suspects = ", ".join(map(str, facts.suspects[:8]))
    summary = "Progress stopped" + (f"; ranks {suspects} are absent from the collective" if suspects else "")
    return Finding("app.hang", "supported" if facts.suspects else "assumed", summary)


def time_limit(facts: Facts) -> Finding | None:
    """The time limit ended a job that went on until then; the limit was its user's choice."""
    if facts.end.outcome != "timed_out":
        return None
    progressing = facts.last_progress_ms is not None and facts.end.at_ms - facts.last_progress_ms <= _HEALTHY_MS
    healthy = progressing or not facts.reports_progress
    return Finding(
        "app.time_limit", "supported" if healthy else "assumed", "Its time limit ended it", advice="do_not_retry"
    )


def nothing_known(facts: Facts) -> Finding | None:
    """Nothing points anywhere: the program, by default."""
    if facts.end.outcome == "never_started":
        return Finding("platform.scheduler", "assumed", "Never started, nobody says why")
    if facts.end.unreported:
        return Finding("app.crash", "assumed", "Its reporter fell silent, and nothing says why")
    signal = facts.end.signal or max(0, (facts.end.exit_code or 0) - 128)
    name = _SIGNALS.get(signal)
    how = f"ended by {name}" if name else f"exit status {facts.end.exit_code}"
    return Finding("app.crash" if name else "app.exception", "assumed", f"Nothing known but that it {how}")
