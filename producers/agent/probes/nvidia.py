"""NVIDIA GPUs through the driver's management library, each aspect asked for by itself: a call that hangs hides one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from faultlens.events import Check, Device, DeviceRef
from producers.agent.probe import Looked, MissingError
from producers.agent.probes.sysfs import text_of
from producers.kernel_log.xid import normal_pci

PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
_NVIDIA: Final = "0x10de"
# Display and 3D controllers; a GPU's audio function and NVSwitches are others.
_GPU_CLASSES: Final = ("0x0300", "0x0302")
# nvml.h, clocks event reasons: slowed down by the hardware itself, for heat or for power.
HARDWARE_THERMAL: Final = 0x40
POWER_BRAKE: Final = 0x80
LINKS: Final = 18


@dataclass(frozen=True)
class Gpu:
    """A GPU as the management library names it."""

    index: int
    uuid: str
    pci: str
    serial: str | None = None

    @property
    def ref(self) -> DeviceRef:
        """What a check says of which GPU it is about."""
        return DeviceRef(index=self.index, uuid=self.uuid, pci=self.pci, serial=self.serial)


def library() -> Any:
    """Return the management library, initialised. MissingError: there is none, or no driver under it."""
    try:
        import pynvml  # noqa: PLC0415 - a node without GPUs needs neither
    except ImportError:
        raise MissingError("the Python package nvidia-ml-py is not installed (extra `agent`)") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED):
            raise MissingError(f"NVML: {error}") from None
        raise
    return pynvml


# --- which GPUs there are --------------------------------------------------------------------------------


def look_at_count(expected: int | None) -> list[Check]:
    """Check that the library sees as many GPUs as there should be, and as the PCI bus shows."""
    return [judge_count(int(library().nvmlDeviceGetCount()), count_on_bus(PCI_DEVICES), expected)]


def judge_count(seen: int, on_bus: int, expected: int | None) -> Check:
    """Return the check of how many GPUs there are. The bus is asked too: the library forgets what it has lost."""
    wanted = max(expected or 0, on_bus)
    if seen < wanted or not seen:
        told = f"the driver sees {seen} GPUs, the PCI bus {on_bus}, expected {'?' if expected is None else expected}"
        return Check("gpu_count", "gpu", "fail", None, "gpu_lost", told)
    return Check("gpu_count", "gpu", "pass", message=f"{seen} GPUs")


def count_on_bus(devices: Path) -> int:
    """Return how many NVIDIA GPUs the PCI bus shows."""
    return sum(
        text_of(device / "vendor") == _NVIDIA and text_of(device / "class").startswith(_GPU_CLASSES)
        for device in devices.glob("*")
    )


def look_at_idle() -> list[Check]:
    """Say whether no process computes on any GPU."""
    nvml = library()
    busy = [str(gpu.index) for gpu, handle in gpus(nvml) if nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    told = f"GPUs {', '.join(busy)} are in use" if busy else None
    return [Check("gpu_idle", "gpu", "warn" if busy else "pass", message=told)]


def gpus(nvml: Any) -> list[tuple[Gpu, Any]]:
    """Return each GPU with the library's handle of it."""
    found = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        serial = _or_none(nvml, nvml.nvmlDeviceGetSerial, handle)
        pci = normal_pci(_word(nvml.nvmlDeviceGetPciInfo(handle).busId))
        found.append((Gpu(index, _word(nvml.nvmlDeviceGetUUID(handle)), pci, serial and _word(serial)), handle))
    return found


def inventory() -> tuple[str, list[Device]]:
    """Return the driver's version and the GPUs."""
    nvml = library()
    devices = [Device(gpu.index, gpu.uuid, gpu.pci, gpu.serial) for gpu, _ in gpus(nvml)]
    return _word(nvml.nvmlSystemGetDriverVersion()), devices


def look_at_driver() -> Looked:
    """Check that the driver answers for every GPU, and bring the inventory back."""
    version, devices = inventory()
    check = Check("driver_responds", "driver", "pass", message=f"{version}, {len(devices)} GPUs")
    return Looked([check], tuple(devices), version)


# --- how they are ----------------------------------------------------------------------------------------

Judge = Callable[[Any, Gpu, Any], Iterable[Check]]


def look_at_each(check: str) -> list[Check]:
    """Check one aspect of every GPU: `ecc`, `nvlink`, `pcie`, `thermal` or `power`."""
    return check_each(check, library())


def check_each(check: str, nvml: Any) -> list[Check]:
    """Return a check for each GPU that is not well in this aspect, or one that passes."""
    present = gpus(nvml)
    bad = [found for gpu, handle in present for found in _ASPECTS[check](nvml, gpu, handle)]
    if bad:
        return bad
    return [Check(check, _COMPONENTS[check], "pass", message=f"{len(present)} GPUs")]  # type: ignore[arg-type]


def _ecc(nvml: Any, gpu: Gpu, handle: Any) -> Iterator[Check]:
    remapped = _or_none(nvml, nvml.nvmlDeviceGetRemappedRows, handle)
    if remapped is not None:
        _, _, pending, failed = remapped
        if failed:
            yield Check("ecc", "gpu", "fail", gpu.ref, "remap_failed", "a row could not be remapped")
        elif pending:
            yield Check("ecc", "gpu", "fail", gpu.ref, "remap_pending", "a row waits to be remapped by a reset")
    errors = _or_none(
        nvml,
        nvml.nvmlDeviceGetTotalEccErrors,
        handle,
        nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        nvml.NVML_VOLATILE_ECC,
    )
    if errors:
        told = f"{errors} uncorrectable errors since the driver was loaded"
        yield Check("ecc", "gpu", "fail", gpu.ref, "dbe", told)


def _nvlink(nvml: Any, gpu: Gpu, handle: Any) -> Iterator[Check]:
    states = [_or_none(nvml, nvml.nvmlDeviceGetNvLinkState, handle, link) for link in range(LINKS)]
    down = [link for link, state in enumerate(states) if state == 0]
    # A GPU all of whose links are off is one that has none in use (PCIe cards answer so too).
    if down and any(states):
        told = f"links {', '.join(map(str, down))} are down"
        yield Check("nvlink", "gpu", "fail", gpu.ref, "link_down", told)


def _pcie(nvml: Any, gpu: Gpu, handle: Any) -> Iterator[Check]:
    width = _or_none(nvml, nvml.nvmlDeviceGetCurrPcieLinkWidth, handle)
    most = _or_none(nvml, nvml.nvmlDeviceGetMaxPcieLinkWidth, handle)
    if width is not None and most is not None and width < most:
        yield Check("pcie", "pcie", "fail", gpu.ref, "link_degraded", f"{width} of {most} lanes")


def _thermal(nvml: Any, gpu: Gpu, handle: Any) -> Iterator[Check]:
    reasons = _or_none(nvml, nvml.nvmlDeviceGetCurrentClocksEventReasons, handle) or 0
    if reasons & HARDWARE_THERMAL:
        celsius = _or_none(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        told = f"slowed down by its own protection at {'?' if celsius is None else celsius} °C"
        yield Check("thermal", "cooling", "fail", gpu.ref, "slowdown", told)


def _power(nvml: Any, gpu: Gpu, handle: Any) -> Iterator[Check]:
    reasons = _or_none(nvml, nvml.nvmlDeviceGetCurrentClocksEventReasons, handle) or 0
    if reasons & POWER_BRAKE:
        yield Check("power", "power", "fail", gpu.ref, "brake", "slowed down by the power brake")


_ASPECTS: Final[dict[str, Judge]] = {
    "ecc": _ecc, "nvlink": _nvlink, "pcie": _pcie, "thermal": _thermal, "power": _power,
}  # fmt: skip
_COMPONENTS: Final = {"ecc": "gpu", "nvlink": "gpu", "pcie": "pcie", "thermal": "cooling", "power": "power"}


def _or_none(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the library says; None for what this GPU does not have. All other errors are the probe's."""
    try:
        return call(*arguments)
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
            return None
        raise


def _word(told: Any) -> str:
    return told.decode("ascii", "replace") if isinstance(told, bytes) else str(told)
