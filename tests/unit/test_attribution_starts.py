"""Attempts that never started: what the scheduler says, the registry, and nodes that swallow jobs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scenes import UNKNOWN, Run, Scene


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("ImagePullBackOff", "failed to pull image: unexpected status 429 Too Many Requests",
         ("platform.registry.rate_limit", "supported", None, "retry")),
        ("ErrImagePull", "failed to pull: net/http: TLS handshake timeout",
         ("platform.registry", "supported", None, "retry")),
        ("ErrImagePull", "429 Too Many Requests", ("platform.registry.rate_limit", "supported", None, "retry")),
        ("ErrImagePull", "write /var/lib/layer.tar: no space left on device",
         ("platform.runtime.container", "supported", "n1", "retry_elsewhere")),
        ("ErrImagePull", "manifest unknown", ("app.config.image", "supported", None, "do_not_retry")),
        ("InvalidImageName", "couldn't parse image reference", ("app.config.image", "supported", None, "do_not_retry")),
        ("PrologFailed", "Prolog error on n1", ("platform.runtime", "supported", "n1", "retry_elsewhere")),
        ("FailedMount", "MountVolume.SetUp failed for volume data: mount failed: Connection timed out",
         ("platform.storage.mount", "supported", None, "retry")),
        ("UnexpectedAdmissionError", "Allocate failed due to no healthy devices present, which is unexpected",
         ("platform.runtime.device_plugin", "supported", "n1", "retry_elsewhere")),
        ("CreateContainerConfigError", 'configmap "cfg" not found', ("app.config", "supported", None, "do_not_retry")),
        ("QuotaExceeded", "exceeded quota: gpus", ("app.config.resources", "supported", None, "do_not_retry")),
        (None, None, ("platform.scheduler", "assumed", None, "retry")),
    ],
)  # fmt: skip
def test_a_start_that_fails_is_charged_by_what_the_scheduler_says(
    reason: str | None, message: str | None, expected: tuple[Any, ...]
) -> None:
    scene = Scene().node("n1").job("j", "n1", starts=False)
    run = scene.end(3, "j", "never_started", source="bridge/k8s", reason=reason, message=message).run(30)
    assert run.told("j") == expected


def test_a_pull_that_backs_off_while_the_registry_is_in_trouble_is_the_registrys() -> None:
    def start(scene: Scene) -> tuple[str, str]:
        scene.job("j", "n1", starts=False)
        scene.end(3, "j", "never_started", source="bridge/k8s", reason="ImagePullBackOff", message="Back-off pulling")
        code, basis, *_ = scene.run(30).told("j")
        return code, basis

    assert start(Scene().node("n1").incident(1, "registry")) == ("platform.registry", "established")
    assert start(Scene().node("n1")) == ("app.config.image", "assumed")


def starts(*jobs: tuple[str, str], ran_before: int = 0, ran_between: int = 0) -> Run:
    """Let jobs of users fail to start on one node a minute apart, while others ran well there."""
    scene = Scene().node("n1", "n2", until=60)
    for number in range(ran_before + ran_between):
        minute = 0 if number < ran_before else 3.7
        name = f"ran-{number}"
        scene.job(name, "n1", minute=minute, user=f"u{number}").end(minute + 1, name, "succeeded")
    for minute, (name, user) in enumerate(jobs, 3):
        scene.job(name, "n1", minute=minute, user=user, starts=False)
        scene.end(minute + 0.5, name, "never_started", source="bridge/k8s", reason="StartError")
    return scene.run(60)


def test_a_node_on_which_the_starts_of_different_users_fail_swallows_jobs() -> None:
    run = starts(("a", "ann"), ("b", "bob"), ("c", "cy"))
    for name in ("a", "b", "c"):
        assert run.told(name) == ("platform.runtime.container", "established", "n1", "retry_elsewhere")


def test_a_node_that_ran_others_well_before_it_broke_swallows_jobs_as_well() -> None:
    run = starts(("a", "ann"), ("b", "bob"), ("c", "cy"), ran_before=5)
    assert run.told("c") == ("platform.runtime.container", "established", "n1", "retry_elsewhere")


def test_a_node_on_which_one_users_starts_fail_or_as_many_others_run_well_does_not() -> None:
    alone = starts(("a", "ann"), ("b", "ann"), ("c", "ann"))
    assert alone.verdict("c").basis == "assumed"
    beside = starts(("a", "ann"), ("b", "bob"), ("c", "cy"), ran_between=5)
    assert beside.verdict("c").basis == "assumed"


def refused(scene: Scene, name: str, *nodes: str, minute: float, user: str) -> Scene:
    scene.job(name, *nodes, minute=minute, user=user, starts=False)
    message = "container create timed out after 60 s"
    return scene.end(
        minute + 0.5, name, "never_started", source="bridge/k8s", reason="StartError", message=message
    )  # fmt: skip


def test_a_start_that_fails_in_the_runtime_is_not_charged_to_a_mount_that_hangs_there() -> None:
    scene = Scene().node("n1", "n2", until=60, failing={"mounts": "timeout"})
    for minute, (name, user) in enumerate((("a", "ann"), ("b", "bob"), ("c", "cy"))):
        refused(scene, name, "n1", minute=minute, user=user)
    told = scene.incident(0, "storage").run(60).told("c")
    assert told == ("platform.runtime.container", "established", "n1", "retry_elsewhere")


def test_of_a_gangs_nodes_it_is_the_one_on_which_others_surely_failed_to_start() -> None:
    scene = Scene().node("n1", "n2", "n3", until=60)
    refused(scene, "a", "n2", minute=1, user="ann")
    refused(scene, "b", "n1", "n2", minute=3, user="bob")
    refused(scene, "c", "n1", "n2", "n3", minute=5, user="cy")
    assert scene.run(60).told("c") == ("platform.runtime.container", "established", "n2", "retry_elsewhere")


def test_of_a_gangs_nodes_it_is_not_the_one_that_started_others_well_since_it_was_put_right() -> None:
    scene = Scene().node("n1", "n2", "n3", until=120)
    for minute, name, user in ((1, "a", "ann"), (3, "b", "bob"), (5, "c", "cy")):
        refused(scene, name, "n1", minute=minute, user=user)
    scene.job("d", "n1", minute=8, user="di").end(20, "d", "succeeded")
    refused(scene, "e", "n2", minute=22, user="eve")
    refused(scene, "f", "n2", minute=24, user="fay")
    refused(scene, "g", "n1", "n2", "n3", minute=26, user="gus")
    assert scene.run(60).told("g") == ("platform.runtime.container", "established", "n2", "retry_elsewhere")


@pytest.mark.parametrize("text", ["RuntimeError: No CUDA GPUs are available", UNKNOWN])
def test_a_node_on_which_five_users_fail_unexplained_and_nobody_runs_well_is_broken_for_sure(text: str) -> None:
    scene = Scene().node("n1", until=60)
    for number in range(6):
        name, minute = f"j{number}", 2 + 4 * number
        scene.job(name, "n1", minute=minute, user=f"u{number}").exit(minute + 1, name, 0, "n1", text)
        scene.end(minute + 1.1, name)
    run = scene.run(60)
    assert run.verdict("j0").basis == "assumed"
    assert run.told("j2") == ("host.lost", "supported", "n1", "retry_elsewhere")
    assert run.told("j5") == ("host.lost", "established", "n1", "retry_elsewhere")
