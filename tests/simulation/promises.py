"""What must hold of every story of a fleet, its people and its actuators, whatever they do."""

from __future__ import annotations

from tests.simulation.repairing import Story

VALUE_BYTES_MAX = 64 * 1024


def broken_by_commands(story: Story) -> list[str]:
    """Return what is wrong with the commands: none breaks a cap, each is sent once and ends once."""
    counted = story.counted
    ends = [f"{len(ends)} ends: {counted.commands[name]}" for name, ends in counted.endings.items() if len(ends) != 1]
    return [*counted.faults, *ends]


def left_behind(story: Story) -> list[str]:
    """Return what is not as it was: every node that is well again is back, and nothing is left open."""
    return [
        *([f"{story.dead_letters} dead letters"] if story.dead_letters else []),
        *(f"{card.node} is kept from work" for card in story.kept()),
        *(f"{machine.name} is blocked" for machine in story.machines if machine.blocked),
        *(f"{card.node or card.domain} is {card.stage}, waits for {card.waits}" for card in story.open_incidents()),
    ]


def too_large(story: Story) -> list[str]:
    """Return the values that are kept and larger than any may be."""
    return [f"a value of {size} bytes" for size in story.lane.sizes() if size >= VALUE_BYTES_MAX]


def broken(story: Story) -> list[str]:
    """Return all that does not hold of a story that has been told."""
    return [*broken_by_commands(story), *left_behind(story), *too_large(story)]
