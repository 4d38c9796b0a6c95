"""Runs an actuator: each command once, in time, on the right boot, with its end told whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from actuators.ledger import Entry, Ledger
from actuators.sdk import Actuator, Failed, Refused
from faultlens.clock import SECOND_MS, moment_of, ms_of
from faultlens.codec import Event, event_of, stable_id
from faultlens.events import RemediationCommand, RemediationResult

# A `started` that is repeated says that somebody still works on it (contract, results).
BEAT_EVERY_MS: Final = 30 * SECOND_MS
_REASON_CHARS: Final = 500
_ENDS: Final = frozenset({"refused", "succeeded", "failed"})
_decode: Final = msgspec.json.Decoder(RemediationCommand).decode
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class Duty:
    """What a worker is there for. `sole`: what its actuator cannot do nobody can, so it says so."""

    cluster: str
    nodes: frozenset[str] | None = None
    sole: bool = False

    def covers(self, command: RemediationCommand) -> bool:
        """Return whether the command is this worker's business."""
        return command.cluster == self.cluster and (self.nodes is None or command.node in self.nodes)


class Worker:
    """Takes commands and tells results. `tell` must have kept the result when it returns; `now_ms` is the clock."""

    def __init__(
        self,
        actuator: Actuator,
        duty: Duty,
        ledger: Ledger,
        tell: Callable[[Event], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.actuator = actuator
        self._duty = duty
        self._ledger = ledger
        self._tell = tell
        self._now_ms = now_ms

    def accept(self, command: RemediationCommand) -> bool:
        """Write down and say that the command will be carried out; whether `take` has anything to do for it."""
        if command.replayed or command.mode != "live" or not self._duty.covers(command):
            return False
        if command.action not in self.actuator.actions:
            return self._duty.sole
        if self._ledger.get(command.command_id) is None:
            self._note(command, "accepted", "")
            self._say(command, "accepted", None)
        return True

    def take(self, command: RemediationCommand) -> str | None:
        """Carry a command out and return the state it ended in; None: it is nobody's here.

        A command that came before is not carried out again: its end is told again, since it may have been lost.
        """
        if command.replayed or command.mode != "live" or not self._duty.covers(command):
            return None
        known = self._ledger.get(command.command_id)
        if known is not None and known.state in _ENDS:
            self._say(command, known.state, known.reason, known.at_ms)
            return known.state
        if command.action not in self.actuator.actions:
            return self._end(command, "refused", f"unsupported: {command.action}") if self._duty.sole else None
        return self._carried_out(command, is_begun=known is not None and known.state == "started")

    def unfinished(self) -> list[RemediationCommand]:
        """Return what was accepted or begun before this process was started; what ended long ago is forgotten."""
        self._ledger.forget(self._now_ms())
        return [_decode(entry.body) for entry in self._ledger.unfinished()]

    def _carried_out(self, command: RemediationCommand, *, is_begun: bool) -> str:
        try:
            self._fence(command, is_begun=is_begun)
            self._note(command, "started", "")
            self._say(command, "started", None)
            done = self.actuator.do(command, _Pulse(command, self))
        except Refused as refusal:
            return self._end(command, "refused", str(refusal))
        except Failed as failure:
            return self._end(command, "failed", str(failure))
        except Exception as error:  # noqa: BLE001 - whatever an actuator raises, the command has to end
            return self._end(command, "failed", f"{type(error).__name__}: {error}")
        return self._end(command, "succeeded", done)

    def _fence(self, command: RemediationCommand, *, is_begun: bool) -> None:
        """Refuse what is too late or meant for another boot; what was begun in time may be ended in time."""
        now_ms = self._now_ms()
        if is_begun:
            if now_ms > ms_of(command.finish_by):
                raise Failed("interrupted, and out of time since")
            return
        if now_ms > ms_of(command.expires_at):
            raise Refused(f"expired {(now_ms - ms_of(command.expires_at)) // SECOND_MS} s ago")
        if command.boot_id is None or command.node is None:
            return
        boot_id = self.actuator.boot_id(command.node)
        if boot_id is not None and boot_id != command.boot_id:
            raise Refused(f"fenced: the node is in boot {boot_id}, not {command.boot_id}")

    def beat(self, command: RemediationCommand) -> None:
        """Say that the command is still worked on; Failed when it has run out of time."""
        if self._now_ms() > ms_of(command.finish_by):
            raise Failed("not ended in time")
        self._say(command, "started", None)

    def now_ms(self) -> int:
        """Return the worker's clock."""
        return self._now_ms()

    def _end(self, command: RemediationCommand, state: str, reason: str) -> str:
        reason = reason[:_REASON_CHARS]
        self._note(command, state, reason)
        self._say(command, state, reason)
        return state

    def _note(self, command: RemediationCommand, state: str, reason: str) -> None:
        self._ledger.put(Entry(command.command_id, state, reason, self._now_ms(), _encode(command)))

    def _say(self, command: RemediationCommand, state: str, reason: str | None, at_ms: int | None = None) -> None:
        at_ms = self._now_ms() if at_ms is None else at_ms
        data = RemediationResult(
            command_id=command.command_id,
            cluster=command.cluster,
            state=state,  # type: ignore[arg-type]
            actuator=self.actuator.name,
            at=moment_of(at_ms),
            node=command.node,
            job_id=command.job_id,
            action=command.action,
            reason=reason or None,
            boot_id=command.boot_id,
        )
        # An end that is told again is the same record; each sign of life is one of its own.
        key = stable_id(command.command_id, self.actuator.name, state, at_ms if state == "started" else "")
        self._tell(event_of(data, source=f"actuator/{self.actuator.name}", id_=key, time_ms=at_ms))


class _Pulse:
    """Says at most every half minute that a command is still worked on."""

    def __init__(self, command: RemediationCommand, worker: Worker) -> None:
        self._command = command
        self._worker = worker
        self._last_ms = worker.now_ms()

    def __call__(self) -> None:
        now_ms = self._worker.now_ms()
        if now_ms - self._last_ms >= BEAT_EVERY_MS or now_ms > ms_of(self._command.finish_by):
            self._last_ms = now_ms
            self._worker.beat(self._command)
