"""Power by Redfish: restarts that are seen to happen, whatever the controller makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from actuators.ledger import Ledger
from actuators.power import Power, PowerFile, load_power
from faultlens.clock import MINUTE_MS, moment_of
from faultlens.errors import ConfigurationError
from faultlens.events import RemediationCommand
from tests.contract.acting import DRAIN, T0, Bench, Clock
from tests.contract.bmc import KINDS, SYSTEM, Machine, controller
from tests.kafka.certificates import make_certificates

REBOOT = replace(DRAIN, action="reboot", boot_id=None)
CYCLE = replace(REBOOT, action="power_cycle")
Turned = Callable[..., tuple[str | None, str]]


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    opened = Ledger(":memory:")
    yield opened
    opened.close()


@pytest.fixture
def turned(tmp_path: Path, ledger: Ledger) -> Turned:
    """Have a machine turned by a command; return how that ended and why."""
    (tmp_path / "password").write_text("s3cret\n", "utf-8")

    def of(machine: Machine, command: RemediationCommand = REBOOT, **more: Any) -> tuple[str | None, str]:
        with controller(machine) as url:
            own = {"node-1": {"url": url}}
            fields: dict[str, Any] = {"nodes": own, "user": "root", "verify": False} | more
            fields.setdefault("password_file", tmp_path / "password")
            clock = Clock()
            bench = Bench(Power(PowerFile(**fields), sleep=clock.sleep), ledger, clock)
            state = bench.worker.take(command)
            assert bench.clock.now_ms >= T0
            return state, bench.results[-1].reason or ""

    return of


def test_a_restart_is_graceful_where_the_machine_goes_and_is_over_when_its_system_runs(turned: Turned) -> None:
    machine = Machine(goes=3, comes=4)
    assert turned(machine) == ("succeeded", "restarted gracefully")
    assert (machine.asked, machine.resets, machine._booting) == (["GracefulRestart"], 1, 0)


def test_a_machine_that_hangs_is_restarted_by_force_after_its_time(turned: Turned) -> None:
    machine = Machine(goes=None)
    assert turned(machine) == ("succeeded", "restarted by force, since it did not go by itself")
    assert machine.asked == ["GracefulRestart", "ForceRestart"]


def test_a_graceful_restart_that_is_denied_is_followed_by_force(turned: Turned) -> None:
    machine = Machine(denies=("GracefulRestart",))
    assert turned(machine)[0] == "succeeded"
    assert machine.asked == ["ForceRestart"]


def test_a_controller_that_does_not_tell_of_resets_is_told_to_use_force(turned: Turned) -> None:
    machine = Machine(tells_resets=False, tells_boot=False)
    assert turned(machine) == ("succeeded", "restarted by force")
    assert machine.asked == ["ForceRestart"]


def test_power_is_taken_away_and_given_back(turned: Turned) -> None:
    machine = Machine()
    assert turned(machine, CYCLE) == ("succeeded", "power was taken away and given back")
    assert machine.asked == ["ForceOff", "On"]
    at_once = Machine(kinds=(*KINDS, "PowerCycle"))
    assert turned(at_once, replace(CYCLE, command_id="b"))[0] == "succeeded"
    assert at_once.asked == ["PowerCycle"]


def test_one_that_was_killed_between_off_and_on_is_switched_on(turned: Turned) -> None:
    machine = Machine(power="Off")
    assert turned(machine, CYCLE) == ("succeeded", "it was off and is on")
    assert machine.asked == ["On"]


def test_a_reset_that_is_a_task_is_followed_to_its_end_and_its_failure_is_told(turned: Turned) -> None:
    good, bad = Machine(tasks=4), Machine(tasks=1, ends="Exception", kinds=("ForceRestart",))
    assert turned(good) == ("succeeded", "restarted gracefully")
    state, reason = turned(bad, replace(REBOOT, command_id="b"))
    assert (state, reason) == ("failed", "its task ended as Exception: status 200: The fans do not turn.")


def test_a_busy_controller_is_asked_again_and_an_outdated_etag_is_read_anew(turned: Turned) -> None:
    machine = Machine(busy=3, changes=2)
    assert turned(machine) == ("succeeded", "restarted gracefully")
    assert machine.asked == ["GracefulRestart"]


def test_kinds_of_reset_are_found_where_they_are_told_apart_and_missing_ones_are_named(turned: Turned) -> None:
    assert turned(Machine(by_action_info=True)) == ("succeeded", "restarted gracefully")
    state, reason = turned(Machine(kinds=("Nmi",)), replace(CYCLE, command_id="b"))
    assert (state, reason) == ("failed", "the controller knows no ForceOff, but Nmi")


def test_a_machine_that_never_comes_back_ends_the_command_in_time(turned: Turned) -> None:
    machine = Machine(comes=1_000_000)
    command = replace(REBOOT, finish_by=moment_of(T0 + 10 * MINUTE_MS))
    assert turned(machine, command) == ("failed", "not ended in time")
    assert machine.asked == ["GracefulRestart"]


def test_a_wrong_login_an_unknown_node_and_too_many_systems_are_said_as_what_they_are(
    turned: Turned, tmp_path: Path
) -> None:
    (tmp_path / "other").write_text("wrong", "utf-8")
    state, reason = turned(Machine(), password_file=tmp_path / "other")
    assert (state, reason) == ("failed", "the controller does not let root in: status 401: The login is wrong.")
    state, reason = turned(Machine(), replace(REBOOT, command_id="b"), nodes={})
    assert (state, reason) == ("refused", "unsupported: no controller is known for node-1")
    two = (SYSTEM, "/redfish/v1/Systems/other")
    state, reason = turned(Machine(systems=two), replace(REBOOT, command_id="c"))
    assert state == "failed"
    assert "say which in `system`" in reason
    assert turned(Machine(systems=two), replace(REBOOT, command_id="d"), system="437XR1138R2")[0] == "succeeded"


def test_a_controller_is_trusted_only_by_its_certificate(tmp_path: Path, ledger: Ledger) -> None:
    made = make_certificates(tmp_path / "tls")
    (tmp_path / "password").write_text("s3cret", "utf-8")
    machine = Machine()
    with controller(machine, certificate=made.server) as url:
        for number, (more, state) in enumerate([({}, "failed"), ({"ca": made.ca}, "succeeded")]):
            fields: dict[str, Any] = {"nodes": {"node-1": {"url": url}}, "user": "root", **more}
            file = PowerFile(password_file=tmp_path / "password", **fields)
            clock = Clock()
            bench = Bench(Power(file, sleep=clock.sleep), ledger, clock)
            assert bench.worker.take(replace(REBOOT, command_id=f"c{number}")) == state
            assert machine.asked == ([] if state == "failed" else ["GracefulRestart"])
            assert state == "succeeded" or "not trusted" in (bench.results[-1].reason or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("url: https://u:p@{node}.bmc\nuser: root\npassword_file: p\n", ":1"),
        ("url: http://{node}.bmc\nuser: root\npassword_file: p\n", "in clear"),
        ("url: https://{node}.bmc\nuser: root\n", "password_file"),
        ("url: https://one-for-all.bmc\nuser: root\npassword_file: p\n", ":1"),
    ],
)
def test_a_file_that_would_give_a_password_away_or_lacks_one_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "power.yaml").write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match=said):
        load_power(tmp_path / "power.yaml")
