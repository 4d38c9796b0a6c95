"""The composition root: which processors run, with what they are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from faultlens.catalogue import Catalogue, load_catalogue
from faultlens.cli_options import promised
from faultlens.clock import HOUR_MS, MINUTE_MS, SECOND_MS
from faultlens.local_policy import decided_by
from faultlens.objectives import Objectives
from faultlens.signatures import load_signatures
from faultlens.topics import CONTEXT
from streams.attribution import load_precision
from streams.fleet_context import FleetContextProcessor
from streams.job_lifecycle import JobLifecycleProcessor, StartLimits
from streams.node_health import NamesakesProcessor
from streams.objectives import ObjectivesProcessor
from streams.processor import Processor
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
    NamesakesProcessor.name: (*NamesakesProcessor.topics, CONTEXT),
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


@dataclass(frozen=True)
class _Data:
    """The shipped data with a site's laid over it, each read when a role first needs it."""

    catalogues: Sequence[Path]
    own_signatures: Sequence[Path]
    own_objectives: Path | None
    own_policy: Path | None

    @cached_property
    def catalogue(self) -> Catalogue:
        return load_catalogue(self.catalogues)

    @cached_property
    def objectives(self) -> Objectives:
        return promised(self.own_objectives)


def _node(data: _Data, cadence: Cadence) -> Processor:
    return NamesakesProcessor(data.catalogue, count_every_ms=cadence.count_every_ms)


def _job(data: _Data, cadence: Cadence) -> Processor:
    # The limits of `job_start` are as the objectives say them; the contract's where they say none.
    limits = StartLimits(data.objectives.start_within_ms, data.objectives.start_pending_limit_ms)
    signatures = load_signatures(data.own_signatures)
    return JobLifecycleProcessor(signatures, load_precision(), data.catalogue.version, limits)


def _context(data: _Data, cadence: Cadence) -> Processor:
    return FleetContextProcessor(cadence.beat_every_ms)


def _objectives(data: _Data, cadence: Cadence) -> Processor:
    return ObjectivesProcessor(data.objectives, every_ms=cadence.status_every_ms)


def _remediation(data: _Data, cadence: Cadence) -> Processor:
    return RemediationProcessor(decided_by(data.own_policy), replayed=cadence.replayed)


# In the order in which roles take a record that several read, and in which they end.
_MAKERS: Final[dict[str, Callable[[_Data, Cadence], Processor]]] = {
    NamesakesProcessor.name: _node,
    JobLifecycleProcessor.name: _job,
    FleetContextProcessor.name: _context,
    ObjectivesProcessor.name: _objectives,
    RemediationProcessor.name: _remediation,
}


def under(roles: Sequence[Role], policy: Policy) -> list[Role]:
    """Return the roles with remediation deciding by this policy, over a recording."""
    deciding = _role(RemediationProcessor(policy, replayed=True))
    return [deciding if role.name == deciding.name else role for role in roles]


def load_roles(
    catalogues: Sequence[Path] = (),
    signatures: Sequence[Path] = (),
    objectives: Path | None = None,
    cadence: Cadence = EMBEDDED,
    *,
    policy: Path | None = None,
    only: str | None = None,
) -> list[Role]:
    """Return the roles with the shipped data and a site's laid over it, in the order in which they take a record.

    `only`: the one that is wanted; what the others rest on is not read. ConfigurationError says what is wrong.
    """
    data = _Data(catalogues, signatures, objectives, policy)
    return [_role(make(data, cadence)) for name, make in _MAKERS.items() if only in (None, name)]


def _role(processor: Processor) -> Role:
    """Return the role of a processor; remediation alone looks at several keys in one step."""
    return Role(processor, READS[processor.name], wide=processor.name == RemediationProcessor.name)
