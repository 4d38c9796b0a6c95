"""The state of an embedded runtime between two replays: one file, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import zstandard
from msgspec import Raw, Struct

from faultlens.errors import ConfigurationError, WorldError
from faultlens.settings import data_directory
from faultlens.store import Embedded, parse_dsn
from faultlens.version import program_version
from streams.runtime.records import LaneRecord, Role
from streams.runtime.state import KeptCodec, MemoryStates
from streams.runtime.task import Task

# Raise it whenever a state can no longer be read as what it was.
FORMAT: Final = 1
_MAX_FRAME_BYTES: Final = 1 << 28
_encode: Final = msgspec.msgpack.Encoder().encode
_decode_kept: Final = msgspec.msgpack.Decoder(tuple[str, Raw]).decode


class _Header(Struct, frozen=True):
    magic: str
    format: int
    program: str
    lanes: int


class _Lane(Struct, frozen=True):
    role: str
    number: int
    keys: int
    record: LaneRecord


def state_path(dsn: str) -> Path:
    """Return where the state of a store's replays is kept: beside an embedded one, else with the user's data."""
    place = parse_dsn(dsn)
    if isinstance(place, Embedded):
        return place.path.with_name(f"{place.path.name}.replay-state")
    digest = hashlib.sha256(str(place).encode()).hexdigest()[:16]
    return data_directory() / "faultlens" / f"{digest}.replay-state"


def save(path: Path, tasks: Sequence[Task]) -> None:
    """Write the lanes' states to `path`; the file that was there stays whole until the new one is complete."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            _write(file, tasks)
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise WorldError(f"the state cannot be saved at {path}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _write(file: BinaryIO, tasks: Sequence[Task]) -> None:
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    with compressor.stream_writer(file, closefd=False) as out:
        for frame in _frames(tasks):
            out.write(len(frame).to_bytes(4, "big") + frame)


def _frames(tasks: Sequence[Task]) -> Iterator[bytes]:
    yield _encode(_Header("faultlens-state", FORMAT, program_version(), len(tasks)))
    for task in tasks:
        codec = KeptCodec(task.role.processor.state_type)
        yield _encode(_Lane(task.role.name, task.number, len(task.states), task.lane))
        for key, kept in task.states.items():
            yield _encode((key, Raw(codec.encode(kept))))


def load(path: Path, roles: Sequence[Role]) -> list[Task]:
    """Return the lanes as they were saved, new ones where there is no file; ConfigurationError if it is no use."""
    try:
        with path.open("rb") as file:
            return _read(_unframed(file), roles)
    except FileNotFoundError:
        return [Task(role) for role in roles]
    except OSError as error:
        raise WorldError(f"the state at {path} cannot be read: {error.strerror or error}") from error
    except (zstandard.ZstdError, msgspec.DecodeError, EOFError, _UnusableError) as error:
        raise ConfigurationError(
            f"the state saved at {path} cannot be used: {error}; start anew with --fresh, which reads nothing of it "
            "and replaces it at the end"
        ) from error


class _UnusableError(Exception):
    """The saved state is whole, but not for this program."""


def _read(frames: Iterator[bytes], roles: Sequence[Role]) -> list[Task]:
    header = msgspec.msgpack.decode(next(frames), type=_Header)
    if header.magic != "faultlens-state" or header.format != FORMAT:
        raise _UnusableError(f"it is of format {header.format}, written by faultlens {header.program}")
    by_name = {role.name: role for role in roles}
    tasks: dict[str, Task] = {}
    for _ in range(header.lanes):
        lane = msgspec.msgpack.decode(next(frames), type=_Lane)
        if lane.role not in by_name:
            raise _UnusableError(f"it holds {lane.role}, which faultlens {program_version()} does not know")
        tasks[lane.role] = _task(by_name[lane.role], lane, frames)
    return [tasks.get(role.name) or Task(role) for role in roles]


def _task(role: Role, lane: _Lane, frames: Iterator[bytes]) -> Task:
    codec = KeptCodec(role.processor.state_type)
    states = MemoryStates()
    for _ in range(lane.keys):
        key, raw = _decode_kept(next(frames))
        states.put(key, codec.decode(raw))
    return Task(role, lane.number, states=states, lane=lane.record)


def _unframed(file: BinaryIO) -> Iterator[bytes]:
    with zstandard.ZstdDecompressor().stream_reader(file, closefd=False) as source:
        while True:
            size = int.from_bytes(_exactly(source, 4), "big")
            if size > _MAX_FRAME_BYTES:
                raise _UnusableError("it is damaged")
            yield _exactly(source, size)


def _exactly(source: zstandard.ZstdDecompressionReader, size: int) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise EOFError("it is damaged: it ends in the middle")
    return data
