"""What AWS, Google Cloud and Azure answer, as notices. Pure: from their JSON to ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from faultlens.clock import ms_of, parse_moment
from producers.cloud.notices import Answer, Impaired, Notice, Phase

# AWS keeps what is over for a week, with a mark before its description.
_OVER: Final = ("[Completed]", "[Canceled]", "[Cancelled]")
# "21 Jan 2019 09:00:43 GMT"
_AWS_TIME: Final = "%d %b %Y %H:%M:%S GMT"


def aws_metadata(node: str, scheduled: Any, spot: Any) -> Answer:
    """Return what an instance is told of itself: /events/maintenance/scheduled and /spot/instance-action."""
    notices = [_aws_event(node, event, "EventId") for event in _listed(scheduled)]
    if isinstance(spot, dict) and spot.get("action"):
        at_ms = _ms(spot.get("time"))
        what = f"spot-{spot['action']}"
        notices.append(Notice(id=f"{node}/{what}/{at_ms}", node=node, what=what, planned=False, starts_ms=at_ms))
    return Answer(tuple(notices))


def aws_statuses(nodes: Mapping[str, str], answer: Any) -> Answer:
    """Return what DescribeInstanceStatus says of all instances. `nodes`: names by instance id."""
    notices, impaired = [], []
    for status in _listed(answer.get("InstanceStatuses") if isinstance(answer, dict) else None):
        node = nodes.get(status.get("InstanceId", ""), status.get("InstanceId", ""))
        notices += [_aws_event(node, event, "InstanceEventId") for event in _listed(status.get("Events"))]
        impaired += list(_aws_checks(node, status))
    return Answer(tuple(notices), tuple(impaired))


def _aws_event(node: str, event: dict[str, Any], id_field: str) -> Notice:
    description = str(event.get("Description", ""))
    over = description.startswith(_OVER) or event.get("State") in ("completed", "canceled")
    return Notice(
        id=f"{node}/{event.get(id_field) or event.get('EventId') or event.get('Code')}",
        node=node,
        what=str(event.get("Code", "")),
        phase="ended" if over else "scheduled",
        starts_ms=_ms(event.get("NotBefore")),
        ends_ms=_ms(event.get("NotAfter")),
        message=description,
    )


def _aws_checks(node: str, status: dict[str, Any]) -> Iterator[Impaired]:
    """Yield the checks that fail; `initializing` and `insufficient-data` say nothing yet."""
    for name, check in (("SystemStatus", "system"), ("InstanceStatus", "instance")):
        said = status.get(name) or {}
        if said.get("Status") == "impaired":
            details = [detail for detail in _listed(said.get("Details")) if detail.get("Status") == "failed"]
            since = min((ms for d in details if (ms := _ms(d.get("ImpairedSince"))) is not None), default=None)
            told = ", ".join(f"{detail.get('Name')} failed" for detail in details)
            yield Impaired(node=node, check=check, since_ms=since, message=told)  # type: ignore[arg-type]


def gcp_metadata(node: str, upcoming: Any, event: str, preempted: str) -> Answer:
    """Return what an instance is told of itself: upcoming-maintenance, maintenance-event and preempted."""
    notices = []
    if isinstance(upcoming, dict) and upcoming.get("windowStartTime"):
        starts_ms = _ms(upcoming.get("windowStartTime"))
        notices.append(
            Notice(
                id=f"{node}/maintenance/{starts_ms}",
                node=node,
                what=str(upcoming.get("type", "")),
                planned=upcoming.get("type") != "UNSCHEDULED",
                phase="started" if upcoming.get("maintenanceStatus") == "ONGOING" else "scheduled",
                starts_ms=starts_ms,
                ends_ms=_ms(upcoming.get("windowEndTime")),
            )
        )
    elif event.strip() not in ("", "NONE"):
        # One is announced a minute or an hour ahead, and the word goes when it is over.
        notices.append(Notice(id=f"{node}/{event.strip()}", node=node, what=event.strip(), phase="started"))
    if preempted.strip() == "TRUE":
        notices.append(Notice(id=f"{node}/preempted", node=node, what="preempted", planned=False, phase="started"))
    return Answer(tuple(notices))


_AZURE_UNPLANNED: Final = frozenset({"Preempt", "Terminate"})


def azure_metadata(node: str, machine: str, answer: Any) -> Answer:
    """Return what Scheduled Events says of this machine; it names others of its set too."""
    events = _listed(answer.get("Events") if isinstance(answer, dict) else None)
    return Answer(tuple(_azure_event(node, event) for event in events if machine in event.get("Resources", [])))


def _azure_event(node: str, event: dict[str, Any]) -> Notice:
    phase: Phase = "started" if event.get("EventStatus") == "Started" else "scheduled"
    starts_ms, lasts_s = _ms(event.get("NotBefore")), event.get("DurationInSeconds", -1)
    ends = starts_ms is not None and isinstance(lasts_s, int) and lasts_s >= 0
    return Notice(
        id=f"{node}/{event.get('EventId')}",
        node=node,
        what=str(event.get("EventType", "")),
        planned=event.get("EventType") not in _AZURE_UNPLANNED,
        phase=phase,
        starts_ms=starts_ms,
        ends_ms=(starts_ms or 0) + 1_000 * lasts_s if ends else None,
        message=str(event.get("Description", "")),
    )


def _listed(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _ms(text: object) -> int | None:
    """Return a provider's time, of which there are three forms; None: there is none that can be read."""
    if not isinstance(text, str) or not text:
        return None
    for read in (parse_moment, _aws_time, _http_time):
        try:
            return read(text)
        except (ValueError, TypeError):
            continue
    return None


def _aws_time(text: str) -> int:
    return ms_of(datetime.strptime(text, _AWS_TIME).replace(tzinfo=UTC))


def _http_time(text: str) -> int:
    return ms_of(parsedate_to_datetime(text))
