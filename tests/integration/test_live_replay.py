"""A recording played to live workers and on into a store gives what its replay gives: verdicts, ledger, objectives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")

from faultlens import topics
from faultlens.store import open_store
from tests.kafka.cluster import Cluster
from tests.kafka.comparing import outcome_of
from tests.kafka.living import Worker, faultlens, fresh_topics, running, said
from tests.simulation.comparing import assert_the_same, lasting
from tests.simulation.fleets import time_of_trouble

pytestmark = [pytest.mark.kafka, pytest.mark.store, pytest.mark.slow]

PARTITIONS = 3
# What a store says in the end, whatever was said in between.
ANSWERS: Final = {
    "verdicts": """
        SELECT * EXCEPT (revision, emitted, event_id) FROM attributions FINAL
        WHERE status IN ('final', 'amended') ORDER BY job_id, attempt, loss, revision""",
    "ledger": """
        SELECT job_id, attempt, category, class, code, sum(gpu_ms) AS time, sum(wall_ms * gpus) AS spent
        FROM gpu_time_latest GROUP BY ALL HAVING spent > 0 ORDER BY ALL""",
    "objectives": "SELECT * EXCEPT event_id FROM slo_status_latest",
}


def answers(dsn: str) -> dict[str, list[dict[str, Any]]]:
    with open_store(dsn) as store:
        return {name: store.query(sql) for name, sql in ANSWERS.items()}


def test_a_recording_played_live_gives_what_its_replay_gives(kafka: Cluster, tmp_path: Path) -> None:
    recorded = time_of_trouble(5, 80, 25)
    recording, replayed, live = tmp_path / "events.jsonl", str(tmp_path / "replayed"), str(tmp_path / "live")
    recording.write_bytes(recorded)
    faultlens("replay", str(recording), "--store", f"{replayed}/store", "--out", replayed)
    fresh_topics(kafka, PARTITIONS)
    brokers = ("--brokers", kafka.bootstrap)
    workers = [Worker(kafka, "all", tmp_path / "workers.log", "--clock", "recorded", "--no-ticks")]
    with running(workers):
        try:
            played = json.loads(faultlens("produce", "-", *brokers, "--json", timeout_s=400, given=recorded))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{said(workers)}") from error
    assert played["refused"] == {}
    assert played["events"] > 300
    outcome = outcome_of(Path(replayed), kafka)
    assert len(lasting(outcome.replayed[topics.ATTRIBUTIONS])) > 2
    assert_the_same(outcome.live, outcome.replayed)
    faultlens("sink", *brokers, "--store", live, "--clock", "recorded", "--until-caught-up")
    expected, found = answers(f"{replayed}/store"), answers(live)
    assert all(expected.values())
    for name in ANSWERS:
        assert found[name] == expected[name], name
