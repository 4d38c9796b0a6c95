"""`faultlens catalogue`: one code, the list, the disagreements; on a terminal, in a pipe, and when asked wrongly."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from faultlens.catalogue import load_catalogue
from faultlens.catalogue.diff import diff
from faultlens.catalogue.explain import explain
from faultlens.catalogue.listing import listing
from faultlens.catalogue.reference import compact, parse_name
from faultlens.cli_catalogue import app
from faultlens.errors import UsageError

RUNNER = CliRunner()
CATALOGUE = load_catalogue()
SITE = """\
entries:
  - {kind: xid, codes: [64], families: [H100], action_hint: replace, reason: vendor asks, date: 2026-11-02}
  - {kind: check, codes: [thermal], subcodes: [warn], severity: 20, reason: hot hall, date: 2026-11-02}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "ours.yaml").write_text(SITE)
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    result = RUNNER.invoke(app, list(arguments))
    return result.exit_code, result.output


def test_a_code_is_explained_with_cause_role_and_what_clears_it() -> None:
    status, output = run("xid:79", "--family", "H100")
    assert status == 0
    for words in ("gpu.off_bus (hardware)", "root, severity 90 of 100", "check:gpu_count, boot, remediation", "H100"):
        assert words in output


def test_options_may_stand_before_or_after_the_code() -> None:
    assert run("--family", "H100", "xid:79") == run("xid:79", "--family", "H100")


def test_the_explanation_is_there_for_machines_too() -> None:
    status, output = run("xid:64", "--family", "A100", "--driver", "570.133.20", "--json")
    found = json.loads(output)
    assert status == 0
    assert (found["ref"], found["family"], found["driver_branch"]) == ("xid:64", "A100", 570)
    assert found["judgement"]["action_hint"] == "drain"
    assert [view["case"] for view in found["by_family"]] == [
        "pre_ampere",
        "ampere",
        "hopper, blackwell, grace_blackwell",
    ]


def test_an_explanation_names_sub_codes_announcements_and_who_sees_it_otherwise() -> None:
    found = explain(CATALOGUE, "xid:109", family="H100")
    assert found.announced is not None
    assert "570" in found.announced
    assert [(o.who, o.says, o.agrees) for o in found.opinions] == [
        ("NVIDIA's immediate action", "reset_gpu", True),
        ("EKS node monitoring agent", "fatal", True),
        ("NVIDIA's DRA driver", "ignored", False),
    ]
    subcodes = [view.case for view in explain(CATALOGUE, "xid:145", family="GB200").by_subcode]
    assert subcodes == ["rlw/fatal", "rlw/nonfatal", "rlw_remap", "rlw_remote"]


def test_a_check_is_explained_by_its_status_and_code() -> None:
    found = explain(CATALOGUE, "check:ecc/fail/uncontained")
    assert found.judgement.cause_code == "gpu.memory.uncontained"
    assert explain(CATALOGUE, "check:ecc").judgement.cause_code == "gpu.memory.uncorrectable"


def test_an_unknown_code_is_answered_as_one_that_is_held_for_a_person() -> None:
    status, output = run("xid:999")
    assert status == 0
    assert "unexpected" in output
    assert "block_new_work" in output


def test_the_list_has_one_row_for_the_codes_of_one_entry() -> None:
    rows = listing(CATALOGUE, kind="xid", family="H100")
    refs = [row.ref for row in rows]
    assert "xid:39-41, 70-72, 75-77, 85" in refs
    codes = [code for row in rows if row.subcode is None for code in row.codes if code != "*"]
    assert sorted(codes, key=int) == [str(code) for code in range(1, 174)]


def test_the_list_can_be_read_by_machines_and_on_a_page() -> None:
    status, output = run("list", "--kind", "fabric_manager", "--json")
    assert status == 0
    assert {row["judgement"]["cause_code"] for row in json.loads(output)} == {
        "driver.fabric_manager",
        "driver.mismatch",
    }
    assert "fabric_manager:not_running" in run("list", "--kind", "fabric_manager")[1]


def test_the_disagreements_of_the_reference_are_listed() -> None:
    found = {(row.who, row.refs): (row.families, row.theirs, row.ours) for row in diff(CATALOGUE)}
    expected = {
        ("NVIDIA's immediate action", "xid:64"): ("ampere", "reset_gpu", "drain (root)"),
        ("NVIDIA's immediate action", "xid:95"): ("ampere", "reset_gpu", "reboot (root)"),
        ("NVIDIA's immediate action", "xid:94"): ("all", "restart_app", "reset_device (root)"),
        ("NVIDIA's immediate action", "xid:152-153"): ("all", "ignore", "block_new_work (unexpected)"),
        ("EKS node monitoring agent", "xid:63, 156"): ("all", "fatal", "trend"),
        ("NVIDIA's DRA driver", "xid:109"): ("all", "ignored", "root"),
    }
    assert expected.items() <= found.items()


def test_where_all_agree_nothing_is_listed() -> None:
    codes = {(row.who, code) for row in diff(CATALOGUE) for code in row.codes}
    assert not {(who, code) for who, code in codes if code == "79"}
    assert ("NVIDIA's DRA driver", "31") not in codes


def test_what_a_site_changed_is_listed_first_with_its_reason(site: Path) -> None:
    rows = diff(load_catalogue([site]))[:2]
    assert [(row.refs, row.families, row.about, row.theirs, row.ours, row.note) for row in rows] == [
        ("xid:64", "H100", "action_hint", "replace", "reset_device", "vendor asks (2026-11-02)"),
        ("check:thermal/warn", "all", "severity", "20", "10", "hot hall (2026-11-02)"),
    ]
    status, output = run("diff", "--catalogue", str(site), "--json")
    assert status == 0
    assert json.loads(output)[0]["note"] == "vendor asks (2026-11-02)"
    assert "xid:64" in run("diff", "--catalogue", str(site))[1]


def test_a_site_catalogue_is_used_for_explanations_and_lists(site: Path) -> None:
    assert "replace" in run("xid:64", "--family", "H100", "--catalogue", str(site))[1]
    _, output = run("list", "--kind", "xid", "--family", "H100", "--catalogue", str(site), "--json")
    assert [row["judgement"]["action_hint"] for row in json.loads(output) if row["codes"] == ["64"]] == ["replace"]


def test_a_code_that_only_the_site_has_is_in_the_list(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "entries:\n  - {kind: other, codes: [afid_24], meaning: Ours, cause: gpu.compute, role: root, severity: 50, "
        "fatal_to_job: true, scope: device, clears: [boot], action_hint: drain, reason: seen, date: 2026-11-02}\n"
    )
    assert "other:afid_24" in [row.ref for row in listing(load_catalogue([tmp_path]), kind="other")]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["79"], "'79' names no fault: write KIND:CODE"),
        (["gpu:79"], "'gpu:79' names no fault: write KIND:CODE"),
        (["xid:79", "--family", "C64"], "unknown GPU family 'C64'; known are P100"),
        (["list", "--kind", "gpu"], "unknown kind 'gpu'; known are check, cpu"),
        (["list", "--catalogue", "/nowhere"], "/nowhere:1: holds 0 catalogue files"),
    ],
)
def test_a_wrong_question_ends_with_2_and_says_what_to_ask(arguments: list[str], complaint: str) -> None:
    status, output = run(*arguments)
    assert status == 2
    assert complaint in output


def test_control_characters_of_a_site_file_cannot_steer_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        'entries:\n  - {kind: xid, codes: [64], meaning: "\\u001b[31mred [bold]", reason: because, date: 2026-11-02}\n'
    )
    output = run("xid:64", "--family", "H100", "--catalogue", str(tmp_path))[1]
    assert "\x1b" not in output
    assert "[31mred [bold]" in output


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "faultlens.cli_catalogue", "xid:31", "--json"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60, cwd=Path(__file__).parents[2])
    assert json.loads(done.stdout)["judgement"]["cause_code"] == "app.illegal_access"


@pytest.mark.parametrize(
    ("codes", "words"),
    [([], ""), (["79"], "79"), (["3", "1", "2", "7"], "1-3, 7"), (["link_down", "79"], "link_down, 79")],
)
def test_codes_in_a_row_are_written_as_a_range(codes: list[str], words: str) -> None:
    assert compact(codes) == words


def test_a_name_is_read_whatever_its_case() -> None:
    assert str(parse_name(" XID:149/Link_Down/remote ")) == "xid:149/link_down/remote"
    with pytest.raises(UsageError):
        parse_name("xid:")
