"""From a command back to what it rests on, in the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from faultlens.cli import app
from faultlens.store import open_store
from slo.evidence import bundle

pytestmark = pytest.mark.store
ONE_FAULT = Path(__file__).parents[2] / "examples" / "one-fault.jsonl"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("story")
    dsn = f"chdb://{directory / 'store'}"
    done = CliRunner().invoke(app, ["replay", str(ONE_FAULT), "--store", dsn, "--out", str(directory / "out")])
    assert done.exit_code == 0, done.output
    return directory


def commands(replayed: Path) -> list[dict[str, str]]:
    lines = (replayed / "out" / "remediation-commands.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["data"] for line in lines]


def test_a_command_is_told_with_policy_incident_faults_and_end(replayed: Path) -> None:
    first = commands(replayed)[0]
    arguments = ["why", "--command", first["command_id"][:10], "--store", f"chdb://{replayed / 'store'}"]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    assert "block_new_work of node-0042" in told.output
    assert "Policy      2026-11 reboot" in told.output
    assert "xid 79 on node-0042" in told.output
    assert "decided over a recording" in told.output
    plain = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert plain["incident"]["incident_id"] == first["reason"]["incident_id"]  # type: ignore[index]


def test_a_ticket_has_the_drivers_own_lines_the_device_the_verdicts_and_what_was_tried(replayed: Path) -> None:
    incident: str = commands(replayed)[0]["reason"]["incident_id"]  # type: ignore[index]
    with open_store(f"chdb://{replayed / 'store'}") as store:
        told, unknown = bundle(store, incident), bundle(store, "nothing")
    (fault,) = told["faults"]
    assert "GPU has fallen off the bus" in fault["message"]
    assert json.loads(fault["device"])["index"] == 5
    assert [(v["job"], v["class"], v["code"]) for v in told["verdicts"]] == [("llm-7/1", "hardware", "gpu.off_bus")]
    assert [step["state"] for step in told["steps"]] == ["expired"] * len(told["steps"])
    assert (told["known"], unknown["known"]) == (True, False)


def test_an_unknown_command_is_said_to_be_unknown(replayed: Path) -> None:
    told = CliRunner().invoke(app, ["why", "--command", "nothing", "--store", f"chdb://{replayed / 'store'}"])
    assert (told.exit_code, "no such command" in told.output) == (1, True)
