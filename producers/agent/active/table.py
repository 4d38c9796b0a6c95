"""Which active tests a node's configuration asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from producers.agent.active import diagnostics, disk, gpus, loopback
from producers.agent.configuration import Configuration, Validation
from producers.agent.probe import Probe

MODULES: Final = (
    "producers.agent.active.diagnostics",
    "producers.agent.active.disk",
    "producers.agent.active.loopback",
)
# Each of so many copies may take so long.
_LOOPBACK_S: Final = 15.0


def tests_of(configuration: Configuration) -> list[Probe]:
    """Return the tests to run: DCGM's diagnostics where they are configured, PyTorch otherwise."""
    return list(_tests(configuration, configuration.validation or Validation()))


def _tests(configuration: Configuration, wanted: Validation) -> Iterator[Probe]:
    deadline_s = wanted.deadline_s
    yield Probe("disk_test", {"disk_test": "storage"}, disk.write_and_read, (str(configuration.state),), deadline_s)
    if configuration.role == "gpu" and configuration.dcgm is not None:
        asked = (configuration.dcgm.program, wanted.dcgm_level, deadline_s)
        yield Probe("dcgm_diag", {"dcgm_diag": "gpu"}, diagnostics.diagnose, asked, deadline_s)
    elif configuration.role == "gpu":
        yield Probe("memory_test", {"memory_test": "gpu"}, gpus.fill_memory, (), deadline_s)
        yield Probe("gemm_test", {"gemm_test": "gpu"}, gpus.multiply, (), deadline_s)
        yield Probe("link_test", {"link_test": "gpu"}, gpus.copy_around, (), deadline_s)
    for kind in ("ib_links", "efa_links"):
        if getattr(configuration, kind) is not None:
            asked_ = (kind, loopback.PROGRAM, _LOOPBACK_S)
            yield Probe("nic_test", {"nic_test": "nic"}, loopback.hear_itself, asked_, deadline_s)
