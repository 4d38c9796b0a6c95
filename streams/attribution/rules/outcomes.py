"""Rules on how the attempt ended, when nothing else explains it."""

from __future__ import annotations

from typing import Final

from faultlens.clock import MINUTE_MS, moment_of
from faultlens.events import EvidenceItem
from streams.attribution.exits import OWN_SIGNALS, signal_of
from streams.attribution.facts import Facts
from streams.attribution.roots import first_exit, has_prefix, in_window, spoken, too_late
from streams.attribution.verdict import Finding

_AGAINST: Final = frozenset({"root", "unexpected"})
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
    said = spoken(facts)
    if facts.stalled_ms is None or (said.role == "root" and not has_prefix(said.cause_code, ("app.time_limit",))):
        return None
    suspects = ", ".join(map(str, facts.suspects[:8]))
    summary = "Progress stopped" + (f"; ranks {suspects} are absent from the collective" if suspects else "")
    return Finding("app.hang", "supported" if facts.suspects else "assumed", summary)


def exited_by_itself(facts: Facts) -> Finding | None:
    """Nothing was printed, no node that was held shows a fault, and the program ended by itself or crashed."""
    code, signal = _exit_of(facts)
    if facts.end.outcome != "failed" or facts.end.unreported or not facts.held or facts.stalled_ms is not None:
        return None
    if spoken(facts).line not in ("", facts.end.reason) or _fault_seen(facts):
        return None
    if signal is not None:
        name = _SIGNALS.get(signal, f"signal {signal}")
        return Finding("app.crash", "supported", f"The program crashed ({name})") if signal in OWN_SIGNALS else None
    if not code:
        return None
    return Finding(
        "app.exception", "supported", f"The program ended with exit status {code}, and nothing else happened"
    )


def _fault_seen(facts: Facts) -> bool:
    return any(o.role in _AGAINST and in_window(facts, o) and not too_late(facts, o) for o in facts.observations)


def _exit_of(facts: Facts) -> tuple[int | None, int | None]:
    """Return exit status and signal of the first rank that exited, or of the end; a shell's 128 + n is signal n."""
    first = first_exit(facts)
    code, signal = (facts.end.exit_code, facts.end.signal) if first is None else (first.exit_code, first.signal)
    return code, signal_of(code, signal)


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
    if facts.loss is not None:
        return Finding("app.crash", "assumed", "Workers were lost, and nothing says why")
    code, signal = _exit_of(facts)
    name = _SIGNALS.get(signal or 0)
    how = f"was ended by {name}" if name else f"ended with exit status {code}"
    return Finding("app.crash" if name else "app.exception", "assumed", f"Nothing known but that it {how}")
