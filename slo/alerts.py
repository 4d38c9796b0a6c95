"""Burn-rate rules for Prometheus, from the objectives: on gauges, since an amended verdict makes counts fall."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from faultlens.objectives import Objective, Objectives, Tier, iso_duration
from slo.wording import duration, percent, target_percent

# One failure of a rare job is no trend. The floor is on what is bad; one on traffic would hide total outages.
BAD_FLOOR: Final = 2
DEFAULT_URL: Final = "http://127.0.0.1:8420"
_HEAD: Final = """\
# Written by `faultlens objectives alerts`; change the objectives, and write it anew. What each alert means and what to
# do: docs/operations.md. `severity: page` is for now, `ticket` for today.
"""


def rules_text(objectives: Objectives, url: str = DEFAULT_URL) -> str:
    """Return the file of rules; `url` is where the status page is, which alerts link to."""
    document = {"groups": [{"name": "faultlens-objectives", "rules": list(_rules(objectives, url))}]}
    return _HEAD + yaml.safe_dump(document, sort_keys=False, width=10_000, allow_unicode=True)


def _rules(objectives: Objectives, url: str) -> Iterator[dict[str, Any]]:
    for objective in objectives:
        if _is_told(objectives, objective):
            yield from (_burning(objective, tier, url) for tier in objective.tiers)
            if objective.tiers:
                yield _used_up(objective, url)
    yield {
        "alert": "FaultlensObjectivesUntold",
        "expr": "absent(faultlens_slo_target_ratio)",
        "for": "30m",
        "labels": {"severity": "ticket"},
        "annotations": {"summary": "Nobody tells where the objectives stand: no alert on them can fire"},
    }


def _is_told(objectives: Objectives, objective: Objective) -> bool:
    """Whether the processors hold its indicator to this objective, so that there are gauges of it."""
    scope = objective.scope
    cluster = scope.cluster or "\N{ASTERISK}"
    return objectives.promised(objective.indicator, cluster, scope.pool, scope.team, scope.workload) is objective


def _burning(objective: Objective, tier: Tier, url: str) -> dict[str, Any]:
    def over(metric: str, window_ms: int) -> str:
        return f"max by (cluster) ({metric}{_of(objective, over=iso_duration(window_ms))})"

    factor = f"{tier.factor:.6g}"
    terms = [f"{over('faultlens_slo_burn_rate', window)} >= {factor}" for window in (tier.long_ms, tier.short_ms)]
    if not objective.of_time:
        terms.append(f"{over('faultlens_slo_bad', tier.long_ms)} >= {BAD_FLOOR}")
    share = percent(tier.budget_share, digits=0).replace(" ", "")
    return {
        "alert": "FaultlensBudgetBurns",
        "expr": " and ".join(terms),
        "labels": {"severity": tier.severity, "objective": objective.name, "tier": tier.name},
        "annotations": {
            "summary": f"{objective.title} in {{{{ $labels.cluster }}}} burns its error budget at rate "
            f"{{{{ $value | humanize }}}}: {share} of {duration(objective.window_ms)} within {duration(tier.long_ms)}",
            **_more(objective, url),
        },
    }


def _used_up(objective: Objective, url: str) -> dict[str, Any]:
    return {
        "alert": "FaultlensBudgetUsedUp",
        "expr": f"min by (cluster) (faultlens_slo_budget_remaining_ratio{_of(objective)}) <= 0",
        "for": "15m",
        "labels": {"severity": "ticket", "objective": objective.name},
        "annotations": {
            "summary": f"{objective.title} in {{{{ $labels.cluster }}}} is below "
            f"{target_percent(objective.target)}: its error budget is used up",
            **_more(objective, url),
        },
    }


def _more(objective: Objective, url: str) -> dict[str, str]:
    """Return what helps whoever is woken: the main cause, the worst nodes, and where to look."""
    mine = _of(objective, cluster="%q").replace("'%q'", "%q")
    main = f"topk(1, faultlens_slo_bad_by_class{mine})"
    worst = "topk(3, sum by (node) (increase(faultlens_culprit_failures_total{cluster=%q}[6h])) > 0)"
    return {
        "cause": _asked(main, "{{ .Labels.class }} ({{ .Value | humanize }})"),
        "nodes": _asked(worst, "{{ .Labels.node }} "),
        "link": f"{url}/objectives/{objective.name}?cluster={{{{ $labels.cluster }}}}",
    }


def _asked(query: str, shown: str) -> str:
    return f'{{{{ range printf "{query}" $labels.cluster | query }}}}{shown}{{{{ end }}}}'


def _of(objective: Objective, **more: str) -> str:
    """Return the selector of an objective's gauges."""
    scope = objective.scope
    named = {"cluster": scope.cluster} if scope.cluster and "cluster" not in more else {}
    labels = {
        "objective": objective.indicator,
        **named,
        "pool": scope.pool,
        "team": scope.team,
        "workload": scope.workload,
        "window": objective.window.name,
        **more,
    }
    # Single quotes, since a template's strings are in double ones; no scope holds either.
    return "{" + ",".join(f"{name}='{value}'" for name, value in labels.items()) + "}"
