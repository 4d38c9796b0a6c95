"""The simulated fleet: what it promises of its records and of the truth that it tells."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import producers.simulation
from faultlens.causes import class_of, is_known
from faultlens.clock import HOUR_MS, MINUTE_MS, ms_of
from faultlens.codec import Decoder, Event
from faultlens.events import (
    FAILURES,
    JobAllocated,
    JobEnded,
    JobResized,
    JobStarted,
    NodeFault,
    NodeHealth,
    PlatformIncident,
    RankExited,
)
from faultlens.topics import INPUT_TYPES
from faultlens.truth import Truth
from producers.simulation.simulate import simulate
from producers.simulation.tables import SHIPPED_MIXES, Mix, load_happenings, load_mix
from producers.simulation.world import QUIET_MS, Shape, World

START_MS = 1_795_996_800_000
END_MS = START_MS + 48 * HOUR_MS
NODES = 32


@dataclass(frozen=True)
class Recording:
    raw: list[bytes]
    events: list[Event]
    truths: list[Truth]


def shape(seed: int) -> Shape:
    return Shape(NODES, days=2, seed=seed, start_ms=START_MS, interval_s=900)


def mix_named(name: str) -> Mix:
    """A shipped mix; `troubled` is the shifted one, with more of what is rare."""
    mix = load_mix("shifted" if name == "troubled" else name, load_happenings())
    if name != "troubled":
        return mix
    return mix.model_copy(
        update={
            "acceleration": 400.0,
            "work": mix.work.model_copy(
                update={"elastic": 0.9, "reporters": {"slurm": 3, "kubernetes": 2, "launcher": 5}}
            ),
            "transport": mix.transport.model_copy(update={"wrong_clocks": 0.15, "duplicated": 0.02}),
        }
    )


def make(mix: str, seed: int) -> Recording:
    raw: list[bytes] = []
    truths: list[Truth] = []
    simulate(shape(seed), mix_named(mix), load_happenings(), write=raw.append, told=truths.append)
    decoder = Decoder()
    return Recording(raw, [decoder.decode(line) for line in raw], truths)


@cache
def recording(mix: str = "default") -> Recording:
    return make(mix, seed=5)


def both() -> list[Recording]:
    return [recording("default"), recording("troubled")]


def test_every_record_is_an_input_event_of_the_contract() -> None:
    for made in both():
        assert {event.type for event in made.events} <= INPUT_TYPES.keys()


def test_records_are_written_in_the_order_in_which_they_arrive() -> None:
    for made in both():
        arrivals = [event.recorded_ms for event in made.events]
        assert None not in arrivals
        assert arrivals == sorted(arrivals, key=lambda at_ms: at_ms or 0)
        assert all(event.sent_ms is not None for event in made.events)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    again = make("default", seed=5)
    assert again.raw == recording().raw
    assert again.truths == recording().truths
    assert make("default", seed=6).raw != recording().raw


def test_records_arrive_late_twice_and_out_of_order() -> None:
    events = recording("troubled").events
    seen = Counter((event.source, event.id) for event in events)
    assert 0 < sum(count - 1 for count in seen.values()) < len(events) / 25
    for source in ("bridge/slurm", "bridge/kubernetes"):
        times = [event.time_ms for event in events if event.source == source]
        assert times != sorted(times)


def test_a_job_that_fails_of_itself_prints_the_same_error_at_each_try() -> None:
    errors: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    own = {(t.job_id, t.attempt) for t in recording().truths if t.code == "app.data.missing"}
    for event in recording().events:
        if isinstance(event.data, RankExited) and (event.data.job_id, event.data.attempt) in own:
            said = [line for line in (event.data.log_tail or "").splitlines() if "rror" in line and "No such" in line]
            errors[event.data.job_id][event.data.attempt] |= set(said)
    again = [by_attempt for by_attempt in errors.values() if len(by_attempt) > 1]
    assert again
    assert all(len(set.union(*by_attempt.values())) <= 1 for by_attempt in again)


def test_two_copies_of_a_record_say_the_same_but_for_when_they_were_sent_and_received() -> None:
    first: dict[tuple[str, str], Event] = {}
    for event in recording().events:
        known = first.setdefault((event.source, event.id), event)
        assert (known.type, known.time_ms, known.data) == (event.type, event.time_ms, event.data)


def test_a_wrong_clock_is_wrong_by_the_same_amount_in_time_and_sending_time() -> None:
    off = defaultdict(set)
    for event in recording("troubled").events:
        if isinstance(event.data, NodeHealth) and event.sent_ms is not None and event.recorded_ms is not None:
            assert event.sent_ms >= event.time_ms
            off[event.source].add(round((event.sent_ms - event.recorded_ms) / HOUR_MS))
    assert any(hours != {0} for hours in off.values())
    assert all(len(hours) <= 2 for hours in off.values())


# --- the truth --------------------------------------------------------------------------------------------


def outcomes(made: Recording) -> dict[tuple[str, int], str]:
    """How each reported attempt ended: the scheduler's word counts, where there is one."""
    words: dict[tuple[str, int], tuple[bool, str]] = {}
    for event in made.events:
        if isinstance(event.data, JobEnded):
            key = (event.data.job_id, event.data.attempt)
            word = (event.source.startswith("bridge/"), event.data.outcome)
            words[key] = max(words.get(key, word), word)
    return {key: outcome for key, (_, outcome) in words.items()}


def test_every_reported_failure_has_its_truth_once_and_nothing_else_has_one() -> None:
    for made in both():
        said = outcomes(made)
        of_ends = [(truth.job_id, truth.attempt) for truth in made.truths if truth.loss is None]
        assert len(of_ends) == len(set(of_ends))
        unreported = set(of_ends) - said.keys()
        assert set(of_ends) - unreported == {key for key, outcome in said.items() if outcome in FAILURES}
        assert all(job_id.startswith("run-") for job_id, _ in unreported), "a scheduler reports every end"


def test_an_end_is_not_reported_only_where_the_launcher_went_down_with_its_node() -> None:
    made = recording("troubled")
    said = outcomes(made)
    unreported = [truth for truth in made.truths if truth.loss is None and (truth.job_id, truth.attempt) not in said]
    assert unreported
    assert all(truth.code.startswith(("host.lost", "host.power", "host.cpu", "platform.power")) for truth in unreported)


def test_a_launcher_says_nothing_of_ranks_once_its_own_node_is_gone() -> None:
    made = recording("troubled")
    heads = {}
    for event in made.events:
        if isinstance(event.data, JobAllocated) and event.data.part in {None, 1}:
            heads[event.data.job_id, event.data.attempt] = event.data.allocation[0].node
    gone = {
        (truth.job_id, truth.attempt)
        for truth in made.truths
        if truth.loss is None
        and truth.code.startswith("host.lost")
        and not truth.job_id.startswith("run-")  # without a scheduler nobody else could tell of a late one
        and truth.node == heads[truth.job_id, truth.attempt]
    }
    assert gone
    for event in made.events:
        if isinstance(event.data, RankExited) and event.source.startswith("launcher/"):
            assert (event.data.job_id, event.data.attempt) not in gone


def test_codes_are_of_the_registry_and_say_the_class() -> None:
    for made in both():
        for truth in made.truths:
            assert is_known(truth.code)
            assert class_of(truth.code) == truth.cause_class


def test_most_failures_can_be_decided_and_some_cannot() -> None:
    for made in both():
        decidable = sum(truth.decidable for truth in made.truths) / len(made.truths)
        assert 0.85 <= decidable < 1


def test_only_machines_of_the_allocation_are_blamed() -> None:
    for made in both():
        held = _allocations(made)
        for truth in made.truths:
            if truth.node is not None:
                assert truth.node in held[truth.job_id, truth.attempt]


def _allocations(made: Recording) -> dict[tuple[str, int], dict[str, set[int]]]:
    held: dict[tuple[str, int], dict[str, set[int]]] = defaultdict(dict)
    for event in made.events:
        if isinstance(event.data, JobAllocated):
            for slot in event.data.allocation:
                held[event.data.job_id, event.data.attempt][slot.node] = set(slot.devices or ())
    return held


def test_a_blamed_gpu_was_held_by_the_job() -> None:
    for made in both():
        held = _allocations(made)
        for truth in made.truths:
            if truth.node is not None and truth.device_index is not None:
                assert truth.device_index in held[truth.job_id, truth.attempt][truth.node]


def test_users_and_services_are_charged_without_a_node() -> None:
    for made in both():
        assert all(truth.node is None for truth in made.truths if truth.cause_class == "user")


def test_started_says_whether_user_code_ran() -> None:
    for made in both():
        started = {(e.data.job_id, e.data.attempt) for e in made.events if isinstance(e.data, JobStarted)}
        for truth in made.truths:
            assert truth.started == ((truth.job_id, truth.attempt) in started)


def test_every_failure_is_over_before_the_quiet_time_at_the_end() -> None:
    for made in both():
        last_ms = max(ms_of(truth.ended_at) for truth in made.truths)
        assert last_ms <= END_MS - QUIET_MS + MINUTE_MS


def test_a_loss_that_a_job_survived_is_told_with_the_nodes_it_lost() -> None:
    made = recording("troubled")
    lost = {
        (event.data.job_id, event.data.attempt, slot.node)
        for event in made.events
        if isinstance(event.data, JobResized)
        for slot in event.data.lost
    }
    survived = {(truth.job_id, truth.attempt, truth.node) for truth in made.truths if truth.loss is not None}
    assert survived
    assert survived <= lost
    failed = {(truth.job_id, truth.attempt) for truth in made.truths if truth.loss is None}
    assert {(job_id, attempt) for job_id, attempt, _ in lost - survived} <= failed, "who fails soon after had no loss"


# --- the fleet --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["default", "troubled"])
def test_every_gpu_is_held_by_the_one_attempt_that_has_a_seat_there(name: str) -> None:
    looks = 0

    def watch(world: World, _now_ms: int) -> None:
        nonlocal looks
        looks += 1
        for node in world.fleet:
            holders = {gpu.holder for gpu in node.gpus if gpu.holder is not None}
            assert holders == set(node.holders)
            for gpu in node.gpus:
                assert gpu.holder is None or (node, gpu.index) in gpu.holder.seats
                assert gpu.holder is None or not gpu.holder.over

    def ignore(_: object) -> None: ...

    simulate(shape(7), mix_named(name), load_happenings(), write=ignore, told=ignore, watch=watch)
    assert looks == 48 * 4


def test_memory_does_not_grow_with_time() -> None:
    kept: list[int] = []

    def watch(world: World, _now_ms: int) -> None:
        kept.append(len(world.agenda._heap) + len(world.delivery._under_way) + len(world.incidents))

    def ignore(_: object) -> None: ...

    long = Shape(8, days=12, seed=2, start_ms=START_MS, interval_s=3_600)
    simulate(long, mix_named("default"), load_happenings(), write=ignore, told=ignore, watch=watch)
    day = 24
    assert max(kept[8 * day :]) < 1.5 * max(kept[2 * day : 6 * day])


def test_a_node_that_lost_its_power_is_silent_and_comes_back_with_another_boot_id() -> None:
    made = recording("troubled")
    boots: dict[str, set[str | None]] = defaultdict(set)
    for event in made.events:
        if isinstance(event.data, NodeHealth):
            boots[event.data.node].add(event.data.boot_id)
    lost = {truth.node for truth in made.truths if truth.code.startswith("host.lost") and truth.node}
    assert lost
    assert sum(len(boots[node]) > 1 for node in lost) >= len(lost) - 2


def test_an_incident_that_is_announced_is_announced_before_it_is_over() -> None:
    phases: dict[str, list[str]] = defaultdict(list)
    for event in sorted(recording("troubled").events, key=lambda event: event.time_ms):
        if isinstance(event.data, PlatformIncident):
            phases[event.data.incident_id].append(event.data.phase)
    assert len(phases) > 3
    assert all(list(dict.fromkeys(said)) in (["started", "ended"], ["started"]) for said in phases.values())


def test_the_inventory_comes_once_per_boot() -> None:
    sent = Counter(
        (event.data.node, event.data.boot_id, event.id)
        for event in recording().events
        if isinstance(event.data, NodeHealth) and event.data.devices
    )
    by_boot = Counter((node, boot) for node, boot, _ in sent)
    assert set(by_boot.values()) == {1}


def test_herrings_are_seen_where_nothing_failed() -> None:
    made = recording()
    blamed = {truth.node for truth in made.truths}
    seen = [event.data for event in made.events if isinstance(event.data, NodeFault) and event.data.node not in blamed]
    assert {"63", "92", "link_flap"} & {fault.code for fault in seen}


def test_a_big_gang_reports_a_bounded_number_of_its_ranks() -> None:
    exits = Counter(
        (event.data.job_id, event.data.attempt, event.id)[:2]
        for event in recording("troubled").events
        if isinstance(event.data, RankExited)
    )
    assert max(exits.values()) <= 16


def test_the_two_mixes_differ_notably() -> None:
    mixes = [load_mix(name, load_happenings()) for name in SHIPPED_MIXES]
    assert mixes[0].node_faults != mixes[1].node_faults
    assert mixes[0].evidence != mixes[1].evidence


def test_the_generator_knows_nothing_of_how_failures_are_attributed() -> None:
    allowed_kernel = {
        "faultlens.causes", "faultlens.clock", "faultlens.codec", "faultlens.errors", "faultlens.events",
        "faultlens.topics", "faultlens.truth", "faultlens.yaml_lines",
    }  # fmt: skip
    for path in Path(producers.simulation.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                top = node.module.split(".")[0]
                assert top not in {"streams", "sinks", "slo", "actuators"}, path
                assert top != "faultlens" or node.module in allowed_kernel, (path, node.module)


@pytest.mark.parametrize("mix", ["default", "troubled"])
def test_no_record_is_so_large_that_the_contract_refuses_it(mix: str) -> None:
    assert max(len(raw) for raw in recording(mix).raw) < 64 * 1024
    tails = [event.data.log_tail for event in recording(mix).events if isinstance(event.data, RankExited | JobEnded)]
    assert max(len(tail) for tail in tails if tail) <= 8 * 1024
