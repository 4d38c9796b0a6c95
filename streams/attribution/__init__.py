"""Attribution: one pure function from an attempt and its evidence to a verdict."""

from streams.attribution.attribute import Verdict, attribute, described
from streams.attribution.exits import ended_by_nobody
from streams.attribution.facts import Earlier, End, Exit, Facts, Said
from streams.attribution.precision import Precision, load_precision
from streams.attribution.roots import behind_our_command, order_ms

__all__ = [
    "Earlier",
    "End",
    "Exit",
    "Facts",
    "Precision",
    "Said",
    "Verdict",
    "attribute",
    "behind_our_command",
    "described",
    "ended_by_nobody",
    "load_precision",
    "order_ms",
]
