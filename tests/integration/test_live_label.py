"""A person's word through a real Kafka: the verdict is amended, and what was counted live agrees with the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")

from faultlens import topics
from faultlens.cli import main
from faultlens.clock import MINUTE_MS
from faultlens.codec import encode, event_of
from faultlens.events import JobAttributed, NodeHealth, SloStatus
from tests.kafka.cluster import Cluster
from tests.kafka.living import Worker, events_of, faultlens, fresh_topics, running, said, until

pytestmark = [pytest.mark.kafka, pytest.mark.store, pytest.mark.slow]

STORY = Path(__file__).parents[2] / "examples" / "one-fault.jsonl"


def verdicts(kafka: Cluster) -> list[JobAttributed]:
    return [event.data for event in events_of(kafka, topics.ATTRIBUTIONS) if isinstance(event.data, JobAttributed)]


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Ask within this process: what is live about it is over by then, and each start of the program takes seconds."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert not ended.value.code
    return json.loads(capsys.readouterr().out)


def test_a_label_sent_to_the_brokers_amends_the_verdict_and_all_figures(
    kafka: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh_topics(kafka, partitions=1)
    brokers, live = ("--brokers", kafka.bootstrap), str(tmp_path / "live")
    workers = [Worker(kafka, "all", tmp_path / "workers.log", "--clock", "recorded", "--no-ticks")]
    with running(workers):
        try:
            faultlens("produce", str(STORY), *brokers)
            (first,) = [verdict for verdict in verdicts(kafka) if verdict.status == "final"]
            name = f"{first.job_id}/{first.attempt}"
            word = ("--class", "user", "--code", "app.config", "--why", "a typo", "--by", "jo")
            faultlens("label", name, *word, *brokers)
            until(lambda: verdicts(kafka)[-1].status == "amended")
            amended = events_of(kafka, topics.ATTRIBUTIONS)[-1]
            # Time goes on, so that the objectives' next status is due.
            soon_ms = amended.time_ms + 10 * MINUTE_MS
            health = NodeHealth("n-9", first.cluster, 60.0, 8, 8, ())
            later = event_of(health, source="agent/n-9", id_="later", time_ms=soon_ms, recorded_ms=soon_ms)
            faultlens("produce", "-", *brokers, given=encode(later) + b"\n")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{said(workers)}") from error
    last = verdicts(kafka)[-1]
    assert (first.cause.cause_class, first.cause.code) == ("hardware", "gpu.off_bus")
    assert (last.cause.cause_class, last.cause.code, last.basis) == ("user", "app.config", "established")
    faultlens("sink", *brokers, "--store", live, "--clock", "recorded", "--until-caught-up")
    report = asked(capsys, "report", "--week", "2026-W48", "--store", live, "--format", "json")
    assert report["totals"]["failures"] == {"user": 1}
    assert [(line["job_id"], line["now"][0]) for line in report["corrections"]["shown"]] == [(first.job_id, "user")]
    told = asked(capsys, "labels", "--store", live, "--json")
    assert told["rules"][0]["overruled"] == 1
    counted = [event.data for event in events_of(kafka, topics.SLO_STATUS) if isinstance(event.data, SloStatus)]
    assert [status.by_cause for status in counted if status.objective == "job_success"][-1] == {}
