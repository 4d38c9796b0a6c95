"""Attempt after attempt: tell, run, tell how it ended, ask whose fault it was, and decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct

from faultlens.clock import SECOND_MS, moment_of
from faultlens.codec import Event
from faultlens.errors import WorldError
from faultlens.events import JobAttributed, Stalled
from producers.launcher import flight, telling
from producers.launcher.handover import Handover
from producers.launcher.hearing import Hearing, Saved
from producers.launcher.identity import Identity, excluding
from producers.launcher.lookout import Lookout
from producers.launcher.process import ENDING, ENDING_A_RANK, Run
from producers.launcher.retrying import Decision, Here, decide, settled
from producers.launcher.telling import Ending
from producers.launcher.watching import Watch

ALIVE_EVERY_S: Final = 60.0
# Half of the ten minutes after which collectives time out.
STALL_AFTER_S: Final = 300.0


class Sink(Protocol):
    """Where events go; an outbox is one."""

    def put(self, event: Event) -> None: ...


class Judge(Protocol):
    """Who says whose fault it was."""

    def tell(self, event: Event) -> None:
        """Hear what everybody hears."""

    def verdict(self, job_id: str, attempt: int, *, decides: bool) -> JobAttributed | None:
        """Return the verdict on a failed attempt; None: none came in time. One that `decides` is worth a wait."""


class Queue(Protocol):
    """The scheduler that started the job, and starts it again. `restarts`: how often it did already."""

    restarts: int

    def again(self, exclude: Sequence[str]) -> None:
        """Put the job back, away from these nodes. WorldError: it cannot be."""


class Options(Struct, frozen=True, kw_only=True):
    """What was asked for: how many retries, and whether the job's own events are told or only this rank's exit.

    `retry_anyway`: whatever the verdict says. `stall_after_s`: without progress for so long it is told to be stalled,
    once there was some; `steps` and `saves`: what is progress and what a saved checkpoint, in its output or in what is
    added to `progress_file`; `job_state`: a folder that all nodes see, where checkpoints are left for attempts that
    another launcher starts.
    """

    retries: int = 0
    retry_anyway: bool = False
    job_events: bool = True
    alive_every_s: float = ALIVE_EVERY_S
    stall_after_s: float = STALL_AFTER_S
    steps: Any = None
    saves: Any = None
    progress_file: Path | None = None
    job_state: Path | None = None


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
        self._handover = None if options.job_state is None else Handover(options.job_state, who.job_id, say)
        self._hearing = self._made_hearing()
        self._tells_job = options.job_events and who.is_first
        self._alive_ms = 0
        self._is_untold = False
        self._stalled: Stalled | None = None
        self._causes: list[str] = []

    def _made_hearing(self) -> Hearing:
        """Return what listens to the training. The first rank's checkpoints are the job's; all may go on from them.

        A first attempt goes on from nothing: Slurm gives ids out again.
        """
        sizes, over = self._options.job_events, self._handover
        if over is None:
            return Hearing(self._who, self._tell, tells_sizes=sizes)
        saved = over.read() if self._who.attempt > 1 else None
        kept = over.keep if self._who.is_first else _nobody
        return Hearing(self._who, self._tell, tells_sizes=sizes, saved=saved, kept=kept)

    def run(self) -> Ending:
        """Run the command, again as long as the verdicts say so, and return how the last attempt ended."""
        ending = self._run()
        if self._handover is not None:
            self._handover.close(is_done=ending.succeeded and self._who.is_first)
        return ending

    def _run(self) -> Ending:
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
        saved = self._hearing.saved.environment() if self._hearing.saved is not None else {}
        self._hearing.begin()
        self._stalled = None
        lookout = self._lookout(attempt)
        run = Run(
            self._command,
            {**self._environment, **excluding(exclude), **saved, **who},
            now_ms=self._now_ms,
            told=self._hearing.line,
            tick=lambda: self._tick(lookout, attempt),
            watch=lookout.printed,
            # srun passes on what somebody asked Slurm for, whose own word goes before ours.
            wishes=ENDING_A_RANK if self._who.under in ("torchrun", "mpirun") else ENDING,
        )
        if self._tells_job:
            self._tell(telling.allocated(self._who, attempt, self._now_ms()))
            self._tell(telling.started(self._who, attempt, self._now_ms()))
        self._alive_ms = self._now_ms()
        try:
            return run.run()
        finally:
            lookout.close()

    def _lookout(self, attempt: int) -> Lookout:
        """Return what looks for progress, on the rank that tells of the job."""
        asked = self._options if self._tells_job else Options()
        hearing = self._hearing
        patterns = {"steps": asked.steps, "saves": asked.saves}
        watch = Watch(self._who, attempt, told=hearing.event, now_ms=self._now_ms, **patterns)
        return Lookout(watch, asked.progress_file)

    def _tick(self, lookout: Lookout, attempt: int) -> None:
        lookout.look()
        self._sign_of_life(attempt)

    def _decide(self, attempt: int, ending: Ending, retries_left: int) -> Decision:
        """Tell how the attempt ended and decide what comes next; a job that is not ours to tell of is not retried."""
        if not self._tells_job:
            return Decision(False, "another tells of the job")
        # The next attempt's number is said with the end, before anybody knows whether there will be one.
        self._tell(telling.ended(self._who, attempt, ending, None))
        if self._queue is not None:
            retries_left -= self._queue.restarts
        verdict = None
        if telling.outcome_of(ending) == "failed":
            decides = settled(ending, retries_left, self._here()) is None and not self._options.retry_anyway
            verdict = self._judge.verdict(self._who.job_id, attempt, decides=decides)
        self._causes.append("" if verdict is None else verdict.cause.code)
        alike = len(list(takewhile(lambda code: code == self._causes[-1] != "", reversed(self._causes))))
        decision = decide(
            ending,
            verdict,
            retries_left=retries_left,
            alike=alike,
            here=self._here(),
            anyway=self._options.retry_anyway,
        )
        if not ending.succeeded:
            self._say(_told(attempt, ending, verdict, decision))
        return decision

    def _here(self) -> Here | None:
        """Return what keeps a next attempt to this place; None: a scheduler starts it."""
        return Here(self._who.node, self._who.under) if self._queue is None else None

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
        last_ms = self._hearing.progress_ms
        return last_ms is not None and now_ms - last_ms >= self._options.stall_after_s * SECOND_MS

    def _recorded(self) -> Stalled:
        """Return since when it is stalled, and the ranks that flight recorders show absent, where they are configured.

        Dumps are asked for each time, and those that are there by then are read the next time.
        """
        since = moment_of(self._hearing.progress_ms or 0)
        place = flight.place_of(self._environment)
        if place is None:
            return Stalled(since)
        suspects = flight.suspects(flight.read_dumps(place), self._who.ranks)
        flight.ask_for_dumps(self._environment, self._who.ranks)
        return Stalled(since, suspects)

    def _tell(self, event: Event) -> None:
        """Tell the event; a file that takes none (a full disk) ends no job."""
        try:
            self._sink.put(event)
        except WorldError as error:
            if not self._is_untold:
                self._say(f"what is told of this job is lost: {error}")
            self._is_untold = True
        self._judge.tell(event)


def _nobody(_saved: Saved) -> None:
    """Leave to the first rank what is said of the job's checkpoints."""


def _told(attempt: int, ending: Ending, verdict: JobAttributed | None, decision: Decision) -> str:
    how = f"signal {ending.signal}" if ending.signal is not None else f"exit code {ending.exit_code}"
    blamed = (
        ""
        if verdict is None or decision.why.startswith(verdict.cause.cause_class)
        else (f"; {verdict.cause.cause_class} is to blame ({verdict.cause.code}, {verdict.basis})")
    )
    again = "it is run again" if decision.again else "it is not run again"
    return f"attempt {attempt} ended with {how}{blamed}: {again}, since {decision.why}"
