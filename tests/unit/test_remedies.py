"""How right remediation is, counted; and what another policy would have done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from faultlens.cli import app
from faultlens.clock import HOUR_MS, MINUTE_MS, moment_of, parse_moment
from faultlens.errors import UsageError
from faultlens.truth import Breakage, Truth
from slo.remedies import Episode, Isolation, Said, as_text, remedies

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
    measured = remedies(truths, [], Said([Isolation("n1", "i", at_ms, at_ms)]))
    assert (measured.missed, measured.unfounded, measured.isolations) == (missed, unfounded, 1)


def test_another_nodes_isolation_helps_nobody() -> None:
    measured = remedies([broken("n1", T0)], [], Said([Isolation("n2", "i", T0)]))
    assert (measured.missed, measured.unfounded) == (1, 1)
    assert "1 of 1 (100.0%)" in as_text(measured)


def breakage(began_ms: int, over_ms: int | None) -> Breakage:
    return Breakage("n1", "gpu.off_bus", moment_of(began_ms), None if over_ms is None else moment_of(over_ms))


@pytest.mark.parametrize(
    ("over_ms", "at_ms", "faults", "unfounded", "silent"),
    [
        (T0 + HOUR_MS, T0 + MINUTE_MS, ("xid:79",), 0, 0),
        (None, T0 + 30 * HOUR_MS, ("xid:79",), 0, 0),
        (T0 + HOUR_MS, T0 + 2 * HOUR_MS, ("xid:79",), 1, 0),
        (T0 + HOUR_MS, T0 - MINUTE_MS, ("xid:79",), 1, 0),
        (T0 + HOUR_MS, T0 + 2 * HOUR_MS, ("xid:63", "kernel:silent"), 0, 1),
    ],
)
def test_what_was_wrong_founds_an_isolation_whether_or_not_a_job_failed(
    over_ms: int | None, at_ms: int, faults: tuple[str, ...], unfounded: int, silent: int
) -> None:
    measured = remedies([], [breakage(T0, over_ms)], Said([Isolation("n1", "i", at_ms, at_ms, faults)]))
    assert (measured.unfounded, measured.silent) == (unfounded, silent)


def test_a_node_that_is_still_out_when_its_job_fails_is_not_missed() -> None:
    out = Isolation("n1", "i", T0 - 5 * HOUR_MS, T0 + HOUR_MS)
    assert remedies([broken("n1", T0)], [], Said([out])).isolated == 1


@pytest.mark.parametrize(
    ("episode", "became"),
    [
        (Episode(frozenset({"n1", "n2"}), T0, common=True), "common"),
        (Episode(frozenset({"n1"}), T0, kept=True), "kept"),
        (Episode(frozenset({"n1"}), T0), "missed"),
        (Episode(frozenset({"n2"}), T0, kept=True), "missed"),
        (Episode(frozenset({"n1"}), T0 - 2 * HOUR_MS, T0 - HOUR_MS, kept=True), "missed"),
    ],
)
def test_what_remediation_knew_and_left_to_others_is_told_from_what_it_missed(episode: Episode, became: str) -> None:
    measured = remedies([broken("n1", T0)], [], Said([], [episode]))
    assert getattr(measured, became) == 1


@pytest.mark.parametrize(("over_ms", "became"), [(T0 + 7 * MINUTE_MS, "over"), (T0 + HOUR_MS, "missed")])
def test_a_machine_that_is_well_again_within_half_an_hour_was_not_to_be_taken_out(over_ms: int, became: str) -> None:
    measured = remedies([broken("n1", T0)], [breakage(T0 - MINUTE_MS, over_ms)], Said([]))
    assert getattr(measured, became) == 1


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


def test_a_shadow_route_is_compared_with_what_it_would_do_live(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "version: trial\nroutes:\n  - {name: trial, match: {faults: ['xid:79']}, ladder: person, mode: shadow}\n",
        "utf-8",
    )
    asked = ["whatif", str(ONE_FAULT), "--against", str(site), "--json", "--promote"]
    answer = json.loads(CliRunner().invoke(app, [*asked, "trial"]).output)
    assert (answer["present"]["isolations"], answer["other"]["isolations"]) == (0, 1)
    assert answer["other"]["policy"] == "2026-11+trial+trial"
    unknown = CliRunner().invoke(app, [*asked, "rest"])
    assert isinstance(unknown.exception, UsageError)
    assert "those are: trial" in str(unknown.exception)
