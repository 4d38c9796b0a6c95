"""A dashboard as it is written down: its panels with their questions, in YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from faultlens.yaml_lines import load_model

DATA: Final = Path(__file__).parent / "data"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Panel(_Strict):
    """One panel, `w` of 24 columns wide: a question to the store in SQL, or several to Prometheus by their legends.

    `links`: where a column's values lead. `units`: of columns.
    """

    title: str
    kind: Literal["stat", "timeseries", "barchart", "table"]
    w: int = Field(ge=4, le=24)
    h: int = Field(ge=4, le=20)
    sql: str = ""
    promql: dict[str, str] = {}
    unit: str = "none"
    units: dict[str, str] = {}
    about: str = ""
    stacked: bool = False
    bars: bool = False
    links: dict[str, Literal["cause", "job", "node"]] = {}

    @model_validator(mode="after")
    def _one_question(self) -> Panel:
        if bool(self.sql) == bool(self.promql):
            raise ValueError("a panel asks the store (`sql`) or Prometheus (`promql`)")
        return self


class Board(_Strict):
    """One dashboard. `texts`: variables that people type, with what stands in them at first."""

    title: str
    order: int
    about: str = ""
    texts: dict[str, str] = {}
    panels: tuple[Panel, ...]


def load_boards() -> dict[str, Board]:
    """Return the dashboards by name, in their order. ConfigurationError names file and line."""
    boards = {path.stem: load_model(path, Board) for path in sorted(DATA.glob("*.yaml"))}
    return dict(sorted(boards.items(), key=lambda item: item[1].order))
