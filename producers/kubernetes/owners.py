"""What stands above a pod: which job it is of, how many workers that asks for, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from faultlens.codec import stable_id
from faultlens.events import Outcome
from producers.kubernetes.objects import Metadata, OwnerReference, Work, condition
from producers.kubernetes.words import OwnerWord, accelerators_in, load_words

_LEVELS_MAX: Final = 8
_DEFAULT: Final = OwnerWord()


class Owner(Struct, frozen=True, kw_only=True):
    """What a job is known by: the uid and name of what stands on top."""

    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def word(self) -> OwnerWord:
        """What pods of such an owner are."""
        return load_words().owners.get(self.kind, _DEFAULT)


class Asked(Struct, frozen=True):
    """What an owner asks for: pods, accelerators by number, whether devices by claims, and the first image."""

    pods: int
    gpus: int
    claims: bool
    image: str | None
    spec_hash: str


class Word(Struct, frozen=True):
    """What an owner's conditions say of its end."""

    outcome: Outcome
    at_ms: int
    reason: str | None
    message: str | None


def owner_of(meta: Metadata, kind: str, known: Mapping[str, Work]) -> Owner:
    """Return what stands on top of an object, as far as is known by uid; the object itself where nothing does."""
    for _ in range(_LEVELS_MAX):
        above = _controller(meta.owner_references)
        if above is None or above.kind in load_words().not_above:
            return _owner(kind, meta.namespace, meta.name, meta.uid)
        work = known.get(above.uid)
        if work is None:
            return _unknown(above, meta)
        meta, kind = work.metadata, work.kind or above.kind
    return _owner(kind, meta.namespace, meta.name, meta.uid)


def _owner(kind: str, namespace: str, name: str, uid: str) -> Owner:
    """Return the owner; a Deployment is known by its name, since its pods name only a ReplicaSet."""
    return Owner(
        kind=kind, namespace=namespace, name=name, uid=f"{kind}/{namespace}/{name}" if kind == "Deployment" else uid
    )


def _controller(references: Sequence[OwnerReference] | None) -> OwnerReference | None:
    listed = references or ()
    return next((one for one in listed if one.controller), listed[0] if listed else None)


def _unknown(above: OwnerReference, meta: Metadata) -> Owner:
    """Return the owner by its reference. A ReplicaSet is named after its Deployment, with a hash behind."""
    hash_ = meta.marks.get("pod-template-hash")
    if above.kind == "ReplicaSet" and hash_ and above.name.endswith(f"-{hash_}"):
        return _owner("Deployment", meta.namespace, above.name.removesuffix(f"-{hash_}"), "")
    return _owner(above.kind, meta.namespace, above.name, above.uid)


# --- what is asked for ---------------------------------------------------------------------------------


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
    return Asked(pods, gpus, claims, image, stable_id(repr(work.spec)))


def templates_of(kind: str, spec: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the pod templates in an owner's specification, with how many pods are made of each at a time."""
    if kind == "JobSet":
        for group in _list(spec.get("replicatedJobs")):
            for count, template in templates_of("Job", _dict(_dict(group.get("template")).get("spec"))):
                yield _count(group, "replicas") * count, template
    elif kind == "Job":
        count = _count(spec, "parallelism")
        yield min(count, _count(spec, "completions", count)), _dict(spec.get("template"))
    elif "template" in spec:
        yield _count(spec, "replicas"), _dict(spec.get("template"))
    else:
        # The training operator's: pytorchReplicaSpecs, mpiReplicaSpecs …, by the replicas' role.
        for name, roles in spec.items():
            for role in _dict(roles).values() if name.endswith("ReplicaSpecs") else ():
                yield _count(_dict(role), "replicas"), _dict(_dict(role).get("template"))


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


# --- how it ended --------------------------------------------------------------------------------------


def end_of(work: Work) -> Word | None:
    """Return what an owner's conditions say of its end; None: it goes on."""
    words = load_words()
    for type_, outcome in words.job_ends.items():
        found = condition(work.status.conditions, type_)
        if found is not None and found.status == "True":
            said: Outcome = words.job_end_reasons.get(found.reason or "", outcome)
            return Word(said, found.since_ms or work.metadata.created_ms, found.reason, found.message)
    return None


def is_suspended(work: Work) -> bool:
    """Return whether a queueing system, or a person, holds it."""
    return work.spec.get("suspend") is True
