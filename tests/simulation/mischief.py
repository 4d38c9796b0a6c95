"""What befalls a fleet: faults, storms, flapping, silence, roll-outs, people, lies, and clocks that jump."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, moment_of
from faultlens.events import (
    ControlScope,
    DeviceRef,
    NodeActed,
    NodeFault,
    OperatorControl,
    PlatformIncident,
    PlatformRollout,
    RemediationResult,
    Scope,
)
from tests.simulation.workshop import CLUSTER, RESTARTS, TRUE_CLOCK, Clock, Machine

if TYPE_CHECKING:
    from tests.simulation.repairing import Story


class Fault(NamedTuple):
    """What breaks: its kind and code, the check that fails while it lasts, and the actions that mend it."""

    kind: str
    code: str
    check: str
    mended_by: tuple[str, ...]


# What no action mends is mended by a person.
FAULTS: Final = (
    Fault("xid", "79", "gpu_count", ("reboot", "power_cycle", "replace")),
    Fault("xid", "79", "gpu_count", ("power_cycle", "replace")),
    Fault("xid", "95", "ecc", ("reset_device", "reboot", "power_cycle", "replace")),
    Fault("xid", "119", "driver_responds", ("reset_device", "reboot", "power_cycle", "replace")),
    Fault("xid", "119", "driver_responds", ()),
    Fault("xid", "999", "", ("reboot",)),
    Fault("nic", "link_down", "ib_links", ()),
    Fault("host_memory", "uncorrectable", "host_memory", ("replace",)),
)
_ROLLED_OUT: Final = Fault("xid", "119", "driver_responds", ("reset_device", *RESTARTS))
_LINK: Final = Fault("nic", "link_down", "ib_links", ())
_JUMPS_MS: Final = (-3 * DAY_MS, -HOUR_MS, -4 * MINUTE_MS, 4 * MINUTE_MS, HOUR_MS, 20 * HOUR_MS)
# A broker's clock is kept; what takes over from another may be a little off.
_BROKER_JUMPS_MS: Final = (-5 * MINUTE_MS, -SECOND_MS, SECOND_MS, 30 * SECOND_MS)


def go_on(story: Story) -> None:
    """Let something happen now, and again until peace is made."""
    if story.now_ms >= story.peace_ms:
        _make_peace(story)
        return
    story.dice.choice(_KINDS)(story)
    story.after(story.dice.randrange(5 * MINUTE_MS, HOUR_MS), partial(go_on, story))


def _make_peace(story: Story) -> None:
    story.clocks.clear()
    story.broker_off_ms = 0
    for machine in story.machines:
        machine.mended()
        story.restart(machine, 5 * MINUTE_MS)
    story.say(OperatorControl(CLUSTER, "resume", "op", "all is well"), "operator/op")
    for machine in story.machines:
        scope = ControlScope(nodes=(machine.name,))
        story.say(OperatorControl(CLUSTER, "release", "op", "all is well", scope), "operator/op")


# --- what breaks -------------------------------------------------------------------------------------------


def _break(story: Story, machine: Machine, fault: Fault, times: int = 1) -> None:
    if story.now_ms >= story.peace_ms:
        return
    gpu = story.dice.randrange(8)
    machine.broken[gpu] = fault
    _alarm(story, machine, fault, gpu, times)
    # Where nothing that can be commanded helps, a person mends it in the end; most things one hears of by a ticket.
    # Nobody waits for that after the peace, when all was mended at once.
    mended_ms = story.now_ms + story.dice.randrange(HOUR_MS, 8 * HOUR_MS)
    story.at(mended_ms, partial(_mended_by_hand, story, machine, gpu, fault))


def _alarm(story: Story, machine: Machine, fault: Fault, gpu: int, times: int) -> None:
    data = NodeFault(
        machine.name, CLUSTER, fault.kind, fault.code, "kmsg", "gpu", machine.boot_id, machine.where,  # type: ignore[arg-type]
        "H100", None, None, DeviceRef(index=gpu) if fault.kind == "xid" else None,
    )  # fmt: skip
    for _ in range(times):
        story.say(data, machine.agent)


def _mended_by_hand(story: Story, machine: Machine, gpu: int, fault: Fault) -> None:
    if machine.broken.get(gpu) is fault:
        story.restart(machine, 5 * MINUTE_MS)
        machine.broken.pop(gpu, None)


def _one_breaks(story: Story) -> None:
    _break(story, story.dice.choice(story.machines), story.dice.choice(FAULTS))


def _storm(story: Story) -> None:
    fault = story.dice.choice(FAULTS)
    for machine in story.dice.sample(story.machines, story.dice.choice((1, 3, 8, 25))):
        _break(story, machine, fault, times=3)


def _flaps(story: Story) -> None:
    machine = story.dice.choice(story.machines)
    for number in range(6):
        story.after(number * 12 * MINUTE_MS, partial(_break, story, machine, _LINK))
        story.after(number * 12 * MINUTE_MS + 6 * MINUTE_MS, machine.broken.clear)


def _rollout(story: Story) -> None:
    chosen = story.dice.sample(story.machines, 15)
    scope, name = Scope(nodes=tuple(machine.name for machine in chosen)), story.new_name("r")
    story.say(PlatformRollout(name, CLUSTER, "driver", "999", "started", scope), "deploy/site")
    for machine in chosen[:10]:
        story.after(story.dice.randrange(40 * MINUTE_MS), partial(_break, story, machine, _ROLLED_OUT))
    ended = PlatformRollout(name, CLUSTER, "driver", "999", "ended", scope)
    story.after(HOUR_MS, lambda: story.say(ended, "deploy/site"))


# --- what falls silent -------------------------------------------------------------------------------------


def _rack_goes(story: Story) -> None:
    rack = story.dice.randrange(len(story.machines) // 10)
    until_ms = story.now_ms + story.dice.randrange(20 * MINUTE_MS, 3 * HOUR_MS)
    for machine in story.machines[10 * rack : 10 * rack + 10]:
        machine.gone_until_ms = max(machine.gone_until_ms, until_ms)
    if story.dice.random() < 0.5:
        scope, name = Scope(domains={"rack": (f"r{rack}",)}), story.new_name("i")
        story.say(PlatformIncident(name, CLUSTER, "power", "started", scope), "status/site")
        ended = PlatformIncident(name, CLUSTER, "power", "ended", scope)
        story.after(until_ms - story.now_ms, lambda: story.say(ended, "status/site"))


def _deaf(story: Story) -> None:
    story.deaf_until_ms = story.now_ms + story.dice.randrange(10 * MINUTE_MS, HOUR_MS)


def _actuator_dies(story: Story) -> None:
    story.hands.back_ms = story.now_ms + story.dice.randrange(10 * MINUTE_MS, 3 * HOUR_MS)


def _processors_restart(story: Story) -> None:
    story.restart_processors()


# --- what people do ----------------------------------------------------------------------------------------


def _person_cordons(story: Story) -> None:
    machine = story.dice.choice(story.machines)
    machine.cordoned = True
    story.say(NodeActed(machine.name, CLUSTER, "cordon", "ann", planned=False), "bridge/slurm")
    story.after(story.dice.randrange(10 * MINUTE_MS, 6 * HOUR_MS), partial(_person_uncordons, story, machine))


def _person_uncordons(story: Story, machine: Machine) -> None:
    machine.cordoned = machine.blocked = False
    story.say(NodeActed(machine.name, CLUSTER, "uncordon", "ann", planned=False), "bridge/slurm")


def _pause(story: Story) -> None:
    until = moment_of(story.now_ms + story.dice.randrange(10 * MINUTE_MS, 2 * HOUR_MS))
    story.say(OperatorControl(CLUSTER, "pause", "op", "look", expires_at=until), "operator/op")


# --- lies --------------------------------------------------------------------------------------------------


def _false_alarms(story: Story) -> None:
    """Let nodes cry out though nothing is wrong with them."""
    fault = story.dice.choice(FAULTS)
    for machine in story.dice.sample(story.machines, story.dice.choice((1, 3, 12))):
        _alarm(story, machine, fault, story.dice.randrange(8), times=2)


def _hides(story: Story) -> None:
    """Let a node break whose agent says for hours that all is well."""
    machine = story.dice.choice(story.machines)
    machine.hides_until_ms = story.now_ms + story.dice.randrange(30 * MINUTE_MS, 4 * HOUR_MS)
    _break(story, machine, story.dice.choice(FAULTS))


def _claims(story: Story) -> None:
    """Let a broken check of a sound node fail for hours, whatever is done about it."""
    machine = story.dice.choice(story.machines)
    machine.claims = story.dice.choice(FAULTS[:5])
    machine.claims_until_ms = story.now_ms + story.dice.randrange(30 * MINUTE_MS, 4 * HOUR_MS)


def _hands_lie(story: Story) -> None:
    """Let what is commanded be told as done for a while, though nothing is done."""
    story.hands.lies_until_ms = story.now_ms + story.dice.randrange(10 * MINUTE_MS, 2 * HOUR_MS)


def _stray_results(story: Story) -> None:
    """Let somebody tell of commands that nobody gave, and again of those that have ended."""
    node, ended = story.dice.choice(story.machines).name, [c for c, ends in story.counted.endings.items() if ends]
    for command_id in ("nobody-gave-it", *story.dice.sample(ended, min(3, len(ended)))):
        state = story.dice.choice(("started", "refused", "failed", "expired"))
        at = moment_of(story.now_ms)
        result = RemediationResult(command_id, CLUSTER, state, "sim", at, node)  # type: ignore[arg-type]
        story.say(result, "actuator/sim")


# --- clocks ------------------------------------------------------------------------------------------------


def _clock_jumps(story: Story) -> None:
    """Let the clock of a node or of the actuator jump for some hours; not each says by `senttime` what it shows."""
    who = story.dice.choice(("actuator/sim", *(machine.agent for machine in story.dice.sample(story.machines, 3))))
    story.clocks[who] = Clock(story.dice.choice(_JUMPS_MS), tells=story.dice.random() < 0.7)
    story.after(story.dice.randrange(10 * MINUTE_MS, 5 * HOUR_MS), partial(story.clocks.pop, who, TRUE_CLOCK))


def _broker_jumps(story: Story) -> None:
    """Let the time at which records are stamped jump, as when another broker takes over."""
    story.broker_off_ms = story.dice.choice(_BROKER_JUMPS_MS)
    story.after(story.dice.randrange(MINUTE_MS, HOUR_MS), partial(setattr, story, "broker_off_ms", 0))


_KINDS: Final[tuple[Callable[[Story], None], ...]] = (
    _one_breaks, _one_breaks, _one_breaks, _storm, _rack_goes, _deaf, _rollout, _actuator_dies, _person_cordons,
    _pause, _flaps, _processors_restart, _false_alarms, _hides, _claims, _hands_lie, _stray_results, _clock_jumps,
    _broker_jumps,
)  # fmt: skip
