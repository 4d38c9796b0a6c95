"""Brings a store's tables up to date: numbered SQL files, each applied once, none changed afterwards."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from faultlens.errors import ConfigurationError
from faultlens.store import Profile, Store

DIRECTORY: Final = Path(__file__).parent / "migrations"
_NAME: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
# A string or a comment hides a semicolon; what is neither is taken character by character.
_PIECE: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'|--[^\n]*|;|[^';-]+|.", re.DOTALL)
_ENGINE: Final = re.compile(r"(?m)^ENGINE = (\w*MergeTree)")
_CREATED: Final = re.compile(r"^(CREATE TABLE IF NOT EXISTS|CREATE OR REPLACE VIEW|ALTER TABLE) (\w+)")
_LEDGER: Final = """\
CREATE TABLE IF NOT EXISTS schema_migrations
(
    number UInt32,
    name String,
    checksum String,
    applied DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
)
ENGINE = ReplacingMergeTree(applied)
ORDER BY number
"""


@dataclass(frozen=True)
class Migration:
    """One file: its number, its name, and its text as applied by the `chdb` profile."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """A digest of the text: what was applied once must not change."""
        return hashlib.blake2b(self.sql.encode(), digest_size=16).hexdigest()


def load_migrations(directory: Path = DIRECTORY) -> list[Migration]:
    """Return the directory's migrations in order; ConfigurationError if a number is missing or used twice."""
    found = []
    for path in sorted(directory.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ConfigurationError(f"{path}: not a migration's name (expected like 0004_what_it_does.sql)")
        found.append(Migration(int(match[1]), path.name, path.read_text(encoding="utf-8")))
    for expected, migration in enumerate(found, 1):
        if migration.number != expected:
            raise ConfigurationError(f"{directory / migration.name}: number {expected:04} was expected here")
    return found


def pending(migrations: Sequence[Migration], applied: Mapping[int, str]) -> list[Migration]:
    """Return what is still to be applied, given the checksums of what was.

    ConfigurationError: a file changed since it was applied, or the store was made by a newer version.
    """
    newer = max(applied, default=0) - len(migrations)
    if newer > 0:
        raise ConfigurationError(
            f"the store was made by a newer faultlens: it has {newer} migrations that this version does not know. "
            "Upgrade faultlens, or use another store"
        )
    for migration in migrations:
        if applied.get(migration.number, migration.checksum) != migration.checksum:
            raise ConfigurationError(
                f"the store was made by another version of faultlens, whose {migration.name} differs from this one's: "
                "read it with that version, or replay the events into a new store"
            )
    return [migration for migration in migrations if migration.number not in applied]


def outstanding(store: Store, *, directory: Path = DIRECTORY) -> list[Migration]:
    """Return the migrations that the store still needs, without changing it. Raises what `pending` does."""
    begun = store.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND name = 'schema_migrations'"
    )
    applied = store.query("SELECT number, checksum FROM schema_migrations FINAL") if begun else []
    return pending(load_migrations(directory), {row["number"]: row["checksum"] for row in applied})


def migrate(store: Store, *, profile: Profile | None = None, directory: Path = DIRECTORY) -> list[str]:
    """Bring the store's tables up to date and return the names of the migrations applied, none if it was.

    A migration that failed half-way is applied again: every statement can be repeated. WorldError: the store failed.
    """
    chosen = profile or store.profile
    due = outstanding(store, directory=directory)
    if due:
        store.command(rendered(_LEDGER, chosen))
    for migration in due:
        for statement in statements(migration.sql):
            store.command(rendered(statement, chosen))
        store.command(
            "INSERT INTO schema_migrations (number, name, checksum) "
            "VALUES ({number:UInt32}, {name:String}, {checksum:String})",
            {"number": migration.number, "name": migration.name, "checksum": migration.checksum},
        )
    return [migration.name for migration in due]


def statements(sql: str) -> list[str]:
    """Return the statements of a file, without comments; a semicolon within a string ends nothing."""
    parts = [""]
    for piece in _PIECE.findall(sql):
        if piece == ";":
            parts.append("")
        elif not piece.startswith("--"):
            parts[-1] += piece
    return [part.strip() for part in parts if part.strip()]


def rendered(statement: str, profile: Profile) -> str:
    """Return the statement in the profile's dialect: a replicated store needs replicated engines on all its servers.

    The macro {cluster} and the default replica path are the server's settings.
    """
    if profile != "replicated":
        return statement
    everywhere = _CREATED.sub(r"\1 \2 ON CLUSTER '{cluster}'", statement)
    remembering = everywhere.replace("non_replicated_deduplication_window", "replicated_deduplication_window")
    return _ENGINE.sub(r"ENGINE = Replicated\1", remembering)
