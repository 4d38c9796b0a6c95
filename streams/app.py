"""The worker of one role as a Faust app: group membership, its share of the partitions, and a lane for each."""

from __future__ import annotations

import os
import ssl
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import faust
import structlog
from faust.auth import OAuthCredentials, SASLCredentials, SSLCredentials

from faultlens.clock import monotonic_s
from faultlens.kafka import PARTITIONER, Connection
from faultlens.kafka_topics import state_topic
from faultlens.meters import RoleMeters
from faultlens.murmur2 import partition_of
from faultlens.topics import NODE_EVENTS, TOPICS
from streams.live.arrived import Consumed, as_appended, as_recorded
from streams.live.lane import Lane
from streams.live.lanes import LIVE, PLAYED, Lanes, Run
from streams.live.ticks import EVERY_SECONDS, Ticker
from streams.live.transactions import Ledger
from streams.live.watchdog import Watchdog
from streams.runtime.records import Role
from streams.runtime.task import INPUTS
from streams.shell.consumer import FETCH_BYTES, PrefixConsumer, PrefixTransport
from streams.shell.runs import RunScheduler, RunSchema
from streams.shell.tokens import ClientTokens

# A worker that cannot go on ends with this; whoever started it starts another.
EXIT_FAILED: Final = 70
_RUNS_BUFFERED: Final = 16
# Of one partition at once, compressed: reports shrink to a twentieth, and all that was fetched is unpacked together.
FETCHED_BYTES: Final = 256 * 1024

log = structlog.get_logger()


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
    session_s: float = 15.0
    data: Path = Path()


class WorkerApp(faust.App):
    """A Faust app with our consumer. `fetch_bytes`: for how much a broker may wait before it answers a fetch."""

    fetch_bytes: int = 1

    def _new_transport(self) -> PrefixTransport:
        return PrefixTransport(self.conf.broker_consumer, self)


class RoleWorker:
    """Runs the lanes of one role that Kafka assigns to this process."""

    def __init__(self, role: Role, setup: Setup) -> None:
        self.role = role
        self.setup = setup
        self.meters = RoleMeters(role.name)
        self.lanes = Lanes(self._lane, self._failed, PLAYED if setup.recorded else LIVE)
        self.ticker = Ticker(setup.connection, role.topics[0]) if setup.ticks else None
        self.app = self._app()
        self.watchdog = Watchdog(self.lanes.oldest_s, self._end, lambda: self.app.should_stop)
        self._is_assigned = False
        self._misplaced: set[str] = set()

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
                self._end("Faust has crashed")

    def _lane(self, number: int) -> Lane:
        setup, role = self.setup, self.role
        changelog = (state_topic(role.name), number)
        ledger = Ledger(setup.connection, f"{self.group}-{number}", changelog, setup.partitions)
        return Lane(role, number, ledger, as_recorded if setup.recorded else as_appended, self.meters)

    def _failed(self, error: BaseException) -> None:
        log.error("a lane cannot go on", role=self.role.name, error=str(error), exc_info=error)
        self._end(str(error))

    def _end(self, why: str) -> None:
        """End the process at once: what is open is rolled back by the brokers, and nothing is waited for."""
        log.critical("the worker ends", role=self.role.name, why=why)
        sys.stderr.flush()
        os._exit(EXIT_FAILED)

    def _app(self) -> WorkerApp:
        setup, topics = self.setup, self.role.topics
        app = WorkerApp(
            self.group,
            broker=[f"kafka://{address.strip()}" for address in setup.connection.brokers.split(",")],
            broker_credentials=credentials(setup.connection),
            broker_session_timeout=setup.session_s,
            broker_request_timeout=max(40.0, setup.session_s),
            broker_heartbeat_interval=min(3.0, setup.session_s / 5),
            broker_commit_interval=1.0,
            broker_commit_every=None,
            consumer_auto_offset_reset="earliest",
            consumer_max_fetch_size=FETCHED_BYTES,
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
        # Most of what nodes say are reports: nobody waits for one of them. For a step of a recording somebody does.
        app.fetch_bytes = FETCH_BYTES if NODE_EVENTS in topics and not setup.recorded else 1
        channel = app.topic(*topics, schema=RunSchema())
        app.agent(channel, name=f"{self.role.name}-lanes")(self._agent)
        app.on_partitions_assigned.connect(self._assigned, weak=False)
        app.on_before_shutdown.connect(self._leave, weak=False)
        app.timer(EVERY_SECONDS)(self._each_second)
        return app

    async def _agent(self, stream: Any) -> None:
        # The stream that is handed in acknowledges each event when the next one is asked for: before it is written.
        unacknowledged = stream.noack()
        async for event in unacknowledged.events():
            message = event.message
            if message.generation_id != self.app.consumer_generation_id:
                continue
            self._look_at(event.value[0])
            run = Run(event.value, monotonic_s(), partial(unacknowledged.ack, event))
            await self.lanes.put(message.partition, run)

    def _look_at(self, record: Consumed) -> None:
        """Complain, once a topic, of a record that lies where its key does not belong: others would miss it."""
        key, topic = record.key, record.topic
        if key and topic in INPUTS and topic not in self._misplaced:
            wanted = partition_of(key, 1 if TOPICS[topic].key == "cluster" else self.setup.partitions)
            if wanted != record.partition:
                self._misplaced.add(topic)
                log.error(
                    "a producer partitions by another hash than murmur2",
                    topic=topic,
                    key=key.decode("utf-8", "replace"),
                    partition=record.partition,
                    belongs_in=wanted,
                    remedy=f"let it set partitioner={PARTITIONER}",
                )

    async def _leave(self, *_: Any, **__: Any) -> None:
        """End the batches that are being written before others take over."""
        await self.lanes.release()

    async def _assigned(self, app: Any, /, *arguments: Any, **_: Any) -> None:
        assigned = arguments[0]
        app.consumer.leave = self.lanes.release
        await self.lanes.release()
        numbers = sorted({tp.partition for tp in assigned if tp.topic in self.role.topics})
        log.info("lanes are ours", role=self.role.name, lanes=numbers)
        for lane in set(self.meters.state_keys) - set(numbers):
            self.meters.drop_lane(lane)
        self.lanes.assign(numbers)
        self._is_assigned = True

    async def _each_second(self) -> None:
        self.watchdog.alive()
        self._measure()
        if self.ticker is not None:
            self.ticker.tick(self.lanes.owned)

    def _measure(self) -> None:
        position, oldest = self.meters.position, self.lanes.oldest()
        position.lag = cast("PrefixConsumer", self.app.consumer).lags()
        position.oldest_ms = None if oldest is None else oldest.records[0].timestamp
        position.partitions = len(self.lanes.owned) * len(self.role.topics)
        position.turned_s = monotonic_s()
        position.ready = self._is_assigned and self.lanes.are_open


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
    if identity.mechanism == "OAUTHBEARER":
        return OAuthCredentials(oauth_cb=ClientTokens(identity, context), ssl_context=context)
    return SASLCredentials(
        username=identity.name,
        password=identity.secret.get_secret_value(),
        ssl_context=context,
        mechanism=identity.mechanism,
    )
