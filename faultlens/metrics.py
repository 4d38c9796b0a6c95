"""A process's counts as metrics for Prometheus. docs/metrics.md lists each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from faultlens.clock import SECOND_MS
from faultlens.meters import Durations, Position, RoleMeters, SinkMeters, Standings

Values = Mapping[tuple[str, ...], float]
_SCOPE: Final = ("objective", "cluster", "pool", "team", "workload", "window")


class Family(Protocol):
    """What yields metrics at the moment it is asked."""

    def collect(self) -> Iterator[Metric]: ...


class SinkMetrics:
    """The sink's metrics."""

    def __init__(self, meters: SinkMeters, wall_ms: Callable[[], int]) -> None:
        self._meters = meters
        self._wall_ms = wall_ms

    def collect(self) -> Iterator[Metric]:
        """Yield them as they are now."""
        meters = self._meters
        yield from _position("sink", meters.position, self._wall_ms())
        yield _counter(
            "faultlens_records", "Records read, ticks included.", ("role", "topic"), _by("sink", meters.records)
        )
        yield _counter("faultlens_ticks", "Ticks among them.", ("role", "topic"), _by("sink", meters.ticks))
        yield _dead("sink", meters.dead)
        yield _counter(
            "faultlens_expired_offsets",
            "Offsets that Kafka removed before they were read: records were lost.",
            ("role", "topic"),
            _by("sink", meters.expired),
        )
        yield _counter(
            "faultlens_sink_rows", "Rows inserted.", ("table",), {(t,): n for t, n in list(meters.rows.items())}
        )
        yield _counter("faultlens_retries", "Attempts that were repeated.", ("role",), {("sink",): meters.retries})
        yield _histogram("faultlens_sink_delivery_seconds", "Delivering a batch, waiting included.", meters.delivering)
        yield _histogram("faultlens_sink_delay_seconds", "From reading a record until it is in.", meters.delay)
        yield _gauge("faultlens_sink_waiting_rows", "Rows of the batch being filled.", {(): meters.waiting_rows})
        yield _gauge("faultlens_sink_waiting_bytes", "About the bytes of it.", {(): meters.waiting_bytes})
        yield _gauge("faultlens_sink_paused", "1 while nothing is read because a batch is full.", {(): meters.paused})
        yield from _standings(meters.standings)


class RoleMetrics:
    """A worker's metrics."""

    def __init__(self, meters: RoleMeters, wall_ms: Callable[[], int]) -> None:
        self._meters = meters
        self._wall_ms = wall_ms

    def collect(self) -> Iterator[Metric]:
        """Yield them as they are now."""
        meters, role, now_ms = self._meters, self._meters.role, self._wall_ms()
        yield from _position(role, meters.position, now_ms)
        yield _counter(
            "faultlens_records", "Records read, ticks included.", ("role", "topic"), _by(role, meters.records)
        )
        yield _counter("faultlens_sent", "Records sent.", ("role", "topic"), _by(role, meters.sent))
        yield _dead(role, meters.dead)
        yield _counter(
            "faultlens_verdicts", "Verdicts given.", ("class", "basis", "status"), dict(list(meters.verdicts.items()))
        )
        yield _counter(
            "faultlens_culprit_failures",
            "Failures first charged to a node's hardware or driver.",
            ("cluster", "node"),
            dict(list(meters.culprits.items())),
        )
        yield _counter("faultlens_retries", "Attempts that were repeated.", ("role",), {(role,): meters.retries})
        yield _histogram("faultlens_commit_seconds", "Committing a batch.", meters.committing, {"role": role})
        if role == "job":
            yield _histogram(
                "faultlens_verdict_latency_seconds",
                "From the end of an attempt to its first provisional verdict.",
                meters.verdict_latency,
            )
        lanes = ("role", "lane")
        yield _gauge("faultlens_state_keys", "Keys kept.", _by_lane(role, meters.state_keys), lanes)
        yield _gauge("faultlens_state_bytes", "Bytes of state kept.", _by_lane(role, meters.state_bytes), lanes)
        behind = {lane: (now_ms - at_ms) / SECOND_MS for lane, at_ms in list(meters.clock_ms.items())}
        yield _gauge(
            "faultlens_clock_behind_seconds",
            "How far a lane's clock is behind the time.",
            _by_lane(role, behind),
            lanes,
        )


def _position(role: str, position: Position, now_ms: int) -> Iterator[Metric]:
    lag: Values = {(role, topic, str(number)): count for (topic, number), count in dict(position.lag).items()}
    oldest_ms = position.oldest_ms
    age_s = 0.0 if oldest_ms is None else max(0, now_ms - oldest_ms) / SECOND_MS
    yield _gauge("faultlens_lag_records", "Offsets not read yet.", lag, ("role", "topic", "partition"))
    yield _gauge(
        "faultlens_oldest_unacknowledged_seconds",
        "Age of the oldest record that was read and is not done with.",
        {(role,): age_s},
        ("role",),
    )
    yield _gauge("faultlens_partitions", "Partitions assigned.", {(role,): position.partitions}, ("role",))
    yield _gauge("faultlens_ready", "1 while /readyz says so.", {(role,): position.ready}, ("role",))


def _standings(standings: Standings) -> Iterator[Metric]:
    told = standings.all()
    shown: tuple[tuple[str, str, Values], ...] = (
        ("attained", "Share that was good.", {s: t.attained for s, t in told if t.attained is not None}),
        ("target", "Share that is promised.", {s: t.target for s, t in told}),
        (
            "budget_remaining",
            "Share of the error budget that is left; below 0 it is overspent.",
            {s: t.budget_remaining for s, t in told if t.budget_remaining is not None},
        ),
    )
    for name, text, values in shown:
        yield _gauge(f"faultlens_slo_{name}_ratio", text, values, _SCOPE)
    burn: Values = {(*scope, over): rate for scope, status in told for over, rate in status.burn.items()}
    yield _gauge("faultlens_slo_burn_rate", "1 uses the budget up in its window.", burn, (*_SCOPE, "over"))
    bad: Values = {(*scope, over): status.bad.get(over, 0.0) for scope, status in told for over in status.burn}
    yield _gauge("faultlens_slo_bad", "What was bad over a window.", bad, (*_SCOPE, "over"))
    charged: Values = {(*scope, name): amount for scope, status in told for name, amount in status.by_cause.items()}
    yield _gauge("faultlens_slo_bad_by_class", "What was bad, by whom it is charged to.", charged, (*_SCOPE, "class"))


def _by(role: str, counts: Mapping[str, int]) -> Values:
    return {(role, name): count for name, count in dict(counts).items()}


def _by_lane(role: str, values: Mapping[int, float]) -> Values:
    return {(role, str(lane)): value for lane, value in dict(values).items()}


def _records(role: str, counts: Mapping[str, int]) -> Metric:
    return _counter("faultlens_records", "Records read, ticks included.", ("role", "topic"), _by(role, counts))


def _dead(role: str, counts: Mapping[tuple[str, str], int]) -> Metric:
    values: Values = {(role, topic, reason): count for (topic, reason), count in dict(counts).items()}
    return _counter("faultlens_dead_letters", "Dead letters written.", ("role", "topic", "reason"), values)


def _counter(name: str, text: str, labels: tuple[str, ...], values: Values) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


def _gauge(name: str, text: str, values: Values, labels: tuple[str, ...] = ()) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


def _histogram(name: str, text: str, durations: Durations, labels: Mapping[str, str] | None = None) -> Metric:
    family = HistogramMetricFamily(name, text, labels=tuple(labels or ()))
    bounds = [*map(str, durations.bounds_s), "+Inf"]
    seen, buckets = 0, []
    for bound, count in zip(bounds, durations.counts, strict=True):
        seen += count
        buckets.append((bound, seen))
    family.add_metric(tuple((labels or {}).values()), buckets, durations.sum_s)
    return family
