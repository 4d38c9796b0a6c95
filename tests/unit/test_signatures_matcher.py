"""Finding signatures in a text: where they stand, what masks them; the fast way finds all that the slow one does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultlens.signatures import Match, Role, Signature, SignatureSet, compile_signatures, load_signatures
from faultlens.signatures.matcher import OCCURRENCES_KEPT, PatternError, _Located, compile_pattern
from faultlens.signatures.normalise import normalise

KNOWN = load_signatures()
EXAMPLES = sorted({line for s in KNOWN.signatures for line in s.example.splitlines()})
NOISE = [
    "",
    "INFO step 812 done",
    '  File "/opt/a.py", line 3, in f',
    "    raise KeyError('a')",
    "\x1b[31mred\x1b[0m",
    "größer",
]


def signature(name: str, pattern: str, role: Role = "root") -> Signature:
    return Signature(
        id=f"test.{name}", origin="test", pattern=pattern, cause_code="app.exception", cause_class="user",
        role=role, strength="strong", scope="rank", where=("log_tail",), example="-",
    )  # fmt: skip


@pytest.fixture
def small() -> SignatureSet:
    return compile_signatures(
        [
            signature("boom", r"boom on (?P<node>\w+)|^boom$"),
            signature("hint", r"maybe\b", "advice"),
            signature("code", r"^    .*", "quote"),
        ],
        version="test",
    )


def found(matches: tuple[Match, ...]) -> list[tuple[str, int]]:
    return [(match.id, match.line_number) for match in matches]


def test_a_match_says_its_line_its_place_and_what_was_named(small: SignatureSet) -> None:
    (match,) = small.scan("first\nthen boom on gpu_7, twice\n")
    assert (match.line_number, match.offset, match.span) == (2, 11, 13)
    assert match.text == "then boom on gpu_7, twice"
    assert match.groups == {"node": "gpu_7"}


def test_offsets_count_characters_and_lines_are_those_of_the_log(small: SignatureSet) -> None:
    text = "größer\nüber\nboom on gpu_1\n"
    (match,) = small.scan(text)
    assert text[match.offset :].startswith("boom")
    assert (match.line_number, match.log_line) == (3, 3)


def test_the_line_ends_of_windows_are_line_ends(small: SignatureSet) -> None:
    assert found(small.scan("one\r\nboom\r\ntwo\r\n")) == [("test.boom", 2)]


def test_lines_of_a_container_log_are_read_as_what_the_program_wrote() -> None:
    wrote = ["step 1", "KeyError: 'labels'"]
    lines = [json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-10-12T04:11:09Z"}) for line in wrote]
    (match,) = KNOWN.scan("\n".join(lines))
    assert (match.id, match.line_number, match.log_line, match.text) == ("python.key_name", 2, 2, wrote[1])


def test_a_structured_line_can_hold_many_and_is_still_one_line_of_the_log() -> None:
    traceback = "Traceback (most recent call last):\n  File \"/opt/a.py\", line 3, in f\n    g()\nKeyError: 'a'"
    log = "\n".join(["started", json.dumps({"severity": "ERROR", "message": traceback}), "ValueError: 2"])
    assert [(m.id, m.line_number, m.log_line) for m in KNOWN.scan(log)] == [
        ("python.key_name", 5, 2),
        ("python.value_name", 6, 3),
    ]


def test_the_error_beside_a_structured_message_is_read() -> None:
    line = json.dumps({"level": "error", "msg": "step failed", "error": "CUDA out of memory", "took": 2})
    assert [(m.id, m.text) for m in KNOWN.scan(f"{line}\n")] == [("cuda.out_of_memory", "CUDA out of memory")]


@pytest.mark.parametrize("line", ["{'a': 2}", '{"loss": 2.0}', '{"message": 3}', "[1]", '{"message": "cut', "{" * 9])
def test_what_is_no_structured_message_is_read_as_it_is(line: str, small: SignatureSet) -> None:
    assert [(m.log_line, m.text) for m in small.scan(f"{line}\n{{}}\nboom")] == [(3, "boom")]


def test_the_ends_of_a_pattern_are_the_ends_of_a_line(small: SignatureSet) -> None:
    assert found(small.scan("x\nboom\ny")) == [("test.boom", 2)]
    assert found(small.scan("xboom\nboomy")) == []


def test_no_pattern_reaches_over_the_end_of_a_line() -> None:
    known = compile_signatures([signature("two", r"one\stwo")], version="test")
    assert found(known.scan("one two")) == [("test.two", 1)]
    assert found(known.scan("one\ntwo")) == []


def test_advice_masks_the_rest_of_its_sentence_and_no_more(small: SignatureSet) -> None:
    assert found(small.scan("boom on gpu_1 maybe boom on gpu_2. boom on gpu_3")) == [
        ("test.boom", 1), ("test.hint", 1), ("test.boom", 1),
    ]  # fmt: skip


def test_advice_in_parentheses_masks_to_their_end(small: SignatureSet) -> None:
    aside = small.scan("boom on gpu_1 (maybe boom on gpu_2) boom on gpu_3")
    assert [match.groups for match in aside if match.id == "test.boom"] == [{"node": "gpu_1"}, {"node": "gpu_3"}]
    assert found(small.scan("(a) maybe boom on gpu_2 (b)")) == [("test.hint", 1)]
    assert found(small.scan("(maybe boom on gpu_2")) == [("test.hint", 1)]


def test_quoted_source_code_is_never_found(small: SignatureSet) -> None:
    assert small.scan("    boom on gpu_1") == ()


def test_the_source_line_of_a_traceback_is_a_quote_and_the_exception_under_it_is_not() -> None:
    frame = '  File "/opt/a.py", line 3, in f\n    raise OutOfMemoryError("CUDA out of memory")\n'
    bare = '  File "/opt/a.py", line 3, in f\n'
    assert [m.line_number for m in KNOWN.scan(f"{frame}KeyError: 'a'")] == [3]
    assert {m.line_number for m in KNOWN.scan(f"{bare}torch.OutOfMemoryError: CUDA out of memory.")} == {2}


def test_terminal_colours_do_not_hide_a_line() -> None:
    coloured = "\x1b[36m(Worker pid=812)\x1b[0m \x1b[1;31mKeyError\x1b[0m: 'labels'"
    assert found(KNOWN.scan(coloured)) == [("python.key_name", 1)]


def test_an_error_file_of_torchelastic_is_read_as_the_traceback_in_it() -> None:
    stack = "Traceback (most recent call last):\n  File \"/opt/a.py\", line 3, in f\n    g()\nKeyError: 'a'\n"
    document = {"message": {"message": "KeyError: 'a'", "extraInfo": {"py_callstack": stack, "timestamp": "1"}}}
    assert {match.id for match in KNOWN.scan(json.dumps(document))} == {"python.key_name"}


def test_a_broken_error_file_is_read_as_text() -> None:
    assert [m.id for m in KNOWN.scan('{"py_callstack": cut off here: KeyError: 1')] == ["python.key_name"]


def test_of_a_line_printed_a_thousand_times_the_first_and_the_last_are_kept(small: SignatureSet) -> None:
    matches = small.scan("boom on gpu_1\n" * 1000)
    assert [match.line_number for match in matches] == [1, 2, 3, 4, 997, 998, 999, 1000]
    assert len(matches) == 2 * OCCURRENCES_KEPT


def test_a_long_line_is_cut_around_what_matched(small: SignatureSet) -> None:
    (match,) = small.scan("x" * 5000 + " boom on gpu_1 " + "y" * 5000)
    assert len(match.text) == 200
    assert "boom on gpu_1" in match.text


def test_the_same_text_is_read_once(small: SignatureSet) -> None:
    assert small.scan("boom on gpu_1") is small.scan("boom on gpu_1")


def test_each_kind_of_text_has_its_own_signatures() -> None:
    assert [m.id for m in KNOWN.scan("TIMEOUT", where="reason")] == ["slurm.reason_time_limit"]
    assert KNOWN.scan("TIMEOUT", where="log_tail") == ()


def test_a_set_without_signatures_finds_nothing() -> None:
    assert compile_signatures([], version="test").scan("boom") == ()


@pytest.mark.parametrize("pattern", [r"(", r"a(?=b)", r"a{2,1}"])
def test_what_re2_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="RE2"):
        compile_pattern(pattern, role="root")


def test_a_pattern_is_ascii() -> None:
    with pytest.raises(PatternError, match="ASCII"):
        compile_pattern("größer", role="root")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([*EXAMPLES, *NOISE]), max_size=60).map("\n".join))
def test_looking_only_where_literals_stand_loses_nothing_and_finds_nothing_else(text: str) -> None:
    everything, located = KNOWN._compiled["log_tail"], _Located(normalise(text))
    candidates = everything.candidates(located)
    for index, (signature, pattern) in enumerate(zip(everything.signatures, everything.patterns, strict=True)):
        if signature.role != "quote":
            blocks = candidates.get(index, ())
            found = [one.span() for block in blocks for one in pattern.finditer(located.data, *block)]
            assert found == [one.span() for one in pattern.finditer(located.data)], signature.id


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=400))
def test_any_text_can_be_read_and_says_where_it_found_what(text: str) -> None:
    for match in KNOWN.scan(text):
        assert 1 <= match.line_number <= text.count("\n") + 1
        assert len(match.text) <= 200


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*EXAMPLES, *NOISE]), max_size=8).map("\n".join))
def test_matches_come_in_the_order_of_the_text(text: str) -> None:
    offsets = [match.offset for match in KNOWN.scan(text)]
    assert offsets == sorted(offsets)
