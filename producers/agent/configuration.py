"""What an agent is told of its node: a small YAML file, checked at start."""

from __future__ import annotations

import socket
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from faultlens.errors import ConfigurationError
from faultlens.settings import load_settings
from faultlens.yaml_lines import load_model

_ROLES: Final = Path(__file__).parent / "roles.yaml"
STATE: Final = Path("/var/lib/faultlens")
Text = Annotated[str, Field(min_length=1, max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Links(_Strict):
    """How many links of a kind there should be, and how fast each (Gbit/s)."""

    expected: Annotated[int, Field(ge=1, le=512)] | None = None
    gbit_s: Annotated[float, Field(gt=0)] | None = None


class Dcgm(_Strict):
    """The program that asks DCGM, and how long it may take."""

    program: Text = "dcgmi"
    timeout_s: Annotated[float, Field(gt=0, le=120)] = 8.0


class Validation(_Strict):
    """What a node must do before it takes work: pass its test in this boot, and so many good reports after it.

    `deadline_s`: how long one test may take; `retest_every_s`: how often an idle node is tested again.
    """

    good_reports: Annotated[int, Field(ge=0, le=1_000)] = 3
    deadline_s: Annotated[float, Field(ge=1, le=7_200)] = 300.0
    retest_every_s: Annotated[float, Field(ge=600, le=30 * 86_400)] = 86_400.0
    dcgm_level: Annotated[int, Field(ge=1, le=4)] = 2


class Configuration(_Strict):
    """`agent.yaml`. `not_needed` names checks, each with the reason; `cluster` may be left to FAULTLENS_CLUSTER."""

    cluster: Annotated[str, Field(max_length=200)] = ""
    node: Text = Field(default_factory=socket.gethostname)
    pool: Text | None = None
    role: Literal["gpu", "cpu"] = "gpu"
    vendor: Literal["nvidia", "amd", "neuron"] = "nvidia"
    family: Text | None = None
    domains: dict[Text, Text] = {}
    host_id: Text | None = None
    provider_id: Text | None = None
    interval_s: Annotated[float, Field(ge=1, le=3600)] = 30.0
    deadline_s: Annotated[float, Field(ge=0.5, le=300)] = 10.0
    gpus: Annotated[int, Field(ge=1, le=1024)] | None = None
    disks: tuple[Text, ...] = ("/",)
    mounts: tuple[Text, ...] | None = None
    instance_type: Text | None = None
    ib_links: Links | None = None
    efa_links: Links | None = None
    dcgm: Dcgm | None = None
    validation: Validation | None = None
    fabric_manager: tuple[Text, ...] = ("nv-fabricmanager",)
    persistence: tuple[Text, ...] | None = None
    container_runtime: tuple[Text, ...] | None = None
    not_needed: dict[Text, Text] = {}
    trust_user_space: bool = False
    kernel_log: Path = Path("/dev/kmsg")
    state: Path = STATE


class _Roles(_Strict):
    version: Literal[1]
    roles: dict[Literal["gpu", "cpu"], dict[Text, Text]]
    vendors: dict[Literal["nvidia", "amd", "neuron"], dict[Text, Text]]
    optional: tuple[Text, ...]


def load_configuration(path: Path) -> Configuration:
    """Return the configuration; ConfigurationError names file, line and what is wrong."""
    configuration = load_model(path, Configuration, "the agent's configuration cannot be used:")
    cluster = configuration.cluster or load_settings().cluster
    if not cluster:
        raise ConfigurationError(f"{path}: cluster: no cluster is named, here or by FAULTLENS_CLUSTER")
    return configuration.model_copy(update={"cluster": cluster})


@cache
def load_roles() -> _Roles:
    """Return what each role does not need."""
    return load_model(_ROLES, _Roles, "the agent's roles cannot be used:")


def off_by_role(configuration: Configuration) -> dict[str, str]:
    """Return the checks that are off on this node, with why: by its role and by its configuration."""
    roles = load_roles()
    return roles.vendors[configuration.vendor] | roles.roles[configuration.role] | configuration.not_needed
