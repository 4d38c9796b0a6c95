"""Reading signatures: what is refused, with file and line, and what a site may add."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from faultlens.errors import ConfigurationError
from faultlens.signatures import SignatureError, decide, load_signatures

ENTRY = """\
  - id: site.licence
    pattern: 'licence server .* refused'
    cause_code: platform.auth
    example: 'licence server lic-1 refused the key'
    reason: our licence server
    date: 2026-11-02
"""
HEADER = "origin: site\nsignatures:\n"


@pytest.fixture
def site(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "ours.yaml").write_text(text)
        return tmp_path

    return write


def refused(directory: Path) -> str:
    with pytest.raises(SignatureError) as error:
        load_signatures([directory])
    assert isinstance(error.value, ConfigurationError)
    return str(error.value)


def test_a_site_adds_its_own(site: Callable[[str], Path]) -> None:
    known = load_signatures([site(HEADER + ENTRY)])
    verdict = decide(known.scan("licence server lic-1 refused the key"))
    assert (verdict.cause_code, verdict.basis) == ("platform.auth", "supported")


def test_a_site_replaces_a_shipped_one_of_the_same_id(site: Callable[[str], Path]) -> None:
    ours = ENTRY.replace("site.licence", "cuda.illegal_access").replace("platform.auth", "gpu.unknown")
    known = load_signatures([site(HEADER + ours)])
    assert len(known.signatures) == len(load_signatures().signatures)
    assert [s.cause_code for s in known.signatures if s.id == "cuda.illegal_access"] == ["gpu.unknown"]


def test_the_version_says_what_a_site_changed(site: Callable[[str], Path]) -> None:
    shipped = load_signatures().version
    first = load_signatures([site(HEADER + ENTRY)]).version
    second = load_signatures([site(HEADER + ENTRY.replace("platform.auth", "platform.network"))]).version
    assert first.startswith(f"{shipped}+site.")
    assert len({shipped, first, second}) == 3


@pytest.mark.parametrize(
    ("text", "line", "complaint"),
    [
        (ENTRY.replace("    reason: our licence server\n", ""), 3, "`reason` and `date`"),
        (ENTRY.replace("platform.auth", "platform.licence"), 3, "unknown cause code 'platform.licence'"),
        (ENTRY.replace(" .* refused", "("), 3, "not RE2 syntax"),
        (ENTRY.replace("licence server lic-1 refused", "no such words in"), 3, "its own example"),
        (ENTRY + "    counter_example: 'licence server lic-1 refused nothing'\n", 3, "counter-example"),
        (ENTRY.replace("'licence server .* refused'", "'(?:licence)*'"), 3, "empty text"),
        (ENTRY + ENTRY, 9, "given twice"),
        (ENTRY.replace("example:", "exmaple:"), 3, "example"),
        (ENTRY + "    role: culprit\n", 9, "role"),
        (ENTRY + "    where: [stdout]\n", 9, "where"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(
    site: Callable[[str], Path], text: str, line: int, complaint: str
) -> None:
    message = refused(site(HEADER + text))
    assert f"ours.yaml:{line}: " in message
    assert complaint in message


def test_every_problem_is_listed_at_once(site: Callable[[str], Path]) -> None:
    wrong = ENTRY.replace("platform.auth", "platform.licence")
    message = refused(site(HEADER + wrong + wrong.replace("site.licence", "site.other")))
    assert message.count("unknown cause code") == 2


def test_a_file_that_is_no_yaml_is_named_with_its_line(site: Callable[[str], Path]) -> None:
    assert "ours.yaml:3: not YAML" in refused(site("origin: site\nsignatures: [\n"))


def test_a_directory_without_files_is_refused(tmp_path: Path) -> None:
    assert "holds 0 signature files" in refused(tmp_path / "nowhere")


def test_later_directories_win(tmp_path: Path) -> None:
    for name, code in (("a", "platform.auth"), ("b", "platform.network")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ours.yaml").write_text(HEADER + ENTRY.replace("platform.auth", code))
    known = load_signatures([tmp_path / "a", tmp_path / "b"])
    assert [s.cause_code for s in known.signatures if s.id == "site.licence"] == ["platform.network"]
