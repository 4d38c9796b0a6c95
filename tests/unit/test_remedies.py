"""How right remediation is, counted; and what another policy would have done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from faultlens.cli import app
from faultlens.clock import HOUR_MS, MINUTE_MS, moment_of, parse_moment
from faultlens.truth import Truth
from slo.remedies import Isolation, Remedies, as_text, remedies

T0 = parse_moment("2026-11-23T04:00:00Z")
ONE_FAULT = Path(__file__).parents[2] / "examples" / "one-fault.jsonl"


def broken(node: str | None, at_ms: int, cause_class: str = "hardware") -> Truth:
    code = "gpu.off_bus" if cause_class == "hardware" else "app.crash"
    return Truth("job", 1, cause_class, code, True, "so", moment_of(at_ms), True, node=node)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at_ms", "missed", "unfounded"),
    [
        (T0, 0, 0),
        (T0 - 30 * MINUTE_MS, 0, 0),
        (T0 + 30 * MINUTE_MS, 0, 0),
        (T0 + 31 * MINUTE_MS, 1, 0),
        (T0 + 2 * HOUR_MS, 1, 1),
        (T0 - 23 * HOUR_MS, 1, 0),
        (T0 - 25 * HOUR_MS, 1, 1),
    ],
)
def test_a_fault_is_caught_in_time_and_an_isolation_founded_by_what_is_near(
    at_ms: int, missed: int, unfounded: int
) -> None:
    truths = [broken("n1", T0), broken(None, T0, "user")]
    assert remedies(truths, [Isolation("n1", "i", at_ms)]) == Remedies(1, missed, 1, unfounded)


def test_another_nodes_isolation_helps_nobody() -> None:
    assert remedies([broken("n1", T0)], [Isolation("n2", "i", T0)]) == Remedies(1, 1, 1, 1)
    assert "1 of 1 (100.0%)" in as_text(Remedies(1, 1, 1, 1))


def test_two_policies_are_compared_over_what_was_recorded(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "version: trial\nroutes:\n  - {name: trial, match: {faults: ['xid:79']}, ladder: person, mode: shadow}\n",
        "utf-8",
    )
    done = CliRunner().invoke(app, ["whatif", str(ONE_FAULT), "--policy", str(site), "--json"])
    answer = json.loads(done.output)
    assert answer["present"]["commands"]["block_new_work"] >= 1
    assert answer["other"]["commands"] == {}
    assert answer["other"]["shadow"] == {"trial": 2}
    assert answer["difference"]["isolations"] == -1
