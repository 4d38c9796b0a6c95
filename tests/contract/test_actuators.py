"""What holds for every actuator: once, in time, on the right boot, idempotent, and with an end that is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from msgspec.structs import replace

from actuators import Actuator, Refused
from actuators.dry_run import DryRun
from actuators.ledger import Ledger
from actuators.node import Node, Programs
from actuators.sdk import Beat, Memory
from actuators.webhook import SIGNATURE, Webhook, signature
from faultlens.clock import HOUR_MS, MINUTE_MS
from faultlens.errors import UsageError
from faultlens.events import DeviceRef, RemediationCommand
from tests.contract.acting import DRAIN, T0, Bench, Clock


class Fake(Actuator):
    """Keeps what it was told to do; `answer` may raise."""

    name = "fake"
    actions = frozenset({"drain"})

    def __init__(self, answer: Callable[[Beat], str] = lambda beat: "done", boot: str | None = None) -> None:
        self.done: list[str] = []
        self._answer = answer
        self._boot = boot

    def do(self, command: RemediationCommand, beat: Beat) -> str:
        self.done.append(command.command_id)
        return self._answer(beat)

    def boot_id(self, node: str) -> str | None:
        return self._boot


# --- the worker ------------------------------------------------------------------------------------------


def test_a_command_that_comes_twice_is_carried_out_once_and_its_end_is_told_again(ledger: Ledger) -> None:
    fake = Fake()
    bench = Bench(fake, ledger)
    assert [bench.worker.take(DRAIN), bench.worker.take(DRAIN)] == ["succeeded", "succeeded"]
    assert fake.done == [DRAIN.command_id]
    assert bench.states == ["started", "succeeded", "succeeded"]
    assert bench.told[1] == bench.told[2], "the same end is the same record"


def test_what_is_late_is_refused_and_nothing_is_done(ledger: Ledger) -> None:
    fake = Fake()
    bench = Bench(fake, ledger)
    bench.clock.now_ms = T0 + 5 * MINUTE_MS + 1_000
    assert bench.worker.take(DRAIN) == "refused"
    assert (fake.done, bench.results[-1].reason) == ([], "expired 1 s ago")


def test_what_was_meant_for_another_boot_is_refused(ledger: Ledger) -> None:
    fake = Fake(boot="boot-2")
    bench = Bench(fake, ledger)
    assert bench.worker.take(DRAIN) == "refused"
    assert fake.done == []
    assert "fenced" in (bench.results[-1].reason or "")


@pytest.mark.parametrize("change", [{"replayed": True}, {"mode": "shadow"}, {"cluster": "c2"}])
def test_what_is_not_to_be_carried_out_here_is_left_alone(ledger: Ledger, change: dict[str, Any]) -> None:
    fake = Fake()
    bench = Bench(fake, ledger)
    other = replace(DRAIN, **change)
    assert not bench.worker.accept(other)
    assert bench.worker.take(other) is None
    assert (fake.done, bench.told) == ([], [])


def test_only_the_sole_actuator_says_that_something_is_unsupported(ledger: Ledger) -> None:
    reboot = replace(DRAIN, action="reboot")
    assert Bench(Fake(), ledger).worker.take(reboot) is None
    sole = Bench(Fake(), ledger, sole=True)
    assert sole.worker.take(reboot) == "refused"
    assert sole.results[-1].reason == "unsupported: reboot"


def test_whatever_an_actuator_raises_the_command_ends(ledger: Ledger) -> None:
    def broken(beat: Beat) -> str:
        raise ZeroDivisionError("of all things")

    def refused(beat: Beat) -> str:
        raise Refused("not now")

    for number, (answer, state, reason) in enumerate(
        [(broken, "failed", "ZeroDivisionError: of all things"), (refused, "refused", "not now")]
    ):
        bench = Bench(Fake(answer), ledger)
        assert bench.worker.take(replace(DRAIN, command_id=f"id-{number}")) == state
        assert bench.results[-1].reason == reason


def test_one_that_was_killed_in_the_middle_goes_on_after_its_latest_start_and_ends_once(ledger: Ledger) -> None:
    class Killed(BaseException):
        """The process is gone: nothing below it runs any more."""

    def dies(beat: Beat) -> str:
        raise Killed

    bench = Bench(Fake(dies), ledger)
    with pytest.raises(Killed):
        bench.worker.take(DRAIN)
    again = Bench(Fake(), ledger, bench.clock)
    bench.clock.now_ms = T0 + 30 * MINUTE_MS
    (unfinished,) = again.worker.unfinished()
    assert again.worker.take(unfinished) == "succeeded"
    assert again.worker.unfinished() == []
    late = Bench(Fake(dies), ledger)
    with pytest.raises(Killed):
        late.worker.take(replace(DRAIN, command_id="late"))
    late.clock.now_ms = T0 + 2 * HOUR_MS
    assert late.worker.take(replace(DRAIN, command_id="late")) == "failed"


def test_long_work_shows_signs_of_life_and_ends_when_its_time_is_over(ledger: Ledger) -> None:
    clock = Clock()

    def slow(beat: Beat) -> str:
        while True:
            clock.sleep(10)
            beat()

    bench = Bench(Fake(slow), ledger, clock)
    assert bench.worker.take(DRAIN) == "failed"
    assert bench.results[-1].reason == "not ended in time"
    assert 60 < bench.states.count("started") <= 121, "one each half minute for an hour"
    assert len({event.id for event in bench.told}) == len(bench.told)


def test_a_ledger_on_disk_is_remembered_by_the_next_process(tmp_path: Path) -> None:
    first = Ledger(tmp_path / "act.db")
    Bench(Fake(), first).worker.take(DRAIN)
    first.close()
    second, fake = Ledger(tmp_path / "act.db"), Fake()
    assert Bench(fake, second).worker.take(DRAIN) == "succeeded"
    assert fake.done == []
    second.close()


# --- dry run ---------------------------------------------------------------------------------------------


def test_a_dry_run_shows_and_refuses(ledger: Ledger) -> None:
    shown: list[str] = []
    bench = Bench(DryRun(shown.append), ledger)
    assert bench.worker.take(DRAIN) == "refused"
    assert shown == ["would drain node-1 (rung 1, 2026-11 reboot): xid:79"]


# --- a call over HTTP ------------------------------------------------------------------------------------


@dataclass
class Receiver:
    """What was posted to a server on loopback, and what it answers next."""

    url: str
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    calls: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    got = Receiver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.calls.append((dict(self.headers), body))
            status, answer = got.answers.pop(0) if got.answers else (200, b"")
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    got.url = f"http://127.0.0.1:{server.server_port}/hook"
    yield got
    server.shutdown()
    thread.join()
    server.server_close()


def posting(receiver: Receiver, ledger: Ledger) -> Bench:
    clock = Clock()
    actions = frozenset({DRAIN.action})
    hook = Webhook(receiver.url, b"s3cret", actions=actions, sleep=clock.sleep, now_s=lambda: clock() // 1000)
    return Bench(hook, ledger, clock)


def test_a_webhook_is_signed_and_has_the_command_id_as_its_key(receiver: Receiver, ledger: Ledger) -> None:
    assert posting(receiver, ledger).worker.take(DRAIN) == "succeeded"
    ((headers, body),) = receiver.calls
    assert headers["Idempotency-Key"] == DRAIN.command_id
    assert headers[SIGNATURE] == signature(b"s3cret", T0 // 1000, body)
    assert json.loads(body)["command"]["action"] == "drain"


def test_a_webhook_is_tried_again_where_it_could_not_be_reached_and_believed_where_it_answers(
    receiver: Receiver, ledger: Ledger
) -> None:
    receiver.answers = [(503, b""), (200, b'{"state": "failed", "reason": "no power"}')]
    bench = posting(receiver, ledger)
    assert bench.worker.take(DRAIN) == "failed"
    assert (bench.results[-1].reason, len(receiver.calls)) == ("no power", 2)


def test_a_webhook_follows_no_redirect_and_takes_no_other_scheme(receiver: Receiver, ledger: Ledger) -> None:
    receiver.answers = [(302, b"")]
    assert posting(receiver, ledger).worker.take(DRAIN) == "failed"
    assert len(receiver.calls) == 1
    with pytest.raises(UsageError):
        Webhook("file:///etc/passwd", b"x", actions=frozenset(), sleep=print, now_s=lambda: 0)


# --- on the host -----------------------------------------------------------------------------------------


def test_the_host_resets_the_gpu_that_is_named_and_acts_on_no_other_node(tmp_path: Path, ledger: Ledger) -> None:
    ran: list[list[str]] = []
    boot = tmp_path / "boot_id"
    boot.write_text("boot-1\n", "ascii")

    def execute(programs: Sequence[Sequence[str]], beat: Beat, memory: Memory) -> None:
        ran.extend(list(program) for program in programs)

    host = Node("node-1", Programs(validate=("check-it",)), ledger.memory_of, execute=execute, boot_id=boot)
    bench = Bench(host, ledger)
    reset = replace(DRAIN, action="reset_device", device=DeviceRef(index=3, uuid="GPU-12345678"))
    assert bench.worker.take(reset) == "succeeded"
    assert bench.worker.take(replace(reset, command_id="b", device=None)) == "failed"
    assert bench.worker.take(replace(reset, command_id="c", node="node-2")) == "refused"
    assert bench.worker.take(replace(reset, command_id="d", action="validate", boot_id="boot-0")) == "refused"
    assert ran == [["nvidia-smi", "--gpu-reset", "-i", "GPU-12345678"]]
