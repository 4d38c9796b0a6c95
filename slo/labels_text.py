"""Disputes and the rules that erred, as a terminal shows them and as JSON says them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from faultlens.clock import iso
from slo.labels import Label, RuleRecord
from slo.wording import many, minute, percent, printable

SHOWN: Final = 50
_WIDTH: Final = 120


def as_text(said: Sequence[Label], rules: Sequence[RuleRecord]) -> str:
    """Return the newest labels, and below them the rules that they overrule."""
    if not said:
        return "Nobody has labelled a failure: `faultlens label JOB --class CLASS --why TEXT` does."
    lines = [f"{many(len(said), 'label')}, newest first", *(line for label in said[:SHOWN] for line in _lines(label))]
    if len(said) > SHOWN:
        lines.append(f"  … and {len(said) - SHOWN:,} more")
    return "\n".join([*lines, "", *_rules(rules)])


def _lines(label: Label) -> Iterator[str]:
    cause = f"{label.cause_class}, {label.code}" + (f" on {label.node}" if label.node else "")
    yield f"  {minute(label.at_ms)}  {shown(str(label.key))}: {shown(cause)}, says {shown(label.by)}"
    if label.why:
        yield f"      {shown(label.why)}"
    yield f"      {held_words(label)}"


def held_words(label: Label) -> str:
    """Return in words how a label stands to the program's own verdict."""
    own = label.own
    if own is None:
        return "faultlens had no verdict: it is recorded only"
    said = f"{own.cause_class}, {own.code} ({own.basis}, by {own.rule})"
    words = {"agrees": "agrees with", "refines": "refines", "overrules": "overrules"}
    return shown(f"{words[label.held]} {said}")


def _rules(rules: Sequence[RuleRecord]) -> list[str]:
    lines = ["Rules, most often overruled first (people label what they doubt: no precision of all verdicts)"]
    for record in rules:
        share = percent(record.overruled / record.labelled, digits=0)
        examples = f"  such as {', '.join(shown(name) for name in record.examples)}" if record.examples else ""
        counted = f"{record.overruled} of {record.labelled} overruled ({share}), {record.refined} refined"
        lines.append(f"  {record.rule}/{record.basis}: {counted}{examples}")
    return lines


def shown(text: str) -> str:
    """Return text of others in a form that a terminal only prints, of a line's length."""
    return printable(text, limit=_WIDTH)


def as_plain(said: Sequence[Label], rules: Sequence[RuleRecord]) -> dict[str, Any]:
    """Return the same as plain values."""
    return {
        "labels": [_plain(label) for label in said],
        "rules": [
            {
                "rule": record.rule,
                "basis": record.basis,
                "labelled": record.labelled,
                "overruled": record.overruled,
                "refined": record.refined,
                "examples": list(record.examples),
            }
            for record in rules
        ],
    }


def _plain(label: Label) -> dict[str, Any]:
    own = label.own
    return {
        "job_id": label.key.job_id,
        "attempt": label.key.attempt,
        "loss": label.key.loss or None,
        "class": label.cause_class,
        "code": label.code,
        "node": label.node or None,
        "by": label.by,
        "why": label.why,
        "at": iso(label.at_ms),
        "held": label.held,
        "in_force": label.in_force,
        "own": own and {"class": own.cause_class, "code": own.code, "basis": own.basis, "rule": own.rule},
    }
