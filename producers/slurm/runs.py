"""One run of a Slurm job, and its steps, as accounting has them."""

from __future__ import annotations

from typing import Final, NamedTuple

from producers.slurm.states import Exit, JobState

BATCH: Final = "batch"
EXTERN: Final = "extern"


class Step(NamedTuple):
    """A step: the script (`batch`), the shell that waits beside it (`extern`), or what srun started (`0`, `1`)."""

    name: str
    state: JobState
    exit: Exit | None
    nodes: tuple[str, ...]
    start_ms: int | None
    end_ms: int | None


class Run(NamedTuple):
    """One run of a job. Times are milliseconds; None where accounting knows none.

    `exit` is as sacct has it, without the bit that it drops. `waited_for` is the reason that the run last waited for,
    never why it ended. `gpus_held` is None where the export does not say. `steps` is empty when it left them out.
    `recorded` is False of a run that only the controller knows of.
    """

    job_id: str
    state: JobState
    exit: Exit | None
    nodes: tuple[str, ...]
    submit_ms: int
    start_ms: int | None
    end_ms: int | None
    line: int
    raw_id: str = ""
    derived: Exit | None = None
    user: str | None = None
    uid: int | None = None
    account: str | None = None
    name: str | None = None
    partition: str | None = None
    priority: float | None = None
    gpus_wanted: int = 0
    gpus_held: int | None = None
    nodes_wanted: int = 0
    waited_for: str | None = None
    submit_line: str = ""
    remarks: tuple[str, ...] = ()
    record: str = ""
    time_limit: str = ""
    memory: str = ""
    recorded: bool = True
    steps: tuple[Step, ...] = ()

    @property
    def user_steps(self) -> tuple[Step, ...]:
        """The steps that run what the user wrote."""
        return tuple(step for step in self.steps if step.name != EXTERN)

    @property
    def was_launched(self) -> bool:
        """Whether some process of the user was surely started, by what is known of the steps."""
        user_steps = self.user_steps
        if user_steps:
            return any(step.exit is not None for step in user_steps)
        return any(step.exit is not None for step in self.steps)

    @property
    def vanished_steps(self) -> tuple[Step, ...]:
        """The user's steps that ended without anybody seeing how."""
        return tuple(step for step in self.user_steps if step.exit is None and step.end_ms is not None)

    @property
    def is_unsettled(self) -> bool:
        """Whether accounting has not heard yet of the run itself, or how one of the user's steps ended.

        When the job is over, sacct shows such a step with the state and the end of its job, and no exit code of its own
        (as_mysql_jobacct_process.c: "if the job has ended end the step also").
        """
        heard_of_all = all(step.end_ms is not None and not self._lends_its_end_to(step) for step in self.user_steps)
        return not (self.recorded and heard_of_all)

    def _lends_its_end_to(self, step: Step) -> bool:
        has_exit = step.exit is None or not step.exit.clean
        same = (step.state.name, step.end_ms) == (self.state.name, self.end_ms)
        return same and not has_exit and step.state.name != "COMPLETED"

    @property
    def ran_ms(self) -> int:
        """How long it held its nodes, 0 if it never did or still does."""
        if self.start_ms is None or self.end_ms is None:
            return 0
        return max(0, self.end_ms - self.start_ms)
