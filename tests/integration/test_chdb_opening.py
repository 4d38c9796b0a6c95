"""Opening and migrating an embedded store, and what is said when it does not work."""

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

from faultlens.errors import ConfigurationError, WorldError
from faultlens.store import open_store
from sinks.migrate import load_migrations, migrate

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store


def in_another_process(program: str, *arguments: str, timezone: str = "UTC") -> str:
    """Run a program that prints, and return what it printed; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"TZ": timezone, "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_directory_that_does_not_exist_is_made_with_its_parents(tmp_path: Path) -> None:
    with open_store(f"chdb://{tmp_path}/not/yet/store") as store:
        assert len(migrate(store)) == len(load_migrations())


def test_what_was_written_is_there_when_it_is_opened_again_and_nothing_is_migrated_twice(tmp_path: Path) -> None:
    dsn = f"chdb://{tmp_path}/store"
    with open_store(dsn) as store:
        migrate(store)
        store.insert("meta", ("key", "value", "version"), [("filled_until", "x", 1)])
    with open_store(dsn) as store:
        assert migrate(store) == []
        assert store.query("SELECT key, value FROM meta FINAL") == [{"key": "filled_until", "value": "x"}]


def test_where_no_temporary_file_can_be_written_the_store_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(f"chdb://{tmp_path}/store") as store:
        migrate(store)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
        with pytest.raises(WorldError, match=r"failed to insert into meta: .*absent"):
            store.insert("meta", ("key", "value", "version"), [("filled_until", "x", 1)])


def test_values_are_bound_and_times_are_in_utc_wherever_the_process_runs(tmp_path: Path) -> None:
    program = """
        import sys
        from faultlens.store import open_store
        with open_store(sys.argv[1]) as store:
            row, = store.query(
                "SELECT {x:String} AS x, toDateTime64({t:Int64} / 1000, 3, 'UTC') AS t, toDateTime(0, 'UTC') AS d",
                {"x": "it's; DROP TABLE meta", "t": 1_795_000_000_512},
            )
        print(row["x"], row["t"].isoformat(), row["d"].isoformat())
    """
    said = in_another_process(program, str(tmp_path / "store"), timezone="America/New_York")
    assert said == "it's; DROP TABLE meta 2026-11-18T11:06:40.512000+00:00 1970-01-01T00:00:00+00:00"


def test_an_insert_does_not_import_pandas(tmp_path: Path) -> None:
    program = """
        import sys
        from faultlens.store import open_store
        from sinks.migrate import migrate
        with open_store(sys.argv[1]) as store:
            migrate(store)
            store.insert("meta", ("key", "value", "version"), [("a", "b", 1)])
            store.query("SELECT * FROM meta")
        print("pandas" in sys.modules)
    """
    assert in_another_process(program, str(tmp_path / "store")) == "False"


def test_a_store_is_one_processs_and_another_is_told_whose(tmp_path: Path) -> None:
    program = """
        import sys
        from faultlens.errors import WorldError
        from faultlens.store import open_store
        try:
            open_store(sys.argv[1])
        except WorldError as error:
            print(error)
    """
    path = tmp_path / "store"
    with open_store(str(path)):
        said = in_another_process(program, str(path))
        with open_store(str(path)) as again:
            assert again.query("SELECT 1 AS one") == [{"one": 1}]
    assert said == (
        f"the store at chdb://{path} is open in another process (PID: {os.getpid()}): "
        "stop that one, or use another directory"
    )


def test_two_stores_at_once_in_one_process_are_refused_with_the_reason(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "a")), pytest.raises(WorldError, match=r"has the store at .*/a open: close it"):
        open_store(str(tmp_path / "b"))


def test_a_path_that_cannot_be_a_directory_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "store"):
        with pytest.raises(WorldError, match=r"cannot be made: (File exists|Not a directory)"):
            open_store(str(path))


def test_a_directory_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigurationError, match="holds other files and no store"):
        open_store(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_server_that_is_not_there_is_named_without_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLENS_STORE_PASSWORD", "hunter2")
    with pytest.raises(WorldError, match=r"clickhouse://default@127\.0\.0\.1:9/default cannot be reached") as refused:
        open_store("clickhouse://127.0.0.1:9")
    assert "hunter2" not in str(refused.value)


def test_a_missing_table_or_column_leads_to_migrate(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "store")) as store:
        with pytest.raises(WorldError, match=r"no table meta: run `faultlens migrate`"):
            store.insert("meta", ("key",), [("a",)])
        with pytest.raises(WorldError, match=r"failed to query: .*UNKNOWN_TABLE.*run `faultlens migrate`"):
            store.query("SELECT * FROM meta")
        migrate(store)
        with pytest.raises(WorldError, match=r"no columns colour of table meta: run `faultlens migrate`"):
            store.insert("meta", ("key", "colour"), [("a", "red")])
        assert store.insert("meta", ("key", "value", "version"), []) == 0


def test_a_changed_migration_is_refused_and_nothing_is_done(tmp_path: Path) -> None:
    migrations = tmp_path / "migrations"
    migrations.mkdir()
    (migrations / "0001_a.sql").write_text("CREATE TABLE IF NOT EXISTS a (x String) ENGINE = MergeTree ORDER BY x;")
    with open_store(str(tmp_path / "store")) as store:
        assert migrate(store, directory=migrations) == ["0001_a.sql"]
        (migrations / "0001_a.sql").write_text("CREATE TABLE IF NOT EXISTS b (x String) ENGINE = MergeTree ORDER BY x;")
        with pytest.raises(ConfigurationError, match=r"whose 0001_a\.sql differs"):
            migrate(store, directory=migrations)
        assert store.query("SELECT name FROM system.tables WHERE name = 'b'") == []


def test_a_migration_that_failed_half_way_is_applied_again(tmp_path: Path) -> None:
    migrations = tmp_path / "migrations"
    migrations.mkdir()
    good = "CREATE TABLE IF NOT EXISTS a (x String) ENGINE = MergeTree ORDER BY x;"
    (migrations / "0001_a.sql").write_text(f"{good}\nCREATE TABLE IF NOT EXISTS b (x Strong) ENGINE = Memory;")
    with open_store(str(tmp_path / "store")) as store:
        with pytest.raises(WorldError, match="Strong"):
            migrate(store, directory=migrations)
        (migrations / "0001_a.sql").write_text(f"{good}\nCREATE TABLE IF NOT EXISTS b (x String) ENGINE = Memory;")
        assert migrate(store, directory=migrations) == ["0001_a.sql"]
