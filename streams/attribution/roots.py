"""Which observations can be the root of a failure, and which of several competing ones it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from faultlens.catalogue import fault_ref
from faultlens.events import PlatformRollout
from faultlens.internal import Observation
from streams.attribution.facts import Exit, Facts, Said
from streams.attribution.pointing import pointed_first
from streams.context import covers

# Contract: roots within 10 seconds of each other are ranked by severity before time, since clocks differ.
COMPETING_MS: Final = 10_000
# A code yields to the fault it follows within a minute, on its device or at the link's other end.
YIELD_MS: Final = 60_000
# A check shows what happened up to a report before it.
NEXT_REPORT_MS: Final = 600_000
# Contract: a fault after which the ranks completed two further steps did not stop the job.
STEPS_THAT_CLEAR: Final = 2
# What is broken when a job begins ends it within minutes, if at all.
SOON_AFTER_START_MS: Final = 600_000
# A kernel log may lag behind the first error by seconds; a daemon's poll by minutes. When the program names its own
# error there is nothing left to explain, and only the clocks' difference is allowed for.
LAG_MS: Final = 120_000
SKEW_MS: Final = 10_000
# What one scheduler says of a node and of a job is by one clock, in whole seconds: what began after the end, or was
# over before the beginning, has no part in it.
ONE_CLOCK_MS: Final = 2_000
_SCHEDULERS: Final = frozenset({"bridge", "scheduler"})
# Observations whose time is only known to lie between two reports.
UNCERTAIN: Final = frozenset({"rebooted", "silent"})
# What a process prints that crashed by itself, whoever its peers are.
_OWN_CRASHES: Final = frozenset({"native.segmentation_fault", "elastic.segfault", "mpi.rank_crashed"})
# Kinds of faults that are a GPU's even where none could be named.
_OF_A_GPU: Final = frozenset({"xid", "sxid", "gpu_memory", "nvlink"})
# What is mostly put in place by a restart of the node.
_RESTARTING: Final = frozenset({"driver", "firmware", "os_image", "runtime"})
# Below this the catalogue's scale speaks of degradation: it explains a failure only where nothing better does.
DECISIVE_SEVERITY: Final = 50
# What a program's text names when it is surely its own error, not the echo of a device fault.
OWN_ERRORS: Final = ("app.exception", "app.config", "app.data", "app.dependency", "app.oom")


def has_prefix(code: str, prefixes: tuple[str, ...]) -> bool:
    """Return whether the dotted code is one of the prefixes or more special than one."""
    return any(code == prefix or code.startswith(prefix + ".") for prefix in prefixes)


def own_error(said: Said) -> bool:
    """Return whether the text names an error of the program itself that no device fault explains."""
    return said.role == "root" and said.cause_class == "user" and has_prefix(said.cause_code, OWN_ERRORS)


def names_another_cause(said: Said) -> bool:
    """Return whether the text names something else than a fault of a device: its own error, or a service."""
    return own_error(said) or (said.role == "root" and said.cause_class == "platform")


def crashed_by_itself(said: Said) -> bool:
    """Return whether the text tells of a crash that neither a link nor the loss of another machine can bring about."""
    return said.signature in _OWN_CRASHES


def first_root_exit(facts: Facts) -> Exit | None:
    """Return the earliest exit whose text names a root, of those within two minutes one that is sure of it."""
    roots = sorted((e for e in facts.exits if e.said.role == "root"), key=lambda e: (e.first_ms, e.rank))
    if not roots:
        return None
    near = [e for e in roots if e.first_ms <= roots[0].first_ms + LAG_MS]
    return next((e for e in near if e.said.strong), roots[0])


def first_exit_saying(facts: Facts) -> Exit | None:
    """Return the earliest exit whose text tells a root or a symptom."""
    telling = [e for e in facts.exits if e.said.role in ("root", "symptom")]
    return min(telling, key=lambda e: (e.first_ms, e.rank), default=None)


def first_exit(facts: Facts) -> Exit | None:
    """Return the earliest exit."""
    return min(facts.exits, key=lambda e: (e.first_ms, e.rank), default=None)


def spoken(facts: Facts) -> Said:
    """Return what the texts say: the earliest exit that names a root, else the end, else the first symptom."""
    root = first_root_exit(facts)
    if facts.end.said.role == "root" and (root is None or (facts.end.said.strong and _only_named(root))):
        return facts.end.said
    if root is not None:
        return root.said
    texts = [e.said for e in sorted(facts.exits, key=lambda e: (e.first_ms, e.rank))]
    texts.append(facts.end.said)
    for role in ("symptom", "cascade"):
        for said in texts:
            if said.role == role:
                return said
    return Said()


def _only_named(leaving: Exit) -> bool:
    """Return whether the exit is known by the scheduler's word for it alone, which its message may explain."""
    return leaving.reason is not None and leaving.said.line == leaving.reason


def order_ms(observation: Observation) -> int:
    """Return the time by which observations are ordered; of what lies between two reports the later one."""
    return observation.last_ms if observation.code in UNCERTAIN else observation.since_ms


def candidates(facts: Facts) -> list[Observation]:
    """Return the observations that can have ended the attempt, the most likely root first."""
    usable = [o for o in facts.observations if _can_be_root(facts, o)]
    usable = [o for o in usable if not _yields(o, usable) and not _ended_in_restart(o, facts.observations)]
    fresh = [o for o in usable if _is_fresh(facts, o)]
    stale = [o for o in usable if o not in fresh]
    return pointed_first(facts, ranked(fresh)) + pointed_first(facts, ranked(stale))


def _is_fresh(facts: Facts, observation: Observation) -> bool:
    """Return whether it began in the window, or the job came to grief soon after it had begun on what was broken.

    What was broken for long while the job ran explains an end that nothing newer explains.
    """
    began_ms = facts.started_ms or facts.allocated_ms or 0
    if order_ms(observation) < facts.opens_ms and facts.trouble_ms - began_ms > SOON_AFTER_START_MS:
        return False
    return facts.steps_after.get(observation.id, 0) < STEPS_THAT_CLEAR


def decisive(facts: Facts) -> list[Observation]:
    """Return those of the candidates that end jobs by themselves, the most likely root first; a lost host is none."""
    fatal = [o for o in candidates(facts) if o.fatal and o.severity >= DECISIVE_SEVERITY]
    return [o for o in fatal if o.code not in UNCERTAIN]


def _can_be_root(facts: Facts, observation: Observation) -> bool:
    return (
        observation.role == "root"
        and not observation.synthetic
        and not _ran_to_its_limit(facts)
        and in_window(facts, observation)
        and not cleared_by_progress(facts, observation)
        and not too_late(facts, observation)
        and not _lived_on(facts, observation)
    )


def _lived_on(facts: Facts, observation: Observation) -> bool:
    """Return whether a node that was lost some time between two reports was still there when the trouble had begun.

    Its ranks printed then; or it had only waited for its jobs to end, and nobody says that it was lost before.
    """
    if observation.code not in UNCERTAIN:
        return False
    awaited = observation.awaited or rollout_behind(facts, observation) is not None
    if awaited and not facts.end.said.cause_code.startswith("host.lost"):
        return True
    return any(e.node == observation.node and e.said.line and e.said.role != "none" for e in facts.exits)


def rollout_behind(facts: Facts, restart: Observation) -> PlatformRollout | None:
    """Return the roll-out in the course of which the node restarted; mostly one waits for the node's jobs to end."""
    if restart.code != "rebooted":
        return None
    pool = next((a.pool for a in facts.answers if a.node == restart.node), None)
    for entry in facts.rollouts:
        lasted = entry.since_ms <= restart.last_ms and (entry.until_ms is None or entry.until_ms >= restart.since_ms)
        if (
            lasted
            and entry.what.what in _RESTARTING
            and covers(entry.what.scope, node=restart.node, pool=pool, domains=restart.domains)
        ):
            return entry.what
    return None


def _ran_to_its_limit(facts: Facts) -> bool:
    """Return whether the attempt made progress until its time limit ended it: then no fault did."""
    return facts.end.outcome == "timed_out" and facts.reports_progress and facts.stalled_ms is None


def in_window(facts: Facts, observation: Observation) -> bool:
    """Return whether it happened in the evidence window, or began before and was still true in it."""
    if observation.since_ms - observation.latent_ms > facts.closes_ms:
        return False
    if observation.until_ms is not None and observation.until_ms < (facts.allocated_ms or 0):
        return False
    if max(observation.since_ms, order_ms(observation)) >= facts.opens_ms:
        return True
    return observation.open or (observation.until_ms is not None and observation.until_ms >= facts.opens_ms)


def cleared_by_progress(facts: Facts, observation: Observation) -> bool:
    """Return whether the job went on for two steps after it, so that it did not stop the job."""
    return not observation.acts_late and facts.steps_after.get(observation.id, 0) >= STEPS_THAT_CLEAR


def too_late(facts: Facts, observation: Observation) -> bool:
    """Return whether it came after the first error and so cannot have caused it."""
    if observation.acts_late or observation.kind == "check" or observation.code in UNCERTAIN:
        return False
    first_ms = min((e.first_ms for e in facts.exits), default=facts.end.at_ms)
    if one_clock(observation.source, facts.end.source):
        return observation.since_ms > facts.end.at_ms + ONE_CLOCK_MS
    said = spoken(facts)
    lag_ms = SKEW_MS if said.strong and names_another_cause(said) else LAG_MS
    return observation.since_ms > first_ms + lag_ms


def one_clock(source: str, other: str) -> bool:
    """Return whether the same scheduler says both: `bridge/slurm` of nodes and `scheduler/slurm` of jobs."""
    one, two = source.partition("/"), other.partition("/")
    return one[2] == two[2] and {one[0], two[0]} <= _SCHEDULERS


def _yields(observation: Observation, others: list[Observation]) -> bool:
    near = {fault_ref(o.kind, o.code) for o in others if o is not observation and _is_near(observation, o)}
    return not near.isdisjoint(observation.yields_to)


def _is_near(observation: Observation, other: Observation) -> bool:
    after_ms = other.since_ms - observation.since_ms
    if other.kind == "check":
        return other.node == observation.node and -YIELD_MS <= after_ms <= NEXT_REPORT_MS
    return abs(after_ms) <= YIELD_MS


def _ended_in_restart(observation: Observation, others: Iterable[Observation]) -> bool:
    """Return whether it is a silence out of which the node came by a restart: how fast it was noticed tells nothing."""
    if observation.code != "silent":
        return False
    return any((o.code, o.node, o.since_ms) == ("rebooted", observation.node, observation.since_ms) for o in others)


def ranked(observations: list[Observation]) -> list[Observation]:
    """Return them with the root first: the earliest, but within ten seconds of it the most severe."""
    left = sorted(observations, key=lambda o: (order_ms(o), -o.severity, o.id))
    if not left:
        return []
    horizon_ms = order_ms(left[0]) + COMPETING_MS
    competing = [o for o in left if order_ms(o) <= horizon_ms]
    competing.sort(key=lambda o: (-o.severity, order_ms(o), o.id))
    return competing + [o for o in left if order_ms(o) > horizon_ms]


def behind_our_command(observations: Iterable[Observation], end_ms: int) -> Observation | None:
    """Return the fault that made our command: the most severe on the node that we acted on, or on any held one.

    That the job went on after it is no objection: it was our command that ended the job.
    """
    known = [o for o in observations if o.role == "root" and not o.synthetic and o.since_ms <= end_ms]
    acted = {o.node for o in known if o.cause_code == "platform.remediation"}
    faults = [o for o in known if o.cause_class != "platform" and (not acted or o.node in acted)]
    # That the node was not heard of meanwhile is no reason for a command where it turns out that it was there.
    faults = [o for o in faults if not _yields(o, known)] or faults
    return min(faults, key=lambda o: (-o.severity, order_ms(o), o.id), default=None)


def holds_part(facts: Facts, observation: Observation) -> bool:
    """Return whether the attempt held only some of the node's devices, and perhaps not the one that is at fault.

    Either no device could be named; or it is not known which ones the attempt held, while other jobs held some too.
    """
    if observation.scope == "node":
        return False
    of_a_gpu = observation.kind in _OF_A_GPU
    if facts.held.get(observation.node) is None and observation.node in facts.held:
        named = observation.device is not None and observation.device.index is not None
        return (of_a_gpu or named) and _others_hold(facts, observation.node) and not _ran_on(facts, observation)
    return observation.whole_node and of_a_gpu and shares(facts, observation.node)


def _others_hold(facts: Facts, node: str) -> bool:
    """Return whether other jobs held devices of the node; one with a single device is not shared."""
    return any(a.sharers and a.gpus_total != 1 for a in facts.answers if a.node == node)


def _ran_on(facts: Facts, observation: Observation) -> bool:
    """Return whether a rank is known to have run on the device, or the attempt's own words name it.

    By its address or UUID: what a program calls `cuda:3` is the fourth of those that it was given.
    """
    device = observation.device
    if device is None:
        return False
    if device.index is not None and any((e.node, e.device) == (observation.node, device.index) for e in facts.exits):
        return True
    said = [
        facts.end.said.line,
        facts.end.message or "",
        *(e.said.line for e in facts.exits if e.node == observation.node),
    ]
    names = [name.lower() for name in (device.uuid, device.pci) if name]
    return any(name in words.lower() for name in names for words in said)


def shares(facts: Facts, node: str) -> bool:
    """Return whether the attempt held only some of the node's GPUs; False where their number is not known."""
    devices = facts.held.get(node)
    total = next((a.gpus_total for a in facts.answers if a.node == node), 0)
    return devices is not None and 0 < len(devices) < total


def node_named(facts: Facts) -> str | None:
    """Return the node that a failure at its start is about: the one held, named, or common to earlier such ends."""
    if len(facts.held) == 1:
        return next(iter(facts.held))
    named = node_in_words(facts)
    if named is not None:
        return named
    alike = [set(e.nodes) for e in facts.earlier if e.cause_code == spoken(facts).cause_code]
    common = set(facts.held).intersection(*alike) if alike else set()
    return common.pop() if len(common) == 1 else None


def node_in_words(facts: Facts) -> str | None:
    """Return the one held node that the text or the scheduler's message names."""
    return _held_node_in(facts, f"{spoken(facts).line} {facts.end.message or ''}")


def node_said_lost(facts: Facts) -> str | None:
    """Return the one held node that the scheduler's own words name as gone."""
    gone = has_prefix(facts.end.said.cause_code, ("host.lost",))
    return _held_node_in(facts, facts.end.message or "") if gone else None


def _held_node_in(facts: Facts, words: str) -> str | None:
    named = {node for node in facts.held if re.search(rf"(?<![\w-]){re.escape(node)}(?![\w-])", words)}
    return named.pop() if len(named) == 1 else None


def rank_on(facts: Facts, observation: Observation) -> int | None:
    """Return the rank that ran on the device, or the first that exited on the node."""
    on_node = [e for e in facts.exits if e.node == observation.node]
    index = observation.device.index if observation.device else None
    on_device = [e for e in on_node if index is not None and e.device == index]
    found = min(on_device or on_node, key=lambda e: (e.first_ms, e.rank), default=None)
    return None if found is None else found.rank
