"""Hand-over to NVSentinel's janitor: asked once, followed to its end, and its word taken for what it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from actuators.kubernetes_api import Answer
from actuators.ledger import Ledger
from actuators.nvsentinel import NvSentinel
from faultlens.errors import WorldError
from faultlens.events import Action, DeviceRef
from tests.contract.acting import DRAIN, LATER, Bench, Clock
from tests.contract.janitor_fake import FakeJanitor

UUID = "GPU-12345678-aaaa-bbbb-cccc-000000000001"
REBOOT = replace(DRAIN, action="reboot")
RESET = replace(DRAIN, action="reset_device", device=DeviceRef(index=3, uuid=UUID))
NAME = f"faultlens-{DRAIN.command_id}"


def bench(janitor: FakeJanitor, ledger: Ledger) -> Bench:
    clock = Clock()
    return Bench(NvSentinel(janitor, sleep=clock.sleep), ledger, clock)


@pytest.mark.parametrize(
    ("action", "kind", "spec"),
    [
        ("reboot", "RebootNode", {"nodeName": "node-1", "force": False}),
        ("replace", "TerminateNode", {"nodeName": "node-1", "force": False}),
        ("reset_device", "GPUReset", {"nodeName": "node-1", "selector": {"uuids": [UUID]}}),
    ],
)
def test_each_action_is_a_resource_of_its_kind_that_names_one_node_and_one_gpu(
    action: Action, kind: str, spec: dict[str, object], ledger: Ledger
) -> None:
    janitor = FakeJanitor()
    assert bench(janitor, ledger).worker.take(replace(RESET, action=action)) == "succeeded"
    (made,) = janitor.made.values()
    assert (made["kind"], made["spec"], made["metadata"]["name"]) == (kind, spec, NAME)


def test_what_the_janitor_says_that_failed_has_failed_with_its_reason(ledger: Ledger) -> None:
    janitor = FakeJanitor()
    janitor.outcome = {"status": "False", "reason": "Timeout", "message": "the node did not come back"}
    failing = bench(janitor, ledger)
    assert failing.worker.take(REBOOT) == "failed"
    assert failing.results[-1].reason == "RebootNode: Timeout: the node did not come back"


def test_a_reset_that_is_complete_has_succeeded_only_by_its_phase(ledger: Ledger) -> None:
    for number, (phase, state) in enumerate([("Succeeded", "succeeded"), ("Failed", "failed")]):
        janitor = FakeJanitor()
        janitor.phase = phase
        assert bench(janitor, ledger).worker.take(replace(RESET, command_id=f"c{number}", issued_at=LATER)) == state


def test_a_gpu_without_uuid_is_not_reset_since_no_selector_means_all_of_them(ledger: Ledger) -> None:
    janitor = FakeJanitor()
    refusing = bench(janitor, ledger)
    assert refusing.worker.take(replace(RESET, device=DeviceRef(index=3))) == "refused"
    assert (janitor.made, refusing.results[-1].reason) == ({}, "unsupported: the GPU's UUID is not known")


def test_one_that_is_killed_after_asking_finds_its_resource_and_asks_for_no_second_one(ledger: Ledger) -> None:
    janitor = FakeJanitor()
    janitor.dies_after = 0
    first = bench(janitor, ledger)
    with pytest.raises(KeyboardInterrupt):
        first.worker.take(REBOOT)
    again = bench(janitor, ledger)
    (unfinished,) = again.worker.unfinished()
    assert again.worker.take(unfinished) == "succeeded"
    assert list(janitor.made) == [NAME]


def test_a_server_that_is_away_for_a_while_is_asked_again(ledger: Ledger) -> None:
    janitor = FakeJanitor()
    asking = bench(janitor, ledger)
    janitor.away = 4
    assert asking.worker.take(replace(REBOOT, boot_id=None)) == "succeeded"


def test_a_restart_meant_for_another_boot_is_refused_and_a_janitor_that_sleeps_ends_the_command(ledger: Ledger) -> None:
    janitor = FakeJanitor(takes=1_000_000)
    fenced = bench(janitor, ledger)
    assert fenced.worker.take(replace(REBOOT, boot_id="boot-0")) == "refused"
    assert janitor.made == {}
    assert fenced.worker.take(replace(REBOOT, command_id="b")) == "failed"
    assert fenced.results[-1].reason == "not ended in time"


def test_only_kinds_that_the_cluster_has_are_done_and_without_any_it_says_so(ledger: Ledger) -> None:
    some = FakeJanitor(plurals=frozenset({"rebootnodes"}))
    assert NvSentinel(some, sleep=print).actions == {"reboot"}
    with pytest.raises(WorldError, match="janitor"):
        NvSentinel(FakeJanitor(plurals=frozenset()), sleep=print)


def test_its_role_allows_what_it_asks_for_and_nothing_else(ledger: Ledger) -> None:
    asked: set[tuple[str, str]] = set()

    class Watched(FakeJanitor):
        def __call__(
            self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
        ) -> Answer:
            words = path.partition("?")[0].split("/")
            one = method == "GET" and "?" not in path
            asked.add((words[-2], "get") if one else (words[-1], "create" if method == "POST" else "list"))
            return super().__call__(method, path, body, kind=kind)

    janitor = Watched()
    for action in ("reboot", "replace", "reset_device"):
        command = replace(RESET, action=action, command_id=action)
        assert bench(janitor, ledger).worker.take(command) == "succeeded"
    path = Path(__file__).parents[2] / "deploy" / "kubernetes" / "nvsentinel.yaml"
    (role,) = [thing for thing in yaml.safe_load_all(path.read_text("utf-8")) if thing["kind"] == "ClusterRole"]
    allowed = {(kind, verb) for rule in role["rules"] for kind in rule["resources"] for verb in rule["verbs"]}
    assert asked == allowed
