"""The objectives as the status page shows them: at a glance, and one with all that is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from slo.backing import attained_words, known_words
from slo.measure import OVERHEAD
from slo.pages.asked import link
from slo.report.charts import Frame, meter
from slo.status import Standing
from slo.status_text import detail_lines, verdict_word, window_words
from slo.wording import NOTHING, percent, share_of_budget, target_percent

WORDS = {True: "met", False: "missed", None: "no data"}


@dataclass(frozen=True)
class Tile:
    """An objective at a glance."""

    title: str
    href: str
    verdict: str
    attained: str
    target: str
    window: str
    known: str
    left: str
    meter: Markup | None
    firing: str


def tiles(found: Sequence[Standing], cluster: str) -> list[Tile]:
    """Return a tile for each objective."""
    return [_tile(standing, cluster) for standing in found]


def _tile(standing: Standing, cluster: str) -> Tile:
    objective, left = standing.objective, standing.budget_left
    words = f"{objective.title}: {percent(left, digits=0)} of the error budget is left"
    drawn = None if left is None else meter(Frame(f"budget-{objective.name}", "Error budget left", words, 160), left)
    return Tile(
        title=objective.title,
        href=link(f"/objectives/{objective.name}", cluster=cluster),
        verdict=verdict_word(standing, WORDS),
        attained=attained_words(standing.attained, objective.target, digits=standing.digits),
        target=target_percent(objective.target),
        window=window_words(standing),
        known=known_words(standing.known_ms, standing.elapsed_ms),
        left=""
        if left is None
        else f"budget {share_of_budget(left)}"
        if left < 0
        else f"budget left: {share_of_budget(left)}",
        meter=drawn,
        firing=standing.firing[0] if standing.firing else "",
    )


def lines(standing: Standing) -> list[str]:
    """Return all that is said of one objective beyond its tile."""
    return [line[:1].upper() + line[1:] for line in detail_lines(standing)]


def shares(standing: Standing) -> list[tuple[str, str, str]]:
    """Return whom the rest is charged to: class, share of what is bad, and where to read on."""
    counted = standing.measure or standing.streamed
    if counted is None:
        return []
    bad = sum(counted.by_class.values())
    ranked = sorted(counted.by_class.items(), key=lambda item: (item[0] == OVERHEAD, -item[1], item[0]))
    return [
        (
            name,
            percent(amount / bad) if bad else NOTHING,
            "" if name == OVERHEAD else link("/failures", **{"class": name}),
        )
        for name, amount in ranked
    ]
