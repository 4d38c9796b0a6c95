"""Disks and mounts: full, read-only, stale, or hanging."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Final, NamedTuple

from faultlens.events import Check
from producers.agent.probe import MissingError

MOUNTS: Final = Path("/proc/self/mounts")
# File systems behind a network: asking one whose server is away never returns.
NETWORKED: Final = frozenset(
    {"nfs", "nfs4", "lustre", "ceph", "gpfs", "beegfs", "wekafs", "glusterfs", "cifs", "smb3", "9p", "orangefs"}
)
FULL: Final = 0.98
NEARLY_FULL: Final = 0.92
# A mount has so long to answer, well within the probe's own deadline, so that the one that hangs is named.
ANSWER_S: Final = 5.0
# What a mount answers whose server, disk or daemon is gone.
STALE: Final = frozenset(
    {errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ESHUTDOWN, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.ENODEV}
)


@dataclass(frozen=True)
class Space:
    """How a file system stands: shares of its bytes and of its files that are used, and whether it takes writes."""

    path: str
    used: float
    files_used: float
    writable: bool


def look_at_disks(paths: Sequence[str]) -> list[Check]:
    """Check the local file systems that jobs need. MissingError: one of them is not there."""
    return [judge_disks([_space(path) for path in paths])]


def judge_disks(spaces: Iterable[Space]) -> Check:
    """Return the check of local disks: the worst of them decides and is named."""
    worst: tuple[int, Check] = (0, Check("local_disk", "storage", "pass"))
    for space in spaces:
        used = max(space.used, space.files_used)
        told = f"{space.path}: {used:.0%} used"
        if not space.writable:
            found = (3, Check("local_disk", "storage", "fail", None, "read_only_fs", f"{space.path} is read-only"))
        elif used >= FULL:
            found = (2, Check("local_disk", "storage", "fail", None, "full", told))
        elif used >= NEARLY_FULL:
            found = (1, Check("local_disk", "storage", "warn", None, "full", told))
        else:
            continue
        worst = max(worst, found, key=lambda one: one[0])
    return worst[1]


def _space(path: str) -> Space:
    try:
        told = os.statvfs(path)
    except FileNotFoundError:
        raise MissingError(f"{path} is not there") from None
    used = 1 - told.f_bavail / told.f_blocks if told.f_blocks else 0.0
    files_used = 1 - told.f_favail / told.f_files if told.f_files else 0.0
    return Space(path, used, files_used, not told.f_flag & os.ST_RDONLY)


def look_at_mounts(expected: Sequence[str], table: Path = MOUNTS, answer_s: float = ANSWER_S) -> list[Check]:
    """Check that every network mount answers and every expected one is there."""
    mounted = parse_mounts(table.read_text(encoding="utf-8", errors="surrogateescape"))
    absent = [path for path in expected if path not in mounted]
    asked = [path for path, kind in mounted.items() if is_networked(kind) or path in expected]
    hung, stale = unwell(asked, os.statvfs, answer_s)
    # Any user may have mounted something by FUSE, and left it.
    ours = {path: why for path, why in stale.items() if path in expected or not mounted[path].startswith("fuse.")}
    return [judge_mounts(absent, hung, ours)]


def judge_mounts(absent: Sequence[str], hung: Sequence[str], stale: Mapping[str, str]) -> Check:
    """Return the check of mounts: one that hangs is worse than one that is not there, since jobs hang on it too.

    `stale`: those that only answer with an error, and which.
    """
    if hung:
        return Check("mounts", "storage", "timeout", None, "mount_hung", f"no answer: {', '.join(hung)}")
    if stale:
        told = ", ".join(f"{path} ({why})" for path, why in stale.items())
        return Check("mounts", "storage", "fail", None, "stale", f"mounted, and of no use: {told}")
    if absent:
        return Check("mounts", "storage", "fail", None, "not_mounted", f"not mounted: {', '.join(absent)}")
    return Check("mounts", "storage", "pass")


def is_networked(kind: str) -> bool:
    """Return whether a file system of this kind is behind a network."""
    return kind in NETWORKED or kind.startswith("fuse.")


def parse_mounts(table: str) -> dict[str, str]:
    r"""Return the kind of file system by mount point; the table writes a space as `\040`."""
    found = {}
    for line in table.splitlines():
        parts = line.split(" ")
        if len(parts) >= 3:
            found[_unescaped(parts[1])] = parts[2]
    return found


def _unescaped(path: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path


class Unwell(NamedTuple):
    """The paths that do not answer in time, and those that answer that what is behind them is gone, with its words."""

    hung: list[str]
    stale: dict[str, str]


def unwell(paths: Sequence[str], ask: Callable[[str], object], answer_s: float) -> Unwell:
    """Return the paths that are not well; that one is not there or forbidden is an answer. Those that hang are left to
    hang."""
    stale: dict[str, str] = {}
    threads = [Thread(target=_asked, args=(ask, path, stale), daemon=True) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(answer_s)
        answer_s = answer_s if not thread.is_alive() else 0.1
    hung = [path for path, thread in zip(paths, threads, strict=True) if thread.is_alive()]
    return Unwell(hung, {path: stale[path] for path in paths if path in stale})


def _asked(ask: Callable[[str], object], path: str, stale: dict[str, str]) -> None:
    try:
        ask(path)
    except OSError as error:
        if error.errno in STALE:
            stale[path] = error.strerror or str(error)
