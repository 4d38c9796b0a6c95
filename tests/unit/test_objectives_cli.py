"""`faultlens objectives`: what is listed, shown, and refused."""

import json
from pathlib import Path

import pytest

from faultlens.cli import main
from tests.unit.test_objectives_file import EXCLUSION, JOB_SUCCESS, MONTHLY


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture
def site(tmp_path: Path) -> str:
    own = JOB_SUCCESS.replace("[{duration: 28d}]", MONTHLY).replace("name: job-success", "name: job-success")
    (tmp_path / "own.yaml").write_text(own + EXCLUSION)
    return str(tmp_path)


def test_the_list_names_window_target_and_factors(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("objectives", "list", "--objectives", site) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "job_success every cluster 93 % month (Europe/Zurich) attempts 6" in rows
    assert "coverage every cluster 99.9 % 28 d node-hours 13.44, 5.6, 2.8, 0.9333" in rows


def test_one_is_shown_with_what_does_not_count(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert called("objectives", "show", "job-success", "--objectives", site) == 0
    text = capsys.readouterr().out
    assert "left out of platform, 2026-11-20 09:00 UTC to 2026-11-20 12:00 UTC: INC-7: the site lost its power" in text
    assert "never      job_success: tier page_fast is left out" in text
    assert called("objectives", "show", "job_success", "--objectives", site, "--json") == 0
    assert json.loads(capsys.readouterr().out)["exclusions"][0]["author"] == "ann"


def test_an_unknown_one_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("objectives", "show", "luck") == 2
    assert "node_availability" in capsys.readouterr().err


def test_the_check_ends_with_1_and_names_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = JOB_SUCCESS.replace("0.93", "1.5").replace("28d", "soon")
    (path := tmp_path / "wrong.yaml").write_text(wrong)
    assert called("objectives", "check", str(path), "--json") == 1
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 2
    assert called("objectives", "check", "--json") == 0
    assert json.loads(capsys.readouterr().out)["never_fire"]


def test_the_settings_name_a_sites_own(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLENS_OBJECTIVES", site)
    assert called("objectives", "check") == 0
    monkeypatch.setenv("FAULTLENS_OBJECTIVES", f"{site}/nothing.yaml")
    assert called("objectives", "check") == 1
    assert called("objectives", "list") == 2
