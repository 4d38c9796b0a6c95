"""Runs probes side by side, each in a process of its own: one that hangs, breaks or dies delays and hides no other."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from time import monotonic
from types import ModuleType
from typing import Final

import msgspec

from producers.agent.probe import Looked, MissingError, Probe

# Far above what 16 GPUs' checks take; a probe that talks on is broken.
MAX_ANSWER_BYTES: Final = 1 << 20
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[str, str, Looked]).decode
_FOUND, _MISSING, _BROKEN = "found", "missing", "error"


@dataclass
class _Running:
    probe: Probe
    process: ForkServerProcess
    answer: Connection
    began: float

    @property
    def ends(self) -> float:
        return self.began + self.probe.deadline_s

    @property
    def took_ms(self) -> int:
        return round((monotonic() - self.began) * 1_000)


class Runner:
    """Starts probes by a small server process that imports them once, so that one more costs a fork.

    `stuck` holds processes that could not even be killed (a driver call that never returns): a probe is not started
    again before its last one is gone, and says `timeout` until then.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(["producers.agent.running", *modules, "producers.agent.still"])
        self.stuck: dict[str, tuple[ForkServerProcess, float]] = {}

    def run(self, probes: Sequence[Probe]) -> Looked:
        """Return what all probes brought, checks in their order; it takes no longer than the longest deadline."""
        found: dict[str, Looked] = {}
        running = []
        for probe in probes:
            if (since := self._stuck_since(probe)) is not None:
                why = f"has hung for {monotonic() - since:.0f} s"
                found[probe.name] = Looked(probe.failed("timeout", why, 0))
            else:
                running.append(self._start(probe))
        for one, looked in self._answers(running):
            found[one.probe.name] = looked
        return _together([found[probe.name] for probe in probes])

    def _stuck_since(self, probe: Probe) -> float | None:
        process, since = self.stuck.get(probe.name, (None, 0.0))
        if process is None:
            return None
        if process.is_alive():
            return since
        del self.stuck[probe.name]
        return None

    def _start(self, probe: Probe) -> _Running:
        theirs: Connection
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_look, args=(probe, theirs), name=probe.name, daemon=True)
        began = monotonic()
        with _no_program():
            process.start()
        theirs.close()
        return _Running(probe, process, ours, began)

    def _answers(self, running: list[_Running]) -> Iterator[tuple[_Running, Looked]]:
        """Yield each probe's checks as they come, at the latest at its deadline."""
        pending = {one.answer: one for one in running}
        while pending:
            next_end = min(one.ends for one in pending.values())
            ready = wait(list(pending), timeout=max(0.0, next_end - monotonic()))
            for answer in ready:
                one = pending.pop(answer)  # type: ignore[call-overload]
                yield one, self._over(one, self._read(one))
            now = monotonic()
            for one in [one for one in pending.values() if one.ends <= now]:
                del pending[one.answer]
                why = f"no answer within {one.probe.deadline_s:g} s"
                yield one, self._over(one, Looked(one.probe.failed("timeout", why, one.took_ms)))

    def _read(self, one: _Running) -> Looked:
        """Return what a probe answered; a pipe that closes without an answer is a process that died."""
        failed, took_ms = one.probe.failed, one.took_ms
        try:
            kind, why, looked = _decode(one.answer.recv_bytes(MAX_ANSWER_BYTES))
        except EOFError:
            one.process.join(1)
            return Looked(failed("error", _how_it_died(one.process.exitcode), took_ms))
        except (OSError, msgspec.DecodeError) as error:
            return Looked(failed("error", f"its answer is no use: {error}", took_ms))
        if kind != _FOUND:
            return Looked(failed("missing" if kind == _MISSING else "error", why, took_ms))
        looked.checks = one.probe.complete(looked.checks, took_ms)
        return looked

    def _over(self, one: _Running, looked: Looked) -> Looked:
        """Make sure that the process is gone, or remember that it is not."""
        one.answer.close()
        if one.process.is_alive():
            _kill_group(one.process)
        one.process.join(0.2)
        if one.process.is_alive():
            self.stuck[one.probe.name] = one.process, one.began
        else:
            one.process.close()
        return looked


@contextmanager
def _no_program() -> Iterator[None]:
    """Hide which program this is: each new process would run it again, imports and all, and no probe needs it."""
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = program


def _together(looked: Sequence[Looked]) -> Looked:
    checks = [check for one in looked for check in one.checks]
    devices = next((one.devices for one in looked if one.devices is not None), None)
    driver_version = next((one.driver_version for one in looked if one.driver_version), None)
    return Looked(checks, devices, driver_version, {kind: n for one in looked for kind, n in one.links.items()})


def _kill_group(process: ForkServerProcess) -> None:
    """Kill the probe and the tools that it started: they are a process group of their own."""
    pid = process.pid
    if pid is None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        process.kill()


def _how_it_died(exit_code: int | None) -> str:
    if exit_code is None:
        return "it closed its answer and lives on"
    if exit_code < 0:
        with suppress(ValueError):
            return f"it was killed by {signal.Signals(-exit_code).name}"
    return f"it ended with {exit_code} and without an answer"


def _look(probe: Probe, answer: Connection) -> None:
    """Run a probe in its own process and group, and answer."""
    os.setpgrp()
    try:
        found = probe.look(*probe.arguments)
        said = (_FOUND, "", found if isinstance(found, Looked) else Looked(found))
    except MissingError as error:
        said = (_MISSING, str(error), Looked([]))
    except Exception as error:  # noqa: BLE001 - whatever a probe raises, its checks are not known
        said = (_BROKEN, f"{type(error).__name__}: {error}", Looked([]))
    answer.send_bytes(_encode(said))
    answer.close()
