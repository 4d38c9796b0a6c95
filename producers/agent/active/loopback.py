"""A network adapter that hears itself: a transfer from each active port to itself, by the RDMA tools."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from faultlens.events import Check
from producers.agent.probe import MissingError
from producers.agent.probes.links import DIRECTORY, Kind, read_links

PROGRAM: Final = "ib_write_bw"
_FIRST_PORT: Final = 18_515
_LISTENS_S: Final = 0.5


def hear_itself(kind: Kind, program: str, each_s: float, directory: str = str(DIRECTORY)) -> list[Check]:
    """Send from each active port to itself. MissingError: neither the tool nor such a port is there."""
    path = shutil.which(program)
    if path is None:
        raise MissingError(f"{program} is not installed (perftest)")
    place = Path(directory)
    links = (
        [link for link in read_links(place) if link.kind == kind and link.state == "ACTIVE"] if place.is_dir() else []
    )
    if not links:
        raise MissingError("no active link of that kind is there")
    told = [
        (link.device, wrong)
        for number, link in enumerate(links)
        if (wrong := _sent(path, link.device, link.port, _FIRST_PORT + number, each_s)) is not None
    ]
    failures = [Check("nic_test", "nic", "fail", device, "link_down", f"{device}: {wrong}") for device, wrong in told]
    return failures or [Check("nic_test", "nic", "pass", message=f"{len(links)} links")]


def _sent(program: str, device: str, port: int, at: int, each_s: float) -> str | None:
    """Return what went wrong between a listener and a sender on the same port; None: nothing."""
    common = [program, "-d", device, "-i", str(port), "-p", str(at), "-n", "1000"]
    listener = subprocess.Popen(common, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # noqa: S603 - a fixed list
    try:
        deadline = monotonic() + each_s
        sleep(_LISTENS_S)
        done = subprocess.run([*common, "127.0.0.1"], capture_output=True, timeout=each_s, check=False)  # noqa: S603
        code = listener.wait(max(0.1, deadline - monotonic()))
    except subprocess.TimeoutExpired:
        return f"no answer within {each_s:g} s"
    finally:
        listener.kill()
        listener.communicate()
    if done.returncode or code:
        return (done.stderr or done.stdout)[-200:].decode("utf-8", "replace").strip() or "failed"
    return None
