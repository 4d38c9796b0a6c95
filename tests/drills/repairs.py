"""What must have been done in a drill of remediation, held against what was told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from faultlens.codec import Event
from faultlens.events import Incident, RemediationCommand, RemediationResult

# What a node goes through whose GPU has fallen off the bus.
REPAIRED: Final = ("block_new_work", "drain", "reboot", "validate", "return_to_service")
ENDS: Final = frozenset({"succeeded", "refused", "failed", "expired"})


def repairs_wrong(said: Iterable[Event], results: Iterable[Event]) -> list[str]:
    """Return what is not as it should be: one node goes through its repair, commands end once, no other is touched."""
    said = list(said)
    commands = {e.data.command_id: e.data for e in said if isinstance(e.data, RemediationCommand)}
    nodes = list(dict.fromkeys(command.node for command in commands.values()))
    done = tuple(command.action for command in commands.values())
    ends = Counter(
        (event.data.command_id, event.data.state)
        for event in {event.id: event for event in results}.values()
        if isinstance(event.data, RemediationResult) and event.data.state in ENDS
    )
    found = [] if len(nodes) == 1 else [f"commands for {len(nodes)} nodes, expected 1: {', '.join(map(str, nodes))}"]
    found += [] if done == REPAIRED else [f"done was {', '.join(done)}; expected {', '.join(REPAIRED)}"]
    found += [
        f"{command.action} did not succeed once: {[end for end in ends if end[0] == command.command_id]}"
        for command in commands.values()
        if [(state, n) for (own, state), n in ends.items() if own == command.command_id] != [("succeeded", 1)]
    ]
    waited = {i.waits_for or "" for event in said if isinstance(i := event.data, Incident)}
    return found if any(why.startswith("kept by") for why in waited) else [*found, "nobody's drain was respected"]
