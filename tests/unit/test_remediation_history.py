"""What a machine and a GPU had before comes back with them, whatever the node is called that they are in now."""

from __future__ import annotations

from typing import Any

import pytest

from faultlens.clock import MINUTE_MS, moment_of
from faultlens.events import DeviceRef, RemediationResult
from faultlens.internal import Condition, NodeFacts, Observation
from streams.remediation.record import NodeCard, node_key
from tests.unit.test_remediation_jobs import T0, Cluster

GPUS = tuple(f"GPU-{number}" for number in range(8))
OTHERS = tuple(f"GPU-{number}" for number in range(8, 16))
SWAPPED = (*OTHERS[:3], GPUS[3], *OTHERS[4:])


class Fleet:
    """A cluster whose nodes break and are mended by whatever is commanded, one after the other."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.minute = 0.0

    def stands(self, node: str, *, later: float = 0.5, **more: Any) -> Fleet:
        self.minute += later
        at_ms = T0 + round(self.minute * MINUTE_MS)
        fields: dict[str, Any] = {"pool": "gpu", "state": "available", "report_ms": at_ms} | more
        self.cluster.tell(
            NodeFacts(node=node, cluster="c1", at_ms=at_ms, planned=False, gpus_total=8, gpus_allocatable=8,
                      interval_ms=60_000, **fields),
            minute=self.minute,
        )  # fmt: skip
        return self

    def breaks(self, node: str, code: str = "119", *, device: DeviceRef | None = None, **more: Any) -> list[str]:
        """Let a node break, be mended by what is commanded, and return; return what was done, in order."""
        before = len(self.cluster.commands)
        self.stands(node, **more)
        self.opens(node, code, device)
        told = before
        for _ in range(40):
            while told < len(self.cluster.commands):
                self._carried_out(node, told, code, device)
                told += 1
            self.stands(node, **more)
        return [c.action for c in self.cluster.commands[before:]]

    def opens(self, node: str, code: str = "119", device: DeviceRef | None = None) -> Fleet:
        self._condition(node, code, "opened", device)
        return self

    def _carried_out(self, node: str, number: int, code: str, device: DeviceRef | None) -> None:
        command = self.cluster.commands[number]
        done = RemediationResult(command.command_id, "c1", "succeeded", "x", moment_of(T0), command.node)
        self.cluster.tell(done, minute=self.minute)
        if command.action in ("reset_device", "reboot", "power_cycle", "replace"):
            self._condition(node, code, "cleared", device)

    def _condition(self, node: str, code: str, phase: str, device: DeviceRef | None) -> None:
        at_ms = T0 + round(self.minute * MINUTE_MS)
        seen = Observation(
            f"{node}-{code}-{at_ms}", f"agent/{node}", node, "xid", code, at_ms, at_ms, "driver", "driver.gsp", "root",
            80, "so", True, device=device, hint="reset_device", until_ms=None if phase == "opened" else at_ms,
        )  # fmt: skip
        self.cluster.tell(Condition(node, "c1", phase, code, seen, at_ms), minute=self.minute)  # type: ignore[arg-type]


def first_repair(done: list[str]) -> str:
    return next(action for action in done if action not in ("block_new_work", "drain"))


def gpu(uuid: str, index: int = 3) -> DeviceRef:
    return DeviceRef(index=index, uuid=uuid)


def test_a_node_that_breaks_again_begins_above_what_did_not_last() -> None:
    fleet = Fleet()
    assert first_repair(fleet.breaks("a")) == "reset_device"
    assert first_repair(fleet.breaks("a")) == "reboot"


def test_a_gpu_that_is_put_into_another_node_brings_its_record_there_and_leaves_none_behind() -> None:
    fleet = Fleet()
    fleet.breaks("a", device=gpu("GPU-3"), gpus=GPUS, host_id="A")
    moved = (*GPUS[:3], OTHERS[3], *GPUS[4:])
    assert first_repair(fleet.breaks("b", device=gpu("GPU-3"), gpus=SWAPPED, host_id="B")) == "reboot"
    assert first_repair(fleet.breaks("a", device=gpu(OTHERS[3]), gpus=moved, host_id="A")) == "reset_device"


def test_a_gpu_is_known_by_its_serial_number_where_it_was_first_told_without_uuid() -> None:
    fleet = Fleet()
    fleet.breaks("a", device=DeviceRef(index=3, serial="S1"), gpus=("S1",), host_id="A")
    both = DeviceRef(index=0, uuid="GPU-3", serial="S1")
    assert first_repair(fleet.breaks("b", device=both, gpus=("GPU-3",), host_id="B")) == "reboot"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"host_id": "A"}, {"host_id": "A"}),
        ({"gpus": GPUS}, {"gpus": GPUS}),
        ({"gpus": GPUS}, {"gpus": (*GPUS[:5], *OTHERS[5:])}),
        ({"gpus": GPUS}, {"gpus": GPUS, "host_id": "A"}),
        ({"gpus": GPUS, "host_id": "A"}, {"gpus": GPUS}),
    ],
)
def test_a_machine_that_returns_under_another_name_is_known_by_itself_or_by_most_of_its_gpus(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    fleet = Fleet()
    fleet.breaks("a", **before)
    assert first_repair(fleet.breaks("b", **after)) == "reboot"


def test_a_machine_that_says_who_it_is_after_its_first_fault_is_known_from_then_on() -> None:
    fleet = Fleet()
    fleet.breaks("a", host_id="A")
    fleet.opens("b")
    assert first_repair(fleet.breaks("b", host_id="A")) == "reboot"


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ({"host_id": "A"}, {"host_id": "B"}, "a"),
        ({"gpus": GPUS}, {"gpus": OTHERS}, "a"),
        ({"gpus": GPUS}, {"gpus": (*GPUS[:4], *OTHERS[4:])}, "b"),
        ({"gpus": GPUS, "host_id": "A"}, {"gpus": GPUS, "host_id": "B"}, "b"),
    ],
)
def test_other_hardware_is_not_charged_with_it_whatever_the_node_is_called(
    before: dict[str, Any], after: dict[str, Any], name: str
) -> None:
    fleet = Fleet()
    fleet.breaks("a", **before)
    assert first_repair(fleet.breaks(name, **after)) == "reset_device"


@pytest.mark.parametrize(
    "known_by",
    [
        ({"host_id": "A"}, {"host_id": "A"}, {"host_id": "A"}),
        ({"gpus": GPUS}, {"gpus": GPUS}, {"gpus": GPUS}),
        ({"gpus": GPUS}, {"gpus": (*GPUS[:5], *OTHERS[5:])}, {"gpus": (*OTHERS[:2], *GPUS[2:5], *OTHERS[5:])}),
        ({"gpus": GPUS}, {"gpus": GPUS, "host_id": "A"}, {"host_id": "A"}),
        ({"gpus": GPUS, "host_id": "A"}, {"gpus": GPUS}, {"gpus": GPUS}),
    ],
)
def test_a_third_return_of_the_same_goes_to_people_though_each_was_under_another_name(
    known_by: tuple[dict[str, Any], ...],
) -> None:
    fleet = Fleet()
    fleet.breaks("a", **known_by[0])
    fleet.breaks("b", **known_by[1])
    assert fleet.breaks("c", **known_by[2]) == ["block_new_work", "drain", "open_ticket"]
    assert fleet.cluster.commands[-1].policy.endswith(" keeps_returning")


def test_a_lemon_is_one_under_any_name_and_a_jobs_loss_is_counted_once() -> None:
    fleet = Fleet()
    for number, name in enumerate("abcd"):
        fleet.breaks(name, f"11{number}", device=gpu("GPU-3"), gpus=GPUS, host_id="A")
        fleet.minute += 60 * 36
    fleet.breaks("e", "109", device=gpu("GPU-3"), gpus=SWAPPED, host_id="B")
    assert {c.policy.split()[-1] for c in fleet.cluster.commands if c.node == "e"} <= {"lemon", "keeps_returning"}


def test_a_node_that_is_taken_away_in_trouble_and_returns_with_it_begins_above_a_restart() -> None:
    fleet = Fleet()
    fleet.stands("a", host_id="A").opens("a").stands("a", host_id="A", state="removed", later=60)
    assert first_repair(fleet.breaks("b", host_id="A")) == "power_cycle"


# --- open under the old name -----------------------------------------------------------------------------


class Told(Fleet):
    """A fleet of which it is kept how its incidents ended."""

    @property
    def ends(self) -> dict[str, str | None]:
        closed = (i for i in self.cluster.incidents if i.phase == "closed")
        return {incident.scope.nodes[0]: incident.closed_because for incident in closed}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"host_id": "A"}, {"host_id": "A"}),
        ({"gpus": GPUS}, {"gpus": GPUS}),
        ({"gpus": GPUS}, {"gpus": (*GPUS[:5], *OTHERS[5:]), "host_id": "A"}),
        ({"gpus": GPUS, "host_id": "A"}, {"gpus": GPUS}),
    ],
)
def test_what_is_open_of_a_machine_is_over_when_it_comes_back_under_another_name(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    fleet = Told()
    fleet.stands("a", **before).opens("a").stands("b", later=60, **after)
    assert fleet.ends == {"a": "its machine is b now"}
    assert first_repair(fleet.breaks("b", **after)) == "power_cycle", "it brings its record"
    assert [c.node for c in fleet.cluster.commands].count("a") == 1, "and nothing more is done to the name"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"host_id": "A"}, {"host_id": "B"}),
        ({"gpus": GPUS}, {"gpus": (*GPUS[:4], *OTHERS[4:])}),
        ({"gpus": GPUS, "host_id": "A"}, {"gpus": GPUS, "host_id": "B"}),
        ({}, {}),
    ],
)
def test_what_is_open_stays_so_when_other_hardware_comes(before: dict[str, Any], after: dict[str, Any]) -> None:
    fleet = Told()
    fleet.stands("a", **before).opens("a").stands("b", later=60, **after)
    assert fleet.ends == {}


def test_a_name_under_which_a_machine_still_reports_keeps_its_incident_until_it_falls_silent() -> None:
    """Two machines may say that they are the same one: images are copied."""
    fleet = Told()
    fleet.stands("a", host_id="A").opens("a").stands("b", host_id="A")
    for _ in range(5):
        fleet.stands("a", host_id="A").stands("b", host_id="A")
    assert fleet.ends == {}
    fleet.stands("b", host_id="A", later=3)
    assert fleet.ends == {"a": "its machine is b now"}


def test_a_command_that_ends_late_takes_no_name_that_was_left_behind() -> None:
    fleet = Told()
    fleet.stands("a", host_id="A").opens("a").stands("b", later=60, host_id="A")
    block = fleet.cluster.commands[-1]
    fleet.stands("a", host_id="A", state="silent", report_ms=T0)
    done = RemediationResult(block.command_id, "c1", "succeeded", "x", moment_of(T0), "a")
    fleet.cluster.tell(done, minute=fleet.minute)
    card = fleet.cluster.get(node_key("c1", "a"))
    assert isinstance(card, NodeCard)
    assert (card.taken, card.seat.out, card.incident) == (False, False, None), "it would count as out for ever"


def test_the_silence_of_a_name_that_was_left_behind_opens_nothing() -> None:
    fleet = Told()
    fleet.stands("a", host_id="A").opens("a").stands("b", host_id="A", later=60)
    before = len(fleet.cluster.incidents)
    at_ms = T0 + round(fleet.minute * MINUTE_MS)
    silent = Observation(
        "s", "agent/a", "a", "kernel", "silent", at_ms, at_ms, "hardware", "host.lost.silent", "root", 54, "so", True
    )
    fleet.cluster.tell(Condition("a", "c1", "opened", "silent", silent, at_ms), minute=fleet.minute)
    assert len(fleet.cluster.incidents) == before
