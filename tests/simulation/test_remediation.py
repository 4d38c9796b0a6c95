"""Whatever the fleet, people and actuators do: no cap is broken, every command ends once, every node comes back."""

from __future__ import annotations

import os
from functools import cache

import pytest

from tests.simulation.repairing import Story

# `make adversary SEEDS=1000 FIRST=1 NODES=100 DAYS=1` tells more and longer stories.
FIRST, SEEDS = int(os.environ.get("FAULTLENS_FIRST", "1")), int(os.environ.get("FAULTLENS_SEEDS", "2"))
NODES, DAYS = int(os.environ.get("FAULTLENS_NODES", "30")), float(os.environ.get("FAULTLENS_DAYS", "0.5"))
STORIES = range(FIRST, FIRST + SEEDS)
VALUE_BYTES_MAX = 64 * 1024


@cache
def told(seed: int) -> Story:
    story = Story(seed, nodes=NODES, days=DAYS)
    story.run()
    return story


@pytest.mark.parametrize("seed", STORIES)
def test_no_command_breaks_a_cap_and_each_is_sent_once_and_ends_once(seed: int) -> None:
    counted = told(seed).counted
    assert counted.faults == []
    assert len(counted.commands) > 20, "a story in which little was done proves little"
    assert {command_id for command_id, ends in counted.endings.items() if len(ends) != 1} == set()


@pytest.mark.parametrize("seed", STORIES)
def test_every_node_that_is_well_again_is_back_and_nothing_is_left_open(seed: int) -> None:
    story = told(seed)
    assert story.dead_letters == 0
    assert [card.node for card in story.kept()] == []
    assert [machine.name for machine in story.machines if machine.blocked] == []
    assert [(card.node or card.domain, card.stage, card.waits) for card in story.open_incidents()] == []


@pytest.mark.parametrize("seed", STORIES)
def test_no_value_that_is_kept_is_large(seed: int) -> None:
    assert max(told(seed).lane.sizes()) < VALUE_BYTES_MAX
