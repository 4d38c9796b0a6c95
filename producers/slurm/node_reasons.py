"""What a node's reason means: Slurm's own words, or what somebody wrote."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from faultlens.yaml_lines import compiles, load_model

_FILE: Final = Path(__file__).parent / "node_reasons.yaml"
# What matched nothing: somebody took the node out and did not say why in words that we know.
TAKEN_OUT: Final = "taken_out"
# Slurm or an administrator did on purpose what the reason says.
ASKED_FOR: Final = "asked_for"
REASON_CHARS: Final = 1_000


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReasonEntry(_Strict):
    """A pattern that is looked for in a reason, and the fault code that it stands for."""

    pattern: Annotated[str, Field(min_length=3, max_length=300), AfterValidator(compiles)]
    code: Annotated[str, Field(pattern=r"^[a-z][a-z_]{2,39}$")]


class ReasonFile(_Strict):
    """`node_reasons.yaml`."""

    slurm: tuple[ReasonEntry, ...] = Field(min_length=1, max_length=200)
    written: tuple[ReasonEntry, ...] = Field(min_length=1, max_length=200)


@cache
def load_reasons(path: Path = _FILE) -> ReasonFile:
    """Return the patterns. Raises `ConfigurationError`, which names file and line."""
    return load_model(path, ReasonFile)


def meaning_of(reason: str, reasons: ReasonFile) -> tuple[str, bool]:
    """Return the code of a reason, and whether it is Slurm's own word."""
    text = reason[:REASON_CHARS]
    for entry in reasons.slurm:
        if re.search(entry.pattern, text):
            return entry.code, True
    for entry in reasons.written:
        if re.search(entry.pattern, text):
            return entry.code, False
    return TAKEN_OUT, False
