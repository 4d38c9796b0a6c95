"""Scoring verdicts against known causes, by numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from faultlens.causes import CAUSE_CLASSES, CauseClass
from faultlens.clock import moment_of
from faultlens.codec import encode, event_of
from faultlens.errors import ConfigurationError, UsageError
from faultlens.events import (
    Cause,
    Culprit,
    DeviceRef,
    JobAttributed,
    Lost,
    Retry,
    Status,
)
from faultlens.truth import Truth, read_truths, truth_line
from slo import score_text
from slo.precision import PrecisionTable
from slo.scoring import NO_VERDICT, Key, Share, Verdict, calibration_error, same_branch, score
from slo.verdicts import verdicts_of_directory

T0 = 1_795_996_800_000
CODES: dict[CauseClass, str] = {
    "hardware": "gpu.off_bus",
    "driver": "driver.gsp",
    "platform": "platform.storage",
    "user": "app.exception",
}


def truth(
    job: str,
    cause_class: CauseClass,
    *,
    node: str | None = None,
    device: int | None = None,
    decidable: bool = True,
    loss: int | None = None,
) -> Truth:
    return Truth(
        job, 1, cause_class, CODES[cause_class], decidable, "as made", moment_of(T0), started=True, loss=loss,
        node=node, device_index=device,
    )  # fmt: skip


def verdict(job: str, cause_class: CauseClass, **changed: Any) -> Verdict:
    said = Verdict(
        Key(job, 1, changed.pop("loss", 0)),
        cause_class,
        CODES[cause_class],
        "established",
        confidence=0.9,
        rule="a_rule",
        settled=True,
        first_said_ms=T0 + changed.pop("delay_ms", 0),
    )
    return replace(said, **changed)


def test_precision_and_recall_of_a_class_come_from_the_confusion_of_true_and_said() -> None:
    truths = [truth("a", "hardware"), truth("b", "hardware"), truth("c", "user"), truth("d", "user")]
    said = [verdict("a", "hardware"), verdict("b", "user"), verdict("c", "user"), verdict("d", "user")]
    result = score(truths, said)
    assert result.confusion["hardware"] == {"hardware": 1, "driver": 0, "platform": 0, "user": 1, NO_VERDICT: 0}
    assert result.by_class["hardware"].recall == Share(1, 2)
    assert result.by_class["hardware"].precision == Share(1, 1)
    assert result.by_class["user"].precision == Share(2, 3)
    assert result.class_of_all == Share(3, 4)


def test_what_nobody_could_decide_is_left_out_of_the_accuracy_on_decidable_failures() -> None:
    result = score(
        [truth("a", "hardware", decidable=False), truth("b", "user")], [verdict("a", "user"), verdict("b", "user")]
    )
    assert result.class_of_decidable == Share(1, 1)
    assert result.class_of_all == Share(1, 2)


def test_a_failure_without_a_verdict_counts_as_wrong_and_is_listed() -> None:
    result = score([truth("a", "user"), truth("b", "user")], [verdict("a", "user")])
    assert result.class_of_all == Share(1, 2)
    assert result.unsettled == (Key("b", 1),)
    assert result.confusion["user"][NO_VERDICT] == 1


def test_a_provisional_verdict_counts_for_accuracy_but_does_not_settle_the_failure() -> None:
    result = score([truth("a", "user")], [verdict("a", "user", settled=False)])
    assert result.class_of_all == Share(1, 1)
    assert result.unsettled == (Key("a", 1),)


def test_a_verdict_on_what_did_not_fail_is_listed_and_changes_no_accuracy() -> None:
    result = score([truth("a", "user")], [verdict("a", "user"), verdict("x", "hardware")])
    assert result.without_failure == (Key("x", 1),)
    assert result.class_of_all == Share(1, 1)
    assert result.by_class["hardware"].precision == Share(0, 0)


def test_a_loss_that_an_attempt_survived_is_told_from_the_end_of_the_attempt() -> None:
    result = score([truth("a", "hardware", loss=1)], [verdict("a", "user"), verdict("a", "hardware", loss=1)])
    assert result.class_of_all == Share(1, 1)
    assert result.without_failure == (Key("a", 1),)


def test_node_and_device_are_judged_only_where_there_is_a_culprit() -> None:
    truths = [truth("a", "hardware", node="n1", device=3), truth("b", "hardware", node="n2"), truth("c", "user")]
    said = [
        verdict("a", "hardware", node="n1", device_index=4),
        verdict("b", "hardware", node="n9"),
        verdict("c", "user"),
    ]
    result = score(truths, said)
    assert result.node == result.node_of_all == Share(1, 2)
    assert result.device == result.device_of_all == Share(0, 1)


def test_nobody_is_expected_to_name_a_culprit_that_nothing_delivered_points_at_but_it_is_counted() -> None:
    truths = [truth("a", "hardware", node="n1", device=3), truth("b", "hardware", node="n2", decidable=False)]
    result = score(truths, [verdict("a", "hardware", node="n1", device_index=3), verdict("b", "user")])
    assert (result.node, result.node_of_all) == (Share(1, 1), Share(1, 2))
    assert (result.device, result.device_of_all) == (Share(1, 1), Share(1, 1))


def test_a_more_general_code_of_the_same_branch_is_right() -> None:
    assert same_branch("gpu.memory", "gpu.memory.contained")
    assert same_branch("gpu.memory.contained", "gpu.memory.contained")
    assert not same_branch("gpu.memory.contained", "gpu.memory.uncontained")
    assert not same_branch("gpu.mem", "gpu.memory")


def test_the_calibration_error_is_that_of_an_example_worked_by_hand() -> None:
    # Bin 0.9: two answers at 0.95, one right: |0.5 - 0.95| = 0.45. Bin 0.5: two at 0.5, both right: 0.5.
    answers = [(0.95, True), (0.95, False), (0.5, True), (0.5, True)]
    assert calibration_error(answers) == pytest.approx((2 * 0.45 + 2 * 0.5) / 4)
    assert calibration_error([]) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1))
def test_the_calibration_error_is_a_share_and_does_not_depend_on_the_order(answers: list[tuple[float, bool]]) -> None:
    error = calibration_error(answers)
    assert error is not None
    assert 0 <= error <= 1 + 1e-9
    assert calibration_error(answers[::-1]) == pytest.approx(error)


def test_delays_are_quantiles_by_nearest_rank_of_the_time_from_the_end_to_the_first_verdict() -> None:
    truths = [truth(f"j{number}", "user") for number in range(10)]
    said = [verdict(f"j{number}", "user", delay_ms=1_000 * (number + 1)) for number in range(10)]
    delay = score(truths, said).delay
    assert delay is not None
    assert (delay.p50_s, delay.p90_s, delay.p99_s) == (5.0, 9.0, 10.0)


def test_each_rule_is_counted_apart_by_the_basis_that_it_answered_with() -> None:
    truths = [truth("a", "user"), truth("b", "hardware"), truth("c", "user")]
    said = [verdict("a", "user"), verdict("b", "user"), verdict("c", "user", basis="assumed")]
    by_rule = score(truths, said).by_rule
    assert by_rule == {"a_rule/assumed": Share(1, 1), "a_rule/established": Share(1, 2)}


_CLASSES = st.sampled_from(CAUSE_CLASSES)


@given(st.lists(st.tuples(_CLASSES, st.none() | _CLASSES)))
def test_the_confusion_matrix_holds_every_failure_once(pairs: Sequence[tuple[CauseClass, CauseClass | None]]) -> None:
    truths = [truth(f"j{number}", true) for number, (true, _) in enumerate(pairs)]
    said = [verdict(f"j{number}", answer) for number, (_, answer) in enumerate(pairs) if answer is not None]
    result = score(truths, said)
    assert sum(sum(row.values()) for row in result.confusion.values()) == result.failures == len(pairs)
    assert sum(measured.recall.total for measured in result.by_class.values()) == len(pairs)
    assert sum(measured.precision.total for measured in result.by_class.values()) == len(said)
    assert sum(share.total for share in result.by_rule.values()) == len(said)


# --- what a replay wrote ----------------------------------------------------------------------------------


def attributed(revision: int, status: Status, cause_class: CauseClass) -> bytes:
    data = JobAttributed(
        "job-1", 1, "c1", revision, status, Cause(cause_class, CODES[cause_class]), "established", 0.9,
        Culprit(node="n1", device=DeviceRef(index=5)), (), (), Retry("retry"), Lost(0.0, 0.0), "a_rule", "cat",
        moment_of(T0),
    )  # fmt: skip
    return encode(event_of(data, source="faultlens", id_=f"v{revision}", time_ms=T0 + revision * 1_000)) + b"\n"


def in_force(directory: Path, *revisions: bytes) -> list[Verdict]:
    (directory / "attributions.jsonl").write_bytes(b"".join(revisions))
    return verdicts_of_directory(directory)


def test_the_highest_final_or_amended_revision_is_in_force_since_the_first_was_said(tmp_path: Path) -> None:
    (found,) = in_force(
        tmp_path,
        attributed(1, "provisional", "user"),
        attributed(3, "amended", "hardware"),
        attributed(2, "final", "user"),
    )
    assert (found.cause_class, found.settled, found.first_said_ms) == ("hardware", True, T0 + 1_000)
    assert (found.node, found.device_index) == ("n1", 5)


def test_a_withdrawn_verdict_is_not_in_force_until_a_later_one_is(tmp_path: Path) -> None:
    settled_and_withdrawn = (attributed(1, "final", "user"), attributed(2, "withdrawn", "user"))
    assert in_force(tmp_path, *settled_and_withdrawn) == []
    (found,) = in_force(tmp_path, *settled_and_withdrawn, attributed(3, "amended", "platform"))
    assert found.cause_class == "platform"


def test_a_provisional_verdict_is_in_force_while_there_is_no_other(tmp_path: Path) -> None:
    (found,) = in_force(tmp_path, attributed(1, "provisional", "user"), attributed(2, "provisional", "driver"))
    assert (found.cause_class, found.settled) == ("driver", False)


def test_a_directory_without_attributions_is_refused_with_what_to_give_instead(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="replay --out"):
        verdicts_of_directory(tmp_path)


def test_a_broken_line_of_attributions_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"attributions\.jsonl:2: not JSON"):
        in_force(tmp_path, attributed(1, "final", "user"), b"{broken\n")


def test_a_truth_read_back_is_the_truth_written_and_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    written = truth("a", "hardware", node="n1", device=2, loss=1)
    path.write_bytes(truth_line(written) + b"\n" + b'{"job_id":"b"}\n')
    lines = read_truths(path)
    assert next(lines) == written
    with pytest.raises(UsageError, match=r"truth\.jsonl:3: .*attempt"):
        next(lines)


# --- how it is told ---------------------------------------------------------------------------------------


def test_the_text_names_what_is_missing_and_escapes_what_came_from_outside() -> None:
    text = score_text.as_text(score([truth("evil\x1b[2J", "user"), truth("b", "hardware")], []))
    assert "evil\\x1b[2J/1" in text
    assert "\x1b" not in text
    assert "Class right, all failures:        0.0 % (0 of 2)" in text


def test_the_json_form_has_the_same_numbers() -> None:
    result = score([truth("a", "hardware", node="n1")], [verdict("a", "hardware", node="n1", delay_ms=1_500)])
    told = score_text.as_json(result)
    assert told["class_accuracy"] == told["node_accuracy"] == 1.0
    assert told["delay_s"] == {"p50": 1.5, "p90": 1.5, "p99": 1.5}
    assert told["by_class"]["driver"] == {"precision": None, "recall": None}
    assert told["by_rule"]["a_rule/established"] == {"right": 1, "total": 1, "precision": 1.0}


def test_the_table_of_precisions_keeps_counts_and_origin(tmp_path: Path) -> None:
    path = tmp_path / "precision.yaml"
    table = PrecisionTable({"b/assumed": Share(1, 4), "a/established": Share(9, 9)}, [{"seed": 1, "mix": "default"}])
    path.write_text(table.as_yaml())
    read = PrecisionTable.read(path)
    assert (read.by_rule, read.origin) == (table.by_rule, table.origin)


def test_measurements_add_up() -> None:
    one = PrecisionTable({"a/established": Share(9, 9), "b/assumed": Share(1, 4)}, [{"seed": 1}])
    two = PrecisionTable({"a/established": Share(0, 3), "c/supported": Share(2, 2)}, [{"seed": 2}])
    both = one.plus(two)
    assert both.by_rule == {"a/established": Share(9, 12), "b/assumed": Share(1, 4), "c/supported": Share(2, 2)}
    assert both.origin == [{"seed": 1}, {"seed": 2}]


def test_a_broken_table_of_precisions_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "precision.yaml"
    path.write_text("origin: []\nrules:\n  a/established: {right: -1, total: 2}\n")
    with pytest.raises(ConfigurationError, match=r"precision\.yaml:3: .*right"):
        PrecisionTable.read(path)


def test_a_moment_of_truth_is_kept_to_the_millisecond(tmp_path: Path) -> None:
    at = moment_of(T0) + timedelta(milliseconds=7)
    path = tmp_path / "truth.jsonl"
    path.write_bytes(truth_line(Truth("a", 1, "user", "app.exception", True, "w", at, started=False)))
    assert next(read_truths(path)).ended_at == at
