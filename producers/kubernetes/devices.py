"""What dynamic resource allocation says of devices, as faults: taints, ill health, and that one is gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from faultlens.clock import ms_of
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import DeviceRef, DraDevice, NodeFault
from producers.kubernetes.device_objects import Offered, Slice, TaintRule
from producers.kubernetes.objects import Pod, Taint
from producers.kubernetes.telling import SOURCE, Names
from producers.kubernetes.words import FaultWord, fault_of_taint
from producers.launcher.redaction import redacted

MESSAGE_CHARS: Final = 500
# An unknown effect counts as None, which asks for nothing.
_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_PCI: Final = ("resource.kubernetes.io/pciBusID", "pciBusID", "pcieBusID")
_UNHEALTHY: Final = FaultWord(kind="other", code="device_unhealthy")
_REMOVED: Final = FaultWord(kind="other", code="device_removed")


class Known(Struct, frozen=True):
    """A device as its driver offers it: what it is by, and its taints (key, value, since)."""

    uuid: str | None = None
    pci: str | None = None
    taints: tuple[tuple[str, str, int], ...] = ()


class Offer(Struct, frozen=True, kw_only=True):
    """A slice as it was seen last."""

    driver: str
    pool: str
    node: str
    generation: int = 0
    devices: dict[str, Known] = {}

    def ref(self, device: str) -> str:
        """Return the device's name as events have it."""
        return f"{self.driver}/{self.pool}/{device}"


def offer_of(slice_: Slice) -> Offer:
    """Return what is kept of a slice."""
    spec = slice_.spec
    return Offer(
        driver=spec.driver,
        pool=spec.pool.name,
        node=spec.node_name or "",
        generation=spec.pool.generation,
        devices={device.name: _known(device) for device in spec.devices or ()},
    )


def _known(device: Offered) -> Known:
    inner = device.basic or {}
    attributes: dict[str, dict[str, Any]] = device.attributes or inner.get("attributes") or {}
    taints = [_taint(taint) for taint in device.taints or () if taint.effect in _EFFECTS]
    pci = next((_text(attributes[name]) for name in _PCI if name in attributes), None)
    return Known(_text(attributes.get("uuid")), pci, tuple(taints))


def _text(attribute: Mapping[str, Any] | None) -> str | None:
    value = (attribute or {}).get("string")
    return value if isinstance(value, str) else None


def _taint(taint: Taint) -> tuple[str, str, int]:
    return taint.key, taint.value or "", 0 if taint.time_added is None else ms_of(taint.time_added)


class DeviceTeller:
    """Makes faults of devices. `offers`: all slices by uid."""

    def __init__(self, names: Names, offers: Mapping[str, Offer]) -> None:
        self._names = names
        self._offers = offers

    def offered(self, before: Offer | None, after: Offer, now_ms: int) -> Iterator[Event]:
        """Yield what is new of a slice: taints, and devices that its driver does not offer any more."""
        for name, device in after.devices.items():
            told = before.devices.get(name, Known()).taints if before is not None else ()
            for key, value, since_ms in device.taints:
                word = fault_of_taint(key, value)
                if word is not None and (key, value, since_ms) not in told:
                    said = f"taint {key}={value} on {after.ref(name)}"
                    yield self._fault(after, name, device, word, said, since_ms or now_ms)
        for name, device in (before.devices if before is not None else {}).items():
            if name not in after.devices and not self._is_elsewhere(after, name):
                said = f"{after.ref(name)} is not offered by its driver any more"
                yield self._fault(after, name, device, _REMOVED, said, now_ms, str(after.generation))

    def _is_elsewhere(self, offer: Offer, device: str) -> bool:
        """Return whether another slice of the same pool has the device now."""
        return any(
            device in other.devices
            for other in self._offers.values()
            if (other.driver, other.pool) == (offer.driver, offer.pool)
        )

    def ruled(self, rule: TaintRule, now_ms: int) -> Iterator[Event]:
        """Yield the fault that a rule says of one device; a rule that taints many says nothing of any of them."""
        select, taint = rule.spec.device_selector, rule.spec.taint
        word = fault_of_taint(taint.key, taint.value)
        if word is None or taint.effect not in _EFFECTS or select is None or not select.device:
            return
        at_ms = rule.metadata.created_ms if taint.time_added is None else ms_of(taint.time_added)
        for offer in self._offers.values():
            known = offer.devices.get(select.device)
            same = (select.driver or offer.driver, select.pool or offer.pool) == (offer.driver, offer.pool)
            if known is not None and same:
                said = f"taint {taint.key}={taint.value or ''} by the rule {rule.metadata.name}"
                yield self._fault(offer, select.device, known, word, said, at_ms or now_ms, rule.metadata.uid)

    def sick(self, pod: Pod, known: Iterable[str], now_ms: int) -> Iterator[Event]:
        """Yield a fault for each device that the kubelet says is unhealthy, and was not `known` to be."""
        for ref, message in unhealthy(pod).items():
            if ref in known:
                continue
            said = redacted(message or f"{ref} is unhealthy")[:MESSAGE_CHARS]
            driver, _, rest = ref.partition("/")
            pool, _, name = rest.rpartition("/")
            offer = next((o for o in self._offers.values() if (o.driver, o.pool) == (driver, pool)), None)
            node = pod.spec.node_name or ""
            if not pool:
                ref_ = DeviceRef(uuid=ref)
                yield self._of(node, ref_, _UNHEALTHY, said, now_ms, pod.metadata.uid, ref)
            elif offer is not None:
                device = offer.devices.get(name, Known())
                yield self._fault(offer, name, device, _UNHEALTHY, said, now_ms, pod.metadata.uid)
            else:
                ref_ = DeviceRef(dra=DraDevice(driver, pool, name))
                yield self._of(node, ref_, _UNHEALTHY, said, now_ms, pod.metadata.uid, ref)

    def _fault(
        self, offer: Offer, name: str, device: Known, word: FaultWord, said: str, at_ms: int, *parts: str
    ) -> Event:
        ref = DeviceRef(uuid=device.uuid, pci=device.pci, dra=DraDevice(offer.driver, offer.pool, name))
        # What has a time of its own is told by it; of what is only seen to be so it is of no account when.
        parts = parts or (str(at_ms),)
        return self._of(offer.node, ref, word, said, at_ms, offer.ref(name), *parts)

    def _of(self, node: str, ref: DeviceRef, word: FaultWord, said: str, at_ms: int, *parts: str) -> Event:
        data = NodeFault(
            node=self._names.of(node),
            cluster=self._names.cluster,
            kind=word.kind,
            code=word.code,
            detected_by="other",
            device=ref,
            message=said,
        )
        id_ = stable_id("kubernetes", self._names.cluster, node, "device", word.kind, word.code, *parts)
        return event_of(data, source=SOURCE, id_=id_, time_ms=at_ms)


def unhealthy(pod: Pod) -> dict[str, str | None]:
    """Return the devices of a pod's containers that are not well, with what is said of them.

    Unknown is what is told while nothing has been heard for 30 s: that is no word against the device yet.
    """
    return {
        device.resource_id: device.message
        for status in pod.status.container_statuses or ()
        for resource in status.allocated_resources_status or ()
        for device in resource.resources or ()
        if device.health == "Unhealthy"
    }
