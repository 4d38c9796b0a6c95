"""Reads the sub-code out of a driver's line of Xid 144 to 150 (NVLink5)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

# `149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 ...)`, with or without pid and name before it.
_LINE: Final = re.compile(
    r"\b([A-Z][A-Z0-9_]{2,30})(?:/[A-Z0-9_]{1,30})?\s+(Fatal|Nonfatal)\s+XC\d\s+i\d+\s+Link\s+-?\d+\s+\((0x[0-9a-fA-F]{1,8})\b"
)
_LINE_LIMIT: Final = 2000
_LINK_DOWN: Final = "link_down"


class Unit(BaseModel):
    """The sub-codes of a unit whose printed name begins with `prefix`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prefix: str = Field(pattern=r"^[A-Z][A-Z0-9_]{2,30}$")
    fatal: str
    nonfatal: str


class DecodeFile(BaseModel):
    """`nvidia_nvlink5_decode.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    units: tuple[Unit, ...] = Field(min_length=1)
    link_down_reasons: Mapping[Literal["local_phy", "host", "remote"], tuple[int, ...]]

    def subcodes(self) -> set[str]:
        """Every sub-code that a line can lead to."""
        named = {code for unit in self.units for code in (unit.fatal, unit.nonfatal)}
        return named | {f"{_LINK_DOWN}/{reason}" for reason in self.link_down_reasons}

    def subcode(self, line: str) -> str | None:
        """The sub-code of a line, or None: not such a line, or a unit without sub-codes."""
        found = _LINE.search(line[:_LINE_LIMIT])
        unit = next((u for u in self.units if found is not None and found[1].startswith(u.prefix)), None)
        if found is None or unit is None:
            return None
        subcode = unit.fatal if found[2] == "Fatal" else unit.nonfatal
        return self._with_reason(int(found[3], 16)) if subcode == _LINK_DOWN else subcode

    def _with_reason(self, first_number: int) -> str:
        reason = first_number >> 20 & 0x3F
        words = (word for word, reasons in self.link_down_reasons.items() if reason in reasons)
        return "/".join([_LINK_DOWN, *words])
