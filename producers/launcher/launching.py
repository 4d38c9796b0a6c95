"""Attempt after attempt: tell, run, tell how it ended, ask whose fault it was, and decide."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Final, Protocol

from msgspec import Struct

from faultlens.clock import SECOND_MS, moment_of
from faultlens.codec import Decoder, Event
from faultlens.errors import InvalidEventError, WorldError
from faultlens.events import JobAttributed, JobCheckpoint, JobProgress, Stalled
from faultlens.topics import TYPES
from producers.launcher import flight, telling
from producers.launcher.identity import Identity, excluding
from producers.launcher.process import Run
from producers.launcher.retrying import Decision, decide
from producers.launcher.telling import Ending
from producers.launcher.watching import Watch

ALIVE_EVERY_S: Final = 60.0
# Half of the ten minutes after which collectives time out.
STALL_AFTER_S: Final = 300.0
_FROM_TRAINING: Final = {name: kind for name, kind in TYPES.items() if kind.data in (JobProgress, JobCheckpoint)}


class Sink(Protocol):
    """Where events go; an outbox is one."""

    def put(self, event: Event) -> None: ...


class Judge(Protocol):
    """Who says whose fault it was."""

    def tell(self, event: Event) -> None:
        """Hear what everybody hears."""

    def verdict(self, job_id: str, attempt: int) -> JobAttributed | None:
        """Return the verdict on a failed attempt; None: none came in time."""


class Queue(Protocol):
    """The scheduler that started the job, and starts it again. `restarts`: how often it did already."""

    restarts: int

    def again(self, exclude: Sequence[str]) -> None:
        """Put the job back, away from these nodes. WorldError: it cannot be."""


class Options(Struct, frozen=True, kw_only=True):
    """What was asked for: how many retries, and whether the job's own events are told or only this rank's exit.

    `stall_after_s`: without progress for so long it is told to be stalled, once there was some; `pattern`: what in its
    output is progress.
    """

    retries: int = 0
    job_events: bool = True
    alive_every_s: float = ALIVE_EVERY_S
    stall_after_s: float = STALL_AFTER_S
    pattern: re.Pattern[str] | None = None


class Launcher:
    """Runs a command as a rank of a job. `say`: what a person is told, a line at a time."""

    def __init__(  # noqa: PLR0913 - who, what, and everything from outside
        self,
        who: Identity,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        options: Options,
        sink: Sink,
        judge: Judge,
        now_ms: Callable[[], int],
        say: Callable[[str], None],
        queue: Queue | None = None,
    ) -> None:
        self._who = who
        self._command = command
        self._environment = environment
        self._options = options
        self._sink = sink
        self._judge = judge
        self._now_ms = now_ms
        self._say = say
        self._queue = queue
        self._decode = Decoder(_FROM_TRAINING).decode
        self._tells_job = options.job_events and who.is_first
        self._alive_ms = 0
        self._progress_ms: int | None = None
        self._stalled: Stalled | None = None
        self._checkpoint: int | None = None
        self._causes: list[str] = []
        self.unreadable = 0

    def run(self) -> Ending:
        """Run the command, again as long as the verdicts say so, and return how the last attempt ended."""
        attempt = self._who.attempt
        exclude: tuple[str, ...] = ()
        if self._tells_job:
            self._tell(telling.submitted(self._who, self._now_ms()))
        for retries_left in range(self._options.retries, -1, -1):
            ending = self._attempt(attempt, exclude)
            self._tell(telling.rank_exited(self._who, attempt, ending))
            decision = self._decide(attempt, ending, retries_left)
            if not decision.again or self._is_put_back(decision):
                return ending
            attempt, exclude = attempt + 1, decision.exclude
        raise AssertionError("the last attempt decides")

    def _is_put_back(self, decision: Decision) -> bool:
        """Return whether a scheduler runs it again; if it will not, nobody does, since attempts are its to count."""
        if self._queue is None:
            return False
        try:
            self._queue.again(decision.exclude)
        except WorldError as error:
            self._say(f"it could not be put back into the queue: {error}")
        return True

    def _attempt(self, attempt: int, exclude: Sequence[str]) -> Ending:
        who = {"FAULTLENS_JOB_ID": self._who.job_id, "FAULTLENS_ATTEMPT": str(attempt)}
        if self._checkpoint is not None:
            who["FAULTLENS_CHECKPOINT_STEP"] = str(self._checkpoint)
        self._progress_ms, self._stalled = None, None
        run = Run(
            self._command,
            {**self._environment, **excluding(exclude), **who},
            now_ms=self._now_ms,
            told=self._take_progress,
            tick=lambda: self._sign_of_life(attempt),
            watch=self._watching(attempt),
        )
        if self._tells_job:
            self._tell(telling.allocated(self._who, attempt, self._now_ms()))
            self._tell(telling.started(self._who, attempt, self._now_ms()))
        self._alive_ms = self._now_ms()
        return run.run()

    def _decide(self, attempt: int, ending: Ending, retries_left: int) -> Decision:
        """Tell how the attempt ended and decide what comes next; a job that is not ours to tell of is not retried."""
        if not self._tells_job:
            return Decision(False, "another tells of the job")
        # The next attempt's number is said with the end, before anybody knows whether there will be one.
        self._tell(telling.ended(self._who, attempt, ending, None))
        verdict = None
        if telling.outcome_of(ending) == "failed":
            verdict = self._judge.verdict(self._who.job_id, attempt)
        self._causes.append("" if verdict is None else verdict.cause.code)
        alike = len(list(takewhile(lambda code: code == self._causes[-1] != "", reversed(self._causes))))
        if self._queue is not None:
            retries_left -= self._queue.restarts
        here = self._who.node if self._queue is None else None
        decision = decide(ending, verdict, retries_left=retries_left, here=here, alike=alike)
        if not ending.succeeded:
            self._say(_told(attempt, ending, verdict, decision))
        return decision

    def _watching(self, attempt: int) -> Callable[[int, bytes], None]:
        """Return what looks for progress in the output; nothing does where no pattern was given."""
        pattern = self._options.pattern
        if pattern is None or not self._tells_job:
            return lambda stream, data: None
        watch = Watch(pattern, self._who, self._tell_progress, self._now_ms)
        return lambda stream, data: watch.feed(stream, data, attempt)

    def _sign_of_life(self, attempt: int) -> None:
        if not self._tells_job:
            return
        now_ms, every_s = self._now_ms(), self._options.alive_every_s
        stalled_anew = self._stalled is None and self._looks_stalled(now_ms)
        if stalled_anew or now_ms - self._alive_ms >= every_s * SECOND_MS:
            self._alive_ms = now_ms
            self._stalled = self._recorded() if self._looks_stalled(now_ms) else None
            self._tell(telling.alive(self._who, attempt, now_ms, every_s, self._stalled))

    def _looks_stalled(self, now_ms: int) -> bool:
        last_ms = self._progress_ms
        return last_ms is not None and now_ms - last_ms >= self._options.stall_after_s * SECOND_MS

    def _recorded(self) -> Stalled:
        """Return since when it is stalled, and the ranks that flight recorders show absent, where they are configured.

        Dumps are asked for each time, and those that are there by then are read the next time.
        """
        since = moment_of(self._progress_ms or 0)
        place = flight.place_of(self._environment)
        if place is None:
            return Stalled(since)
        suspects = flight.suspects(flight.read_dumps(place), self._who.ranks)
        flight.ask_for_dumps(self._environment, self._who.ranks)
        return Stalled(since, suspects)

    def _take_progress(self, line: bytes) -> None:
        """Pass on what the training says of itself; what is no such event is counted and dropped."""
        try:
            event = self._decode(line)
        except InvalidEventError:
            self.unreadable += 1
            return
        if event.subject == self._who.job_id:
            if isinstance(event.data, JobCheckpoint) and event.data.ok:
                self._checkpoint = event.data.step
            self._tell_progress(event)
        else:
            self.unreadable += 1

    def _tell_progress(self, event: Event) -> None:
        self._progress_ms = max(self._progress_ms or 0, event.time_ms)
        self._tell(event)

    def _tell(self, event: Event) -> None:
        self._sink.put(event)
        self._judge.tell(event)


def _told(attempt: int, ending: Ending, verdict: JobAttributed | None, decision: Decision) -> str:
    how = f"signal {ending.signal}" if ending.signal is not None else f"exit code {ending.exit_code}"
    blamed = (
        ""
        if verdict is None or decision.why.startswith(verdict.cause.cause_class)
        else (f"; {verdict.cause.cause_class} is to blame ({verdict.cause.code}, {verdict.basis})")
    )
    again = "it is run again" if decision.again else "it is not run again"
    return f"attempt {attempt} ended with {how}{blamed}: {again}, since {decision.why}"
