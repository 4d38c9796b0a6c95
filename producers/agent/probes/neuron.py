"""AWS Neuron devices by what their driver shows in sysfs: nothing has to be installed, and no tool can hang."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from faultlens.events import Check, Device, DeviceRef
from producers.agent.probe import Looked, MissingError
from producers.agent.probes.sysfs import text_of

DIRECTORY: Final = Path("/sys/devices/virtual/neuron_device")
_MODULE: Final = Path("/sys/module/neuron/version")
_NAME: Final = re.compile(r"^neuron(\d+)$")
# Counters since the driver was loaded; the driver counts repairable errors apart from these.
_UNCORRECTED: Final = ("mem_ecc_uncorrected", "sram_ecc_uncorrected")


def look_at_count(expected: int | None, directory: str = str(DIRECTORY)) -> Looked:
    """Check that the driver shows as many devices as there should be. MissingError: the driver is not loaded."""
    devices = tuple(Device(index) for index, _ in devices_in(Path(directory)))
    if len(devices) < (expected or 1):
        told = f"the driver shows {len(devices)} devices, expected {'?' if expected is None else expected}"
        return Looked([Check("gpu_count", "gpu", "fail", None, "gpu_lost", told)], devices)
    return Looked([Check("gpu_count", "gpu", "pass", message=f"{len(devices)} devices")], devices)


def look_at_driver(module: str = str(_MODULE)) -> Looked:
    """Read the driver's version. MissingError: it is not loaded."""
    version = text_of(Path(module))
    if not version:
        raise MissingError("the Neuron driver is not loaded")
    return Looked([Check("driver_responds", "driver", "pass", message=version)], driver_version=version)


def look_at_ecc(directory: str = str(DIRECTORY)) -> list[Check]:
    """Check each device's uncorrected memory errors."""
    counts = {index: list(_counts(place)) for index, place in devices_in(Path(directory))}
    if not counts or not all(len(found) == len(_UNCORRECTED) for found in counts.values()):
        raise ValueError("the driver shows no counters of uncorrected errors")
    failures = [
        Check("ecc", "gpu", "fail", DeviceRef(index=index), "dbe", f"{sum(found)} uncorrected errors")
        for index, found in counts.items()
        if sum(found)
    ]
    return failures or [Check("ecc", "gpu", "pass", message=f"{len(counts)} devices")]


def devices_in(directory: Path) -> Iterator[tuple[int, Path]]:
    """Yield each device with its place, by number. MissingError: the driver is not loaded."""
    if not directory.is_dir():
        raise MissingError(f"{directory} is not there: the Neuron driver is not loaded")
    found = ((_NAME.match(place.name), place) for place in directory.iterdir())
    yield from sorted((int(name[1]), place) for name, place in found if name is not None)


def _counts(place: Path) -> Iterator[int]:
    for name in _UNCORRECTED:
        text = text_of(place / "stats" / "hardware" / name)
        if text.isascii() and text.isdigit():
            yield int(text)
