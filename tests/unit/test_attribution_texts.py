"""What the last lines of a failed rank come to, when no node shows a fault."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scenes import ILLEGAL, MISTAKE, PEER, TRACE, UNKNOWN, WATCHDOG, Run, Scene


def printed(text: str, **more: Any) -> Run:
    """Let one rank of a healthy job print a text; its peers tell of closed connections before it does."""
    scene = Scene().node("n1", "n2").job("j", "n1", "n2", gpus=range(8)).steps("j", 0.5, 10)
    scene.exit(10.05, "j", 8, "n2", PEER).exit(10.1, "j", 3, "n1", text, device=3, **more)
    return scene.exit(10.2, "j", 9, "n2", PEER).end(10.3, "j").run(30)


CLIENT = "botocore.exceptions.ClientError: An error occurred"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (MISTAKE, "app.exception"),
        (ILLEGAL, "app.illegal_access"),
        ("ValueError: Loss is nan, stopping training", "app.numerics"),
        (TRACE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB.", "app.oom.gpu"),
        (TRACE + "RuntimeError: DataLoader worker (pid 42) is killed by signal: Killed.", "app.oom.host"),
        (TRACE + "ModuleNotFoundError: No module named 'flash_attn'", "app.dependency"),
        (TRACE + "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'", "app.data.missing"),
        (TRACE + "OSError: [Errno 122] Disk quota exceeded: '/home/ann/ckpt'", "app.data.disk_full"),
        (TRACE + CLIENT + " (AccessDenied) when calling the GetObject operation: Access Denied", "app.config"),
        (TRACE + "RuntimeError: CUDA error: device-side assert triggered", "app.exception"),
    ],
)
def test_what_names_the_programs_own_error_is_the_users_and_not_to_be_retried(text: str, cause: str) -> None:
    assert printed(text).told("j") == (cause, "supported", None, "do_not_retry")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (TRACE + CLIENT + " (503) when calling the GetObject operation: Service Unavailable", "platform.storage"),
        (TRACE + CLIENT + " (SlowDown) when calling the PutObject operation: Please reduce", "platform.storage"),
        (TRACE + "OSError: [Errno 116] Stale file handle: '/data/x'", "platform.storage.mount"),
        (TRACE + "socket.gaierror: [Errno -3] Temporary failure in name resolution", "platform.network.dns"),
    ],
)
def test_what_names_a_service_is_the_platforms_and_nobody_is_to_blame(text: str, cause: str) -> None:
    assert printed(text).told("j") == (cause, "supported", None, "retry")


@pytest.mark.parametrize(
    ("text", "cause", "where"),
    [
        (TRACE + "RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu.memory.uncorrectable", "n1/3"),
        (TRACE + "RuntimeError: CUDA error: uncorrectable NVLink error detected during", "fabric.nvlink.link", "n1"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver.mismatch", "n1"),
    ],
)
def test_what_names_the_device_or_driver_speaks_of_where_the_rank_ran(text: str, cause: str, where: str) -> None:
    run = printed(text)
    assert run.told("j") == (cause, "supported", where, "retry_elsewhere")
    assert run.verdict("j").culprit.rank == 3


@pytest.mark.parametrize(
    "text",
    [
        PEER,
        UNKNOWN,
        "Segmentation fault (core dumped)",
        "Bus error (core dumped)",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
    ],
)
def test_symptoms_alone_establish_nothing_and_may_be_retried(text: str) -> None:
    verdict = printed(text).verdict("j")
    assert (verdict.basis, verdict.culprit.node, verdict.retry.advice) == ("assumed", None, "retry")


def test_the_earliest_root_is_told_and_its_echoes_are_cascades() -> None:
    verdict = printed(MISTAKE).verdict("j")
    roles = {item.what.split(":")[0]: item.role for item in verdict.evidence}
    assert roles["rank 3"] == "symptom"
    assert roles["rank 8"] == "cascade"


def test_the_third_failure_alike_of_an_assumed_cause_is_not_to_be_retried() -> None:
    scene = Scene().node("n1", until=60).job("j")
    for number in (1, 2, 3):
        minute = 12 * (number - 1)
        scene.attempt("j", "n1", minute=minute, number=number)
        scene.exit(minute + 5, "j", 0, "n1", PEER, number=number).end(minute + 5.1, "j", number=number)
    run = scene.run(60)
    assert [run.verdict("j", number).retry.advice for number in (1, 2, 3)] == ["retry", "retry", "do_not_retry"]


def test_the_alternatives_are_other_causes_and_share_what_confidence_is_left() -> None:
    scene = Scene().node("n1").job("j", "n1").steps("j", 0.5, 10).fault(9.99, "n1", "xid", "79", 0)
    verdict = scene.exit(10, "j", 0, "n1", ILLEGAL).end(10.1, "j").run(30).verdict("j")
    assert verdict.cause.code == "gpu.off_bus"
    assert "app.illegal_access" in [other.code for other in verdict.alternatives]
    assert verdict.confidence + sum(other.confidence for other in verdict.alternatives) <= 1.0


def test_many_ranks_are_folded_into_a_count() -> None:
    scene = Scene().node("n1").job("j", "n1", gpus=range(8)).exit(9.9, "j", 0, "n1", MISTAKE)
    for rank in range(1, 200):
        scene.exit(10 + rank / 1000, "j", rank, "n1", PEER)
    verdict = scene.end(10.5, "j").run(30).verdict("j")
    assert verdict.cause.code == "app.exception"
    assert len(verdict.evidence) <= 24
    assert any("more ranks exited" in item.what for item in verdict.evidence)


def test_a_watchdog_says_itself_for_how_long_it_waited_where_no_progress_is_reported() -> None:
    def waited(minutes: int) -> str:
        scene = Scene().node("n1", "n2", until=60).job("j", "n1", "n2", gpus=range(8))
        text = WATCHDOG.replace("Timeout(ms)=600000", f"Timeout(ms)={minutes * 60_000}")
        scene.fault(10, "n2", "xid", "95", 3).exit(40.1, "j", 0, "n1", text, device=0).end(40.2, "j")
        return scene.run(60).verdict("j").cause.code

    assert waited(30) == "gpu.memory.uncontained"
    assert waited(10) == "app.hang"
