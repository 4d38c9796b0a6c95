"""How many links a machine should have: as configured, by its type, or as it had in an earlier boot."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from faultlens.yaml_lines import load_model
from producers.agent.configuration import Configuration, Links
from producers.agent.probes.links import Kind
from producers.agent.probes.sysfs import text_of

_FILE: Final = Path(__file__).parent / "instance_types.yaml"
# On AWS' own machines the board says which type it is.
_PRODUCT: Final = Path("/sys/class/dmi/id/product_name")


class InstanceType(BaseModel):
    """What a machine of a type has, and where that is said."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Annotated[str, Field(min_length=3)]
    ib_links: Links | None = None
    efa_links: Links | None = None


class InstanceTypes(BaseModel):
    """`instance_types.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    types: dict[str, InstanceType]


@cache
def load_instance_types() -> InstanceTypes:
    """Return the table; ConfigurationError names file, line and what is wrong."""
    return load_model(_FILE, InstanceTypes, "the table of instance types cannot be used:")


def type_of_this_machine(configuration: Configuration) -> str:
    """Return the machine's type: as configured, or as its board says."""
    return configuration.instance_type or text_of(_PRODUCT)


def expected_links(kind: Kind, wanted: Links, instance_type: str) -> Links:
    """Return how many links there should be and how fast: what is configured goes before what the type says."""
    known = load_instance_types().types.get(instance_type)
    by_type = getattr(known, kind, None) or Links()
    return Links(expected=wanted.expected or by_type.expected, gbit_s=wanted.gbit_s or by_type.gbit_s)
