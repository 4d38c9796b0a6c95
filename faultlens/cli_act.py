"""`faultlens act KIND`: carry remediation commands out, on a scheduler, a host, or by a call to something else."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import typer

from actuators import Actuator
from actuators.dry_run import DryRun
from actuators.ipmi import needs_tool
from actuators.ledger import Ledger
from actuators.node import Node, Programs
from actuators.power import Power, load_power
from actuators.slurm import Slurm
from actuators.ticket import MailedTicket
from actuators.webhook import Bundle, Webhook
from faultlens.cli_options import Brokers, ClusterOption, KubeconfigOption, Out
from faultlens.clock import SECOND_MS, wall_ms
from faultlens.errors import ConfigurationError, UsageError, WorldError
from faultlens.events import Action, RemediationCommand
from faultlens.local_acting import Place, serve, serve_by
from faultlens.local_delivering import Message, deliver
from faultlens.logs import LogFormat
from faultlens.store import open_store
from slo.evidence import bundle
from slo.wording import printable

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
    place = Place("dry-run", cluster, commands, brokers, out, ledger, sole=True)
    serve(DryRun(lambda line: typer.echo(printable(line, limit=400))), place, log_format)


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
    place = Place("slurm", cluster, commands, brokers, out, ledger, sole=sole)
    with closing(Ledger(place.file)) as kept:
        serve_by(kept, Slurm(kept, running=running, sleep=time.sleep), place, log_format)


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

        place = Place("kubernetes", cluster, commands, brokers, out, ledger, sole=sole)
        with closing(Ledger(place.file)) as kept:
            beyond = Beyond(kept.memory_of, replaces=replace, jobs=None if jobs is None else load_jobs(jobs))
            acting = Kubernetes(api, now_ms=wall_ms, sleep=time.sleep, effect=device_taint, beyond=beyond)
            if "exclude_device" not in acting.actions:
                without = "This cluster has no device taint rules: devices are not excluded, their nodes are."
                typer.echo(without, err=True)
            serve_by(kept, acting, place, log_format)


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
        serve(acting, Place("nvsentinel", cluster, commands, brokers, out, ledger, sole=sole), log_format)


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
    place, known = Place("power", cluster, commands, brokers, out, ledger, sole=sole), load_power(controllers)
    if known.names_ipmi:
        needs_tool()
    with closing(Ledger(place.file)) as kept:
        serve_by(kept, Power(known, kept, sleep=time.sleep), place, log_format)


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
    place = Place(f"node-{own}", cluster, commands, brokers, out, ledger, nodes=frozenset({own}))
    with closing(Ledger(place.file)) as kept:
        serve_by(kept, Node(own, programs, kept.memory_of), place, log_format)


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
    place = Place("webhook", cluster, commands, brokers, out, ledger, sole=sole)
    serve(_posting(url, secret_file, frozenset(a for a in ACTIONS if a in wanted)), place, log_format)


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
    place = Place("ticket", cluster, commands, brokers, out, ledger)
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
    serve(acting, place, "auto")


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


if __name__ == "__main__":
    app()
