"""Health reports: each node's agent, once per interval. Most of all records, so they are put together from text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from operator import mul
from random import Random
from typing import Any, Final

import msgspec

from producers.simulation.chance import skewed
from producers.simulation.delivery import Delivery, Stamps
from producers.simulation.model import CLUSTER, Node
from producers.simulation.tables import CheckSign

AGENT_VERSION: Final = "0.4.2"
# What an agent checks, and how long that takes as a rule, in milliseconds.
_CHECKS: Final = (
    ("gpu_count", "gpu", 11.0),
    ("driver_responds", "driver", 38.0),
    ("ecc", "gpu", 17.0),
    ("nvlink", "gpu", 24.0),
    ("pcie", "pcie", 9.0),
    ("ib_links", "nic", 7.0),
    ("kernel_log", "kernel", 3.0),
    ("thermal", "cooling", 6.0),
    ("fabric_manager", "driver", 12.0),
    ("host_memory", "memory", 5.0),
    ("local_disk", "storage", 8.0),
    ("mounts", "storage", 21.0),
    ("container_runtime", "runtime", 31.0),
    ("clock", "agent", 2.0),
)
_TIMED_OUT_MS: Final = 10_000.0
_MULTIPLIERS: Final = 8_192
_encode: Final = msgspec.json.Encoder().encode


class Reporter:
    """Writes health reports; what does not change from one report of a node to the next is made once."""

    def __init__(self, delivery: Delivery, interval_s: float, rng: Random) -> None:
        self._delivery = delivery
        self._interval_s = interval_s
        self._rng = rng
        self._stamp = Stamps()
        self._made: dict[Node, tuple[str, str, tuple[float, ...]]] = {}
        self._multipliers = [skewed(rng, 1.0, 0.35) for _ in range(_MULTIPLIERS)]

    def report(self, node: Node, at_ms: int) -> None:
        """Send the node's report of now."""
        if node.changed:
            self._made[node] = self._make(node)
            node.changed = False
        head, template, usual_ms = self._made[node]
        first = self._rng.randrange(_MULTIPLIERS - len(usual_ms))
        data = template % tuple(map(mul, usual_ms, self._multipliers[first : first + len(usual_ms)]))
        if node.inventory_due:
            data = f"{_inventory(node)}{data}"
            node.inventory_due = False
        stamp, off_ms = self._stamp, node.agent.clock_off_ms
        time = stamp(at_ms + off_ms)
        start = f'{head}{self._delivery.new_id()}","subject":"{node.name}","time":"{time}","senttime":"'

        def record(sent_ms: int, arrival_ms: int) -> bytes:
            return f'{start}{stamp(sent_ms + off_ms)}","recordedtime":"{stamp(arrival_ms)}","data":{{{data}'.encode()

        self._delivery.carry(node.agent, at_ms, record)

    def _make(self, node: Node) -> tuple[str, str, tuple[float, ...]]:
        ailing = {check.name: (check, ailment.device) for ailment in node.ailments for check in ailment.checks}
        checks = []
        usual_ms = []
        for name, component, duration_ms in _CHECKS:
            check, device = ailing.pop(name, (None, None))
            checks.append(_check(name, component, check, device))
            usual_ms.append(_TIMED_OUT_MS if check is not None and check.status == "timeout" else duration_ms)
        for check, device in ailing.values():
            checks.append(_check(check.name, check.component, check, device))
            usual_ms.append(5.0)
        head = f'{{"specversion":"1.0","type":"faultlens.node.health.v1","source":"{node.agent.source}","id":"'
        fixed = _fixed_data(node, self._interval_s).replace("%", "%%")
        return head, f'{fixed},"checks":[{",".join(checks)}]}}}}', tuple(usual_ms)


def rounds(fleet: list[Node], interval_ms: int, start_ms: int, rng: Random) -> Iterator[tuple[int, Node]]:
    """Yield when which node reports, in order of time and for ever: each has its own place within the interval."""
    places = sorted((rng.randrange(interval_ms), node.number) for node in fleet)
    for turn in itertools.count():
        for place_ms, number in places:
            yield start_ms + turn * interval_ms + place_ms, fleet[number]


def _fixed_data(node: Node, interval_s: float) -> str:
    sick = node.sick_gpus()
    data: dict[str, Any] = {
        "node": node.name,
        "cluster": CLUSTER,
        "pool": node.pool,
        "boot_id": node.boot_id,
        "domains": node.domains,
        "gpu_family": node.family,
        "host_id": node.host_id,
        "driver_version": node.driver_version,
        "agent_version": AGENT_VERSION,
        "interval_s": interval_s,
        "gpus_total": len(node.gpus),
        "gpus_allocatable": 0 if node.cordoned else len(node.gpus) - len(sick),
    }
    return _encode(data).decode()[1:-1]


def _inventory(node: Node) -> str:
    devices = [{"index": g.index, "uuid": g.uuid, "pci": g.pci, "serial": g.serial} for g in node.gpus]
    return f'"devices":{_encode(devices).decode()},'


def _check(name: str, component: str, sign: CheckSign | None, device: int | None) -> str:
    said: dict[str, Any] = {"name": name, "component": component, "status": "pass" if sign is None else sign.status}
    if sign is not None:
        said |= {"code": sign.code} if sign.code else {}
        said |= {"message": sign.message} if sign.message else {}
        said |= {"device": {"index": device}} if device is not None else {}
    return _encode(said).decode().replace("%", "%%")[:-1] + ',"duration_ms":%.1f}'
