"""What holds for all tests: in CI, nothing that belongs to the installation may be missing."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from typing import Final, TypeVar

import pytest
import structlog
from hypothesis import settings

from tests.kafka.fixtures import kafka, three_brokers

__all__ = ["kafka", "three_brokers"]

# What lies beside the repository on some machines only; all else (chDB, a browser) is installed by .ci/run.
# And helm, of which no package index has a build, and PyTorch, which takes gigabytes.
_MAY_BE_ABSENT: Final = re.compile(
    r"\bshared\b|\b(beside|not part of) the repository\b|\b(helm|PyTorch) is not installed\b"
)
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
_CI: Final = os.environ.get("CI") == "true"

# Machines that many share keep no deadlines. In CI, Hypothesis itself sees to that, and to repeatability.
settings.register_profile("unhurried", deadline=None)
if not _CI:
    settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def logs_of_its_own() -> Iterator[None]:
    """Leave no test the logs of a command that another one ran: they would go to where that one caught them."""
    yield
    structlog.reset_defaults()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that CI must not leave out."""
    return _demanded((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a module that CI must not leave out."""
    return _demanded((yield))


def _demanded(report: Report) -> Report:
    if _CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not _MAY_BE_ABSENT.search(reason):
            report.outcome = "failed"
            report.longrepr = f"left out although this is CI: {reason}"
    return report
