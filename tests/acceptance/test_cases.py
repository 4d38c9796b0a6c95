"""Recorded incidents with what a careful person expects of them, replayed in this process."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from faultlens.clock import parse_moment
from faultlens.local import Places, replay
from faultlens.local_roles import load_roles
from faultlens.recordings import Recording
from streams.runtime.records import Role

CASES = Path(__file__).parents[3] / "shared" / "cases"
GROUPS = ("cascades", "driver", "hardware", "platform", "remediation", "robustness", "slo_goodput", "user")
NAMES = [f"{path.parent.parent.name}/{path.parent.name}" for path in sorted(CASES.glob("*/*/expect.json"))]
NAMES = [name for name in NAMES if name.split("/")[0] in GROUPS]

pytestmark = pytest.mark.skipif(not NAMES, reason="the acceptance cases (shared/cases) are not here")


@cache
def runner() -> ModuleType:
    """Return the script that compares a run's output with what is expected of it."""
    spec = importlib.util.spec_from_file_location("cases_run", CASES / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def roles() -> Sequence[Role]:
    return load_roles()


@cache
def cases() -> dict[str, Any]:
    found: dict[str, Any] = runner().discover([str(CASES / group) for group in GROUPS])
    return found


class InProcess:
    """Runs a case here instead of by a command; the rest is the script's."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def replay(self, case: Any, lines: list[str]) -> dict[str, list[dict[str, Any]]]:
        work = self._directory / case.name.replace("/", "--")
        work.mkdir(exist_ok=True)
        told = work / "events.jsonl"
        told.write_text("\n".join(lines) + "\n", encoding="utf-8")
        replay([Recording(str(told))], roles(), Places(work), until_ms=parse_moment(case.expect["end"]))
        own = runner()
        return {topic: own.Runner._read(work / f"{topic}.jsonl", topic) for topic in own.TOPICS}


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_incident_is_told_as_a_careful_person_would(name: str, tmp_path: Path) -> None:
    own = runner()
    try:
        own.check_case(InProcess(tmp_path), cases()[name], cases(), set())
    except own.Failure as failure:
        pytest.fail(str(failure))
