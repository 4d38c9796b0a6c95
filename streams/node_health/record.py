"""What is kept of a node, with the limits on it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from faultlens.clock import DAY_MS
from faultlens.events import Check, Device, DeviceRef, NodeStateName
from faultlens.internal import Held, Observation, Released

# Contract, "Silence": a node is silent when it missed three intervals.
MISSED_INTERVALS: Final = 3
# Who has missed fewer than two counts as heard, when it is asked whether most are.
ON_TIME_INTERVALS: Final = 2
# Faults are kept for allocations that arrive after them, however far the lane of a job is behind within a day;
# released allocations for 7 days.
FAULTS_KEPT_MS: Final = DAY_MS
FAULTS_MAX: Final = 96
RELEASED_KEPT_MS: Final = 7 * DAY_MS
RELEASED_MAX: Final = 200
HELD_MAX: Final = 128
CONDITIONS_MAX: Final = 64
POOLS_MAX: Final = 8
# Of what a report says of the node itself: far more than any machine has.
CHECKS_MAX: Final = 256
DEVICES_MAX: Final = 128
DOMAINS_MAX: Final = 16
# In one record of evidence, as many as a job keeps of all its nodes: a record is to stay far below 256 KiB.
EVIDENCE_MAX: Final = 96
# Design §2: per device and code, the last jobs and users of 28 days.
USES_KEPT_MS: Final = 28 * DAY_MS
USES_MAX: Final = 8
# By then nothing that is kept of a node has a use any more.
FORGOTTEN_AFTER_MS: Final = 28 * DAY_MS
USE_KEYS_MAX: Final = 48
SEEN_BYTES: Final = 8 * 256
# A report that comes again is told by its time, but for one so late that its sender's clock seems to be wrong.
SEEN_REPORTS_BYTES: Final = 8 * 64


class Use(Struct, frozen=True, gc=False):
    """A job that met an application-like code on a device; `brought`: it met the like on other devices as well."""

    job_id: str
    attempt: int
    user: str
    image: str
    at_ms: int
    brought: bool = False


class Acts(Struct, frozen=True, gc=False):
    """What somebody did to the node and has not undone: since when, whether it was planned, by whom and why."""

    since_ms: int
    planned: bool
    actor: str
    reason: str = ""
    command_id: str | None = None


class Standing(Struct, frozen=True, gc=False):
    """The state that the node is in, as last published."""

    state: NodeStateName
    since_ms: int
    planned: bool
    gpus_total: int
    gpus_allocatable: int
    cause: str | None = None
    incident_id: str | None = None
    pool: str | None = None


class NodeRecord(Struct, frozen=True, omit_defaults=True):
    """Everything that is known of a node.

    `introduced`: a node event named it; `covered`: it has reported health at least once. `report_ms` is its newest
    report's own time, `reported_ms` when that arrived, `heard_ms` when anything else did, `looked_ms` when its silence
    was last judged. `counted_ms`: up to when its time was told to the objectives; `late_ms` of the time since then no
    report vouched for. `use_ms`: what its GPUs were used for in [use_from_ms, use_to_ms). `watch_until_ms`: up to when
    remediation wants to know of every report; `facts_told` stands for what it was told last. `pools`: the last that it
    was in by its published states, each with since when. `namesakes`: what is known of nodes of this name in other
    clusters, by cluster (there should be none).
    """

    node: str
    cluster: str = ""
    pool: str | None = None
    domains: dict[str, str] = {}
    gpu_family: str | None = None
    driver_version: str | None = None
    agent_version: str | None = None
    boot_id: str | None = None
    boot_ms: int | None = None
    host_id: str | None = None
    devices: tuple[Device, ...] = ()
    gpus_total: int = 0
    gpus_allocatable: int = 0
    introduced: bool = False
    covered: bool = False
    interval_ms: int = 0
    report_ms: int = 0
    checks: tuple[Check, ...] = ()
    conditions: dict[str, Observation] = {}
    faults: tuple[Observation, ...] = ()
    held: dict[str, Held] = {}
    released: tuple[Released, ...] = ()
    answers_due: tuple[Released, ...] = ()
    uses: dict[str, tuple[Use, ...]] = {}
    cordon: Acts | None = None
    drain: Acts | None = None
    down: Acts | None = None
    removed: Acts | None = None
    silent_since_ms: int | None = None
    looked_ms: int = 0
    standing: Standing | None = None
    counted_ms: int = 0
    late_ms: int = 0
    reported_ms: int = 0
    heard_ms: int = 0
    use_ms: dict[str, int] = {}
    use_from_ms: int = 0
    use_to_ms: int = 0
    watch_until_ms: int = 0
    facts_told: bytes = b""
    seen: bytes = b""
    seen_reports: bytes = b""
    overflow: int = 0
    pools: tuple[tuple[int, str], ...] = ()
    namesakes: dict[str, NodeRecord] = {}


def holding_key(job_id: str, attempt: int) -> str:
    """Return the name of an attempt as records of a node keep it."""
    return f"{job_id}/{attempt}"


def index_of(record: NodeRecord, device: DeviceRef | None) -> int | None:
    """Return the index of the device by the inventory; None: it cannot be told which one it is."""
    if device is None:
        return None
    if device.index is not None:
        return device.index
    for known in record.devices:
        if device.uuid is not None and known.uuid == device.uuid:
            return known.index
        if device.serial is not None and known.serial == device.serial:
            return known.index
        if device.pci is not None and known.pci is not None and same_pci(known.pci, device.pci):
            return known.index
    return None


def same_pci(one: str, other: str) -> bool:
    """Return whether two PCI addresses name the same function (contract, `devices`)."""
    return normal_pci(one) == normal_pci(other)


def normal_pci(address: str) -> str:
    """Return the address as lower-case domain:bus:device.function, domain of 4 digits, a missing function 0."""
    text = address.strip().lower()
    body, _, function = text.partition(".")
    parts = body.split(":")
    if len(parts) == 2:
        parts = ["0000", *parts]
    domain = parts[0][-4:].rjust(4, "0")
    return f"{domain}:{':'.join(parts[1:])}.{function or '0'}"


def named(record: NodeRecord, device: DeviceRef | None) -> DeviceRef | None:
    """Return the device with its index, UUID and serial filled in from the inventory where it can be found."""
    index = index_of(record, device)
    if device is None or index is None:
        return device
    known = next((d for d in record.devices if d.index == index), None)
    return DeviceRef(
        index=index,
        uuid=device.uuid or (known.uuid if known else None),
        pci=device.pci or (known.pci if known else None),
        serial=device.serial or (known.serial if known else None),
        mig=device.mig,
        link=device.link,
        dra=device.dra,
    )
