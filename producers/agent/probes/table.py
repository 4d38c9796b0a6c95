"""Which probes a node's configuration asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from faultlens.errors import ConfigurationError
from faultlens.events import Check, Component
from producers.agent.configuration import Configuration, Links, off_by_role
from producers.agent.instance_types import expected_links, type_of_this_machine
from producers.agent.probe import Probe
from producers.agent.probes import amd, dcgm, links, neuron, nvidia, storage, system

MODULES: Final = (
    "producers.agent.probes.amd",
    "producers.agent.probes.neuron",
    "producers.agent.probes.dcgm",
    "producers.agent.probes.links",
    "producers.agent.probes.nvidia",
    "producers.agent.probes.storage",
    "producers.agent.probes.system",
)
# Told by the agent itself and not by a probe; these cannot be switched off.
OWN: Final[Mapping[str, Component]] = {"agent": "agent", "kernel_log": "kernel"}
_EACH_GPU: Final[Mapping[str, Component]] = {
    "ecc": "gpu", "nvlink": "gpu", "pcie": "pcie", "thermal": "cooling", "power": "power",
}  # fmt: skip
_COMPONENTS: Final[Mapping[str, Component]] = {
    **_EACH_GPU, "gpu_count": "gpu", "driver_responds": "driver", "dcgm": "gpu", "fabric_manager": "driver",
    "persistence": "driver", "container_runtime": "runtime", "local_disk": "storage", "mounts": "storage",
    "ib_links": "nic", "efa_links": "nic", "clock": "kernel", "host_memory": "memory",
}  # fmt: skip


def probes_of(configuration: Configuration, seen: Mapping[str, int] | None = None) -> list[Probe]:
    """Return the probes to run. `seen`: how many links of each kind an earlier boot had.

    ConfigurationError: a check that is not needed does not exist at all.
    """
    off = off_by_role(configuration)
    unknown = sorted(off.keys() - _COMPONENTS.keys())
    if unknown:
        known = ", ".join(sorted(_COMPONENTS))
        raise ConfigurationError(f"not_needed: no check {', '.join(unknown)}; known are {known}")
    return [probe for probe in _all(configuration, seen or {}) if probe.name not in off]


def off_checks(configuration: Configuration) -> list[Check]:
    """Return the checks that this node does not need, as such."""
    off = off_by_role(configuration)
    return [Check(name, _COMPONENTS[name], "off", message=reason) for name, reason in off.items()]


Look = tuple[str, object, tuple[object, ...]]


def _of_nvidia(configuration: Configuration) -> Iterator[Look]:
    yield "gpu_count", nvidia.look_at_count, (configuration.gpus,)
    yield "driver_responds", nvidia.look_at_driver, ()
    for name in _EACH_GPU:
        yield name, nvidia.look_at_each, (name,)


def _of_amd(configuration: Configuration) -> Iterator[Look]:
    deadline_s = configuration.deadline_s
    yield "gpu_count", amd.look_at_count, (configuration.gpus, deadline_s)
    yield "driver_responds", amd.look_at_driver, (deadline_s,)
    yield "ecc", amd.look_at_ecc, (deadline_s,)
    yield "thermal", amd.look_at_heat, (deadline_s,)


def _of_neuron(configuration: Configuration) -> Iterator[Look]:
    yield "gpu_count", neuron.look_at_count, (configuration.gpus,)
    yield "driver_responds", neuron.look_at_driver, ()
    yield "ecc", neuron.look_at_ecc, ()


_OF_VENDORS: Final = {"nvidia": _of_nvidia, "amd": _of_amd, "neuron": _of_neuron}


def _all(configuration: Configuration, seen: Mapping[str, int]) -> Iterator[Probe]:
    deadline_s = configuration.deadline_s

    def probe(name: str, look: object, *arguments: object) -> Probe:
        return Probe(name, {name: _COMPONENTS[name]}, look, arguments, deadline_s)  # type: ignore[arg-type]

    for name, look, arguments in _OF_VENDORS[configuration.vendor](configuration):
        yield probe(name, look, *arguments)
    yield probe("local_disk", storage.look_at_disks, configuration.disks)
    yield probe("clock", system.look_at_clock)
    yield probe("host_memory", system.look_at_memory)
    for name in ("fabric_manager", "persistence", "container_runtime"):
        names: tuple[str, ...] | None = getattr(configuration, name)
        if names:
            yield probe(name, system.look_for_services, name, _COMPONENTS[name], names)
    if configuration.mounts is not None:
        yield probe("mounts", storage.look_at_mounts, configuration.mounts)
    instance_type = type_of_this_machine(configuration)
    kinds: tuple[links.Kind, ...] = ("ib_links", "efa_links")
    for kind in kinds:
        asked: Links | None = getattr(configuration, kind)
        if asked is not None:
            wanted = expected_links(kind, asked, instance_type)
            yield probe(kind, links.look_at_links, kind, wanted.expected, wanted.gbit_s, seen.get(kind, 0))
    if configuration.dcgm is not None:
        yield probe("dcgm", dcgm.look_at_health, configuration.dcgm.program, configuration.dcgm.timeout_s)
