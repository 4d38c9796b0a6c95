"""What is read of the objects of dynamic resource allocation: claims, slices, and rules that taint."""

from __future__ import annotations

from typing import Any

from producers.kubernetes.objects import Metadata, Part, Taint


class Granted(Part, frozen=True):
    """A device that a claim was given."""

    driver: str
    pool: str
    device: str

    @property
    def ref(self) -> str:
        """Its name as events have it."""
        return f"{self.driver}/{self.pool}/{self.device}"


class GrantedDevices(Part, frozen=True):
    """The devices that a claim was given."""

    results: tuple[Granted, ...] | None = None


class Allocation(Part, frozen=True):
    """What a claim was given."""

    devices: GrantedDevices = GrantedDevices()


class ClaimState(Part, frozen=True):
    """A claim as it is."""

    allocation: Allocation | None = None


class Claim(Part, frozen=True):
    """A ResourceClaim."""

    metadata: Metadata
    status: ClaimState = ClaimState()


class Offered(Part, frozen=True):
    """A device that a driver offers; up to 1.33 its attributes stand one level deeper."""

    name: str
    attributes: dict[str, dict[str, Any]] | None = None
    basic: dict[str, Any] | None = None
    taints: tuple[Taint, ...] | None = None


class Pool(Part, frozen=True):
    """The pool that a slice is a part of."""

    name: str
    generation: int = 0


class SliceSpec(Part, frozen=True):
    """What a driver offers."""

    driver: str
    pool: Pool
    node_name: str | None = None
    devices: tuple[Offered, ...] | None = None


class Slice(Part, frozen=True):
    """A ResourceSlice."""

    metadata: Metadata
    spec: SliceSpec


class DeviceSelector(Part, frozen=True):
    """Which devices a rule taints; what is not said is any."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    @property
    def ref(self) -> str:
        """The device's name as events have it, where the rule is of one."""
        return f"{self.driver}/{self.pool}/{self.device}"


class TaintRuleSpec(Part, frozen=True):
    """A taint and the devices that it is put on."""

    taint: Taint
    device_selector: DeviceSelector | None = None


class TaintRule(Part, frozen=True):
    """A DeviceTaintRule."""

    metadata: Metadata
    spec: TaintRuleSpec
