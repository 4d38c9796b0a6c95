"""Small stories of a fleet, told in order, in another, twice, and by clocks that disagree: one answer to each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import pytest
from msgspec.structs import replace

from faultlens import topics
from faultlens.clock import MINUTE_MS, SECOND_MS
from faultlens.codec import Event
from faultlens.events import JobAttributed, RemediationCommand, Scope
from tests.unit.scenes import ILLEGAL, LAUNCH, MISTAKE, PEER, T0, TRACE, UNKNOWN, WATCHDOG, Run, Scene, play

TAKES_OUT: Final = {"block_new_work", "exclude_device", "drain"}
HARSH: Final = {"terminate_job", "reset_device", "restart_services", "reboot", "power_cycle", "replace"}
# What the contract lets pass as one moment: within it clocks may differ and records change places.
SHUFFLED_MS: Final = 50 * SECOND_MS
SKEW_MS: Final = 2_500
LAG_MS: Final = 200 * SECOND_MS

# What a program says of its own error, and of the storage's.
OWN: Final = {
    "a full quota": "OSError: [Errno 122] Disk quota exceeded: '/data/ckpt/step_900.pt'",
    "a model that is not public": "huggingface_hub.errors.GatedRepoError: 401 Client Error. Access is restricted.",
    "a port in use": "DistNetworkError: The server socket has failed to listen: EADDRINUSE, address already in use",
    "too little shared memory": "DataLoader worker (pid 812) is killed by signal: Bus error. It is possible that "
    "dataloader's workers are out of shared memory.",
    "shapes that do not fit": "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8192x4096 and 5120x4096)",
    "two versions of a library": "RuntimeError: NCCL error: invalid usage. Last error: Mismatched collective detected",
}
STORAGE: Final = {
    "a shared mount is gone": "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/shared/a'",
    "the object store throttles": "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the "
    "PutObject operation (reached max retries: 4): Please reduce your request rate.",
}

Whose = tuple[str, str, str | None]
REGISTRY: Final = ("platform", "platform.registry", None)
NO_GPU: Final = TRACE + "RuntimeError: No CUDA GPUs are available"


@dataclass(frozen=True)
class Story:
    """What happens, and what is to be said: of each failed job class, code and culprit; which nodes are taken out."""

    name: str
    scene: Scene
    verdicts: dict[str, Whose]
    out: tuple[str, ...] = ()


def fleet(ails: str = "", **more: Any) -> Scene:
    """Let three nodes report; on n1 a check fails from minute 10 on."""
    scene = Scene().node("n2", "n3", until=40, **more).node("n1", until=9, **more)
    return scene.node("n1", since=10, until=40, failing={ails: "fail"} if ails else None, **more)


def gang(scene: Scene | None = None) -> Scene:
    """Let `j` run on all GPUs of n1 and n2, with a step each half minute until minute 10."""
    return (scene or fleet()).job("j", "n1", "n2", gpus=range(8)).steps("j", 0.5, 10)


def broken(scene: Scene, text: str = UNKNOWN) -> Scene:
    """Let rank 3 on GPU 3 of n1 print a text, a rank of n2 tell of that, and the job end."""
    return scene.exit(10, "j", 3, "n1", text, device=3).exit(10.1, "j", 8, "n2", PEER).end(10.2, "j")


def single(scene: Scene | None = None, text: str = MISTAKE) -> Scene:
    """Let `j` run on GPUs 0 and 1 of n1 and end with a text at minute 10."""
    scene = (scene or fleet()).job("j", "n1").steps("j", 0.5, 10)
    return scene.exit(10, "j", 1, "n1", text, device=1).end(10.2, "j")


# --- devices, by codes and makers that differ --------------------------------------------------------------


def devices() -> Iterator[Story]:
    memory: Whose = ("hardware", "gpu.memory", "n1/3")
    for kind, code, whose, family, check in (
        ("xid", "46", ("hardware", "gpu", "n1/3"), "H100", "driver_responds"),
        ("xid", "109", ("hardware", "gpu", "n1/3"), "H100", "driver_responds"),
        ("xid", "110", ("hardware", "gpu", "n1/3"), "H100", "driver_responds"),
        ("xid", "158", ("hardware", "gpu", "n1/3"), "H100", "driver_responds"),
        ("xid", "64", memory, "A100", "ecc"),
        ("xid", "120", ("driver", "driver.gsp", "n1/3"), "A100", "driver_responds"),
        ("gpu_memory", "remap_failed", memory, "H100", "ecc"),
        ("gpu_memory", "dbe", memory, "MI300X", "ecc"),
        ("gpu_memory", "dbe", memory, "Trainium2", "ecc"),
    ):
        scene = gang(fleet(check, gpu_family=family)).fault(9.99, "n1", kind, code, 3, gpu_family=family)
        yield Story(f"{kind} {code} on {family}", broken(scene), {"j": whose}, ("n1",))


def switches() -> Iterator[Story]:
    scene = gang(fleet("nvlink")).fault(9.98, "n1", "sxid", "12020")
    for gpu in range(8):
        scene.fault(9.99 + gpu / 1e4, "n1", "xid", "74" if gpu < 4 else "45", gpu)
    yield Story(
        "a switch dies and its links echo", broken(scene), {"j": ("hardware", "fabric.nvswitch", "n1")}, ("n1",)
    )
    scene = fleet("nvlink").fault(9.98, "n1", "sxid", "22003")
    for number, name in enumerate(("j", "k")):
        gpus = range(4 * number, 4 * number + 4)
        scene.job(name, "n1", gpus=gpus, user=name).steps(name, 0.5, 9.5).exit(
            10, name, 0, "n1", LAUNCH, device=gpus[0]
        )
        scene.end(10.2, name)
    both: Whose = ("hardware", "fabric.nvswitch", "n1")
    yield Story("a switch takes two jobs", scene, {"j": both, "k": both}, ("n1",))


def cascades() -> Iterator[Story]:
    off_bus: Whose = ("hardware", "gpu.off_bus", "n1/3")
    scene = gang(fleet("gpu_count")).fault(9.99, "n1", "xid", "79", 3)
    for gpu in range(4):
        scene.fault(9.975 + gpu / 1e4, "n2", "xid", "43", gpu).fault(9.98 + gpu / 1e4, "n2", "xid", "45", gpu)
    yield Story("torn down peers log 43 a second before the root", broken(scene, LAUNCH), {"j": off_bus}, ("n1",))
    scene = gang(fleet("gpu_count")).fault(9.99, "n1", "xid", "79", 2).fault(9.995, "n1", "xid", "79", 3)
    yield Story(
        "two GPUs leave the bus at once", broken(scene, LAUNCH), {"j": ("hardware", "gpu.off_bus", "n1/3")}, ("n1",)
    )
    memory: Whose = ("hardware", "gpu.memory", "n1/3")
    scene = fleet("ecc").job("j", "n1", "n2", gpus=range(8)).steps("j", 0.5, 8).fault(8.1, "n1", "xid", "95", 3)
    scene.alive("j", 1, 48).exit(48, "j", 9, "n2", WATCHDOG, signal=6).end(48.2, "j").node(
        "n1", "n2", "n3", since=41, until=80
    )
    yield Story("forty minutes pass until the collective times out", scene, {"j": memory}, ("n1",))
    scene = fleet("gpu_count").job("7+0", "n2", gpus=range(4)).job("7+1", "n1", gpus=range(8)).steps("7+1", 0.5, 9.5)
    scene.fault(9.99, "n1", "xid", "79", 3).exit(10, "7+1", 3, "n1", LAUNCH, device=3).end(10.2, "7+1")
    scene.end(10.3, "7+0", "cancelled", source="bridge/slurm", reason="CANCELLED by 0")
    yield Story("one component of a job loses a GPU", scene, {"7+1": off_bus}, ("n1",))


def attempts() -> Iterator[Story]:
    scene = Scene().node("n1", "n2", "n3", since=1180, until=1240)
    scene.job("j", "n1", minute=1190, gpus=range(8)).steps("j", 1190.5, 1199.5).fault(1199.9, "n1", "xid", "79", 3)
    scene.exit(1199.95, "j", 3, "n1", LAUNCH, device=3).end(1200.2, "j")
    yield Story("it ends after midnight", scene, {"j": ("hardware", "gpu.off_bus", "n1/3")}, ("n1",))
    scene = fleet().job("j", "n1", user="ann", image="a").fault(4.99, "n1", "xid", "31", 1)
    scene.exit(5, "j", 1, "n1", ILLEGAL, device=1).end(5.2, "j").attempt("j", "n2", minute=8, number=2)
    scene.fault(11.99, "n2", "xid", "31", 0).exit(12, "j", 0, "n2", ILLEGAL, device=0, number=2).end(
        12.2, "j", number=2
    )
    yield Story("an illegal access moves with the program", scene, {"j": ("user", "app.illegal_access", None)})


# --- the program's own errors, with something beside them that is not the cause ---------------------------------


def beside() -> Iterator[tuple[str, Callable[[Scene], Scene]]]:
    """Yield what lies near a program's own error and explains nothing of it."""
    yield "an injected fault", lambda s: s.fault(9.9, "n1", "xid", "79", 1, synthetic=True)
    yield "a test message", lambda s: s.fault(9.9, "n1", "xid", "14", 1)
    yield "messages of the management bus", lambda s: s.fault(9.9, "n1", "xid", "106", 1)
    yield "a remap that was recorded", lambda s: s.fault(9.9, "n1", "xid", "63", 1)
    yield (
        "corrected errors of a switch",
        lambda s: s.fault(9.9, "n1", "sxid", "12021").fault(9.9, "n1", "sxid", "20009"),
    )
    yield "storage in trouble in another pool", lambda s: s.incident(9, "storage", scope=Scope(pools=("other",)))
    yield "a network that is well again", lambda s: s.incident(-9, "network").incident(-8, "network", "ended")
    yield "maintenance of another node", lambda s: s.maintenance(5, scope=Scope(nodes=("n3",)))
    yield (
        "teardown codes of its peers",
        lambda s: s.fault(10.05, "n1", "xid", "45", 0).fault(10.05, "n1", "xid", "43", 0),
    )


def own_errors() -> Iterator[Story]:
    for what, told in beside():
        yield Story(f"its own error beside {what}", told(single()), {"j": ("user", "app", None)})
    for what, text in OWN.items():
        yield Story(what, single(text=TRACE + text), {"j": ("user", "app", None)})
    scene = fleet("ecc").fault(9.9, "n1", "xid", "95", 7)
    text = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
    yield Story(
        "out of memory beside a GPU of others", single(scene, text), {"j": ("user", "app.oom.gpu", None)}, ("n1",)
    )
    scene = single().fault(13, "n1", "xid", "79", 1)
    yield Story("a GPU is lost when the job is long gone", scene, {"j": ("user", "app", None)}, ("n1",))
    scene = fleet()
    verdicts: dict[str, Whose] = {}
    for number, node in enumerate(("n1", "n2", "n3")):
        name = f"j{number}"
        scene.job(name, node, minute=number).exit(number + 3, name, 0, node, MISTAKE, device=0).end(number + 3.1, name)
        verdicts[name] = ("user", "app.exception", None)
    yield Story("a sweep of one bug", scene, verdicts)


# --- services ------------------------------------------------------------------------------------------------


def services() -> Iterator[Story]:
    for what, text in STORAGE.items():
        yield Story(what, broken(gang(), TRACE + text), {"j": ("platform", "platform.storage", None)})
    scene = gang().maintenance(9, planned=False, scope=Scope(nodes=("n1",)))
    scene.end(10.2, "j", source="bridge/k8s", signal=15, reason="NodeShutdown", message="imminent node shutdown")
    yield Story("the provider takes a machine back", scene, {"j": ("platform", "platform.maintenance", None)})
    scene = Scene().node("n1", "n2", "n3", until=9.9).node("n1", "n2", "n3", since=18, until=60)
    scene = scene.job("j", "n1", "n2", gpus=range(8)).steps("j", 0.5, 30).end(31, "j", "succeeded")
    yield Story("nothing is heard of any node for eight minutes", scene, {})
    scene = Scene().node("n2", "n3", until=40).node("n1", until=4).node("n1", since=6, until=40, boot_id="n1-b2")
    scene.job("j", "n1", "n2").steps("j", 0.5, 30, every=2).end(31, "j", "succeeded")
    yield Story("a job survives the restart of a node", scene, {})
    scene, verdicts = fleet(), dict[str, Whose]()
    for number in range(6):
        verdicts[f"j{number}"] = ("hardware", "host.lost", "n1") if number else ("user", "app", None)
        name, minute = f"j{number}", 2 + 4 * number
        scene.job(name, "n1", minute=minute, user=name).exit(minute + 1, name, 0, "n1", NO_GPU).end(minute + 1.1, name)
    yield Story("a green node on which nobody finds a GPU", scene, verdicts, ("n1",))


def starts() -> Iterator[Story]:
    for what, reason, message, whose in (
        ("the registry is overloaded", "ImagePullBackOff", "failed to pull image: 429 Too Many Requests", REGISTRY),
        (
            "the registry is down",
            "ErrImagePull",
            "failed to pull and unpack image: unexpected status code 503 Service Unavailable",
            REGISTRY,
        ),
        ("the image does not exist", "ErrImagePull", "manifest unknown", ("user", "app.config", None)),
        (
            "the team's share is used up",
            "FailedCreate",
            "forbidden: exceeded quota: gpus",
            ("user", "app.config", None),
        ),
    ):
        scene = fleet().job("j", "n1", starts=False)
        scene.end(3, "j", "never_started", source="bridge/k8s", reason=reason, message=message)
        yield Story(what, scene, {"j": whose})


STORIES: Final = [
    story
    for tell in (devices, switches, cascades, attempts, own_errors, services, starts)
    for story in tell()
]  # fmt: skip


def answer(story: Story, run: Run) -> None:
    """Hold what was said against the story: the verdicts, and which nodes are taken out of scheduling."""
    for job, (cause_class, code, where) in story.verdicts.items():
        cause = run.verdict(job).cause
        assert (cause.cause_class, run.told(job)[2]) == (cause_class, where), cause
        assert f"{cause.code}.".startswith(f"{code}."), cause
    in_force = {v.job_id: v.status for v in run.all(topics.ATTRIBUTIONS, JobAttributed)}
    others = {job for job, status in in_force.items() if job not in story.verdicts and status != "withdrawn"}
    assert not others
    commands = run.all(topics.REMEDIATION_COMMANDS, RemediationCommand)
    assert {command.node for command in commands if command.action in TAKES_OUT} == set(story.out)
    assert {command.node for command in commands if command.action in HARSH} <= set(story.out)


Told = tuple[int, Event]


def played(story: Story, told: list[Told]) -> Run:
    """Play the events and let time pass until every window has closed."""
    return play(told, (max(at_ms for at_ms, _ in told) - T0) / MINUTE_MS + 12)


def later(event: Event, kind: str, lag_ms: int) -> int:
    """Return by how much the event comes later, if it is of that kind."""
    return lag_ms if event.type.startswith(f"faultlens.{kind}.") else 0


def test_every_story_has_a_name_of_its_own() -> None:
    assert len({story.name for story in STORIES}) == len(STORIES)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_story_is_answered_as_a_careful_person_would(story: Story) -> None:
    answer(story, played(story, story.scene.events()))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_story_told_twice_and_in_another_order_has_the_same_answer(story: Story) -> None:
    random = Random(story.name)  # noqa: S311 - nothing secret
    told = [(at_ms + random.randrange(SHUFFLED_MS), event) for at_ms, event in story.scene.events() for _ in range(2)]
    answer(story, played(story, told))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_clocks_that_disagree_by_seconds_do_not_change_the_answer(story: Story) -> None:
    random, skews = Random(story.name), dict[str, int]()  # noqa: S311 - nothing secret
    told = [
        (
            at_ms,
            replace(event, time_ms=event.time_ms + skews.setdefault(event.source, random.randint(-SKEW_MS, SKEW_MS))),
        )
        for at_ms, event in story.scene.events()
    ]
    answer(story, played(story, told))


@pytest.mark.parametrize("kind", ["node", "job"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_topic_that_is_minutes_behind_does_not_change_the_answer(story: Story, kind: str) -> None:
    told = [(at_ms + later(event, kind, LAG_MS), event) for at_ms, event in story.scene.events()]
    answer(story, played(story, told))
