"""`faultlens stream` refuses at once what no worker of it could do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("faust", reason="Faust is not installed (extra `stream`)")

import structlog

from faultlens.cli import main


@pytest.fixture(autouse=True)
def _logging_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("FAULTLENS_BROKERS", raising=False)
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("role", ["all", "node"])
def test_without_brokers_no_worker_is_started(capsys: pytest.CaptureFixture[str], role: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["stream", "--role", role])
    assert ended.value.code == 2
    assert "no broker is named" in capsys.readouterr().err
