"""Faults of devices and nodes under a job: whose they are, and what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest

from faultlens.events import DeviceRef, Process, Scope
from tests.unit.scenes import ILLEGAL, LAUNCH, MISTAKE, PEER, TRACE, UNKNOWN, WATCHDOG, Run, Scene, inventory

ECC = TRACE + "RuntimeError: CUDA error: uncorrectable ECC error encountered"
NAN = "ValueError: Loss is nan, stopping training"
PORT = DeviceRef(link="mlx5_0")
GRACE: dict[str, Any] = {"gpu_family": "GB200", "gpus_total": 4, "gpus_allocatable": 4, "domains": {"nvlink": "nv1"}}


def job(scene: Scene | None = None, **more: Any) -> Scene:
    """Return a scene in which job `j` makes a step every half minute on all GPUs of two nodes until minute 10."""
    scene = scene or Scene().node("n1", "n2", **more)
    return scene.job("j", "n1", "n2", gpus=range(8)).steps("j", 0.5, 10)


def fails(scene: Scene, text: str = UNKNOWN, **more: Any) -> Run:
    """Let rank 3 of node n1 print a text at minute 10, its peer on n2 tell of that, and the job end."""
    scene.exit(10, "j", 3, "n1", text, device=3, **more)
    return scene.exit(10.1, "j", 8, "n2", PEER).end(10.2, "j").run(30)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("48", "gpu.memory.uncorrectable"),
        ("62", "gpu.firmware.microcontroller"),
        ("64", "gpu.memory.remap_failed"),
        ("74", "fabric.nvlink.link"),
        ("79", "gpu.off_bus"),
        ("94", "gpu.memory.contained"),
        ("95", "gpu.memory.uncontained"),
        ("119", "driver.gsp"),
        ("120", "driver.gsp"),
        ("140", "gpu.memory.uncorrectable"),
    ],
)
def test_a_fatal_code_on_a_held_gpu_is_the_cause(code: str, cause: str) -> None:
    run = fails(job().fault(9.99, "n1", "xid", code, 3))
    assert run.told("j") == (cause, "established", "n1/3", "retry_elsewhere")
    assert run.verdict("j").culprit.rank == 3


@pytest.mark.parametrize(
    ("kind", "code", "cause"),
    [
        ("power", "psu_failure", "host.power.supply"),
        ("storage", "io_error", "host.storage.io_error"),
        ("storage", "read_only_fs", "host.storage.read_only"),
        ("host_memory", "uncorrectable", "host.memory.uncorrectable"),
        ("cpu", "mce", "host.cpu.machine_check"),
        ("kernel", "panic", "host.lost.panic"),
        ("nic", "link_down", "network.link.down"),
        ("nic", "links_missing", "network.nic"),
        ("pcie", "aer_fatal", "host.pcie.fatal"),
        ("fabric_manager", "not_running", "driver.fabric_manager"),
    ],
)
def test_a_fault_of_the_node_itself_is_the_cause_and_the_node_the_culprit(kind: str, code: str, cause: str) -> None:
    run = fails(job().fault(9.99, "n2", kind, code), PEER)
    assert run.told("j") == (cause, "established", "n2", "retry_elsewhere")


@pytest.mark.parametrize(
    ("kind", "code", "gpu"),
    [
        ("thermal", "fan_speed_low", 3),
        ("thermal", "slowdown", 3),
        ("power", "brake", None),
        ("power", "psu_failure", None),
        ("pcie", "aer_correctable", 3),
        ("pcie", "link_degraded", 3),
        ("gpu_memory", "sbe_storm", 3),
        ("gpu_memory", "remap_pending", 3),
        ("host_memory", "corrected_storm", None),
        ("kernel", "soft_lockup", None),
        ("nic", "link_flap", PORT),
        ("nic", "link_down", PORT),
        ("storage", "io_error", None),
        ("xid", "43", 3),
        ("xid", "45", 3),
        ("xid", "63", 3),
        ("xid", "92", 3),
    ],
)
@pytest.mark.parametrize("minute", [5.0, 9.7, 9.99])
def test_a_fault_that_need_not_end_a_job_is_no_excuse_for_its_own_error(
    kind: str, code: str, gpu: Any, minute: float
) -> None:
    run = fails(job().fault(minute, "n1", kind, code, gpu), MISTAKE)
    assert run.told("j") == ("app.exception", "supported", None, "do_not_retry")


def test_a_synthetic_fault_is_no_evidence() -> None:
    run = fails(job().fault(9.99, "n1", "xid", "79", 3, synthetic=True))
    assert run.verdict("j").cause.code != "gpu.off_bus"
    assert [item.role for item in run.verdict("j").evidence if "xid 79" in item.what] in ([], ["context"])
    assert run.states("n1") == [(-10, "available")]


@pytest.mark.parametrize("text", [ECC, "Failed to initialize NVML: Driver/library version mismatch", NAN])
@pytest.mark.parametrize("code", ["link_flap", "link_down"])
def test_a_link_is_not_what_makes_a_gpu_or_driver_complain_of_itself(text: str, code: str) -> None:
    run = fails(job().fault(9.9, "n2", "nic", code, PORT), text)
    verdict = run.verdict("j")
    assert not verdict.cause.code.startswith("network.")
    assert verdict.culprit.node in ("n1", None)


@pytest.mark.parametrize("text", [PEER, WATCHDOG])
def test_a_link_that_flaps_explains_what_the_collectives_print(text: str) -> None:
    run = fails(job().fault(9.9, "n2", "nic", "link_flap", PORT), text)
    assert run.told("j") == ("network.link.flap", "established", "n2", "retry_elsewhere")


# --- which device -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "named", [{"uuid": "GPU-n1-3"}, {"serial": "S-n1-3"}, {"pci": "00000000:C0:00.0"}, {"index": 3}]
)
def test_a_device_is_known_by_any_of_its_names(named: dict[str, Any]) -> None:
    scene = Scene().node("n1", devices=inventory("n1"))
    scene.job("mine", "n1", gpus=(2, 3)).job("beside", "n1", gpus=(0, 1), user="bob")
    scene.fault(9.99, "n1", "xid", "48", DeviceRef(**named))
    scene.exit(10, "mine", 1, "n1", LAUNCH, device=3).end(10.1, "mine")
    scene.exit(10, "beside", 0, "n1", UNKNOWN, device=0).end(10.1, "beside")
    run = scene.run(30)
    assert run.told("mine") == ("gpu.memory.uncorrectable", "established", "n1/3", "retry_elsewhere")
    assert run.verdict("beside").culprit.node is None


def test_a_device_that_nobody_can_name_supports_but_does_not_establish() -> None:
    scene = Scene().node("n1", devices=inventory("n1")).job("part", "n1", gpus=(2, 3)).job("other", "n2")
    scene.fault(9.99, "n1", "xid", "48", DeviceRef(uuid="GPU-elsewhere"))
    run = scene.exit(10, "part", 1, "n1", LAUNCH, device=3).end(10.1, "part").run(30)
    assert run.told("part") == ("gpu.memory.uncorrectable", "supported", "n1", "retry_elsewhere")


@pytest.mark.parametrize("text", [UNKNOWN, MISTAKE, PEER])
def test_a_fault_of_a_gpu_that_somebody_else_holds_is_no_cause(text: str) -> None:
    scene = Scene().node("n1").job("mine", "n1", gpus=(0, 1)).steps("mine", 0.5, 10)
    run = scene.fault(9.9, "n1", "xid", "79", 6).exit(10, "mine", 1, "n1", text).end(10.1, "mine").run(30)
    assert run.verdict("mine").culprit.node is None
    assert run.verdict("mine").basis != "established"


def test_both_jobs_of_a_gpu_shared_by_slices_are_lost_with_it() -> None:
    scene = Scene().node("n1")
    for name, piece in (("a", "1g.0"), ("b", "1g.1")):
        scene.job(name).attempt(name, "n1", gpus=(4,), mig=(piece,))
        scene.exit(10, name, 0, "n1", ECC, device=4).end(10.1, name)
    run = scene.fault(9.99, "n1", "xid", "95", DeviceRef(index=4)).run(30)
    assert run.told("a") == run.told("b") == ("gpu.memory.uncontained", "established", "n1/4", "retry_elsewhere")


# --- the program's, or the device's -----------------------------------------------------------------------


def illegal(
    first: tuple[int, ...], second: tuple[int, ...], *, user: str = "bob", hours: float = 1, **more: Any
) -> Run:
    """Let ann's job meet Xid 31 on some GPUs of a node, and later another job on the same or others."""
    later = hours * 60
    scene = Scene().node("n1", until=40).node("n1", since=later, until=later + 40)
    scene.job("a", "n1", gpus=range(8)).job("b", "n1", minute=later, gpus=range(8), user=user, **more)
    for name, minute, gpus in (("a", 10.0, first), ("b", later + 10, second)):
        for gpu in gpus:
            scene.fault(minute, "n1", "xid", "31", gpu)
        scene.exit(minute + 0.02, name, gpus[0], "n1", ILLEGAL, device=gpus[0]).end(minute + 0.1, name)
    return scene.run(later + 40)


USERS = ("app.illegal_access", "supported", None, "do_not_retry")


def test_an_illegal_access_is_the_programs_until_the_same_gpu_does_it_to_another_user() -> None:
    run = illegal((3,), (3,))
    assert run.told("a") == USERS
    assert run.told("b") == ("gpu.compute.repeated_fault", "established", "n1/3", "retry_elsewhere")


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda: illegal((3,), tuple(range(8))), id="mine-met-it-on-all-its-gpus"),
        pytest.param(lambda: illegal(tuple(range(8)), (3,)), id="the-other-met-it-on-all-its-gpus"),
        pytest.param(lambda: illegal((2,), (3,)), id="another-gpu"),
        pytest.param(lambda: illegal((3,), (3,), user="ann"), id="the-same-user"),
        pytest.param(lambda: illegal((3,), (3,), image="img-ann"), id="the-same-image"),
        pytest.param(lambda: illegal((3,), (3,), hours=48), id="two-days-later"),
    ],
)
def test_what_a_program_can_do_alone_stays_the_programs(run: Any) -> None:
    assert run().told("b") == USERS


def test_a_segmentation_fault_is_the_programs() -> None:
    scene = job().fault(10, "n1", "kernel", "segfault", process=Process(123, "python3"))
    run = fails(scene, "", exit_code=139, signal=11)
    assert run.told("j") == ("app.crash", "supported", None, "do_not_retry")


def test_an_illegal_access_beside_a_root_fault_of_the_device_is_the_devices() -> None:
    run = fails(job().fault(9.98, "n1", "xid", "48", 3).fault(9.99, "n1", "xid", "31", 3), ILLEGAL)
    assert run.told("j") == ("gpu.memory.uncorrectable", "established", "n1/3", "retry_elsewhere")


# --- one among several ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [UNKNOWN, PEER])
def test_of_two_ends_of_a_link_the_one_whose_own_side_is_broken_is_the_root(text: str) -> None:
    scene = Scene().node("n1", "n2", **GRACE).job("j", "n1", "n2", gpus=range(4)).steps("j", 0.5, 10)
    scene.fault(9.95, "n2", "xid", "145", 1, subcode="rlw_remote")
    scene.fault(9.96, "n2", "xid", "149", 1, subcode="link_down/remote")
    scene.fault(9.98, "n1", "xid", "149", 2, subcode="link_down/local_phy")
    run = scene.exit(10, "j", 5, "n2", text).exit(10.1, "j", 2, "n1", text).end(10.2, "j").run(30)
    assert run.told("j") == ("fabric.nvlink.signal", "established", "n1/2", "retry_elsewhere")


def test_a_gpu_that_was_slowed_by_heat_and_then_shut_down_is_too_hot() -> None:
    run = fails(job().fault(7, "n1", "thermal", "slowdown", 3).fault(9.99, "n1", "thermal", "shutdown", 3))
    assert run.told("j") == ("gpu.thermal.shutdown", "established", "n1/3", "retry_elsewhere")


def test_a_gpu_too_hot_while_the_cooling_of_its_rack_fails_is_the_sites() -> None:
    scene = job().incident(5, "cooling", scope=Scope(domains={"rack": ("r1",)}))
    run = fails(scene.fault(9.99, "n1", "thermal", "shutdown", 3))
    assert run.told("j") == ("platform.cooling", "established", None, "retry")


def test_an_older_incident_that_reaches_another_node_does_not_hide_the_one_that_reaches_this() -> None:
    scene = Scene().node("n1", domains={"rack": "r1"}).node("n2", domains={"rack": "r2"})
    scene.incident(4, "power", name="i0", scope=Scope(domains={"rack": ("r2",)}))
    scene.incident(5, "cooling", scope=Scope(domains={"rack": ("r1",)}))
    run = fails(job(scene).fault(9.99, "n1", "thermal", "shutdown", 3))
    assert run.told("j") == ("platform.cooling", "established", None, "retry")


def test_a_cooling_incident_of_another_rack_is_no_excuse() -> None:
    scene = job().incident(5, "cooling", scope=Scope(domains={"rack": ("r2",)}))
    run = fails(scene.fault(9.99, "n1", "thermal", "shutdown", 3))
    assert run.verdict("j").cause.code == "gpu.thermal.shutdown"


@pytest.mark.parametrize("announced", ["gpu_reset_required", "node_reboot_required", "none"])
def test_an_announced_recovery_step_accuses_nobody_and_hides_nothing(announced: str) -> None:
    scene = job().fault(9.98, "n1", "xid", "119", 3).fault(9.99, "n1", "xid", "154", 3, subcode=announced)
    assert fails(scene).told("j") == ("driver.gsp", "established", "n1/3", "retry_elsewhere")


def test_a_gpu_that_the_driver_wants_reset_is_the_device_where_nothing_else_says_which() -> None:
    told = fails(job().fault(9.99, "n1", "xid", "154", 3, subcode="gpu_reset_required")).told("j")
    assert told == ("gpu.unknown", "supported", "n1/3", "retry_elsewhere")
    nothing = fails(job().fault(9.99, "n1", "xid", "154", 3, subcode="none"))
    assert nothing.told("j") == ("gpu.unknown", "assumed", None, "retry")
    own = fails(job().fault(9.99, "n1", "xid", "154", 3, subcode="gpu_reset_required"), ILLEGAL)
    assert own.verdict("j").cause.cause_class == "user"


def test_a_gsp_that_fails_again_on_one_gpu_after_a_restart_is_the_gpus_firmware() -> None:
    def again(gpu: int) -> Run:
        scene = Scene().node("n1", since=-60, until=-31).node("n1", since=-25, boot_id="b2").node("n2")
        scene.fault(-40, "n1", "xid", "119", gpu, boot_id="n1-b1")
        return fails(job(scene).fault(9.99, "n1", "xid", "120", 3, boot_id="b2"))

    assert again(3).told("j") == ("gpu.firmware", "established", "n1/3", "retry_elsewhere")
    assert again(4).told("j") == ("driver.gsp", "established", "n1/3", "retry_elsewhere")


def test_a_program_that_sees_no_gpu_on_a_node_whose_driver_hangs_is_no_wrong_request() -> None:
    text = TRACE + "RuntimeError: No CUDA GPUs are available"
    sick = Scene().node("n1", failing={"driver_responds": "timeout"}).node("n2").job("j", "n1", "n2", gpus=range(8))
    assert fails(sick, text).told("j") == ("driver.hang", "established", "n1", "retry_elsewhere")
    assert fails(job(), text).verdict("j").cause.cause_class == "user"


def test_of_two_roots_within_ten_seconds_the_more_severe_is_the_cause_and_later_ones_follow_it() -> None:
    near = fails(job().fault(9.95, "n2", "nic", "link_down", PORT).fault(9.99, "n1", "xid", "79", 3))
    assert near.verdict("j").cause.code == "gpu.off_bus"
    far = fails(job().fault(9.7, "n1", "nic", "link_down", PORT).fault(9.99, "n2", "xid", "79", 3), "")
    assert far.verdict("j").cause.code == "network.link.down"


def test_of_faults_of_several_machines_it_is_the_one_under_the_rank_that_broke() -> None:
    scene = job().fault(9.7, "n2", "xid", "79", 3).fault(9.99, "n1", "xid", "48", 3)
    assert fails(scene).told("j")[2] == "n1/3"


def test_of_faults_of_several_machines_it_is_the_one_of_the_peer_that_is_missed() -> None:
    scene = job().fault(9.5, "n2", "xid", "79", 3).fault(9.7, "n1", "xid", "95", 5)
    assert fails(scene, "").told("j")[2] == "n1/5"


def test_a_fault_after_which_two_steps_were_made_is_context_unless_it_acts_late() -> None:
    cleared = fails(job().fault(8.4, "n1", "nic", "link_down", PORT))
    assert [i.role for i in cleared.verdict("j").evidence if "link_down" in i.what] == ["context"]
    late = fails(job().fault(8.4, "n1", "other", "compute_mismatch", 3))
    assert late.told("j") == ("gpu.compute.wrong_result", "established", "n1/3", "retry_elsewhere")


@pytest.mark.parametrize(("ecc", "cause"), [("pass", "gpu.unknown"), ("fail", "gpu.memory.uncorrectable")])
def test_a_fault_from_before_the_allocation_counts_while_it_is_open(ecc: str, cause: str) -> None:
    scene = Scene().node("n1", since=-60, until=-31).node("n1", since=-29, failing={"ecc": ecc}).node("n2")
    scene.fault(-30, "n1", "xid", "48", 3).job("j", "n1", "n2", gpus=range(8))
    assert fails(scene).verdict("j").cause.code == cause
