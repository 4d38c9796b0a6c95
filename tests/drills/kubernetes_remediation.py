"""GPUs of two nodes fall off the bus on a real control plane: one is repaired and returned, the other is a person's.

    make drill-kubernetes-remediation   # needs a lab that brings a control plane up (LAB_KUBERNETES) and Java for Kafka

Bridge, workers and actuators run live; Kubernetes' actuator has the rights of its manifest and no others, is killed
while a disruption budget keeps it from draining, and started anew before an API server that restarts. That takes
longer than nodes are waited for, so that the job's node counts as lost when the budget lets it go at last: its
verdict is still to be the fault for which we drained. The person who puts the other node back does so seconds after
that one's fault was told. Single commands before that try what a taint on a device does. What was told is kept
(tests/data/drills), and replayed by tests/acceptance/test_drills.py.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, Final

from actuators.node import BOOT_ID
from faultlens import topics
from faultlens.events import NodeActed
from faultlens.kubernetes_marks import COMMAND, DEVICE_TAINT_RULES
from tests.drills.hands import ROLES, Hands, differences, has_come, has_returned, until, waits
from tests.drills.kubeacting import (
    BEYOND,
    Single,
    bound,
    budgets_wrong,
    devices_wrong,
    gate_wrong,
    not_refused,
    rights_wrong,
)
from tests.drills.kubelab import MERGE, NAMESPACE, STRATEGIC, Api, Lab, now
from tests.drills.kubeplayer import Player
from tests.drills.kuberepairing import repairs_by_job_wrong, replacing_wrong
from tests.drills.pipeline import INPUTS, Pipeline, pipeline, report, say
from tests.drills.slurm import RECORDED
from tests.drills.truth import Truth

BAD: Final = "gpu-2"
OTHER: Final = "gpu-3"
BUDGET: Final = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"


class Machine:
    """A node's hardware, as its kubelet tells of it."""

    def __init__(self, api: Api, node: str) -> None:
        self._api, self.node = api, node

    def tells(self, boot_id: str, *, well: bool) -> None:
        """Say which boot it is in, and whether its accelerators answer."""
        condition = {
            "type": "AcceleratedHardwareReady",
            "status": "True" if well else "False",
            "reason": "NvidiaAcceleratedHardwareIsReady" if well else "NvidiaXID79Error",
            "message": "" if well else "Xid 79: GPU has fallen off the bus",
            "lastHeartbeatTime": now(),
            "lastTransitionTime": now(),
        }
        status = {"nodeInfo": {"bootID": boot_id}, "conditions": [condition]}
        self._api.ask("PATCH", f"/api/v1/nodes/{self.node}/status", {"status": status}, STRATEGIC)

    def shown(self) -> Any:
        """Return the node's object."""
        return self._api.ask("GET", f"/api/v1/nodes/{self.node}")

    @property
    def is_cordoned(self) -> bool:
        """Return whether it takes no pods."""
        return bool(self.shown()["spec"].get("unschedulable"))

    def cordon(self, by: str, *, out: bool) -> None:
        """Cordon it, or take that back, as somebody else."""
        path = f"/api/v1/nodes/{self.node}?fieldManager={by}"
        self._api.ask("PATCH", path, {"spec": {"unschedulable": out or None}}, MERGE)


@contextmanager
def power(machine: Machine) -> Iterator[str]:
    """Yield the address of something that reboots the machine when it is called."""

    class Rebooting(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            # The boot in which its own actuator runs, here on this machine.
            machine.tells(BOOT_ID.read_text("ascii").strip(), well=True)
            answer = json.dumps({"state": "succeeded", "reason": "rebooted"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), Rebooting) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def play(line: Pipeline, lab: Lab, player: Player, hands: Hands, acting: list[str]) -> None:
    """Break two nodes; the first goes through its repair, the second is a person's."""
    bad, other = Machine(player.api, BAD), Machine(player.api, OTHER)
    player.job("training", node=BAD, backoff=3, pod={"nodeSelector": {"pool": "main"}})
    # More than there are: a pod that is not ready, as its node is not heard of, may leave a budget that was met.
    keep = {"minAvailable": 2, "selector": {"matchLabels": {"job-name": "training"}}}
    player.api.make(BUDGET, {"metadata": {"name": "training"}, "spec": keep})
    [pod] = player.runs("training")
    _pooled(player.api, 4, 5)
    other.cordon("kubectl-cordon", out=True)
    sleep(15)
    for machine in (other, bad):
        machine.tells(f"boot-{machine.node}", well=False)
    # One of the nodes may be out, and the person's is.
    until(line, f"{OTHER} is the person's, and {BAD} waits for it", lambda: {"kept by", "cap of"} <= waits(line))
    other.cordon("kubectl-cordon", out=False)
    until(line, f"{BAD} is cordoned by a command", lambda: bad.is_cordoned)
    until(line, "its drain has begun", lambda: has_come(line, "drain", "started"))
    sleep(5)
    hands.kill("kubernetes")
    for _ in lab.restart_api_server():
        say("the API server is away")
        hands.start("kubernetes", *acting)
        sleep(5)
    sleep(20)
    _is_kept(player, pod)
    player.api.ask("DELETE", f"{BUDGET}/training")
    until(line, f"{BAD} is back", lambda: has_returned(line) and not bad.is_cordoned)
    player.exits(player.runs("training")[0], 0)
    player.fails("training", "hardware", node=BAD, what="its node was drained because of a lost GPU")
    player.ends_as("training", "succeeded", 2)


def _is_kept(player: Player, pod: dict[str, Any]) -> None:
    """Make sure that the budget holds: the pod is the one of before, and nobody has asked it to end."""
    [there] = player.api.pods("training")
    if there["metadata"]["uid"] != pod["metadata"]["uid"] or there["metadata"].get("deletionTimestamp"):
        raise RuntimeError("the pod was evicted against its budget")


def left_over(line: Pipeline, api: Api) -> Iterator[str]:
    """Yield what is left of us where nothing should be, and returns that were told as somebody else's."""
    for machine in (Machine(api, BAD), Machine(api, OTHER)):
        shown = machine.shown()
        taints = [taint["key"] for taint in shown["spec"].get("taints") or ()]
        if machine.is_cordoned or taints:
            yield f"{machine.node} is still kept out: {taints}"
        if machine.node == OTHER and COMMAND in shown["metadata"].get("annotations", {}):
            yield f"something was done to {OTHER}"
    if rules := api.ask("GET", DEVICE_TAINT_RULES)["items"]:
        yield f"{len(rules)} device taint rules are left"
    told = [event.data for event in line.events(topics.NODE_EVENTS) if isinstance(event.data, NodeActed)]
    ours = [act.action for act in told if act.node == BAD and act.command_id is not None]
    if ours != ["cordon", "uncordon"]:
        yield f"of {BAD} the bridge told {', '.join(ours)} as ours"


def _pooled(api: Api, *numbers: int) -> None:
    """Let the job run on these nodes too: at first there is only the one that goes bad."""
    for number in numbers:
        api.ask("PATCH", f"/api/v1/nodes/gpu-{number}", {"metadata": {"labels": {"pool": "main"}}}, MERGE)


def _prepared(api: Api, folder: Path) -> Machine:
    """Make the namespace and the nodes' pool; return the machine that goes bad."""
    api.make_namespace()
    _pooled(api, 2)
    (folder / "secret").write_text("of the drill\n", "utf-8")
    for node in (BAD, OTHER):
        Machine(api, node).tells(f"boot-{node}", well=True)
    return Machine(api, BAD)


def _live(lab: Lab, api: Api, folder: Path, kubeconfig: Path, stack: ExitStack) -> tuple[Pipeline, Hands, list[str]]:
    """Start the pipeline with its bridge and actuators; return it with them and how Kubernetes' is started."""
    address = stack.enter_context(power(_prepared(api, folder)))
    line = stack.enter_context(pipeline(ROLES, (*INPUTS, topics.REMEDIATION_RESULTS)))
    bridge = ["kubernetes", "--cluster", "lab", "--kubeconfig", str(lab.kubeconfig)]
    line.start_bridge(*bridge, "--state", str(folder / "bridge"))
    hands = Hands(line, folder, os.environ)
    stack.callback(hands.close)
    acting = ["--kubeconfig", str(kubeconfig)]
    hands.start("kubernetes", *acting)
    hands.start("webhook", "--url", address, "--secret-file", str(folder / "secret"), "--action", "reboot")
    hands.start("node", "--node", BAD, "--validate", "true")
    until(line, "the bridge watches", lambda: line.hears("watching"))
    return line, hands, acting


def main(tool: Path, state: Path) -> int:
    """Run the drill; return 0 when the node is back and nothing was done to the other one."""
    lab = Lab(tool, state)
    temporary = tempfile.TemporaryDirectory(prefix="faultlens-hands-")
    with lab.running() as api, temporary as name, ExitStack() as stack:
        folder = Path(name)
        kubeconfig = bound(api, lab, folder)
        player, single = Player(api), Single(kubeconfig, folder)
        found = not_refused(kubeconfig)
        say(f"{len(BEYOND)} things beyond its manifest were asked for: {', '.join(found) or 'all are refused'}")
        found += rights_wrong(kubeconfig, "act")
        found += rights_wrong(bound(api, lab, folder, "nvsentinel"), "nvsentinel")
        found += [*repairs_by_job_wrong(api, single, folder, kubeconfig), *replacing_wrong(api, single, kubeconfig)]
        line, hands, acting = _live(lab, api, folder, kubeconfig, stack)
        found += [*gate_wrong(lab, single, folder), *devices_wrong(api, single)]
        found += budgets_wrong(api, single)
        for job in ("first", "second"):
            player.fails(job, "platform", "platform.remediation", what="a command without a fault ended it")
        try:
            play(line, lab, player, hands, acting)
        except TimeoutError:
            say(hands.said())
            raise
        sleep(15)
        truth = Truth(tuple(player.failures), player.ends)
        found += [*differences(line, truth), *left_over(line, api)]
        return report(line, truth, found, RECORDED, "kubernetes-remediation")


if __name__ == "__main__":
    os.environ.setdefault("FAULTLENS_POLICY", str(Path(__file__).with_name("policy.yaml")))
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
