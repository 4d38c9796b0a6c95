"""What an installation says of itself by its environment."""

from pathlib import Path

import pytest

from faultlens import progress
from faultlens.errors import ConfigurationError
from faultlens.settings import load_settings, unknown_variables


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STORE", "STORE_PASSWORD", "STORE_PASSWORD_FILE", "BROKERS"):
        monkeypatch.delenv(f"FAULTLENS_{name}", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_answers_are_kept_in_the_users_data_directory_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    assert load_settings().store == f"chdb://{tmp_path}/faultlens/store"
    monkeypatch.setenv("FAULTLENS_STORE", "clickhouse://db/fleet")
    assert load_settings().store == "clickhouse://db/fleet"


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLENS_BROKERS", "")
    assert load_settings().brokers is None


def test_a_password_is_given_out_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLENS_STORE_PASSWORD", "hunter2")
    settings = load_settings()
    assert settings.password() == "hunter2"
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump_json()}"


def test_a_password_can_come_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "password"
    monkeypatch.setenv("FAULTLENS_STORE_PASSWORD_FILE", str(file))
    with pytest.raises(ConfigurationError, match=r"FAULTLENS_STORE_PASSWORD_FILE: .*password cannot be read"):
        load_settings().password()
    file.write_text("hunter2\n")
    assert load_settings().password() == "hunter2"


def test_misspelt_variables_are_found() -> None:
    assert unknown_variables(["FAULTLENS_STROE", "FAULTLENS_STORE", "HOME"]) == ["FAULTLENS_STROE"]


def test_what_a_launcher_tells_a_training_script_is_no_misspelling() -> None:
    assert unknown_variables([progress.VARIABLE, "FAULTLENS_JOB_ID", "FAULTLENS_ATTEMPT"]) == []
