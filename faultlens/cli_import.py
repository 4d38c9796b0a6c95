"""`faultlens import`: what a scheduler or a kernel wrote down, as events."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import tzinfo
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from faultlens.catalogue import load_catalogue
from faultlens.catalogue.reference import known_family
from faultlens.cli_options import ClusterOption
from faultlens.clock import SECOND_MS, parse_moment
from faultlens.codec import Event, encode
from faultlens.errors import UsageError, WorldError
from faultlens.recordings import LongLine, Recording
from producers.kernel_log.devices import read_gpus
from producers.kernel_log.folding import Node, fault_events
from producers.kernel_log.patterns import load_patterns
from producers.kernel_log.scanning import Scanner, boot_moment, scan
from producers.kernel_log.stamps import LogClock
from producers.slurm.finding import Found, find_exports
from producers.slurm.importing import Export, Imported, import_slurm
from producers.slurm.job_events import Names
from producers.slurm.live import ask_slurm
from producers.slurm.tables import TableError
from slo.wording import printable

BAD_LINES_SHOWN: Final = 5
_YEARS: Final = (1970, 2999)
# Of the counts, those that people are told in one line; warnings say the rest.
_SAID: Final = (
    "events",
    "jobs",
    "runs",
    "unended",
    "outages",
    "doubles",
    "repaired",
    "waiting_arrays",
    "lines",
    "told_of_no_fault",
    "without_time",
)

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Turn what a scheduler or a kernel wrote down into events."
)

Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write events there instead of standard output.")]
Zone = Annotated[
    str | None, typer.Option("--timezone", metavar="TZ", help="Of times without an offset, Europe/Zurich.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable summary.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="Names get CLUSTER: in front, for a second cluster.")]


@app.command("slurm")
def slurm(  # noqa: PLR0913 - one parameter for each option of the command
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A folder with exports: the best of each kind is found.")
    ] = None,
    *,
    cluster: ClusterOption = "",
    sacct: Annotated[Path | None, typer.Option(metavar="FILE", help="sacct -a -D --parsable2 -S START.")] = None,
    events: Annotated[Path | None, typer.Option(metavar="FILE", help="sacctmgr -P show event start=START.")] = None,
    jobs: Annotated[Path | None, typer.Option(metavar="FILE", help="scontrol -d show job, soon after.")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="scontrol show config.")] = None,
    nodes: Annotated[Path | None, typer.Option(metavar="FILE", help="scontrol show nodes.")] = None,
    live: Annotated[bool, typer.Option("--live", help="Ask Slurm's own programs on this machine.")] = False,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="With --live: from when on, in sacct's words.")
    ] = "now-7days",
    timezone: Zone = None,
    prefix: Prefix = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Turn Slurm's accounting and node history into events, in the order in which a live bridge would have sent them.

    Lines that cannot be read are left out, counted and named; they stop nothing.
    """
    chosen = _Files(sacct, events, jobs, config, nodes)
    if sum((directory is not None, live, any(chosen))) != 1:
        raise UsageError("give a folder with exports, or --sacct FILE and what else there is, or --live")
    export = ask_slurm(since) if live else _export(_found(directory) if directory is not None else chosen)
    names = Names(cluster, f"{cluster}:" if prefix else "")
    try:
        imported = import_slurm(export, names, zone=_zone(timezone))
    except TableError as error:
        raise UsageError(str(error)) from None
    for line in _told_of(imported):
        _tell(line)
    _write(imported.events, out)
    _finish(_slurm_summary(imported, out), out, as_json=as_json)


@app.command("kernel-log")
def kernel_log(  # noqa: PLR0913 - one parameter for each option of the command
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="dmesg, journalctl, syslog or /dev/kmsg; gzip too; - too.")
    ],
    *,
    node: Annotated[str, typer.Option(help="The node whose log it is.")],
    family: Annotated[str, typer.Option(help="Its GPU family, such as H100.")],
    cluster: ClusterOption = "",
    gpus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its GPUs: nvidia-smi --query-gpu=index,pci.bus_id,uuid,serial.")
    ] = None,
    boot_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="When the machine booted, for lines that count from there.")
    ] = None,
    year: Annotated[int | None, typer.Option(help="Of the first line, for lines without a year.")] = None,
    timezone: Zone = None,
    pool: Annotated[str | None, typer.Option(help="Its node group or partition.")] = None,
    prefix: Prefix = False,
    trust_user_space: Annotated[
        bool, typer.Option("--trust-user-space", help="Lines that user space wrote into the log are no tests.")
    ] = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Turn a kernel or fabric manager log into faults: Xid and SXid codes, memory, PCIe, disks, links, the kernel.

    Lines that user space wrote into the kernel's log are marked synthetic: recorded, and never acted on.
    """
    if year is not None and not _YEARS[0] <= year <= _YEARS[1]:
        raise UsageError(f"--year {year}: expected {_YEARS[0]} to {_YEARS[1]}")
    clock = LogClock(_boot_ms(boot_time, file), _zone(timezone), year)
    known = read_gpus(gpus) if gpus is not None else {}
    catalogue = load_catalogue()
    known_family(catalogue, family)
    scanner = Scanner(catalogue, load_patterns(), clock, gpus=known, trust_user_space=trust_user_space)
    named = f"{cluster}:{node}" if prefix else node
    events = fault_events(scan(_lines(file), scanner), Node(named, cluster, family, pool))
    if scanner.without_zone:
        _tell(f"{scanner.without_zone} times carry no time zone and --timezone was not given: taken for UTC")
    _write(events, out)
    summary = {
        "events": len(events),
        "lines": scanner.lines,
        "told_of_no_fault": scanner.unknown,
        "without_time": scanner.unstamped,
    }
    _finish(summary | {"out": str(out) if out else None}, out, as_json=as_json)


class _Files(NamedTuple):
    sacct: Path | None
    events: Path | None
    jobs: Path | None
    config: Path | None
    nodes: Path | None


def _found(directory: Path) -> _Files:
    """Return the folder's exports, and say which they are."""
    if not directory.is_dir():
        what = "is a file and no folder" if directory.exists() else "no such folder"
        raise UsageError(f"{directory}: {what}; to read single files give --sacct FILE and --events FILE")
    found: Found = find_exports(directory)
    if found.sacct is None:
        raise UsageError(
            f"{directory}: no export of sacct with a delimiter and a header; see --help for how to make one"
        )
    for part, path in found._asdict().items():
        if isinstance(path, Path):
            _tell(f"{part}: {path.name}")
    if found.passed_over:
        _tell(f"passed over: {', '.join(path.name for path in found.passed_over)}")
    return _Files(found.sacct, found.events, found.jobs, found.config, found.nodes)


def _export(files: _Files) -> Export:
    if files.sacct is None:
        raise UsageError("--sacct FILE is needed: node events alone tell nothing of jobs")
    return Export(_lines(str(files.sacct)), *(_lines(str(path)) if path else None for path in files[1:]))


def _lines(path: str) -> Iterator[str]:
    """Return the lines of a file, unpacked; bytes that are no UTF-8 are kept visible. UsageError: it cannot be read."""
    if Path(path).is_char_device():
        raise UsageError(f"{path} is a device: write what it holds to a file, as `dmesg > FILE` does")
    return (_text(line) for line in Recording(path).lines())


def _text(line: bytes | LongLine) -> str:
    raw = line.head if isinstance(line, LongLine) else line
    return raw.decode("utf-8", errors="backslashreplace")


def _zone(name: str | None) -> tzinfo | None:
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"--timezone {name}: no such time zone; expected a name such as UTC or Europe/Zurich"
        ) from None


def _boot_ms(given: str | None, file: str) -> int | None:
    """Return when the machine booted: as given, else from a line of the log that carries both clocks."""
    if given is None:
        can_be_read_twice = Path(file).is_file()
        return boot_moment(_lines(file)) if can_be_read_twice else None
    if given.isdigit():
        return int(given) * SECOND_MS
    try:
        return parse_moment(given)
    except ValueError as error:
        raise UsageError(f"--boot-time: {error}") from None


def _told_of(imported: Imported) -> Iterator[str]:
    """Yield what somebody should know: warnings, and the lines that were left out."""
    yield from imported.warnings
    for part, bad in imported.bad.items():
        for line, why in bad[:BAD_LINES_SHOWN]:
            yield f"{part} line {line} left out: {why}"
        if len(bad) > BAD_LINES_SHOWN:
            yield f"{part}: {len(bad) - BAD_LINES_SHOWN} more lines left out"


def _slurm_summary(imported: Imported, out: Path | None) -> dict[str, Any]:
    return {
        "events": len(imported.events),
        **imported.counts._asdict(),
        "left_out": {part: len(bad) for part, bad in imported.bad.items()},
        "warnings": imported.warnings,
        "out": str(out) if out else None,
    }


def _write(events: Iterable[Event], out: Path | None) -> None:
    """Write events as lines; a file appears only when it is complete."""
    if out is None:
        _write_to(sys.stdout.buffer, events)
        return
    unfinished = out.with_name(out.name + ".part")
    try:
        with ExitStack() as stack:
            file = stack.enter_context(unfinished.open("wb"))
            stack.callback(unfinished.unlink, missing_ok=True)
            _write_to(file, events)
            file.flush()
            unfinished.replace(out)
    except OSError as error:
        raise WorldError(f"{out}: cannot be written: {error.strerror}") from None


def _write_to(file: BinaryIO, events: Iterable[Event]) -> None:
    file.writelines(encode(event) + b"\n" for event in events)
    file.flush()


def _tell(line: str) -> None:
    typer.echo(printable(line, limit=2_000), err=True)


def _finish(summary: dict[str, Any], out: Path | None, *, as_json: bool) -> None:
    """Say what was done: for people on standard error, as JSON where events do not stand."""
    if as_json:
        typer.echo(json.dumps(summary), err=out is None)
        return
    counts = [f"{summary[name]} {name.replace('_', ' ')}" for name in _SAID if summary.get(name)]
    _tell(", ".join(counts) or "nothing found")


if __name__ == "__main__":
    app()
