"""The story of a failed job: the answer first, in order, and safe to print."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import DAY_MS, MINUTE_MS, SECOND_MS, parse_moment
from slo.why.story import AttemptLine, EvidenceLine, Judgement, Moment, Story
from slo.why.text import advice, answer, as_plain, as_text
from slo.why.timeline import (
    MOMENTS_LIMIT,
    of_faults,
    of_findings,
    of_life,
    of_reports,
    of_states,
    of_verdicts,
    of_waiting,
    timeline,
)

END_MS = parse_moment("2026-11-23T04:12:07.500Z")


def a_verdict() -> Judgement:
    return Judgement(
        revision=2,
        status="final",
        cause_class="hardware",
        code="gpu.memory.uncorrectable",
        summary="Uncorrectable memory error on GPU 5 of node-0042",
        basis="established",
        confidence=0.97,
        node="node-0042",
        device_index=5,
        rank=517,
        alternatives=(("user", "app.illegal_access", 0.02),),
        advice="retry_elsewhere",
        exclude_nodes=("node-0042",),
        exclude_devices=("node-0042/5",),
        lost_gpu_seconds=921_600.0,
        since_checkpoint_s=900.0,
        rule="device_fault_on_allocated_gpu",
        catalog="nvidia-xid 2026-11",
        ended_ms=END_MS,
        emitted_ms=END_MS + 5 * MINUTE_MS,
    )


def a_story() -> Story:
    verdict = a_verdict()
    return Story(
        job_id="llm-7",
        attempt=3,
        facts={"cluster": "c1", "team": "nlp"},
        outcome="failed",
        verdict=verdict,
        withdrawn=False,
        losses=(),
        timeline=(
            Moment(END_MS - 3 * MINUTE_MS, "life", "last good checkpoint: step 900"),
            Moment(END_MS - 4 * SECOND_MS, "fault", "xid 48 on node-0042 GPU 5"),
            Moment(END_MS, "end", "ended: failed, exit code 1"),
        ),
        moments_left_out=0,
        evidence=tuple(
            EvidenceLine("root" if n == 0 else "cascade", END_MS, f"observation {n}", "agent/node-0042")
            for n in range(9)
        ),
        spent_ms={"productive": 7_200_000, "lost_work": 3_600_000, "queued": 60_000},
        effective=0.613,
        attempts=(
            AttemptLine(2, "failed", END_MS - DAY_MS, ("node-0001",), "user", "app.oom.gpu"),
            AttemptLine(3, "failed", END_MS, ("node-0042",), "hardware", "gpu.memory.uncorrectable", "node-0042"),
        ),
        revisions=(replace(verdict, revision=1, status="provisional"), verdict),
    )


def test_the_first_line_is_the_answer() -> None:
    assert as_text(a_story()).splitlines()[0] == (
        "llm-7 (attempt 3) failed: hardware is to blame. Uncorrectable memory error on GPU 5 of node-0042."
    )


def test_the_story_says_how_sure_it_is_and_what_that_rests_on() -> None:
    text = as_text(a_story())
    assert "established: a root fault was observed on what the attempt held" in text
    assert "right in 97 % of the failures whose cause is known" in text
    assert "Or else     user, app.illegal_access (Program accessed GPU memory illegally), 2 %" in text
    assert "rule device_fault_on_allocated_gpu, nvidia-xid 2026-11; revision 2, final" in text


def test_times_are_told_from_the_end() -> None:
    lines = [" ".join(line.split()) for line in as_text(a_story()).splitlines()]
    assert "04:12:03 \N{MINUS SIGN}4 s ! xid 48 on node-0042 GPU 5" in lines
    assert "04:12:07 end > ended: failed, exit code 1" in lines
    assert "Monday, 23 November 2026" in lines


def test_the_story_says_what_it_cost_and_what_became_of_the_other_attempts() -> None:
    text = as_text(a_story())
    assert "lost since the last good checkpoint: 256.0 GPU-hours (15 min of work)" in text
    assert "of the 3.0 GPU-hours that it held: work that was kept 2.0, work lost to restarts 1.0" in text
    assert "all its attempts together made progress 61.3 % of the time" in text
    assert "    2  failed        2026-11-22 04:12 UTC  user, app.oom.gpu" in text
    assert "hardware, gpu.memory.uncorrectable on node-0042 <- this one" in text


def test_where_no_work_was_lost_that_is_said() -> None:
    text = as_text(replace(a_story(), verdict=replace(a_verdict(), lost_gpu_seconds=0.0)))
    assert "no work was lost, only the time that it held" in text


def test_of_much_evidence_a_part_is_shown_and_the_rest_is_counted() -> None:
    text = as_text(a_story())
    assert text.index("What broke") < text.index("What followed from it")
    assert "… 2 more of the same kind" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "retry it, away from node-0042"),
        ({"exclude_nodes": ()}, "retry it, away from device node-0042/5"),
        ({"advice": "retry", "exclude_nodes": (), "exclude_devices": ()}, "retry it as it is"),
        ({"advice": "do_not_retry"}, "do not retry it as it is: the job itself has to change first"),
        ({"exclude_nodes": ("a", "b", "c"), "exclude_devices": ()}, "retry it, away from a, b and c"),
    ],
)
def test_what_to_do_is_said_in_words(change: dict[str, Any], words: str) -> None:
    assert advice(replace(a_verdict(), **change)) == words


def test_an_assumed_verdict_says_so_and_where_to_look() -> None:
    text = as_text(replace(a_story(), verdict=replace(a_verdict(), basis="assumed", status="provisional")))
    assert "assumed: nothing pointed anywhere" in text
    assert "look at the end of its log" in text
    assert "provisional: the evidence window is still open" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"outcome": "succeeded"}, "llm-7 (attempt 3) ended as succeeded: nothing failed, so nobody is to blame."),
        ({"outcome": ""}, "llm-7 (attempt 3) has not ended; nothing failed so far."),
        ({"withdrawn": True}, "llm-7 (attempt 3): its verdict was withdrawn, since it turned out not to have failed."),
    ],
)
def test_where_nothing_failed_nobody_is_blamed(change: dict[str, Any], words: str) -> None:
    story = replace(a_story(), verdict=None, evidence=(), **change)
    assert answer(story) == words
    assert "What to do" not in as_text(story)


def test_losses_that_an_attempt_survived_are_told() -> None:
    text = as_text(replace(a_story(), losses=(replace(a_verdict(), summary="GPU 1 of node-0003 fell off the bus"),)))
    assert "2026-11-23 04:12 UTC: hardware, GPU 1 of node-0003 fell off the bus" in text


EVIL = "x\x1b[2J\r\u202e"


def test_control_characters_of_anything_foreign_are_only_printed() -> None:
    story = a_story()
    evil = replace(
        story,
        job_id=EVIL,
        facts={"user": EVIL},
        verdict=replace(a_verdict(), summary=EVIL, node=EVIL, exclude_nodes=(EVIL,)),
        timeline=(Moment(END_MS, "fault", EVIL),),
        evidence=(EvidenceLine("root", END_MS, EVIL, EVIL),),
        attempts=tuple(replace(line, node=EVIL) for line in story.attempts),
        losses=(replace(a_verdict(), summary=EVIL),),
    )
    text = as_text(evil)
    assert not set(text) & set("\x1b\r\u202e")
    assert r"x\x1b[2J\x0d\u202e" in text


def test_as_plain_values_times_are_times_and_amounts_stay_amounts() -> None:
    plain = json.loads(json.dumps(as_plain(a_story())))
    assert plain["timeline"][2] == {
        "at": "2026-11-23T04:12:07.500Z",
        "mark": "end",
        "what": "ended: failed, exit code 1",
    }
    assert plain["verdict"]["ended"] == "2026-11-23T04:12:07.500Z"
    assert plain["spent_ms"]["lost_work"] == 3_600_000
    assert plain["answer"] == answer(a_story())
    assert plain["advice"] == "retry it, away from node-0042"


# --- the timeline ----------------------------------------------------------------------------------------

JOB = {"user": "ann", "gpus": 16, "nodes": 2, "submitted_ms": 0}
ATTEMPT: dict[str, Any] = {
    "attempt": 1,
    "node_names": ["n1", "n2", "n3", "n4", "n5", "n6"],
    "allocated_ms": 10,
    "started_ms": 20,
    "ended_ms": 30,
    "outcome": "preempted",
    "exit_code": 143,
    "signal": "SIGTERM",
    "reason": "PREEMPTED",
    "message": "",
    "preempted_by": "big/2",
}


def told(moments: Any) -> list[str]:
    return [moment.what for moment in moments]


def test_the_life_of_an_attempt_is_told_from_its_submission_to_its_end() -> None:
    assert told(of_life(JOB, ATTEMPT)) == [
        "submitted by ann, wants 16 GPUs on 2 nodes",
        "allocated 6 nodes: n1, n2, n3, n4 and 2 more",
        "started: every rank runs user code",
        "ended: preempted, exit code 143, signal SIGTERM by big/2 (PREEMPTED)",
    ]
    later = ATTEMPT | {"attempt": 2, "allocated_ms": None, "started_ms": None, "ended_ms": None}
    assert told(of_life(JOB, later)) == []


def report_of(kind: str, **more: Any) -> dict[str, Any]:
    row = {
        "type": f"faultlens.job.{kind}.v1",
        "good": False,
        "restored": False,
        "reports": 1,
        "first_ms": 1,
        "last_ms": 2,
    }
    return row | {"last_step": 7, "first_rank": 3, "first_node": "n1", "first_status": ""} | more


def test_what_the_attempt_told_of_itself_is_folded_to_what_matters() -> None:
    rows = [
        report_of("progress"),
        report_of("checkpoint", good=True),
        report_of("checkpoint"),
        report_of("checkpoint", restored=True, good=True),
        report_of("checkpoint", restored=True),
        report_of("rank_exited", reports=4, first_status="exit code 1"),
    ]
    assert told(of_reports(rows)) == [
        "last progress: step 7",
        "last good checkpoint: step 7",
        "last checkpoint that failed: step 7",
        "restored the checkpoint of step 7",
        "restored the checkpoint of step 7, which failed",
        "first exit: rank 3 on n1 (exit code 1); 4 exits in all",
    ]


def test_it_is_told_why_the_scheduler_let_it_wait() -> None:
    rows = [
        {"at_ms": 1, "reason": "Unschedulable", "message": "8 devices are tainted"},
        {"at_ms": 2, "reason": "Priority", "message": ""},
    ]
    assert told(of_waiting(rows)) == ["waits, Unschedulable: 8 devices are tainted", "waits, Priority"]


def test_faults_findings_and_verdicts_are_told_with_where_and_how_often() -> None:
    fault = {"at_ms": 1, "kind": "xid", "code": "154", "subcode": "gpu_reset_required", "node": "n1", "device_index": 2}
    assert told(of_faults([fault | {"count": 3, "message": "raw"}])) == [
        "xid 154 (gpu_reset_required) on n1 GPU 2, 3 times: raw"
    ]
    finding = {"at_ms": 1, "kind": "slow_rank", "node": "n1", "code": "gpu.thermal", "summary": "GPU 3 is hot"}
    assert told(of_findings([finding])) == ["slow rank on n1: GPU 3 is hot"]
    withdrawn = replace(a_verdict(), status="withdrawn")
    assert told(of_verdicts([a_verdict(), withdrawn])) == [
        "final verdict: hardware, gpu.memory.uncorrectable (established)",
        "withdrawn verdict",
    ]


def test_only_changes_of_a_nodes_state_are_told_and_a_healthy_beginning_is_none() -> None:
    def state(at_ms: int, name: str, cause: str = "", *, planned: bool = False) -> dict[str, Any]:
        return {"node": "n1", "at_ms": at_ms, "state": name, "cause": cause, "planned": planned}

    rows = [
        state(1, "available"),
        state(2, "degraded", "gpu.off_bus"),
        state(3, "degraded", "gpu.off_bus"),
        state(4, "maintenance", "platform.maintenance", planned=True),
        state(5, "available"),
    ]
    assert told(of_states(rows)) == [
        "n1 is degraded (gpu.off_bus)",
        "n1 is maintenance (platform.maintenance), as planned",
        "n1 is available",
    ]


MOMENTS = st.builds(
    Moment,
    st.integers(0, 50),
    st.sampled_from(["life", "fault", "trouble", "end", "verdict"]),
    st.text("ab", max_size=3),
)


@given(st.lists(MOMENTS, max_size=120))
def test_the_timeline_is_in_order_bounded_and_counts_what_it_leaves_out(moments: list[Moment]) -> None:
    shown, left_out = timeline(moments)
    assert [moment.at_ms for moment in shown] == sorted(moment.at_ms for moment in shown)
    assert len(shown) <= MOMENTS_LIMIT
    assert len(shown) + left_out == len(set(moments))


def test_a_storm_of_faults_does_not_push_out_the_end() -> None:
    storm = [Moment(at, "fault", f"xid {at}") for at in range(200)]
    shown, left_out = timeline([*storm, Moment(500, "end", "ended: failed")])
    assert shown[0].what == "xid 0"
    assert shown[-1].what == "ended: failed"
    assert left_out == 201 - MOMENTS_LIMIT
