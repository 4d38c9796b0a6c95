"""AMD GPUs by `amd-smi`, whose answers in JSON changed their form between ROCm 6 and 7: both are read."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, Final

from faultlens.events import Check, Device, DeviceRef
from producers.agent.probe import Looked, MissingError
from producers.kernel_log.xid import normal_pci

PROGRAM: Final = "amd-smi"
MAX_OUTPUT_BYTES: Final = 4 << 20
# Instinct's own limit for its hotspot and memory, in degrees Celsius: beyond it the hardware slows down.
HOT_C: Final = 100.0


def look_at_count(expected: int | None, timeout_s: float, program: str = PROGRAM) -> Looked:
    """Check that amd-smi lists as many GPUs as there should be."""
    return judge_count(ask(program, timeout_s, "list"), expected)


def look_at_driver(timeout_s: float, program: str = PROGRAM) -> Looked:
    """Ask for the driver's version, which only a driver that answers tells."""
    answer = ask(program, timeout_s, "static", "--driver")
    versions = [found for gpu in each(answer) if (found := text_at(gpu, "driver", "version"))]
    if not versions:
        raise ValueError("no driver's version is in the answer")
    return Looked([Check("driver_responds", "driver", "pass", message=versions[0])], driver_version=versions[0])


def look_at_ecc(timeout_s: float, program: str = PROGRAM) -> list[Check]:
    """Check each GPU's uncorrectable memory errors."""
    return judge_ecc(ask(program, timeout_s, "metric", "--ecc"))


def look_at_heat(timeout_s: float, program: str = PROGRAM) -> list[Check]:
    """Check each GPU's hotspot and memory temperature."""
    return judge_heat(ask(program, timeout_s, "metric", "--temperature"))


def ask(program: str, timeout_s: float, *arguments: str) -> Any:
    """Return what amd-smi answers. MissingError: it is not installed; ValueError: it answers no JSON."""
    path = shutil.which(program)
    if path is None:
        raise MissingError(f"{program} is not installed")
    command = [path, *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
    try:
        return json.loads(done.stdout[:MAX_OUTPUT_BYTES])
    except ValueError:
        said = (done.stderr or done.stdout)[:200].decode("utf-8", "replace").strip()
        raise ValueError(f"{' '.join(arguments)} answered no JSON (exit status {done.returncode}): {said}") from None


def each(answer: Any) -> Iterator[dict[str, Any]]:
    """Yield what is said of each GPU: a list (ROCm 6), or a list under `gpu_data` (ROCm 7)."""
    listed = answer.get("gpu_data") if isinstance(answer, dict) else answer
    for gpu in listed if isinstance(listed, list) else ():
        if isinstance(gpu, dict) and isinstance(gpu.get("gpu"), int):
            yield gpu


def text_at(gpu: dict[str, Any], *names: str) -> str | None:
    """Return the word at a place; amd-smi writes N/A where it knows none."""
    found: Any = gpu
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) and found != "N/A" else None


def judge_count(answer: Any, expected: int | None) -> Looked:
    """Return the check of how many GPUs there are, and the inventory."""
    gpus = list(each(answer))
    devices = tuple(
        Device(gpu["gpu"], text_at(gpu, "uuid"), normal_pci(bdf) if (bdf := text_at(gpu, "bdf")) else None)
        for gpu in gpus
    )
    wanted = expected or 1
    if len(gpus) < wanted:
        told = f"amd-smi lists {len(gpus)} GPUs, expected {'?' if expected is None else expected}"
        return Looked([Check("gpu_count", "gpu", "fail", None, "gpu_lost", told)], devices)
    return Looked([Check("gpu_count", "gpu", "pass", message=f"{len(gpus)} GPUs")], devices)


def judge_ecc(answer: Any) -> list[Check]:
    """Return a failure for each GPU with uncorrectable errors since its driver was loaded, or one check that passes."""
    counts = {gpu["gpu"]: (gpu.get("ecc") or {}).get("total_uncorrectable_count") for gpu in each(answer)}
    if not counts or not all(isinstance(count, int) for count in counts.values()):
        raise ValueError("the uncorrectable errors of a GPU are not in the answer")
    bad = {index: count for index, count in counts.items() if count}
    failures = [
        Check("ecc", "gpu", "fail", DeviceRef(index=index), "dbe", f"{count} uncorrectable errors")
        for index, count in bad.items()
    ]
    return failures or [Check("ecc", "gpu", "pass", message=f"{len(counts)} GPUs")]


def judge_heat(answer: Any) -> list[Check]:
    """Return a failure for each GPU that is too hot, or one check that passes."""
    heats = {gpu["gpu"]: list(_degrees(gpu.get("temperature"))) for gpu in each(answer)}
    if not heats or not all(heats.values()):
        raise ValueError("the temperature of a GPU is not in the answer")
    failures = [
        Check("thermal", "cooling", "fail", DeviceRef(index=index), "slowdown", f"{max(degrees):g} °C")
        for index, degrees in heats.items()
        if max(degrees) >= HOT_C
    ]
    return failures or [Check("thermal", "cooling", "pass", message=f"{len(heats)} GPUs")]


def _degrees(temperature: Any) -> Iterator[float]:
    """Yield the temperatures of hotspot and memory: a number, or a number with its unit."""
    for name in ("hotspot", "mem"):
        found = temperature.get(name) if isinstance(temperature, dict) else None
        value = found.get("value") if isinstance(found, dict) else found
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield float(value)
