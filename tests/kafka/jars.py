"""The broker's class path: Apache Kafka's jars from Maven Central, fetched once and checked against their SHA-256."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.request import urlopen

CENTRAL: Final = "https://repo1.maven.org/maven2"
LIST: Final = Path(__file__).with_name("jars.txt")
_SECONDS: Final = 120


def jars() -> list[Path]:
    """Return the jars of `jars.txt` on this machine; OSError or ValueError where one cannot be had."""
    wanted = [line.split() for line in LIST.read_text("utf-8").splitlines()]
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(lambda entry: _jar(entry[1], entry[0]), wanted))


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "faultlens" / "kafka"


def _jar(path: str, sha256: str) -> Path:
    kept = _cache() / Path(path).name
    if kept.exists():
        return kept
    with urlopen(f"{CENTRAL}/{path}", timeout=_SECONDS) as response:  # noqa: S310 - the address is ours
        content = response.read()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(f"{path} has SHA-256 {found}, expected {sha256}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    unfinished = kept.with_name(f"{kept.name}.{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.replace(kept)
    return kept


if __name__ == "__main__":
    print(f"{len(jars())} jars in {_cache()}")  # noqa: T201 - run by hand
