"""The registry of cause codes: what a failure can be charged to, from general to special."""

from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from faultlens.events import CauseClass

__all__ = [
    "CAUSES",
    "CAUSE_CLASSES",
    "CauseClass",
    "CauseInfo",
    "UnknownCauseError",
    "class_of",
    "is_known",
    "nearest",
    "title_of",
]

CAUSE_CLASSES: Final[tuple[CauseClass, ...]] = ("hardware", "driver", "platform", "user")


class CauseInfo(NamedTuple):
    """What a cause code stands for: the class it is charged to and a title for people."""

    cause_class: CauseClass
    title: str


class UnknownCauseError(ValueError):
    """A cause code whose first word is none of the registry's."""


# The first word of a code decides its class, so a code can be made more special without asking again
# who is charged.
_CLASS_OF_FIRST_WORD: Final[Mapping[str, CauseClass]] = MappingProxyType(
    {
        "gpu": "hardware",
        "fabric": "hardware",
        "network": "hardware",
        "host": "hardware",
        "driver": "driver",
        "platform": "platform",
        "app": "user",
    }
)

_TITLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "gpu.memory": "GPU memory",
        "gpu.memory.uncorrectable": "Uncorrectable GPU memory error",
        "gpu.memory.uncontained": "Uncontained GPU memory error",
        "gpu.memory.contained": "Contained GPU memory error",
        "gpu.memory.remap_pending": "GPU memory row waits for its remap",
        "gpu.memory.remap_failed": "GPU memory row could not be remapped",
        "gpu.memory.spares_exhausted": "GPU memory has no spare rows left",
        "gpu.memory.correctable": "Many corrected GPU memory errors",
        "gpu.off_bus": "GPU lost from the bus",
        "gpu.compute": "GPU does not compute as it should",
        "gpu.compute.wrong_result": "GPU computes wrong results",
        "gpu.compute.timeout": "GPU stopped making progress",
        "gpu.compute.initialisation": "GPU failed to initialise",
        "gpu.compute.repeated_fault": "Same GPU faults under different users",
        "gpu.thermal": "GPU too hot",
        "gpu.thermal.slowdown": "GPU slowed down by heat",
        "gpu.thermal.shutdown": "GPU shut down by heat",
        "gpu.thermal.cooling": "Cooling of the GPUs is weak",
        "gpu.firmware": "GPU firmware or microcontroller",
        "gpu.firmware.microcontroller": "GPU microcontroller halted",
        "gpu.firmware.security": "GPU security fault",
        "gpu.firmware.inforom": "GPU configuration storage",
        "gpu.unknown": "Unknown or unexpected fault code",
        "fabric.nvlink": "NVLink",
        "fabric.nvlink.link": "NVLink error",
        "fabric.nvlink.training": "NVLink failed to train",
        "fabric.nvlink.signal": "NVLink signal quality",
        "fabric.nvlink.firmware": "NVLink firmware",
        "fabric.nvlink.chip_to_chip": "Link between CPU and GPU chips",
        "fabric.xgmi": "Link between AMD GPUs",
        "fabric.nvswitch": "NVSwitch",
        "fabric.nvswitch.port": "NVSwitch port",
        "fabric.nvswitch.fatal": "Fatal NVSwitch error",
        "fabric.nvswitch.thermal": "NVSwitch too hot",
        "fabric.nvswitch.firmware": "NVSwitch firmware",
        "fabric.nvswitch.cable": "NVSwitch cable or optics",
        "network.nic": "Network adapter",
        "network.nic.firmware": "Network adapter firmware",
        "network.link": "Network link",
        "network.link.down": "Network link down",
        "network.link.flap": "Network link flaps",
        "network.link.degraded": "Network link below its speed",
        "host.memory": "Host memory",
        "host.memory.uncorrectable": "Uncorrectable host memory error",
        "host.memory.correctable": "Many corrected host memory errors",
        "host.cpu": "CPU",
        "host.cpu.machine_check": "CPU machine check",
        "host.cpu.lockup": "CPU locked up",
        "host.power": "Power of the host",
        "host.power.supply": "Power supply failed",
        "host.power.brake": "Power brake slows the GPUs",
        "host.power.cable": "Power cable of a GPU",
        "host.power.smoothing": "Power smoothing of a GPU",
        "host.storage": "Local storage",
        "host.storage.io_error": "Local disk fails to read or write",
        "host.storage.read_only": "Local file system became read-only",
        "host.pcie": "PCIe",
        "host.pcie.fatal": "Fatal PCIe error",
        "host.pcie.correctable": "Many corrected PCIe errors",
        "host.pcie.degraded": "PCIe link below its width or speed",
        "host.pcie.timeout": "PCIe timeout",
        "host.lost": "Host lost",
        "host.lost.silent": "Host fell silent",
        "host.lost.rebooted": "Host restarted",
        "host.lost.panic": "Kernel panic",
        "host": "The machine",
        "driver": "The driver",
        "driver.gsp": "GPU system processor (driver firmware)",
        "driver.mismatch": "Driver and libraries do not match",
        "driver.missing": "Driver or management library missing",
        "driver.hang": "Driver does not answer",
        "driver.fabric_manager": "Fabric manager",
        "driver.internal": "Driver's own fault",
        "platform": "The platform",
        "platform.registry": "Image registry",
        "platform.registry.rate_limit": "Image registry limits pulls",
        "platform.storage": "Shared storage",
        "platform.storage.mount": "Shared storage not mounted or stale",
        "platform.storage.full": "Storage full",
        "platform.scheduler": "Scheduler",
        "platform.eviction": "Eviction by the node",
        "platform.maintenance": "Maintenance",
        "platform.network": "Network service",
        "platform.network.dns": "Name resolution",
        "platform.runtime": "Container runtime and host configuration",
        "platform.runtime.container": "Container runtime",
        "platform.runtime.device_plugin": "Device plugin",
        "platform.runtime.configuration": "Host configuration",
        "platform.runtime.confidential_compute": "Confidential computing set-up",
        "platform.runtime.clock": "Clock of the host",
        "platform.runtime.agent": "Health agent",
        "platform.power": "Power of the site",
        "platform.cooling": "Cooling of the site",
        "platform.auth": "Authentication service",
        "platform.control_plane": "Control plane",
        "platform.remediation": "Our own repair without a fault behind it",
        "app": "The job itself",
        "app.exception": "Exception in the program",
        "app.crash": "Program crashed",
        "app.cuda_error": "CUDA error of the program",
        "app.oom": "Program out of memory",
        "app.oom.gpu": "Program out of GPU memory",
        "app.oom.host": "Program out of host memory",
        "app.illegal_access": "Program accessed GPU memory illegally",
        "app.config": "Configuration of the job",
        "app.config.arguments": "Arguments of the job",
        "app.config.image": "Image that the job names",
        "app.config.resources": "Resources that the job asked for",
        "app.data": "Data of the job",
        "app.data.missing": "Data of the job not found",
        "app.data.disk_full": "Job filled its own storage",
        "app.dependency": "Library the job brings or misses",
        "app.dependency.cuda_build": "Libraries built for another GPU or driver",
        "app.time_limit": "Time limit of the job",
        "app.hang": "Program hangs",
        "app.hang.collective": "Ranks call different collectives",
        "app.numerics": "Numerics of the program",
    }
)

# What a person says who knows whose fault it was and no more.
MOST_GENERAL: Final[Mapping[CauseClass, str]] = MappingProxyType(
    {"hardware": "host", "driver": "driver", "platform": "platform", "user": "app"}
)

CAUSES: Final[Mapping[str, CauseInfo]] = MappingProxyType(
    {code: CauseInfo(_CLASS_OF_FIRST_WORD[code.split(".", 1)[0]], title) for code, title in _TITLES.items()}
)


def is_known(code: str) -> bool:
    """Whether the registry holds exactly this code."""
    return code in CAUSES


def class_of(code: str) -> CauseClass:
    """The class a code is charged to.

    A more special code than the registry's belongs to the class of its first word. Raises
    `UnknownCauseError` when that word is unknown, since then nobody can say who is to be charged.
    """
    first_word = code.split(".", 1)[0]
    try:
        return _CLASS_OF_FIRST_WORD[first_word]
    except KeyError:
        known = ", ".join(_CLASS_OF_FIRST_WORD)
        raise UnknownCauseError(f"cause code {code!r} begins with none of: {known}") from None


def title_of(code: str) -> str:
    """The title of a code, or of the nearest more general one in the registry; the code itself if none."""
    known = nearest(code, CAUSES)
    return CAUSES[known].title if known else code


def nearest(code: str, among: Container[str]) -> str:
    """The code, or the nearest more general one, that is among these; empty if none is."""
    while code and code not in among:
        code = code.rpartition(".")[0]
    return code
