"""A real Apache Kafka on loopback: one broker or three, without ZooKeeper, with faults to order."""

from __future__ import annotations

import secrets
import shutil
import signal
import socket
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from tests.kafka.certificates import Certificates, make_certificates

USER: Final = "faultlens"
_START_SECONDS: Final = 180.0
_STOP_SECONDS: Final = 30.0
_LOGGING: Final = """
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1} %m%n
"""


@dataclass(frozen=True)
class Ports:
    """Where a broker listens: without security, with TLS and SCRAM, with TLS and tokens, for the other controllers."""

    plain: int
    secure: int
    token: int
    controller: int


# A broker ends with the thread that started it, so that none outlives the tests: it is this one, whoever asks for it.
_STARTER: Final = ThreadPoolExecutor(1, thread_name_prefix="brokers")


class Broker:
    """One broker's process. `kill` is without farewell, `stop` a clean end; both wait until it is gone."""

    def __init__(self, command: Sequence[str], log: Path, port: int) -> None:
        self._command = command
        self._log = log
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process's id; None: it does not run."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if running and self._process is not None else None

    @property
    def listens(self) -> bool:
        """Whether the broker can be reached."""
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
        return False

    def launch(self) -> None:
        """Start the process unless it runs, without waiting for it to listen."""
        if self.pid is None:
            self._process = _STARTER.submit(self._launched).result()

    def _launched(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self) -> None:
        """Start the process and wait until it listens."""
        self.launch()
        self.wait()

    def wait(self) -> None:
        """Wait until the broker listens."""
        deadline = monotonic() + _START_SECONDS
        while monotonic() < deadline:
            if self.pid is None:
                raise RuntimeError(f"the broker ended: {self._log.read_text('utf-8', 'replace')[-2_000:]}")
            if self.listens:
                return
            sleep(0.1)
        raise TimeoutError(f"no broker at port {self._port} after {_START_SECONDS:.0f} s; see {self._log}")

    def kill(self) -> None:
        """End the process without farewell."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the process cleanly."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Halt the process where it is."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._signal(number)
        self._signal(signal.SIGCONT)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


class Cluster:
    """Brokers that know each other. `bootstrap` is without security, `secure_bootstrap` with TLS and SCRAM-SHA-512."""

    def __init__(self, directory: Path, jars: Sequence[Path], brokers: int = 1) -> None:
        self.certificates: Certificates = make_certificates(directory / "tls")
        self.user, self.password = USER, secrets.token_hex(12)
        self._directory, self._jars = directory, jars
        self._ports = dict(enumerate(_free_ports(brokers), 1))
        self.brokers = {number: self._broker(number) for number in self._ports}
        (directory / "log4j2.properties").write_text(_LOGGING, "utf-8")
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        with ThreadPoolExecutor(brokers) as threads:
            list(threads.map(lambda number: self._format(number, identity), self._ports))

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses without security."""
        return ",".join(f"127.0.0.1:{ports.plain}" for ports in self._ports.values())

    @property
    def secure_bootstrap(self) -> str:
        """The brokers' addresses with TLS and SCRAM-SHA-512."""
        return ",".join(f"localhost:{ports.secure}" for ports in self._ports.values())

    @property
    def token_bootstrap(self) -> str:
        """The brokers' addresses with TLS and OAUTHBEARER, where tokens need no signature."""
        return ",".join(f"localhost:{ports.token}" for ports in self._ports.values())

    @property
    def size(self) -> int:
        """How many brokers there are, running or not: the replication that topics can have."""
        return len(self._ports)

    def start(self) -> None:
        """Start what does not run and wait until all listen."""
        for broker in self.brokers.values():
            broker.launch()
        for broker in self.brokers.values():
            broker.wait()

    def close(self) -> None:
        """End all brokers. Nothing is to be kept, so nothing is waited for."""
        for broker in self.brokers.values():
            broker.kill()

    def _broker(self, number: int) -> Broker:
        command = [*_tied(), *self._java("384m"), "kafka.Kafka", str(self._properties(number))]
        return Broker(command, self._directory / f"broker{number}.log", self._ports[number].plain)

    def _java(self, heap: str) -> list[str]:
        logging = self._directory / "log4j2.properties"
        path = ":".join(map(str, self._jars))
        return [
            "java",
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            path,
            f"-Dlog4j2.configurationFile={logging}",
        ]

    def _format(self, number: int, identity: str) -> None:
        path = self._properties(number)
        path.write_text(self._configuration(number), "utf-8")
        # One word, since an identity may begin with a dash.
        named = f"--cluster-id={identity}"
        command = [*self._java("128m"), "kafka.tools.StorageTool", "format", named, "-c", str(path)]
        command += ["-S", f"SCRAM-SHA-512=[name={self.user},password={self.password}]"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS, check=False)
        if done.returncode:
            raise RuntimeError(f"the broker's storage cannot be made: {done.stdout}{done.stderr}")

    def _properties(self, number: int) -> Path:
        return self._directory / f"broker{number}.properties"

    def _configuration(self, number: int) -> str:
        ports = self._ports[number]
        voters = ",".join(f"{n}@127.0.0.1:{p.controller}" for n, p in self._ports.items())
        copies, in_sync = self.size, min(2, self.size)
        public = f"PLAINTEXT://127.0.0.1:{ports.plain},SASL_SSL://localhost:{ports.secure}"
        public += f",TOKEN://localhost:{ports.token}"
        return f"""
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners={public},CONTROLLER://127.0.0.1:{ports.controller}
advertised.listeners={public}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,TOKEN:SASL_SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.token.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.token.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
ssl.keystore.type=PEM
ssl.keystore.location={self.certificates.server}
ssl.truststore.type=PEM
ssl.truststore.location={self.certificates.ca}
listener.name.sasl_ssl.ssl.client.auth=requested
log.dirs={self._directory / f"data{number}"}
num.partitions=1
default.replication.factor={copies}
min.insync.replicas={in_sync}
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=8
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=8
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={in_sync}
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=16777216
"""


def _tied() -> list[str]:
    """Return what makes a broker end with whoever started it, even one that was killed."""
    return ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


def _free_ports(brokers: int) -> list[Ports]:
    with _held(4 * brokers) as ports:
        return [Ports(*ports[n : n + 4]) for n in range(0, len(ports), 4)]


@contextmanager
def _held(count: int) -> Iterator[list[int]]:
    """Yield ports that were free a moment ago, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    yield [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
