"""What people say to remediation, as events; and the policy as people ask for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from faultlens import cli_operator
from faultlens.cli import app
from faultlens.clock import MINUTE_MS, ms_of, wall_ms
from faultlens.codec import Decoder, Event
from faultlens.events import ControlScope, OperatorControl

RUNNER = CliRunner()
WORD = ["--cluster", "c1", "--reason", "network work", "--by", "ann"]


def said(tmp_path: Path, *arguments: str) -> Event:
    out = tmp_path / "words.jsonl"
    done = RUNNER.invoke(app, [*arguments, *WORD, "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return Decoder().decode(out.read_bytes().splitlines()[-1])


def word(event: Event) -> OperatorControl:
    assert isinstance(event.data, OperatorControl)
    return event.data


def test_a_pause_is_an_event_with_reason_name_and_expiry(tmp_path: Path) -> None:
    event = said(tmp_path, "pause", "--pool", "a", "--pool", "b", "--for", "10m")
    data = word(event)
    assert (data.verb, data.by, data.reason, event.source, event.subject) == (
        "pause", "ann", "network work", "operator/ann", "c1"
    )  # fmt: skip
    assert data.scope == ControlScope(pools=("a", "b"))
    assert data.expires_at is not None
    assert 0 < ms_of(data.expires_at) - wall_ms() <= 10 * MINUTE_MS


@pytest.mark.parametrize(
    ("arguments", "verb", "scope"),
    [
        (["resume"], "resume", ControlScope()),
        (["hold", "--node", "n1"], "hold", ControlScope(nodes=("n1",))),
        (["release", "--node", "n1"], "release", ControlScope(nodes=("n1",))),
        (["approve", "id-1", "id-2"], "approve", ControlScope(command_ids=("id-1", "id-2"))),
        (["deny", "id-1"], "deny", ControlScope(command_ids=("id-1",))),
        (["acknowledge", "--node", "n1"], "acknowledge", ControlScope(nodes=("n1",))),
    ],
)
def test_each_verb_names_what_it_concerns(tmp_path: Path, arguments: list[str], verb: str, scope: ControlScope) -> None:
    data = word(said(tmp_path, *arguments))
    assert (data.verb, data.scope, data.expires_at) == (verb, scope, None)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["hold", *WORD], "say which nodes: --node or --pool"),
        (["pause", *WORD, "--for", "soon"], "--for: not a duration: 'soon'"),
        (["pause", *WORD, "--until", "2020-01-01T00:00:00Z"], "is over already"),
        (["pause", *WORD, "--for", "1h", "--until", "2099-01-01T00:00:00Z"], "not both"),
        (["pause", "--cluster", "c1", "--reason", " "], "say why"),
    ],
)
def test_wrong_use_is_told_before_anything_is_sent(arguments: list[str], complaint: str) -> None:
    done = RUNNER.invoke(app, [*arguments, "--out", "-"])
    assert complaint in str(done.exception)


def test_every_verb_of_the_contract_has_a_command() -> None:
    verbs = OperatorControl.__annotations__["verb"]
    assert all(hasattr(cli_operator, verb.strip("\"' ")) for verb in verbs[verbs.index("[") + 1 : -1].split(","))


# --- the policy ------------------------------------------------------------------------------------------


def test_the_policy_says_what_it_would_do_about_a_fault() -> None:
    done = RUNNER.invoke(app, ["policy", "explain", "--fault", "xid:79", "--family", "H100", "--json"])
    answer = json.loads(done.output)
    assert answer["route"] == "reboot"
    assert answer["steps"][:3] == ["block_new_work", "drain", "reboot"]
    assert answer["details"][1].startswith("drain: at once")


def test_a_harmless_code_opens_no_incident() -> None:
    done = RUNNER.invoke(app, ["policy", "explain", "--fault", "xid:45"])
    assert "nothing is done: a code of role sympathetic opens no incident" in done.output


def test_cases_of_a_policy_pass_or_say_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(
        "cases:\n"
        "  - {fault: 'xid:79', family: H100, route: reboot, contains: [drain], never: [reset_device]}\n"
        "  - {fault: 'xid:119', family: H100, never: [reboot]}\n",
        "utf-8",
    )
    done = RUNNER.invoke(app, ["policy", "test", str(file)])
    assert done.exit_code == 1
    assert "case 2 (xid:119): must never reboot" in done.output
    assert "2 cases, 1 complaints" in done.output
