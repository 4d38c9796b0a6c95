"""What stands above a pod: which job and attempt it is of, and how that ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from faultlens.clock import parse_moment
from faultlens.events import Outcome
from producers.kubernetes.objects import Metadata, OwnerReference, Work, condition
from producers.kubernetes.words import OwnerWord, first_of, load_words

_LEVELS_MAX: Final = 8
# What is kept of a Job's specification: how many pods it makes.
PODS_EACH: Final = "parallelism"
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


class Word(Struct, frozen=True):
    """What an owner's conditions say of its end."""

    outcome: Outcome
    at_ms: int
    reason: str | None
    message: str | None


class TryWord(Struct, frozen=True):
    """What an owner says of the end of one of its attempts, by the name that the attempt's pods share."""

    group: str
    word: Word


def owner_of(meta: Metadata, kind: str, known: Mapping[str, Work]) -> Owner:
    """Return what stands on top of an object, as far as is known by uid; the object itself where nothing does."""
    for label, named in load_words().owner_labels.items():
        if (name := meta.marks.get(label)) is not None:
            return _owner(named, meta.namespace, name, "")
    for _ in range(_LEVELS_MAX):
        above = _controller(meta.owner_references)
        if above is None or above.kind in load_words().not_above:
            return _owner(kind, meta.namespace, meta.name, meta.uid)
        work = known.get(above.uid)
        if work is None:
            return _unknown(above, meta)
        meta, kind = work.metadata, work.kind or above.kind
    return _owner(kind, meta.namespace, meta.name, meta.uid)


def awaited(meta: Metadata, watched: Collection[str], known: Mapping[str, Work]) -> bool:
    """Return whether something above an object is not known yet, though its kind is watched."""
    if any(label in meta.marks for label in load_words().owner_labels):
        return False
    for _ in range(_LEVELS_MAX):
        above = _controller(meta.owner_references)
        if above is None or above.kind in load_words().not_above:
            return False
        work = known.get(above.uid)
        if work is None:
            return above.kind in watched
        meta = work.metadata
    return False


def pods_each(meta: Metadata, known: Mapping[str, Work]) -> int:
    """Return how many pods the Job has that made this one, as far as it is known."""
    above = _controller(meta.owner_references)
    work = known.get(above.uid) if above is not None else None
    return 1 if work is None else int(work.spec.get(PODS_EACH, 1))


def only_submits(meta: Metadata, known: Mapping[str, Work]) -> bool:
    """Return whether a pod only hands its owner's job to something else, as far as is known of what is above it."""
    above = _controller(meta.owner_references)
    between = known.get(above.uid) if above is not None else None
    top = _controller(between.metadata.owner_references) if between is not None else None
    if above is None or top is None:
        return False
    return load_words().owners.get(top.kind, _DEFAULT).submits_by == above.kind


def _owner(kind: str, namespace: str, name: str, uid: str) -> Owner:
    """Return the owner; some are known by their name, since their pods do not name their uid."""
    by_name = load_words().owners.get(kind, _DEFAULT).by_name
    return Owner(kind=kind, namespace=namespace, name=name, uid=f"{kind}/{namespace}/{name}" if by_name else uid)


def _controller(references: Sequence[OwnerReference] | None) -> OwnerReference | None:
    listed = references or ()
    return next((one for one in listed if one.controller), listed[0] if listed else None)


def _unknown(above: OwnerReference, meta: Metadata) -> Owner:
    """Return the owner by its reference. A ReplicaSet is named after its Deployment, with a hash behind."""
    hash_ = meta.marks.get("pod-template-hash")
    if above.kind == "ReplicaSet" and hash_ and above.name.endswith(f"-{hash_}"):
        return _owner("Deployment", meta.namespace, above.name.removesuffix(f"-{hash_}"), "")
    return _owner(above.kind, meta.namespace, above.name, above.uid)


# --- how it ended --------------------------------------------------------------------------------------


class Group(Struct, frozen=True):
    """Which of its job's attempts a pod is of, where its labels say so: a name that all of its pods share, and how many
    of them there are."""

    name: str = ""
    pods: int | None = None


def group_of(meta: Metadata, word: OwnerWord) -> Group:
    """Return which of its job's attempts a pod is of, as far as it says so itself."""
    if word.group is None:
        return Group(first_of(meta.marks, load_words().generation_labels) or "")
    size = meta.marks.get(word.group_size or "", "")
    return Group(meta.marks.get(word.group, ""), int(size) if size.isascii() and size.isdigit() else None)


def end_of(work: Work) -> Word | None:
    """Return what an owner's conditions say of its end; None: it goes on."""
    words = load_words()
    if work.kind == "RayJob":
        return _end_of_ray(work)
    for type_, outcome in words.job_ends.items():
        found = condition(work.status.conditions, type_)
        if found is not None and found.status == "True":
            said: Outcome = words.job_end_reasons.get(found.reason or "", outcome)
            return Word(said, found.since_ms or work.metadata.created_ms, found.reason, found.message)
    return None


def end_of_try(work: Work) -> TryWord | None:
    """Return what Ray said of a job on its present cluster; None: it goes on there. Another cluster may follow."""
    status, words = work.status, load_words()
    outcome = words.ray_ends.get(str(status.job_status)) if work.kind == "RayJob" else None
    if outcome is None or not status.ray_cluster_name:
        return None
    message = str(status.message) if status.message else None
    said = Word(outcome, work.metadata.created_ms, str(status.reason or status.job_status), message)
    return TryWord(str(status.ray_cluster_name), said)


def _end_of_ray(work: Work) -> Word | None:
    """Return what Ray said of the job; one that it said nothing of has failed, since it could not be run."""
    status, words = work.status, load_words()
    if status.job_deployment_status not in words.ray_deployment_ends:
        return None
    reason = str(status.reason or status.job_status or status.job_deployment_status)
    outcome: Outcome = words.job_end_reasons.get(reason) or words.ray_ends.get(str(status.job_status), "failed")
    try:
        at_ms = parse_moment(str(status.end_time))
    except ValueError:
        at_ms = work.metadata.created_ms
    return Word(outcome, at_ms, reason, str(status.message) if status.message else None)


def is_suspended(work: Work) -> bool:
    """Return whether a queueing system, or a person, holds it."""
    return work.spec.get("suspend") is True
