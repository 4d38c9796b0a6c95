"""The shipped signatures: each is found by its own example, and decides what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultlens.causes import CAUSES, is_known
from faultlens.signatures import Signature, SignatureSet, decide, load_signatures
from faultlens.signatures.decide import NOTHING_KNOWN_RULE, RULES
from faultlens.signatures.explain import explain
from faultlens.signatures.measured import RIGHT_OF
from faultlens.signatures.next_steps import load_next_steps

KNOWN = load_signatures()
LINES = Path(__file__).parent / "data" / "log_lines.txt"


def of_roles(*roles: str) -> list[Signature]:
    return [signature for signature in KNOWN.signatures if signature.role in roles]


def named(signature: Signature) -> str:
    return signature.id


def lines() -> list[tuple[str, str]]:
    rows = [row for row in LINES.read_text().splitlines() if row and not row.startswith("#")]
    return [(code, text) for code, _, text in (row.partition("\t") for row in rows)]


@pytest.fixture(scope="module")
def known() -> SignatureSet:
    return KNOWN


def test_there_are_several_hundred_and_each_points_to_known_causes() -> None:
    assert len(KNOWN.signatures) > 500
    assert all(is_known(code) for s in KNOWN.signatures for code in (s.cause_code, *s.also))


@pytest.mark.parametrize("signature", of_roles("root"), ids=named)
def test_the_example_of_a_root_alone_supports_its_class(known: SignatureSet, signature: Signature) -> None:
    matches = known.scan(signature.example, where=signature.where[0])
    verdict = decide(matches)
    assert signature.id in {match.id for match in matches}
    assert (verdict.cause_class, verdict.basis) == (signature.cause_class, "supported")


@pytest.mark.parametrize("signature", of_roles("symptom", "cascade"), ids=named)
def test_the_example_of_a_symptom_or_consequence_alone_supports_nothing(
    known: SignatureSet, signature: Signature
) -> None:
    matches = known.scan(signature.example, where=signature.where[0])
    assert signature.id in {match.id for match in matches}
    assert decide(matches).basis == "assumed"


@pytest.mark.parametrize("signature", of_roles("advice", "quote", "progress"), ids=named)
def test_advice_source_code_and_progress_are_no_evidence(known: SignatureSet, signature: Signature) -> None:
    matches = known.scan(signature.example)
    assert (signature.id in {match.id for match in matches}) == (signature.role != "quote")
    assert decide(matches).basis == "assumed"


@pytest.mark.parametrize(("code", "text"), lines(), ids=[text[:60] for _, text in lines()])
def test_a_line_is_read_as_what_it_is(known: SignatureSet, code: str, text: str) -> None:
    verdict = decide(known.scan(text))
    if code == "-":
        assert verdict.deciding is None
    else:
        expected, basis = code.lstrip("?"), "assumed" if code.startswith("?") else "supported"
        assert f"{verdict.cause_code}.".startswith(f"{expected}.")
        assert verdict.basis == basis


def test_every_cause_has_a_next_step_and_every_rule_its_measure(known: SignatureSet) -> None:
    steps = load_next_steps()
    assert all(len(steps.for_cause(code)) > 10 for code in CAUSES)
    assert RIGHT_OF.keys() == {name for name, _ in RULES} | {NOTHING_KNOWN_RULE}


def test_every_rule_is_explained_in_words(known: SignatureSet) -> None:
    texts = {
        "node_evidence_in_log": "NVRM: Xid (PCI:0000:4f:00): 79, GPU has fallen off the bus.",
        "explicit_root_in_log": "torch.OutOfMemoryError: CUDA out of memory.",
        "pointing_root_in_log": "FileNotFoundError: [Errno 2] No such file or directory: '/a'",
        "exception_name_in_log": "KeyError: 'a'",
        "symptom_in_log": "Segmentation fault (core dumped)",
        "consequence_in_log": "RuntimeError: NCCL communicator was aborted on rank 5.",
        "cleared_by_progress_in_log": "KeyError: 'a'\niteration 1/ 9 |\niteration 2/ 9 |",
        "nothing_known_in_log": "all is well",
    }
    told = {rule: explain(decide(known.scan(text)), load_next_steps()) for rule, text in texts.items()}
    assert {rule: answer.rule for rule, answer in told.items()} == {rule: rule for rule in RIGHT_OF}
    assert all(answer.because for answer in told.values())
