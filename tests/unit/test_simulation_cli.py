"""`faultlens simulate` and `faultlens score` as people call them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
import zstandard

from faultlens import cli
from faultlens.clock import ms_of
from faultlens.codec import Decoder, encode, event_of
from faultlens.events import Cause, Culprit, DeviceRef, JobAttributed, Lost, Retry
from faultlens.truth import Truth, read_truths
from producers.simulation.tables import DATA

MIX = "default 2026-11"
SMALL = ("--nodes", "6", "--days", "1", "--interval-s", "900", "--seed", "3")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    code = ended.value.code
    shown = capsys.readouterr()
    return (code if isinstance(code, int) else 0), shown.out, shown.err


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("simulated")
    with pytest.raises(SystemExit) as ended:
        cli.main(["simulate", *SMALL, "--out", str(out)])
    assert ended.value.code == 0
    return out


def answer(directory: Path, *, but: int = 0) -> None:
    """Write the right verdict on every failure except the first `but`."""
    lines = []
    for truth in list(read_truths(directory / "truth.jsonl"))[but:]:
        device = None if truth.device_index is None else DeviceRef(index=truth.device_index)
        data = JobAttributed(
            truth.job_id, truth.attempt, "sim", 1, "final", Cause(truth.cause_class, truth.code), "supported", 0.9,
            Culprit(truth.node, device), (), (), Retry("retry"), Lost(0.0, 0.0), "oracle", "none", truth.ended_at,
            loss=truth.loss,
        )  # fmt: skip
        key = f"{truth.job_id}-{truth.attempt}-{truth.loss}"
        lines.append(encode(event_of(data, source="test", id_=key, time_ms=ms_of(truth.ended_at) + 2_000)) + b"\n")
    (directory / "attributions.jsonl").write_bytes(b"".join(lines))


def copy_of(simulated: Path, tmp_path: Path) -> Path:
    for name in ("truth.jsonl", "simulation.json"):
        (tmp_path / name).write_bytes((simulated / name).read_bytes())
    return tmp_path


def test_a_simulation_writes_events_and_truth(simulated: Path) -> None:
    with (simulated / "events.jsonl.zst").open("rb") as packed:
        lines = list(io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(packed)))
    decoder = Decoder()
    assert {decoder.decode(line).subject for line in lines} > {f"node-{number:04d}" for number in range(6)}
    assert all(isinstance(truth, Truth) for truth in read_truths(simulated / "truth.jsonl"))


def test_events_can_go_to_standard_output_and_a_reader_may_leave_early(simulated: Path) -> None:
    command = [sys.executable, "-m", "faultlens.cli", "simulate", *SMALL, "--out", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""
    with (simulated / "events.jsonl.zst").open("rb") as packed:
        assert first == io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(packed)).readline()


def test_another_process_with_other_hashes_makes_the_same_bytes() -> None:
    arguments = (
        "--nodes",
        "24",
        "--days",
        "2",
        "--interval-s",
        "1800",
        "--seed",
        "8",
        "--mix",
        "shifted",
        "--out",
        "-",
    )
    command = [sys.executable, "-m", "faultlens.cli", "simulate", *arguments]
    made = [
        subprocess.run(command, capture_output=True, check=True, timeout=120, env={"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    ]
    assert b"faultlens.platform.rollout.v1" in made[0]
    assert made[0] == made[1]


def test_right_verdicts_on_everything_score_everything(
    simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = copy_of(simulated, tmp_path)
    answer(directory)
    code, shown, _ = run(capsys, "score", str(directory / "truth.jsonl"), str(directory), "--json")
    told = json.loads(shown)
    assert code == 0
    assert told["failures"] > 5
    assert told["class_accuracy"] == told["code_accuracy"] == 1.0
    assert told["delay_s"]["p99"] == 2.0
    assert told["without_final_verdict"] == told["verdicts_without_failure"] == []


def test_a_failure_without_verdict_is_named_and_ends_the_command_with_1(
    simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = copy_of(simulated, tmp_path)
    answer(directory, but=1)
    missing = next(read_truths(directory / "truth.jsonl"))
    code, shown, _ = run(capsys, "score", str(directory / "truth.jsonl"), str(directory), "--by-rule")
    assert code == 1
    assert f"1 ({missing.job_id}/{missing.attempt})" in shown
    assert "oracle/supported" in shown


def test_measured_precision_is_written_with_its_origin_and_added_up(
    simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = copy_of(simulated, tmp_path)
    answer(directory)
    table = tmp_path / "precision.yaml"
    failures = len(list(read_truths(directory / "truth.jsonl")))
    for times in (1, 2):
        arguments = ("--calibrate", str(table), "--add")
        code, _, _ = run(capsys, "score", str(directory / "truth.jsonl"), str(directory), *arguments)
        written = yaml.safe_load(table.read_text())
        assert code == 0
        assert written["rules"] == {"oracle/supported": {"right": times * failures, "total": times * failures}}
        assert [(o["seed"], o["mix"], o["failures"]) for o in written["origin"]] == [(3, MIX, failures)] * times


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--mix", "nowhere"), "nowhere: neither a mix that comes with faultlens (default, shifted) nor a file"),
        (("--start", "yesterday"), "--start: not a time: 'yesterday'"),
    ],
)
def test_wrong_options_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, str], said: str
) -> None:
    code, _, errors = run(capsys, "simulate", *SMALL, "--out", str(tmp_path), *arguments)
    assert code == 2
    assert said in errors


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("lemons: 0.012", "lemons: 7", "lemons: Input should be less than or equal to 1"),
        ("  gpu_off_bus: 44", "  gpu_off_bus: 44\n  gremlins: 3", "'gremlins' is none of: "),
        ("tardy_s: [2, 45]", "tardy_s: [45, 2]", "a span is [from, to] with 0 <= from <= to"),
    ],
)
def test_a_mix_of_ones_own_is_checked_and_the_line_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, said: str
) -> None:
    text = (DATA / "mix-default.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace(before, after))
    line = text[: text.index(before)].count("\n") + after.count("\n") + 1
    code, _, errors = run(capsys, "simulate", *SMALL, "--out", str(tmp_path), "--mix", str(path))
    assert code == 2
    assert f"mine.yaml:{line}: " in errors
    assert said in errors


def test_what_is_no_directory_of_answers_and_no_store_is_refused(
    simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, errors = run(capsys, "score", str(simulated / "truth.jsonl"), str(tmp_path / "nothing"))
    assert code == 2
    assert "replay --out" in errors
    code, _, errors = run(capsys, "score", str(tmp_path / "none.jsonl"), str(simulated))
    assert code == 2
    assert "none.jsonl: cannot be read" in errors
