"""Whether a node has proved itself: the record of its last test, and the check that keeps it out of work until then."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from faultlens.clock import SECOND_MS, iso
from faultlens.codec import Event, event_of, stable_id
from faultlens.errors import WorldError
from faultlens.events import Check, DeviceRef, NodeFault
from producers.agent.configuration import Configuration, Validation
from producers.agent.probes.sysfs import text_of
from producers.agent.reporting import UNHEALTHY, source_of

NAME: Final = "validation"
# What the test itself cannot prove; it keeps no node out of work by its own.
_NOT_ITS_OWN: Final = frozenset({NAME, "agent"})
_CODES: Final = frozenset({"compute_mismatch", "diagnostic_failed"})
_BAD_CHARS: Final = 300
_BOARD: Final = Path("/sys/class/dmi/id/product_uuid")
_SYSTEM: Final = Path("/etc/machine-id")


class Proof(Struct, frozen=True, omit_defaults=True):
    """What the last test came to: in which boot, on which machine and GPUs, when, and what was not well."""

    boot_id: str
    machine: str
    at_ms: int
    passed: bool
    bad: tuple[str, ...] = ()


def record_path(configuration: Configuration) -> Path:
    """Return where the last test is written down."""
    return configuration.state / "validation.json"


def machine_of(configuration: Configuration) -> str:
    """Return what tells this machine from one that takes its name over: as configured, its board's id, the system's."""
    return configuration.host_id or text_of(_BOARD) or text_of(_SYSTEM) or configuration.node


def load_tested(path: Path) -> Proof | None:
    """Return the last test; None: there was none that can be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Proof)
    except (OSError, msgspec.DecodeError):
        return None


def save_tested(path: Path, tested: Proof) -> None:
    """Write a test down, whole or not at all. WorldError: the disk does not take it."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(msgspec.json.encode(tested))
        unfinished.replace(path)
    except OSError as error:
        raise WorldError(f"{path} cannot be written: {error.strerror or error}") from None


def judged(checks: Iterable[Check], *, boot_id: str, machine: str, at_ms: int) -> Proof:
    """Return what checks and tests come to together: what is not known is no pass."""
    bad = [check for check in checks if check.status in UNHEALTHY and check.name not in _NOT_ITS_OWN]
    told = tuple(f"{check.name} {check.status}: {check.message or check.code or ''}"[:_BAD_CHARS] for check in bad)
    return Proof(boot_id, machine, at_ms, not bad, told)


def standing(wanted: Validation, tested: Proof | None, *, boot_id: str, machine: str, good_reports: int) -> Check:
    """Return the check `validation`: missing until this boot of this machine has passed its test and reported well."""
    if tested is None or (tested.boot_id, tested.machine) != (boot_id, machine):
        again = (
            "this machine has not been tested" if tested is None or tested.machine != machine else "it was restarted"
        )
        return Check(NAME, "agent", "missing", message=f"{again}: run faultlens validate-node")
    if not tested.passed:
        return Check(NAME, "agent", "fail", message=f"the test at {iso(tested.at_ms)} failed: {'; '.join(tested.bad)}")
    if good_reports < wanted.good_reports:
        told = f"{good_reports} of {wanted.good_reports} good reports since it was started"
        return Check(NAME, "agent", "missing", message=told)
    return Check(NAME, "agent", "pass", message=f"tested at {iso(tested.at_ms)}")


def good(checks: Iterable[Check]) -> bool:
    """Return whether a report is a good one, apart from what it waits for."""
    return all(check.status not in UNHEALTHY or check.name in _NOT_ITS_OWN for check in checks)


def is_due(tested: Proof | None, now_ms: int, every_s: float, *, boot_id: str, machine: str) -> bool:
    """Return whether a node is to be tested: in each boot of each machine, and again by a budget of one in so long."""
    if tested is None or (tested.boot_id, tested.machine) != (boot_id, machine):
        return True
    return now_ms - tested.at_ms >= every_s * SECOND_MS


def faults(configuration: Configuration, checks: Sequence[Check], *, boot_id: str, at_ms: int) -> list[Event]:
    """Return the faults of devices that a test found: wrong results, which nothing else shows."""
    found = []
    for check in checks:
        if check.status != "fail" or check.code not in _CODES:
            continue
        data = NodeFault(
            configuration.node,
            configuration.cluster,
            "other",
            check.code,
            "active_test",
            pool=configuration.pool,
            boot_id=boot_id,
            domains=configuration.domains,
            gpu_family=configuration.family,
            device=DeviceRef(index=check.device) if isinstance(check.device, int) else None,
            message=f"{check.name}: {check.message or ''}"[:_BAD_CHARS],
        )
        id_ = stable_id("tested", configuration.cluster, configuration.node, at_ms, check.name, str(check.device))
        found.append(event_of(data, source=source_of(configuration), id_=id_, time_ms=at_ms))
    return found
