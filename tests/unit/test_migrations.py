"""Which migrations are applied, and which are refused."""

import re
from pathlib import Path

import pytest

from faultlens.errors import ConfigurationError
from sinks.migrate import Migration, load_migrations, pending, rendered, statements

ONE = Migration(1, "0001_one.sql", "CREATE TABLE IF NOT EXISTS a (x String) ENGINE = MergeTree ORDER BY x;")
TWO = Migration(2, "0002_two.sql", "CREATE OR REPLACE VIEW b AS SELECT 1;")


def test_a_new_store_needs_all_and_an_old_one_what_it_has_not() -> None:
    assert pending([ONE, TWO], {}) == [ONE, TWO]
    assert pending([ONE, TWO], {1: ONE.checksum}) == [TWO]
    assert pending([ONE, TWO], {1: ONE.checksum, 2: TWO.checksum}) == []


def test_a_file_that_changed_since_it_was_applied_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"another version of faultlens, whose 0001_one\.sql differs"):
        pending([ONE, TWO], {1: "another", 2: TWO.checksum})


def test_a_store_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="newer faultlens: it has 1 migrations"):
        pending([ONE], {1: ONE.checksum, 2: TWO.checksum})


def test_semicolons_in_strings_and_comments_end_nothing() -> None:
    sql = "SELECT 'a;b', 'it''s', '\\';' -- and; this\n; -- only a comment;\nSELECT 2 - 1;\n"
    assert statements(sql) == ["SELECT 'a;b', 'it''s', '\\';'", "SELECT 2 - 1"]


@pytest.mark.parametrize("name", ["0003_gap.sql", "1_short.sql", "0002_two.sql.sql"])
def test_files_are_numbered_without_gaps(tmp_path: Path, name: str) -> None:
    (tmp_path / "0001_one.sql").write_text(ONE.sql)
    (tmp_path / name).write_text(TWO.sql)
    with pytest.raises(ConfigurationError, match=name):
        load_migrations(tmp_path)


def test_every_statement_can_be_repeated() -> None:
    for migration in load_migrations():
        for statement in statements(migration.sql):
            replacing = ("INSERT INTO gpu_hours_due SELECT ", "INSERT INTO node_states\nSELECT")
            again = ("CREATE TABLE IF NOT EXISTS ", "CREATE OR REPLACE VIEW ", *replacing)
            assert statement.startswith(again) or re.fullmatch(
                r"ALTER TABLE \w+ "
                r"(MODIFY SETTING \w+ = \d+|DROP COLUMN IF EXISTS \w+|MODIFY COLUMN \w+ DEFAULT \w+|"
                r"ADD COLUMN IF NOT EXISTS \w+ \w+( EPHEMERAL)?)|"
                r"ALTER TABLE \w+\s+ADD COLUMN IF NOT EXISTS (\w+) [\w()]+, MODIFY ORDER BY \([\w, ]+, \3\)",
                statement,
            ), statement[:60]


def test_a_replicated_store_gets_replicated_engines_on_all_its_servers() -> None:
    (table,) = statements("CREATE TABLE IF NOT EXISTS a\n(x String)\nENGINE = ReplacingMergeTree(x)\nORDER BY x;")
    assert rendered(table, "replicated") == (
        "CREATE TABLE IF NOT EXISTS a ON CLUSTER '{cluster}'\n(x String)\n"
        "ENGINE = ReplicatedReplacingMergeTree(x)\nORDER BY x"
    )
    assert rendered(TWO.sql, "replicated") == "CREATE OR REPLACE VIEW b ON CLUSTER '{cluster}' AS SELECT 1;"
    assert rendered("ALTER TABLE a MODIFY SETTING non_replicated_deduplication_window = 9", "replicated") == (
        "ALTER TABLE a ON CLUSTER '{cluster}' MODIFY SETTING replicated_deduplication_window = 9"
    )
    assert rendered(table, "single") == rendered(table, "chdb") == table
