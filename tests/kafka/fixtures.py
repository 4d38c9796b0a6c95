"""Brokers for tests: one that all tests of a session share, and three that faults may be done to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.cluster import Cluster
from tests.kafka.jars import jars


def _cluster(directory: Path, brokers: int) -> Iterator[Cluster]:
    for program in ("java", "openssl"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here, which a broker needs (Debian: openjdk-17-jre-headless, openssl)")
    try:
        path = jars()
    except OSError as error:
        pytest.skip(f"the broker's jars cannot be fetched: {error}")
    cluster = Cluster(directory, path, brokers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker for the session. Tests use topics or name prefixes of their own and leave it running."""
    yield from _cluster(tmp_path_factory.mktemp("kafka"), 1)


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, two of which must have a record; tests that harm them call `start` at their end."""
    yield from _cluster(tmp_path_factory.mktemp("kafka3"), 3)
