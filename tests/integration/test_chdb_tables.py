"""What tables and views say, in an embedded store: each fact once, the latest word, whatever came twice or late."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest

from faultlens.clock import HOUR_MS, MINUTE_MS, moment_of
from faultlens.codec import Event, event_of
from faultlens.events import (
    AttemptRef,
    Data,
    Device,
    Incident,
    IncidentScope,
    JobAllocated,
    JobEnded,
    JobLabelled,
    JobPending,
    JobStarted,
    JobSubmitted,
    JobTime,
    NodeActed,
    NodeFault,
    NodeHealth,
    NodeState,
    NodeStateName,
    SloScope,
    SloStatus,
    Slot,
)
from faultlens.store import RejectedRowsError, Store, open_store
from sinks.migrate import migrate
from sinks.tables import TABLES
from sinks.writer import StoreWriter
from slo.intervals import Interval
from slo.recompute import View, rows

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

AT_MS = 1_795_000_000_000


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(str(tmp_path_factory.mktemp("tables") / "store")) as store:
        migrate(store)
        yield store


@pytest.fixture
def store(opened: Store) -> Store:
    for table in TABLES.values():
        opened.command(f"TRUNCATE TABLE {table.name}")
    return opened


def told(data: Data, id_: str, *, source: str = "faultlens", time_ms: int = AT_MS) -> Event:
    return event_of(data, source=source, id_=id_, time_ms=time_ms)


def write(store: Store, events: Sequence[Event], arrivals_ms: Sequence[int] | None = None) -> None:
    with StoreWriter(store) as writer:
        for event, arrived_ms in zip(events, arrivals_ms or [event.time_ms for event in events], strict=True):
            writer.add(event, arrived_ms)


def test_columns_and_keys_in_sql_are_those_that_rows_are_made_with(store: Store) -> None:
    for table in TABLES.values():
        (found,) = store.query(
            "SELECT sorting_key, engine_full FROM system.tables "
            "WHERE database = currentDatabase() AND name = {table:String}",
            {"table": table.name},
        )
        assert columns_of(store, table.name) == list(table.columns), table.name
        assert found["sorting_key"] == ", ".join(table.key), table.name
        version = "stored" if table.name == "events_raw" else table.version
        assert found["engine_full"].startswith(
            f"ReplacingMergeTree({version})" if version else "ReplacingMergeTree PARTITION"
        )


def columns_of(store: Store, table: str) -> list[str]:
    rows = store.query(
        "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String} "
        "AND (default_kind = '' OR default_expression = 'cluster') ORDER BY position",
        {"table": table},
    )
    return [row["name"] for row in rows]


def test_a_value_that_does_not_fit_is_told_from_a_store_that_fails(store: Store) -> None:
    for row in [("a", "b", -1), ("a", None, 1), ("a", "\ud800", 1), ("a", "b", 2**64)]:
        with pytest.raises(RejectedRowsError, match="meta takes no such row"):
            store.insert("meta", ("key", "value", "version"), [("good", "row", 1), row])
    assert store.query("SELECT key FROM meta") == []


def test_history_of_many_years_goes_in_with_one_insert_and_raw_events_of_it_stay(store: Store) -> None:
    columns = ("type", "source", "id", "subject", "time", "arrived", "raw")
    years = [int(datetime(year, 3, 1, tzinfo=UTC).timestamp() * 1000) for year in (1, 1969, *range(1999, 2027), 9999)]
    weeks = [years[-2] + week * 7 * 24 * HOUR_MS for week in range(90)]
    rows = [("t", "s", str(number), "n1", at_ms, at_ms, "{}") for number, at_ms in enumerate([*years, *weeks])]
    store.insert("events_raw", columns, rows)
    store.command("OPTIMIZE TABLE events_raw FINAL")
    assert store.query("SELECT count() AS n FROM events_raw") == [{"n": len(rows)}]


# --- jobs and attempts: what several records tell of the same thing --------------------------------------


def life_of_a_job() -> tuple[list[Event], list[int]]:
    """Return what a launcher and a scheduler tell of two attempts, and when each record arrived."""
    submitted = JobSubmitted("j1", "c1", "training", 3, 2, user="ann", team="nlp", name="llm", image="img:1")
    first, rest = (Slot("n1", devices=(0, 1)),), (Slot("n2", devices=(0,)),)
    end_of_launcher = JobEnded("j1", 1, "failed", exit_code=1, signal="SIGABRT", message="NCCL timeout")
    end_of_scheduler = JobEnded(
        "j1", 1, "preempted", exit_code=143, reason="PREEMPTED", preempted_by=AttemptRef("j2", 4)
    )
    told_by = {"l": "launcher/j1", "s": "scheduler/slurm"}
    script: list[tuple[str, int, int, Data]] = [
        ("s", 0, 1, submitted),
        ("l", 1, 0, JobSubmitted("j1", "c1", "batch", 3, 2, name="from launcher", spec_hash="h")),
        ("s", 2, 2, JobPending("j1", "Priority", moment_of(AT_MS))),
        ("s", 60, 60, JobAllocated("j1", 1, "c1", rest, image_digest="sha256:1", part=2, parts=2)),
        ("s", 60, 61, JobAllocated("j1", 1, "c1", first, image_digest="sha256:1", part=1, parts=2)),
        ("l", 70, 900, JobStarted("j1", 1)),
        ("s", 80, 80, JobEnded("j1", 1, "failed", reason="NODE_FAIL")),
        ("s", 90, 95, end_of_scheduler),
        ("l", 89, 990, end_of_launcher),
        ("s", 120, 120, JobAllocated("j1", 2, "c1", first)),
        ("s", 180, 180, JobEnded("j1", 2, "succeeded", exit_code=0)),
        ("s", 200, 200, JobLabelled("j1", 1, "platform", "platform.scheduler", "bob")),
    ]
    events = [
        told(data, f"e{number}", source=told_by[who], time_ms=AT_MS + happened_s * 1000)
        for number, (who, happened_s, _, data) in enumerate(script)
    ]
    return events, [AT_MS + arrived_s * 1000 for _, _, arrived_s, _ in script]


def test_the_scheduler_is_right_about_the_outcome_and_the_launcher_about_the_exit(store: Store) -> None:
    write(store, *life_of_a_job())
    (first, second) = store.query("SELECT * FROM attempts WHERE job_id = 'j1' ORDER BY attempt")
    assert first == {
        "job_id": "j1",
        "attempt": 1,
        "cluster": "c1",
        "user": "",
        "image_digest": "sha256:1",
        "node_names": ["n1", "n2"],
        "allocated_at": moment_of(AT_MS + MINUTE_MS),
        "started_at": moment_of(AT_MS + 70_000),
        "ended_at": moment_of(AT_MS + 90_000),
        "outcome": "preempted",
        "exit_code": 1,
        "signal": "SIGABRT",
        "reason": "PREEMPTED",
        "message": "NCCL timeout",
        "restarts_with_attempt": None,
        "preempted_by": "j2/4",
        "command_id": "",
        "resizes": 0,
        "label_class": "platform",
        "label_code": "platform.scheduler",
        "label_by": "bob",
    }
    assert (second["outcome"], second["exit_code"], second["started_at"]) == ("succeeded", 0, None)


def test_what_one_does_not_say_of_a_job_is_taken_from_the_other(store: Store) -> None:
    write(store, *life_of_a_job())
    (job,) = store.query("SELECT * FROM jobs")
    assert (job["name"], job["workload"], job["user"], job["spec_hash"]) == ("llm", "training", "ann", "h")
    assert (job["gpus"], job["nodes"], job["attempts"], job["outcome"]) == (3, 2, 2, "succeeded")
    assert (job["submitted_at"], job["pending_reason"]) == (moment_of(AT_MS), "Priority")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_jobs_and_attempts_depend_on_no_order_and_no_repetition(store: Store, seed: int) -> None:
    events, arrivals_ms = life_of_a_job()
    write(store, events, arrivals_ms)
    before = both(store)
    for table in ("job_facts", "events_raw"):
        store.command(f"TRUNCATE TABLE {table}")
    dice = random.Random(seed)  # noqa: S311
    chosen = dice.sample(range(len(events)), len(events)) + dice.choices(range(len(events)), k=5)
    for number in chosen:
        write(store, [events[number]], [arrivals_ms[number]])
    assert both(store) == before


def both(store: Store) -> list[dict[str, object]]:
    return store.query("SELECT * FROM jobs") + store.query("SELECT * FROM attempts ORDER BY attempt")


# --- nodes -----------------------------------------------------------------------------------------------


def test_a_node_is_what_was_last_told_of_it_by_whatever_told_it(store: Store) -> None:
    report = NodeHealth("n1", "c1", 30.0, 8, 8, (), pool="train", boot_id="b1", devices=(Device(0, "GPU-0"),))
    later = NodeHealth("n1", "c1", 60.0, 8, 6, (), pool="train", boot_id="b2")
    events = [
        told(NodeActed("n1", "c1", "cordon", "bob", planned=True), "a", source="operator/bob", time_ms=AT_MS + 2_000),
        told(later, "r2", source="agent/n1", time_ms=AT_MS + 3_000),
        told(report, "r1", source="agent/n1", time_ms=AT_MS + 1_000),
        told(NodeFault("n1", "c1", "xid", "79", "kmsg", gpu_family="H100"), "f", source="agent/n1", time_ms=AT_MS),
        told(NodeFault("n2", "c1", "xid", "79", "kmsg"), "f", source="agent/n2", time_ms=AT_MS),
    ]
    for event in events:
        write(store, [event])
    one, other = store.query("SELECT * FROM nodes ORDER BY node")
    assert (one["interval_s"], one["gpus_allocatable"], one["boot_id"], one["gpu_family"]) == (60.0, 6, "b2", "H100")
    assert (one["devices"], one["last_action"], one["last_actor"]) == ('[{"index":0,"uuid":"GPU-0"}]', "cordon", "bob")
    assert (one["last_seen"], one["last_fault_at"]) == (moment_of(AT_MS + 3_000), moment_of(AT_MS))
    assert (other["gpus_total"], other["last_report_at"], other["last_fault_at"]) == (None, None, moment_of(AT_MS))


def test_each_state_lasts_until_the_next(store: Store) -> None:
    script: list[tuple[int, NodeStateName]] = [(0, "available"), (60, "down"), (90, "available")]
    states = [
        NodeState("n1", "c1", state, moment_of(AT_MS + since_s * 1000), 8, 8, planned=False)
        for since_s, state in script
    ]
    write(store, [told(state, f"s{number}") for number, state in enumerate(reversed(states))])
    spans = store.query("SELECT state, since, until FROM node_state_spans ORDER BY since")
    assert [(row["state"], row["until"]) for row in spans] == [
        ("available", moment_of(AT_MS + 60_000)),
        ("down", moment_of(AT_MS + 90_000)),
        ("available", None),
    ]


def test_nodes_of_one_name_have_states_of_their_own_even_of_the_same_moment(store: Store) -> None:
    script: list[tuple[str, int, NodeStateName]] = [
        ("c1", 0, "available"), ("c2", 0, "down"), ("c2", 60, "available"), ("c1", 90, "down"),
    ]  # fmt: skip
    states = [
        NodeState("n1", cluster, state, moment_of(AT_MS + since_s * 1000), 8, 8, planned=False)
        for cluster, since_s, state in script
    ]
    write(store, [told(state, f"s{number}") for number, state in enumerate(states)])
    window = [Interval(AT_MS, AT_MS + 100_000)]
    for cluster, up_s in (("c1", 90), ("c2", 40), ("", 130)):
        view = View(AT_MS + 100_000, cluster)
        measured = rows(store, view, window, 0).measures(0)["node_availability"]
        assert (measured.good, measured.total) == (up_s * 1000, 200_000 if cluster == "" else 100_000), cluster


def test_what_a_sink_of_the_release_before_writes_is_taken_and_counts_once(store: Store) -> None:
    state = NodeState("n1", "c1", "down", moment_of(AT_MS), 8, 8, planned=False)
    old = ("node", "since", "state", "cluster", "gpus_total", "gpus_allocatable", "emitted")
    store.insert("node_states", old, [("n1", AT_MS, "available", "c1", 8, 8, AT_MS - 1)])
    write(store, [told(state, "s")])
    assert [row["state"] for row in store.query("SELECT state FROM node_states FINAL")] == ["down"]
    assert [row["state"] for row in store.query("SELECT state FROM node_state_spans")] == ["down"]
    verdict = ("job_id", "attempt", "loss", "revision", "status", "why", "emitted")
    assert store.insert("attributions", verdict, [("j", 1, 0, 1, "final", "a second sentence", AT_MS)]) == 1


# --- verdicts --------------------------------------------------------------------------------------------

STATUSES = ("provisional", "final", "amended", "withdrawn")


def in_force(statuses: Sequence[str]) -> int | None:
    """Return the revision in force: the highest settled one, unless withdrawn since; else the last provisional one."""
    settled = [n for n, status in enumerate(statuses, 1) if status in {"final", "amended"}]
    withdrawn = max((n for n, status in enumerate(statuses, 1) if status == "withdrawn"), default=0)
    if settled and settled[-1] > withdrawn:
        return settled[-1]
    provisional = [n for n, status in enumerate(statuses, 1) if status == "provisional" and n > withdrawn]
    return provisional[-1] if provisional else None


def test_the_verdict_in_force_is_found_in_every_history_of_up_to_four_revisions(store: Store) -> None:
    histories = [h for length in range(1, 5) for h in itertools.product(STATUSES, repeat=length)]
    rows = [
        (" ".join(history), 1, loss, revision, status, AT_MS)
        for history in histories
        for loss in (0, 1)
        for revision, status in enumerate(history, 1)
    ]
    columns = ("job_id", "attempt", "loss", "revision", "status", "emitted")
    store.insert("attributions", columns, rows)
    store.insert("attributions", columns, rows[::2])
    latest = store.query("SELECT job_id, loss, revision FROM attributions_latest")
    found = {(row["job_id"], row["loss"]): row["revision"] for row in latest}
    assert len(found) == len(latest)
    assert found == {
        (" ".join(history), loss): in_force(history)
        for history in histories
        for loss in (0, 1)
        if in_force(history) is not None
    }


# --- time ------------------------------------------------------------------------------------------------


def ledger_of(dice: random.Random, job_id: str) -> tuple[list[Event], Counter[tuple[str, str]]]:
    """Return ledger records that overlap in odd ways, and what a minute-by-minute account makes of them."""
    minutes: dict[int, tuple[str, int]] = {}
    events = []
    for revision in range(1, dice.randint(2, 25)):
        first = dice.randint(0, 300)
        last = first + dice.randint(0, 100)
        category, gpus = dice.choice(["productive", "lost_work", "slow", "queued"]), dice.randint(1, 8)
        minutes |= dict.fromkeys(range(first, last), (category, gpus))
        start, stop = (moment_of(AT_MS + minute * MINUTE_MS) for minute in (first, last))
        data = JobTime(job_id, 1, revision, "c1", category, start, stop, gpus)  # type: ignore[arg-type]
        events.append(told(data, f"{job_id}-{revision}"))
    account: Counter[tuple[str, str]] = Counter()
    for category, gpus in minutes.values():
        account[job_id, category] += 0 if category == "queued" else gpus * MINUTE_MS
    return events, account


@pytest.mark.parametrize("seed", [1, 2])
def test_a_later_ledger_record_replaces_what_earlier_ones_said_of_the_same_time(store: Store, seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    ledgers = [ledger_of(dice, f"j{number}") for number in range(60)]
    events = [event for ledger, _ in ledgers for event in ledger]
    write(store, dice.sample(events, len(events)))
    write(store, dice.sample(events, len(events) // 3))
    found = store.query("SELECT job_id, category, sum(gpu_ms) AS ms FROM gpu_time_latest GROUP BY job_id, category")
    expected: Counter[tuple[str, str]] = Counter()
    for _, account in ledgers:
        expected.update(account)
    assert {(row["job_id"], row["category"]): row["ms"] for row in found} == dict(expected)


def test_pieces_of_an_attempts_time_never_overlap(store: Store) -> None:
    dice = random.Random(7)  # noqa: S311
    write(store, [event for number in range(20) for event in ledger_of(dice, f"j{number}")[0]])
    pieces = store.query("SELECT job_id, start, stop FROM gpu_time_latest ORDER BY job_id, start")
    for before, after in itertools.pairwise(pieces):
        assert before["job_id"] != after["job_id"] or before["stop"] <= after["start"]


def test_an_objective_stands_where_its_last_record_says(store: Store) -> None:
    def standing(good: float, minute: int, window: str = "P30D") -> Event:
        scope = SloScope("c1", team="nlp")
        status = SloStatus("job_success", scope, window, "jobs", good, 100.0, good / 100, 0.9, 1.0, {}, {})
        return told(status, f"{window}{minute}", time_ms=AT_MS + minute * MINUTE_MS)

    write(store, [standing(97.0, 5), standing(99.0, 0), standing(50.0, 1, "PT1H"), standing(97.0, 5)])
    rows = store.query("SELECT window, good FROM slo_status_latest ORDER BY window")
    assert rows == [{"window": "P30D", "good": 97.0}, {"window": "PT1H", "good": 50.0}]


def test_an_incident_stands_where_its_last_change_says(store: Store) -> None:
    at = moment_of(AT_MS)
    opened, changed, closed = (
        told(
            Incident("i1", "c1", phase, "gpu.off_bus", 3, IncidentScope(("n1",)), at, at, count, "r"),  # type: ignore[arg-type]
            phase,
            time_ms=AT_MS + count,
        )
        for count, phase in enumerate(("opened", "changed", "closed"), 1)
    )
    write(store, [closed, opened, changed, opened])
    assert store.query("SELECT phase, count FROM incidents_latest") == [{"phase": "closed", "count": 3}]
    assert store.query("SELECT count() AS n FROM incidents FINAL") == [{"n": 3}]
