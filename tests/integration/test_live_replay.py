"""A recording played to live workers gives what its replay gives: verdicts, ledger, states, objectives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faultlens import topics
from tests.kafka.cluster import Cluster
from tests.kafka.comparing import outcome_of
from tests.kafka.living import Worker, faultlens, fresh_topics, running, said
from tests.simulation.comparing import assert_the_same, lasting

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 3
FLEET = ("--nodes", "24", "--days", "0.15", "--seed", "1", "--interval-s", "600")


def test_a_recording_played_live_gives_what_its_replay_gives(kafka: Cluster, tmp_path: Path) -> None:
    faultlens("simulate", *FLEET, "--out", str(tmp_path))
    recording = str(tmp_path / "events.jsonl.zst")
    faultlens("replay", recording, "--store", "none", "--out", str(tmp_path / "replayed"))
    fresh_topics(kafka, PARTITIONS)
    workers = [Worker(kafka, "all", tmp_path / "workers.log", "--clock", "recorded", "--no-ticks")]
    with running(workers):
        try:
            options = ("--brokers", kafka.bootstrap, "--json")
            played = json.loads(faultlens("produce", recording, *options, timeout_s=400))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{said(workers)}") from error
    assert played["refused"] == {}
    assert played["events"] > 900
    outcome = outcome_of(tmp_path / "replayed", kafka)
    assert len(lasting(outcome.replayed[topics.ATTRIBUTIONS])) > 5
    assert_the_same(outcome.live, outcome.replayed)
