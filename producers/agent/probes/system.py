"""The host's clock, memory and services."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from faultlens.events import Check, Component
from producers.agent.probe import MissingError

EDAC: Final = Path("/sys/devices/system/edac/mc")
PROCESSES: Final = Path("/proc")
# adjtimex(2): the clock is not synchronised.
_TIME_ERROR: Final = 5
_COMM_CHARS: Final = 15


class _Timex(ctypes.Structure):
    """The head of the kernel's struct timex, with room for the rest of it."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror_us", ctypes.c_long),
        ("esterror_us", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


def look_at_clock() -> list[Check]:
    """Check that something keeps the clock right: on a wrong one evidence looks too early or too late."""
    told = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(told))
    if state < 0:
        raise OSError(ctypes.get_errno(), "adjtimex failed")
    return [judge_clock(synchronised=state != _TIME_ERROR, error_ms=told.maxerror_us / 1_000)]


def judge_clock(*, synchronised: bool, error_ms: float) -> Check:
    """Return the check of the clock. One that is not synchronised misleads, but harms no job."""
    if synchronised:
        return Check("clock", "kernel", "pass", message=f"within {error_ms:.0f} ms")
    return Check("clock", "kernel", "warn", None, "unsynchronised", "nothing keeps the clock right (NTP or PTP)")


def look_at_memory(directory: Path = EDAC) -> list[Check]:
    """Check the memory controllers' counts since boot. MissingError: the kernel counts none here."""
    controllers = sorted(directory.glob("mc*"))
    if not controllers:
        raise MissingError(f"no memory controller under {directory}: the kernel's EDAC driver is not loaded")
    return [judge_memory([(c.name, _number(c / "ue_count"), _number(c / "ce_count")) for c in controllers])]


def judge_memory(counts: Iterable[tuple[str, int, int]]) -> Check:
    """Return the check of the host's memory: any uncorrectable error since boot fails it."""
    bad = {name: uncorrectable for name, uncorrectable, _ in counts if uncorrectable}
    if not bad:
        return Check("host_memory", "memory", "pass")
    told = ", ".join(f"{name}: {count}" for name, count in bad.items())
    return Check("host_memory", "memory", "fail", None, "uncorrectable", f"uncorrectable errors since boot: {told}")


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


def look_for_services(
    check: str, component: Component, names: Sequence[str], processes: Path = PROCESSES
) -> list[Check]:
    """Check that one of the named processes runs: a service's own word is not needed, nor its manager."""
    wanted = {name[:_COMM_CHARS] for name in names}
    return [judge_service(check, component, names, found=bool(wanted & set(_running(processes))))]


def judge_service(check: str, component: Component, names: Sequence[str], *, found: bool) -> Check:
    """Return the check of a service that jobs cannot do without."""
    if found:
        return Check(check, component, "pass")
    message = f"no process {' or '.join(names)}"
    return Check(check, component, "fail", None, "not_running", message)


def _running(processes: Path) -> Iterable[str]:
    for entry in processes.iterdir():
        if entry.name.isdigit():
            try:
                yield (entry / "comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
            except OSError:
                continue  # it has ended meanwhile
