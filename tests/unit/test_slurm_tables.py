"""Tables of sacct and sacctmgr: any delimiter, any columns in any order, and names that hold the delimiter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.slurm.tables import CONTINUATION_LINES, Table, TableError, header_of, read_table

COLUMNS = {
    "JobID": "1099_5",
    "JobIDRaw": "1127",
    "JobName": "arr",
    "State": "CANCELLED by 5",
    "ExitCode": "0:15",
    "NodeList": "node[1-3],rack02-gpu[09-11]",
    "Submit": "2026-11-29T12:30:29",
    "Start": "2026-11-29T12:30:29",
    "End": "Unknown",
    "AllocTRES": "billing=1,cpu=1,gres/gpu:h100=8,gres/gpu=8",
    "User": "games",
    "Reason": "None",
    "DBIndex": "201",
}
EVERY = frozenset(name.lower() for name in COLUMNS)
DELIMITERS = st.sampled_from(["|", "\x1f", "\t", ";", "^", "~", "||", "^|^"])
NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\u2028\u2029\x85"), max_size=20)


def table(text: str, *, wanted: frozenset[str] = EVERY | {"comment", "nodename"}) -> Table:
    return read_table(text.splitlines(keepends=True), needed=frozenset(), wanted=wanted, what="test")


@given(DELIMITERS, st.permutations(sorted(COLUMNS)), st.integers(2, len(COLUMNS)))
def test_any_delimiter_and_any_columns_in_any_order_are_read(delimiter: str, order: list[str], count: int) -> None:
    columns = order[:count]
    lines = [delimiter.join(columns), delimiter.join(COLUMNS[name] for name in columns)]
    read = table("\n".join(lines))
    assert [row.cells for row in read.rows] == [{name.lower(): COLUMNS[name] for name in columns}]
    assert (read.bad, read.repaired) == ([], 0)


@given(NAMES.map(str.strip).filter(lambda name: "\n" not in name), st.permutations(sorted(COLUMNS)))
def test_a_job_name_with_the_delimiter_in_it_stays_one_cell(name: str, order: list[str]) -> None:
    cells = COLUMNS | {"JobName": f"{name}|lr=1e-4|x"}
    columns = [column for column in order if column != "Reason"]
    read = table("|".join(columns) + "\n" + "|".join(cells[column] for column in columns) + "\n")
    assert [row.cells["jobname"] for row in read.rows] == [cells["JobName"]]
    assert [row.cells["jobid"] for row in read.rows] == ["1099_5"]
    assert read.repaired == 1


def test_two_free_texts_with_the_delimiter_are_told_apart_by_what_stands_between_them() -> None:
    text = "JobID|Comment|State|JobName|ExitCode\n7|a|b c|FAILED|x|y|1:0\n"
    [row] = table(text).rows
    assert (row.cells["comment"], row.cells["jobname"], row.cells["state"]) == ("a|b c", "x|y", "FAILED")


def test_a_reason_with_the_delimiter_and_no_way_to_fit_is_left_out_and_the_rest_read() -> None:
    text = "NodeName|TimeStart|State\nnode1|1795954724|DOWN\nnode2|oops|1795954724|DOWN\nnode3|1795954724|DOWN\n"
    read = table(text)
    assert [row.cells["nodename"] for row in read.rows] == ["node1", "node3"]
    assert [(bad.line, "4 cells where the header has 3" in bad.why) for bad in read.bad] == [(3, True)]


def test_a_line_end_inside_a_comment_does_not_end_the_record() -> None:
    read = table("JobID|Comment|State\n1|first\nsecond|FAILED\n2||COMPLETED\n")
    assert [row.cells for row in read.rows] == [
        {"jobid": "1", "comment": "first\nsecond", "state": "FAILED"},
        {"jobid": "2", "comment": "", "state": "COMPLETED"},
    ]
    assert read.repaired == 1
    assert [row.line for row in read.rows] == [2, 4]


def test_half_a_record_is_named_and_does_not_swallow_the_next() -> None:
    read = table("JobID|Comment|State\n1|broken off\n2||COMPLETED\n3|also\n")
    assert [row.cells["jobid"] for row in read.rows] == ["2"]
    assert [bad.line for bad in read.bad] == [2, 4]


def test_a_file_without_record_ends_is_given_up_after_a_bounded_number_of_lines() -> None:
    read = table("JobID|Comment|State\n" + "x\n" * (CONTINUATION_LINES * 3))
    assert read.rows == []
    assert 2 <= len(read.bad) <= 4


def test_a_trailing_delimiter_is_the_formats_and_not_a_cell() -> None:
    read = table("JobID|State|\n1|FAILED|\n2|COMPLETED|\n")
    assert [row.cells for row in read.rows] == [
        {"jobid": "1", "state": "FAILED"},
        {"jobid": "2", "state": "COMPLETED"},
    ]
    assert read.repaired == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1001|COMPLETED|0:0\n",
        "JobID      State ExitCode\n---------- ----- --------\n1001  COMPLETED 0:0\n",
        "JobID\n1001\n",
    ],
)
def test_what_has_no_header_with_a_delimiter_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(TableError, match=r"empty|--parsable2"):
        table(text)


def test_a_missing_column_is_named() -> None:
    with pytest.raises(TableError, match="no column end, start; add it to --format"):
        read_table(["JobID|State\n"], needed=frozenset({"start", "end"}), wanted=EVERY, what="sacct")


def test_a_header_is_recognised_with_a_byte_order_mark_and_blanks_in_names() -> None:
    assert header_of("\ufeffCluster|Def QOS|NodeName\n") == (("cluster", "def qos", "nodename"), "|")
    assert header_of("lab|node1|2026-11-29T12:18:44") is None
