"""Which GPU is behind a PCI address: from a list that somebody made, or from what the driver itself printed."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faultlens.errors import ConfigurationError
from faultlens.events import DeviceRef
from producers.kernel_log.xid import normal_pci

FILE_BYTES_LIMIT: Final = 1 << 20
_NAMES: Final = {"pci.bus_id": "pci", "pci_bus_id": "pci", "bus_id": "pci", "gpu_uuid": "uuid", "gpu_serial": "serial"}
_NOTHING: Final = frozenset({"", "[N/A]", "N/A", "[Not Supported]", "0"})
# The driver introduces a GPU with these lines when it first has something to say about it.
_INTRODUCES: Final = re.compile(r"NVRM: GPU at (?:PCI:)?(?P<pci>[0-9a-fA-F:.]+): (?P<uuid>GPU-[0-9a-f-]{36})")
_SERIAL: Final = re.compile(r"NVRM: GPU Board Serial Number: (?P<serial>\w+)")
_SPEAKS_OF: Final = re.compile(r"NVRM: The NVIDIA GPU (?P<pci>[0-9a-fA-F:.]+)")
_DRIVER: Final = re.compile(
    r"NVRM: loading NVIDIA UNIX (?:Open )?(?:\S+ )?Kernel Module (?:for \S+ )? ?(?P<version>\d{3}\.\d+(?:\.\d+)?)"
)


class Gpu(BaseModel):
    """A GPU of the node, as `nvidia-smi --query-gpu=index,pci.bus_id,uuid,serial --format=csv` lists it."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)

    pci: Annotated[str, Field(min_length=7, max_length=32)]
    index: Annotated[int, Field(ge=0, le=1023)] | None = None
    uuid: str | None = None
    serial: str | None = None


Gpus = Mapping[str, Gpu]


def read_gpus(path: Path) -> dict[str, Gpu]:
    """Return the GPUs of a file by PCI address: CSV of nvidia-smi, or JSON or YAML with the same names.

    Raises `ConfigurationError`, which names file, line and what is wrong.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > FILE_BYTES_LIMIT:
        raise ConfigurationError(f"{path}: {len(raw)} bytes are more than the limit of {FILE_BYTES_LIMIT}")
    text = raw.decode("utf-8-sig", errors="replace")
    first = text.lstrip()[:1]
    rows = _rows_of_data(path, text) if first in ("[", "{", "-") or ":" in text.partition("\n")[0] else _csv(text)
    found: dict[str, Gpu] = {}
    for number, row in rows:
        try:
            gpu = Gpu.model_validate(row)
        except ValidationError as error:
            detail = error.errors()[0]
            raise ConfigurationError(f"{path}:{number}: {'.'.join(map(str, detail['loc']))}: {detail['msg']}") from None
        found[normal_pci(gpu.pci)] = gpu
    if not found:
        raise ConfigurationError(f"{path}: no GPUs; expected columns index, pci.bus_id, uuid, serial")
    return found


def _csv(text: str) -> list[tuple[int, dict[str, Any]]]:
    lines = [line for line in text.splitlines() if line.strip()]
    reader = csv.DictReader(lines, skipinitialspace=True)
    return [(reader.line_num, _renamed(row)) for row in reader]


def _rows_of_data(path: Path, text: str) -> list[tuple[int, dict[str, Any]]]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        line = error.problem_mark.line + 1 if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark else 1
        raise ConfigurationError(f"{path}:{line}: neither CSV nor JSON nor YAML") from None
    listed = data.get("gpus", data.get("devices")) if isinstance(data, dict) else data
    if not isinstance(listed, list) or not all(isinstance(row, dict) for row in listed):
        raise ConfigurationError(f"{path}:1: expected a list of GPUs with pci, index, uuid, serial")
    return [(1, _renamed(row)) for row in listed]


def _renamed(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a row under our names, without what nvidia-smi writes for nothing."""
    pairs = ((str(name).strip().lower(), value) for name, value in row.items())
    named = {_NAMES.get(name, name): value.strip() if isinstance(value, str) else value for name, value in pairs}
    return {n: v for n, v in named.items() if v is not None and (n == "index" or str(v) not in _NOTHING)}


class Told(NamedTuple):
    """What the driver said of itself and its GPUs so far; `speaks_of` is the GPU of a message of several lines."""

    gpus: Gpus
    speaks_of: str | None = None
    introduced: str | None = None
    driver: str | None = None

    def after(self, text: str) -> Told:
        """Return what is known after one more line."""
        if "NVRM" not in text:
            return self
        if found := _INTRODUCES.search(text):
            pci = normal_pci(found["pci"])
            return self._replace(gpus=self._with(pci, uuid=found["uuid"]), introduced=pci)
        if (found := _SERIAL.search(text)) and self.introduced is not None:
            return self._replace(gpus=self._with(self.introduced, serial=found["serial"]))
        if found := _SPEAKS_OF.search(text):
            return self._replace(speaks_of=normal_pci(found["pci"]))
        if found := _DRIVER.search(text):
            return self._replace(driver=found["version"])
        return self

    def _with(self, pci: str, **known: str) -> Gpus:
        before = self.gpus.get(pci) or Gpu(pci=pci)
        missing = {name: value for name, value in known.items() if getattr(before, name) is None}
        return {**self.gpus, pci: before.model_copy(update=missing)}


def device_ref(pci: str | None, link: int | str | None, gpus: Gpus) -> DeviceRef | None:
    """Return what is known of the device behind an address; None when nothing names one."""
    if pci is None and link is None:
        return None
    gpu = gpus.get(pci) if pci is not None else None
    if gpu is None:
        return DeviceRef(pci=pci, link=link)
    return DeviceRef(index=gpu.index, uuid=gpu.uuid, pci=pci, serial=gpu.serial, link=link)
