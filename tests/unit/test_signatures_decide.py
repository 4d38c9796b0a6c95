"""Whose fault a log alone says it was: which line decides, and what is read as its consequence."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultlens.signatures import LogVerdict, decide, load_signatures

KNOWN = load_signatures()
EXAMPLES = sorted({s.example for s in KNOWN.signatures if "log_tail" in s.where})

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
OUT_OF_MEMORY = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
PEER_GONE = "[rank1] torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
WATCHDOG = "[Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8) ran for 600012 milliseconds"
ILLEGAL_ACCESS = "RuntimeError: CUDA error: an illegal memory access was encountered"
XID_79 = "NVRM: Xid (PCI:0000:4f:00): 79, GPU has fallen off the bus."
KEY_ERROR = "KeyError: 'labels'"
STEP = " iteration     {}/  500000 | elapsed time per iteration (ms): 4312.1"
SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
train.py FAILED
Root Cause (first observed failure):
[0]:
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 812)
"""


def of(*lines: str) -> LogVerdict:
    return decide(KNOWN.scan("\n".join(lines)))


def test_the_earliest_root_wins_over_the_cascade_that_others_print() -> None:
    verdict = of(PEER_GONE, OUT_OF_MEMORY, PEER_GONE, WATCHDOG)
    assert (verdict.cause_code, verdict.basis) == ("app.oom.gpu", "supported")
    assert verdict.deciding is not None
    assert verdict.deciding.line_number == 2
    assert {match.line_number for match in verdict.consequences} == {1, 3}
    assert [match.line_number for match in verdict.symptoms] == [4]


@pytest.mark.parametrize("fault", [XID_79, ECC])
def test_a_fault_of_the_device_outranks_the_error_that_the_program_made_of_it(fault: str) -> None:
    verdict = of(ILLEGAL_ACCESS, OUT_OF_MEMORY, fault)
    assert verdict.cause_class == "hardware"
    assert verdict.rule == "node_evidence_in_log"
    assert {other.cause_code for other in verdict.alternatives} >= {"app.illegal_access", "app.oom.gpu"}


def test_a_code_of_the_driver_that_follows_from_the_program_does_not_outrank_it() -> None:
    verdict = of("NVRM: Xid (PCI:0000:4f:00): 43, pid=812, name=python", KEY_ERROR)
    assert (verdict.cause_class, verdict.basis) == ("user", "supported")


def test_a_code_caused_by_another_names_no_root() -> None:
    verdict = of("NVRM: Xid (PCI:0000:4f:00): 45, pid=812, name=python, Ch 1 caused by previous Xid 149")
    assert (verdict.basis, verdict.rule) == ("assumed", "consequence_in_log")


def test_an_explicit_line_comes_before_the_name_of_an_exception() -> None:
    verdict = of("Traceback (most recent call last):", KEY_ERROR, "", "During handling …", OUT_OF_MEMORY)
    assert verdict.cause_code == "app.oom.gpu"


def test_of_chained_exceptions_the_first_decides() -> None:
    verdict = of(
        "OSError: [Errno 116] Stale file handle: '/data/a'",
        "The above exception was the direct cause of the following exception:",
        "RuntimeError: could not read shard 7",
    )
    assert verdict.cause_code == "platform.storage.mount"


def test_the_summary_of_torchelastic_is_a_consequence() -> None:
    verdict = of(KEY_ERROR, SUMMARY)
    assert (verdict.cause_code, verdict.rule) == ("app.exception", "exception_name_in_log")
    assert of(SUMMARY).basis == "assumed"


def test_an_exception_whose_message_is_a_symptom_is_that_symptom() -> None:
    verdict = of("RuntimeError: CUDA error: unspecified launch failure")
    assert (verdict.cause_code, verdict.basis) == ("app.cuda_error", "assumed")


def test_a_wrapper_around_an_earlier_symptom_decides_nothing() -> None:
    wrapped = of("RuntimeError: CUDA error: unspecified launch failure", "RuntimeError: worker 3 failed")
    assert wrapped.basis == "assumed"
    assert of("RuntimeError: worker 3 failed").basis == "supported"


def test_of_symptoms_the_one_that_says_more_than_how_it_ended_is_taken() -> None:
    verdict = of("terminate called after throwing an instance of 'c10::Error'", "  what():  CUDA error: unknown error")
    assert (verdict.cause_code, verdict.basis) == ("gpu.unknown", "assumed")


def test_a_fault_after_which_two_steps_were_done_did_not_stop_the_job() -> None:
    verdict = of(ILLEGAL_ACCESS, STEP.format(7), STEP.format(8), KEY_ERROR)
    assert verdict.cause_code == "app.exception"
    assert "cuda.illegal_access" in {match.id for match in verdict.earlier}
    assert of(ILLEGAL_ACCESS, STEP.format(7), KEY_ERROR).cause_code == "app.illegal_access"


def test_a_log_that_only_overcame_its_faults_supports_nothing() -> None:
    verdict = of(ILLEGAL_ACCESS, STEP.format(7), STEP.format(8))
    assert (verdict.rule, verdict.basis) == ("cleared_by_progress_in_log", "assumed")


def test_advice_alone_supports_nothing() -> None:
    verdict = of("For debugging consider passing CUDA_LAUNCH_BLOCKING=1.", "Hint: this is often CUDA out of memory")
    assert (verdict.rule, verdict.deciding) == ("nothing_known_in_log", None)
    assert {match.line_number for match in verdict.advice} == {1, 2}


def test_an_empty_log_is_charged_to_the_user_by_default_and_says_so() -> None:
    verdict = decide(())
    assert (verdict.cause_class, verdict.cause_code, verdict.basis) == ("user", "app.crash", "assumed")


def test_what_experts_see_behind_the_same_words_is_an_alternative() -> None:
    verdict = of("OSError: [Errno 28] No space left on device: '/local/ckpt.pt'")
    assert verdict.cause_class == "user"
    assert "platform.storage.full" in {other.cause_code for other in verdict.alternatives}


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(EXAMPLES), max_size=6))
def test_a_verdict_always_has_an_owner_and_rests_on_a_line_when_it_supports_one(lines: list[str]) -> None:
    verdict = of(*lines)
    assert 0 < verdict.confidence < 1
    assert verdict.cause_code not in {other.cause_code for other in verdict.alternatives}
    if verdict.basis == "supported":
        assert verdict.deciding is not None
        assert verdict.deciding.role == "root"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(EXAMPLES), max_size=6), st.randoms())
def test_the_order_in_which_matches_are_given_does_not_matter(lines: list[str], random: object) -> None:
    matches = list(KNOWN.scan("\n".join(lines)))
    verdict = decide(matches)
    random.shuffle(matches)  # type: ignore[attr-defined]
    assert decide(matches) == verdict


def test_what_only_points_somewhere_inside_a_known_symptom_is_part_of_it() -> None:
    verdict = of("slurmstepd: error: pyxis:  enroot-switchroot: failed to execute: /bin/sh: No such file or directory")
    assert (verdict.cause_code, verdict.basis) == ("platform.runtime.container", "assumed")


def test_a_line_that_two_signs_of_progress_know_is_one_step() -> None:
    both = "Epoch 0 |   Training | Steps: 95 | Loss: 24.18"
    out_of_memory = "slurmstepd: error: Exceeded job memory limit"
    assert of(both, out_of_memory, both).basis == "supported"
    assert of(out_of_memory, both, both).basis == "assumed"


def test_a_progress_bar_that_is_written_over_is_as_many_steps_as_it_shows() -> None:
    bar = "\r".join(f"{n}%|#    | {n}/100 [00:10<01:30,  1.00it/s]" for n in range(3))
    assert of(ILLEGAL_ACCESS, bar).basis == "assumed"
