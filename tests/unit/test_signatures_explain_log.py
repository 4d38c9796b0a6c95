"""`faultlens explain-log`: what people and programs are told of a log, whatever its size and letters."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from faultlens.cli_explain_log import explain_log, judge
from faultlens.errors import UsageError
from faultlens.signatures import load_signatures
from faultlens.signatures.excerpt import HEAD_BYTES, TAIL_BYTES, read_excerpt

KNOWN = load_signatures()
COMMAND = typer.Typer()
COMMAND.command()(explain_log)
LOG = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB.\n"
    "[rank1]: NCCL WARN Connection closed by remote peer node-7\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
)
FILLER = b"nothing to see on this line of the log\n"


def told(tmp_path: Path, log: bytes, *options: str) -> str:
    file = tmp_path / "job.log"
    file.write_bytes(log)
    done = CliRunner().invoke(COMMAND, [str(file), *options], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_people_are_told_who_why_how_sure_what_else_and_what_to_do(tmp_path: Path) -> None:
    text = told(tmp_path, LOG.encode())
    assert text.startswith("Program out of GPU memory: the job itself\n")
    for words in (
        "decided by     line 1: [rank3]: torch.OutOfMemoryError", "consequences   line 2:", "only advice    line 3:",
        "how sure ", "what to do ", "by signatures 2026-",
    ):  # fmt: skip
        assert words in text


def test_programs_get_the_same_as_json(tmp_path: Path) -> None:
    answer = json.loads(told(tmp_path, LOG.encode(), "--json"))
    assert (answer["class"], answer["code"], answer["basis"]) == ("user", "app.oom.gpu", "supported")
    assert answer["deciding"]["line"] == 1
    assert [line["signature"] for line in answer["consequences"]] == ["nccl.peer_closed"]
    assert answer["bytes_read"] == len(LOG)


def test_of_a_log_in_which_nothing_broke_nobody_is_told_that_it_crashed(tmp_path: Path) -> None:
    text = told(tmp_path, b"step 1 loss 2.3\nstep 2 loss 1.1\nDone.\n")
    assert text.startswith("Nothing in this log says that anything broke. Of a job that failed all the same: ")
    assert "rashed" not in text
    assert "Read on above the line" not in text


def test_a_device_that_is_busy_is_not_taken_for_a_broken_one(tmp_path: Path) -> None:
    line = b"RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable\n"
    answer = json.loads(told(tmp_path, line, "--json"))
    assert (answer["class"], answer["code"], answer["basis"]) == ("user", "app.config.resources", "assumed")
    assert {other["code"] for other in answer["alternatives"]} >= {"gpu.compute.initialisation"}


def test_standard_input_can_be_read() -> None:
    done = CliRunner().invoke(COMMAND, ["-", "--json"], input=LOG.encode(), catch_exceptions=False)
    assert json.loads(done.stdout)["code"] == "app.oom.gpu"


def test_what_a_log_prints_cannot_steer_the_terminal(tmp_path: Path) -> None:
    text = told(tmp_path, "KeyError: '\x1b]0;title\x07 \x9b2J \u202e'\n".encode())
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
    assert "\\u202e" in text


def test_a_site_s_own_signatures_are_used(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "ours.yaml").write_text(
        "origin: site\nsignatures:\n  - {id: site.boom, pattern: 'boom 42', cause_code: platform.power,"
        " example: 'boom 42', reason: ours, date: 2026-11-02}\n"
    )
    answer = json.loads(told(tmp_path, b"boom 42\n", "--json", "--signatures", str(tmp_path / "site")))
    assert answer["code"] == "platform.power"
    assert "+site." in answer["signatures"]


def of(log: bytes) -> tuple[int, str, str]:
    part, verdict = judge(read_excerpt(io.BytesIO(log)), KNOWN)
    line = 0 if verdict.deciding is None else verdict.deciding.line_number + part.first_line - 1
    return line, verdict.cause_code, verdict.basis


def test_a_log_is_read_from_its_end_so_that_an_old_error_does_not_decide() -> None:
    old = b"RuntimeError: CUDA error: an illegal memory access was encountered\n"
    assert of(old + FILLER * 10_000 + b"KeyError: 'a'\n") == (10_002, "app.exception", "supported")


def test_where_the_end_shows_only_consequences_it_is_read_further_back() -> None:
    root = b"torch.OutOfMemoryError: CUDA out of memory.\n"
    cascade = b"NCCL WARN Connection closed by remote peer\n" * 5_000
    assert of(FILLER * 7 + root + cascade) == (8, "app.oom.gpu", "supported")


def test_of_a_huge_log_the_head_is_kept_and_lines_are_still_those_of_the_file() -> None:
    filler = FILLER * ((HEAD_BYTES + 2 * TAIL_BYTES) // len(FILLER))
    excerpt = read_excerpt(io.BytesIO(b"KeyError: 'early'\n" + filler))
    assert excerpt.bytes_skipped > 0
    assert len(excerpt.tail.text) < 2 * TAIL_BYTES
    assert of(b"KeyError: 'early'\n" + filler) == (1, "app.exception", "supported")
    assert of(filler + b"KeyError: 'late'\n") == (filler.count(b"\n") + 1, "app.exception", "supported")


@pytest.mark.parametrize("log", [b"", b"\n", b"\xff\xfe\x00", b"no newline at the end"])
def test_any_log_gets_an_answer(log: bytes) -> None:
    assert of(log) == (0, "app.crash", "assumed")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 3000), st.integers(0, 3000))
def test_no_part_of_a_log_is_lost_below_the_limits(before: int, after: int) -> None:
    log = FILLER * before + b"KeyError: 'here'\n" + FILLER * after
    line, code, _ = of(log)
    assert (line, code) == (before + 1, "app.exception")


@pytest.mark.parametrize(("log", "what"), [(b" \n", "is empty"), (bytes(range(256)) * 9, "is not text")])
def test_what_is_no_log_gets_no_verdict(log: bytes, what: str, tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.write_bytes(log)
    with pytest.raises(UsageError, match=what):
        explain_log(file)


def test_a_log_with_torn_lines_is_still_one(tmp_path: Path) -> None:
    assert "app.exception" in told(tmp_path, FILLER * 9 + b"\xff\x00\xfe\nKeyError: 'late'\n")


def test_a_file_that_is_not_there_is_wrong_use_and_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.log cannot be read: No such file"):
        explain_log(tmp_path / "none.log")
