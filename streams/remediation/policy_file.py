"""Reads the policy from YAML, lays a site's file over it, and names file and line of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from faultlens.causes import CAUSES
from faultlens.errors import ConfigurationError
from faultlens.events import Action
from faultlens.objectives import parse_duration_ms
from faultlens.yaml_lines import YamlDocument, YamlProblemError, read_yaml
from streams.remediation.policy import (
    Breaker,
    Cap,
    Limits,
    Match,
    Mode,
    Origin,
    Policy,
    Return,
    Route,
    Rung,
    Timing,
    Verification,
    Wait,
)

SHIPPED: Final = Path(__file__).parent / "data" / "policy.yaml"
LADDERS_MAX: Final = 64
RUNGS_MAX: Final = 16
ROUTES_MAX: Final = 256
# What a ladder may hold: the way back is nobody's step.
STEPS: Final = tuple(action for action in get_args(Action) if action != "return_to_service")


def _duration(value: object) -> int:
    return 0 if value in ("none", 0) else parse_duration_ms(str(value))


def _step(value: object) -> object:
    return {"action": value} if isinstance(value, str) else value


Duration = Annotated[int, BeforeValidator(_duration)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}$")]
Words = Annotated[tuple[str, ...], Field(max_length=100)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Cap(_Strict):
    share: float = Field(gt=0, le=1)
    nodes: int | None = Field(default=None, ge=1)


class _Limits(_Strict):
    cluster: _Cap | None = None
    pool: _Cap | None = None
    domain: _Cap | None = None


class _Breaker(_Strict):
    nodes: int = Field(ge=2)
    share: float = Field(gt=0, le=1)
    window: Duration
    rollout_window: Duration
    open_for: Duration
    queue_for: Duration


class _Tolerance(_Strict):
    accelerator: Duration
    other: Duration
    fatal_severity: int = Field(ge=0, le=101)


class _Verification(_Strict):
    within: Duration
    stable: Duration
    probation: Duration
    history: Duration
    announced: Duration


class _Timing(_Strict):
    start_within: Duration
    finish_within: Duration


class _Step(_Strict):
    action: Literal[STEPS]  # type: ignore[valid-type]
    wait: Wait = "now"
    attempts: int = Field(default=1, ge=1, le=10)
    cooldown: Duration = 60_000
    approval: bool = False


class _Match(_Strict):
    origins: tuple[Origin, ...] = ()
    faults: Words = ()
    causes: Words = ()
    roles: tuple[Literal["root", "trend", "unexpected"], ...] = ()
    hints: Words = ()
    rules: Words = ()
    families: Words = ()
    pools: Words = ()
    from_severity: int = Field(default=0, ge=0, le=100)
    from_returns: int = Field(default=0, ge=0, le=1000)
    from_incidents: int = Field(default=0, ge=0, le=1000)
    from_times: int = Field(default=0, ge=0, le=1000)
    from_jobs: int = Field(default=0, ge=0, le=1000)
    from_job_gpus: int = Field(default=0, ge=0)
    from_job_priority: float | None = None
    watched: bool | None = None


class _Route(_Strict):
    name: Name
    match: _Match = _Match()
    ladder: Name
    mode: Mode = "live"
    tolerance: Duration | None = None
    returns_by: Return = "verified"
    validate_first: bool = Field(default=True, alias="validate")


class PolicyFile(_Strict):
    """A policy as people write it. A site's says only what differs: its routes come before the shipped ones."""

    version: str = Field(min_length=1, max_length=40)
    limits: _Limits | None = None
    breaker: _Breaker | None = None
    tolerance: _Tolerance | None = None
    verification: _Verification | None = None
    severities: dict[str, Annotated[int, Field(ge=0, le=100)]] = {}
    timings: dict[Literal[get_args(Action)], _Timing] = {}  # type: ignore[valid-type]
    ladders: dict[Name, Annotated[tuple[Annotated[_Step, BeforeValidator(_step)], ...], Field(max_length=RUNGS_MAX)]]
    routes: tuple[_Route, ...] = Field(default=(), max_length=ROUTES_MAX)
    without: tuple[Name, ...] = ()
    executable: tuple[Literal[get_args(Action)], ...] | None = None  # type: ignore[valid-type]
    controllers: Words | None = None

    @model_validator(mode="before")
    @classmethod
    def _no_ladders(cls, raw: Any) -> Any:
        return {"ladders": {}, **raw} if isinstance(raw, dict) else raw


def load_policy(path: Path | None = None) -> Policy:
    """Return the shipped policy with that of the file at `path` laid over it.

    A site's routes are asked first, its ladders, caps and timings replace those of the same name, and what `without`
    names of the shipped routes is left out. Raises ConfigurationError, which names file and line of every problem.
    """
    document, shipped = _read(SHIPPED)
    _check(document, shipped, ladders=shipped.ladders, routes=())
    if path is None:
        return _policy(shipped)
    own_document, own = _read(path)
    _check(own_document, own, ladders={**shipped.ladders, **own.ladders}, routes=[r.name for r in shipped.routes])
    return _policy(_over(shipped, own))


def _read(path: Path) -> tuple[YamlDocument, PolicyFile]:
    try:
        document = read_yaml(path)
        return document, PolicyFile.model_validate(document.data)
    except YamlProblemError as error:
        raise ConfigurationError(str(error)) from None
    except ValidationError as error:
        raise ConfigurationError("\n".join(str(problem) for problem in document.problems_of(error))) from None


def _check(document: YamlDocument, file: PolicyFile, *, ladders: Mapping[str, Any], routes: Any) -> None:
    found = [*_routes_of(file, ladders), *_ladders_of(file), *_left_out(file, routes), *_ranked(file)]
    if found:
        raise ConfigurationError("\n".join(str(document.problem(location, text)) for location, text in found))


_Findings = Iterator[tuple[tuple[int | str, ...], str]]


def _routes_of(file: PolicyFile, ladders: Mapping[str, Any]) -> _Findings:
    names = [route.name for route in file.routes]
    for at, route in enumerate(file.routes):
        if route.name in names[:at]:
            yield ("routes", at, "name"), f"route {route.name!r} is given twice: rename one"
        if route.ladder not in ladders:
            known = ", ".join(sorted(ladders))
            yield ("routes", at, "ladder"), f"there is no ladder {route.ladder!r}: known are {known}"
        for number, cause in enumerate(route.match.causes):
            if not _is_cause(cause):
                yield ("routes", at, "match", "causes", number), f"no cause begins with {cause!r} (faultlens/causes.py)"


def _ranked(file: PolicyFile) -> _Findings:
    for cause in file.severities:
        if not _is_cause(cause):
            yield ("severities", cause), f"no cause begins with {cause!r} (faultlens/causes.py)"


def _is_cause(cause: str) -> bool:
    return cause in CAUSES or any(known.startswith(f"{cause}.") for known in CAUSES)


def _ladders_of(file: PolicyFile) -> _Findings:
    for name, steps in file.ladders.items():
        actions = [step.action for step in steps]
        if "drain" in actions and "block_new_work" in actions[actions.index("drain") :]:
            yield ("ladders", name), "block_new_work comes before drain: change their order"


def _left_out(file: PolicyFile, routes: Any) -> _Findings:
    for at, name in enumerate(file.without):
        if name not in routes:
            yield ("without", at), f"there is no shipped route {name!r}: `faultlens policy show` lists them"


def _over(shipped: PolicyFile, own: PolicyFile) -> PolicyFile:
    limits = own.limits or _Limits()
    before = shipped.limits or _Limits()
    names = {route.name for route in own.routes} | set(own.without)
    changed = {
        "version": f"{shipped.version}+{own.version}",
        "limits": before.model_copy(update=limits.model_dump(exclude_none=True) and _given(limits)),
        "breaker": own.breaker or shipped.breaker,
        "tolerance": own.tolerance or shipped.tolerance,
        "verification": own.verification or shipped.verification,
        "severities": dict(shipped.severities) | dict(own.severities),
        "timings": dict(shipped.timings) | dict(own.timings),
        "ladders": dict(shipped.ladders) | dict(own.ladders),
        "routes": (*own.routes, *(route for route in shipped.routes if route.name not in names)),
        "executable": own.executable if own.executable is not None else shipped.executable,
        "controllers": own.controllers if own.controllers is not None else shipped.controllers,
    }
    return shipped.model_copy(update=changed)


def _given(limits: _Limits) -> dict[str, _Cap]:
    caps = {"cluster": limits.cluster, "pool": limits.pool, "domain": limits.domain}
    return {name: cap for name, cap in caps.items() if cap is not None}


def _policy(file: PolicyFile) -> Policy:
    limits, breaker, tolerance, verification = file.limits, file.breaker, file.tolerance, file.verification
    assert limits is not None, "the shipped policy says all of it"  # noqa: S101
    assert breaker is not None  # noqa: S101
    assert tolerance is not None  # noqa: S101
    assert verification is not None  # noqa: S101
    return Policy(
        version=file.version,
        limits=Limits(*(_cap(cap) for cap in (limits.cluster, limits.pool, limits.domain))),
        breaker=Breaker(
            breaker.nodes,
            breaker.share,
            breaker.window,
            breaker.rollout_window,
            breaker.open_for,
            breaker.queue_for,
        ),
        accelerator_ms=tolerance.accelerator,
        other_ms=tolerance.other,
        fatal_severity=tolerance.fatal_severity,
        verification=Verification(
            verification.within,
            verification.stable,
            verification.probation,
            verification.history,
            verification.announced,
        ),
        timings={name: Timing(timing.start_within, timing.finish_within) for name, timing in file.timings.items()},
        ladders={name: tuple(_rung(step) for step in steps) for name, steps in file.ladders.items()},
        routes=tuple(_route(route) for route in file.routes),
        executable=None if file.executable is None else frozenset(file.executable),
        severities=dict(file.severities),
        controllers=frozenset(file.controllers or ()),
    )


def _cap(cap: _Cap | None) -> Cap:
    assert cap is not None, "the shipped policy caps every kind of scope"  # noqa: S101
    return Cap(cap.share, cap.nodes)


def _rung(step: _Step) -> Rung:
    return Rung(step.action, step.wait, step.attempts, step.cooldown, step.approval)


def _route(route: _Route) -> Route:
    match = Match(**{name: getattr(route.match, name) for name in _Match.model_fields})
    return Route(route.name, match, route.ladder, route.mode, route.tolerance, route.returns_by, route.validate_first)
