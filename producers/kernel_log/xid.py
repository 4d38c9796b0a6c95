"""Lines of NVIDIA's driver that carry a number: Xid of GPUs, SXid of NVSwitches."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from faultlens.catalogue import Catalogue

_XID: Final = re.compile(
    r"NVRM: (?:GPU\d* ?\S*: )?Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)(?: GPU-I:\d+)?\): (?P<code>\d{1,4})\b(?P<rest>.*)",
    re.DOTALL,
)
_PROCESS: Final = re.compile(r"pid='?(?P<pid>\d+|<\S+>)'?,? ?(?:name='?(?P<name>[^,']{1,64})'?)?", re.IGNORECASE)
_SXID: Final = re.compile(r"SXid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d{4,6}), (?P<rest>.*)", re.DOTALL)
_SXID_DETAIL: Final = re.compile(r"^(?:Severity \d|Data \{|Engine instance|Time stamp|Instance \d)")
_MANAGER: Final = re.compile(
    r"detected NVSwitch (?P<how>non-fatal|fatal) error (?P<code>\d{4,6}) on .*?pci bus id (?P<pci>[0-9a-fA-F:.]+)"
    r"(?:.*?\bport (?P<link>\d+))?"
)
# Linux gives out fewer than 2^22 (PID_MAX_LIMIT, include/linux/threads.h).
_PID: Final = re.compile(r"\d{1,7}", re.ASCII)
_LINK: Final = re.compile(r"\b[Ll]ink (?P<link>\d{1,3})\b")
_REGISTERS: Final = re.compile(r"\(((?:0x[0-9a-fA-F]{1,8}(?:, ?)?){7})\)")
_PCI: Final = re.compile(r"^(?:([0-9a-f]+):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?$")

# A machine has a few dozen devices that anybody writes of.
_ADDRESSES_KNOWN: Final = 1_024

# Bits of the registers that Xid 74 prints, by what NVIDIA's workflow makes of them: register, bits, sub-code. The first
# that is set decides; bits that are not listed are harmless or say nothing alone.
_NVLINK_BITS: Final = (
    (0, (4, 5), "parity"),
    (2, (0, 1, 2, 6), "parity"),
    (4, (18, 19, 21, 22, 24, 25, 27, 28), "parity"),
    (0, (21, 22), "signal_integrity"),
    (0, (8, 9, 12, 16, 17, 24, 28), None),
    (0, (1, 20, 27, 29), "unexplained"),
    (3, tuple(range(32)), "unexplained"),
)
_NVLINK5: Final = range(144, 151)
# `GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)`: NVML's numbers of recovery actions, as the contract
# names them.
_STEP: Final = re.compile(r" to 0x([0-9a-fA-F]{1,2})\b")
_STEPS: Final = ("none", "gpu_reset_required", "node_reboot_required", "drain_p2p", "drain_and_reset")


class Numbered(NamedTuple):
    """A code with what its line says about the device and who used it."""

    kind: str
    code: str
    pci: str
    subcode: str | None = None
    link: int | None = None
    pid: int | None = None
    process: str | None = None


def numbered(text: str, catalogue: Catalogue) -> Numbered | None:
    """Return the code in a line, with its decoded detail; None if there is none."""
    found = _XID.search(text)
    if found is not None:
        return _xid(found, text, catalogue)
    switch = _SXID.search(text)
    if switch is not None and not _SXID_DETAIL.match(switch["rest"]):
        return Numbered("sxid", switch["code"], normal_pci(switch["pci"]), link=_link(switch["rest"]))
    return None


def told_by_manager(text: str) -> Numbered | None:
    """Return the switch code that a line of the fabric manager repeats; None if there is none."""
    found = _MANAGER.search(text)
    if found is None:
        return None
    link = int(found["link"]) if found["link"] else None
    return Numbered("sxid", found["code"], normal_pci(found["pci"]), link=link)


def _xid(found: re.Match[str], text: str, catalogue: Catalogue) -> Numbered:
    process = _PROCESS.search(found["rest"])
    name = process["name"] if process else None
    pid = process["pid"] if process else None
    code, rest = int(found["code"]), found["rest"]
    return Numbered(
        "xid",
        str(code),
        normal_pci(found["pci"]),
        subcode=_subcode(code, text, catalogue),
        link=_link(rest) if code == 74 or code in _NVLINK5 else None,
        pid=pid_of(pid),
        process=name if name and not name.startswith("<") else None,
    )


def _subcode(code: int, text: str, catalogue: Catalogue) -> str | None:
    if code == 154:
        return _announced(text, catalogue)
    if code in _NVLINK5:
        return catalogue.nvlink5_subcode(text)
    return nvlink_subcode(text) if code == 74 else None


def _announced(text: str, catalogue: Catalogue) -> str | None:
    """Return the recovery step that a line ends with: by its number, which drivers name in changing words."""
    number = _STEP.search(text)
    if number is not None and int(number[1], 16) < len(_STEPS):
        return _STEPS[int(number[1], 16)]
    action = catalogue.announced_action(text.rpartition(" to ")[2])
    return action.name if action else None


def nvlink_subcode(text: str) -> str | None:
    """Return what the seven registers of Xid 74 say; None where they say nothing special or are not there."""
    found = _REGISTERS.search(text)
    if found is None:
        return None
    registers = [int(number, 16) for number in found[1].split(",")]
    for register, bits, subcode in _NVLINK_BITS:
        if any(registers[register] >> bit & 1 for bit in bits):
            return subcode
    return None


def _link(text: str) -> int | None:
    found = _LINK.search(text)
    return int(found["link"]) if found else None


def pid_of(text: str | None) -> int | None:
    """Return a process id; None for what cannot be one."""
    return int(text) if text and _PID.fullmatch(text) else None


@lru_cache(_ADDRESSES_KNOWN)
def normal_pci(text: str) -> str:
    """Return an address as the contract compares it, `0000:9b:00.0`; what is none comes back in lower case."""
    found = _PCI.match(text.strip().lower())
    if found is None:
        return text.strip().lower()
    domain = (found[1] or "0").lstrip("0").rjust(4, "0")
    return f"{domain}:{found[2].rjust(2, '0')}:{found[3].rjust(2, '0')}.{found[4] or '0'}"
