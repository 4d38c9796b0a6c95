"""The machines: where they stand, how their clocks go, and which of them are lemons."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from producers.simulation.chance import happens
from producers.simulation.model import Gpu, Node, Sender
from producers.simulation.tables import Mix

NODES_PER_RACK: Final = 4
NODES_PER_SWITCH: Final = 16
_PCI_BUSES: Final = ("1b", "43", "52", "61", "9d", "c3", "d1", "df", "2a", "34", "6f", "7c", "a7", "b2", "e4", "f0")
_DRIVERS: Final = {"H100": "570.133.20", "A100": "550.144.03"}


def hex_of(rng: Random, digits: int) -> str:
    """Return random hexadecimal digits."""
    return f"{rng.getrandbits(4 * digits):0{digits}x}"


def new_boot_id(rng: Random) -> str:
    """Return a boot id as kernels make them."""
    text = hex_of(rng, 32)
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def build_fleet(nodes: int, gpus_per_node: int, mix: Mix, rng: Random) -> list[Node]:
    """Return the fleet: about two thirds H100, the rest A100, switch by switch."""
    h100s = max(1, round(nodes * 2 / 3))
    fleet = [_node(number, "H100" if number < h100s else "A100", gpus_per_node, rng) for number in range(nodes)]
    for node in fleet:
        _give_clock(node, mix, rng)
        if happens(rng, mix.lemons):
            node.hazard = mix.lemon_factor
    return fleet


def scope_of(fleet: Sequence[Node], domain: str, name: str) -> list[Node]:
    """Return the nodes of a failure domain, or of a pool."""
    return [node for node in fleet if (node.pool if domain == "pool" else node.domains.get(domain)) == name]


def _node(number: int, family: str, gpus: int, rng: Random) -> Node:
    name = f"node-{number:04d}"
    rack = number // NODES_PER_RACK
    buses = list(_PCI_BUSES[:gpus]) if gpus <= len(_PCI_BUSES) else [f"{16 + index:02x}" for index in range(gpus)]
    domains = {
        "rack": f"r{rack:03d}",
        "switch": f"leaf-{number // NODES_PER_SWITCH:02d}",
        "power": f"pdu-{rack // 2:03d}",
        "nvlink": f"nvl-{number:04d}",
    }
    return Node(
        number,
        name,
        family.lower(),
        family,
        domains,
        [_gpu(index, buses[index], rng) for index in range(gpus)],
        f"brd-{hex_of(rng, 10)}",
        _DRIVERS[family],
        Sender(f"agent/{name}"),
        new_boot_id(rng),
    )


def _gpu(index: int, bus: str, rng: Random) -> Gpu:
    text = hex_of(rng, 32)
    uuid = f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return Gpu(index, uuid, f"0000:{bus}:00.0", f"{rng.randrange(10**12, 10**13)}")


def _give_clock(node: Node, mix: Mix, rng: Random) -> None:
    transport = mix.transport
    if happens(rng, transport.wrong_clocks):
        hours = rng.uniform(*transport.wrong_clock_hours) * rng.choice((-1, 1))
        node.agent.clock_off_ms = round(hours * 3_600_000)
    else:
        node.agent.clock_off_ms = round(rng.gauss(0.0, transport.clock_spread_s) * 1_000)
