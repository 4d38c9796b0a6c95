"""What somebody asks a policy about, put together by the processors' own functions: a route is never found twice."""

from __future__ import annotations

from typing import Final, NamedTuple, get_args

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from faultlens.catalogue import Catalogue
from faultlens.catalogue.model import CHECK_KIND
from faultlens.catalogue.reference import FaultName, known_family, parse_name
from faultlens.causes import CAUSES, class_of, nearest, title_of
from faultlens.codec import Event, event_of
from faultlens.errors import UsageError
from faultlens.events import Check, CheckStatus, Data, NodeFault, NodeHealth
from faultlens.internal import Announced, NodeFacts, Observation
from streams.attribution.rules import RULES, name_of
from streams.node_health.judging import LASTING, of_check, of_fault, of_silence
from streams.node_health.record import NodeRecord
from streams.remediation import Policy, Trouble, announcing, incidents
from streams.remediation.record import NodeCard, Trait

_NODE: Final = "node"
_SILENCE: Final = "kernel:silent"
_SPOKEN: Final = ("verdict", "finding")
_RULES: Final = frozenset(name_of(rule) for rule in RULES)
# Other findings of jobs are for people, and ask the policy nothing.
_FINDINGS: Final = ("hang", "crash_loop")


class Question(BaseModel):
    """A trouble, with all that a route can depend on: what broke, where, how often, and what it has cost.

    `fault` is KIND:CODE as the catalogue names it, `kernel:silent`, `verdict:RULE` or `finding:KIND`; the latter two
    take their `cause` with them. `announced`: the step that the driver announced near it (Xid 154).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    fault: str = Field(pattern=r"^[a-z_]+:[^ ]+$")
    family: str | None = None
    driver: str | None = None
    component: str = "gpu"
    cause: str | None = None
    severity: int | None = Field(default=None, ge=0, le=100)
    announced: str | None = None
    common: bool = False
    pool: str | None = None
    returns: int = Field(default=0, ge=0)
    incidents: int = Field(default=0, ge=0)
    times: int = Field(default=1, ge=1)
    jobs: int = Field(default=0, ge=0)
    job_gpus: int = Field(default=0, ge=0)
    job_priority: float | None = None
    watched: bool = False


class Asked(NamedTuple):
    """What a question means: in words, how bad, and what a route is chosen by; `why` no route is asked for it."""

    means: str
    severity: int
    trouble: Trouble
    why: str | None = None


def asked(question: Question, catalogue: Catalogue, policy: Policy) -> Asked:
    """Return what the question means to the policy. Raises UsageError, which says what would be an answerable one."""
    known_family(catalogue, question.family)
    kind, _, name = question.fault.partition(":")
    if kind in _SPOKEN:
        return _spoken(question, policy, kind, name)
    if question.cause is not None:
        raise UsageError(f"--cause: of {question.fault} the catalogue says what its cause is; leave it out")
    if question.fault == _SILENCE:
        return _of_condition(question, catalogue, of_silence(NodeRecord(node=_NODE), 0, now_ms=0))
    found = _observed(question, parse_name(question.fault), catalogue)
    if f"{found.kind}:{found.code}" == announcing.FAULT:
        return _announced(question, found)
    return _of_condition(question, catalogue, found)


def _observed(question: Question, name: FaultName, catalogue: Catalogue) -> Observation:
    """Return the fault as a node's processor has it. UsageError: a check of no known status."""
    record = NodeRecord(node=_NODE, gpu_family=question.family, driver_version=question.driver)
    if name.kind == CHECK_KIND:
        status, _, code = (name.subcode or "fail").partition("/")
        if status not in get_args(CheckStatus):
            raise UsageError(f"--fault: no check ends with {status!r}; known are {', '.join(get_args(CheckStatus))}")
        check = Check(name.code, question.component, status, code=code or None)  # type: ignore[arg-type]
        report = NodeHealth(_NODE, _NODE, 60, 0, 0, (check,))
        try:
            return of_check(catalogue, record, _event(report), check, now_ms=0)
        except ValueError as error:
            raise UsageError(f"--fault: {error}") from None
    fault = NodeFault(_NODE, _NODE, name.kind, name.code, "other", subcode=name.subcode)  # type: ignore[arg-type]
    return of_fault(catalogue, record, _event(fault), fault, now_ms=0)


def _event(data: Data) -> Event:
    return event_of(data, source=_NODE, id_=_NODE, time_ms=0)


def _of_condition(question: Question, catalogue: Catalogue, found: Observation) -> Asked:
    trait, card = _as_bad_as_said(question, incidents.trait_of(found)), _card(question)
    if question.announced is not None:
        if catalogue.announced_action(question.announced) is None:
            known = ", ".join(catalogue.recovery.actions)
            raise UsageError(f"--announced: no driver asks for {question.announced!r}; known are {known}")
        step = _observed(question, FaultName("xid", "154", question.announced), catalogue)
        card = announcing.noted(card, Announced(_NODE, "", 0, step.hint, step=question.announced))
    why = None
    if found.role not in LASTING:
        why = f"a code of role {found.role} opens no incident"
    elif not found.open:
        why = "it happens and is over: what it leads to is told by itself"
    elif announcing.announced_for(card, trait) == "none":
        why = "the driver says that the GPU has recovered"
    return _said(question, found.meaning, trait, card, why=why)


def _announced(question: Question, found: Observation) -> Asked:
    """What the driver announces is a reason by itself where it is a step, and no fault lies near it."""
    word = Announced(_NODE, "", 0, found.hint, step=found.subcode or "")
    card = _card(question)
    trait = _as_bad_as_said(question, announcing.trait_of(card, word))
    why = None if announcing.calls_for(found.hint) else "the driver asks for no step"
    return _said(question, found.meaning, trait, card, why=why)


def _spoken(question: Question, policy: Policy, kind: str, name: str) -> Asked:
    known = _RULES if kind == "verdict" else _FINDINGS
    if name not in known:
        raise UsageError(f"--fault: no route is asked for {question.fault}; known are {', '.join(sorted(known))}")
    if question.cause is None or not nearest(question.cause, CAUSES):
        wrong = "lacks its cause" if question.cause is None else f"has no such cause as {question.cause!r}"
        raise UsageError(f"--fault {question.fault} {wrong}: give --cause CODE, such as gpu.off_bus")
    trait = Trait(
        id=name, key=question.fault, fault=question.fault, cause=question.cause, cause_class=class_of(question.cause),
        role="root", severity=1, since_ms=0, evidence=name, origin=kind, rule=name,  # type: ignore[arg-type]
    )  # fmt: skip
    means = f"{title_of(question.cause)}, by a {kind} of {'rule' if kind == 'verdict' else 'kind'} {name}"
    if name == "hang":  # it is looked at with the node's fault behind it, and nothing else
        behind = policy.severity(trait.cause) if question.severity is None else question.severity
        return Asked(means, behind, Trouble("finding", trait.cause, trait.cause_class, severity=behind, rule=name))
    trait = _as_bad_as_said(question, trait)
    return _said(question, means, trait, _card(question))._replace(severity=incidents.severity_of(policy, trait))


def _said(question: Question, means: str, trait: Trait, card: NodeCard, *, why: str | None = None) -> Asked:
    """Return the answer as the processor asks for routes (`incidents.routed`, `common`)."""
    if question.common:
        shared = Trouble("common", trait.cause, trait.cause_class, severity=trait.severity)
        return Asked(means, trait.severity, shared, why)
    trouble = replace(
        incidents.trouble_of(trait, card),
        returns=question.returns,
        incidents=question.incidents,
        times=question.times,
        jobs=question.jobs,
        watched=question.watched,
    )
    return Asked(means, trait.severity, trouble, why)


def _as_bad_as_said(question: Question, trait: Trait) -> Trait:
    return trait if question.severity is None else replace(trait, severity=question.severity)


def _card(question: Question) -> NodeCard:
    facts = NodeFacts(
        _NODE, "", 0, "available", planned=False, gpus_total=0, gpus_allocatable=0, interval_ms=0, report_ms=0,
        pool=question.pool, job_gpus=question.job_gpus, job_priority=question.job_priority,
    )  # fmt: skip
    return NodeCard("", _NODE, facts)
