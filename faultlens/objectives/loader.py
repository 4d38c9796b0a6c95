"""Reads objectives from documents of OpenSLO v1, and names file and line of what is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from faultlens.clock import ms_of
from faultlens.errors import ConfigurationError
from faultlens.objectives.durations import parse_duration_ms
from faultlens.objectives.model import Exclusion, Objective, Objectives, Scope, Tier, split_tiers
from faultlens.objectives.openslo import IGNORED, KINDS, OPENSLO, OURS, AlertPolicy, ExclusionDocument, Slo
from faultlens.objectives.windows import Window, of_calendar, rolling
from faultlens.yaml_lines import Problem, YamlDocument, YamlProblemError, read_yaml_documents, validate

SHIPPED: Final = Path(__file__).parent / "data"
VERSION: Final = "2026-11"
OBJECTIVES_LIMIT: Final = 200
FILES_LIMIT: Final = 200


@dataclass(frozen=True)
class _Parts:
    """The documents of some files by kind and name."""

    slos: dict[str, tuple[Slo, YamlDocument]]
    policies: dict[str, AlertPolicy]
    exclusions: dict[str, tuple[ExclusionDocument, YamlDocument]]


def load_objectives(path: Path | None = None) -> Objectives:
    """Return the shipped objectives, with a site's own (a file or a folder of YAML) added or, by name, in their place.

    Raises ConfigurationError, which names file and line of every problem. A tier that could never fire at an
    objective's target is left out of it and named in `Objective.never_fire`; an objective with none left is an error.
    """
    parts, version = _read([*sorted(SHIPPED.glob("*.yaml"))]), VERSION
    if path is not None:
        files = _files(path)
        own = _read(files)
        parts = _Parts(parts.slos | own.slos, parts.policies | own.policies, own.exclusions)
        version = f"{version}+{_digest(files)}"
    problems = list(_problems(parts))
    if problems:
        raise ConfigurationError("\n".join(map(str, problems)))
    made = {_name(slo): _objective(slo, parts) for slo, _ in parts.slos.values()}
    hopeless = [
        parts.slos[objective.name.replace("_", "-")][1].problem(("spec", "alertPolicies"), _never(objective))
        for objective in made.values()
        if objective.never_fire and not objective.tiers
    ]
    if hopeless:
        raise ConfigurationError("\n".join(map(str, hopeless)))
    return Objectives(version, made)


def _never(objective: Objective) -> str:
    left = "; ".join(str(left_out) for left_out in objective.never_fire)
    return f"no alert policy of it can ever fire ({left}): raise the target, or refer to a slower policy"


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
    if not found:
        raise ConfigurationError(f"{path}: no .yaml files of objectives in it")
    if len(found) > FILES_LIMIT:
        raise ConfigurationError(f"{path}: {len(found)} files are more than the limit of {FILES_LIMIT}")
    return found


def _digest(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:8]


def _read(files: Sequence[Path]) -> _Parts:
    parts, problems = _Parts({}, {}, {}), []
    for file in files:
        try:
            documents = read_yaml_documents(file)
        except YamlProblemError as error:
            raise ConfigurationError(str(error)) from None
        for document in documents:
            problems += _add(parts, document)
    if len(parts.slos) > OBJECTIVES_LIMIT:
        problems.append(Problem(files[0], 1, f"{len(parts.slos)} objectives are more than {OBJECTIVES_LIMIT}"))
    if problems:
        raise ConfigurationError("\n".join(map(str, problems)))
    return parts


def _add(parts: _Parts, document: YamlDocument) -> list[Problem]:
    data = document.data if isinstance(document.data, dict) else {}
    kind = data.get("kind")
    if data.get("apiVersion") == OPENSLO and kind in IGNORED:
        return []
    model = KINDS.get(str(kind))
    if model is None or data.get("apiVersion") not in (OPENSLO, OURS):
        known = f"{OPENSLO} SLO and AlertPolicy, {OURS} Exclusion"
        return [document.problem(("kind",), f"not a document of objectives (known: {known})")]
    found = validate(document, model)
    return found if isinstance(found, list) else _put(parts, document, found)


def _put(parts: _Parts, document: YamlDocument, found: BaseModel) -> list[Problem]:
    name = document.data["metadata"]["name"]
    twice = document.problem(("metadata", "name"), f"{document.data['kind']} {name!r} is given twice: rename one")
    if isinstance(found, Slo):
        repeated, parts.slos[name] = name in parts.slos, (found, document)
    elif isinstance(found, AlertPolicy):
        repeated, parts.policies[name] = name in parts.policies, found
    elif isinstance(found, ExclusionDocument):
        repeated, parts.exclusions[name] = name in parts.exclusions, (found, document)
    else:
        repeated = False
    return [twice] if repeated else []


def _problems(parts: _Parts) -> Iterator[Problem]:
    """What is wrong between documents, each of which is right by itself."""
    for slo, document in parts.slos.values():
        yield from _of_policies(slo, document, parts.policies)
    for exclusion, document in parts.exclusions.values():
        for index, name in enumerate(exclusion.spec.objectives):
            if name not in parts.slos:
                known = ", ".join(sorted(parts.slos))
                yield document.problem(("spec", "objectives", index), f"no objective {name!r} (known: {known})")
    for name in parts.slos:
        for before, after in combinations(sorted(_exclusions_of(name, parts.exclusions), key=lambda e: e.from_ms), 2):
            if after.from_ms < before.to_ms and before.meets(after.cluster):
                _, where = parts.exclusions[after.name]
                yield where.problem(("spec", "from"), f"overlaps exclusion {before.name!r} of {name}: make them one")


def _of_policies(slo: Slo, document: YamlDocument, policies: Mapping[str, AlertPolicy]) -> Iterator[Problem]:
    window = _window(slo)
    for index, ref in enumerate(slo.spec.alert_policies):
        policy, at = policies.get(ref.alert_policy_ref), ("spec", "alertPolicies", index)
        if policy is None:
            known = ", ".join(sorted(policies))
            yield document.problem(at, f"no alert policy {ref.alert_policy_ref!r} (known: {known})")
        elif policy.spec.conditions[0].spec.condition.lookback_window >= window.length_ms:
            text = f"the window must be longer than that of alert policy {ref.alert_policy_ref}, or it warns too late"
            yield document.problem(("spec", "timeWindow"), text)


def _name(slo: Slo) -> str:
    """The name by which programs know it: metric labels and columns take no hyphens."""
    return slo.metadata.name.replace("-", "_")


def _window(slo: Slo) -> Window:
    entry = slo.spec.time_window[0]
    if entry.calendar is None:
        return rolling(parse_duration_ms(entry.duration))
    return of_calendar(entry.calendar_unit, entry.calendar.time_zone)


def _objective(slo: Slo, parts: _Parts) -> Objective:
    spec, goal, labels, notes = slo.spec, slo.spec.objectives[0], slo.metadata.labels, slo.metadata.annotations
    window = _window(slo)
    tiers = tuple(_tier(parts.policies[ref.alert_policy_ref], window.length_ms) for ref in spec.alert_policies)
    objective = Objective(
        name=_name(slo),
        indicator=slo.indicator,
        title=slo.metadata.display_name or slo.metadata.name,
        promise=spec.description,
        target=goal.target,
        window=window,
        tiers=tiers,
        scope=Scope(labels.cluster, labels.pool, labels.team, labels.workload),
        method=spec.budgeting_method,
        slice_ms=goal.time_slice_window,
        slice_target=goal.time_slice_target,
        exclusions=tuple(_exclusions_of(slo.metadata.name, parts.exclusions)),
        within_ms=notes.within,
        pending_limit_ms=notes.pending_limit,
    )
    can_fire, never_fire = split_tiers(objective.name, goal.target, tiers)
    return replace(objective, tiers=can_fire, never_fire=never_fire)


def _tier(policy: AlertPolicy, period_ms: int) -> Tier:
    condition = policy.spec.conditions[0]
    burn, notes = condition.spec.condition, condition.metadata.annotations
    share = notes.budget_share
    if share is None:
        share = burn.threshold * burn.lookback_window / period_ms
    name = policy.metadata.name.replace("-", "_")
    return Tier(name, condition.spec.severity, burn.lookback_window, notes.short, share, period_ms)


def _exclusions_of(name: str, exclusions: Mapping[str, tuple[ExclusionDocument, YamlDocument]]) -> Iterable[Exclusion]:
    for document, _ in exclusions.values():
        spec = document.spec
        if not spec.objectives or name in spec.objectives:
            yield Exclusion(
                document.metadata.name,
                ms_of(spec.begins),
                ms_of(spec.ends),
                spec.reason,
                spec.author,
                spec.classes,
                document.metadata.labels.cluster,
            )
