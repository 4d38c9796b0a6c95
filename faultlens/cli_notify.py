"""`faultlens notify`: a failed job's owner, and whoever is on call, are told of verdicts."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Annotated, Any, Final

import msgspec
import structlog
import typer

from faultlens.cli_answers import opened
from faultlens.cli_options import StoreOption
from faultlens.clock import wall_ms
from faultlens.errors import ConfigurationError, FaultlensError, WorldError
from faultlens.local_delivering import Message, deliver
from faultlens.local_state import state_path
from faultlens.logs import configure
from faultlens.settings import load_settings
from faultlens.yaml_lines import load_model
from slo.notices import Cursor, Line, Routes, cursor_of, next_notice, queued, sent
from slo.queries import ask
from slo.wording import many

AT_ONCE: Final = 1_000


class State(msgspec.Struct):
    """How far verdicts were looked at, and what waits for each route."""

    cursor: Cursor = Cursor()
    lines: dict[str, Line] = {}


@dataclass
class Round:
    """What one look at the store brought."""

    verdicts: int = 0
    sent: int = 0
    failed: list[str] = field(default_factory=list)


def notify(
    *,
    routes: Annotated[Path, typer.Option(metavar="FILE", help="Who is told of what, as YAML.")],
    every_s: Annotated[float, typer.Option(min=1, max=3_600, help="Seconds between looks at the store.")] = 15.0,
    once: Annotated[
        bool, typer.Option("--once", help="Look once and end; ends with 3 if something was not taken.")
    ] = False,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to remember what was told; by default beside the store.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Tell owners and on-call of final and amended verdicts, by mail or webhook, each route at its own rate at most.

    The first look remembers where the store stands and tells of nothing that is older. What could not be delivered
    waits, and is tried again; what a crash interrupts may be told twice.
    """
    configure()
    wanted = load_model(routes, Routes)
    dsn = store or load_settings().store
    kept = state or state_path(dsn).with_suffix(".notified")
    while True:
        done = _look(wanted, dsn, kept)
        if done.sent or done.failed:
            structlog.get_logger("faultlens").info("notified", sent=done.sent, failed=done.failed)
        if once:
            typer.echo(f"{many(done.verdicts, 'new verdict')}, {many(done.sent, 'notice')} sent")
            if done.failed:
                raise WorldError("; ".join(done.failed))
            return
        sleep(every_s)


def _look(wanted: Routes, dsn: str, kept: Path) -> Round:
    state = _remembered(kept)
    done = Round()
    with opened(dsn) as target:
        if state is None:
            newest = target.query("SELECT toUnixTimestamp64Milli(max(emitted)) AS at FROM attributions")[0]["at"]
            state = State(Cursor(newest, "\U0010ffff"))
        found: list[dict[str, Any]] = ask(target, "notices", {**msgspec.structs.asdict(state.cursor), "limit": AT_ONCE})
    done.verdicts = len(found)
    state.cursor = cursor_of(found[-1]) if found else state.cursor
    for route in wanted.routes:
        line = queued(state.lines.get(route.name, Line()), route, found)
        while (notice := next_notice(line, route, wall_ms())) is not None:
            try:
                deliver(notice.to, Message(notice.subject, notice.text))
            except FaultlensError as error:
                done.failed.append(f"{route.name}: {error}")
                break
            line, done.sent = sent(line, wall_ms()), done.sent + 1
        state.lines[route.name] = line
    _remember(kept, state)
    return done


def _remembered(path: Path) -> State | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}; remove it to begin at what is new") from None


def _remember(path: Path, state: State) -> None:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(msgspec.json.encode(state))
        unfinished.replace(path)
    except OSError as error:
        raise WorldError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            unfinished.unlink()
