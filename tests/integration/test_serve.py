"""The status page as it is called: by a browser, by a proxy, by those who should not, and beside other commands."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slo.report.html import render_html
from tests.browser import browser, needs_browser
from tests.unit.test_report import a_report

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

STORY = Path(__file__).parents[2] / "examples" / "one-fault.jsonl"
FAULTLENS = (sys.executable, "-m", "faultlens.cli")
JOB = "/job?id=llm-7"


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def asked(url: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, str]:
    """Return status and page, or for a redirection where it leads."""
    data = None if form is None else urllib.parse.urlencode(form).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, named)  # noqa: S310 - it is our own
    try:
        with urllib.request.build_opener(_Stays).open(request, timeout=90) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("Location") or error.read().decode()


@contextmanager
def serving(store: Path, *options: str) -> Iterator[str]:
    """Run the program and yield its address."""
    command = [*FAULTLENS, "serve", "--store", str(store), "--listen", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = re.search(r"http://\S+", process.stderr.readline())
        try:
            assert address is not None
            yield address[0]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("served")
    subprocess.run([*FAULTLENS, "replay", STORY, "--store", directory / "store"], check=True, capture_output=True)
    return directory / "store"


# Nothing is wider than the screen, and no table wider than what is shown of it.
FITS = """
    document.documentElement.scrollWidth <= innerWidth
        && [...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)
"""


@needs_browser
def test_a_person_finds_why_a_job_failed_and_overrules_it_in_a_browser(store: Path, tmp_path: Path) -> None:
    with serving(store) as address, browser(tmp_path) as tab:
        tab.open(address)
        assert tab.evaluate("document.querySelector('h1').textContent") == "GPU fleet"
        assert tab.evaluate("document.querySelectorAll('.tiles li').length") == 7
        tab.submit("form[role=search]", q="llm-7")
        assert "hardware is to blame" in tab.evaluate("document.querySelector('.answer').textContent")
        for width in (1280, 390):
            tab.resize(width)
            assert tab.evaluate(FITS)
        tab.open(address + "/failures")
        assert tab.evaluate(FITS)
        tab.open(address + "/job?id=llm-7")
        tab.submit("form.dispute", **{"class": "user", "code": "app.config", "why": "<b>a typo</b>", "by": "jo"})
        assert "the job itself is to blame" in tab.evaluate("document.querySelector('.answer').textContent")
        assert "<b>a typo</b>" in tab.evaluate("document.querySelector('#labels ~ ul').textContent")
        tab.open(address + "/objectives/job_success")
        assert tab.evaluate("document.querySelector('.big').textContent") == "\N{EN DASH}"
        assert tab.complaints == []
        (report := tmp_path / "report.html").write_text(render_html(a_report()), encoding="utf-8")
        for width in (1280, 390):
            tab.resize(width)
            tab.open(report.as_uri())
            assert tab.evaluate(FITS)


def test_other_commands_go_on_beside_it_and_logs_are_shown_only_where_allowed(store: Path) -> None:
    with serving(store, "--log-tails", "--read-only") as address:
        status, page = asked(address + JOB)
        assert (status, "Last lines of rank 0" in page, "Overrule" in page) == (200, True, False)
        why = subprocess.run([*FAULTLENS, "why", "llm-7", "--store", store], check=True, capture_output=True, text=True)
        assert "llm-7 (attempt 1) failed" in why.stdout
        assert asked(address + "/node?name=node-0042")[0] == 200
        assert asked(address + "/label", {"id": "llm-7"}, Origin=address)[0] == 404
        status, page = asked(address + "/job?id=llm-8")
        assert (status, "Did you mean" in page) == (404, True)


def test_who_should_not_ask_is_turned_away(store: Path) -> None:
    word = {"id": "llm-7", "attempt": "1", "class": "driver", "why": "x"}
    with serving(store, "--user-header", "X-User") as address:
        assert asked(address)[0] == 401
        assert asked(address, X_User="ann", Host="evil.example")[0] == 421
        assert asked(address + "/label", word, X_User="ann")[0] == 403
        assert asked(address + "/label", word, X_User="ann", Origin="http://evil.example")[0] == 403
        assert asked(address + "/label", word | {"class": "luck"}, X_User="ann", Origin=address)[0] == 400
        assert asked(address + "/label", word | {"why": "x" * 20_000}, X_User="ann", Origin=address)[0] == 400
        status, location = asked(address + "/label", word | {"by": "somebody else"}, X_User="ann", Origin=address)
        assert (status, location) == (303, "/job?id=llm-7&attempt=1")
        page = asked(address + location, X_User="ann")[1]
        assert "driver, driver, says ann: x" in page
        assert "the driver is to blame" in page
        assert "Last lines" not in page


def test_without_a_store_it_says_so_and_stays(tmp_path: Path) -> None:
    with serving(tmp_path / "none") as address:
        status, page = asked(address)
        assert (status, "There is no store" in page) == (503, True)
        assert asked(address + "/healthz") == (200, "ok\n")
