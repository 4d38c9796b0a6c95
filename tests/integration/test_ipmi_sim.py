"""The power actuator through a real `ipmitool` on OpenIPMI's simulated controller, where both are installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from actuators.ipmi import Ipmi, IpmiBmc, run_tool
from actuators.ledger import Ledger
from actuators.power import Power, PowerFile
from actuators.sdk import Failed
from tests.contract.acting import DRAIN, Bench

pytestmark = pytest.mark.skipif(
    shutil.which("ipmitool") is None or shutil.which("ipmi_sim") is None,
    reason="ipmitool or ipmi_sim is not installed (apt install ipmitool openipmi)",
)
LAN = """name "bmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{folder}/chassis 0x20"
  user 2 true "faultlens" "s3cret" operator 10 none md2 md5 straight
"""
# Kept in files: how power stands, and all that it was told.
CHASSIS = """#!/bin/sh
cd {folder}
case "$2 $3" in
  "get power") echo "power:$(cat power)" ;;
  "set power") echo "$4" > power; echo "power $4" >> told ;;
  "set shutdown") echo 0 > power; echo shutdown >> told ;;
esac
"""
CONTROLLER = """mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
mc_enable 0x20
"""


def by_tool(program: Sequence[str]) -> str:
    """Run `ipmitool` without asking what ciphers there are, which the simulator does not answer."""
    return run_tool([program[0], "-C", "3", *program[1:]])


def free_port() -> int:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as udp:
        udp.bind(("127.0.0.1", 0))
        return int(udp.getsockname()[1])


@pytest.fixture
def bmc(tmp_path: Path) -> Iterator[IpmiBmc]:
    """Yield a controller that runs, whose machine is on."""
    port = free_port()
    (tmp_path / "lan.conf").write_text(LAN.format(port=port, folder=tmp_path), "utf-8")
    (tmp_path / "cmd.emu").write_text(CONTROLLER, "utf-8")
    (tmp_path / "power").write_text("1\n", "utf-8")
    (tmp_path / "password").write_text("s3cret\n", "utf-8")
    script = tmp_path / "chassis"
    script.write_text(CHASSIS.format(folder=tmp_path), "utf-8")
    script.chmod(0o755)
    files = ["-c", str(tmp_path / "lan.conf"), "-f", str(tmp_path / "cmd.emu"), "-s", str(tmp_path / "state")]
    with (tmp_path / "log").open("wb") as log:
        simulated = subprocess.Popen(["ipmi_sim", *files, "-n"], stdout=log, stderr=log)  # noqa: S607
    try:
        yield IpmiBmc("127.0.0.1", port, "faultlens", tmp_path / "password")
    finally:
        simulated.terminate()
        simulated.wait(30)


def test_a_machine_is_shut_down_and_switched_on_and_one_that_nobody_lets_in_is_not(
    bmc: IpmiBmc, tmp_path: Path
) -> None:
    power = {"url": f"ipmi://{bmc.host}:{bmc.port}"}
    file = PowerFile(user=bmc.user, password_file=bmc.password_file, nodes={"node-1": power})  # type: ignore[dict-item]
    with closing(Ledger(tmp_path / "ledger.db")) as ledger:
        bench = Bench(Power(file, ledger, sleep=lambda _: None, execute=by_tool), ledger)
        for number, action in enumerate(["reboot", "power_cycle"]):
            command = replace(DRAIN, action=action, command_id=f"c{number}", boot_id=None)
            assert bench.worker.take(command) == "succeeded", bench.results[-1].reason
    told = (tmp_path / "told").read_text("utf-8").split("\n")
    assert told == ["shutdown", "power 1", "power 0", "power 1", ""]
    (tmp_path / "wrong").write_text("another\n", "utf-8")
    with pytest.raises(Failed, match=r"Unable to establish IPMI v2 / RMCP\+ session"):
        Ipmi(bmc._replace(password_file=tmp_path / "wrong"), lambda _: None, by_tool).system()
