"""The worker of one role as a Faust app: group membership, its share of the partitions, and a lane for each."""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import faust
from faust.auth import SASLCredentials, SSLCredentials

from faultlens.clock import monotonic_s
from faultlens.kafka import Connection
from faultlens.kafka_topics import state_topic
from streams.live.arrived import as_appended, as_recorded
from streams.live.lane import Lane
from streams.live.lanes import LIVE, PLAYED, Lanes, Run
from streams.live.ticks import EVERY_SECONDS, Ticker
from streams.live.transactions import Ledger
from streams.live.watchdog import Watchdog
from streams.runtime.records import Role
from streams.shell.consumer import PrefixTransport
from streams.shell.runs import RunScheduler, RunSchema

# A worker that cannot go on ends with this; whoever started it starts another.
EXIT_FAILED: Final = 70
_RUNS_BUFFERED: Final = 16

log = logging.getLogger("faultlens.stream")


@dataclass(frozen=True)
class Setup:
    """How a worker runs: where Kafka is, its group, how many partitions there are, and whose time counts.

    `recorded`: records arrive when they say they did, not when they were appended. `ticks`: whether time is appended.
    """

    connection: Connection
    partitions: int
    group: str = "faultlens"
    recorded: bool = False
    ticks: bool = True
    session_s: float = 30.0
    data: Path = Path()


class WorkerApp(faust.App):
    """A Faust app with our consumer."""

    def _new_transport(self) -> PrefixTransport:
        return PrefixTransport(self.conf.broker_consumer, self)


class RoleWorker:
    """Runs the lanes of one role that Kafka assigns to this process."""

    def __init__(self, role: Role, setup: Setup) -> None:
        self.role = role
        self.setup = setup
        self.lanes = Lanes(self._lane, self._failed, PLAYED if setup.recorded else LIVE)
        self.ticker = Ticker(setup.connection, role.topics[0]) if setup.ticks else None
        self.watchdog = Watchdog(self.lanes.oldest_s, partial(_end, log))
        self.app = self._app()

    @property
    def group(self) -> str:
        """The consumer group of the role."""
        return f"{self.setup.group}-{self.role.name}"

    def run(self) -> None:
        """Run until a signal says stop. Ends the process."""
        self.watchdog.start()
        worker = faust.Worker(self.app, quiet=True, redirect_stdouts=False, override_logging=False)
        try:
            worker.execute_from_commandline()
        except SystemExit as end:
            if end.code:
                _end(log, "Faust has crashed")

    def _lane(self, number: int) -> Lane:
        setup, role = self.setup, self.role
        changelog = (state_topic(role.name), number)
        ledger = Ledger(setup.connection, f"{self.group}-{number}", changelog, setup.partitions)
        return Lane(role, number, ledger, as_recorded if setup.recorded else as_appended)

    def _failed(self, error: BaseException) -> None:
        log.error("the %s worker cannot go on: %s", self.role.name, error, exc_info=error)
        _end(log, str(error))

    def _app(self) -> WorkerApp:
        setup, topics = self.setup, self.role.topics
        app = WorkerApp(
            self.group,
            broker=[f"kafka://{address.strip()}" for address in setup.connection.brokers.split(",")],
            broker_credentials=credentials(setup.connection),
            broker_session_timeout=setup.session_s,
            broker_request_timeout=max(40.0, setup.session_s),
            broker_heartbeat_interval=min(3.0, setup.session_s / 5),
            broker_commit_interval=0.1 if setup.recorded else 1.0,
            broker_commit_every=None,
            consumer_auto_offset_reset="earliest",
            consumer_max_fetch_size=2 << 20,
            ConsumerScheduler=RunScheduler,
            stream_buffer_maxsize=_RUNS_BUFFERED,
            stream_wait_empty=False,
            key_serializer="raw",
            value_serializer="raw",
            store="memory://",
            datadir=setup.data,
            table_standby_replicas=0,
            topic_allow_declare=False,
            topic_disable_leader=True,
            topic_partitions=setup.partitions,
            web_enabled=False,
            worker_redirect_stdouts=False,
        )
        channel = app.topic(*topics, schema=RunSchema())
        app.agent(channel, name=f"{self.role.name}-lanes")(self._agent)
        app.on_partitions_assigned.connect(self._assigned, weak=False)
        app.timer(EVERY_SECONDS)(self._each_second)
        return app

    async def _agent(self, stream: Any) -> None:
        stream.noack()
        async for event in stream.events():
            message = event.message
            if message.generation_id != self.app.consumer_generation_id:
                continue
            run = Run(event.value, monotonic_s(), partial(stream.ack, event))
            await self.lanes.put(message.partition, run)

    async def _assigned(self, app: Any, /, *arguments: Any, **_: Any) -> None:
        assigned = arguments[0]
        app.consumer.leave = self.lanes.release
        await self.lanes.release()
        numbers = sorted({tp.partition for tp in assigned if tp.topic in self.role.topics})
        log.info("%s: lanes %s", self.role.name, numbers)
        self.lanes.assign(numbers)

    async def _each_second(self) -> None:
        self.watchdog.alive()
        if self.ticker is not None:
            self.ticker.tick(self.lanes.owned)


def credentials(connection: Connection) -> Any:
    """Return how Faust's client shows who we are; None: it does not."""
    context = None
    if connection.uses_tls:
        context = ssl.create_default_context(cafile=None if connection.ca is None else str(connection.ca))
        if connection.certificate is not None:
            password = connection.key_password
            context.load_cert_chain(
                connection.certificate, connection.key, None if password is None else password.get_secret_value()
            )
    identity = connection.identity
    if identity is None:
        return None if context is None else SSLCredentials(context)
    return SASLCredentials(
        username=identity.name,
        password=identity.secret.get_secret_value(),
        ssl_context=context,
        mechanism=identity.mechanism,
    )


def _end(log_: logging.Logger, why: str) -> None:
    """End the process at once: what is open is rolled back by the brokers, and nobody waits for what will not come."""
    log_.critical("the worker ends: %s", why)
    logging.shutdown()
    os._exit(EXIT_FAILED)
