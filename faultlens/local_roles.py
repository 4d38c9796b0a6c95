"""The composition root: which processors run, with what they are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from faultlens.catalogue import Catalogue, load_catalogue
from faultlens.clock import HOUR_MS
from faultlens.objectives import Objectives, load_objectives
from faultlens.signatures import SignatureSet, load_signatures
from faultlens.topics import CONTEXT
from streams.attribution import load_precision
from streams.fleet_context import FleetContextProcessor
from streams.job_lifecycle import JobLifecycleProcessor, StartLimits
from streams.node_health import NodeHealthProcessor
from streams.objectives import ObjectivesProcessor
from streams.runtime.records import Role


def build_roles(catalogue: Catalogue, signatures: SignatureSet, objectives: Objectives) -> list[Role]:
    """Return the roles in the order in which they take a record that several read, and in which they end."""
    node = NodeHealthProcessor(catalogue, count_every_ms=6 * HOUR_MS)
    job = JobLifecycleProcessor(signatures, load_precision(), catalogue.version, _start_limits(objectives))
    fleet = FleetContextProcessor()
    slo = ObjectivesProcessor(objectives, every_ms=HOUR_MS)
    return [
        Role(node, (*node.topics, CONTEXT)),
        Role(job, (*job.topics, CONTEXT)),
        Role(fleet, fleet.topics),
        Role(slo, slo.topics),
    ]


def _start_limits(objectives: Objectives) -> StartLimits:
    """Return the limits of `job_start` as the objectives say them; the contract's where they say none."""
    usual = StartLimits()
    if "job_start" not in objectives:
        return usual
    objective = objectives["job_start"]
    return StartLimits(objective.within_ms or usual.within_ms, objective.pending_limit_ms or usual.pending_ms)


def load_roles(
    catalogues: Sequence[Path] = (), signatures: Sequence[Path] = (), objectives: Path | None = None
) -> list[Role]:
    """Return the roles with the shipped data and a site's laid over it; ConfigurationError says what is wrong."""
    return build_roles(load_catalogue(catalogues), load_signatures(signatures), load_objectives(objectives))
