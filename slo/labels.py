"""What people said of failures, held against what the program had said: disputes, and the rules that erred."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from faultlens.causes import CauseClass
from faultlens.clock import moment_of
from faultlens.events import Basis
from faultlens.truth import Truth
from slo.queries import EVER_MS, Reader, ask
from slo.scoring import Key, Verdict, same_branch

LIMIT: Final = 100_000

Held = Literal["agrees", "refines", "overrules", "alone"]


@dataclass(frozen=True, slots=True)
class Label:
    """A person's last word on a failure; `own` is the program's last verdict before or beside it, if it had one.

    `in_force`: the verdict in force is the label's. One that says what the verdict says already changes nothing.
    """

    key: Key
    cause_class: str
    code: str
    node: str
    by: str
    why: str
    at_ms: int
    ended_ms: int
    own: Verdict | None
    in_force: bool

    @property
    def held(self) -> Held:
        """How it stands to the program's own verdict: another class, another branch of the same class, or the same."""
        if self.own is None:
            return "alone"
        if self.own.cause_class != self.cause_class:
            return "overrules"
        return "agrees" if same_branch(self.own.code, self.code) else "refines"


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """How a rule fared with those who looked at its verdicts. People look at what they doubt: this is no precision
    of all its verdicts, but of the disputed ones."""

    rule: str
    basis: str
    labelled: int
    overruled: int
    refined: int
    examples: tuple[str, ...]


def labels(
    reader: Reader, *, cluster: str = "", from_ms: int = EVER_MS[0], to_ms: int = EVER_MS[1]
) -> tuple[Label, ...]:
    """Return the last word on each failure that was said in a time, newest first, at most 100,000."""
    params = {"cluster": cluster, "job": "", "from": from_ms, "to": to_ms, "limit": LIMIT}
    return tuple(_label(row) for row in ask(reader, "labels", params))


def held_of_job(reader: Reader, job_id: str, attempt: int) -> tuple[Label, ...]:
    """Return the last words on an attempt: on its end, and on each loss that it survived."""
    params = {"cluster": "", "job": job_id, "from": EVER_MS[0], "to": EVER_MS[1], "limit": LIMIT}
    return tuple(label for label in map(_label, ask(reader, "labels", params)) if label.key.attempt == attempt)


def _label(row: Mapping[str, Any]) -> Label:
    key = Key(row["job_id"], row["attempt"], row["loss"])
    own = None
    if row["judged"]:
        own = Verdict(
            key,
            cast("CauseClass", row["class"]),
            row["code"],
            cast("Basis", row["basis"]),
            row["confidence"],
            row["rule"],
            bool(row["settled"]),
            row["first_said_ms"],
            row["node"] or None,
            row["device_index"],
        )
    return Label(
        key=key,
        cause_class=row["label_class"],
        code=row["label_code"],
        node=next(iter(row["label_nodes"]), ""),
        by=row["by"],
        why=row["why"],
        at_ms=row["at_ms"],
        ended_ms=row["ended_ms"],
        own=own,
        in_force=bool(row["in_force"]),
    )


def rules_overruled(said: Iterable[Label]) -> tuple[RuleRecord, ...]:
    """Return the rules whose verdicts were labelled, most often overruled first."""
    by_rule: dict[tuple[str, str], list[Label]] = {}
    for label in said:
        if label.own is not None:
            by_rule.setdefault((label.own.rule, label.own.basis), []).append(label)
    records = [_record(rule, basis, of_rule) for (rule, basis), of_rule in by_rule.items()]
    return tuple(sorted(records, key=lambda r: (-r.overruled, -r.refined, -r.labelled, r.rule, r.basis)))


def _record(rule: str, basis: str, of_rule: list[Label]) -> RuleRecord:
    overruled = [label for label in of_rule if label.held == "overrules"]
    return RuleRecord(
        rule,
        basis,
        len(of_rule),
        len(overruled),
        sum(label.held == "refines" for label in of_rule),
        tuple(str(label.key) for label in overruled[:3]),
    )


def truth_of(label: Label) -> Truth:
    """Return a label as a known cause. Whether it could have been decided from what was told, nobody asked."""
    return Truth(
        job_id=label.key.job_id,
        attempt=label.key.attempt,
        cause_class=cast("CauseClass", label.cause_class),
        code=label.code,
        decidable=True,
        why=f"labelled by {label.by}: {label.why}",
        ended_at=moment_of(label.ended_ms),
        started=True,
        loss=label.key.loss or None,
        node=label.node or None,
    )
