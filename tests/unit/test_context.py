"""What concerns everyone, as every lane keeps it: in whatever order it is told, and never without limit."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import DAY_MS, parse_moment
from faultlens.events import PlatformIncident, PlatformMaintenance, PlatformRollout, Scope
from faultlens.internal import ClusterCensus, ContextChange
from streams.context import KEPT_MS, MAX_OF_EACH, Context, apply_change, covers

T0 = parse_moment("2026-11-23T04:00:00Z")


def incident(phase: Literal["started", "ended"], at_ms: int, id_: str = "i") -> ContextChange:
    return ContextChange("c1", at_ms, incident=PlatformIncident(id_, "c1", "storage", phase))


def after(*changes: ContextChange, arrived_ms: int = T0) -> Context:
    context = Context()
    for change in changes:
        context = apply_change(context, change, arrived_ms=arrived_ms)
    return context


def spans(context: Context) -> dict[str, tuple[int, int | None]]:
    return {
        name: (entry.since_ms - T0, entry.until_ms and entry.until_ms - T0) for name, entry in context.incidents.items()
    }


def test_what_has_begun_is_open_until_it_ends() -> None:
    assert spans(after(incident("started", T0))) == {"c1/i": (0, None)}
    assert spans(after(incident("started", T0), incident("ended", T0 + 60))) == {"c1/i": (0, 60)}


@given(st.permutations(["started", "started", "ended", "ended"]))
def test_beginning_and_end_may_arrive_in_any_order_and_twice(phases: list[Literal["started", "ended"]]) -> None:
    told = [incident(phase, T0 if phase == "started" else T0 + 60) for phase in phases]
    assert spans(after(*told)) == {"c1/i": (0, 60)}


def test_what_begins_again_after_its_end_is_open_anew() -> None:
    again = [incident("started", T0), incident("ended", T0 + 60), incident("started", T0 + 90)]
    assert spans(after(*again)) == {"c1/i": (90, None)}
    assert spans(after(*again, incident("ended", T0 + 60))) == {"c1/i": (90, None)}


def test_the_same_id_in_another_cluster_is_another_thing() -> None:
    other = ContextChange("c2", T0 + 5, incident=PlatformIncident("i", "c2", "storage", "ended"))
    assert spans(after(incident("started", T0), other)) == {"c1/i": (0, None), "c2/i": (5, 5)}


def test_a_rollout_that_is_rolled_back_has_ended() -> None:
    started = PlatformRollout("r", "c1", "driver", "580", "started")
    back = PlatformRollout("r", "c1", "driver", "580", "rolled_back")
    context = after(ContextChange("c1", T0, rollout=started), ContextChange("c1", T0 + 60, rollout=back))
    assert context.rollouts["c1/r"].until_ms == T0 + 60


def test_maintenance_counts_when_it_starts_and_not_when_it_is_planned() -> None:
    planned = PlatformMaintenance("m", "c1", planned=True, phase="scheduled")
    started = PlatformMaintenance("m", "c1", planned=True, phase="started")
    assert after(ContextChange("c1", T0, maintenance=planned)).maintenance == {}
    assert after(ContextChange("c1", T0, maintenance=started)).maintenance["c1/m"].until_ms is None


def test_what_ended_more_than_eight_days_ago_is_forgotten_and_what_is_open_is_not() -> None:
    context = after(incident("started", T0, "open"), incident("started", T0, "over"), incident("ended", T0 + 1, "over"))
    context = apply_change(context, incident("started", T0 + 9 * DAY_MS, "new"), arrived_ms=T0 + 1 + KEPT_MS)
    assert set(context.incidents) == {"c1/open", "c1/new"}
    assert context.dropped == 0


def test_beyond_the_limit_what_ended_goes_first_then_the_oldest_and_it_is_counted() -> None:
    told = [incident("started", T0 + n, f"i{n}") for n in range(MAX_OF_EACH)]
    full = after(*told, incident("ended", T0 + 900, "i7"))
    one_more = apply_change(full, incident("started", T0 + 901, "x"), arrived_ms=T0 + 901)
    two_more = apply_change(one_more, incident("started", T0 + 902, "y"), arrived_ms=T0 + 902)
    assert (len(one_more.incidents), "c1/i7" in one_more.incidents, one_more.dropped) == (MAX_OF_EACH, False, 1)
    assert (len(two_more.incidents), "c1/i0" in two_more.incidents, two_more.dropped) == (MAX_OF_EACH, False, 2)


def test_a_count_below_one_half_says_that_we_were_blind() -> None:
    half, less = ClusterCensus("c1", T0, 10, 5), ClusterCensus("c1", T0 + 1, 10, 4)
    seeing = after(ContextChange("c1", T0, census=half))
    assert (seeing.census, seeing.blind_until_ms) == ({"c1": half}, {})
    blind = apply_change(seeing, ContextChange("c1", T0 + 1, census=less), arrived_ms=T0 + 1)
    assert (blind.census, blind.blind_until_ms) == ({"c1": less}, {"c1": T0 + 1})


def test_counts_of_more_clusters_than_the_limit_are_left_out_and_counted() -> None:
    told = [ContextChange(f"c{n}", T0, census=ClusterCensus(f"c{n}", T0, 1, 1)) for n in range(MAX_OF_EACH + 2)]
    context = after(*told)
    assert (len(context.census), context.dropped) == (MAX_OF_EACH, 2)


def test_a_scope_names_nodes_pools_or_domains_and_an_empty_one_everything() -> None:
    node = {"node": "n1", "pool": "p1"}
    assert covers(Scope(), **node, domains={})
    assert covers(Scope(nodes=("n1", "n2")), **node, domains={})
    assert covers(Scope(pools=("p1",)), **node, domains={})
    assert covers(Scope(domains={"rack": ("r1", "r2")}), **node, domains={"rack": "r2"})
    assert not covers(Scope(nodes=("n2",), pools=("p2",), domains={"rack": ("r1",)}), **node, domains={"rack": "r2"})
