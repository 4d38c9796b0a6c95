"""A score in words and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from faultlens.causes import CAUSE_CLASSES
from slo.scoring import NO_VERDICT, Key, Score, Share
from slo.wording import NOTHING, percent, printable

KEYS_SHOWN: Final = 5


def as_text(score: Score) -> str:
    """Return the score for people."""
    lines = [
        f"Failures: {score.failures:,}, of which {score.decidable:,} can be decided from what was delivered",
        *_confusion(score),
        *_figures(score),
        *_exceptions("Failures without a final verdict", score.unsettled),
        *_exceptions("Verdicts without a failure", score.without_failure),
    ]
    return "\n".join(lines)


def rules_as_text(by_rule: Mapping[str, Share]) -> str:
    """Return how often each rule names the right class, the most used first."""
    width = max((len(name) for name in by_rule), default=0)
    ordered = sorted(by_rule.items(), key=lambda item: (-item[1].total, item[0]))
    return "\n".join(
        ["Right class by rule and basis:"]
        + [f"  {name:<{width}}  {share.right:>6,} of {share.total:>6,}  {_share(share)}" for name, share in ordered]
    )


def as_json(score: Score) -> dict[str, Any]:
    """Return the score for machines; ratios are numbers from 0 to 1 or null."""
    return {
        "failures": score.failures,
        "decidable": score.decidable,
        "confusion": score.confusion,
        "by_class": {
            name: {"precision": measured.precision.ratio, "recall": measured.recall.ratio}
            for name, measured in score.by_class.items()
        },
        "class_accuracy": score.class_of_all.ratio,
        "class_accuracy_decidable": score.class_of_decidable.ratio,
        "code_accuracy": score.code.ratio,
        "node_accuracy": score.node_of_all.ratio,
        "node_accuracy_decidable": score.node.ratio,
        "device_accuracy": score.device_of_all.ratio,
        "device_accuracy_decidable": score.device.ratio,
        "assumed": score.assumed.ratio,
        "calibration_error": score.calibration_error,
        "delay_s": None
        if score.delay is None
        else {"p50": score.delay.p50_s, "p90": score.delay.p90_s, "p99": score.delay.p99_s},
        "by_rule": {
            name: {"right": share.right, "total": share.total, "precision": share.ratio}
            for name, share in score.by_rule.items()
        },
        "without_final_verdict": [str(key) for key in score.unsettled],
        "verdicts_without_failure": [str(key) for key in score.without_failure],
    }


def _confusion(score: Score) -> list[str]:
    said = (*CAUSE_CLASSES, NO_VERDICT)
    rows = [f"  {'true class':<12}" + "".join(f"{name:>12}" for name in said) + f"{'recall':>10}"]
    for name in CAUSE_CLASSES:
        counts = "".join(f"{score.confusion[name][other]:>12,}" for other in said)
        rows.append(f"  {name:<12}{counts}{_share(score.by_class[name].recall):>10}")
    precisions = "".join(f"{_share(score.by_class[name].precision):>12}" for name in CAUSE_CLASSES)
    return ["Said class by true class:", *rows, f"  {'precision':<12}{precisions}"]


def _figures(score: Score) -> list[str]:
    delay = score.delay
    figures = {
        "Class right, decidable failures": _counted(score.class_of_decidable),
        "Class right, all failures": _counted(score.class_of_all),
        "Code right (same branch)": _counted(score.code),
        "Culprit node right, decidable": _counted(score.node),
        "Culprit node right, all": _counted(score.node_of_all),
        "Culprit device right, decidable": _counted(score.device),
        "Culprit device right, all": _counted(score.device_of_all),
        "Assumed": _counted(score.assumed),
        "Calibration error": NOTHING if score.calibration_error is None else f"{score.calibration_error:.3f}",
        "First verdict after the end": NOTHING
        if delay is None
        else f"p50 {delay.p50_s:.1f} s, p90 {delay.p90_s:.1f} s, p99 {delay.p99_s:.1f} s",
    }
    return [f"{name + ':':<34}{value}" for name, value in figures.items()]


def _exceptions(title: str, keys: Sequence[Key]) -> list[str]:
    shown = ", ".join(printable(str(key), limit=80) for key in keys[:KEYS_SHOWN])
    more = f" and {len(keys) - KEYS_SHOWN:,} more" if len(keys) > KEYS_SHOWN else ""
    return [f"{title + ':':<34}{len(keys):,}" + (f" ({shown}{more})" if keys else "")]


def _counted(share: Share) -> str:
    return f"{_share(share)} ({share.right:,} of {share.total:,})"


def _share(share: Share) -> str:
    return percent(share.ratio)
