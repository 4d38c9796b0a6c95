"""The composition root: which processors run, with what they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from faultlens.catalogue import Catalogue, load_catalogue
from faultlens.cli_options import promised
from faultlens.clock import HOUR_MS, MINUTE_MS, SECOND_MS
from faultlens.local_policy import decided_by
from faultlens.objectives import Objectives
from faultlens.signatures import SignatureSet, load_signatures
from faultlens.topics import CONTEXT
from streams.attribution import load_precision
from streams.fleet_context import FleetContextProcessor
from streams.job_lifecycle import JobLifecycleProcessor, StartLimits
from streams.node_health import NodeHealthProcessor
from streams.objectives import ObjectivesProcessor
from streams.remediation import Policy, RemediationProcessor
from streams.runtime.records import Role


@dataclass(frozen=True)
class Cadence:
    """How often to tell what goes on all the time: the time of nodes, the context's clock, a changed objective.

    `beat_every_ms` None: all lanes share one clock. `replayed`: nobody carries out what is decided.
    """

    count_every_ms: int
    status_every_ms: int
    beat_every_ms: int | None = None
    replayed: bool = False


# What each role reads, the topic that carries ticks first.
READS: Final[dict[str, tuple[str, ...]]] = {
    NodeHealthProcessor.name: (*NodeHealthProcessor.topics, CONTEXT),
    JobLifecycleProcessor.name: (*JobLifecycleProcessor.topics, CONTEXT),
    FleetContextProcessor.name: FleetContextProcessor.topics,
    ObjectivesProcessor.name: ObjectivesProcessor.topics,
    RemediationProcessor.name: RemediationProcessor.topics,
}
# Nobody is paged on a recording, and nobody waits for its figures.
EMBEDDED: Final = Cadence(count_every_ms=6 * HOUR_MS, status_every_ms=HOUR_MS, replayed=True)
LIVE: Final = Cadence(count_every_ms=HOUR_MS, status_every_ms=5 * MINUTE_MS, beat_every_ms=10 * SECOND_MS)
# A recording that is played to workers: as embedded, but for lanes that each have a clock of their own.
PLAYED: Final = replace(EMBEDDED, beat_every_ms=LIVE.beat_every_ms)


def build_roles(
    catalogue: Catalogue,
    signatures: SignatureSet,
    objectives: Objectives,
    policy: Policy,
    cadence: Cadence = EMBEDDED,
) -> list[Role]:
    """Return the roles in the order in which they take a record that several read, and in which they end."""
    node = NodeHealthProcessor(catalogue, count_every_ms=cadence.count_every_ms)
    job = JobLifecycleProcessor(signatures, load_precision(), catalogue.version, _start_limits(objectives))
    fleet = FleetContextProcessor(cadence.beat_every_ms)
    slo = ObjectivesProcessor(objectives, every_ms=cadence.status_every_ms)
    acts = RemediationProcessor(policy, replayed=cadence.replayed)
    narrow = [Role(processor, READS[processor.name]) for processor in (node, job, fleet, slo)]
    return [*narrow, Role(acts, READS[acts.name], wide=True)]


def _start_limits(objectives: Objectives) -> StartLimits:
    """Return the limits of `job_start` as the objectives say them; the contract's where they say none."""
    return StartLimits(objectives.start_within_ms, objectives.start_pending_limit_ms)


def load_roles(
    catalogues: Sequence[Path] = (),
    signatures: Sequence[Path] = (),
    objectives: Path | None = None,
    cadence: Cadence = EMBEDDED,
    *,
    policy: Path | None = None,
) -> list[Role]:
    """Return the roles with the shipped data and a site's laid over it; ConfigurationError says what is wrong."""
    data = load_catalogue(catalogues), load_signatures(signatures), promised(objectives), decided_by(policy)
    return build_roles(*data, cadence)
