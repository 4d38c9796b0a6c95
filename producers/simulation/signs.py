"""What a node's agent sends of a fault: records and, in later reports, checks that do not pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from faultlens.events import DeviceRef, NodeFault, Process
from producers.simulation.chance import happens, span_ms
from producers.simulation.model import CLUSTER, Gpu, Node
from producers.simulation.tables import Sign
from producers.simulation.world import World

NICS: Final = 8
_PCI_OF_NIC: Final = ("5e", "5f", "9a", "9b", "c8", "c9", "d6", "d7")
_NAMES_PROCESS: Final = frozenset({"13", "31", "43", "45", "48", "94", "119", "8"})
# How a device is named depends on who saw it: the kernel log knows addresses only.
_ADDRESS_ONLY: Final = 0.35


def show(world: World, node: Node, signs: Iterable[Sign], at_ms: int, device: int | None) -> bool:
    """Send the signs of a fault on a node (and GPU); return whether one that gives it away gets through."""
    told = False
    for sign in signs:
        if sign.families and node.family not in sign.families:
            continue
        if happens(world.chances.faults, sign.chance):
            told |= _show(world, node, sign, at_ms, device) and sign.tells
    return told


def fault_record(world: World, node: Node, sign: Sign, gpu: Gpu | None, count: int) -> NodeFault:
    """Return the record that an agent makes of a sign seen on a GPU, a network port or the whole node."""
    rng = world.chances.faults
    process = None
    if sign.kind == "xid" and sign.code in _NAMES_PROCESS:
        process = Process(rng.randrange(2_000, 900_000), rng.choice(("python3", "python", "pt_main_thread", "ray::T")))
    port = rng.randrange(NICS)
    text = world.texts.line(
        sign.text,
        node=node.name,
        pci=gpu.pci[:-2] if gpu else f"0000:{_PCI_OF_NIC[port]}:00",
        gpu=gpu.index if gpu else 0,
        pid=process.pid if process else "'<unknown>'",
        process=process.name if process else "<unknown>",
        port=port,
        left=len(node.gpus) - 1,
    )
    return NodeFault(
        node.name,
        CLUSTER,
        sign.kind,
        sign.code,
        sign.by,
        pool=node.pool,
        boot_id=node.boot_id,
        domains=node.domains,
        gpu_family=node.family,
        driver_version=node.driver_version,
        subcode=sign.subcode,
        device=_device(world, sign, gpu, port),
        process=process,
        message=text,
        count=count,
        synthetic=sign.code == "14",
    )


def _show(world: World, node: Node, sign: Sign, at_ms: int, device: int | None) -> bool:
    rng = world.chances.faults
    arrived = False
    for gpu in _named(node, sign, device):
        seen_ms = at_ms + span_ms(rng, sign.after_s)
        if not node.sees(seen_ms) or world.delivery.evidence_lost(world.mix.evidence.sign_lost):
            continue
        count = rng.randint(*sign.count)
        world.delivery.post(node.agent, seen_ms, fault_record(world, node, sign, gpu, count))
        arrived = True
    return arrived


def _named(node: Node, sign: Sign, device: int | None) -> Sequence[Gpu | None]:
    if device is None or sign.names in {"node", "nic"}:
        return (None,)
    culprit = node.gpus[device]
    if sign.names == "culprit":
        return (culprit,)
    held = [gpu for gpu in node.gpus if gpu is not culprit and gpu.holder and gpu.holder is culprit.holder]
    return held if sign.names == "siblings" else held[:1]


def _device(world: World, sign: Sign, gpu: Gpu | None, port: int) -> DeviceRef | None:
    if sign.names == "nic":
        return DeviceRef(pci=f"0000:{_PCI_OF_NIC[port]}:00.0", link=port)
    if gpu is None:
        return None
    if sign.by == "kmsg" and happens(world.chances.faults, _ADDRESS_ONLY):
        return DeviceRef(pci=gpu.pci)
    return DeviceRef(index=gpu.index, uuid=gpu.uuid, pci=gpu.pci)
