"""What works on a node in trouble is known to whoever decides what is done about it."""

from __future__ import annotations

from faultlens.arrival import Entry
from faultlens.clock import SECOND_MS, parse_moment
from faultlens.codec import encode, event_of
from faultlens.events import Check, Data, DeviceRef, JobAllocated, JobSubmitted, NodeFault, NodeHealth, Slot
from faultlens.internal import NodeFacts
from faultlens.local_pump import Pump
from faultlens.local_roles import load_roles
from streams.runtime.records import Sent
from streams.runtime.task import Task

T0 = parse_moment("2026-11-23T04:00:00Z")
NODES = tuple(f"n{number}" for number in range(10))


def test_size_and_priority_of_jobs_are_told_of_a_node_once_something_is_wrong_with_it() -> None:
    facts: list[NodeFacts] = []

    def hear(sent: Sent, at_ms: int) -> None:
        if isinstance(sent.event.data, NodeFacts) and sent.event.data.node == "n1":
            facts.append(sent.event.data)

    pump = Pump([Task(role) for role in load_roles()], hear)

    def say(second: int, data: Data, source: str) -> None:
        at_ms = T0 + second * SECOND_MS
        event = event_of(data, source=source, id_=f"{source}-{second}-{type(data).__name__}", time_ms=at_ms)
        pump.take(Entry("test", 1, encode(event), event, arrived_ms=at_ms), event)

    for node in NODES:
        checks = (Check("gpu_count", "gpu", "pass"),)
        say(1, NodeHealth(node, "c1", 60.0, 8, 8, checks, "gpu", "b1", gpu_family="H100"), f"agent/{node}")
    for job, gpus, priority in (("small", 8, 900.0), ("large", 16, 100.0)):
        slots = tuple(Slot(node) for node in NODES[1 : 1 + gpus // 8])
        say(2, JobSubmitted(job, "c1", "training", gpus, len(slots), priority=priority), f"bridge/{job}")
        say(3, JobAllocated(job, 1, "c1", slots), f"bridge/{job}")
    assert (facts[-1].jobs, facts[-1].job_gpus, facts[-1].job_priority) == ((), 0, None), (
        "while all is well nobody asks"
    )
    lost = NodeFault("n1", "c1", "xid", "79", "kmsg", boot_id="b1", gpu_family="H100", device=DeviceRef(index=3))
    say(10, lost, "agent/n1")
    assert (facts[-1].job_gpus, facts[-1].job_priority) == (16, 900.0)
    assert facts[-1].jobs == ("small/1", "large/1")
