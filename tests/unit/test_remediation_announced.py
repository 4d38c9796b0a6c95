"""What the driver announces that a GPU needs (Xid 154) is a reason by itself, at the step that it asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultlens.clock import MINUTE_MS, moment_of
from faultlens.events import DeviceRef, NodeFault, RemediationResult
from faultlens.internal import Announced
from tests.unit.repair_scenes import Repairs
from tests.unit.test_remediation_harm import BLOCKED, trouble
from tests.unit.test_remediation_jobs import GPU, T0, Cluster, broken, facts


def asks(hint: str, *, minute: float = 0, gpu: int = 3, step: str = "") -> Announced:
    at_ms = T0 + round(minute * MINUTE_MS)
    return Announced("n1", "c1", at_ms, hint, DeviceRef(index=gpu), step, f"e-{minute}")


def routes(cluster: Cluster) -> list[str]:
    return [command.policy.split()[-1] for command in cluster.commands]


@pytest.mark.parametrize(
    ("subcode", "steps"),
    [
        ("gpu_reset_required", ["block_new_work", "drain", "reset_device", "validate", "return_to_service"]),
        ("node_reboot_required", ["block_new_work", "drain", "reboot", "validate", "return_to_service"]),
        ("drain_and_reset", ["block_new_work", "reset_device", "validate", "return_to_service"]),
        ("recover_imex_domain", ["block_new_work", "drain", "restart_services", "validate", "return_to_service"]),
        ("drain_p2p", ["block_new_work", "drain", "open_ticket"]),
        ("none", []),
    ],
)
def test_what_is_announced_with_no_other_code_is_done_verified_and_over(subcode: str, steps: list[str]) -> None:
    scene = Repairs().fault(5, "n3", "154", subcode=subcode, driver_version="570.1").run(40)
    assert scene.done("n3") == steps
    assert (scene.standing() == {}) == (steps[-1:] != ["open_ticket"])


def test_the_gpu_that_is_reset_is_the_one_that_was_announced() -> None:
    scene = Repairs().fault(5, "n3", "154", gpu=6, subcode="gpu_reset_required").run(20)
    (reset,) = [c for c in scene.commands if c.action == "reset_device"]
    assert (reset.device, reset.reason.fault_codes) == (DeviceRef(index=6), ("xid:154",))


def test_a_gpu_that_recovers_after_it_asked_for_a_reset_is_given_back_without_one() -> None:
    scene = Repairs().fault(5, "n3", "154", subcode="gpu_reset_required")
    scene.fault(9, "n3", "154", subcode="none").run(40)
    assert scene.done("n3") == ["block_new_work", "validate", "return_to_service"]


def test_a_restart_by_somebody_else_takes_the_announcement_back() -> None:
    cluster = Cluster().tell(facts(boot_id="b0")).tell(asks("reset_device"))
    assert cluster.tell(facts(boot_id="b1"), minute=4).tell(facts(boot_id="b1"), minute=30).done == BLOCKED


def test_a_code_that_comes_just_after_is_what_it_was_about_whichever_is_heard_first() -> None:
    code, word = trouble("xid:119", "driver.gsp", 80, minute=0.05), asks("reboot")
    for told in ((code, word), (word, code)):
        cluster = Cluster().tell(told[0]).tell(told[1], minute=0.1)
        cluster.tell(ended(cluster), minute=0.2).tell(facts(), minute=11)
        assert cluster.done[-1] == ("drain", "n1")
        assert routes(cluster)[-1] == "reboot"
        assert len({command.reason.incident_id for command in cluster.commands}) == 1


@pytest.mark.parametrize(("family", "route"), [("H100", "mine"), ("A100", "reset")])
def test_an_announcement_is_of_its_nodes_family(family: str, route: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: site\nroutes: [{name: mine, match: {families: [H100]}, ladder: hold}]\n", "utf-8")
    cluster = Cluster(policy).tell(facts(gpu_family=family)).tell(asks("reset_device"))
    assert routes(cluster) == [route]


def test_an_announcement_for_one_gpu_says_nothing_of_another() -> None:
    cluster = Cluster().tell(broken())
    cluster.tell(asks("none", gpu=5), minute=0.1)
    assert routes(cluster.tell(facts(), minute=1)) == ["reboot"]
    assert cluster.done == BLOCKED, "GPU 3 is still lost"


def test_what_only_wears_out_is_no_reason_not_to_do_what_is_announced() -> None:
    worn = trouble("xid:63", "gpu.memory.remap_pending", 10, role="trend")
    assert Cluster().tell(worn).tell(asks("reset_device"), minute=0.1).done == BLOCKED


def test_the_same_word_a_thousand_times_is_one_reason_since_the_first() -> None:
    cluster = Cluster()
    for number in range(1_000):
        cluster.tell(asks("reset_device", minute=number / 100), minute=number / 100)
    assert cluster.done == BLOCKED
    cluster.tell(ended(cluster), minute=10.1)
    assert [action for action, _ in cluster.done] == ["block_new_work", "drain"], "ten minutes since the first word"


def ended(cluster: Cluster) -> RemediationResult:
    last = cluster.commands[-1]
    return RemediationResult(last.command_id, "c1", "succeeded", "x", moment_of(T0), last.node)


def test_three_nodes_of_a_rack_that_ask_for_a_reset_are_one_incident_on_the_rack() -> None:
    scene = Repairs(40, racks=4)
    for number in range(3):
        scene.fault(5 + number / 10, f"n{number}", "154", subcode="gpu_reset_required")
    scene.run(8)
    assert [i.scope.domains for i in scene.standing().values() if len(i.scope.nodes) == 3] == [{"rack": ("r0",)}]


@pytest.mark.parametrize(("boot", "done"), [(None, []), ("n3-0", ["block_new_work"])])
def test_a_word_of_hours_ago_is_acted_on_only_where_it_is_known_to_be_of_this_boot(
    boot: str | None, done: list[str]
) -> None:
    scene = Repairs()
    fault = NodeFault("n3", "c1", "xid", "154", "kmsg", boot_id=boot, subcode="gpu_reset_required", device=GPU)
    scene.at(60, fault, "agent/n3", happened=10).run(61)
    assert scene.done("n3")[:1] == done
