"""Events over HTTP: who may say what, what is refused and how, and that nothing is kept while Kafka is away."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from faultlens.codec import Event, encode, event_of
from faultlens.errors import ConfigurationError
from faultlens.events import JobEnded, NodeFault, PlatformIncident
from faultlens.kafka import Connection
from producers.ingest.receiving import BATCH, EVENTS, LINES, ONE, RequestError, received
from producers.ingest.serving import Ingest, Server
from producers.ingest.tokens import Bucket, Grant, Tokens, load_tokens

SECRET = "a-secret-of-node-1"  # noqa: S105 - of a test's own node
NODE = Grant(name="node-1", sha256=sha256(SECRET.encode()).hexdigest(), nodes=("node-1",))
NOW_MS = 1_795_960_000_000


def fault(node: str = "node-1", *, source: str = "", id_: str = "1") -> Event:
    data = NodeFault(node, "c1", "xid", "79", "kmsg")
    return event_of(data, source=source or f"agent/{node}", id_=id_, time_ms=NOW_MS)


def batch(*events: Event) -> bytes:
    return b"[" + b",".join(encode(event) for event in events) + b"]"


class Memory:
    """Takes events; while `away` none arrives."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.away = False

    def publish(self, events: Sequence[Event]) -> bool:
        if not self.away:
            self.events += events
        return not self.away


# --- who may say what ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (fault(), None),
        (fault("node-2"), "this token does not speak for node-2"),
        (fault(source="scheduler/slurm"), "this token does not speak as scheduler/slurm"),
        (
            event_of(JobEnded("j", 1, "failed"), source="launcher/j", id_="1", time_ms=NOW_MS),
            "this token does not speak for j",
        ),
        (
            event_of(PlatformIncident("i", "c1", "storage", "started"), source="status/x", id_="1", time_ms=NOW_MS),
            "this token does not speak for c1",
        ),
    ],
)
def test_a_token_speaks_only_for_what_it_names(event: Event, why: str | None) -> None:
    assert NODE.refuses(event) == why


def test_a_launcher_s_token_speaks_for_its_jobs_and_not_with_a_scheduler_s_weight() -> None:
    grant = Grant(name="team", sha256="0" * 64, jobs=("team-a-*",))
    ended = JobEnded("team-a-7", 1, "failed")
    assert grant.refuses(event_of(ended, source="launcher/team-a-7", id_="1", time_ms=NOW_MS)) is None
    assert grant.refuses(event_of(ended, source="bridge/kubernetes", id_="1", time_ms=NOW_MS)) is not None


def test_a_file_of_tokens_that_cannot_be_used_says_where_and_why(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_text(f"version: 1\ntokens:\n  - {{name: a, sha256: {'a' * 64}}}\n", "utf-8")
    with pytest.raises(ConfigurationError, match=r"tokens\.yaml:3: .*speaks for nobody"):
        load_tokens(path)
    again = f"{{name: NAME, sha256: {'a' * 64}, nodes: ['*']}}"
    path.write_text(f"version: 1\ntokens: [{again.replace('NAME', 'a')}, {again.replace('NAME', 'b')}]\n", "utf-8")
    with pytest.raises(ConfigurationError, match="'b' and 'a' have the same token"):
        load_tokens(path)


# --- what is read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (encode(fault()), ONE),
        (encode(fault()), f"{ONE}; charset=utf-8"),
        (batch(fault()), BATCH),
        (encode(fault()) + b"\n\n", LINES),
    ],
)
def test_events_come_one_by_one_in_lists_or_in_lines(body: bytes, kind: str) -> None:
    assert received(body, kind, NODE).events == [fault()]


def test_what_is_wrong_with_one_event_is_told_and_the_others_are_taken() -> None:
    lines = [encode(fault()), b"{", encode(fault("node-2")), encode(fault()).replace(b"xid", b"12"), b"{}"]
    found = received(b"\n".join(lines), LINES, NODE)
    assert len(found.events) == 2  # a kind that nobody knows is `other`
    assert [(r.number, r.reason) for r in found.refused] == [(1, "not_json"), (2, "forbidden"), (4, "missing_field")]


def test_answers_of_the_pipeline_and_arrival_times_are_not_taken_from_outside() -> None:
    told = json.loads(encode(fault())) | {"recordedtime": "2026-11-29T00:00:00Z"}
    assert received(json.dumps(told).encode(), ONE, NODE).events[0].recorded_ms is None
    verdict = json.loads(encode(fault())) | {"type": "faultlens.job.attributed.v1"}
    assert [r.reason for r in received(json.dumps(verdict).encode(), ONE, NODE).refused] == ["unknown_type"]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [(b"{}", "text/plain", 415), (b"{}", BATCH, 400), (b"[" + b",".join([b"{}"] * (EVENTS + 1)) + b"]", BATCH, 413)],
)
def test_a_request_that_cannot_be_read_is_refused_as_a_whole(body: bytes, kind: str, status: int) -> None:
    with pytest.raises(RequestError) as refused:
        received(body, kind, NODE)
    assert refused.value.status == status


# --- NVSentinel ------------------------------------------------------------------------------------------


def sentinel(**health: Any) -> bytes:
    event = {"nodeName": "node-1", "checkName": "SysLogsXIDError", "isFatal": True, "isHealthy": False} | health
    return json.dumps(
        {
            "specversion": "1.0",
            "type": "com.nvidia.nvsentinel.health.v1",
            "source": "nvsentinel://c1/healthevents",
            "id": "e1",
            "time": "2026-11-29T12:00:00Z",
            "data": {"healthEvent": event},
        }
    ).encode()


SENTINEL = Grant(name="s", sha256="0" * 64, nodes=("*",), sources=("nvsentinel://c1/*",))


@pytest.mark.parametrize(
    ("health", "told"),
    [
        ({"errorCode": ["79"]}, [("xid", "79")]),
        ({"errorCode": ["79", "48", "79"]}, [("xid", "79"), ("xid", "48")]),
        ({"checkName": "GpuMemWatch", "errorCode": ["DCGM_FR_ROW_REMAP_FAILURE"]}, [("gpu_memory", "remap_failed")]),
        ({"checkName": "GpuNvlinkWatch"}, [("nvlink", "link_down")]),
        ({"checkName": "Novel"}, [("other", "nvsentinel_fatal")]),
        ({"checkName": "Novel", "isFatal": False}, [("other", "nvsentinel_warning")]),
        ({"isHealthy": True}, []),
    ],
)
def test_nvsentinel_s_health_events_are_faults_in_the_contract_s_words(
    health: dict[str, Any], told: list[tuple[str, str]]
) -> None:
    found = received(sentinel(**health), ONE, SENTINEL)
    faults = [e.data for e in found.events if isinstance(e.data, NodeFault)]
    assert [(f.kind, f.code) for f in faults] == told
    assert {f.cluster for f in faults} <= {"c1"}
    assert found.silent == (not told)


def test_nvsentinel_names_the_device_and_may_be_held_to_its_nodes() -> None:
    entities = [{"entityType": "GPU", "entityValue": "3"}, {"entityType": "GPU_UUID", "entityValue": "GPU-x"}]
    [event] = received(sentinel(errorCode=["48"], entitiesImpacted=entities), ONE, SENTINEL).events
    assert isinstance(event.data, NodeFault)
    assert event.data.device is not None
    assert (event.data.device.index, event.data.device.uuid) == (3, "GPU-x")
    assert received(sentinel(), ONE, NODE).refused[0].reason == "forbidden"


# --- over HTTP -------------------------------------------------------------------------------------------


class Client:
    def __init__(self, server: Server) -> None:
        self._port = server.port

    def post(self, body: bytes, token: str = SECRET, kind: str = ONE, **headers: str) -> tuple[int, Any, str | None]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        given = {"Authorization": f"Bearer {token}", "Content-Type": kind} | headers
        connection.request("POST", "/v1/events", body, given)
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read()), answer.headers["Retry-After"]
        connection.close()
        return found


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def client(memory: Memory) -> Iterator[Client]:
    server = Server("127.0.0.1", 0, Ingest(Tokens(version=1, tokens=(NODE,)), memory, monotonic_s=lambda: 0.0))
    yield Client(server)
    server.close()


def test_what_is_good_is_handed_on_before_the_answer(client: Client, memory: Memory) -> None:
    assert client.post(batch(fault(), fault(id_="2")), kind=BATCH)[:2] == (202, {"accepted": 2, "silent": 0})
    assert memory.events == [fault(), fault(id_="2")]


@pytest.mark.parametrize(("token", "status"), [("", 401), ("another", 401), (SECRET, 403)])
def test_who_is_not_known_or_speaks_for_another_is_refused(client: Client, token: str, status: int) -> None:
    assert client.post(encode(fault("node-2")), token)[0] == status


def test_while_kafka_is_away_the_sender_is_asked_to_come_again_and_nothing_is_kept(
    client: Client, memory: Memory
) -> None:
    memory.away = True
    status, body, again = client.post(encode(fault()))
    assert (status, body["error"], again) == (503, "Kafka did not take it: send it again", "5")
    memory.away = False
    assert client.post(encode(fault()))[0] == 202
    assert memory.events == [fault()]


def test_a_token_that_sends_too_much_waits_and_others_do_not(client: Client, memory: Memory) -> None:
    body = batch(*[fault(id_=str(number)) for number in range(EVENTS)])
    answers = [client.post(body, kind=BATCH) for _ in range(5)]
    assert [status for status, _, _ in answers] == [202, 202, 202, 202, 429]
    assert answers[-1][2] == "10"
    bucket = Bucket(10.0, 0.0)
    assert bucket.takes(2_000, 0.0) == 0.0
    assert bucket.takes(20, 1.0) == 1.0
    assert bucket.takes(20, 2.0) == 0.0


@pytest.mark.parametrize(("length", "status"), [("99999999", 413), ("many", 411)])
def test_a_body_that_is_too_long_or_of_unknown_length_is_not_read(client: Client, length: str, status: int) -> None:
    assert client.post(b"", **{"Content-Length": length})[0] == status


def test_brokers_that_are_not_there_are_noticed_within_their_time() -> None:
    publishing = pytest.importorskip("producers.ingest.publishing", reason="the Kafka client is not installed")
    publisher = publishing.KafkaPublisher(Connection("127.0.0.1:9"), timeout_ms=1_500)
    began = monotonic()
    assert publisher.publish([fault()]) is False
    assert monotonic() - began < 8
    publisher.close()
