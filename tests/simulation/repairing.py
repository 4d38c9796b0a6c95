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

from msgspec.structs import replace as replaced

from faultlens import topics
from faultlens.arrival import Entry
from faultlens.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, parse_moment
from faultlens.codec import Decoder, Event, encode, event_of
from faultlens.events import Data, Incident, NodeActed, NodeAction, NodeHealth, RemediationCommand, RemediationResult
from faultlens.local_pump import Pump
from faultlens.local_roles import load_roles
from streams.remediation.record import CommandCard, IncidentCard, NodeCard
from streams.runtime.records import Record, Role, Sent
from streams.runtime.task import Task
from tests.simulation import mischief
from tests.simulation.hands import Hands
from tests.simulation.workshop import CLUSTER, TRUE_CLOCK, Clock, Counted, Lane, Machine, checks_of, reloaded

T0 = parse_moment("2026-11-23T00:00:00Z")
REPORT_MS = 20 * MINUTE_MS
COUNT_MS = 5 * MINUTE_MS
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
        self.hands = Hands(self)
        self.clocks: dict[str, Clock] = {}
        self.broker_off_ms = 0
        self.bridge = (None, "kubernetes", "slurm")[seed % 3]
        self._bridge_lag_ms = self.dice.randrange(SECOND_MS, MINUTE_MS)
        self._pump = Pump([Task(_counted_rarely(ROLES["node"])), Task(ROLES["context"])], self._from_pump)
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._awaited = 0
        self._on_their_way: deque[Sent] = deque()
        self._delivers = False
        self._whole, self._over = whole, False
        self._order = count()
        self._ids = count()
        self.deaf_until_ms = 0

    # --- time ------------------------------------------------------------------------------------------

    def after(self, delay_ms: int, what: Callable[[], object]) -> None:
        """Do it once, so much later; the story is not over before."""
        self._awaited += 1
        self.at(self.now_ms + max(0, delay_ms), lambda: self._once(what))

    def _once(self, what: Callable[[], object]) -> None:
        self._awaited -= 1
        what()

    def at(self, at_ms: int, what: Callable[[], object]) -> None:
        """Do it then, unless the story is over before."""
        heapq.heappush(self._due, (at_ms, next(self._order), what))

    def run(self) -> None:
        for machine in self.machines:
            self._every(REPORT_MS, partial(self._reports, machine), first_ms=T0 + self.dice.randrange(REPORT_MS))
        self._every(REPORT_MS, self._look, first_ms=self.peace_ms + REPORT_MS)
        self.after(30 * MINUTE_MS, partial(mischief.go_on, self))
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
        if self._whole or self.lane.has_batch:
            return second_ms
        due_ms = -(-self.lane.task.soonest_ms // SECOND_MS) * SECOND_MS
        return max(second_ms, due_ms)

    def _every(self, period_ms: int, what: Callable[[], object], *, first_ms: int) -> None:
        def again() -> None:
            what()
            self.at(self.now_ms + period_ms, again)

        self.at(first_ms, again)

    def _look(self) -> None:
        """End the story when nothing is left but reports of nodes that are well: nothing else would come of them."""
        if self._awaited or self._whole or self.lane.has_batch:
            return
        waiting = self.open_incidents() or self.kept() or self.unended()
        self._over = not waiting and all(self._is_well(card) for card in self.lane.cards(NodeCard))

    def _is_well(self, card: NodeCard) -> bool:
        machine = self.by_name[card.node]
        up = card.facts is not None and card.facts.state == "available"
        return up and not machine.broken and not machine.blocked and machine.gone_until_ms <= self.now_ms

    def _tick(self, at_ms: int) -> None:
        self.now_ms = at_ms
        if self._whole or self.lane.has_batch or self.lane.task.looks_due(at_ms):
            self.lane.advance(at_ms)
            self._commit()

    def _commit(self, *, grows: bool = True) -> None:
        """Write the batch, or let it grow by a step. It is heard in its order.

        At any of its steps the lane may crash: all of the batch is lost, as is what one does who was thought dead and
        is fenced; it is decided anew.
        """
        if self.lane.has_batch:
            if self.dice.random() < 0.02:
                self.lane.crash()
                self.crashes += 1
            if grows and self.dice.random() < 0.2:
                return
        self._on_their_way.extend(self.lane.commit())
        if self._delivers:
            return
        self._delivers = True
        while self._on_their_way:
            self._from_lane(self._on_their_way.popleft())
        self._delivers = False

    # --- records ---------------------------------------------------------------------------------------

    def say(self, data: Data, source: str, *, twice: bool = False, at_ms: int | None = None) -> None:
        """Let somebody say something, of now or of what was before; some of it comes twice."""
        clock = self.clocks.get(source, TRUE_CLOCK)
        time_ms = (self.now_ms if at_ms is None else at_ms) + clock.off_ms
        event = event_of(data, source=source, id_=self.new_name("e"), time_ms=time_ms)
        if clock.off_ms and clock.tells:
            event = replaced(event, sent_ms=self.now_ms + clock.off_ms)
        event = self._carried(event)
        if isinstance(data, RemediationResult | NodeActed):
            # What was decided before this was heard, and what is due before it arrives, is counted before.
            self.lane.advance(self.now_ms + max(0, self.broker_off_ms))
            self._commit(grows=False)
        if isinstance(data, NodeActed):
            self.counted.acted(data, self.now_ms if at_ms is None else at_ms)
        for _ in range(1 + twice):
            if isinstance(data, RemediationResult):
                self.counted.heard(data, self.now_ms)
                self._to_lane(topics.REMEDIATION_RESULTS, event)
                continue
            self._pump.take(Entry("story", 1, b"", event, arrived_ms=self.now_ms + self.broker_off_ms), event)
            topic = topics.TYPES[event.type].topic
            if topic == topics.PLATFORM_EVENTS:
                self._to_lane(topic, event)

    def off_ms(self, source: str) -> int:
        """Return by how much somebody's clock is ahead."""
        return self.clocks.get(source, TRUE_CLOCK).off_ms

    def _to_lane(self, topic: str, event: Event) -> None:
        offset = self._offsets[topic]
        self._offsets[topic] = offset + 1
        if self.broker_off_ms < 0:
            # Ticks that were left out have brought the lane's clock to here: a record from before does not say so.
            self.lane.advance(self.now_ms)
        self.lane.take(Record(topic, offset, self.now_ms + self.broker_off_ms, event))
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
            self.counted.issued(data)
            self.hands.take(data)
        elif isinstance(data, Incident):
            self.incidents[data.incident_id] = data
        elif isinstance(data, RemediationResult):
            self.counted.expired(data.command_id, self.now_ms)

    def _carried(self, event: Event) -> Event:
        return decode(encode(event)) if self._whole else event

    # --- the fleet -------------------------------------------------------------------------------------

    def _reports(self, machine: Machine) -> None:
        if self.now_ms >= self.deaf_until_ms and self.now_ms >= machine.gone_until_ms:
            self.say(self._report(machine), machine.agent, twice=self.dice.random() < 0.01)

    def _report(self, machine: Machine) -> NodeHealth:
        last, seen = machine.report, machine.seen(self.now_ms)
        gpus = 0 if machine.blocked else 8 - len(seen)
        if last is not None and not seen and (last.boot_id, last.gpus_allocatable) == (machine.boot_id, gpus):
            return last
        report = NodeHealth(
            machine.name, CLUSTER, REPORT_MS / 1000, 8, gpus, checks_of(seen), "gpu",
            machine.boot_id, machine.where, "H100",
        )  # fmt: skip
        machine.report = None if seen else report
        return report

    def restart(self, machine: Machine, for_ms: int) -> None:
        """Let a machine boot anew, which takes it so long."""
        machine.boots += 1
        machine.gone_until_ms = max(machine.gone_until_ms, self.now_ms + for_ms)

    def restart_processors(self) -> None:
        """Let those go on from what they wrote who tell the remediation lane of the fleet."""
        self._pump = Pump([reloaded(task) for task in self._pump.tasks], self._from_pump)

    def bridge_tells(self, machine: Machine, action: NodeAction, command_id: str) -> None:
        """Let the scheduler's bridge tell in a moment what was done for us; Slurm has no reason for a return."""
        if self.bridge is None:
            return
        knows = action == "cordon" or self.bridge == "kubernetes"
        data = NodeActed(
            machine.name, CLUSTER, action, "faultlens" if knows else "root", planned=False,
            command_id=command_id if knows else None,
        )  # fmt: skip
        self.after(self._bridge_lag_ms, partial(self.say, data, f"bridge/{self.bridge}", at_ms=self.now_ms))

    def new_name(self, prefix: str) -> str:
        """Return a name that nothing in the story has."""
        return f"{prefix}{next(self._ids)}"

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
