"""The command line: verbs, exit codes, and how errors are told."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faultlens import cli
from faultlens.clock import DAY_MS, parse_moment
from faultlens.codec import encode
from faultlens.errors import ConfigurationError, FaultlensError, InvalidEventError, UsageError, WorldError
from tests.simulation.toy import fault

T0 = parse_moment("2026-11-23T04:00:00Z")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the program; return its exit code and what it wrote to standard output and error."""
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    code = ended.value.code
    shown = capsys.readouterr()
    return (code if isinstance(code, int) else 0), shown.out, shown.err


def recording(tmp_path: Path) -> str:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join(encode(fault(str(i), "n", T0 + i * 1000)) for i in range(20)) + b"\nnot json\n")
    return str(path)


# --- verbs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(cli.VERBS))
def test_every_verb_can_be_loaded_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, _ = run(capsys, name, "--help")
    assert code == 0
    assert len(shown) > 100


@pytest.mark.parametrize("name", sorted(cli.VERBS))
def test_how_a_verb_is_used_names_what_it_takes_as_a_person_would(name: str) -> None:
    """No argument is shown by its name in the program, nor what is optional or may be repeated marked twice."""
    for words in usages(cli.command_of(name), name):
        arguments = words.partition("[OPTIONS]")[2]
        assert not re.search(r"\[\[|…|\{--|\{[a-z_]+\}", arguments), words


def usages(command: Any, name: str) -> Iterator[str]:
    """Yield how each command of a verb is used."""
    context = command.make_context(name, [], resilient_parsing=True)
    yield command.get_usage(context)
    for below in getattr(command, "commands", {}):
        yield from usages(command.commands[below], f"{name} {below}")


def test_help_lists_every_verb_and_loads_none() -> None:
    code = (
        "import sys\nfrom faultlens import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith(('streams', 'sinks', 'faultlens.cli_', 'pydantic', 'chdb'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert all(name in done.stdout for name in cli.VERBS)
    assert done.stdout.rstrip().endswith("[]")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, shown, _ = run(capsys, "--version")
    assert (code, shown.split()[0]) == (0, "faultlens")


def test_a_mistyped_verb_is_wrong_use_and_the_right_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, told = run(capsys, "replya")
    assert code == 2
    assert "Did you mean" in told
    assert "'replay'" in told


# --- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), 2),
        (UsageError("x"), 2),
        (WorldError("x"), 3),
        (InvalidEventError("not_json", "x"), 3),
        (FaultlensError("x"), 3),
    ],
)
def test_what_a_person_wrote_is_wrong_use_and_all_else_the_world(error: FaultlensError, code: int) -> None:
    assert cli.exit_code(error) == code


def test_control_characters_of_what_an_error_quotes_are_not_obeyed() -> None:
    shown = cli.rendered(UsageError("line one\nbad \x1b[2J\u202e file"), as_json=False)
    assert shown == "faultlens: line one\nbad \\x1b[2J\\u202e file"


def test_errors_are_told_as_json_when_answers_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, told = run(capsys, "replay", str(tmp_path / "none"), "--store", "none", "--json")
    assert code == 2
    assert json.loads(told)["error"]["kind"] == "UsageError"


READING = (
    "replay PATH",
    "explain-log PATH",
    "import kernel-log PATH --node n1 --family H100 --cluster c1",
    "import slurm --sacct PATH --cluster c1",
    "produce PATH --brokers 127.0.0.1:1",
    "agent --once --config PATH",
    "validate-node --config PATH",
    "ingest --tokens PATH --brokers 127.0.0.1:1",
    "bridge kubernetes --once --cluster c1 --out - --kubeconfig PATH",
    "bridge cloud aws --cluster c1 --out - --from api --nodes PATH",
)


@pytest.mark.parametrize("command", READING)
def test_a_path_that_cannot_be_read_is_wrong_use_of_every_command_and_is_named(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for path, why in ((tmp_path / "absent", "No such file"), (tmp_path, "directory")):
        code, _, told = run(capsys, *command.replace("PATH", str(path)).split())
        assert code == 2
        assert f"{path}" in told
        assert why in told


# --- replay --------------------------------------------------------------------------------------------


def test_a_replay_sums_up_what_it_did(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, shown, _ = run(capsys, "replay", recording(tmp_path), "--store", "none", "--out", str(tmp_path / "out"))
    assert code == 0
    assert "Replayed 20 events in " in shown
    assert "No job failed" in shown
    assert f"Dead letters: 1 (not_json 1); see {tmp_path / 'out' / 'dead-letters.jsonl'}" in shown
    assert "Kept nowhere (--store none)" in shown


def test_a_replay_sums_up_for_machines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, shown, _ = run(capsys, "replay", recording(tmp_path), "--store", "none", "--json")
    answer: dict[str, Any] = json.loads(shown)
    assert code == 0
    assert (answer["events"], answer["by_topic"], answer["dead_letters"]) == (20, {"node-events": 20}, {"not_json": 1})
    assert (answer["out"], answer["store"], answer["verdicts"]) == (None, None, {})


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["replay"], 2, "name at least one file of events, or - for standard input"),
        (["replay", "-", "-"], 2, "standard input (-) can be read only once"),
        (["replay", "EVENTS", "--until", "yesterday"], 2, "--until: not a time: 'yesterday'"),
        (["replay", "EVENTS", "--until", "2026-11-23T04:00:00"], 2, "no offset"),
        (["replay", "EVENTS", "missing.jsonl"], 2, "missing.jsonl cannot be read: No such file or directory"),
        (["replay", "EVENTS", "--store", "mysql://x"], 2, "not a store: mysql://"),
        (["replay", "EVENTS", "--objectives", "none.yaml"], 2, "none.yaml"),
        (["replay", "EVENTS", "--catalogue", "none"], 2, "none"),
        (["replay", "EVENTS", "--signatures", "none"], 2, "none"),
    ],
)
def test_wrong_use_says_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], code: int, says: str
) -> None:
    given = [recording(tmp_path) if argument == "EVENTS" else argument for argument in arguments]
    ended, _, told = run(capsys, *given, *([] if "--store" in given else ["--store", "none"]))
    assert (ended, says in told.replace("\n", " ")) == (code, True), told


@pytest.mark.store
def test_the_next_replay_goes_on_where_the_last_one_ended(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    events, store = recording(tmp_path), f"chdb://{tmp_path / 'store'}"
    older = tmp_path / "older.jsonl"
    older.write_bytes(encode(fault("old", "n", T0 - 8 * DAY_MS)) + b"\n")
    assert run(capsys, "replay", events, "--store", store)[0] == 0
    assert (tmp_path / "store.replay-state").is_file()
    code, shown, _ = run(capsys, "replay", events, str(older), "--store", store, "--json")
    answer = json.loads(shown)
    assert (code, answer["duplicates"], answer["too_old"], answer["store"]) == (0, 20, 1, store)
    assert json.loads(run(capsys, "replay", str(older), "--store", store, "--fresh", "--json")[1])["too_old"] == 0


@pytest.mark.store
def test_the_state_of_a_store_that_was_removed_is_not_gone_on_from(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    events = recording(tmp_path)
    run(capsys, "replay", events, "--store", f"chdb://{tmp_path / 'first'}")
    (tmp_path / "first.replay-state").rename(tmp_path / "second.replay-state")
    _, shown, _ = run(capsys, "replay", events, "--store", f"chdb://{tmp_path / 'second'}", "--json")
    assert json.loads(shown)["duplicates"] == 0


@pytest.mark.store
def test_a_damaged_state_is_told_with_the_way_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys, "replay", recording(tmp_path), "--store", f"chdb://{tmp_path / 'store'}")[0] == 0
    (tmp_path / "store.replay-state").write_bytes(b"nonsense")
    code, _, told = run(capsys, "replay", recording(tmp_path), "--store", f"chdb://{tmp_path / 'store'}")
    assert code == 2
    assert "--fresh" in told


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_interrupted_says_so(number: signal.Signals, code: int, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "faultlens.cli", "explain-log", str(pipe)]
    # The pipe opens as soon as the command has opened it to read.
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process, pipe.open("wb"):
        process.send_signal(number)
        _, shown = process.communicate(timeout=30)
    assert process.returncode == code
    assert b"interrupted" in shown
