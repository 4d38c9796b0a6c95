"""How right verdicts are, against failures whose true cause is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from faultlens.causes import CAUSE_CLASSES, CauseClass
from faultlens.clock import ms_of
from faultlens.events import Basis
from faultlens.truth import Truth

NO_VERDICT: Final = "no verdict"
BINS: Final = 10


class Key(NamedTuple):
    """What a verdict is about: an attempt, or (`loss` above 0) a loss that it survived."""

    job_id: str
    attempt: int
    loss: int = 0

    def __str__(self) -> str:
        return f"{self.job_id}/{self.attempt}" + (f" loss {self.loss}" if self.loss else "")


class Verdict(Struct, frozen=True):
    """The verdict in force on a failure. `settled`: it is final or amended.

    `first_said_ms` is the event time of the first one of any status; `confidence` is between 0 and 1.
    """

    key: Key
    cause_class: CauseClass
    code: str
    basis: Basis
    confidence: float
    rule: str
    settled: bool
    first_said_ms: int
    node: str | None = None
    device_index: int | None = None


class Share(Struct, frozen=True):
    """So many of so many; `ratio` is None of nothing."""

    right: int
    total: int

    @property
    def ratio(self) -> float | None:
        """Return right over total."""
        return self.right / self.total if self.total else None


class ClassScore(Struct, frozen=True):
    """Of what was called so, what is so (`precision`); of what is so, what was called so (`recall`)."""

    precision: Share
    recall: Share


class Delay(Struct, frozen=True):
    """Seconds of event time from the end of an attempt to its first verdict, by nearest rank."""

    p50_s: float
    p90_s: float
    p99_s: float


class Score(Struct, frozen=True):
    """Everything that is measured. Accuracies are of failures; one without a verdict counts as wrong.

    `confusion[true class][said class]` counts failures. `code` is right when one code is the other or its general
    case; `node` and `device` are over decidable failures that have a culprit, `node_of_all` and `device_of_all` over
    all that have one. `calibration_error`: see `calibration_error()`.
    """

    failures: int
    decidable: int
    confusion: Mapping[str, Mapping[str, int]]
    by_class: Mapping[str, ClassScore]
    class_of_all: Share
    class_of_decidable: Share
    code: Share
    node: Share
    node_of_all: Share
    device: Share
    device_of_all: Share
    assumed: Share
    calibration_error: float | None
    delay: Delay | None
    by_rule: Mapping[str, Share]
    unsettled: tuple[Key, ...]
    without_failure: tuple[Key, ...]


def key_of(truth: Truth) -> Key:
    """Return what a truth is about."""
    return Key(truth.job_id, truth.attempt, truth.loss or 0)


def score(truths: Iterable[Truth], verdicts: Iterable[Verdict]) -> Score:
    """Compare the verdicts in force with the truth."""
    known = {key_of(truth): truth for truth in truths}
    said = {verdict.key: verdict for verdict in verdicts}
    pairs = [(truth, said.get(key)) for key, truth in known.items()]
    judged = [(truth, verdict) for truth, verdict in pairs if verdict is not None]
    blamed = [(truth, verdict) for truth, verdict in pairs if truth.node is not None]
    nameable = [(truth, verdict) for truth, verdict in blamed if truth.decidable]
    confusion = _confusion(pairs)
    return Score(
        failures=len(pairs),
        decidable=sum(truth.decidable for truth, _ in pairs),
        confusion=confusion,
        by_class={name: _class_score(confusion, name) for name in CAUSE_CLASSES},
        class_of_all=_share(_class_right(*pair) for pair in pairs),
        class_of_decidable=_share(_class_right(*pair) for pair in pairs if pair[0].decidable),
        code=_share(_code_right(*pair) for pair in pairs),
        node=_share(_node_right(*pair) for pair in nameable),
        node_of_all=_share(_node_right(*pair) for pair in blamed),
        device=_share(_device_right(*pair) for pair in nameable if pair[0].device_index is not None),
        device_of_all=_share(_device_right(*pair) for pair in blamed if pair[0].device_index is not None),
        assumed=_share(verdict.basis == "assumed" for _, verdict in judged),
        calibration_error=calibration_error([(v.confidence, _class_right(t, v)) for t, v in judged]),
        delay=_delay([verdict.first_said_ms - ms_of(truth.ended_at) for truth, verdict in judged]),
        by_rule=rule_precision(judged),
        unsettled=tuple(sorted(key for key in known if key not in said or not said[key].settled)),
        without_failure=tuple(sorted(key for key in said if key not in known)),
    )


def rule_precision(judged: Iterable[tuple[Truth, Verdict]]) -> dict[str, Share]:
    """Return by `rule/basis` how many of a rule's verdicts name the right class."""
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for truth, verdict in judged:
        name = f"{verdict.rule}/{verdict.basis}"
        total[name] += 1
        right[name] += _class_right(truth, verdict)
    return {name: Share(right[name], total[name]) for name in sorted(total)}


def calibration_error(answers: Sequence[tuple[float, bool]], bins: int = BINS) -> float | None:
    """Return the expected calibration error of (confidence, right) pairs; None of nothing.

    The pairs are put into bins of equal width by confidence; with n_b of N pairs in bin b, the error is
    sum over b of n_b / N x |share of right ones in b - mean confidence in b| (Guo et al., "On Calibration of Modern
    Neural Networks", ICML 2017). 0: said confidence and observed share agree in every bin.
    """
    if not answers:
        return None
    filled: dict[int, list[tuple[float, bool]]] = {}
    for confidence, right in answers:
        filled.setdefault(min(bins - 1, int(confidence * bins)), []).append((confidence, right))
    gaps = (abs(sum(right for _, right in held) - sum(said for said, _ in held)) for held in filled.values())
    return sum(gaps) / len(answers)


def same_branch(code: str, other: str) -> bool:
    """Whether one cause code is the other or its general case: `gpu.memory` and `gpu.memory.contained` are."""
    return code == other or code.startswith(f"{other}.") or other.startswith(f"{code}.")


def _class_right(truth: Truth, verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.cause_class == truth.cause_class


def _code_right(truth: Truth, verdict: Verdict | None) -> bool:
    return verdict is not None and same_branch(verdict.code, truth.code)


def _node_right(truth: Truth, verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.node == truth.node


def _device_right(truth: Truth, verdict: Verdict | None) -> bool:
    return verdict is not None and _node_right(truth, verdict) and verdict.device_index == truth.device_index


def _share(hits: Iterable[bool]) -> Share:
    counted = Counter(hits)
    return Share(counted[True], counted[True] + counted[False])


def _confusion(pairs: Iterable[tuple[Truth, Verdict | None]]) -> dict[str, dict[str, int]]:
    said_classes = (*CAUSE_CLASSES, NO_VERDICT)
    table: dict[str, dict[str, int]] = {name: dict.fromkeys(said_classes, 0) for name in CAUSE_CLASSES}
    for truth, verdict in pairs:
        table[truth.cause_class][NO_VERDICT if verdict is None else verdict.cause_class] += 1
    return table


def _class_score(confusion: Mapping[str, Mapping[str, int]], name: str) -> ClassScore:
    right = confusion[name][name]
    return ClassScore(
        Share(right, sum(row[name] for row in confusion.values())), Share(right, sum(confusion[name].values()))
    )


def _delay(delays_ms: Sequence[int]) -> Delay | None:
    if not delays_ms:
        return None
    ordered = sorted(delays_ms)
    return Delay(*(_nearest_rank(ordered, share) / 1_000 for share in (0.5, 0.9, 0.99)))


def _nearest_rank(ordered: Sequence[int], share: float) -> int:
    """Return the smallest value that at least this share of all values does not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
