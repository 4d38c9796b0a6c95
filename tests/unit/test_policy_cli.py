"""`faultlens policy explain` and `test` say what the processor would do, of all that a route may depend on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from faultlens.cli import app, main
from faultlens.internal import Intervened
from streams.remediation.policy import Match
from tests.unit.repair_scenes import T0, Repairs
from tests.unit.test_remediation_jobs import Cluster, broken, facts, hang, loop, verdict

LOST = ("--fault", "xid:79", "--family", "H100")
# A trouble that meets what a route asks for, and one that does not.
CONDITIONS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "origins": ("[verdict]", ("--fault", "verdict:host_lost", "--cause", "host.lost"), LOST),
    "faults": ("['xid:79']", LOST, ("--fault", "xid:48")),
    "causes": ("[gpu.off_bus]", LOST, ("--fault", "xid:48")),
    "roles": ("[unexpected]", ("--fault", "xid:999"), LOST),
    "hints": ("[reset_device]", (*LOST, "--announced", "gpu_reset_required"), LOST),
    "rules": ("[drain_and_reset]", ("--fault", "xid:154/drain_and_reset"), ("--fault", "xid:154/gpu_reset_required")),
    "families": ("[H100]", LOST, ("--fault", "xid:79", "--family", "A100")),
    "pools": ("[lab]", (*LOST, "--pool", "lab"), LOST),
    "from_severity": ("95", (*LOST, "--severity", "95"), LOST),
    "from_returns": ("1", (*LOST, "--returns", "1"), LOST),
    "from_incidents": ("2", (*LOST, "--incidents", "2"), (*LOST, "--incidents", "1")),
    "from_times": ("2", (*LOST, "--times", "2"), LOST),
    "from_jobs": ("1", (*LOST, "--jobs", "1"), LOST),
    "from_job_gpus": ("64", (*LOST, "--job-gpus", "64"), (*LOST, "--job-gpus", "63")),
    "from_job_priority": ("100", (*LOST, "--job-priority", "100"), (*LOST, "--job-priority", "99.5")),
    "watched": ("true", (*LOST, "--watched"), (*LOST, "--unwatched")),
}


def explained(*options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["policy", "explain", *options, "--json"])
    assert done.exit_code == 0, done.exception
    answer: dict[str, Any] = json.loads(done.output)
    return answer


def site(tmp_path: Path, text: str) -> str:
    path = tmp_path / "site.yaml"
    path.write_text(f"version: site\n{text}\n", "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--fault", "79"), "'79' is not KIND:CODE"),
        (("--fault", "xid:79", "--family", "banana"), "unknown GPU family 'banana'"),
        (("--fault", "axid:79"), "'axid:79' names no fault"),
        (("--fault", "check:ecc/broken"), "no check ends with 'broken'"),
        (("--fault", "check:ecc/pass"), "pass"),
        (("--fault", "xid:79", "--announced", "prayer"), "no driver asks for 'prayer'; known are none, gpu_reset"),
        (("--fault", "xid:79", "--cause", "gpu"), "the catalogue says what its cause is"),
        (("--fault", "verdict:host_lost"), "lacks its cause: give --cause CODE"),
        (("--fault", "verdict:host_lost", "--cause", "hosts"), "no such cause as 'hosts'"),
        (("--fault", "verdict:nobody", "--cause", "gpu"), "known are application_fault"),
        (("--fault", "finding:slow_rank", "--cause", "gpu"), "known are crash_loop, hang"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused_with_what_could_be(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], word: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["policy", "explain", *options])
    assert ended.value.code == 2
    assert word in capsys.readouterr().err


def test_whatever_a_route_can_ask_for_can_be_said() -> None:
    assert set(CONDITIONS) == set(Match.__struct_fields__)


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_route_is_taken_by_what_meets_it_and_by_nothing_else(tmp_path: Path, name: str) -> None:
    wanted, meets, misses = CONDITIONS[name]
    policy = site(tmp_path, f"routes:\n  - {{name: mine, match: {{{name}: {wanted}}}, ladder: tell}}")
    assert explained(*meets, "--policy", policy)["route"] == "mine"
    assert explained(*misses, "--policy", policy)["route"] != "mine"


@pytest.mark.parametrize("fault", ["79", "48", "74", "60", "63", "94", "119", "31", "999", "154/drain_and_reset"])
def test_a_fault_is_explained_as_the_processors_take_it(fault: str) -> None:
    code, _, step = fault.partition("/")
    fleet = Repairs().fault(1, "n1", code, subcode=step or None).run(2)
    took = {incident.rule for incident in fleet.incidents}
    answer = explained("--fault", f"xid:{fault}", "--family", "H100", "--pool", "gpu")
    assert took == ({answer["route"]} if answer["route"] is not None else set())
    waits = any("when it has lasted" in detail for detail in answer.get("details", [])[:1])
    assert fleet.done("n1")[:1] == ([] if waits else answer["steps"][:1])


def test_a_node_that_falls_silent_is_explained_as_the_processors_take_it() -> None:
    fleet = Repairs().run(3)
    fleet.gone.add("n1")
    assert {incident.rule for incident in fleet.run(12).incidents} == {explained("--fault", "kernel:silent")["route"]}


def test_what_jobs_tell_is_explained_as_the_processor_takes_it() -> None:
    spoken = Cluster().tell(verdict()).incidents[0].rule
    assert spoken == explained("--fault", "verdict:black_hole_node", "--cause", "platform.runtime.container")["route"]
    looping = Cluster().tell(loop()).incidents[0].rule
    assert looping == explained("--fault", "finding:crash_loop", "--cause", "gpu.compute.repeated_fault")["route"]
    held = Cluster().tell(broken()).tell(facts(jobs=("j/1",)), minute=1).tell(hang(), minute=2)
    assert held.incidents[-1].rule == explained("--fault", "finding:hang", "--cause", "gpu.off_bus")["route"]


def test_what_a_scheduler_watches_is_explained_as_the_processor_takes_it() -> None:
    silence = replace(broken().observation, kind="kernel", code="silent", cause_code="host.lost.silent", severity=40,
                      hint="", device=None, fatal=False)  # fmt: skip
    seen = Intervened("n1", "c1", "cordon", "slurm", planned=False, at_ms=T0, watched=True)
    watched = Cluster().tell(seen).tell(replace(broken(), observation=silence), minute=1)
    assert watched.incidents[0].rule == explained("--fault", "kernel:silent", "--watched")["route"]


def test_a_step_that_nobody_can_do_is_left_out_and_said_to_be(tmp_path: Path) -> None:
    answer = explained(*LOST, "--policy", site(tmp_path, "executable: [block_new_work, reboot, open_ticket]"))
    assert answer["steps"] == ["block_new_work", "reboot", "open_ticket"]
    assert answer["details"][1].startswith("drain: left out")


def test_cases_say_all_that_a_question_can(tmp_path: Path) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text(
        "cases:\n"
        "  - {fault: 'kernel:silent', watched: true, route: silent_and_scheduled}\n"
        "  - {fault: 'xid:74', times: 3, route: nvlink_errors, never: [terminate_job]}\n"
        "  - {fault: 'xid:79', incidents: 4, route: lemon}\n"
        "  - {fault: 'xid:79', common: true, steps: [open_ticket]}\n"
        "  - {fault: 'verdict:black_hole_node', cause: host.cpu, route: black_hole}\n"
        "  - {fault: 'xid:79', announced: none, steps: []}\n"
        "  - {fault: 'xid:79', jobs: 1, route: lemon}\n",
        "utf-8",
    )
    done = CliRunner().invoke(app, ["policy", "test", str(cases)])
    assert done.exit_code == 1
    assert done.output.splitlines() == [
        "case 7 (xid:79): takes route reboot, expected lemon",
        "7 cases, 1 complaints",
    ]
