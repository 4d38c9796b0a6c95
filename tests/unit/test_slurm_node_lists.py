"""Slurm's notation for sets of nodes: what is expanded comes back, and what is none is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.slurm.node_lists import NODES_LIMIT, NodeListError, compress, expand

PREFIXES = st.from_regex(r"[a-z][a-z0-9]{0,6}(?:-[a-z]{1,5})?", fullmatch=True).filter(lambda p: not p[-1].isdigit())
NAMES = st.one_of(
    st.tuples(PREFIXES, st.integers(0, 2_000)).map(lambda pair: f"{pair[0]}{pair[1]}"),
    st.tuples(PREFIXES, st.integers(0, 999)).map(lambda pair: f"{pair[0]}{pair[1]:03}"),
    PREFIXES,
)


@given(st.sets(NAMES, max_size=60))
def test_what_is_compressed_expands_to_the_same_nodes(names: set[str]) -> None:
    assert set(expand(compress(names))) == names


@given(st.sets(NAMES, min_size=1, max_size=60))
def test_compressing_again_changes_nothing(names: set[str]) -> None:
    assert compress(expand(compress(names))) == compress(names)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("node1", ["node1"]),
        ("node[1-3]", ["node1", "node2", "node3"]),
        ("node[4,7]", ["node4", "node7"]),
        ("rack02-gpu[09-11]", ["rack02-gpu09", "rack02-gpu10", "rack02-gpu11"]),
        ("node[7-8],rack02-gpu[09-10]", ["node7", "node8", "rack02-gpu09", "rack02-gpu10"]),
        ("r[1-2]n[08-09]-ib", ["r1n08-ib", "r1n09-ib", "r2n08-ib", "r2n09-ib"]),
        ("a[1,3-4],a3", ["a1", "a3", "a4"]),
    ],
)
def test_lists_expand_in_their_order_and_keep_leading_zeros(text: str, nodes: list[str]) -> None:
    assert list(expand(text)) == nodes


@pytest.mark.parametrize("text", ["", "(null)", "None assigned", "N/A", " "])
def test_words_for_no_nodes_are_no_nodes(text: str) -> None:
    assert expand(text) == ()


@pytest.mark.parametrize("text", ["node[1-3", "node1-3]", "node[3-1]", "node[a-b]", "node[]", "a,,b", "two words"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(NodeListError):
        expand(text)


@pytest.mark.parametrize("text", [f"n[0-{NODES_LIMIT}]", "r[0-999]n[0-999]", "n[1-999999999999]"])
def test_a_mistyped_range_does_not_fill_the_memory(text: str) -> None:
    with pytest.raises(NodeListError, match=r"more than|too long"):
        expand(text)
