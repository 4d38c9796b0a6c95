"""What the agent remembers from one run to the next: a small file, written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from faultlens.clock import MINUTE_MS
from faultlens.errors import WorldError
from producers.agent.kernel import Cursor

# So many starts within so long are a crash loop.
LOOP_STARTS: Final = 4
LOOP_MS: Final = 15 * MINUTE_MS


class Memory(Struct, frozen=True, omit_defaults=True):
    """`checks`: the names reported last; `starts_ms`: the newest starts of the agent; `boot_ms`: when the host booted,
    as it was first reckoned, so that a line's moment is the same in every run; `told_inventory`: the boot and the GPUs
    whose inventory was sent; `good_reports`: in a row since the boot, until there were as many as are asked for;
    `links`: the most that were up of each kind in this boot, `links_before` in earlier ones.
    """

    boot_id: str = ""
    boot_ms: int = 0
    cursor: int = -1
    checks: tuple[str, ...] = ()
    version: str = ""
    starts_ms: tuple[int, ...] = ()
    told_inventory: str = ""
    gpus: int = 0
    good_reports: int = 0
    links: dict[str, int] = {}
    links_before: dict[str, int] = {}


def load_memory(path: Path) -> Memory:
    """Return what was remembered; a file that is damaged is nothing remembered."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Memory)
    except FileNotFoundError:
        return Memory()
    except msgspec.DecodeError:
        return Memory()
    except OSError as error:
        raise WorldError(f"{path} cannot be read: {error.strerror or error}") from error


def save_memory(path: Path, memory: Memory) -> None:
    """Write the memory. WorldError: the disk does not take it."""
    unfinished = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            file.write(msgspec.json.encode(memory))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise WorldError(f"{path} cannot be written: {error.strerror or error}") from error


def started(memory: Memory, now_ms: int, *, boot_id: str, boot_ms: int) -> Memory:
    """Return the memory at a start of the agent: of another boot only the starts and the checks are kept."""
    starts = (*(at for at in memory.starts_ms if 0 <= now_ms - at <= LOOP_MS), now_ms)[-LOOP_STARTS:]
    if memory.boot_id != boot_id:
        return Memory(
            boot_id,
            boot_ms,
            checks=memory.checks,
            version=memory.version,
            starts_ms=starts,
            gpus=memory.gpus,
            links_before=memory.links_before | memory.links,
        )
    return msgspec.structs.replace(memory, starts_ms=starts)


def is_looping(memory: Memory) -> bool:
    """Return whether the agent was started so often lately that it must be dying."""
    return len(memory.starts_ms) >= LOOP_STARTS


def cursor_of(memory: Memory) -> Cursor:
    """Return where the kernel's log was read to."""
    return Cursor(memory.boot_id, memory.cursor)
