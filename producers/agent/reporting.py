"""What one round of looking comes to: a health report, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from faultlens.clock import iso
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import Check, Device, DeviceRef, NodeHealth
from producers.agent.configuration import Configuration
from producers.agent.probe import Looked
from producers.agent.state import Memory

UNHEALTHY: Final = frozenset({"fail", "timeout", "error", "missing"})
# While one of these is not known, no GPU of the node is known to work.
_ABOUT_ALL: Final = frozenset({"gpu_count", "driver_responds"})


def report(
    configuration: Configuration, memory: Memory, looked: Looked, *, version: str, at_ms: int
) -> tuple[Event, Memory]:
    """Return the report of a round and the memory after it.

    A check that was reported before and is not any more, without being `off`, is `missing`: an upgrade that lost a
    probe must not look like health.
    """
    checks = (*looked.checks, *_vanished(memory, looked.checks, version))
    total = _total(configuration, memory, looked.devices)
    told = f"{memory.boot_id}/{_named(looked.devices)}"
    is_news = looked.devices is not None and told != memory.told_inventory
    data = NodeHealth(
        configuration.node,
        configuration.cluster,
        configuration.interval_s,
        total,
        allocatable(total, checks),
        checks,
        pool=configuration.pool,
        boot_id=memory.boot_id,
        domains=configuration.domains,
        gpu_family=configuration.family,
        host_id=configuration.host_id,
        provider_id=configuration.provider_id,
        devices=looked.devices if is_news else None,
        driver_version=looked.driver_version,
        agent_version=version,
    )
    id_ = stable_id("health", configuration.cluster, configuration.node, memory.boot_id, at_ms)
    event = event_of(data, source=source_of(configuration), id_=id_, time_ms=at_ms)
    names = tuple(dict.fromkeys(check.name for check in checks))
    memory = replace(
        memory,
        checks=names,
        version=version if not _vanished(memory, looked.checks, version) else memory.version,
        told_inventory=told if is_news else memory.told_inventory,
        gpus=total,
    )
    return event, memory


def source_of(configuration: Configuration) -> str:
    """Return the name under which the agent speaks."""
    return f"agent/{configuration.node}"


def _vanished(memory: Memory, checks: Iterable[Check], version: str) -> list[Check]:
    now = {check.name for check in checks}
    before = f"was checked by version {memory.version or '?'} of the agent and is not by {version}"
    why = f"{before}: if that is meant, name it under `not_needed` with the reason"
    return [Check(name, "agent", "missing", message=why) for name in memory.checks if name not in now]


def _total(configuration: Configuration, memory: Memory, devices: Sequence[Device] | None) -> int:
    """Return how many GPUs the node has: as configured, as there are, or as there were when last it was known."""
    if configuration.role == "cpu":
        return 0
    return configuration.gpus or (len(devices) if devices is not None else memory.gpus)


def allocatable(total: int, checks: Iterable[Check]) -> int:
    """Return how many GPUs are known to be well: none while it is not known of all of them."""
    bad = set()
    for check in checks:
        if check.status not in UNHEALTHY:
            continue
        if check.name in _ABOUT_ALL:
            return 0
        if isinstance(check.device, DeviceRef) and check.device.index is not None:
            bad.add(check.device.index)
    return max(0, total - len(bad))


def _named(devices: Sequence[Device] | None) -> str:
    return ",".join(device.uuid or str(device.index) for device in devices or ())


def told(event: Event) -> str:
    """Return a report in one line, for a person who looks over the agent's shoulder."""
    data = event.data
    if not isinstance(data, NodeHealth):
        return f"{iso(event.time_ms)} {event.type}"
    bad = [f"{check.name} {check.status}" for check in data.checks if check.status not in ("pass", "off")]
    state = ", ".join(bad) or "all well"
    return f"{iso(event.time_ms)} {data.node}: {data.gpus_allocatable} of {data.gpus_total} GPUs, {state}"
