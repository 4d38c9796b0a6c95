"""Whatever the fleet, people and actuators do: no cap is broken, every command ends once, every node comes back."""

from __future__ import annotations

import io
import json
from functools import cache

import pytest

from tests.simulation.campaign import campaign, complained, held_in
from tests.simulation.promises import broken_by_commands, left_behind, too_large
from tests.simulation.repairing import Story

# `make adversary DAYS=1000 FIRST=1 NODES=100` tells more and longer stories.
SEEDS = (1, 2)
NODES, DAYS = 30, 0.5


@cache
def told(seed: int) -> Story:
    story = Story(seed, nodes=NODES, days=DAYS)
    story.run()
    return story


@pytest.mark.parametrize("seed", SEEDS)
def test_no_command_breaks_a_cap_and_each_is_sent_once_and_ends_once(seed: int) -> None:
    assert broken_by_commands(told(seed)) == []
    assert len(told(seed).counted.commands) > 20, "a story in which little was done proves little"


@pytest.mark.parametrize("seed", SEEDS)
def test_every_node_that_is_well_again_is_back_and_nothing_is_left_open(seed: int) -> None:
    assert left_behind(told(seed)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_no_value_that_is_kept_is_large(seed: int) -> None:
    assert too_large(told(seed)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_story_leaves_out_would_have_changed_nothing(seed: int) -> None:
    whole = Story(seed, nodes=NODES, days=DAYS, whole=True)
    whole.run()
    short = told(seed)
    assert whole.counted.commands == short.counted.commands
    assert whole.counted.endings == short.counted.endings
    assert whole.incidents == short.incidents
    assert whole.now_ms > short.now_ms


def test_a_campaign_writes_a_line_a_seed_and_goes_on_with_those_that_are_missing() -> None:
    out = io.StringIO()
    lines = list(campaign([1], 30, out))
    assert [json.loads(line) for line in out.getvalue().splitlines()] == lines
    assert held_in(out.getvalue().splitlines(), 30) == {1}
    assert held_in(out.getvalue().splitlines(), 100) == set(), "a fleet of another size is another story"
    cut_short = out.getvalue()[:40]
    assert held_in([cut_short], 30) == set()


def test_a_seed_that_did_not_hold_is_named_with_how_to_tell_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    line = {"seed": 7, "nodes": 100, "broken": ["node-003 is blocked"]}
    assert complained(line)
    said = capsys.readouterr().err
    assert "seed 7" in said
    assert "node-003 is blocked" in said
    assert "make adversary DAYS=1 FIRST=7 NODES=100" in said
    assert held_in([json.dumps(line)], 100) == set(), "it is told again"
