"""Which job, attempt and rank this process is, by what schedulers and launchers put into its environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from faultlens.events import Slot, Workload
from faultlens.progress import named_job
from producers.slurm.node_lists import NodeListError, expand

Runner = Literal["torchrun", "mpirun", "srun"]
# By falling precision: torchrun's and ours, Slurm's, Open MPI's, MPICH's and Intel MPI's; and which node it is on, by
# what torchrun takes for its option `--node-rank` (Kubeflow's operators set it).
_RANK: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PET_NODE_RANK")
_WORLD: Final = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_RANKS_HERE: Final = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
_DEVICES: Final = ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "GPU_DEVICE_ORDINAL")
_RUNNERS: Final[Mapping[str, Runner]] = {
    "TORCHELASTIC_RUN_ID": "torchrun", "OMPI_COMM_WORLD_RANK": "mpirun", "SLURM_PROCID": "srun", "PMI_RANK": "mpirun",
}  # fmt: skip
# What a cluster is called that nobody named.
NO_CLUSTER: Final = "local"
_USER: Final = ("SLURM_JOB_USER", "USER", "LOGNAME")


class Identity(Struct, frozen=True, kw_only=True):
    """`nodes`: all of the job's, as far as the scheduler names them; `devices`: of this node, None if not said.

    `ranks_here`: how many of the ranks are on each node, where that is said. `under`: what runs the ranks together, and
    ends all of them when one fails.
    """

    job_id: str
    attempt: int
    rank: int
    ranks: int
    node: str
    cluster: str
    nodes: tuple[str, ...]
    devices: tuple[int, ...] | None
    user: str | None = None
    team: str | None = None
    name: str | None = None
    workload: Workload = "batch"
    under: Runner | None = None
    ranks_here: int | None = None

    @property
    def is_first(self) -> bool:
        """Whether this rank tells what concerns the whole job."""
        return self.rank == 0

    def allocation(self) -> tuple[Slot, ...]:
        """Return what the job holds, as the first rank knows it; of other nodes it is not known which devices."""
        width = self.ranks_here or max(1, self.ranks // max(1, len(self.nodes)))
        return tuple(
            Slot(node, self.devices if node == self.node else None, ranks=self._ranks(number, width))
            for number, node in enumerate(self.nodes)
        )

    def _ranks(self, number: int, width: int) -> tuple[int, ...]:
        return tuple(range(number * width, min(self.ranks, (number + 1) * width)))


def identity_of(environment: Mapping[str, str], *, node: str, cluster: str | None, fresh_id: str) -> Identity:
    """Return who we are. A process that no scheduler started is a job of its own, named `fresh_id`, with one rank.

    `cluster`: as it was named to us; None: as Slurm calls it, and otherwise `local`.
    """
    job_id, attempt = named_job(environment)
    ranks = _number(environment, _WORLD) or 1
    node = environment.get("SLURMD_NODENAME") or node
    return Identity(
        job_id=job_id or fresh_id,
        attempt=attempt,
        rank=_number(environment, _RANK) or 0,
        ranks=ranks,
        node=node,
        cluster=cluster or environment.get("SLURM_CLUSTER_NAME") or NO_CLUSTER,
        nodes=_nodes(environment, node),
        devices=_devices(environment),
        user=next((environment[name] for name in _USER if environment.get(name)), None),
        team=environment.get("SLURM_JOB_ACCOUNT") or None,
        name=environment.get("SLURM_JOB_NAME") or None,
        workload="training" if ranks > 1 else "batch",
        ranks_here=_number(environment, _RANKS_HERE),
        under=next((runner for name, runner in _RUNNERS.items() if environment.get(name)), None) if ranks > 1 else None,
    )


def _nodes(environment: Mapping[str, str], node: str) -> tuple[str, ...]:
    """Return the job's nodes, this one among them: a list that does not name it is not believed."""
    listed = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or ""
    try:
        nodes = expand(listed)
    except NodeListError:
        return (node,)
    return nodes if node in nodes else (node,)


def _devices(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return the indices of this node's devices; None where they are named otherwise (UUIDs, MIG) or not at all."""
    for name in _DEVICES:
        parts = [part.strip() for part in environment.get(name, "").split(",") if part.strip()]
        if parts and all(part.isascii() and part.isdigit() for part in parts):
            return tuple(sorted({int(part) for part in parts}))
    return None


def _number(environment: Mapping[str, str], names: Sequence[str]) -> int | None:
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return None


def excluding(nodes: Sequence[str]) -> dict[str, str]:
    """Return the variables that tell whatever starts the next attempt which nodes to keep away from."""
    return {"FAULTLENS_EXCLUDE_NODES": ",".join(nodes), "SBATCH_EXCLUDE": ",".join(nodes)} if nodes else {}
