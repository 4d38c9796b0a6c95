"""The jobs that people submit: how big, how long, by whom, and what is wrong with them."""

from __future__ import annotations

from random import Random
from typing import Final

from producers.simulation.chance import happens, pick, skewed
from producers.simulation.fleet import hex_of
from producers.simulation.model import Fate, Job, Reporter
from producers.simulation.tables import UserFaultKind, Work
from producers.simulation.world import World

TEAMS: Final = ("llm", "vision", "speech", "ads", "bio", "robotics", "search", "infra-eval")
USERS_PER_TEAM: Final = 12
_SHARE_OF_POOL: Final = 0.4
_PRIORITIES: Final = {10.0: 40, 50.0: 50, 90.0: 10}
_NAMES: Final = ("pretrain", "sft", "ablation", "sweep", "eval", "distill", "rlhf", "embed", "detector", "asr", "dpo")


def draw_job(world: World, at_ms: int) -> Job:
    """Return a job that somebody submits now, with the fate it would have on a fleet that never fails."""
    rng, work = world.chances.jobs, world.mix.work
    pool = rng.choice(world.fleet).pool
    gpus = _fitting(world, int(pick(rng, work.gpus)), world.pools[pool])
    reporter = pick(rng, work.reporters)
    number = world.count("jobs")
    team = rng.choice(TEAMS)
    per_node = world.shape.gpus_per_node
    work_s = min(work.hours_limit * 3_600, max(120.0, skewed(rng, work.hours_median * 3_600, work.hours_spread)))
    job = Job(
        _job_id(reporter, team, number, rng),
        f"{team}-u{rng.randrange(USERS_PER_TEAM):02d}",
        team,
        rng.choice(_NAMES),
        pick(rng, work.workloads),
        pool,
        gpus,
        -(-gpus // per_node),
        pick(rng, _PRIORITIES),
        _image(team, rng),
        f"sha256:{hex_of(rng, 16)}",
        reporter,
        work_s,
        max(0.4, skewed(rng, 6.0, 0.9)),
        rng.uniform(1_200, 3_600),
        Fate("succeeds", work_s),
        _restarts(gpus, rng),
        elastic=gpus >= 4 * per_node and happens(rng, work.elastic),
        queued_ms=at_ms,
    )
    job.fate = _fate(world, job, work)
    if job.workload == "inference":
        _serve(job, per_node, rng)
    return job


def arrivals_per_day(world: World) -> float:
    """Return how many jobs a day keep the fleet as busy as the mix says, were nothing to fail."""
    work = world.mix.work
    total = sum(work.gpus.values())
    mean_gpus = sum(
        nodes / len(world.fleet) * weight / total * _fitting(world, int(gpus), nodes)
        for nodes in world.pools.values()
        for gpus, weight in work.gpus.items()
    )
    rng = Random(0)  # noqa: S311 - a fixed estimate of the mean of a clipped log-normal
    draws = [min(work.hours_limit, skewed(rng, work.hours_median, work.hours_spread)) for _ in range(2_000)]
    fleet_gpus = world.shape.nodes * world.shape.gpus_per_node
    return work.utilisation * fleet_gpus * 24 * len(draws) / (mean_gpus * sum(draws))


def _fitting(world: World, gpus: int, nodes_of_pool: int) -> int:
    """Return the size that a job of so many GPUs has in a pool: none wants more than a fair share of it."""
    per_node = world.shape.gpus_per_node
    most = max(per_node, int(nodes_of_pool * _SHARE_OF_POOL) * per_node)
    return gpus if gpus <= most else per_node


def _serve(job: Job, per_node: int, rng: Random) -> None:
    """Make a job a service: some replicas, each an attempt of its own, until somebody takes it down."""
    job.gpus, job.nodes, job.elastic = min(job.gpus, per_node), 1, False
    job.replicas = rng.randint(1, 4)
    if job.fate.kind in {"succeeds", "time_limit"}:
        job.fate = Fate("cancelled", job.work_s)


def _job_id(reporter: Reporter, team: str, number: int, rng: Random) -> str:
    match reporter:
        case "slurm":
            return f"{400_000 + number}"
        case "kubernetes":
            return f"{team}/{rng.choice(_NAMES)}-{number:06d}"
        case "launcher":
            return f"run-{hex_of(rng, 6)}-{number}"


def _image(team: str, rng: Random) -> str:
    tag = f"{rng.randrange(24, 27)}.{rng.randrange(1, 13):02d}"
    return f"registry.example.net/{team}/{rng.choice(('train', 'base', 'serve'))}:{tag}"


def _restarts(gpus: int, rng: Random) -> int:
    if gpus >= 64:
        return 30
    return rng.choice((0, 1, 2, 3)) if gpus >= 8 else rng.choice((0, 0, 1, 2))


def _fate(world: World, job: Job, work: Work) -> Fate:
    rng = world.chances.jobs
    luck = rng.random()
    if luck < work.at_fault:
        name = _user_fault(world, job)
        return Fate("user_fault", _when(world.happenings.user_faults[name], job.work_s, rng), name)
    luck -= work.at_fault
    if luck < work.cancelled:
        return Fate("cancelled", job.work_s * rng.random())
    luck -= work.cancelled
    if luck < work.time_limited:
        return Fate("time_limit", job.work_s)
    return Fate("succeeds", job.work_s)


def _user_fault(world: World, job: Job) -> str:
    faults = world.happenings.user_faults
    fitting = {
        name: weight for name, weight in world.mix.user_faults.items() if job.gpus > 1 or not faults[name].gang_only
    }
    return pick(world.chances.jobs, fitting)


def _when(kind: UserFaultKind, work_s: float, rng: Random) -> float:
    match kind.when:
        case "placed" | "start":
            return rng.uniform(1.0, 25.0)
        case "early":
            return min(work_s, rng.uniform(40.0, 900.0))
        case "any":
            return max(60.0, work_s * rng.random())
