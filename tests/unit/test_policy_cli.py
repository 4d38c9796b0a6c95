"""`faultlens policy explain` says what was wrong with a question that it cannot answer."""

from __future__ import annotations

import pytest

from faultlens.cli import main


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--fault", "79"), "'79' is not KIND:CODE"),
        (("--fault", "xid:79", "--family", "banana"), "unknown GPU family 'banana'"),
    ],
)
def test_a_fault_or_family_that_is_none_is_refused_with_what_would_be_one(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], word: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["policy", "explain", *options])
    assert ended.value.code == 2
    assert word in capsys.readouterr().err
