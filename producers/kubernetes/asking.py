"""What makes pods: how many it asks for, and what each of them holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from faultlens.codec import stable_id
from producers.kubernetes.objects import Work
from producers.kubernetes.words import accelerators_in

Template = tuple[int, dict[str, Any]]


class Asked(Struct, frozen=True):
    """What an owner asks for: pods, accelerators by number, whether devices by claims, and the first image.

    `pods_each`: how many pods one of its replicas consists of. `priority`: a pod's, as an owner only names its class.
    """

    pods: int
    gpus: int
    claims: bool
    image: str | None
    spec_hash: str
    pods_each: int = 1
    priority: int | None = None


def asked_for(work: Work) -> Asked:
    """Return what an owner asks for, by its specification."""
    pods = gpus = 0
    claims, image = False, None
    for count, template in templates_of(work.kind, work.spec):
        containers = _list(_dict(template.get("spec")).get("containers"))
        pods += count
        gpus += count * sum(accelerators_in(_limits(container)) for container in containers)
        claims = claims or bool(_dict(template.get("spec")).get("resourceClaims"))
        image = image or next((str(c["image"]) for c in containers if c.get("image")), None)
    each = _count(_dict(work.spec.get("leaderWorkerTemplate")), "size")
    return Asked(pods, gpus, claims, image, stable_id(repr(work.spec)), max(1, each))


def templates_of(kind: str, spec: Mapping[str, Any]) -> Iterator[Template]:
    """Yield the pod templates in an owner's specification, with how many pods are made of each at a time."""
    if kind in _TEMPLATES:
        yield from _TEMPLATES[kind](spec)
    elif "template" in spec:
        yield _count(spec, "replicas"), _dict(spec.get("template"))
    else:
        # The training operator's: pytorchReplicaSpecs, mpiReplicaSpecs …, by the replicas' role.
        for name, roles in spec.items():
            for role in _dict(roles).values() if name.endswith("ReplicaSpecs") else ():
                yield _count(_dict(role), "replicas"), _dict(_dict(role).get("template"))


def _of_job(spec: Mapping[str, Any]) -> Iterator[Template]:
    count = _count(spec, "parallelism")
    yield min(count, _count(spec, "completions", count)), _dict(spec.get("template"))


def _of_jobset(spec: Mapping[str, Any]) -> Iterator[Template]:
    for group in _list(spec.get("replicatedJobs")):
        for count, template in _of_job(_dict(_dict(group.get("template")).get("spec"))):
            yield _count(group, "replicas") * count, template


def _of_train_job(spec: Mapping[str, Any]) -> Iterator[Template]:
    """Yield what a TrainJob itself says; the rest is its runtime's."""
    trainer = _dict(spec.get("trainer"))
    container = {"image": trainer.get("image"), "resources": _dict(trainer.get("resourcesPerNode"))}
    yield _count(trainer, "numNodes"), {"spec": {"containers": [container]}}


def _of_ray(spec: Mapping[str, Any]) -> Iterator[Template]:
    """Yield a Ray cluster's head, and as many workers as it begins with where it grows by itself."""
    if "headGroupSpec" in spec:
        yield 1, _dict(_dict(spec.get("headGroupSpec")).get("template"))
    for group in _list(spec.get("workerGroupSpecs")):
        replicas = _count(group, "replicas", _count(group, "minReplicas", 0))
        yield replicas * _count(group, "numOfHosts"), _dict(group.get("template"))


def _of_leader_workers(spec: Mapping[str, Any]) -> Iterator[Template]:
    """Yield the leaders and the workers of all groups; a leader that is not described is like a worker."""
    groups, parts = _count(spec, "replicas"), _dict(spec.get("leaderWorkerTemplate"))
    worker = _dict(parts.get("workerTemplate"))
    yield groups, _dict(parts.get("leaderTemplate")) or worker
    yield groups * (_count(parts, "size") - 1), worker


_TEMPLATES: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[Template]]]] = {
    "Job": _of_job,
    "JobSet": _of_jobset,
    "TrainJob": _of_train_job,
    "RayJob": lambda spec: _of_ray(_dict(spec.get("rayClusterSpec"))),
    "RayService": lambda spec: _of_ray(_dict(spec.get("rayClusterConfig"))),
    "RayCluster": _of_ray,
    "LeaderWorkerSet": _of_leader_workers,
}


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _count(spec: Mapping[str, Any], name: str, default: int = 1) -> int:
    value = spec.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _limits(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = _dict(container.get("resources"))
    return {**_dict(resources.get("requests")), **_dict(resources.get("limits"))}
