"""InfiniBand, RoCE and EFA links as the kernel shows them, against how many there should be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from faultlens.events import Check
from producers.agent.probe import Looked, MissingError
from producers.agent.probes.sysfs import text_of

DIRECTORY: Final = Path("/sys/class/infiniband")
_AMAZON: Final = "0x1d0f"
Kind = Literal["ib_links", "efa_links"]


@dataclass(frozen=True)
class Link:
    """A port of a network device: `state` is the kernel's word (`ACTIVE`), rate in Gbit/s."""

    device: str
    port: int
    kind: Kind
    state: str
    physical: str
    rate: float


def look_at_links(
    kind: Kind, expected: int | None, rate: float | None, seen: int = 0, directory: Path = DIRECTORY
) -> Looked:
    """Check the links of one kind. `seen`: how many an earlier boot had. MissingError: no such device at all."""
    if not directory.is_dir():
        raise MissingError(f"{directory} is not there: the kernel's RDMA drivers are not loaded")
    links = [link for link in read_links(directory) if link.kind == kind]
    active = sum(link.state == "ACTIVE" for link in links)
    return Looked(judge_links(kind, links, expected, rate, seen), links={kind: active})


def judge_links(
    kind: Kind, links: Iterable[Link], expected: int | None, rate: float | None, seen: int = 0
) -> list[Check]:
    """Return a check for each link that is not as it should be, or one that passes.

    Without an expected count nothing can be said of a link that is not there, unless an earlier boot had it: that is an
    error, and no pass.
    """
    present = list(links)
    if expected is None and len(present) < seen:
        told = f"{len(present)} links are there, and an earlier boot had {seen}"
        return [Check(kind, "nic", "fail", None, "links_missing", told)]
    bad = [check for link in present if (check := _judge_link(kind, link, rate)) is not None]
    if expected is None:
        why = f"how many links there should be is not known: set `instance_type`, or `{kind}: {{expected: N}}`"
        return [*bad, Check(kind, "nic", "error", message=why)]
    if len(present) < expected:
        told = f"{len(present)} of {expected} links are there"
        return [*bad, Check(kind, "nic", "fail", None, "links_missing", told)]
    return bad or [Check(kind, "nic", "pass", message=f"{len(present)} links")]


def _judge_link(kind: Kind, link: Link, rate: float | None) -> Check | None:
    name = f"{link.device}/{link.port}"
    if link.state != "ACTIVE":
        return Check(kind, "nic", "fail", name, "link_down", f"{name} is {link.state} ({link.physical})")
    if rate is not None and link.rate < rate:
        told = f"{name} runs at {link.rate:g} Gbit/s instead of {rate:g}"
        return Check(kind, "nic", "fail", name, "link_degraded", told)
    return None


def read_links(directory: Path) -> list[Link]:
    """Return every port of every device."""
    return [link for device in sorted(directory.iterdir()) for link in _ports(device)]


def _ports(device: Path) -> Iterator[Link]:
    kind: Kind = "efa_links" if text_of(device / "device" / "vendor") == _AMAZON else "ib_links"
    for port in sorted((device / "ports").iterdir(), key=lambda path: int(path.name)):
        state, physical = (_after_colon(text_of(port / name)) for name in ("state", "phys_state"))
        yield Link(device.name, int(port.name), kind, state, physical, _rate(text_of(port / "rate")))


def _after_colon(text: str) -> str:
    return text.partition(":")[2].strip() or text or "unknown"


def _rate(text: str) -> float:
    try:
        return float(text.split(" ", 1)[0])
    except ValueError:
        return 0.0
