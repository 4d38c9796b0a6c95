"""The store of answers: ClickHouse, embedded (chDB) or on a server. Only this module knows its driver."""

from __future__ import annotations

import fcntl
import logging
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Any, Final, Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from faultlens.clock import monotonic_s
from faultlens.errors import ConfigurationError, FaultlensError, WorldError
from faultlens.settings import PREFIX, Settings, load_settings
from faultlens.store_failures import SCHEMA, failure_class

Profile = Literal["chdb", "single", "replicated"]
Parameters = Mapping[str, object]

INSTALL: Final = "pip install 'faultlens[store]'"
# A history that is replayed touches more months than the engine's default allows one insert to (100).
_SETTINGS: Final = {"max_partitions_per_insert_block": 0}
_LOOK_EVERY_S: Final = 0.05
# What the engine leaves in a directory that holds no table yet.
_ENGINES_OWN: Final = frozenset({"tmp", "status"})
_FORMS: Final = "chdb:///absolute/path, a path, or clickhouse://user@host:8123/database (clickhouses:// for TLS)"


class RejectedRowsError(FaultlensError):
    """The store refused rows because of a value in them; nothing else is wrong with it."""


class StoreBusyError(WorldError):
    """The store is away, overloaded or short of something: the same call may succeed later."""


@dataclass(frozen=True)
class Embedded:
    """A directory that chDB keeps its data in."""

    path: Path

    def __str__(self) -> str:
        return f"chdb://{self.path}"


@dataclass(frozen=True)
class Server:
    """A ClickHouse server, reached by HTTP. The password is not part of it."""

    host: str
    port: int
    user: str
    database: str
    secure: bool
    options: Mapping[str, str | int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"clickhouse{'s' if self.secure else ''}://{self.user}@{self.host}:{self.port}/{self.database}"


_OPTIONS: Final[dict[str, type[str | int]]] = {
    "verify": str,
    "ca_cert": str,
    "client_cert": str,
    "client_cert_key": str,
    "connect_timeout": int,
    "send_receive_timeout": int,
}


def parse_dsn(dsn: str) -> Embedded | Server:
    """Return what `dsn` names; ConfigurationError says which forms there are. Nothing is opened."""
    scheme, separator, rest = dsn.partition("://")
    if not separator or scheme == "chdb":
        return _embedded(rest if separator else dsn)
    if scheme not in {"clickhouse", "clickhouses"}:
        raise ConfigurationError(f"not a store: {scheme}://… (expected {_FORMS})")
    return _server(dsn, secure=scheme == "clickhouses")


def _embedded(location: str) -> Embedded:
    if not location.strip():
        raise ConfigurationError(f"the store's path is empty (expected {_FORMS})")
    return Embedded(Path(location).expanduser().absolute())


def _server(dsn: str, *, secure: bool) -> Server:
    try:
        parts = urlsplit(dsn)
        port = parts.port or (8443 if secure else 8123)
    except ValueError as error:
        raise ConfigurationError(f"the store's address is not a URL: {error} (expected {_FORMS})") from None
    if parts.password is not None:
        raise ConfigurationError(
            "the store's address contains a password, which process lists and logs would show: "
            "leave it out and set FAULTLENS_STORE_PASSWORD or FAULTLENS_STORE_PASSWORD_FILE"
        )
    if not parts.hostname:
        raise ConfigurationError(f"the store's address names no host (expected {_FORMS})")
    return Server(
        host=parts.hostname,
        port=port,
        user=unquote(parts.username or "default"),
        database=parts.path.strip("/") or "default",
        secure=secure,
        options=_options(parts.query),
    )


def _options(query: str) -> dict[str, str | int]:
    options: dict[str, str | int] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise ConfigurationError(f"unknown option of the store's address: {name} (known: {', '.join(_OPTIONS)})")
        try:
            options[name] = _OPTIONS[name](value)
        except ValueError:
            raise ConfigurationError(f"option {name} of the store's address is not a number: {value!r}") from None
    return options


class Store:
    """An open store. One thread at a time; close it, or use it in a `with` block."""

    def __init__(self, client: Any, place: Embedded | Server) -> None:
        self._client = client
        self._place = place
        self._types: dict[str, dict[str, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        return str(self._place)

    @property
    def profile(self) -> Profile:
        """Which dialect of table definitions the engine needs, unless the installation says otherwise."""
        return "chdb" if isinstance(self._place, Embedded) else "single"

    def query(self, sql: str, params: Parameters | None = None) -> list[dict[str, Any]]:
        """Return the rows that `sql` selects, as dicts by column; times are aware and in UTC.

        Values are passed as `params` and named `{name:Type}` in the SQL, never pasted into it. WorldError on failure.
        """
        with self._failures("query"):
            result = self._client.query(sql, parameters=dict(params or {}), query_tz="UTC")
            return list(result.named_results())

    def command(self, sql: str, params: Parameters | None = None) -> None:
        """Carry out a statement that returns nothing. WorldError on failure."""
        with self._failures("command"):
            self._client.command(sql, parameters=dict(params or {}))

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]], token: str = "") -> int:
        """Insert rows (times as milliseconds or aware moments) and return how many.

        Of several inserts with the same `token` the table keeps the first, whatever the others contain.
        RejectedRowsError: a value does not fit its column. StoreBusyError: try again later. WorldError: table or column
        missing, or the user may not.
        """
        if not rows:
            return 0
        types = self._column_types(table, columns)
        settings = {"insert_deduplication_token": token} if token else None
        with self._failures(f"insert into {table}"), _refusals(table):
            data = list(zip(*rows, strict=True))
            done = self._client.insert(
                table, data, column_names=columns, column_type_names=types, column_oriented=True, settings=settings
            )
        if isinstance(self._place, Server) and not done.query_id():
            # A proxy's page with status 200 reads like an insert that went in: only a server names the query.
            raise StoreBusyError(f"the store at {self} failed to insert into {table}: what answers is no ClickHouse")
        return len(rows)

    def close(self) -> None:
        """Give the store back; another process can open an embedded one from then on."""
        self._client.close()

    def _column_types(self, table: str, columns: Sequence[str]) -> list[str]:
        if table not in self._types:
            found = self.query(
                "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String}",
                {"table": table},
            )
            self._types[table] = {row["name"]: row["type"] for row in found}
        known = self._types[table]
        absent = [name for name in columns if name not in known]
        if absent:
            del self._types[table]
            what = f"columns {', '.join(absent)} of table {table}" if known else f"table {table}"
            raise WorldError(f"the store at {self} has no {what}: run `faultlens migrate`")
        return [known[name] for name in columns]

    @contextmanager
    def _failures(self, doing: str) -> Iterator[None]:
        from clickhouse_connect.driver.exceptions import ClickHouseError  # noqa: PLC0415, TID251

        try:
            yield
        except ClickHouseError as error:
            hint = " (run `faultlens migrate`?)" if getattr(error, "code", None) in SCHEMA else ""
            raise _failure(error, f"the store at {self} failed to {doing}: {_first_line(error)}{hint}") from error
        except OSError as error:  # the driver hands rows to chDB in a temporary file
            raise StoreBusyError(f"the store at {self} failed to {doing}: {_first_line(error)}") from error


def _failure(error: Exception, message: str) -> WorldError:
    """Return what a caller may do about an error of the driver."""
    from clickhouse_connect.driver.exceptions import ProgrammingError  # noqa: PLC0415, TID251

    lasting = isinstance(error, ProgrammingError) or _is_distrust(error)
    busy = failure_class(getattr(error, "code", None), lasting=lasting) == "busy"
    return StoreBusyError(message) if busy else WorldError(message)


def _is_distrust(error: BaseException) -> bool:
    """Return whether a server's certificate is behind the error: nobody mends that by waiting."""
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, ssl.SSLCertVerificationError):
            return True
        behind = behind.__cause__ or behind.__context__
    return False


@contextmanager
def _refusals(table: str) -> Iterator[None]:
    from clickhouse_connect.driver.exceptions import ClickHouseError, DataError  # noqa: PLC0415, TID251

    try:
        yield
    except (DataError, ValueError, TypeError, OverflowError) as error:
        raise RejectedRowsError(f"{table} takes no such row: {_first_line(error)}") from error
    except ClickHouseError as error:
        if failure_class(getattr(error, "code", None)) != "data":
            raise
        raise RejectedRowsError(f"{table} takes no such row: {_first_line(error)}") from error


def open_store(dsn: str, *, password: str | None = None, patience_s: float = 0.0) -> Store:
    """Open the store that `dsn` names, making an embedded one's directory; its tables are made by `sinks.migrate`.

    One process at a time can open an embedded one: another one is waited for as long as `patience_s`. A server's
    password is taken from the settings unless given. ConfigurationError: the DSN is wrong or the driver is
    not installed; WorldError: the store cannot be reached or is open elsewhere.
    """
    place = parse_dsn(dsn)
    driver = _driver()
    if isinstance(place, Embedded):
        return Store(_open_embedded(driver, place, patience_s), place)
    settings = load_settings()
    given = settings.password() if password is None else password
    return Store(_open_server(driver, place, given, _tls_options(place, settings, given)), place)


def _driver() -> Any:
    try:
        import clickhouse_connect  # noqa: PLC0415, TID251
        from clickhouse_connect.driver import options  # noqa: PLC0415, TID251
    except ImportError:
        raise ConfigurationError(f"the store's driver is not installed: {INSTALL}") from None
    # The driver asks of every insert whether it is a DataFrame and imports pandas to ask (0.4 s). We never pass one.
    options.pd = None
    options.pd_time_test = None
    # It also logs every error that it raises; we report each once.
    logging.getLogger("clickhouse_connect").propagate = False
    logging.getLogger("clickhouse_connect").addHandler(logging.NullHandler())
    return clickhouse_connect


def _open_embedded(driver: Any, place: Embedded, patience_s: float) -> Any:
    try:
        place.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorldError(f"the store's directory {place.path} cannot be made: {error.strerror}") from None
    if not os.access(place.path, os.W_OK | os.X_OK):
        raise WorldError(f"the store's directory {place.path} is not writable")
    found = {entry.name for entry in place.path.iterdir()}
    if found - _ENGINES_OWN and "metadata" not in found:
        raise ConfigurationError(f"{place.path} holds other files and no store: name a new or empty directory")
    if holder := _waited_for(place.path / "status", patience_s):
        raise WorldError(
            f"the store at {place} is open in another process ({holder}): stop that one, or use another directory"
        )
    try:
        return driver.get_client(dsn="chdb://", path=str(place.path), tz_mode="aware", settings=_SETTINGS)
    except ImportError:
        raise ConfigurationError(f"chDB, the embedded store, is not installed: {INSTALL}") from None
    except Exception as error:  # the engine raises whatever it likes; all of it means that it did not open
        raise WorldError(_why_not_opened(place, str(error))) from error


def _waited_for(status: Path, patience_s: float) -> str:
    """Return who still holds the engine's lock after so long, empty as soon as nobody does."""
    until_s = monotonic_s() + patience_s
    while (holder := _holder(status)) and monotonic_s() < until_s:
        sleep(_LOOK_EVERY_S)
    return holder


def _holder(status: Path) -> str:
    """Return who else holds the engine's lock, empty if nobody: the engine itself only says that it cannot start."""
    try:
        with status.open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                first = file.readline().strip() or "it does not say which"
                return "" if first == f"PID: {os.getpid()}" else first
    except OSError:
        pass
    return ""


def _why_not_opened(place: Embedded, message: str) -> str:
    if "already initialized with path" in message:
        other = message.partition("already initialized with path '")[2].partition("'")[0]
        return f"this process has the store at {other} open: close it before opening {place}"
    return f"the store at {place} cannot be opened: {message.splitlines()[0]}"


def _tls_options(place: Server, settings: Settings, password: str) -> dict[str, str | int]:
    """Return the options of the address, and the settings where it says nothing; ConfigurationError: they clash."""
    names = {"ca_cert": "store_ca", "client_cert": "store_certificate", "client_cert_key": "store_key"}
    options = dict(place.options)
    for option, name in names.items():
        path: Path | None = getattr(settings, name)
        if path is not None and place.secure:
            options.setdefault(option, str(path))
        if option in options and not place.secure:
            raise ConfigurationError(f"{option} is given, but {place} is not encrypted: write clickhouses://")
        if option in options and not Path(str(options[option])).is_file():
            raise ConfigurationError(f"{option} of the store ({PREFIX}{name.upper()}): {options[option]} is not a file")
    if "client_cert" in options:
        # The certificate says who we are, unless there is a password too; then both are asked for.
        options["tls_mode"] = "strict" if password else "mutual"
    return options


def _open_server(driver: Any, place: Server, password: str, options: Mapping[str, str | int]) -> Any:
    try:
        return driver.get_client(
            host=place.host,
            port=place.port,
            username=place.user,
            password=password,
            database=place.database,
            secure=place.secure,
            tz_mode="aware",
            settings=_SETTINGS,
            autogenerate_session_id=False,
            **options,
        )
    except driver.driver.exceptions.ClickHouseError as error:
        raise _failure(error, f"the store at {place} cannot be reached: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:500]
