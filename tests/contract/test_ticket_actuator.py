"""Tickets by mail: all that a vendor asks for, in plain lines, sent until it is taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from actuators.ledger import Ledger
from actuators.ticket import MailedTicket, letter
from faultlens.cli_act import app
from faultlens.errors import WorldError
from tests.contract.acting import DRAIN, Bench, Clock

TICKET = replace(DRAIN, action="open_ticket")
EVIDENCE = {
    "known": True,
    "cause": "gpu.off_bus",
    "nodes": ["node-1"],
    "times": 2,
    "faults": [
        {
            "kind": "xid", "code": "79", "node": "node-1", "count": 2, "gpu_family": "H100", "driver_version": "550.1",
            "device": '{"index": 5, "uuid": "GPU-5", "serial": "1653", "dra": {"driver": "x"}}',
            "message": "NVRM: Xid 79,\nGPU has fallen\x1b[31m off the bus",
        }
    ],
    "verdicts": [{"job": "llm-7/1", "class": "hardware", "code": "gpu.off_bus", "basis": "established", "rule": "r"}],
    "steps": [{"action": "reboot", "state": "failed", "actuator": "slurm", "reason": "it hangs"}],
}  # fmt: skip


def test_a_ticket_names_the_device_and_has_the_drivers_line_the_verdicts_and_what_was_tried() -> None:
    subject, text = letter(TICKET, EVIDENCE)
    assert subject == "node-1: xid:79"
    names, said = (
        "node-1, index 5, uuid GPU-5, serial 1653, H100, 550.1",
        "NVRM: Xid 79, GPU has fallen?[31m off the bus",
    )
    fault = f"xid 79 x2 on {names}: {said}"
    for line in (fault, "llm-7/1: hardware, gpu.off_bus (established, rule r)", "reboot: failed by slurm it hangs"):
        assert f"  {line}" in text.splitlines()
    assert TICKET.command_id in text


def test_without_a_store_a_ticket_still_says_what_and_where_and_long_words_of_others_are_cut() -> None:
    subject, text = letter(TICKET, {})
    assert (subject, "What was tried" in text) == ("node-1: xid:79", False)
    long = {**EVIDENCE, "faults": [{**EVIDENCE["faults"][0], "message": "x" * 10_000}] * 200}  # type: ignore[index]
    assert len(letter(TICKET, long)[1]) < 60 * 600


def test_a_mail_that_is_not_taken_is_sent_again_and_given_up_in_the_end(ledger: Ledger) -> None:
    sent: list[str] = []
    refusals = 2

    def send(subject: str, text: str) -> None:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise WorldError("mail.example.org did not take the mail")
        sent.append(subject)

    clock = Clock()
    bench = Bench(MailedTicket(send, sleep=clock.sleep), ledger, clock)
    assert (bench.worker.take(TICKET), sent) == ("succeeded", ["node-1: xid:79"])
    refusals = 1_000
    assert bench.worker.take(replace(TICKET, command_id="b")) == "failed"
    assert bench.results[-1].reason == "mail.example.org did not take the mail (5 times)"


@pytest.mark.parametrize("arguments", [[], ["--mail", "https://x"], ["--url", "https://x"]])
def test_a_ticket_goes_to_one_address_and_a_wrong_one_is_said_at_once(arguments: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["ticket", "--cluster", "c1", "--ledger", str(tmp_path / "l.db"), *arguments])
    assert done.exit_code != 0
