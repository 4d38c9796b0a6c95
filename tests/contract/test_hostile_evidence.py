"""What others wrote may be anything: it goes out bounded and in its line, and keeps no ticket from being opened."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from threading import Event as Flag
from threading import Thread
from typing import Any
from urllib.request import Request

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from actuators.ledger import Ledger
from actuators.others_words import bounded, one_line
from actuators.slurm import Slurm
from actuators.ticket import MailedTicket, letter
from actuators.webhook import Webhook
from faultlens.events import CommandReason, RemediationCommand
from faultlens.hooks import open_hook
from faultlens.local_delivering import Message, _letter
from tests.contract.acting import DRAIN, Bench, Clock
from tests.contract.test_actuators import Receiver, receiver

__all__ = ["receiver"]

TICKET = replace(DRAIN, action="open_ticket")
NASTY = (
    "<script>alert(1)</script>",
    "a\r\nBcc: everybody@example.org\r\n\r\nbody",
    "\x1b]0;owned\x07\x1b[2J",
    "\u202egnp.exe",
    "\ud800 no text in UTF-8",
    "x" * 10_000_000,
    "\n" * 100_000,
    "[" * 100_000,
    '"deep"' + "\x00",
)


def evidence(text: str) -> dict[str, Any]:
    fault = {
        "kind": text, "code": text, "node": text, "count": 1, "gpu_family": text, "driver_version": text,
        "device": text, "message": text,
    }  # fmt: skip
    verdict = dict.fromkeys(("job", "class", "code", "basis", "rule"), text)
    step = dict.fromkeys(("action", "state", "actuator", "reason"), text)
    return {
        "known": True, "cause": text, "nodes": [text] * 3, "times": text,
        "faults": [fault] * 60, "verdicts": [verdict] * 60, "steps": [step] * 60,
    }  # fmt: skip


def posted(receiver: Receiver, ledger: Ledger, found: dict[str, Any]) -> tuple[str | None, Bench]:
    clock = Clock()
    hook = Webhook(
        receiver.url, b"s3cret", actions=frozenset({"open_ticket"}), sleep=clock.sleep, now_s=lambda: 1,
        bundle=lambda _: {"evidence": found},
    )  # fmt: skip
    bench = Bench(hook, ledger, clock)
    return bench.worker.take(TICKET), bench


@pytest.mark.parametrize("text", NASTY, ids=lambda text: repr(text[:12]))
def test_a_mail_of_anything_is_some_lines_that_only_show_and_its_subject_is_one(text: str) -> None:
    subject, body = letter(replace(TICKET, node=text, reason=CommandReason((text,), text)), evidence(text))
    for line in (subject, *body.splitlines()):
        assert line.isprintable()
        assert len(line) < 1_000
    assert len(body) < 200_000
    mail = _letter("a@example.org", "b@example.org", Message(subject, body))
    assert set(mail.keys()) == {"Subject", "From", "To", "Content-Type", "Content-Transfer-Encoding", "MIME-Version"}
    assert mail["To"] == "b@example.org"
    assert mail.as_bytes()


@pytest.mark.parametrize("text", NASTY, ids=lambda text: repr(text[:12]))
def test_a_ticket_by_a_call_is_opened_whatever_the_evidence_holds(
    text: str, receiver: Receiver, ledger: Ledger
) -> None:
    assert posted(receiver, ledger, evidence(text))[0] == "succeeded"
    ((_, body),) = receiver.calls
    assert len(body) <= 1024 * 1024
    assert json.loads(body.decode())["command"]["command_id"] == TICKET.command_id


def test_evidence_that_is_too_much_is_left_out_of_a_call_and_said_to_be(receiver: Receiver, ledger: Ledger) -> None:
    assert posted(receiver, ledger, {"known": True, "faults": [["x" * 5_000] * 100] * 100})[0] == "succeeded"
    assert json.loads(receiver.calls[0][1])["evidence"]["why"].startswith("it has ")


@pytest.mark.parametrize("device", ["[1, 2]", "3", '"a"', "[" * 100_000, '{"index": {"a": 1}}', "{"])
def test_a_device_that_is_told_strangely_leaves_the_ticket_whole(device: str) -> None:
    found = {"known": True, "faults": [{"kind": "xid", "code": "79", "node": "n", "count": 1, "device": device}]}
    assert "xid 79 x1 on n" in letter(TICKET, found)[1]


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        (b"[" * 60_000, "succeeded", "accepted"),
        (b"\xff\xfe", "succeeded", "accepted"),
        (
            json.dumps({"state": "failed", "reason": "no\r\n\x1b[31mpower" + "!" * 1_000}).encode(),
            "failed",
            "no ?[31mpo",
        ),
        (json.dumps({"state": ["failed"], "reason": {"a": "\x07"}}).encode(), "succeeded", "{'a': '\\x07'}"),
        (b"x" * 1_000_000, "succeeded", "accepted"),
    ],
)
def test_what_a_hook_answers_is_read_as_far_as_it_makes_sense(
    answer: bytes, state: str, reason: str, receiver: Receiver, ledger: Ledger
) -> None:
    receiver.answers = [(200, answer)]
    ended, bench = posted(receiver, ledger, {})
    said = bench.results[-1].reason or ""
    assert (ended, said.isprintable(), said.startswith(reason), len(said) < 320) == (state, True, True, True)


@contextmanager
def speaking(says: Callable[[socket.socket], None]) -> Iterator[str]:
    """Give the address of a server that answers every call in its own way."""
    server, over = socket.create_server(("127.0.0.1", 0)), Flag()

    def serve() -> None:
        while not over.is_set():
            try:
                called, _ = server.accept()
            except OSError:
                return
            with called:
                called.recv(65_536)
                says(called)

    thread = Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}/"
    over.set()
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"garbage\r\n\r\n",
        b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"state": "fai',
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200\r\nX: " + b"y" * 70_000,
    ],
)
def test_a_hook_that_speaks_no_http_is_tried_again_and_ends_the_command(said: bytes, ledger: Ledger) -> None:
    with speaking(lambda called: called.sendall(said)) as url:
        ended, bench = posted(Receiver(url), ledger, {})
    assert ended == "failed"
    assert "cannot be reached" in (bench.results[-1].reason or "")


@pytest.mark.parametrize(
    "begin", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n", b"HTTP"]
)
def test_a_hook_that_trickles_is_heard_for_twice_its_time(begin: bytes) -> None:
    sent: list[int] = []

    def trickles(called: socket.socket) -> None:
        called.sendall(begin)
        for number in range(1_000):
            called.sendall(b".")
            sent.append(number)
            Flag().wait(0.01)

    def serves(called: socket.socket) -> None:
        with suppress(OSError):
            trickles(called)

    request = Request("http://127.0.0.1/", b"{}")
    with speaking(serves) as url, suppress(HTTPException, OSError):
        request.full_url = url
        open_hook(request, timeout=0.2).read(64_000)
    assert len(sent) < 500, "of some ten seconds not even half"


def test_a_command_whose_id_would_be_two_headers_is_not_posted(receiver: Receiver, ledger: Ledger) -> None:
    clock = Clock()
    hook = Webhook(
        receiver.url, b"s", actions=frozenset({"drain"}), sleep=clock.sleep, now_s=lambda: 1
    )  # fmt: skip
    assert Bench(hook, ledger, clock).worker.take(replace(DRAIN, command_id="a\r\nX-Admin: yes")) == "failed"
    assert receiver.calls == []


def test_a_drains_reason_in_slurm_is_one_line(ledger: Ledger) -> None:
    asked: list[str] = []

    def run(program: Any) -> str:
        asked.extend(program)
        return "   State=IDLE X\n   BootTime=b\n" if program[1] == "show" else ""

    nasty = CommandReason(("xid:79\n   State=IDLE\x1b[2J",), "incident-1")
    block: RemediationCommand = replace(DRAIN, action="block_new_work", reason=nasty)
    assert Bench(Slurm(ledger, execute=run, sleep=lambda _: None), ledger).worker.take(block) == "succeeded"
    (reason,) = [word for word in asked if word.startswith("Reason=")]
    assert reason.isprintable()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


@settings(max_examples=40)
@given(ANYTHING)
def test_whatever_is_bounded_can_be_written_as_json(value: object) -> None:
    assert json.dumps(bounded(value)).encode()
    json.loads(json.dumps(bounded(value), ensure_ascii=False).encode())


@given(st.text(st.characters()))
def test_a_line_is_one_that_only_shows(text: str) -> None:
    assert one_line(text).isprintable()
    assert len(one_line(text * 50)) <= 406


def test_a_mailed_ticket_of_hostile_evidence_is_sent(ledger: Ledger) -> None:
    sent: list[str] = []
    acting = MailedTicket(
        lambda subject, text: sent.append(subject + text), sleep=lambda _: None,
        bundle=lambda _: {"evidence": evidence("\ud800\r\n[")},
    )  # fmt: skip
    assert Bench(acting, ledger).worker.take(TICKET) == "succeeded"
    assert sent[0].replace("\n", "").isprintable()
