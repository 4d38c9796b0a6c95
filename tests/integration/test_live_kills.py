"""Workers are killed and frozen, brokers come and go: what comes out is what the calm replay gives, each record once.

FAULTLENS_SOAK=N runs N seeds, and, with the first of them, what takes minutes; `make soak` does so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from faultlens import topics
from tests.kafka.cluster import Cluster
from tests.kafka.comparing import outcome_of
from tests.kafka.harming import SESSION_SECONDS, WITH_BROKERS, Harm, harmed
from tests.kafka.living import Worker, faultlens, fresh_topics, running, said
from tests.simulation.comparing import assert_the_same, lasting
from tests.simulation.fleets import time_of_trouble

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SOAK = int(os.environ.get("FAULTLENS_SOAK", "0"))
FIRST = int(os.environ.get("FAULTLENS_SOAK_FIRST", "1"))
FAULTS = int(os.environ.get("FAULTLENS_SOAK_FAULTS", "4"))
# Fleets with 25 minutes each in which failures of several classes become final, are amended and withdrawn.
TIMES = ((2, 60, 25), (5, 80, 25), (5, 60, 25))
ROLES = ("node", "job", "job", "context", "objectives", "remediation")


@dataclass(frozen=True)
class Trial:
    """What is done to workers and brokers. `copies`: on how many brokers each partition is; None: on all of them."""

    seed: int
    kinds: Sequence[str] = WITH_BROKERS
    faults: int = FAULTS
    away_s: tuple[float, float] = (1.0, 6.0)
    copies: int | None = None

    def __str__(self) -> str:
        return f"{self.seed}" if self.kinds is WITH_BROKERS else self.kinds[0]


# In the middle of a transaction; faster than a group settles; a third of the partitions for a minute.
LONG = (
    Trial(3, ("freeze_within",), 3),
    Trial(3, ("storm",), 2),
    Trial(1, ("lose",), 1, away_s=(60.0, 60.0), copies=1),
)
TRIALS = [*map(Trial, range(FIRST, FIRST + (SOAK or 2))), *(LONG if SOAK and FIRST == 1 else ())]


@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_faults_lose_and_double_nothing_and_change_no_decision(
    three_brokers: Cluster, tmp_path: Path, trial: Trial
) -> None:
    recording = tmp_path / "events.jsonl"
    recording.write_bytes(time_of_trouble(*TIMES[trial.seed % len(TIMES)]))
    faultlens("replay", str(recording), "--store", "none", "--out", str(tmp_path / "replayed"))
    fresh_topics(three_brokers, 3, copies=trial.copies)
    options = ("--clock", "recorded", "--no-ticks", "--session-s", str(SESSION_SECONDS))
    workers = [Worker(three_brokers, role, tmp_path / f"{n}-{role}.log", *options) for n, role in enumerate(ROLES)]
    dice = Random(trial.seed)  # noqa: S311 - the same schedule for the same seed
    harm = Harm(three_brokers, workers, dice, trial.faults, trial.kinds, trial.away_s)
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
