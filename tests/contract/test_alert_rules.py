"""The rules for Prometheus, checked and played through by its own promtool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from faultlens.objectives import load_objectives
from slo.alerts import rules_text

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "deploy" / "prometheus" / "objectives.yml"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool here (Debian: prometheus)")

SCOPED = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: nlp, displayName: The NLP team, labels: {cluster: c1, team: nlp}}
spec:
  description: Its attempts are not failed by the fleet.
  service: fleet
  indicatorRef: job-success
  timeWindow: [{duration: 28d}]
  objectives: [{target: 0.99}]
  alertPolicies: [{alertPolicyRef: page-fast}]
"""


def series(metric: str, values: str, **labels: str) -> dict[str, str]:
    scope = {"objective": "job_success", "cluster": "c1", "pool": "", "team": "", "workload": "", "window": "P28D"}
    named = {"instance": "sink:9464"} | scope | labels
    return {"series": f"{metric}{{{','.join(f'{k}={v!r}' for k, v in named.items())}}}", "values": values}


def told(rate: str, bad: str, short: str | None = None, **labels: str) -> list[dict[str, str]]:
    """What the sink shows of one objective: burn rates of an hour and of five minutes, and how much was bad."""
    return [
        series("faultlens_slo_burn_rate", rate, over="PT1H", **labels),
        series("faultlens_slo_burn_rate", short or rate, over="PT5M", **labels),
        series("faultlens_slo_bad", bad, over="PT1H", **labels),
        series("faultlens_slo_target_ratio", "0.995x90", **labels),
        series("faultlens_slo_bad_by_class", "3x90", **{"class": "hardware"}, **labels),
        series("faultlens_slo_bad_by_class", "1x90", **{"class": "driver"}, **labels),
        {"series": "faultlens_culprit_failures_total{cluster='c1',node='n7'}", "values": "0+1x90"},
    ]


def expected(**labels: str) -> dict[str, Any]:
    named = {"severity": "page", "objective": "job_success", "tier": "page_fast", "cluster": "c1"} | labels
    return {"exp_labels": named, "exp_annotations": EXPLAINED}


EXPLAINED = {
    "summary": "Job success in c1 burns its error budget at rate 20: 2% of 28 d within 1 h",
    "cause": "hardware (3)",
    "nodes": "n7 ",
    "link": "http://127.0.0.1:8420/objectives/job_success?cluster=c1",
}


def case(name: str, shown: list[dict[str, str]], at: str, *alerts: dict[str, Any], alert: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "interval": "1m",
        "input_series": shown,
        "alert_rule_test": [
            {"eval_time": at, "alertname": alert or "FaultlensBudgetBurns", "exp_alerts": list(alerts)},
        ],
    }


CASES = [
    case("both windows burn", told("20x90", "4x90"), "10m", expected()),
    case("the trouble is over", told("20x90", "4x90", short="0x90"), "10m"),
    case("too slow for this tier", told("13x90", "4x90"), "10m"),
    case("one bad attempt of a rare job is no trend", told("100x90", "1x90"), "10m"),
    case("amended: what was counted falls", told("20x20 0x70", "4x20 0x70"), "30m"),
    case("two sinks show the same", told("20x90", "4x90") + told("20x90", "4x90", instance="other"), "10m", expected()),
    case("another team's own", told("20x90", "4x90", team="nlp"), "10m"),
    case(
        "nobody tells", [{"series": "up", "values": "1x90"}], "40m",
        {
            "exp_labels": {"severity": "ticket"},
            "exp_annotations": {"summary": "Nobody tells where the objectives stand: no alert on them can fire"},
        },
        alert="FaultlensObjectivesUntold",
    ),
]  # fmt: skip


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)


def played(directory: Path, rules: str, cases: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    (directory / "rules.yml").write_text(rules)
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": cases}
    (directory / "tests.yml").write_text(yaml.safe_dump(document))
    return promtool("test", "rules", directory / "tests.yml")


def test_what_is_deployed_is_what_the_objectives_say() -> None:
    written = SHIPPED.read_text("utf-8")
    assert written == rules_text(load_objectives()), f"run `faultlens objectives alerts > {SHIPPED.relative_to(ROOT)}`"


def test_a_tier_that_can_never_fire_has_no_rule() -> None:
    rules = yaml.safe_load(rules_text(load_objectives()))["groups"][0]["rules"]
    tiers = {rule["labels"].get("tier") for rule in rules if rule["labels"].get("objective") == "goodput"}
    assert tiers == {"page_slow", "ticket_fast", "ticket_slow", None}


@needs_promtool
def test_prometheus_takes_the_rules_and_its_configuration() -> None:
    for arguments in (("check", "rules", SHIPPED), ("check", "config", SHIPPED.parent / "prometheus.yml")):
        done = promtool(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_rules_warn_when_they_should_and_not_otherwise(tmp_path: Path) -> None:
    done = played(tmp_path, rules_text(load_objectives()), CASES)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_a_teams_own_objective_warns_of_that_team_alone(tmp_path: Path) -> None:
    (site := tmp_path / "site.yaml").write_text(SCOPED)
    wanted = expected(objective="nlp")
    wanted["exp_annotations"] = EXPLAINED | {
        "summary": "The NLP team in c1 burns its error budget at rate 20: 2% of 28 d within 1 h",
        "link": "http://127.0.0.1:8420/objectives/nlp?cluster=c1",
    }
    cases = [
        case("of the team", told("20x90", "4x90", team="nlp"), "10m", wanted),
        case("of another cluster", told("20x90", "4x90", team="nlp", cluster="c2"), "10m"),
    ]
    done = played(tmp_path, rules_text(load_objectives(site)), cases)
    assert done.returncode == 0, done.stdout + done.stderr
