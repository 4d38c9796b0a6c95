"""What real control planes told in drills (tests/drills), replayed: every failure once, with the right verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from faultlens import topics
from faultlens.codec import Decoder
from faultlens.local import Places, replay
from faultlens.local_roles import load_roles
from faultlens.recordings import Recording
from faultlens.topics import TYPES
from tests.drills.repairs import repairs_wrong
from tests.drills.truth import load, wrong

DRILLS = Path(__file__).parents[1] / "data" / "drills"
POLICY = Path(__file__).parents[1] / "drills" / "policy.yaml"


NAMES = sorted(path.name.partition(".")[0] for path in DRILLS.glob("*.jsonl.zst"))
REPAIRS = [name for name in NAMES if name.endswith("-remediation")]


def test_drills_are_there() -> None:
    assert NAMES
    assert REPAIRS


@pytest.mark.parametrize("name", NAMES)
def test_a_drill_replayed_gives_every_failure_its_right_verdict(name: str, tmp_path: Path) -> None:
    recorded = DRILLS / f"{name}.jsonl.zst"
    replay([Recording(str(recorded))], load_roles(), Places(out=tmp_path, fresh=True))
    decode = Decoder(TYPES).decode
    written = (tmp_path / f"{topic}.jsonl" for topic in (topics.ATTRIBUTIONS, topics.FINDINGS))
    outputs = [decode(line) for path in written if path.exists() for line in path.read_bytes().splitlines()]
    inputs = [decode(line) for line in zstandard.decompress(recorded.read_bytes()).splitlines()]
    truth = load((DRILLS / f"{name}.truth.json").read_bytes())
    assert wrong(truth, outputs, inputs) == []


@pytest.mark.parametrize("name", REPAIRS)
def test_a_repair_that_was_drilled_is_decided_anew_in_the_same_steps(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTLENS_POLICY", str(POLICY))
    recorded = DRILLS / f"{name}.jsonl.zst"
    replay([Recording(str(recorded))], load_roles(), Places(out=tmp_path, fresh=True))
    decode = Decoder(TYPES).decode
    written = (tmp_path / f"{topic}.jsonl" for topic in (topics.REMEDIATION_COMMANDS, topics.INCIDENTS))
    said = [decode(line) for path in written for line in path.read_bytes().splitlines()]
    told = [decode(line) for line in zstandard.decompress(recorded.read_bytes()).splitlines()]
    assert repairs_wrong(said, told) == []
