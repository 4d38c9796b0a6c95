"""A fault of one device, where accounting does not say which devices of the node a job held."""

from __future__ import annotations

import pytest

from faultlens.events import DeviceRef
from tests.unit.scenes import Run, Scene

PCI = "0000:3b:00.0"


def node(*, gpus: int = 8) -> Scene:
    return Scene().node("n1", until=30, every=5, gpus_total=gpus, gpus_allocatable=gpus)


def failing(scene: Scene, *names: str, gpus: tuple[int, ...] | None = None, text: str = "") -> Scene:
    for name in names:
        scene.job(name, "n1", gpus=gpus).end(10.1, name, "failed", text, source="scheduler/slurm")
    return scene


def basis(run: Run, job: str) -> tuple[str, str]:
    verdict = run.verdict(job)
    return verdict.cause.cause_class, verdict.basis


@pytest.mark.parametrize("device", [3, DeviceRef(pci=PCI), None])
def test_a_fault_of_one_gpu_is_surely_the_cause_of_no_job_that_shares_the_node_with_others(
    device: int | DeviceRef | None,
) -> None:
    run = failing(node(), "a", "b", "c").fault(10, "n1", "xid", "79", device).run(60)
    assert {basis(run, job) for job in "abc"} == {("hardware", "supported")}


def test_a_job_that_had_the_node_for_itself_held_the_gpu_at_fault() -> None:
    run = failing(node(), "a").fault(10, "n1", "xid", "79", 3).run(60)
    assert basis(run, "a") == ("hardware", "established")


def test_jobs_one_after_the_other_share_nothing() -> None:
    scene = node().job("a", "n1", gpus=None).end(5, "a", "succeeded")
    scene.job("b", "n1", gpus=None, minute=6).end(10.1, "b", source="scheduler/slurm")
    assert basis(scene.fault(10, "n1", "xid", "79", 3).run(60), "b") == ("hardware", "established")


def test_a_job_that_holds_no_gpu_shares_none() -> None:
    scene = failing(node(), "a").job("cpu", "n1", gpus=())
    assert basis(scene.fault(10, "n1", "xid", "79", 3).run(60), "a") == ("hardware", "established")


def test_a_single_gpu_is_the_one_at_fault_whoever_shares_it() -> None:
    run = failing(node(gpus=1), "a", "b").fault(10, "n1", "xid", "79", 0).run(60)
    assert {basis(run, job) for job in "ab"} == {("hardware", "established")}


def test_what_breaks_the_whole_node_breaks_all_that_share_it() -> None:
    run = failing(node(), "a", "b").fault(10, "n1", "host_memory", "uncorrectable").run(60)
    assert {basis(run, job) for job in "ab"} == {("hardware", "established")}


def test_known_devices_decide_as_before() -> None:
    scene = failing(node(), "a", gpus=(2, 3))
    run = failing(scene, "b", gpus=(0, 1)).fault(10, "n1", "xid", "79", 3).run(60)
    assert basis(run, "a") == ("hardware", "established")
    assert basis(run, "b")[0] == "user"


def test_a_rank_that_is_known_to_have_run_on_the_gpu_makes_it_sure_again() -> None:
    scene = failing(node(), "a", "b").exit(10.05, "a", 0, "n1", device=3)
    run = scene.fault(10, "n1", "xid", "79", 3).run(60)
    assert (basis(run, "a"), basis(run, "b")) == (("hardware", "established"), ("hardware", "supported"))


def test_the_address_in_the_job_s_own_words_makes_it_sure_again_and_cuda_s_own_count_does_not() -> None:
    lost = f"Unable to determine the device handle for GPU {PCI}: GPU is lost"
    scene = failing(failing(node(), "a", text=lost), "b", text="RuntimeError: CUDA error on cuda:3")
    run = scene.fault(10, "n1", "xid", "79", DeviceRef(index=3, pci=PCI)).run(60)
    assert (basis(run, "a")[1], basis(run, "b")[1]) == ("established", "supported")
