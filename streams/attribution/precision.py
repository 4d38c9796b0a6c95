"""How often rules were right where the truth was known: measured, and kept as data with its origin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import yaml
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faultlens.errors import ConfigurationError
from faultlens.events import Basis

SHIPPED: Final = Path(__file__).parent / "data" / "precision.yaml"
_BASES: Final[tuple[Basis, ...]] = ("established", "supported", "assumed")


class Precision(Struct, frozen=True):
    """Measured precision of rules, by `rule/basis` and, for what was never measured, by basis."""

    by_rule: Mapping[str, float]
    by_basis: Mapping[str, float]

    def of(self, rule: str, basis: Basis) -> float:
        """Return how often the rule was right, on labelled cases, when it answered with this basis."""
        return self.by_rule.get(f"{rule}/{basis}", self.by_basis[basis])


class _Measured(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    right: Annotated[int, Field(ge=0)]
    total: Annotated[int, Field(ge=0)]


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    rules: dict[str, _Measured]


def load_precision(path: Path = SHIPPED) -> Precision:
    """Return the measured precision; ConfigurationError names the file and what is wrong in it.

    A share of few cases says little, so each is smoothed by Laplace's rule of succession: (right + 1) / (total + 2).
    """
    try:
        measured = _File.model_validate(yaml.safe_load(path.read_text("utf-8"))).rules
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ConfigurationError(f"{path}: no measured precision can be read: {error}") from error
    by_rule = {name: smoothed(m.right, m.total) for name, m in measured.items()}
    by_basis: dict[str, float] = {}
    for basis in _BASES:
        own = [m for name, m in measured.items() if name.endswith(f"/{basis}")]
        by_basis[basis] = smoothed(sum(m.right for m in own), sum(m.total for m in own))
    return Precision(by_rule, by_basis)


def smoothed(right: int, total: int) -> float:
    """Return the share of right ones by Laplace's rule of succession."""
    return round((right + 1) / (total + 2), 4)
