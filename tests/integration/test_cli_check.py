"""`faultlens check`, `migrate` and `schema`, as they are called."""

import json
import socket
from pathlib import Path

import pytest

from faultlens.cli import main
from faultlens.codec import encode
from tests.unit.scenes import Scene

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STORE", "STORE_PASSWORD", "STORE_PASSWORD_FILE", "BROKERS"):
        monkeypatch.delenv(f"FAULTLENS_{name}", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def called(*arguments: str) -> int:
    """Run the program and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def levels(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    return {finding["part"]: finding["level"] for finding in json.loads(capsys.readouterr().out)}


def test_a_new_installation_is_right_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert called("check", "--json") == 0
    assert levels(capsys) == dict.fromkeys(
        ("settings", "catalogue", "signatures", "objectives", "policy", "store"), "ok"
    )
    assert not (tmp_path / "data").exists()


def test_each_wrong_part_is_told_with_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    objectives = tmp_path / "objectives.yaml"
    objectives.write_text("apiVersion: openslo/v1\nmetadata: {name: x}\nkind: SLOW\n")
    monkeypatch.setenv("FAULTLENS_BROKERS", "kafka")
    monkeypatch.setenv("FAULTLENS_STROE", "x")
    assert called("check", "--objectives", str(objectives), "--store", "clickhouse://me:hunter2@db") == 1
    said = capsys.readouterr().out
    assert "warning  settings    FAULTLENS_STROE is not a setting of faultlens: is it misspelt?" in said
    assert "problem  objectives" in said
    assert f"{objectives}:3" in said
    assert "leave it out and set FAULTLENS_STORE_PASSWORD" in said
    assert "problem  brokers     FAULTLENS_BROKERS: 'kafka' is not host:port" in said
    assert "hunter2" not in said


def test_brokers_are_tried_one_by_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as up, socket.create_server(("127.0.0.1", 0)) as other:
        answering, closed = up.getsockname()[1], other.getsockname()[1]
        other.close()
        monkeypatch.setenv("FAULTLENS_BROKERS", f"127.0.0.1:{answering}, 127.0.0.1:{closed}")
        assert called("check") == 1
    said = capsys.readouterr().out
    assert f"ok       brokers     127.0.0.1:{answering} answers" in said
    assert f"problem  brokers     127.0.0.1:{closed} cannot be reached" in said


def test_a_store_that_is_behind_is_brought_up_to_date_by_migrate_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    assert called("check", "--json", "--store", str(store)) == 1
    assert levels(capsys)["store"] == "problem"
    assert called("migrate", "--store", str(store)) == 0
    assert capsys.readouterr().out.startswith("applied 0001_inputs.sql\napplied 0002_answers.sql\n")
    assert called("migrate", "--store", str(store)) == 0
    assert capsys.readouterr().out == "up to date\n"
    assert called("check", "--json", "--store", str(store)) == 0
    assert levels(capsys)["store"] == "ok"


def test_an_embedded_store_cannot_be_replicated(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert called("migrate", "--replicated", "--store", str(tmp_path / "store")) == 2
    assert "is an embedded store, which cannot be replicated" in capsys.readouterr().err


def test_a_schema_is_printed_as_json_and_a_wrong_type_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert called("schema", "faultlens.node.fault.v1") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "faultlens.node.fault.v1"
    assert called("schema", "--asyncapi") == 0
    assert json.loads(capsys.readouterr().out)["asyncapi"] == "3.0.0"
    assert called("schema", "faultlens.node.flaw.v1") == 2
    assert called("schema", "faultlens.node.fault.v1", "--asyncapi") == 2


def test_names_that_came_under_two_clusters_are_told_and_change_no_exit_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one, other = Scene("c1").node("n1", until=5).job("7", "n1"), Scene("typo").fault(1, "n1", "xid", "79", 0)
    again = Scene("c2").job("7", "n9")
    file, store = tmp_path / "events.jsonl", tmp_path / "store"
    told = sorted((t for s in (one, other, again) for t in s.events()), key=lambda t: t[0])
    file.write_bytes(b"".join(encode(event) + b"\n" for _, event in told))
    assert called("replay", str(file), "--store", str(store)) == 0
    assert "1 node name came under more than one cluster (n1 in c1, typo)" in capsys.readouterr().out
    assert called("check", "--store", str(store)) == 0
    said = capsys.readouterr().out
    assert "warning  names       1 node name(s) came under more than one cluster, such as n1 in c1, typo" in said
    assert "warning  names       1 job name(s) came under more than one cluster, such as 7 in c1, c2" in said
