"""A fleet that breaks in every way, people and actuators that err, and the real processors that look after it.

One seed is one story. The remediation lane works in batches, as on Kafka: a batch is kept whole or lost with all that
it sent, and is then decided anew from the records that led to it.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import count

from faultlens import topics
from faultlens.arrival import Entry
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, moment_of, parse_moment
from faultlens.codec import Decoder, Event, encode, event_of
from faultlens.events import (
    ControlScope,
    Data,
    DeviceRef,
    Incident,
    NodeActed,
    NodeFault,
    NodeHealth,
    OperatorControl,
    PlatformIncident,
    PlatformRollout,
    RemediationCommand,
    RemediationResult,
    Scope,
)
from faultlens.local_pump import Pump
from faultlens.local_roles import load_roles
from streams.remediation.record import CommandCard, IncidentCard, NodeCard
from streams.runtime.records import Record, Role, Sent
from streams.runtime.task import Task
from tests.simulation.workshop import RESTARTS, Counted, Lane, Machine, checks_of

T0 = parse_moment("2026-11-23T00:00:00Z")
CLUSTER = "c1"
REPORT_MS = 20 * MINUTE_MS
COUNT_MS = 5 * MINUTE_MS
# What breaks: the fault, the check that fails while it lasts, and the actions that mend it; without any, only a person.
FAULTS = (
    ("xid", "79", "gpu_count", ("reboot", "power_cycle", "replace")),
    ("xid", "79", "gpu_count", ("power_cycle", "replace")),
    ("xid", "95", "ecc", ("reset_device", "reboot", "power_cycle", "replace")),
    ("xid", "119", "driver_responds", ("reset_device", "reboot", "power_cycle", "replace")),
    ("xid", "119", "driver_responds", ()),
    ("xid", "999", "", ("reboot",)),
    ("nic", "link_down", "ib_links", ()),
    ("host_memory", "uncorrectable", "host_memory", ("replace",)),
)
decode = Decoder().decode
ROLES = {role.name: role for role in load_roles()}


class Story:
    """One seed: a fleet in trouble for `days`, then peace until everything could be mended.

    `whole`: nothing is left out in which nothing happens (ticks that find nothing due, peace after the last repair),
    and what travels between processors is encoded and decoded. It takes longer and must come to the same.
    """

    def __init__(self, seed: int, *, nodes: int = 40, days: float = 1.0, whole: bool = False) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - a story is to be told again
        self.machines = [Machine(f"node-{n:03d}", n) for n in range(nodes)]
        self.by_name = {machine.name: machine for machine in self.machines}
        self.now_ms, self.peace_ms = T0, T0 + int(days * DAY_MS)
        self.counted = Counted(self.machines)
        self.dead_letters = self.crashes = 0
        self.incidents: dict[str, Incident] = {}
        self.lane = Lane(ROLES["remediation"])
        self._offsets = dict.fromkeys(topics.TOPICS, 0)
        self._pump = Pump([Task(_counted_rarely(ROLES["node"])), Task(ROLES["context"])], self._from_pump)
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._awaited = 0
        self._on_their_way: deque[Sent] = deque()
        self._delivers = False
        self._whole, self._over = whole, False
        self._order = count()
        self._ids = count()
        self.actuator_back_ms = 0
        self.deaf_until_ms = 0

    # --- time ------------------------------------------------------------------------------------------

    def after(self, delay_ms: int, what: Callable[[], None]) -> None:
        """Do it once, so much later; the story is not over before."""
        self._awaited += 1
        self._at(self.now_ms + max(0, delay_ms), lambda: self._once(what))

    def _once(self, what: Callable[[], None]) -> None:
        self._awaited -= 1
        what()

    def _at(self, at_ms: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_ms, next(self._order), what))

    def run(self) -> None:
        for machine in self.machines:
            self._every(REPORT_MS, partial(self._reports, machine), first_ms=T0 + self.dice.randrange(REPORT_MS))
        self._every(REPORT_MS, self._look, first_ms=self.peace_ms + REPORT_MS)
        self.after(30 * MINUTE_MS, self._mischief)
        end_ms = self.peace_ms + 12 * HOUR_MS
        while self._due[0][0] <= end_ms and not self._over:
            at_ms = self._due[0][0]
            while self._tick_ms() < at_ms:
                self._tick(self._tick_ms())
            # What was due before something happens has been decided without it.
            self.now_ms = at_ms
            self._pump._advance(at_ms, records=True)
            self._tick(at_ms)
            heapq.heappop(self._due)[2]()

    def _tick_ms(self) -> int:
        """Return the next full second: the lane is told of each, where one in which nothing is due is not left out."""
        second_ms = self.now_ms // SECOND_MS * SECOND_MS + SECOND_MS
        if self._whole:
            return second_ms
        due_ms = -(-self.lane.task.soonest_ms // SECOND_MS) * SECOND_MS
        return max(second_ms, due_ms)

    def _every(self, period_ms: int, what: Callable[[], None], *, first_ms: int) -> None:
        def again() -> None:
            what()
            self._at(self.now_ms + period_ms, again)

        self._at(first_ms, again)

    def _look(self) -> None:
        """End the story when nothing is left but reports of nodes that are well: nothing else would come of them."""
        if self._awaited or self._whole:
            return
        waiting = self.open_incidents() or self.kept() or self.unended()
        self._over = not waiting and all(self._is_well(card) for card in self.lane.cards(NodeCard))

    def _is_well(self, card: NodeCard) -> bool:
        machine = self.by_name[card.node]
        up = card.facts is not None and card.facts.state == "available"
        return up and not machine.broken and not machine.blocked and machine.gone_until_ms <= self.now_ms

    def _tick(self, at_ms: int) -> None:
        self.now_ms = at_ms
        if self._whole or self.lane.task.looks_due(at_ms):
            self.lane.advance(at_ms)
            self._commit()

    def _commit(self) -> None:
        """Write the batch, unless the lane crashes before that: then it is decided anew. It is heard in its order."""
        if self.lane.has_batch and self.dice.random() < 0.02:
            self.lane.crash()
            self.crashes += 1
        self._on_their_way.extend(self.lane.commit())
        if self._delivers:
            return
        self._delivers = True
        while self._on_their_way:
            self._from_lane(self._on_their_way.popleft())
        self._delivers = False

    # --- records ---------------------------------------------------------------------------------------

    def say(self, data: Data, source: str, *, twice: bool = False) -> None:
        """Let somebody say something; some of it comes twice."""
        event = self._carried(event_of(data, source=source, id_=f"e{next(self._ids)}", time_ms=self.now_ms))
        for _ in range(1 + twice):
            if isinstance(data, RemediationResult):
                self.counted.heard(data)
                self._to_lane(topics.REMEDIATION_RESULTS, event)
                continue
            self._pump.take(Entry("story", 1, b"", event, arrived_ms=self.now_ms), event)
            topic = topics.TYPES[event.type].topic
            if topic == topics.PLATFORM_EVENTS:
                self._to_lane(topic, event)

    def _to_lane(self, topic: str, event: Event) -> None:
        offset = self._offsets[topic]
        self._offsets[topic] = offset + 1
        self.lane.take(Record(topic, offset, self.now_ms, event))
        self._commit()

    def _from_pump(self, sent: Sent, at_ms: int) -> None:
        self.dead_letters += sent.topic == topics.DEAD_LETTERS
        if sent.topic in ROLES["remediation"].topics:
            self._to_lane(sent.topic, self._carried(sent.event))

    def _from_lane(self, sent: Sent) -> None:
        event = self._carried(sent.event)
        data = event.data
        self.dead_letters += sent.topic == topics.DEAD_LETTERS
        if sent.topic == topics.ALLOCATIONS:
            self._pump.take(Entry("story", 1, b"", event, arrived_ms=self.now_ms), event)
        elif isinstance(data, RemediationCommand):
            self._commanded(data)
        elif isinstance(data, Incident):
            self.incidents[data.incident_id] = data
        elif isinstance(data, RemediationResult):
            self.counted.expired(data.command_id)

    def _carried(self, event: Event) -> Event:
        return decode(encode(event)) if self._whole else event

    # --- the fleet -------------------------------------------------------------------------------------

    def _reports(self, machine: Machine) -> None:
        if self.now_ms >= self.deaf_until_ms and self.now_ms >= machine.gone_until_ms:
            self.say(self._report(machine), machine.agent, twice=self.dice.random() < 0.01)

    def _report(self, machine: Machine) -> NodeHealth:
        last = machine.report
        gpus = 0 if machine.blocked else 8 - len(machine.broken)
        if last is not None and not machine.broken and (last.boot_id, last.gpus_allocatable) == (machine.boot_id, gpus):
            return last
        report = NodeHealth(
            machine.name, CLUSTER, REPORT_MS / 1000, 8, gpus, checks_of(machine), "gpu",
            machine.boot_id, machine.where, "H100",
        )  # fmt: skip
        machine.report = None if machine.broken else report
        return report

    def break_one(self, machine: Machine, fault: tuple[str, str, str, tuple[str, ...]], times: int = 1) -> None:
        if self.now_ms >= self.peace_ms:
            return
        gpu = self.dice.randrange(8)
        machine.broken[gpu] = fault
        data = NodeFault(
            machine.name, CLUSTER, fault[0], fault[1], "kmsg", "gpu", machine.boot_id, machine.where,  # type: ignore[arg-type]
            "H100", None, None, DeviceRef(index=gpu) if fault[0] == "xid" else None,
        )  # fmt: skip
        for _ in range(times):
            self.say(data, f"agent/{machine.name}")
        # Where nothing that can be commanded helps, a person mends it in the end; most things one hears of by a ticket.
        # Nobody waits for that after the peace, when all was mended at once.
        mended_ms = self.now_ms + self.dice.randrange(HOUR_MS, 8 * HOUR_MS)
        self._at(mended_ms, lambda: self._mended_by_hand(machine, gpu, fault))

    def _mended_by_hand(self, machine: Machine, gpu: int, fault: tuple[str, str, str, tuple[str, ...]]) -> None:
        if machine.broken.get(gpu) is fault:
            self._restart(machine, 5 * MINUTE_MS)
            machine.broken.pop(gpu, None)

    def _restart(self, machine: Machine, for_ms: int) -> None:
        machine.boots += 1
        machine.gone_until_ms = max(machine.gone_until_ms, self.now_ms + for_ms)

    # --- mischief --------------------------------------------------------------------------------------

    def _mischief(self) -> None:
        if self.now_ms >= self.peace_ms:
            self._make_peace()
            return
        kinds = (self._one_breaks, self._one_breaks, self._one_breaks, self._storm, self._rack_goes, self._deaf,
                 self._rollout, self._actuator_dies, self._person_cordons, self._pause, self._flaps)  # fmt: skip
        self.dice.choice(kinds)()
        self.after(self.dice.randrange(5 * MINUTE_MS, HOUR_MS), self._mischief)

    def _make_peace(self) -> None:
        for machine in self.machines:
            machine.broken.clear()
            self._restart(machine, 5 * MINUTE_MS)
        self.say(OperatorControl(CLUSTER, "resume", "op", "all is well"), "operator/op")
        for machine in self.machines:
            scope = ControlScope(nodes=(machine.name,))
            self.say(OperatorControl(CLUSTER, "release", "op", "all is well", scope), "operator/op")

    def _one_breaks(self) -> None:
        self.break_one(self.dice.choice(self.machines), self.dice.choice(FAULTS))

    def _storm(self) -> None:
        fault = self.dice.choice(FAULTS)
        for machine in self.dice.sample(self.machines, self.dice.choice((1, 3, 8, 25))):
            self.break_one(machine, fault, times=3)

    def _rack_goes(self) -> None:
        rack = self.dice.randrange(len(self.machines) // 10)
        until_ms = self.now_ms + self.dice.randrange(20 * MINUTE_MS, 3 * HOUR_MS)
        for machine in self.machines[10 * rack : 10 * rack + 10]:
            machine.gone_until_ms = max(machine.gone_until_ms, until_ms)
        if self.dice.random() < 0.5:
            scope, name = Scope(domains={"rack": (f"r{rack}",)}), f"i{next(self._ids)}"
            self.say(PlatformIncident(name, CLUSTER, "power", "started", scope), "status/site")
            ended = PlatformIncident(name, CLUSTER, "power", "ended", scope)
            self.after(until_ms - self.now_ms, lambda: self.say(ended, "status/site"))

    def _deaf(self) -> None:
        self.deaf_until_ms = self.now_ms + self.dice.randrange(10 * MINUTE_MS, HOUR_MS)

    def _rollout(self) -> None:
        chosen = self.dice.sample(self.machines, 15)
        scope, name = Scope(nodes=tuple(machine.name for machine in chosen)), f"r{next(self._ids)}"
        self.say(PlatformRollout(name, CLUSTER, "driver", "999", "started", scope), "deploy/site")
        bad = ("xid", "119", "driver_responds", ("reset_device", *RESTARTS))
        for machine in chosen[:10]:
            self.after(self.dice.randrange(40 * MINUTE_MS), lambda m=machine: self.break_one(m, bad))  # type: ignore[misc]
        ended = PlatformRollout(name, CLUSTER, "driver", "999", "ended", scope)
        self.after(HOUR_MS, lambda: self.say(ended, "deploy/site"))

    def _actuator_dies(self) -> None:
        self.actuator_back_ms = self.now_ms + self.dice.randrange(10 * MINUTE_MS, 3 * HOUR_MS)

    def _person_cordons(self) -> None:
        machine = self.dice.choice(self.machines)
        machine.cordoned = True
        self.counted.cordoned.add(machine.name)
        self.say(NodeActed(machine.name, CLUSTER, "cordon", "ann", planned=False), "bridge/slurm")
        self.after(self.dice.randrange(10 * MINUTE_MS, 6 * HOUR_MS), lambda: self._person_uncordons(machine))

    def _person_uncordons(self, machine: Machine) -> None:
        machine.cordoned = machine.blocked = False
        self.counted.cordoned.discard(machine.name)
        self.counted.taken.discard(machine.name)
        self.say(NodeActed(machine.name, CLUSTER, "uncordon", "ann", planned=False), "bridge/slurm")

    def _pause(self) -> None:
        until = moment_of(self.now_ms + self.dice.randrange(10 * MINUTE_MS, 2 * HOUR_MS))
        self.say(OperatorControl(CLUSTER, "pause", "op", "look", expires_at=until), "operator/op")

    def _flaps(self) -> None:
        machine = self.dice.choice(self.machines)
        for number in range(6):
            self.after(number * 12 * MINUTE_MS, lambda: self.break_one(machine, ("nic", "link_down", "ib_links", ())))
            self.after(number * 12 * MINUTE_MS + 6 * MINUTE_MS, machine.broken.clear)

    # --- the actuator ----------------------------------------------------------------------------------

    def _commanded(self, command: RemediationCommand) -> None:
        self.counted.issued(command)
        if self.now_ms < self.actuator_back_ms:
            if self.dice.random() < 0.2:  # a zombie does it anyway, and says so when everybody has given up
                self.after(self.dice.randrange(10 * MINUTE_MS, 4 * HOUR_MS), lambda: self._done(command))
            return
        kind = self.dice.random()
        if kind < 0.05:
            self.after(SECOND_MS, lambda: self._tell(command, "refused", "busy"))
        elif kind < 0.12:
            self.after(MINUTE_MS, lambda: self._tell(command, "failed", "no"))
        elif kind < 0.17:
            self.after(SECOND_MS, lambda: self._tell(command, "started"))  # and then it dies
        elif kind < 0.22:
            self.after(self.dice.randrange(HOUR_MS, 5 * HOUR_MS), lambda: self._done(command))
        else:
            self.after(SECOND_MS, lambda: self._tell(command, "started"))
            self.after(self.dice.randrange(2 * SECOND_MS, 4 * MINUTE_MS), lambda: self._done(command))

    def _done(self, command: RemediationCommand) -> None:
        machine = self.by_name[command.node or ""]
        action = command.action
        if action in RESTARTS:
            self._restart(machine, 3 * MINUTE_MS)
        for gpu, broken in list(machine.broken.items()):
            if action in broken[3]:
                del machine.broken[gpu]
        if action == "block_new_work":
            machine.blocked = True
        if action == "return_to_service":
            machine.blocked = False
        self._tell(command, "failed" if action == "validate" and machine.broken else "succeeded")

    def _tell(self, command: RemediationCommand, state: str, reason: str | None = None) -> None:
        result = RemediationResult(
            command.command_id,
            CLUSTER,
            state,  # type: ignore[arg-type]
            "sim",
            moment_of(self.now_ms),
            command.node,
            reason=reason,
        )
        self.say(result, "actuator/sim", twice=self.dice.random() < 0.1)

    # --- what must be true -----------------------------------------------------------------------------

    def open_incidents(self) -> list[IncidentCard]:
        return [card for card in self.lane.cards(IncidentCard) if card.stage != "closed"]

    def kept(self) -> list[NodeCard]:
        return [card for card in self.lane.cards(NodeCard) if card.taken]

    def unended(self) -> list[CommandCard]:
        return [card for card in self.lane.cards(CommandCard) if not card.ended_ms]


def _counted_rarely(role: Role) -> Role:
    """Return the role with its nodes counted as often as they can have changed, not each minute."""
    processor = copy(role.processor)
    vars(processor)["survey_every_ms"] = COUNT_MS
    return replace(role, processor=processor)
