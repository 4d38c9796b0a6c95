"""Workers are killed and frozen, brokers come and go: what comes out is what the calm replay gives, each record once.

FAULTLENS_SOAK=N runs N seeds with more faults each; `make soak` does so.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from faultlens import topics
from tests.kafka.cluster import Cluster
from tests.kafka.comparing import outcome_of
from tests.kafka.harming import SESSION_SECONDS, Harm, harmed
from tests.kafka.living import Worker, faultlens, fresh_topics, running, said
from tests.simulation.comparing import assert_the_same, lasting
from tests.simulation.fleets import time_of_trouble

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SOAK = int(os.environ.get("FAULTLENS_SOAK", "0"))
FIRST = int(os.environ.get("FAULTLENS_SOAK_FIRST", "1"))
FAULTS = int(os.environ.get("FAULTLENS_SOAK_FAULTS", "4"))
# Fleets with 25 minutes each in which failures of several classes become final, are amended and withdrawn.
TIMES = ((2, 60, 25), (5, 80, 25), (5, 60, 25))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (SOAK or 2)))
def test_faults_lose_and_double_nothing_and_change_no_decision(
    three_brokers: Cluster, tmp_path: Path, seed: int
) -> None:
    recording = tmp_path / "events.jsonl"
    recording.write_bytes(time_of_trouble(*TIMES[seed % len(TIMES)]))
    faultlens("replay", str(recording), "--store", "none", "--out", str(tmp_path / "replayed"))
    fresh_topics(three_brokers, 3)
    options = ("--clock", "recorded", "--no-ticks", "--session-s", str(SESSION_SECONDS))
    roles = ("node", "job", "job", "context", "objectives", "remediation")
    workers = [Worker(three_brokers, role, tmp_path / f"{n}-{role}.log", *options) for n, role in enumerate(roles)]
    harm = Harm(three_brokers, workers, Random(seed), FAULTS)  # noqa: S311 - the same schedule for the same seed
    with running(workers):
        try:
            with harmed(harm):
                faultlens("produce", str(recording), "--brokers", three_brokers.bootstrap, timeout_s=600)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{harm.log} {harm.codes}\n{said(workers)}") from error
    three_brokers.start()
    outcome = outcome_of(tmp_path / "replayed", three_brokers)
    assert len(lasting(outcome.replayed[topics.ATTRIBUTIONS])) > 2
    assert harm.log, "it was over before anything was harmed"
    assert_the_same(outcome.live, outcome.replayed)
