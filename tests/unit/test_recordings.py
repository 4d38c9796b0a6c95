"""Reading recordings: plain, gzip, zstd, standard input; lines of any length; several files by arrival."""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from faultlens.clock import parse_moment
from faultlens.codec import MAX_RECORD_BYTES, Decoder, encode
from faultlens.errors import UsageError, WorldError
from faultlens.recordings import HEAD_BYTES, LongLine, Recording, entries, merged, split
from faultlens.topics import INPUT_TYPES
from tests.simulation.toy import fault

T0 = parse_moment("2026-11-23T04:00:00Z")
LINES = [encode(fault(str(i), f"n{i % 3}", T0 + i * 1000)) for i in range(400)]
CONTENT = b"\n".join(LINES) + b"\n"


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def recording(tmp_path: Path, content: bytes, name: str = "events") -> Recording:
    path = tmp_path / name
    path.write_bytes(content)
    return Recording(str(path))


def ids(*recordings: Recording) -> list[str]:
    return [e.event.id if e.event else str(e.reason) for e in merged(recordings, Decoder(INPUT_TYPES))]


@pytest.mark.parametrize(
    "content",
    [
        CONTENT,
        CONTENT.removesuffix(b"\n"),
        CONTENT.replace(b"\n", b"\r\n"),
        CONTENT.replace(b"\n", b"\n\n  \n"),
        b"\xef\xbb\xbf" + CONTENT,
        gzip.compress(CONTENT),
        gzip.compress(CONTENT[:5000]) + gzip.compress(CONTENT[5000:]),
        zstd(CONTENT),
        zstd(CONTENT[:5000]) + zstd(CONTENT[5000:]),
    ],
    ids=["plain", "no-last-end", "windows", "blank", "marked", "gzip", "gzip-parts", "zstd", "zstd-frames"],
)
def test_what_is_in_a_file_is_read_whatever_wraps_it(tmp_path: Path, content: bytes) -> None:
    assert ids(recording(tmp_path, content)) == [str(i) for i in range(400)]


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", gzip.compress(b""), zstd(b"")], ids=["nothing", "blank", "gzip", "zstd"]
)
def test_an_empty_recording_holds_no_events(tmp_path: Path, content: bytes) -> None:
    assert ids(recording(tmp_path, content)) == []


@pytest.mark.parametrize("packed", [gzip.compress(CONTENT), zstd(CONTENT)], ids=["gzip", "zstd"])
@pytest.mark.parametrize("how", ["cut", "bent", "trailed"])
def test_broken_compression_is_reported_with_file_and_line(tmp_path: Path, packed: bytes, how: str) -> None:
    middle = len(packed) // 2
    broken = {
        "cut": packed[:-10],
        "bent": packed[:middle] + bytes(b ^ 0x5A for b in packed[middle : middle + 40]) + packed[middle + 40 :],
        "trailed": packed + b"what is this?",
    }[how]
    broken_file = recording(tmp_path, broken, "broken.jsonl")
    with pytest.raises(WorldError, match=r"broken\.jsonl: the compressed data is broken after line \d+ .*get the file"):
        ids(broken_file)


def test_what_came_before_the_break_is_read_first(tmp_path: Path) -> None:
    packed = gzip.compress(CONTENT) + gzip.compress(CONTENT)[:-20]
    seen: list[object] = []
    with pytest.raises(WorldError):
        seen.extend(entries(recording(tmp_path, packed), Decoder(INPUT_TYPES)))
    assert len(seen) >= 400


def test_a_file_that_is_not_there_is_told_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing\.jsonl cannot be read: No such file"):
        Recording(str(tmp_path / "missing.jsonl"))
    with pytest.raises(UsageError, match="is a directory: name the files"):
        Recording(str(tmp_path))


def test_standard_input_is_read_like_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(zstd(CONTENT))))
    source = Recording("-")
    assert (source.size, len(ids(source))) == (None, 400)


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    content = b"\n" + LINES[0] + b"\nnot json\n\n{}\n"
    found = [(e.line, e.reason) for e in entries(recording(tmp_path, content), Decoder(INPUT_TYPES))]
    assert found == [(2, None), (3, "not_json"), (5, "missing_field")]


def test_an_output_event_has_no_business_in_the_input(tmp_path: Path) -> None:
    content = LINES[0].replace(b"faultlens.node.fault.v1", b"faultlens.node.state.v1")
    assert ids(recording(tmp_path, content)) == ["unknown_type"]


# --- lines ---------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=12), max_size=20), st.data())
def test_however_a_file_is_cut_into_chunks_its_lines_are_the_same(parts: list[bytes], data: Any) -> None:
    content = b"\n".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    chunks = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True) if b > a]
    assert list(split(chunks)) == (content.removesuffix(b"\n").split(b"\n") if content else [])


@pytest.mark.parametrize("size", [MAX_RECORD_BYTES + 1, 3_000_000])
@pytest.mark.parametrize("chunk", [1000, 65_536, 10_000_000])
@pytest.mark.parametrize("ended", [True, False])
def test_a_line_beyond_the_limit_leaves_its_beginning_size_and_digest(size: int, chunk: int, ended: bool) -> None:
    long = bytes(65 + i % 26 for i in range(26)) * (size // 26) + b"x" * (size % 26)
    content = b"first\n" + long + (b"\nlast\nvery last" if ended else b"")
    found = list(split(content[i : i + chunk] for i in range(0, len(content), chunk)))
    expected = LongLine(long[:HEAD_BYTES], size, hashlib.sha256(long).hexdigest())
    assert found == [b"first", expected, *([b"last", b"very last"] if ended else [])]


def test_a_long_line_becomes_one_entry_with_the_reason(tmp_path: Path) -> None:
    content = b"x" * (MAX_RECORD_BYTES + 7) + b"\n" + LINES[0]
    first, second = entries(recording(tmp_path, content), Decoder(INPUT_TYPES))
    assert (first.reason, first.error) == ("too_large", f"{MAX_RECORD_BYTES + 7} bytes, at most 262144 are accepted")
    assert len(first.raw) == HEAD_BYTES
    assert second.event is not None


# --- several files -------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 50), max_size=12), min_size=1, max_size=4))
def test_files_are_merged_by_arrival_and_each_keeps_its_order(minutes: list[list[int]]) -> None:
    def source(file: int) -> Recording:
        return _Held(
            [
                encode(fault(f"{file}.{n}", f"n{file}", T0 + at * 60_000, recorded_ms=T0 + at * 60_000))
                for n, at in enumerate(minutes[file])
            ]
        )

    found = list(merged([source(file) for file in range(len(minutes))], Decoder(INPUT_TYPES)))
    assert [e.arrived_ms for e in found] == sorted(e.arrived_ms for e in found)
    for file, own in enumerate(minutes):
        mine = [e.event.id for e in found if e.event is not None and e.event.id.startswith(f"{file}.")]
        assert mine == [f"{file}.{n}" for n in range(len(own))]


class _Held(Recording):
    """A recording whose lines are at hand."""

    def __init__(self, held: list[bytes]) -> None:
        super().__init__("-")
        self._held = held

    def lines(self) -> Any:
        return iter(self._held)


@pytest.mark.parametrize("packed", [gzip.compress(CONTENT), zstd(CONTENT)], ids=["gzip", "zstd"])
def test_a_broken_end_is_told_before_the_beginning_is_read(packed: bytes, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.write_bytes(packed)
    cut.write_bytes(packed[:-3])
    recording = Recording(str(whole))
    recording.verify()
    assert recording.bytes_read == 0
    assert b"\n".join(line for line in recording.lines() if isinstance(line, bytes)) == CONTENT.rstrip(b"\n")
    with pytest.raises(WorldError, match="broken after line"):
        Recording(str(cut)).verify()
