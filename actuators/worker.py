"""Runs an actuator: each command once, in time, on the right boot, with its end told whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event as Flag
from threading import Lock
from typing import Final

import msgspec

from actuators.fence import ONCE, STARTS_ANEW, Since, what_of
from actuators.ledger import Entry, Ledger
from actuators.sdk import Actuator, Failed, Refused
from faultlens.clock import SECOND_MS, moment_of, ms_of
from faultlens.codec import Event, event_of, stable_id
from faultlens.errors import WorldError
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


class Stopped(BaseException):
    """The worker was told to stop: the command is left as it is, and gone on with by the next one."""


class Worker:
    """Takes commands and tells results. `tell` must have kept the result when it returns; `now_ms` is the clock.

    `steady_ms`: a clock that nothing sets: by it a command grows old also while `now_ms` is set back.
    """

    def __init__(
        self,
        actuator: Actuator,
        duty: Duty,
        ledger: Ledger,
        tell: Callable[[Event], None],
        now_ms: Callable[[], int],
        *,
        steady_ms: Callable[[], int] | None = None,
    ) -> None:
        self.actuator = actuator
        self._duty = duty
        self._ledger = ledger
        self._tell = tell
        self._now_ms = now_ms
        self.steady_ms = steady_ms or now_ms
        self._since: dict[str, Since] = {}
        self._busy: dict[str, str] = {}
        self._entry = Lock()
        self._stopping = Flag()

    def accept(self, command: RemediationCommand) -> bool:
        """Write down and say that the command will be carried out; whether `take` has anything to do for it."""
        if command.replayed or command.mode != "live" or not self._duty.covers(command):
            return False
        if command.action not in self.actuator.actions:
            return self._duty.sole
        if self._ledger.get(command.command_id) is None:
            self._since[command.command_id] = Since(self._now_ms(), self.steady_ms())
            self._note(command, "accepted")
            self._say(command, "accepted", None)
        return True

    def take(self, command: RemediationCommand) -> str | None:
        """Carry a command out and return the state it ended in; None: it is nobody's here, or is being carried out.

        A command that came before is not carried out again: its end is told again, since it may have been lost.
        Raises WorldError: it cannot be written down or told, and is gone on with by the next worker.
        """
        if command.replayed or command.mode != "live" or not self._duty.covers(command):
            return None
        with self._alone(command) as other:
            if other == command.command_id:
                return None
            known = self._ledger.get(command.command_id)
            if known is not None and known.state in _ENDS:
                self._told(command, known)
                return known.state
            if command.action not in self.actuator.actions:
                return self._end(command, "refused", f"unsupported: {command.action}") if self._duty.sole else None
            if other is not None:
                return self._end(command, "refused", f"the same is being done there by command {other}")
            return self._carried_out(command, known)

    def tidy(self) -> None:
        """Forget what ended long ago: to be asked for once a day by whoever goes on for long."""
        self._ledger.forget(self._now_ms())

    def unfinished(self) -> list[RemediationCommand]:
        """Return what was accepted or begun before this process was started, after telling what was not told of ends.

        What ended long ago is forgotten. Raises WorldError: the ledger cannot be used.
        """
        self.tidy()
        for entry in self._ledger.untold():
            self._told(_read(entry), entry)
        begun = self._ledger.unfinished()
        self._since.update({entry.command_id: Since(entry.at_ms, self.steady_ms()) for entry in begun})
        return [_read(entry) for entry in begun]

    def stop(self) -> None:
        """Begin nothing any more, and leave what is being done at its next sign of life."""
        self._stopping.set()

    # --- one command -----------------------------------------------------------------------------------

    @contextmanager
    def _alone(self, command: RemediationCommand) -> Iterator[str | None]:
        """Yield which command does the same there now; None: none does, and this is the one until it is over."""
        what = what_of(command)
        with self._entry:
            if self._stopping.is_set():
                raise Stopped
            other = self._busy.get(what)
            if other is None:
                self._busy[what] = command.command_id
        try:
            yield other
        finally:
            if other is None:
                with self._entry:
                    del self._busy[what]
                self._since.pop(command.command_id, None)

    def _carried_out(self, command: RemediationCommand, known: Entry | None) -> str:
        try:
            self._fence(command, is_begun=known is not None and known.state == "started")
        except Refused as refusal:
            return self._end(command, "refused", str(refusal))
        except Failed as failure:
            return self._end(command, "failed", str(failure))
        self._note(command, "started")
        self._say(command, "started", None)
        state, reason = self._done(command)
        return self._end(command, state, reason)

    def _done(self, command: RemediationCommand) -> tuple[str, str]:
        try:
            return "succeeded", self.actuator.do(command, _Pulse(command, self))
        except Refused as refusal:
            return "refused", str(refusal)
        except Failed as failure:
            return "failed", str(failure)
        except Exception as error:  # noqa: BLE001 - whatever an actuator raises, the command has to end
            return "failed", f"{type(error).__name__}: {error}"

    def _fence(self, command: RemediationCommand, *, is_begun: bool) -> None:
        """Refuse what is too late, was done meanwhile, or is meant for another boot.

        What was begun in time may be ended in time, on the boot that it was begun in unless it is a restart itself.
        """
        now_ms = self.age_of(command)
        if is_begun and now_ms > ms_of(command.finish_by):
            raise Failed("interrupted, and out of time since")
        if not is_begun:
            if now_ms > ms_of(command.expires_at):
                raise Refused(f"expired {(now_ms - ms_of(command.expires_at)) // SECOND_MS} s ago")
            self._refuse_again(command)
        if command.boot_id is None or command.node is None or (is_begun and command.action in STARTS_ANEW):
            return
        boot_id = self.actuator.boot_id(command.node)
        if boot_id is not None and boot_id != command.boot_id:
            raise (Failed if is_begun else Refused)(f"fenced: the node is in boot {boot_id}, not {command.boot_id}")

    def _refuse_again(self, command: RemediationCommand) -> None:
        """Refuse what was decided before the same was done by another command."""
        done = self._ledger.done(what_of(command)) if command.action in ONCE else None
        if done is not None and ms_of(command.issued_at) <= done[1]:
            raise Refused(f"decided before the same was done by command {done[0]}")

    def age_of(self, command: RemediationCommand) -> int:
        """Return what time it is for the command (ms): a clock that is set back makes it no younger."""
        since, now_ms = self._since.get(command.command_id), self._now_ms()
        return now_ms if since is None else since.now_ms(now_ms, self.steady_ms())

    def beat(self, command: RemediationCommand) -> None:
        """Say that the command is still worked on."""
        self._say(command, "started", None)

    @property
    def is_stopping(self) -> bool:
        """Whether the worker was told to stop."""
        return self._stopping.is_set()

    # --- what is written down and told -----------------------------------------------------------------

    def _end(self, command: RemediationCommand, state: str, reason: str) -> str:
        entry = self._entry_of(command, state, reason[:_REASON_CHARS])
        is_done = state == "succeeded" and command.action in ONCE
        try:
            self._ledger.end(entry, what_of(command) if is_done else None)
        except WorldError:  # a full disk: what was done is told all the same
            self._say(command, state, entry.reason, entry.at_ms)
            raise
        self._told(command, entry)
        return state

    def _told(self, command: RemediationCommand, entry: Entry) -> None:
        self._say(command, entry.state, entry.reason, entry.at_ms)
        self._ledger.told(entry.command_id)

    def _note(self, command: RemediationCommand, state: str) -> None:
        self._ledger.put(self._entry_of(command, state, ""))

    def _entry_of(self, command: RemediationCommand, state: str, reason: str) -> Entry:
        return Entry(command.command_id, state, reason, self._now_ms(), _encode(command))

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


def _read(entry: Entry) -> RemediationCommand:
    try:
        return _decode(entry.body)
    except msgspec.DecodeError as error:
        raise WorldError(f"command {entry.command_id} is damaged in the actuator's ledger: {error}") from None


class _Pulse:
    """Says at most every half minute that a command is still worked on; ends it when it is out of time."""

    def __init__(self, command: RemediationCommand, worker: Worker) -> None:
        self._command = command
        self._worker = worker
        self._last_ms = worker.steady_ms()

    def __call__(self) -> None:
        """Raises Failed: it has run out of time. Stopped: the worker ends, and the next one goes on."""
        if self._worker.is_stopping:
            raise Stopped
        if self._worker.age_of(self._command) > ms_of(self._command.finish_by):
            raise Failed("not ended in time")
        now_ms = self._worker.steady_ms()
        if now_ms - self._last_ms >= BEAT_EVERY_MS:
            self._last_ms = now_ms
            self._worker.beat(self._command)
