"""`faultlens act KIND`: carry remediation commands out, on a scheduler, a host, or by a call to something else."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import structlog
import typer

from actuators import Actuator, Worker
from actuators.crew import Crew
from actuators.dry_run import DryRun
from actuators.ipmi import needs_tool
from actuators.ledger import Ledger
from actuators.node import Node, Programs
from actuators.power import Power, load_power
from actuators.slurm import Slurm
from actuators.ticket import MailedTicket
from actuators.webhook import Bundle, Webhook
from actuators.worker import Duty
from faultlens.cli_options import Brokers, ClusterOption, KubeconfigOption, Out
from faultlens.cli_outlet import outlet
from faultlens.clock import DAY_MS, SECOND_MS, monotonic_s, wall_ms
from faultlens.codec import Decoder
from faultlens.errors import ConfigurationError, UsageError, WorldError
from faultlens.events import Action, RemediationCommand
from faultlens.kafka import load_connection
from faultlens.local_delivering import Message, deliver
from faultlens.logs import LogFormat, configure, forward_libraries
from faultlens.settings import data_directory
from faultlens.store import open_store
from slo.evidence import bundle
from slo.wording import printable

_POLL_S: Final = 1.0
# What is being done looks within some seconds whether it is to stop; who manages services waits longer than this.
_STOPS_S: Final = 10.0
_STORE_PATIENCE_S: Final = 30.0
ACTIONS: Final = frozenset(get_args(Action))

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Carry remediation commands out.")

CommandsOption = Annotated[
    Path | None,
    typer.Option(
        "--commands", metavar="FILE", help="Read commands there instead of from Kafka, and end after the last."
    ),
]
SoleOption = Annotated[
    bool,
    typer.Option("--sole", help="Nothing else acts here: say of what cannot be done that it is unsupported."),
]
LedgerOption = Annotated[
    Path | None, typer.Option("--ledger", metavar="FILE", help="What was done already; kept across restarts.")
]
LogOption = Annotated[LogFormat, typer.Option("--log", help="How to write logs.")]
log = structlog.get_logger("faultlens")


@app.command("dry-run")
def dry_run(
    *,
    cluster: ClusterOption = "",
    commands: CommandsOption = None,
    brokers: Brokers = None,
    out: Out = None,
    ledger: LedgerOption = None,
    log_format: LogOption = "auto",
) -> None:
    """Show what would be done, and refuse it. Begin with this."""
    place = _Place("dry-run", cluster, commands, brokers, out, ledger, sole=True)
    _serve(DryRun(lambda line: typer.echo(printable(line, limit=400))), place, log_format)


@app.command()
def slurm(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    cluster: ClusterOption = "",
    running: Annotated[
        Literal["requeue", "wait"], typer.Option(help="What becomes of jobs on a node that is to be drained.")
    ] = "requeue",
    commands: CommandsOption = None,
    brokers: Brokers = None,
    out: Out = None,
    ledger: LedgerOption = None,
    sole: SoleOption = False,
    log_format: LogOption = "auto",
) -> None:
    """Drain, reboot and resume nodes by scontrol, and requeue jobs elsewhere."""
    place = _Place("slurm", cluster, commands, brokers, out, ledger, sole=sole)
    with closing(Ledger(place.file)) as kept:
        _serve_by(kept, Slurm(kept, running=running, sleep=time.sleep), place, log_format)


@app.command()
def kubernetes(  # noqa: PLR0913 - as above
    *,
    cluster: ClusterOption = "",
    kubeconfig: KubeconfigOption = None,
    device_taint: Annotated[
        Literal["None", "NoSchedule", "NoExecute"],
        typer.Option(help="Of an excluded device: None refuses and says whom it would evict, NoExecute evacuates it."),
    ] = "NoSchedule",
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Delete NodeClaims (Karpenter) or Machines of nodes that are to be replaced."),
    ] = False,
    jobs: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What runs on a node to reset a GPU or restart it, in YAML."),
    ] = None,
    commands: CommandsOption = None,
    brokers: Brokers = None,
    out: Out = None,
    ledger: LedgerOption = None,
    sole: SoleOption = False,
    log_format: LogOption = "auto",
) -> None:
    """Cordon, taint and release nodes and devices, and evict pods within their disruption budgets."""
    with _control_plane(kubeconfig) as api:
        from actuators.kubernetes import Beyond, Kubernetes  # noqa: PLC0415 - needs the client
        from actuators.kubernetes_jobs import load_jobs  # noqa: PLC0415 - as above

        place = _Place("kubernetes", cluster, commands, brokers, out, ledger, sole=sole)
        with closing(Ledger(place.file)) as kept:
            beyond = Beyond(kept.memory_of, replaces=replace, jobs=None if jobs is None else load_jobs(jobs))
            acting = Kubernetes(api, now_ms=wall_ms, sleep=time.sleep, effect=device_taint, beyond=beyond)
            if "exclude_device" not in acting.actions:
                without = "This cluster has no device taint rules: devices are not excluded, their nodes are."
                typer.echo(without, err=True)
            _serve_by(kept, acting, place, log_format)


@app.command()
def nvsentinel(  # noqa: PLR0913 - as above
    *,
    cluster: ClusterOption = "",
    kubeconfig: KubeconfigOption = None,
    commands: CommandsOption = None,
    brokers: Brokers = None,
    out: Out = None,
    ledger: LedgerOption = None,
    sole: SoleOption = False,
    log_format: LogOption = "auto",
) -> None:
    """Hand GPU resets, restarts and replacements to NVSentinel's janitor, and follow them to their end."""
    with _control_plane(kubeconfig) as api:
        from actuators.nvsentinel import NvSentinel  # noqa: PLC0415 - needs the client

        acting = NvSentinel(api, sleep=time.sleep)
        _serve(acting, _Place("nvsentinel", cluster, commands, brokers, out, ledger, sole=sole), log_format)


@contextmanager
def _control_plane(kubeconfig: Path | None) -> Iterator[Any]:
    """Give an `Api` while the block runs. UsageError: its client is not installed."""
    try:
        from actuators.kubernetes_api import KubernetesApi  # noqa: PLC0415 - needs the client
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed: pip install 'faultlens[kubernetes]'") from None
    with closing(KubernetesApi(None if kubeconfig is None else str(kubeconfig))) as api:
        yield api


@app.command()
def power(  # noqa: PLR0913 - as above
    *,
    cluster: ClusterOption = "",
    controllers: Annotated[
        Path,
        typer.Option(metavar="FILE", help="How management controllers are reached, in YAML."),
    ],
    commands: CommandsOption = None,
    brokers: Brokers = None,
    out: Out = None,
    ledger: LedgerOption = None,
    sole: SoleOption = False,
    log_format: LogOption = "auto",
) -> None:
    """Restart machines and cycle their power by their management controllers (Redfish, or IPMI by ipmitool)."""
    place, known = _Place("power", cluster, commands, brokers, out, ledger, sole=sole), load_power(controllers)
    if known.names_ipmi:
        needs_tool()
    with closing(Ledger(place.file)) as kept:
        _serve_by(kept, Power(known, kept, sleep=time.sleep), place, log_format)


@app.command()
def node(  # noqa: PLR0913 - as above
    *,
    cluster: ClusterOption = "",
    name: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="This node; by default its host name.")
    ] = None,
    validate: Annotated[
        str | None, typer.Option(metavar="PROGRAM", help="Ends with 0 when the node is well, such as validate-node.")
    ] = None,
    restart: Annotated[
        list[str] | None, typer.Option(metavar="UNIT", help="A systemd unit to restart; may be repeated.")
    ] = None,
    commands: CommandsOption = None,
    brokers: Brokers = None,
    out: Out = None,
    ledger: LedgerOption = None,
    log_format: LogOption = "auto",
) -> None:
    """Validate this node, reset its devices, restart its services."""
    own = name or socket.gethostname()
    programs = Programs(
        validate=tuple(validate.split()) if validate else (),
        restart_services=tuple(("systemctl", "restart", unit) for unit in restart or ()),
    )
    place = _Place(f"node-{own}", cluster, commands, brokers, out, ledger, nodes=frozenset({own}))
    with closing(Ledger(place.file)) as kept:
        _serve_by(kept, Node(own, programs, kept.memory_of), place, log_format)


@app.command()
def webhook(  # noqa: PLR0913 - as above
    *,
    cluster: ClusterOption = "",
    url: Annotated[str, typer.Option(metavar="URL", help="Where commands are posted.")],
    secret_file: Annotated[Path, typer.Option(metavar="FILE", help="Its first line signs each call.")],
    action: Annotated[
        list[str] | None, typer.Option(metavar="ACTION", help="Only these actions; may be repeated. Without it all.")
    ] = None,
    commands: CommandsOption = None,
    brokers: Brokers = None,
    out: Out = None,
    ledger: LedgerOption = None,
    sole: SoleOption = False,
    log_format: LogOption = "auto",
) -> None:
    """Post commands, signed, to something that carries them out."""
    wanted = frozenset(action or ACTIONS)
    if wanted - ACTIONS:
        raise UsageError(f"--action: {min(wanted - ACTIONS)!r} is none of {', '.join(sorted(ACTIONS))}")
    place = _Place("webhook", cluster, commands, brokers, out, ledger, sole=sole)
    _serve(_posting(url, secret_file, frozenset(a for a in ACTIONS if a in wanted)), place, log_format)


@app.command()
def ticket(  # noqa: PLR0913 - as above
    *,
    cluster: ClusterOption = "",
    url: Annotated[str | None, typer.Option(metavar="URL", help="The ticket system's address for new tickets.")] = None,
    secret_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --url: its first line signs each call.")
    ] = None,
    mail: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Instead of --url: smtp://HOST?from=…&to=…, or smtps://.")
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="DSN", help="Send what is known of the incident there as well.")
    ] = None,
    commands: CommandsOption = None,
    brokers: Brokers = None,
    out: Out = None,
    ledger: LedgerOption = None,
) -> None:
    """Open tickets by a signed call or a mail; with a store, with the driver's own lines, verdicts, what was tried."""
    place = _Place("ticket", cluster, commands, brokers, out, ledger)
    if mail is not None and url is None:
        if not mail.startswith(("smtp://", "smtps://")):
            raise UsageError(f"--mail: {mail!r} is no smtp:// or smtps:// address")
        acting: Actuator = MailedTicket(
            lambda subject, text: deliver(mail, Message(subject, text)), sleep=time.sleep, bundle=_evidence(store)
        )
    elif mail is None and url is not None and secret_file is not None:
        acting = _posting(url, secret_file, frozenset({"open_ticket"}), beside=_evidence(store))
    else:
        raise UsageError("give --url with --secret-file, or --mail")
    _serve(acting, place, "auto")


def _evidence(dsn: str | None) -> Bundle:
    """Return what is sent beside a command: what the store knows of its incident."""

    def known(command: RemediationCommand) -> dict[str, Any]:
        if dsn is None:
            return {}
        try:
            with open_store(dsn, patience_s=_STORE_PATIENCE_S) as opened:
                return {"evidence": bundle(opened, command.reason.incident_id)}
        except WorldError as error:  # a ticket with less in it is better than none
            return {"evidence": {"known": False, "incident_id": command.reason.incident_id, "why": str(error)}}

    return known


def _posting(
    url: str, secret_file: Path, actions: frozenset[Action], *, beside: Bundle = lambda _command: {}
) -> Webhook:
    try:
        secret = secret_file.read_bytes().partition(b"\n")[0].strip()
    except OSError as error:
        raise ConfigurationError(f"--secret-file: {secret_file} cannot be read: {error.strerror}") from None
    if not secret:
        raise ConfigurationError(f"--secret-file: {secret_file} is empty: its first line is the secret")
    return Webhook(url, secret, actions=actions, sleep=time.sleep, now_s=lambda: wall_ms() // SECOND_MS, bundle=beside)


# --- running one -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """Where commands come from and results go to, and whose business they are."""

    name: str
    cluster: str
    commands: Path | None
    brokers: str | None
    out: Path | None
    ledger: Path | None
    nodes: frozenset[str] | None = None
    sole: bool = False

    @property
    def file(self) -> Path:
        """The ledger's file."""
        return self.ledger or data_directory() / "faultlens" / f"act-{self.cluster}-{self.name}.db"


def _serve(actuator: Actuator, place: _Place, log_format: LogFormat) -> None:
    """Carry commands out until told to stop, or until the file of them is done."""
    with closing(Ledger(place.file)) as kept:
        _serve_by(kept, actuator, place, log_format)


def _serve_by(ledger: Ledger, actuator: Actuator, place: _Place, log_format: LogFormat) -> None:
    """As `_serve`, by a ledger that is open: an actuator that keeps notes has them there."""
    configure(log_format)
    forward_libraries()
    spool = place.file.with_suffix(".spool")
    with outlet(place.out, None if place.out else place.brokers, spool) as results:
        duty = Duty(place.cluster, place.nodes, place.sole)
        worker = Worker(actuator, duty, ledger, results.put, wall_ms, steady_ms=_steady_ms)
        with _crew(worker, place.name) as crew:
            for command in worker.unfinished():
                crew.begin(command)
            if place.commands is None:
                _follow(place, worker, crew)
            for command in () if place.commands is None else _of_file(place.commands):
                if worker.accept(command):
                    crew.begin(command)
            crew.finish()


def _steady_ms() -> int:
    return round(monotonic_s() * SECOND_MS)


@contextmanager
def _crew(worker: Worker, name: str) -> Iterator[Crew]:
    """Give a worker's hands while the block runs; what is left then is gone on with at the next start."""
    crew = Crew(worker, name=name)
    try:
        yield crew
    finally:
        left = crew.stop(_STOPS_S)
        if left:
            log.warning("commands are left, and gone on with at the next start", commands=left)


def _follow(place: _Place, worker: Worker, crew: Crew) -> None:
    from actuators.kafka import KafkaCommands  # noqa: PLC0415 - needs the Kafka client

    group = f"faultlens-act-{place.cluster}-{place.name}"
    with closing(KafkaCommands(load_connection(place.brokers), group)) as source:
        log.info("carries commands out", actuator=worker.actuator.name, cluster=place.cluster)
        tidied_ms = _steady_ms()
        while True:
            crew.check()
            if _steady_ms() - tidied_ms > DAY_MS:
                worker.tidy()
                tidied_ms = _steady_ms()
            accepted = [command for command in source.poll(_POLL_S) if worker.accept(command)]
            source.written_down()
            for command in accepted:
                log.info("command", action=command.action, node=command.node, id=command.command_id)
                crew.begin(command)


def _of_file(path: Path) -> Iterator[RemediationCommand]:
    decode = Decoder().decode
    try:
        with path.open("rb") as file:
            for line in file:
                data = decode(line).data if line.strip() else None
                if isinstance(data, RemediationCommand):
                    yield data
    except OSError as error:
        raise WorldError(f"{path} cannot be read: {error.strerror or error}") from None


if __name__ == "__main__":
    app()
