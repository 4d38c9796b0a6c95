"""The measured precision of rules, kept as counts with their origin: what verdicts take their confidence from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field

from faultlens.errors import ConfigurationError
from faultlens.yaml_lines import YamlProblemError, read_yaml, validate
from slo.scoring import Share

_HEAD: Final = """\
# How often each rule named the right class where the truth was known, by `rule/basis`, as measured by
# `faultlens score --calibrate`. Do not edit: measure again.
"""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Counted(_Strict):
    right: Annotated[int, Field(ge=0)]
    total: Annotated[int, Field(ge=0)]


class _Table(_Strict):
    origin: tuple[dict[str, Any], ...] = ()
    rules: dict[str, _Counted] = {}


class PrecisionTable:
    """Counts by `rule/basis`, from one measurement or several."""

    def __init__(self, by_rule: Mapping[str, Share], origin: Sequence[Mapping[str, Any]]) -> None:
        self.by_rule = dict(by_rule)
        self.origin = [dict(measurement) for measurement in origin]

    @classmethod
    def read(cls, path: Path) -> PrecisionTable:
        """Read a table; ConfigurationError names file and line."""
        try:
            table = validate(read_yaml(path), _Table)
        except YamlProblemError as error:
            raise ConfigurationError(str(error)) from None
        if isinstance(table, list):
            raise ConfigurationError("\n".join(map(str, table)))
        return cls({name: Share(m.right, m.total) for name, m in table.rules.items()}, table.origin)

    def plus(self, other: PrecisionTable) -> PrecisionTable:
        """Return both measurements together; measuring the same cases twice would count them twice."""
        right = Counter({name: share.right for name, share in self.by_rule.items()})
        total = Counter({name: share.total for name, share in self.by_rule.items()})
        right.update({name: share.right for name, share in other.by_rule.items()})
        total.update({name: share.total for name, share in other.by_rule.items()})
        return PrecisionTable({name: Share(right[name], total[name]) for name in total}, self.origin + other.origin)

    def as_yaml(self) -> str:
        """Return the table as YAML.

        Counts are kept, not shares, so that whoever loads them can smooth what was seen seldom: by Laplace's rule of
        succession the share of right ones is (right + 1) / (total + 2).
        """
        rules = {name: {"right": share.right, "total": share.total} for name, share in sorted(self.by_rule.items())}
        return _HEAD + yaml.safe_dump({"origin": self.origin, "rules": rules}, sort_keys=False, allow_unicode=True)
