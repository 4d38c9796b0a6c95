"""The rules as a page for people: docs/attribution.md is written by this, and a test compares it."""

from __future__ import annotations

import inspect
import sys
from pathlib import PurePosixPath
from typing import Final

from faultlens.events import Basis
from streams.attribution.precision import Precision, load_precision
from streams.attribution.rules import RULES, Rule, name_of

_BASES: Final[tuple[Basis, ...]] = ("established", "supported", "assumed")

_HEAD: Final = """\
# How a failure is attributed

*Written by `make docs` from the rules themselves: `streams/attribution/rules/`.*

A failed attempt has exactly one cause. The rules are asked in this order, and **the first one that applies decides**;
the next ones that apply with another code become the verdict's alternatives. Each rule is a function of a few lines
from the facts (`streams/attribution/facts.py`) to a finding or nothing; every verdict names the one that decided.

What the facts hold is what bears on the attempt: faults of the nodes and devices that it held, from ten minutes before
the first sign of trouble to five minutes after the end; its ranks' exits and what their last lines say; incidents,
maintenance and roll-outs that touch a node it held; what the same devices and nodes did to others; and how its
earlier attempts ended. What a fault code means is said by the [catalogue](catalogue.md), what a log line means by
the signatures (`faultlens/signatures/data/`); which of several roots it was is said in
`streams/attribution/roots.py`: the earliest, of those within ten seconds the most severe; but what lies where the job
itself points (the rank that broke first, the ranks that a flight recorder misses, the peer that others name, the node
that the scheduler names: `streams/attribution/pointing.py`) comes before what lies elsewhere, and what began in the
window before what had been broken for long while the job ran.

A verdict's **basis** says how well it is founded: `established` (a root fault was observed on what the job held),
`supported` (a symptom or the text points there), `assumed` (nothing pointed anywhere, and the rule says what is then
the default). Its **confidence** is how often the rule named the right class on failures whose true cause is known, when
it answered with that basis; it is shown, and never a threshold for an action. Where a rule was never measured it
carries what its basis is worth on average.

| | rule | applies when | confidence |
|---|---|---|---|
"""


def page(precision: Precision) -> str:
    """Return the page, in Markdown; it depends on the rules and their measured precision alone."""
    return _HEAD + "".join(_row(number, rule, precision) for number, rule in enumerate(RULES, 1))


def _row(number: int, rule: Rule, precision: Precision) -> str:
    module = PurePosixPath(*inspect.getmodule(rule).__name__.split(".")).with_suffix(".py")  # type: ignore[union-attr]
    name = name_of(rule)
    measured = [
        f"{basis} {precision.by_rule[key]:.2f}" for basis in _BASES if (key := f"{name}/{basis}") in precision.by_rule
    ]
    meaning = " ".join((inspect.getdoc(rule) or "").split())
    return f"| {number} | [`{name}`](../{module}) | {meaning} | {', '.join(measured) or 'not measured'} |\n"


if __name__ == "__main__":
    sys.stdout.write(page(load_precision()))
