"""Laws of lanes that stand still: however far one is behind another, the truth on a failure is the same in the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.events import JobResized, NodeActed, PlatformIncident, RankExited, Slot
from faultlens.topics import ATTRIBUTIONS
from tests.simulation.playing import TAIL_MS, Truth, in_step, outage, outputs, play, revisions, storm, truth_of
from tests.simulation.stories import ILLEGAL, NCCL, T0, Story

OUT = Slot("n1", devices=(0,), ranks=(0,))


def gpu_lost_and_node_restarted() -> Story:
    """A GPU falls off the bus under a gang; the node is restarted and all is well again."""
    story = Story().healthy("n2", "n3", until_min=60).healthy("n1", until_min=25)
    story.job("gang", 5, "n1", "n2", gpus=(0, 1)).steps("gang", 6, 20)
    story.fault(20, "n1", "79", gpu=1)
    story.say(20.4, RankExited("gang", 1, 2, "n2", exit_code=1, log_tail=NCCL), "launcher/l")
    story.end("gang", 20.5, exit_code=1)
    return story.healthy("n1", since_min=28, until_min=60, boot="b2")


def mount_lost_for_minutes() -> Story:
    """A mount is stale while a job needs it, and is back soon after."""
    story = Story().healthy("n2", until_min=60).healthy("n1", until_min=10)
    story.job("reader", 3, "n1").steps("reader", 4, 10)
    story.reports("n1", since_min=10, until_min=14, checks={"mounts": "fail"})
    story.end("reader", 12, exit_code=1, log_tail="OSError: [Errno 116] Stale file handle: '/data/train'")
    return story.healthy("n1", since_min=14, until_min=60)


def two_users_on_one_gpu() -> Story:
    """The same GPU makes wrong addresses for two users within minutes, and for a third one later."""
    story = Story().healthy("n1", "n2", until_min=90)
    for number, (user, at_min) in enumerate((("ann", 5), ("ben", 9), ("cem", 50))):
        story.job(f"job-{number}", at_min, "n1", user=user, gpus=(2,))
        story.fault(at_min + 2, "n1", "31", gpu=2)
        story.end(f"job-{number}", at_min + 2.2, exit_code=1, log_tail=ILLEGAL)
    return story


def nobody_tells_the_end() -> Story:
    """A node restarts under a job whose launcher dies with it."""
    story = Story().healthy("n2", "n3", until_min=90).healthy("n1", until_min=21)
    story.job("orphan", 5, "n1").alive("orphan", 6, 21).steps("orphan", 6, 21)
    return story.healthy("n1", since_min=26, until_min=90, boot="b2")


def somebody_else_gets_the_gpus() -> Story:
    """A job is never heard of again, and another one is given its devices."""
    story = Story().healthy("n1", "n2", until_min=90)
    story.job("gone", 5, "n1").steps("gone", 6, 12)
    return story.job("next", 20, "n1", user="ben").steps("next", 21, 40).end("next", 40, "succeeded")


def node_swallows_starts() -> Story:
    """Starts of several users fail on a node whose checks are green."""
    story = Story().healthy("n1", "n2", until_min=90)
    for number, user in enumerate(("ann", "ben", "cem", "dan")):
        story.job(f"start-{number}", 5 + 6 * number, "n1", user=user, starts=False)
        story.end(f"start-{number}", 6 + 6 * number, "never_started", message="failed to create containerd task")
    return story


def node_fails_users() -> Story:
    """Jobs of several users end on a node without a word of why."""
    story = Story().healthy("n1", "n2", until_min=120)
    for number, user in enumerate(("ann", "ben", "cem", "dan")):
        story.job(f"mute-{number}", 5 + 12 * number, "n1", user=user)
        story.end(f"mute-{number}", 10 + 12 * number, exit_code=137, signal=9)
    return story


def storage_in_trouble() -> Story:
    """An incident of the storage is announced while a job hangs on it."""
    story = Story().healthy("n1", "n2", until_min=90)
    story.job("reader", 3, "n1").steps("reader", 4, 14)
    for at_min, phase in ((13.0, "started"), (40.0, "ended")):
        story.say(at_min, PlatformIncident("inc-1", "c1", "storage", phase), "status/storage")  # type: ignore[arg-type]
    return story.end("reader", 16, exit_code=1, log_tail="OSError: [Errno 5] Input/output error: '/data/x'")


def worker_lost() -> Story:
    """An elastic job goes on without a node whose GPU broke."""
    story = Story().healthy("n1", "n2", until_min=90)
    story.job("elastic", 5, "n1", "n2").steps("elastic", 6, 20)
    story.fault(20, "n1", "48")
    left = (Slot("n2", devices=(0,), ranks=(1,)),)
    story.say(20.5, JobResized("elastic", 1, left, (OUT,), "worker lost"), "launcher/l")
    return story.steps("elastic", 21, 40).end("elastic", 40, "succeeded")


def launcher_vanished() -> Story:
    """A launcher is not heard of any more, and long before its job is taken to have ended a GPU is bad."""
    story = Story().healthy("n2", until_min=100).healthy("n1", until_min=60)
    story.job("vanished", 5, "n1").alive("vanished", 6, 12)
    return story.reports("n1", since_min=60, until_min=100, checks={"ecc": "fail"})


def put_back_to_work() -> Story:
    """A GPU is bad until somebody puts the node back to work, seconds before a job gets it that fails by itself."""
    story = Story().healthy("n2", until_min=70).healthy("n1", until_min=10)
    story.reports("n1", since_min=10, until_min=25.5, checks={"ecc": "fail"})
    story.say(25.9, NodeActed("n1", "c1", "uncordon", "root", planned=False, reason="repaired"), "bridge/nodes")
    story.job("fresh", 26, "n1").healthy("n1", since_min=26.5, until_min=70)
    return story.end("fresh", 45, exit_code=1, log_tail=NCCL)


def scheduler_says_otherwise() -> Story:
    """A launcher reports failures that a scheduler knows to be a cancellation, and a drain."""
    story = Story().healthy("n1", "n2", until_min=90)
    story.job("stopped", 5, "n1").steps("stopped", 6, 15).end("stopped", 15, exit_code=143, signal=15)
    story.end("stopped", 15.5, "cancelled", source="scheduler/s")
    story.job("drained", 5, "n2").steps("drained", 6, 15)
    story.say(15, NodeActed("n2", "c1", "drain", "root", planned=False), "scheduler/s")
    return story.end("drained", 15.6, exit_code=143, signal=15)


STORIES: tuple[Callable[[], Story], ...] = (
    gpu_lost_and_node_restarted,
    mount_lost_for_minutes,
    two_users_on_one_gpu,
    nobody_tells_the_end,
    somebody_else_gets_the_gpus,
    node_swallows_starts,
    node_fails_users,
    storage_in_trouble,
    worker_lost,
    launcher_vanished,
    put_back_to_work,
    scheduler_says_otherwise,
)
# Role, from which minute, for how many; and whether what processors told each other is then read first.
OUTAGES = [
    ("node", 20, 8, True),
    ("node", 4, 27, True),
    ("job", 9, 25, False),
    ("node", 4, 150, False),
    ("job", 4, 150, False),
    ("job", 4, 150, True),
    ("context", 4, 150, False),
]
stories = pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)


@cache
def calm(story: Callable[[], Story]) -> dict[str, Truth]:
    return truth_of(play(story().told(), in_step))


@stories
def test_what_is_told_of_a_story_is_what_happened(story: Callable[[], Story]) -> None:
    expected = {
        "gpu_lost_and_node_restarted": {"gang/1": ("hardware", "n1", 1)},
        "mount_lost_for_minutes": {"reader/1": ("platform", None, None)},
        "two_users_on_one_gpu": {
            "job-0/1": ("user", None, None),
            "job-1/1": ("hardware", "n1", 2),
            "job-2/1": ("hardware", "n1", 2),
        },
        "nobody_tells_the_end": {"orphan/1": ("hardware", "n1", None)},
        "somebody_else_gets_the_gpus": {"gone/1": ("user", None, None)},
        "node_swallows_starts": {
            "start-0/1": ("platform", "n1", None),
            "start-1/1": ("platform", "n1", None),
            "start-2/1": ("platform", "n1", None),
            "start-3/1": ("platform", "n1", None),
        },
        "node_fails_users": {
            "mute-0/1": ("user", None, None),
            "mute-1/1": ("user", None, None),
            "mute-2/1": ("hardware", "n1", None),
            "mute-3/1": ("hardware", "n1", None),
        },
        "storage_in_trouble": {"reader/1": ("platform", None, None)},
        "worker_lost": {"elastic/1 loss 1": ("hardware", "n1", 0)},
        "launcher_vanished": {"vanished/1": ("user", None, None)},
        "put_back_to_work": {"fresh/1": ("user", None, None)},
        "scheduler_says_otherwise": {"drained/1": ("platform", None, None)},
    }
    found = {name: (truth[0], truth[2], truth[3]) for name, truth in calm(story).items()}
    assert found == expected[story.__name__]


@stories
@pytest.mark.parametrize(("role", "from_min", "length_min", "backwards"), OUTAGES)
def test_however_far_a_role_is_behind_the_truth_is_the_same(
    story: Callable[[], Story], role: str, from_min: int, length_min: int, backwards: bool
) -> None:
    from_ms = T0 + from_min * MINUTE_MS
    turn = outage(role, from_ms, from_ms + length_min * MINUTE_MS, backwards=backwards)
    world = play(story().told(), turn, tail_ms=max(TAIL_MS, (length_min - 50) * MINUTE_MS))
    assert truth_of(world) == calm(story)


@stories
@pytest.mark.parametrize("seed", range(2))
def test_a_storm_over_three_lanes_does_not_change_the_truth(story: Callable[[], Story], seed: int) -> None:
    assert truth_of(play(story().told(), storm(seed), partitions=3)) == calm(story)


@pytest.mark.parametrize("role", ["job", "context"])
def test_the_final_verdict_rests_on_an_incident_that_was_announced_in_time(role: str) -> None:
    from_ms = T0 + 4 * MINUTE_MS
    world = play(storage_in_trouble().told(), outage(role, from_ms, from_ms + HOUR_MS))
    told = revisions(outputs(world, ATTRIBUTIONS))["reader/1"]
    assert [(verdict.status, verdict.rule) for verdict in told][1:] == [("final", "service_incident")]


def test_a_verdict_that_rests_on_an_earlier_one_changes_with_it() -> None:
    story = Story().healthy("n1", "n2", until_min=60).job("again", 5, "n1").end("again", 8, signal=9)
    for number in (2, 3):
        story.attempt("again", number, 4 + 6 * number, "n1").end("again", 8 + 6 * number, number=number, signal=9)
    assert truth_of(play(story.told(), in_step))["again/3"][4] == "do_not_retry"
    story.end("again", 40, "cancelled", source="scheduler/s")
    assert truth_of(play(story.told(), in_step))["again/3"][4] == "retry"
