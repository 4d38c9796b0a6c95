"""The policy as data: what routes match, what a site lays over it, and what is said of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultlens.catalogue import load_catalogue
from faultlens.catalogue.listing import listing
from faultlens.errors import ConfigurationError
from streams.remediation import Trouble, load_policy
from streams.remediation.policy import REPAIRS

POLICY = load_policy()
LOST_GPU = Trouble("condition", "gpu.off_bus", "hardware", severity=90, fatal=True, fault="xid:79", hint="reboot")


def site(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "site.yaml"
    path.write_text(f"version: site\n{text}", "utf-8")
    return path


def test_everything_that_the_catalogue_knows_has_a_route_and_what_is_unexpected_is_held_for_a_person() -> None:
    for row in listing(load_catalogue(())):
        judged = row.judgement
        trouble = Trouble(
            "condition", judged.cause_code, judged.cause_class, judged.role, judged.severity, hint=judged.action_hint
        )
        route = POLICY.route(trouble)
        assert route is not None, row.ref
        actions = {rung.action for rung in POLICY.ladders[route.ladder]}
        if judged.role == "unexpected":
            assert route.returns_by == "person", row.ref
            assert not actions & REPAIRS, row.ref
        if judged.role == "trend":
            assert actions <= {"open_ticket"}, row.ref


def test_what_verdicts_say_is_ranked_as_the_catalogue_ranks_faults_of_the_same_cause() -> None:
    ranks: dict[str, list[int]] = {}
    for row in listing(load_catalogue(())):
        if row.judgement.role == "root":
            ranks.setdefault(row.judgement.cause_code, []).append(row.judgement.severity)
    assert len(ranks) > 40
    far = {cause: POLICY.severity(cause) for cause, known in ranks.items()
           if not min(known) - 10 <= POLICY.severity(cause) <= max(known) + 10}  # fmt: skip
    assert far == {}


def test_a_cause_is_as_severe_as_the_nearest_more_general_one_that_is_ranked(tmp_path: Path) -> None:
    own = load_policy(site(tmp_path, "severities: {gpu.memory: 33}\n"))
    assert [own.severity(cause) for cause in ("gpu.memory.contained", "gpu.off_bus", "gpu.firmware")] == [33, 85, 65]
    with pytest.raises(ConfigurationError, match=r"site.yaml:2.*no cause begins with 'gpus'"):
        load_policy(site(tmp_path, "severities: {gpus: 33}\n"))


def test_every_ladder_that_repairs_a_node_first_blocks_and_empties_it_or_waits() -> None:
    for name, ladder in POLICY.ladders.items():
        actions = [rung.action for rung in ladder]
        repairs = [rung for rung in ladder if rung.action in REPAIRS - {"power_cycle", "validate"}]
        if repairs:
            assert actions[0] == "block_new_work", name
            assert actions[1] == "drain" or all(rung.wait == "idle" for rung in repairs), name


def test_what_is_fatal_is_evacuated_at_once_and_all_else_after_its_tolerance() -> None:
    route = POLICY.route(LOST_GPU)
    assert route is not None
    assert POLICY.tolerance_ms(route, LOST_GPU) == 0
    link = Trouble("condition", "fabric.nvlink.link", "hardware", severity=65, fatal=True, hint="reset_device")
    host = Trouble("condition", "host.storage", "hardware", severity=40, hint="drain")
    assert [POLICY.tolerance_ms(route, trouble) for trouble in (link, host)] == [600_000, 1_800_000]


def test_a_site_asks_its_own_routes_first_and_leaves_shipped_ones_out(tmp_path: Path) -> None:
    route = "{name: mine, match: {faults: ['xid:79'], pools: [lab]}, ladder: person, mode: shadow}"
    limits = "limits: {cluster: {share: 0.05, nodes: 2}}"
    policy = load_policy(site(tmp_path, f"{limits}\nwithout: [silent]\nroutes: [{route}]"))
    assert policy.version == f"{POLICY.version}+site"
    assert policy.limits.cluster.nodes == 2
    assert policy.limits.pool == POLICY.limits.pool
    assert policy.named("silent") is None
    in_lab = Trouble(**{f: getattr(LOST_GPU, f) for f in LOST_GPU.__struct_fields__} | {"pool": "lab"})
    mine, other = policy.route(in_lab), policy.route(LOST_GPU)
    assert mine is not None
    assert other is not None
    assert (mine.name, mine.mode, other.name) == ("mine", "shadow", "reboot")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("routes:\n  - {name: a, ladder: nowhere}", "site.yaml:3: there is no ladder 'nowhere'"),
        ("routes:\n  - {name: a, ladder: tell}\n  - {name: a, ladder: tell}", "site.yaml:4: route 'a' is given twice"),
        ("routes:\n  - {name: a, ladder: tell, match: {causes: [gpus]}}", "site.yaml:3: no cause begins with 'gpus'"),
        ("ladders:\n  b: [drain, block_new_work]", "site.yaml:3: block_new_work comes before drain"),
        ("ladders:\n  b: [return_to_service]", "site.yaml:3: ladders.b.0.action"),
        ("without: [nobody]", "site.yaml:2: there is no shipped route 'nobody'"),
        ("limits: {cluster: {share: 2}}", "site.yaml:2: limits.cluster.share"),
        ("tolerance: {accelerator: soon, other: 30m, fatal_severity: 70}", "not a duration: 'soon'"),
    ],
)
def test_a_mistake_is_told_with_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_policy(site(tmp_path, text))
    assert said in str(raised.value)
