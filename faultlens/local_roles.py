"""The composition root: which processors run, with what they are given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from faultlens.catalogue import Catalogue, load_catalogue
from faultlens.objectives import Objectives, load_objectives
from faultlens.signatures import SignatureSet, load_signatures
from faultlens.topics import CONTEXT
from streams.attribution import load_precision
from streams.fleet_context import FleetContextProcessor
from streams.job_lifecycle import JobLifecycleProcessor
from streams.node_health import NodeHealthProcessor
from streams.processor import Processor
from streams.runtime.records import Role


def build_roles(catalogue: Catalogue, signatures: SignatureSet, objectives: Objectives) -> list[Role]:
    """Return the roles in the order in which they are fed when several read the same record, and ended."""
    processors: list[Processor] = [
        FleetContextProcessor(),
        NodeHealthProcessor(catalogue),
        JobLifecycleProcessor(signatures, load_precision(), f"{catalogue.version}, {signatures.version}"),
    ]
    return [Role(processor, (*processor.topics, CONTEXT)) for processor in processors]


def load_roles(
    catalogues: Sequence[Path] = (), signatures: Sequence[Path] = (), objectives: Path | None = None
) -> list[Role]:
    """Return the roles with the shipped data and a site's laid over it; ConfigurationError says what is wrong."""
    return build_roles(load_catalogue(catalogues), load_signatures(signatures), load_objectives(objectives))
