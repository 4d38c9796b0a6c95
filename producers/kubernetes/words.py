"""What Kubernetes' words mean, from a table that is checked when it is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from faultlens.events import Component, FaultKind, Outcome, Workload
from faultlens.yaml_lines import compiles, load_model

_FILE: Final = Path(__file__).parent / "words.yaml"
Text = Annotated[str, Field(min_length=1, max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EndWord(_Strict):
    """What a reason says of a pod's end. `taken`: it was taken from this, maybe by a command of ours."""

    outcome: Outcome
    rank: Text | None = None
    taken: Literal["node", "device"] | None = None


class OwnerWord(_Strict):
    """What pods of such an owner are."""

    workload: Workload = "batch"
    replica: bool = False
    ignored: bool = False
    by_name: bool = False
    submits_by: Text | None = None
    group: Text | None = None
    group_size: Text | None = None


class FaultWord(_Strict):
    """A fault of the contract."""

    kind: FaultKind
    code: Text


class ConditionWord(_Strict):
    """What a node's condition says."""

    bad: Literal["True", "False"]
    check: Text
    component: Component
    fault: FaultWord | None = None


class ReasonWord(_Strict):
    """A pattern of reasons that name a fault."""

    pattern: Annotated[str, AfterValidator(compiles)]
    kind: FaultKind
    code: Text | None = None


class TaintWord(_Strict):
    """What a taint on a device says."""

    key: Text
    kind: FaultKind = "other"
    code: Text = "device_tainted"
    value: bool = False
    ignored: bool = False


class KeeperWord(_Strict):
    """How a controller that keeps nodes from work is known: names of its client, taints and labels that it sets.

    `planned`: what it takes away is not wanted any more, and no loss of what was promised.
    """

    managers: tuple[Text, ...] = ()
    taints: frozenset[Text] = frozenset()
    labels: dict[Text, Text] = {}
    planned: bool = False


class Words(_Strict):
    """`words.yaml`."""

    version: Literal[1]
    accelerators: tuple[Text, ...]
    ends: dict[Text, EndWord]
    cannot_start: frozenset[Text]
    pod_notices: frozenset[Text]
    owners: dict[Text, OwnerWord]
    not_above: frozenset[Text]
    job_ends: dict[Text, Literal["succeeded", "failed"]]
    job_end_reasons: dict[Text, Outcome]
    ray_deployment_ends: frozenset[Text]
    ray_ends: dict[Text, Outcome]
    owner_labels: dict[Text, Text]
    generation_labels: tuple[Text, ...]
    rank_labels: tuple[Text, ...]
    job_rank_labels: tuple[Text, ...]
    user_labels: tuple[Text, ...]
    team_labels: tuple[Text, ...]
    pool_labels: tuple[Text, ...]
    domain_labels: dict[Text, tuple[Text, ...]]
    family_labels: tuple[Text, ...]
    agent_labels: dict[Text, Text]
    conditions: dict[Text, ConditionWord]
    node_reasons: tuple[ReasonWord, ...]
    device_taints: tuple[TaintWord, ...]
    keepers: dict[Text, KeeperWord]
    bystanders: frozenset[Text]


@cache
def load_words(path: Path = _FILE) -> Words:
    """Return the table; ConfigurationError names file, line and what is wrong."""
    return load_model(path, Words, "the table of Kubernetes' words cannot be used:")


@cache
def is_accelerator(resource: str) -> bool:
    """Return whether a resource is a GPU or the like."""
    return any(fnmatchcase(resource, pattern) for pattern in load_words().accelerators)


def accelerators_in(amounts: Mapping[str, str | int | float] | None) -> int:
    """Return how many accelerators a list of resources names."""
    return sum(_whole(amount) for name, amount in (amounts or {}).items() if is_accelerator(name))


def _whole(amount: str | float) -> int:
    text = str(amount)
    return int(text) if text.isascii() and text.isdigit() else 0


def first_of(marks: Mapping[str, str], names: Iterable[str]) -> str | None:
    """Return the value of the first of these names that is there and not empty."""
    return next((marks[name] for name in names if marks.get(name)), None)


def fault_of_reason(reason: str | None) -> FaultWord | None:
    """Return the fault that a node's reason names; None: it names none."""
    for word in load_words().node_reasons:
        found = re.search(word.pattern, reason or "")
        if found is not None:
            return FaultWord(kind=word.kind, code=word.code or found.groupdict().get("code") or "unknown")
    return None


def fault_of_taint(key: str, value: str | None) -> FaultWord | None:
    """Return the fault that a device's taint names; None: it names none."""
    word = next((word for word in load_words().device_taints if fnmatchcase(key, word.key)), None)
    if word is None or word.ignored:
        return None
    return FaultWord(kind=word.kind, code=(value or word.code) if word.value else word.code)
