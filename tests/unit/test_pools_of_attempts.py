"""Which pool of nodes an attempt counts for, whenever that becomes known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from faultlens import topics
from faultlens.clock import DAY_MS, MINUTE_MS
from faultlens.events import Check, JobAllocated, JobLabelled, JobResized, JobStarted, NodeHealth, Slot
from faultlens.internal import NodeEvidence, Sample
from streams.node_health.pools import in_force
from streams.node_health.record import POOLS_MAX
from tests.unit.scenes import MISTAKE, Run, Scene

DAY = DAY_MS // MINUTE_MS


def good(run: Run, objective: str, pool: str | None) -> int:
    samples = [s for s in run.all(topics.SAMPLES, Sample) if s.objective == objective]
    return sum(s.good for s in samples if (s.pool, s.team, s.workload) == (pool, None, None))


def successes(run: Run) -> dict[str, int]:
    """Return what counts as a success for the cluster (all) and for each pool."""
    pools = {s.pool for s in run.all(topics.SAMPLES, Sample) if s.objective == "job_success" and s.pool}
    return {"all": good(run, "job_success", None)} | {
        pool: count for pool in sorted(pools) if (count := good(run, "job_success", pool))
    }


def told(run: Run) -> list[str]:
    return [e.pool for e in run.all(topics.EVIDENCE, NodeEvidence) if e.pool is not None]


def test_an_attempt_on_nodes_of_one_pool_counts_for_it_and_one_over_two_for_the_cluster_alone() -> None:
    scene = Scene().node("n1", "n2", pool="a", until=30).node("n3", pool="b", until=30)
    scene.job("one", "n1", "n2").end(20, "one", "succeeded").job("over", "n2", "n3").end(21, "over", "succeeded")
    run = scene.run(40)
    assert successes(run) == {"all": 2, "a": 1}
    assert good(run, "job_start", None) == 2
    assert good(run, "job_start", "a") == 1
    assert 0 < good(run, "goodput", "a") < good(run, "goodput", None)
    assert good(run, "goodput", "b") == 0


def test_a_node_that_says_nothing_of_its_pool_costs_no_word_and_counts_for_no_pool() -> None:
    run = Scene().node("n1", until=30).job("j", "n1").end(20, "j", "succeeded").run(40)
    assert (successes(run), told(run)) == ({"all": 1}, [])


def test_each_node_tells_an_attempt_once() -> None:
    scene = Scene().node("n1", "n2", pool="a", until=60).job("j", "n1", "n2").end(50, "j", "failed", MISTAKE)
    assert told(scene.run(70)) == ["a", "a"]


def test_a_pool_that_is_heard_of_only_after_the_end_takes_what_was_counted_along() -> None:
    scene = Scene().job("j", "n1").end(20, "j", "succeeded").node("n1", pool="", since=-10, until=-10)
    report = NodeHealth("n1", "c1", 60, 8, 8, (Check("ecc", "gpu", "pass"),), pool="a", boot_id="n1-b1")
    scene.say(5, report, "agent/n1", arrives=45).node("n2", pool="a", until=60)
    assert successes(scene.run(40)) == {"all": 1}
    run = scene.run(60)
    assert successes(run) == {"all": 1, "a": 1}
    assert good(run, "goodput", "a") == good(run, "goodput", None)


def test_a_pool_that_the_node_came_to_after_the_end_is_none_of_the_attempts() -> None:
    scene = Scene().node("n1", until=24).job("j", "n1").end(20, "j", "succeeded", arrives=35)
    run = scene.node("n1", since=25, until=60, pool="a").run(60)
    # Until its end arrived it seemed to run on.
    assert told(run) == ["a", ""]
    assert successes(run) == {"all": 1}
    assert good(run, "goodput", "a") == good(run, "job_start", "a") == 0


def test_a_node_that_changes_its_pool_leaves_what_it_runs_in_the_one_that_it_was_given_from() -> None:
    scene = Scene().node("n1", pool="a", until=10).node("n1", pool="b", since=11, until=60)
    scene.job("before", "n1").end(20, "before", "succeeded").job("after", "n1", minute=30)
    run = scene.end(40, "after", "succeeded").run(60)
    assert successes(run) == {"all": 2, "a": 1, "b": 1}


def test_an_allocation_that_comes_after_the_node_had_moved_counts_where_the_node_was_then() -> None:
    scene = Scene().node("n1", pool="a", until=10).node("n1", pool="b", since=11, until=60)
    allocated = JobAllocated("j", 1, "c1", (Slot("n1", (0, 1)),))
    scene.say(5, allocated, "launcher/l", arrives=14).say(6, JobStarted("j", 1), "launcher/l", arrives=14)
    run = scene.end(20, "j", "succeeded").run(60)
    assert successes(run) == {"all": 1, "a": 1}


def test_an_attempt_that_grows_onto_another_pool_leaves_the_first_for_good() -> None:
    scene = Scene().node("n1", pool="a", until=60).node("n2", pool="b", until=60).job("j", "n1")
    wider = (Slot("n1", (0, 1)), Slot("n2", (0, 1)))
    scene.say(10, JobResized("j", 1, wider, ()), "launcher/l")
    scene.say(15, JobResized("j", 1, wider[:1], ()), "launcher/l")
    run = scene.end(20, "j", "succeeded").run(40)
    assert successes(run) == {"all": 1}
    assert good(run, "job_start", "a") == good(run, "goodput", "a") == 0
    assert good(run, "goodput", None) > 0


def test_a_person_who_speaks_up_after_weeks_corrects_the_pools_figures_too() -> None:
    scene = Scene().node("n1", pool="a", until=30).job("j", "n1").end(20, "j", "failed", MISTAKE)
    scene.say(20 * DAY, JobLabelled("j", 1, "hardware", "gpu.off_bus", "ann"), "operator/ann")
    bad = [s for s in scene.run(21 * DAY).all(topics.SAMPLES, Sample) if s.objective == "job_success" and s.by_cause]
    assert [(s.pool, s.by_cause) for s in bad if s.workload is None] == [
        (None, {"hardware": 1}),
        ("a", {"hardware": 1}),
    ]


def test_of_a_nodes_pools_the_last_few_are_kept() -> None:
    scene = Scene()
    for number in range(2 * POOLS_MAX):
        scene.node("n1", since=number, until=number, pool=f"p{number}")
    scene.job("j", "n1", minute=2 * POOLS_MAX).end(30, "j", "succeeded")
    assert successes(scene.run(40)) == {"all": 1, f"p{2 * POOLS_MAX - 1}": 1}


@given(st.lists(st.integers(0, 50), unique=True).map(sorted), st.integers(0, 60), st.integers(0, 60))
def test_the_pool_is_that_of_the_last_change_before_else_of_the_first_one_in_time(
    changes: list[int], since: int, lasts: int
) -> None:
    pools = tuple((at_ms, str(at_ms)) for at_ms in changes)
    found = in_force(pools, since, since + lasts)
    earlier, during = [at for at in changes if at <= since], [at for at in changes if since < at < since + lasts]
    assert found == (str(max(earlier)) if earlier else str(min(during)) if during else "")
