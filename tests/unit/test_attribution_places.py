"""Shared services, maintenance, power, starts and memory: when neither the job nor its device is to blame."""

from __future__ import annotations

from typing import Any

import pytest

from faultlens.events import Scope
from tests.unit.scenes import LAUNCH, MISTAKE, PEER, TRACE, UNKNOWN, WATCHDOG, Run, Scene

OWN = ("app.exception", "supported", None, "do_not_retry")
DNS = TRACE + "socket.gaierror: [Errno -3] Temporary failure in name resolution"
STALE = TRACE + "OSError: [Errno 116] Stale file handle: '/data/shard-7'"


def job(scene: Scene | None = None, gpus: Any = range(8)) -> Scene:
    scene = scene or Scene().node("n1", "n2")
    return scene.job("j", "n1", "n2", gpus=gpus).steps("j", 0.5, 10)


def fails(scene: Scene, text: str = "", **more: Any) -> Run:
    scene.exit(10, "j", 3, "n1", text, device=3, **more)
    return scene.exit(10.1, "j", 8, "n2", PEER).end(10.2, "j").run(30)


# --- services --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "text", "cause"),
    [
        ("network", DNS, "platform.network.dns"),
        ("storage", STALE, "platform.storage.mount"),
        ("storage", TRACE + "OSError: [Errno 28] No space left on device: '/mnt/shared/ckpt'", "platform.storage"),
        ("network", PEER, "platform.network"),
    ],
)
def test_an_announced_incident_that_the_text_points_to_is_the_cause(service: str, text: str, cause: str) -> None:
    told = fails(job().incident(5, service), text).told("j")
    assert told == (cause, "established", None, "retry")


@pytest.mark.parametrize(
    "service", ["storage", "network", "registry", "scheduler", "auth", "power", "cooling", "other"]
)
def test_no_incident_excuses_the_programs_own_error(service: str) -> None:
    assert fails(job().incident(5, service), MISTAKE).told("j") == OWN


def test_of_two_incidents_it_is_the_one_that_the_words_name_and_not_the_older() -> None:
    for services in (("storage", "network"), ("network", "storage")):
        scene = job()
        for minute, service in zip((4, 6), services, strict=True):
            scene.incident(minute, service, name=service)
        assert fails(scene, DNS).told("j")[0] == "platform.network.dns"


def test_an_incident_that_was_announced_late_counts_for_what_it_did_before() -> None:
    assert fails(job().incident(14, "network"), DNS).verdict("j").basis == "established"
    assert fails(job().incident(28, "network"), DNS).verdict("j").basis == "supported"


def test_an_incident_that_was_over_before_the_window_is_nothing() -> None:
    scene = job(Scene().node("n1", "n2", since=-60)).incident(-50, "network").incident(-40, "network", "ended")
    assert fails(scene, DNS).verdict("j").basis == "supported"


def test_an_incident_elsewhere_is_nothing() -> None:
    scene = job().incident(5, "network", scope=Scope(nodes=("n9",)))
    assert fails(scene, DNS).verdict("j").basis == "supported"


def test_a_device_fault_is_the_cause_even_while_a_service_is_in_trouble() -> None:
    scene = job().incident(5, "network").fault(9.99, "n1", "xid", "79", 3)
    assert fails(scene, LAUNCH).verdict("j").cause.code == "gpu.off_bus"


def test_a_mount_that_hangs_on_the_node_is_the_storages_and_not_the_nodes() -> None:
    scene = job().fault(9.9, "n1", "storage", "mount_hung")
    assert fails(scene, STALE).told("j") == ("platform.storage.mount", "established", None, "retry")


def test_jobs_that_a_restarted_scheduler_ended_are_the_schedulers() -> None:
    scene = job().incident(9.5, "scheduler").exit(10, "j", 0, "n1", exit_code=143, signal=15)
    assert scene.end(10.2, "j", exit_code=143, signal=15).run(30).verdict("j").cause.code == "platform.scheduler"


def test_links_of_one_switch_that_drop_together_are_the_switchs() -> None:
    scene = job(Scene().node("n1", "n2", domains={"switch": "leaf-1"}))
    for second, node in enumerate(("n1", "n2")):
        scene.fault(9.9 + second / 60, node, "nic", "link_down")
    assert fails(scene, PEER).told("j") == ("network.link", "established", None, "retry")


# --- lost hosts ------------------------------------------------------------------------------------------


def lost(*nodes: str, **more: Any) -> Scene:
    """Return a scene in which nodes with a job stop reporting at minute 10, and six others go on."""
    scene = Scene().node(*nodes, until=9, domains={"power": "pdu-1"})
    scene.node(*(f"m{i}" for i in range(6)), until=40).job("j", *nodes).alive("j", 1, 10)
    return scene


def test_a_host_that_is_lost_without_a_word_is_the_cause() -> None:
    assert lost("n1").run(40).told("j") == ("host.lost.silent", "established", "n1", "retry_elsewhere")


def test_a_silent_host_is_not_the_cause_where_a_gpu_broke_first_on_the_node_that_all_miss() -> None:
    scene = Scene().node("n1", until=9).node("n2", "n3")
    scene = scene.job("j", "n1", "n2", "n3", gpus=range(8)).alive("j", 1, 10)
    scene.exit(10, "j", 8, "n2", "RuntimeError: CUDA error: CUBLAS_STATUS_INTERNAL_ERROR", device=0)
    scene.exit(10.1, "j", 16, "n3", "socketProgress: Connection closed by remote peer n2<45040>", device=0)
    assert scene.end(10.3, "j").run(40).verdict("j").cause.code == "app.cuda_error"


def test_three_hosts_of_one_power_feed_lost_together_are_the_feeds() -> None:
    assert lost("n1", "n2", "n3").run(40).told("j") == ("platform.power", "supported", None, "retry")


def test_an_incident_takes_no_blame_for_what_broke_where_it_does_not_reach() -> None:
    scene = job(Scene().node("n1", domains={"power": "pdu-1"}).node("n2", domains={"power": "pdu-2"}))
    scene.incident(8, "cooling", scope=Scope(domains={"power": ("pdu-2",)}))
    scene.fault(9.5, "n2", "thermal", "slowdown", 2).fault(9.99, "n1", "xid", "79", 3)
    assert fails(scene, LAUNCH).told("j")[:3] == ("gpu.off_bus", "established", "n1/3")


def restarts(scene: Scene) -> Run:
    """Let n2 come back with another boot after a job on both nodes failed by itself."""
    scene.node("n2", since=12, until=30, boot_id="n2-b2")
    return scene.exit(10, "j", 8, "n1", "", device=0).end(10.2, "j").run(30)


def both(**of_n2: Any) -> Scene:
    return Scene().node("n1").node("n2", until=9, **of_n2).job("j", "n1", "n2", gpus=range(8)).alive("j", 1, 10)


def test_a_node_that_restarts_once_its_jobs_are_gone_did_not_end_them() -> None:
    assert restarts(both()).verdict("j").cause.code == "host.lost.rebooted"
    assert restarts(both(gpus_allocatable=0)).verdict("j").cause.code == "app.exception"
    rolled_out = both().rollout(8, "driver", scope=Scope(nodes=("n2",)))
    assert restarts(rolled_out).verdict("j").cause.code == "app.exception"


def test_a_node_whose_ranks_still_print_when_the_trouble_has_begun_was_not_lost_before() -> None:
    assert restarts(both().exit(10.1, "j", 9, "n2", PEER)).verdict("j").cause.code != "host.lost.rebooted"


def test_hosts_lost_while_power_fails_are_the_sites() -> None:
    scene = lost("n1", "n2").incident(12, "power", scope=Scope(domains={"power": ("pdu-1",)}))
    assert scene.run(40).told("j") == ("platform.power", "established", None, "retry")


def test_a_restart_seen_by_the_boot_id_alone_is_the_loss_of_the_host() -> None:
    scene = Scene().node("n1", until=9).node("n1", since=10.5, boot_id="n1-b2").node("n2")
    scene.job("j", "n1", "n2").steps("j", 0.5, 9).exit(10, "j", 2, "n2", PEER).end(10.2, "j")
    assert scene.run(30).told("j") == ("host.lost.rebooted", "established", "n1", "retry_elsewhere")


def test_a_restart_is_no_excuse_for_the_programs_own_error_before_it() -> None:
    scene = Scene().node("n1", until=9).node("n1", since=13, boot_id="n1-b2").node("n2")
    run = scene.job("j", "n1").steps("j", 0.5, 9).exit(9.2, "j", 0, "n1", MISTAKE).end(9.3, "j").run(30)
    assert run.told("j") == OWN


# --- what people do --------------------------------------------------------------------------------------


def terminated(scene: Scene) -> Run:
    return fails(scene, exit_code=143, signal=15)


@pytest.mark.parametrize(("planned", "cause"), [(True, "platform.maintenance"), (False, "platform.eviction")])
def test_a_job_that_a_drain_ended_is_charged_to_the_drain(planned: bool, cause: str) -> None:
    run = terminated(job().act(9, "n1", "drain", planned=planned))
    assert run.told("j") == (cause, "established", None, "retry")


def test_a_drain_is_no_excuse_for_the_programs_own_error() -> None:
    assert fails(job().act(9, "n1", "drain", planned=True), MISTAKE).told("j") == OWN


def test_a_cordon_ends_no_job() -> None:
    assert terminated(job().act(9, "n1", "cordon")).verdict("j").cause.cause_class == "user"


def test_a_job_that_is_terminated_while_its_node_is_in_maintenance_is_charged_to_that() -> None:
    run = terminated(job().maintenance(9, scope=Scope(nodes=("n1",))))
    assert run.told("j") == ("platform.maintenance", "established", None, "retry")


def test_what_broke_before_a_maintenance_or_drain_or_in_spite_of_it_is_the_cause() -> None:
    lost = ("gpu.off_bus", "established", "n1/3", "retry_elsewhere")
    for scene in (
        job().fault(9.9, "n1", "xid", "79", 3).maintenance(10.05, scope=Scope(nodes=("n1",))),
        job().fault(9.9, "n1", "xid", "79", 3).act(10.05, "n1", "drain"),
        job().maintenance(-5).fault(9.9, "n1", "xid", "79", 3),
    ):
        assert terminated(scene).told("j") == lost


def test_a_node_that_restarts_in_a_roll_out_is_restarted_by_that() -> None:
    def restarts(what: str) -> tuple[str, str, str | None, str]:
        scene = Scene().node("n1").node("n2", until=9).node("n2", since=13, boot_id="b2")
        scene = job(scene).rollout(8, what, scope=Scope(nodes=("n2",))).rollout(25, what, "ended")
        return scene.exit(10, "j", 3, "n1", PEER).end(10.2, "j").run(30).told("j")

    assert restarts("os_image") == ("platform.maintenance", "supported", None, "retry")
    assert restarts("agent") == ("host.lost.rebooted", "established", "n2", "retry_elsewhere")


def test_a_node_that_the_scheduler_names_as_gone_is_not_excused_by_the_roll_out_on_another() -> None:
    scene = Scene().node("n1").node("n2", until=9).node("n2", since=13, boot_id="b2")
    scene = job(scene).rollout(8, "os_image", scope=Scope(nodes=("n2",))).rollout(25, "os_image", "ended")
    scene.end(10.2, "j", source="bridge/slurm", reason="NODE_FAIL", message="node n1 not responding")
    assert scene.run(30).verdict("j").culprit.node == "n1"


def test_a_job_that_is_terminated_and_nobody_says_why_is_assumed_to_be_its_own() -> None:
    verdict = terminated(job()).verdict("j")
    assert (verdict.basis, verdict.retry.advice) == ("assumed", "retry")


# --- memory ----------------------------------------------------------------------------------------------

OF_THE_JOB = "Memory cgroup out of memory: Killed process 1234 (python3)"
OF_THE_NODE = "Out of memory: Killed process 1234 (python3) total-vm:1000kB"


def killed(message: str | None, gpus: tuple[int, ...], text: str = "", reason: str | None = None) -> Run:
    scene = Scene().node("n1").job("j", "n1", gpus=gpus).steps("j", 0.5, 10)
    if message is not None:
        scene.fault(10, "n1", "kernel", "oom_kill", message=message)
    scene.exit(10.02, "j", 0, "n1", text, exit_code=137, signal=9, reason=reason)
    return scene.end(10.2, "j", exit_code=137).run(30)


def test_memory_beyond_the_jobs_own_limit_is_the_users() -> None:
    for message, reason in ((OF_THE_JOB, None), (OF_THE_JOB, "oom_killed"), (None, "oom_killed")):
        assert killed(message, (0, 1), reason=reason).told("j") == ("app.oom.host", "supported", None, "do_not_retry")


def test_memory_that_a_shared_node_lacks_is_the_platforms_and_that_of_an_own_node_the_users() -> None:
    assert killed(OF_THE_NODE, (0, 1)).told("j") == ("platform.eviction", "supported", "n1", "retry_elsewhere")
    assert killed(OF_THE_NODE, tuple(range(8))).verdict("j").cause.code == "app.oom.host"


def test_memory_that_another_process_lacked_is_no_excuse_for_the_programs_own_error() -> None:
    assert killed(OF_THE_NODE, (0, 1), MISTAKE).told("j") == OWN


def test_an_eviction_is_the_platforms() -> None:
    run = killed(None, (0, 1), reason="evicted")
    assert run.told("j")[:2] == ("platform.eviction", "supported")


def test_an_eviction_for_the_pods_own_limit_is_its_users() -> None:
    scene = Scene().node("n1").job("j", "n1").exit(10, "j", 0, "n1", exit_code=137, reason="evicted")
    message = "Pod ephemeral local storage usage exceeds the total limit of containers 20Gi."
    run = scene.end(10.2, "j", source="bridge/k8s", exit_code=137, reason="Evicted", message=message).run(30)
    assert run.told("j") == ("app.data.disk_full", "supported", None, "do_not_retry")


# --- hangs and limits ------------------------------------------------------------------------------------


def timed_out(scene: Scene) -> Run:
    return scene.end(40, "j", "timed_out", source="bridge/slurm", reason="TIMEOUT", signal=15).run(60)


def test_the_time_limit_of_a_job_that_went_on_is_its_users_choice() -> None:
    scene = Scene().node("n1", until=60).job("j", "n1").steps("j", 0.5, 39.5).fault(20, "n1", "xid", "79", 0)
    assert timed_out(scene).told("j") == ("app.time_limit", "supported", None, "do_not_retry")


def test_the_time_limit_of_a_job_that_stood_still_ended_a_hang() -> None:
    scene = Scene().node("n1", until=60).job("j", "n1").steps("j", 0.5, 10)
    assert timed_out(scene).told("j") == ("app.hang", "assumed", None, "retry")


def test_a_device_that_was_lost_when_a_job_stopped_is_the_cause_hours_before_its_limit() -> None:
    scene = Scene().node("n1", until=10).node("n1", since=11, until=60, failing={"gpu_count": "fail"})
    scene.job("j", "n1").steps("j", 0.5, 10).fault(10, "n1", "xid", "79", 1)
    assert timed_out(scene).told("j") == ("gpu.off_bus", "established", "n1/1", "retry_elsewhere")


def test_a_collective_that_times_out_on_healthy_nodes_is_a_hang() -> None:
    scene = Scene().node("n1", "n2", until=40).job("j", "n1", "n2").steps("j", 0.5, 10)
    run = scene.exit(20, "j", 0, "n1", WATCHDOG).end(20.2, "j").run(40)
    assert run.verdict("j").cause.cause_class == "user"
    assert run.verdict("j").basis == "assumed"


def test_a_kernel_that_is_stuck_when_a_job_stops_is_the_nodes_and_not_the_programs() -> None:
    scene = job().fault(10.2, "n2", "kernel", "soft_lockup").exit(21, "j", 0, "n1", WATCHDOG).end(21.2, "j")
    assert scene.run(40).told("j") == ("host.cpu.lockup", "supported", "n2", "retry_elsewhere")


def test_processes_that_wait_in_the_kernel_wait_for_storage_only_where_several_nodes_say_so() -> None:
    def stops(*stuck: str) -> str:
        scene = job()
        for node in stuck:
            scene.fault(10.2, node, "kernel", "hung_task")
        return scene.exit(21, "j", 0, "n1", WATCHDOG).end(21.2, "j").run(40).verdict("j").cause.cause_class

    assert (stops("n1", "n2"), stops("n2")) == ("platform", "user")


def test_a_process_that_waits_in_the_kernel_does_not_make_another_crash() -> None:
    scene = job().fault(9.5, "n2", "kernel", "hung_task").exit(10, "j", 3, "n1", "Signal: Segmentation fault (11)")
    assert scene.exit(10.1, "j", 8, "n2", PEER).end(10.2, "j").run(40).verdict("j").cause.code == "app.crash"


def test_the_fault_behind_a_collective_that_times_out_lies_ten_minutes_before() -> None:
    scene = Scene().node("n1", "n2", until=40).job("j", "n1", "n2").steps("j", 0.5, 10)
    scene.fault(10.02, "n2", "xid", "79", 1)
    run = scene.exit(20.1, "j", 0, "n1", WATCHDOG).end(20.2, "j").run(40)
    assert run.told("j") == ("gpu.off_bus", "established", "n2/1", "retry_elsewhere")


def test_the_other_side_of_a_link_that_nobody_names_is_the_fabrics() -> None:
    scene = Scene().node("n1", "n2", gpu_family="GB200").job("j", "n1", "n2").steps("j", 0.5, 10)
    scene.fault(9.95, "n2", "xid", "145", 1, subcode="rlw_remote")
    run = scene.exit(10, "j", 3, "n2", UNKNOWN).end(10.2, "j").run(30)
    assert run.told("j") == ("fabric.nvlink.link", "supported", None, "retry")


def test_a_job_that_fails_alike_on_three_sets_of_nodes_is_broken_itself() -> None:
    scene = Scene().node("n1", "n2", "n3", until=60).job("j")
    for number, node in enumerate(("n1", "n2", "n3"), 1):
        minute = 12 * (number - 1)
        scene.attempt("j", node, minute=minute, number=number)
        scene.exit(minute + 5, "j", 0, node, LAUNCH, number=number).end(minute + 5.1, "j", number=number)
    run = scene.run(60)
    assert run.told("j", 3)[1:] == ("supported", None, "do_not_retry")
    assert run.verdict("j", 2).retry.advice == "retry"
    assert [finding.kind for finding in run.findings("j")] == ["crash_loop"]
