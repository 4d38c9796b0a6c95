"""What failed last, as the command line lists it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faultlens.cli import main

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

STORY = Path(__file__).parents[2] / "examples" / "one-fault.jsonl"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert not ended.value.code
    return capsys.readouterr().out


def test_failures_are_listed_with_whose_fault_they_were_and_narrowed_to_what_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ("--store", f"chdb://{tmp_path / 'store'}")
    said(capsys, "replay", str(STORY), *store)
    (failure,) = json.loads(said(capsys, "failures", "--json", *store))
    assert (failure["class"], failure["code"], failure["node"]) == ("hardware", "gpu.off_bus", "node-0042")
    listed = said(capsys, "failures", "--class", "hardware", "--code", "gpu", "--node", "node-0042", *store)
    assert f"{failure['job_id']}/{failure['attempt']}" in listed
    assert "GPU lost from the bus on node-0042 (established)" in listed
    assert said(capsys, "failures", "--class", "user", *store) == "No failure is known.\n"
