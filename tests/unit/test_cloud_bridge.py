"""Clouds by recorded answers of their services: what is announced, begins and is over is told once each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from faultlens.catalogue import load_catalogue
from faultlens.cli import app
from faultlens.clock import MINUTE_MS, parse_moment
from faultlens.codec import Event
from faultlens.errors import WorldError
from faultlens.events import NodeFault, PlatformMaintenance
from producers.cloud import providers
from producers.cloud.bridge import CloudBridge
from producers.cloud.notices import Answer, Known, Notice, told
from producers.cloud.polling import ask_aws_api
from producers.delivery.kept import Kept

NOW_MS = parse_moment("2026-11-29T12:00:00Z")

# As EC2's metadata service and DescribeInstanceStatus, Compute Engine's metadata server and Azure's Scheduled Events
# answer, by their documentation (2026).
REBOOT = {
    "NotBefore": "29 Nov 2026 14:00:43 GMT",
    "Code": "system-reboot",
    "Description": "scheduled reboot",
    "EventId": "instance-event-0d59937288b749b32",
    "NotAfter": "29 Nov 2026 15:17:23 GMT",
    "State": "active",
}
STATUSES = {
    "InstanceStatuses": [
        {
            "InstanceId": "i-1",
            "InstanceStatus": {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]},
            "SystemStatus": {
                "Status": "impaired",
                "Details": [
                    {"Name": "reachability", "Status": "failed", "ImpairedSince": "2026-11-29T11:50:00.000Z"},
                ],
            },
        },
        {
            "InstanceId": "i-2",
            "InstanceStatus": {"Status": "initializing"},
            "SystemStatus": {"Status": "insufficient-data"},
        },
    ]
}
UPCOMING = {
    "canReschedule": False,
    "latestWindowStartTime": "2026-11-30T18:00:00-08:00",
    "maintenanceStatus": "PENDING",
    "type": "SCHEDULED",
    "windowEndTime": "2026-11-30T22:00:00-08:00",
    "windowStartTime": "2026-11-30T18:00:00-08:00",
}
REDEPLOY = {
    "EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
    "EventStatus": "Scheduled",
    "EventType": "Redeploy",
    "ResourceType": "VirtualMachine",
    "Resources": ["gpu-0", "gpu-9"],
    "NotBefore": "Sun, 29 Nov 2026 12:10:00 GMT",
    "Description": "Host server is degraded",
    "EventSource": "Platform",
    "DurationInSeconds": 600,
}
AZURE = {"DocumentIncarnation": 7, "Events": [REDEPLOY]}
TAKEN = [("scheduled", False), ("started", False)]


def looked(known: Known, answer: Answer, minutes: float = 0) -> tuple[Known, list[tuple[str, bool]]]:
    known, events = told(known, answer, provider="aws", cluster="c1", now_ms=NOW_MS + round(minutes * MINUTE_MS))
    maintenances = [e.data for e in events if isinstance(e.data, PlatformMaintenance)]
    return known, [(data.phase, data.planned) for data in maintenances]


def test_a_reboot_is_announced_with_its_end_begins_at_its_time_and_is_over_when_it_is_said_so() -> None:
    known, events = told(
        Known(), providers.aws_metadata("n1", [REBOOT], None), provider="aws", cluster="c1", now_ms=NOW_MS
    )
    assert isinstance(events[0].data, PlatformMaintenance)
    first = events[0].data
    assert (first.phase, first.planned, first.scope.nodes) == ("scheduled", True, ("n1",))
    assert first.starts_at is not None
    assert first.ends_at is not None
    assert (first.starts_at.hour, first.ends_at.minute) == (14, 17)
    known, again = looked(known, providers.aws_metadata("n1", [REBOOT], None), 1)
    assert again == []
    known, begun = looked(known, providers.aws_metadata("n1", [REBOOT], None), 125)
    assert begun == [("started", True)]
    done = REBOOT | {"Description": "[Completed] scheduled reboot", "State": "completed"}
    known, over = looked(known, providers.aws_metadata("n1", [done], None), 130)
    assert over == [("ended", True)]


def test_what_is_not_announced_any_more_is_over_and_what_was_put_off_is_told_again() -> None:
    known, _ = looked(Known(), providers.aws_metadata("n1", [REBOOT], None))
    later = REBOOT | {"NotBefore": "29 Nov 2026 16:00:43 GMT"}
    known, moved = looked(known, providers.aws_metadata("n1", [later], None), 1)
    assert moved == [("scheduled", True)]
    known, over = looked(known, providers.aws_metadata("n1", [], None), 2)
    assert over == [("ended", True)]
    assert looked(known, providers.aws_metadata("n1", [], None), 3)[1] == []


def test_spot_capacity_that_is_taken_away_is_unplanned() -> None:
    spot = {"action": "terminate", "time": "2026-11-29T12:02:00Z"}
    known, events = looked(Known(), providers.aws_metadata("n1", [], spot))
    assert events == [("scheduled", False)]
    assert looked(known, providers.aws_metadata("n1", [], spot), 3)[1] == [("started", False)]


def test_a_check_of_the_provider_s_is_a_fault_once_and_its_ok_says_nothing() -> None:
    answer = providers.aws_statuses({"i-1": "n1"}, STATUSES)
    known, events = told(Known(), answer, provider="aws", cluster="c1", now_ms=NOW_MS)
    [fault] = [event for event in events if isinstance(event.data, NodeFault)]
    assert isinstance(fault.data, NodeFault)
    assert (fault.subject, fault.data.code, fault.time_ms) == ("n1", "cloud_system_impaired", NOW_MS - 10 * MINUTE_MS)
    assert load_catalogue().resolve("other", fault.data.code).known
    assert told(known, answer, provider="aws", cluster="c1", now_ms=NOW_MS + 1)[1] == []
    known, events = told(known, Answer(), provider="aws", cluster="c1", now_ms=NOW_MS + 2)
    assert events == []
    assert len(told(known, answer, provider="aws", cluster="c1", now_ms=NOW_MS + 3)[1]) == 1


def test_google_s_upcoming_maintenance_and_preemption() -> None:
    known, events = looked(Known(), providers.gcp_metadata("n1", UPCOMING, "NONE", "FALSE"))
    assert events == [("scheduled", True)]
    ongoing = UPCOMING | {"maintenanceStatus": "ONGOING"}
    assert looked(known, providers.gcp_metadata("n1", ongoing, "NONE", "FALSE"), 1)[1] == [("started", True)]
    assert looked(Known(), providers.gcp_metadata("n1", None, "NONE", "TRUE"))[1] == [
        ("scheduled", False),
        ("started", False),
    ]
    known, events = looked(Known(), providers.gcp_metadata("n1", None, "TERMINATE_ON_HOST_MAINTENANCE", "FALSE"))
    assert [phase for phase, _ in events] == ["scheduled", "started"]
    assert looked(known, providers.gcp_metadata("n1", None, "NONE", "FALSE"), 5)[1] == [("ended", True)]


def test_azure_s_events_of_this_machine_and_of_no_other() -> None:
    assert providers.azure_metadata("n1", "gpu-1", AZURE).notices == ()
    [notice] = providers.azure_metadata("n1", "gpu-0", AZURE).notices
    assert (notice.planned, notice.starts_ms, notice.ends_ms) == (
        True,
        NOW_MS + 10 * MINUTE_MS,
        NOW_MS + 20 * MINUTE_MS,
    )
    preempt = {"Events": [REDEPLOY | {"EventType": "Preempt", "EventStatus": "Started"}]}
    assert looked(Known(), providers.azure_metadata("n1", "gpu-0", preempt))[1] == [
        ("scheduled", False),
        ("started", False),
    ]


@pytest.mark.parametrize("answer", [None, {}, [], [None], "nonsense", {"InstanceStatuses": [None]}, {"Events": 7}])
def test_what_is_no_answer_says_nothing(answer: Any) -> None:
    assert providers.aws_metadata("n", answer, answer) == Answer()
    assert providers.aws_statuses({}, answer) == Answer()
    assert providers.gcp_metadata("n", answer, "", "") == Answer()
    assert providers.azure_metadata("n", "n", answer) == Answer()


class Sink:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def put(self, event: Event) -> None:
        self.events.append(event)


def test_while_the_provider_does_not_answer_nothing_is_over_and_a_restart_tells_nothing_again(tmp_path: Path) -> None:
    announced = Answer((Notice(id="1", node="n1", what="reboot", starts_ms=NOW_MS + 9 * MINUTE_MS),))
    answers: list[Answer | None] = [announced, None]

    def ask() -> Answer:
        answer = answers[0] if len(answers) == 1 else answers.pop(0)
        if answer is None:
            raise WorldError("no answer")
        return answer

    sink = Sink()
    kept = Kept(tmp_path / "kept")
    assert CloudBridge(ask, sink, kept, provider="aws", cluster="c1").poll(NOW_MS) == 1
    with pytest.raises(WorldError):
        CloudBridge(ask, sink, kept, provider="aws", cluster="c1").poll(NOW_MS + 1)
    answers[:] = [announced]
    assert CloudBridge(ask, sink, kept, provider="aws", cluster="c1").poll(NOW_MS + 2) == 0
    kept.close()


# --- the services, by a stand-in -------------------------------------------------------------------------


@pytest.fixture
def service() -> Iterator[tuple[str, dict[str, tuple[int, str]]]]:
    answers: dict[str, tuple[int, str]] = {}

    class Handler(BaseHTTPRequestHandler):
        def _say(self) -> None:
            status, body = answers.get(self.path.partition("?")[0], (404, ""))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_PUT = _say  # noqa: N815 - as the library names them

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the library names it
            return

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}", answers
    http.shutdown()
    http.server_close()


GOOGLE = "/computeMetadata/v1/instance"
SERVICES = {
    "aws": {
        "/latest/api/token": (200, "t"),
        "/latest/meta-data/events/maintenance/scheduled": (200, json.dumps([REBOOT])),
    },
    "gcp": {
        f"{GOOGLE}/upcoming-maintenance": (200, json.dumps(UPCOMING)),
        f"{GOOGLE}/maintenance-event": (200, "NONE"),
    },
    "azure": {
        "/metadata/instance/compute/name": (200, "gpu-0"),
        "/metadata/scheduledevents": (200, json.dumps(AZURE)),
    },
}


@pytest.mark.parametrize("provider", SERVICES)
def test_the_metadata_services_are_asked_and_what_they_say_is_told(provider: str, service: Any, tmp_path: Path) -> None:
    url, answers = service
    answers.update(SERVICES[provider])
    out = tmp_path / "events.jsonl"
    command = ["bridge", "cloud", provider, "--cluster", "c1", "--node", "n1", "--once", "--out", str(out)]
    result = CliRunner().invoke(app, [*command, "--metadata-url", url, "--state", str(tmp_path)])
    assert result.exit_code == 0, result.output
    first = json.loads(out.read_text("utf-8").splitlines()[0])
    assert (first["type"], first["data"]["scope"]) == ("faultlens.platform.maintenance.v1", {"nodes": ["n1"]})


@pytest.mark.parametrize("broken", [(500, ""), (200, "<html>")])
def test_a_service_that_is_broken_is_no_answer(broken: tuple[int, str], service: Any, tmp_path: Path) -> None:
    url, answers = service
    answers["/metadata/scheduledevents"] = broken
    command = ["bridge", "cloud", "azure", "--cluster", "c1", "--once", "--out", "-", "--metadata-url", url]
    result = CliRunner().invoke(app, [*command, "--state", str(tmp_path)])
    assert isinstance(result.exception, WorldError)


def test_the_api_is_asked_by_the_provider_s_own_program(tmp_path: Path) -> None:
    program = tmp_path / "aws"
    program.write_text(f"#!/bin/sh\ncat <<'X'\n{json.dumps(STATUSES)}\nX\n", "utf-8")
    program.chmod(0o755)
    assert [one.node for one in ask_aws_api({"i-1": "n1"}, str(program)).impaired] == ["n1"]
    program.write_text("#!/bin/sh\necho no credentials >&2; exit 3\n", "utf-8")
    with pytest.raises(WorldError, match="ended with 3: no credentials"):
        ask_aws_api({}, str(program))
    with pytest.raises(WorldError, match="not installed"):
        ask_aws_api({}, str(tmp_path / "none"))
