"""The agent's life: look, report, wait; beside it the kernel's log, whose faults are told at once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic
from typing import Final, Protocol

import structlog
from msgspec.structs import replace

from faultlens.catalogue import load_catalogue
from faultlens.clock import MINUTE_MS
from faultlens.codec import Event
from faultlens.errors import WorldError
from faultlens.events import Check
from producers.agent import validation
from producers.agent.configuration import Configuration
from producers.agent.kernel import KernelWatch, KmsgDevice
from producers.agent.probe import Looked
from producers.agent.probes.sysfs import boot_id_of_this_host
from producers.agent.probes.table import MODULES, off_checks, probes_of
from producers.agent.reporting import report
from producers.agent.running import Runner
from producers.agent.state import Memory, cursor_of, is_looping, load_memory, save_memory, started
from producers.kernel_log.folding import Folder, Node
from producers.kernel_log.patterns import load_patterns
from producers.kernel_log.scanning import Scanner
from producers.kernel_log.stamps import LogClock

KERNEL_EVERY_S: Final = 0.5
# A clock that is this far from where it was has been set; less than that is its drift.
CLOCK_SET_MS: Final = MINUTE_MS
_log: Final = structlog.get_logger("faultlens.agent")


class Sink(Protocol):
    """Where events go; an outbox is one."""

    def put(self, event: Event) -> None: ...

    def trouble(self) -> str | None:
        """Return what is wrong with the delivery, in words; None: nothing."""


class Agent:
    """One node's agent. `now_ms`: the wall clock."""

    def __init__(self, configuration: Configuration, sink: Sink, *, version: str, now_ms: Callable[[], int]) -> None:
        self._configuration = configuration
        self._sink = sink
        self._version = version
        self._now_ms = now_ms
        self._path = configuration.state / "agent.json"
        self._lock = Lock()
        self._memory = self._started()
        self._probes = probes_of(configuration, self._memory.links_before)
        self._off = off_checks(configuration)
        self._kernel = self._watch()
        # The first process of the agent: a server that the probes are forked from, before any thread is there.
        self._runner = Runner(MODULES)

    def run(self, stop: Flag) -> None:
        """Report until told to stop."""
        kernel = Thread(target=self._follow_kernel, args=(stop,), name="kernel log", daemon=True)
        kernel.start()
        while not stop.is_set():
            began = monotonic()
            self.look()
            stop.wait(max(0.0, self._configuration.interval_s - (monotonic() - began)))
        kernel.join(5)
        self._tell(self._kernel.rest())
        self._save()

    def once(self) -> Event:
        """Read the kernel's log as far as it goes, look at everything once, and return the report."""
        self._read_kernel()
        while self._kernel.behind:
            self._read_kernel()
        self._tell(self._kernel.rest())
        return self.look()

    def look(self) -> Event:
        """Look at everything once, send the report and return it."""
        looked = self._runner.run(self._probes)
        own = [*self._off, self._kernel.check(), self._own_check()]
        self._note_links(looked.links)
        looked = self._with_validation(Looked([*looked.checks, *own], looked.devices, looked.driver_version))
        with self._lock:
            event, self._memory = report(
                self._configuration, self._memory, looked, version=self._version, at_ms=self._now_ms()
            )
        self._sink.put(event)
        self._save()
        return event

    def _note_links(self, links: dict[str, int]) -> None:
        with self._lock:
            most = {kind: max(count, self._memory.links.get(kind, 0)) for kind, count in links.items()}
            self._memory = replace(self._memory, links=self._memory.links | most)

    def _with_validation(self, looked: Looked) -> Looked:
        """Return what was seen with whether the node may take work, where it must prove itself before."""
        wanted = self._configuration.validation
        if wanted is None:
            return looked
        with self._lock:
            count = self._memory.good_reports
            if validation.good(looked.checks):
                count = min(count + 1, wanted.good_reports)
            elif count < wanted.good_reports:
                count = 0
            self._memory = replace(self._memory, good_reports=count)
            boot_id = self._memory.boot_id
        tested = validation.load_tested(validation.record_path(self._configuration))
        machine = validation.machine_of(self._configuration)
        check = validation.standing(wanted, tested, boot_id=boot_id, machine=machine, good_reports=count)
        return Looked([*looked.checks, check], looked.devices, looked.driver_version)

    # --- the kernel's log ------------------------------------------------------------------------------

    def _follow_kernel(self, stop: Flag) -> None:
        while not stop.is_set():
            self._read_kernel()
            if not self._kernel.behind:
                stop.wait(KERNEL_EVERY_S)

    def _read_kernel(self) -> None:
        before, now_ms = self._kernel.cursor, self._now_ms()
        self._reckon_boot(now_ms)
        self._tell(self._kernel.poll(now_ms))
        if self._kernel.cursor != before:
            # Only now: what is told twice has the same id, what is never told is lost.
            self._save()

    def _reckon_boot(self, now_ms: int) -> None:
        """Reckon anew when the host booted if its clock was set since: many boot with a wrong one."""
        boot_ms = _boot_ms(now_ms)
        with self._lock:
            if abs(boot_ms - self._memory.boot_ms) < CLOCK_SET_MS:
                return
            self._memory = replace(self._memory, boot_ms=boot_ms)
        self._kernel.set_boot(boot_ms)

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            self._sink.put(event)

    def _watch(self) -> KernelWatch:
        configuration, memory = self._configuration, self._memory
        scanner = Scanner(
            load_catalogue(),
            load_patterns(),
            LogClock(memory.boot_ms),
            gpus={},
            trust_user_space=configuration.trust_user_space,
            boot_id=memory.boot_id,
        )
        node = Node(configuration.node, configuration.cluster, configuration.family, configuration.pool)
        return KernelWatch(KmsgDevice(configuration.kernel_log), scanner, Folder(node), cursor_of(memory))

    # --- the agent itself --------------------------------------------------------------------------------

    def _started(self) -> Memory:
        now_ms = self._now_ms()
        memory = load_memory(self._path)
        return started(memory, now_ms, boot_id=boot_id_of_this_host(), boot_ms=_boot_ms(now_ms))

    def _own_check(self) -> Check:
        """Return how the agent is. Its own trouble is told, and takes no node out of work."""
        if is_looping(self._memory):
            told = f"the agent was started {len(self._memory.starts_ms)} times within a quarter of an hour"
            return Check("agent", "agent", "warn", None, "crash_loop", told)
        trouble = self._sink.trouble()
        return Check("agent", "agent", "warn" if trouble else "pass", message=trouble)

    def _save(self) -> None:
        with self._lock:
            self._memory = replace(self._memory, cursor=self._kernel.cursor.sequence)
            memory = self._memory
            try:
                save_memory(self._path, memory)
            except WorldError as error:
                _log.warning("the agent's memory could not be saved", error=str(error))


def _boot_ms(now_ms: int) -> int:
    return now_ms - round(monotonic() * 1_000)
