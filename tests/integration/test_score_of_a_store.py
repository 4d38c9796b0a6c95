"""The same verdicts come out of a replay's files and out of the store that it filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultlens.clock import moment_of
from faultlens.codec import Event, encode, event_of
from faultlens.events import Basis, Cause, Culprit, DeviceRef, JobAttributed, Lost, Retry, Status
from faultlens.store import open_store
from sinks.migrate import migrate
from sinks.writer import StoreWriter
from slo.verdicts import verdicts_of_directory, verdicts_of_store

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

T0 = 1_795_996_800_000


def said(job: str, revision: int, status: Status, *, basis: Basis = "established", loss: int | None = None) -> Event:
    blamed = Culprit("node-1", DeviceRef(index=revision)) if basis == "established" else Culprit()
    data = JobAttributed(
        job, 1, "c1", revision, status, Cause("hardware", "gpu.off_bus"), basis, 0.75, blamed, (), (),
        Retry("retry"), Lost(1.0, 2.0), "a_rule", "catalogue", moment_of(T0), loss=loss,
    )  # fmt: skip
    return event_of(data, source="faultlens", id_=f"{job}-{revision}-{loss}", time_ms=T0 + 500 * revision)


HISTORY = [
    said("amended", 1, "provisional", basis="assumed"),
    said("amended", 2, "final"),
    said("amended", 3, "amended"),
    said("withdrawn", 1, "final"),
    said("withdrawn", 2, "withdrawn"),
    said("waiting", 1, "provisional", basis="supported"),
    said("waiting", 1, "final", loss=1),
]


def test_a_store_and_the_files_of_a_replay_give_the_same_verdicts_in_force(tmp_path: Path) -> None:
    (tmp_path / "attributions.jsonl").write_bytes(b"".join(encode(event) + b"\n" for event in HISTORY))
    with open_store(f"chdb://{tmp_path / 'store'}") as store:
        migrate(store)
        with StoreWriter(store) as writer:
            for event in HISTORY:
                writer.add(event, event.time_ms)
        found = verdicts_of_store(store)
    assert sorted(found, key=lambda verdict: verdict.key) == sorted(
        verdicts_of_directory(tmp_path), key=lambda verdict: verdict.key
    )
    assert [str(verdict.key) for verdict in found] == ["amended/1", "waiting/1", "waiting/1 loss 1"]
