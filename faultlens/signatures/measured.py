"""How often each rule of a log's verdict was right, where it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# 144 public log tails whose cause the people of the thread found out, or did not: (right, decided by this rule).
# Right is the class, counting others that are defensible; where nobody found out, no class is right. Patterns were
# corrected after half of them had been seen, so a fresh log does somewhat worse (docs/signatures.md).
RIGHT_OF: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "node_evidence_in_log": (30, 30),
        "explicit_root_in_log": (43, 45),
        "pointing_root_in_log": (17, 17),
        "exception_name_in_log": (1, 1),
        "symptom_in_log": (21, 39),
        "consequence_in_log": (0, 5),
        "cleared_by_progress_in_log": (0, 0),
        "nothing_known_in_log": (2, 7),
    }
)


def confidence_of(rule: str) -> float:
    """The share of right verdicts, by the rule of succession: few cases never make it 0 or 1."""
    right, decided = RIGHT_OF[rule]
    return (right + 1) / (decided + 2)
