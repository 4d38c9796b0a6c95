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

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SOAK = int(os.environ.get("FAULTLENS_SOAK", "0"))
FIRST = int(os.environ.get("FAULTLENS_SOAK_FIRST", "1"))
FAULTS = int(os.environ.get("FAULTLENS_SOAK_FAULTS", "24" if SOAK else "4"))
DAYS = "0.3" if SOAK else "0.12"


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (SOAK or 2)))
def test_faults_lose_and_double_nothing_and_change_no_decision(
    three_brokers: Cluster, tmp_path: Path, seed: int
) -> None:
    fleet = ("--nodes", "24", "--days", DAYS, "--seed", "1", "--interval-s", "600")
    faultlens("simulate", *fleet, "--out", str(tmp_path))
    recording = str(tmp_path / "events.jsonl.zst")
    faultlens("replay", recording, "--store", "none", "--out", str(tmp_path / "replayed"))
    fresh_topics(three_brokers, 3)
    options = ("--clock", "recorded", "--no-ticks", "--session-s", str(SESSION_SECONDS))
    roles = ("node", "job", "job", "context", "objectives")
    workers = [Worker(three_brokers, role, tmp_path / f"{n}-{role}.log", *options) for n, role in enumerate(roles)]
    harm = Harm(three_brokers, workers, Random(seed), FAULTS)  # noqa: S311 - the same schedule for the same seed
    with running(workers):
        try:
            with harmed(harm):
                played = ("--brokers", three_brokers.bootstrap, "--step", "600")
                faultlens("produce", recording, *played, timeout_s=3_000 if SOAK else 600)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{harm.log} {harm.codes}\n{said(workers)}") from error
    three_brokers.start()
    outcome = outcome_of(tmp_path / "replayed", three_brokers)
    assert len(lasting(outcome.replayed[topics.ATTRIBUTIONS])) > 2
    assert harm.log, "it was over before anything was harmed"
    assert_the_same(outcome.live, outcome.replayed)
