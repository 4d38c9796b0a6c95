"""Rows of Slurm's programs for tests, and what became of them."""

from collections.abc import Sequence

from faultlens.events import JobEnded, NodeFault
from producers.slurm.importing import Export, Imported, import_slurm
from producers.slurm.job_events import Names

T0 = 1_795_954_000
HEADER = "JobID|JobName|User|UID|Account|State|ExitCode|NodeList|Submit|Start|End|AllocTRES|ReqTRES|Reason|SubmitLine"
EVENTS_HEADER = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"
SBATCH = "sbatch train.sh"
GPUS = "cpu=1,gres/gpu:h100=8,gres/gpu=8,node=1"
NODE = "NodeName=node1 Arch=x86_64\n   Gres=gpu:h100:8(S:0-1)\n   Partitions=batch,spot \n   BootTime=1795950674\n"


def stamp(at: int | None) -> str:
    return "Unknown" if at is None else str(T0 + at)


def run(
    job: str,
    state: str,
    at: tuple[int, int | None, int | None],
    *,
    exit_: str = "0:0",
    nodes: str = "node1",
    tres: str = GPUS,
    reason: str = "None",
) -> str:
    times = "|".join(map(stamp, at))
    return f"{job}|train|ann|5|lab|{state}|{exit_}|{nodes}|{times}|{tres}|{tres}|{reason}|{SBATCH}"


def outage(node: str, at: tuple[int, int | None], state: str, reason: str, user: str = "slurm(64030)") -> str:
    return f"c|{node}|{stamp(at[0])}|{stamp(at[1])}|{state}|{reason}|{user}"


def imported(
    rows: Sequence[str], outages: Sequence[str] | None = (), *, config: str = "", nodes: str = "", jobs: str = ""
) -> Imported:
    export = Export(
        sacct=[HEADER, *rows],
        events=None if outages is None else [EVENTS_HEADER, *outages],
        jobs=jobs.splitlines() or None,
        config=config.splitlines() or None,
        nodes=nodes.splitlines() or None,
    )
    return import_slurm(export, Names("c1"))


def ends(result: Imported) -> list[JobEnded]:
    return [event.data for event in result.events if isinstance(event.data, JobEnded)]


def end_and_time(result: Imported) -> tuple[str, int]:
    [(end, at_ms)] = [(event.data, event.time_ms) for event in result.events if isinstance(event.data, JobEnded)]
    return end.outcome, at_ms // 1000 - T0


def the_end(rows: Sequence[str], outages: Sequence[str] | None = ()) -> JobEnded:
    [end] = ends(imported(rows, outages))
    return end


def faults(result: Imported) -> list[tuple[str, str, int, int]]:
    return [
        (event.subject, event.data.code, event.time_ms // 1000 - T0, (event.recorded_ms or 0) // 1000 - T0)
        for event in result.events
        if isinstance(event.data, NodeFault)
    ]


def step(
    job: str, name: str, state: str, at: tuple[int, int | None], *, exit_: str = "0:0", nodes: str = "node1"
) -> str:
    return run(f"{job}.{name}", state, (at[0], *at), exit_=exit_, nodes=nodes)
