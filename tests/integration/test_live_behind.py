"""A role that comes late to all that has happened: the others go on without it, and the verdicts are the replay's.

FAULTLENS_SOAK lets it come a day of 64 nodes late, or FAULTLENS_SOAK_DAYS of them, which takes minutes each.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from faultlens import topics
from faultlens.cli_produce import TICKING
from faultlens.clock import MINUTE_MS
from faultlens.codec import Decoder, Event
from faultlens.events import JobAttributed
from faultlens.kafka import Connection
from faultlens.kafka_progress import LaneProgress
from faultlens.kafka_topics import plans
from faultlens.local_roles import READS
from faultlens.recordings import Recording, merged
from faultlens.topics import INPUT_TYPES
from producers.playback import TICK_EVERY_MS, Player, Tick, timeline
from streams.live.changelog import offsets_of
from tests.kafka.cluster import Cluster
from tests.kafka.comparing import outcome_of
from tests.kafka.living import Worker, events_of, faultlens, fresh_topics, running, until
from tests.simulation.fleets import time_of_trouble
from tests.simulation.playing import truths

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 3
SOAK = bool(int(os.environ.get("FAULTLENS_SOAK", "0")))
DAYS = os.environ.get("FAULTLENS_SOAK_DAYS", "1")
PATIENCE_S = 600.0
LATER_MS = 20 * MINUTE_MS


def recorded(directory: Path) -> Path:
    if SOAK:
        faultlens(
            *("simulate", "--nodes", "64", "--days", DAYS, "--interval-s", "120", "--seed", "1"),
            *("--out", str(directory / "fleet")),
            timeout_s=PATIENCE_S,
        )
        return directory / "fleet" / "events.jsonl.zst"
    recording = directory / "events.jsonl"
    recording.write_bytes(time_of_trouble(2, 60, 25))
    return recording


def test_a_role_that_is_far_behind_the_others_comes_to_the_same_verdicts(kafka: Cluster, tmp_path: Path) -> None:
    recording, replayed = recorded(tmp_path), tmp_path / "replayed"
    faultlens("replay", str(recording), "--store", "none", "--out", str(replayed), timeout_s=PATIENCE_S)
    fresh_topics(kafka, PARTITIONS)
    partitions = {plan.name: plan.partitions for plan in plans(PARTITIONS)}
    player = Player(Connection(kafka.bootstrap), {topic: partitions[topic] for topic in TICKING})
    options = ("--clock", "recorded", "--no-ticks")
    late, *others = [Worker(kafka, role, tmp_path / f"{role}.log", *options) for role in READS]
    assert late.role == "node"
    with running(others):
        for what in timeline(merged([Recording(str(recording))], Decoder(INPUT_TYPES))):
            player.play(what)
        player.finish()
        without = {role: read for role, read in READS.items() if role != late.role}
        with closing(progress_of(kafka, without, partitions)) as progress:
            until(lambda: progress.behind() is None, PATIENCE_S)
        early = finals(events_of(kafka, topics.ATTRIBUTIONS))
        with running([late]), closing(progress_of(kafka, READS, partitions)) as progress:
            until(lambda: progress.behind() is None, PATIENCE_S)
            go_on(player, progress)
            for topic in TICKING:
                player.end(topic)
                player.finish()
                until(lambda: progress.behind() is None, PATIENCE_S)
    outcome = outcome_of(replayed, kafka)
    assert early < finals(outcome.replayed[topics.ATTRIBUTIONS]), "nothing had to wait for the nodes"
    assert truths(outcome.live[topics.ATTRIBUTIONS]) == truths(outcome.replayed[topics.ATTRIBUTIONS])
    assert not outcome.live[topics.DEAD_LETTERS]


def finals(verdicts: Sequence[Event]) -> int:
    return sum(isinstance(event.data, JobAttributed) and event.data.status == "final" for event in verdicts)


def progress_of(cluster: Cluster, reads: Mapping[str, tuple[str, ...]], partitions: Mapping[str, int]) -> LaneProgress:
    return LaneProgress(Connection(cluster.bootstrap), reads, partitions, offsets_of)


def go_on(player: Player, progress: LaneProgress) -> None:
    """Let time go on: what was heard late, such as that a node had been silent, has its windows, too."""
    since_ms = player.played.last_ms
    for at_ms in range(since_ms + TICK_EVERY_MS, since_ms + LATER_MS, TICK_EVERY_MS):
        player.play(Tick(at_ms, after=True))
        if at_ms % MINUTE_MS < TICK_EVERY_MS:
            player.finish()
            until(lambda: progress.behind() is None, PATIENCE_S)
