from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kafka.cluster import Cluster
from tests.kafka.living import Worker, consumed, faultlens, fresh_topics, running, said

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def test_tmp(kafka: Cluster, tmp_path: Path) -> None:
    recording = "/work/shared/cases/remediation/return_to_service_after_repair/events.jsonl"
    faultlens("replay", recording, "--store", "none", "--out", str(tmp_path / "replayed"))
    fresh_topics(kafka, 3)
    workers = [Worker(kafka, "all", tmp_path / "workers.log", "--clock", "recorded", "--no-ticks")]
    with running(workers):
        import time
        for _ in range(300):
            if (tmp_path / "workers.log").read_text().count("lanes are ours") >= 5: break
            time.sleep(1)
        try:
            played = json.loads(
                faultlens("produce", recording, "--brokers", kafka.bootstrap, "--json", "--step", "900", timeout_s=400)
            )
        except BaseException as error:
            raise AssertionError(f"{error}\n{said(workers)}") from error
    live = [json.loads(m.value())["data"] for m in consumed(kafka, "remediation-commands") if m.value()]
    rep = [json.loads(l)["data"] for l in (tmp_path / "replayed/remediation-commands.jsonl").read_text().splitlines()]
    print([(c["action"], c["issued_at"], c["command_id"]) for c in live])
    print([(c["action"], c["issued_at"], c["command_id"]) for c in rep])
    inc = [json.loads(m.value())["data"] for m in consumed(kafka, "incidents") if m.value()]
    print(len(inc))
    print(len(consumed(kafka, "state-remediation")))
    assert [c["command_id"] for c in live] == [c["command_id"] for c in rep]
