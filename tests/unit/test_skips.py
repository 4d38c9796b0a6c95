"""In CI a test that is left out is a test that fails, unless what it needs may be absent there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
TESTS = """
import pytest

def test_store():
    pytest.skip("chDB is not installed (extra `store`)")

def test_cases():
    pytest.skip("the shared cases are not here")
"""
MODULE = 'import pytest\n\npytest.skip("no browser", allow_module_level=True)\n'


def told(directory: Path, *, ci: str) -> str:
    """Return what pytest says of these tests beside our conftest.py."""
    shutil.copy(CONFTEST, directory)
    (directory / "test_some.py").write_text(TESTS, "utf-8")
    (directory / "test_module.py").write_text(MODULE, "utf-8")
    command = [
        sys.executable, "-m", "pytest", "-q", "-rsfE", "-p", "no:cacheprovider", "--continue-on-collection-errors",
        f"--rootdir={directory}", str(directory),
    ]  # fmt: skip
    environment = os.environ | {"CI": ci}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False).stdout


def test_on_a_laptop_all_of_them_are_left_out(tmp_path: Path) -> None:
    assert "3 skipped in" in told(tmp_path, ci="false")


@pytest.fixture(scope="module")
def in_ci(tmp_path_factory: pytest.TempPathFactory) -> str:
    return told(tmp_path_factory.mktemp("ci"), ci="true")


def test_in_ci_a_test_fails_for_want_of_what_is_installed_there(in_ci: str) -> None:
    assert "left out although this is CI: Skipped: chDB is not installed" in in_ci


def test_in_ci_a_whole_module_fails_for_want_of_it(in_ci: str) -> None:
    assert "left out although this is CI: Skipped: no browser" in in_ci


def test_in_ci_what_lies_beside_the_repository_may_be_missing(in_ci: str) -> None:
    assert "1 failed, 1 skipped, 1 error in" in in_ci
