"""How an attempt dies, seen from the job: ranks that exit, echoes on their peers, and who reports the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as replace_fields

from faultlens.clock import HOUR_MS, SECOND_MS, moment_of
from faultlens.events import JobAlive, JobEnded, Outcome, RankExited, Stalled
from producers.simulation.chance import happens, pick, sample, span_ms
from producers.simulation.lastwords import OOM_KILLED
from producers.simulation.model import Attempt, Blow, Node
from producers.simulation.tables import Manner
from producers.simulation.world import World

# Of a big gang a launcher reports the first ranks and a sample.
PEERS_REPORTED: Final = 11
# Collectives give up after these times (seconds): the defaults of NCCL's watchdog and what people set.
_COLLECTIVE_TIMEOUTS_S: Final = {480.0: 1, 600.0: 6, 1_200.0: 1, 1_800.0: 2}
_LONGEST_MS: Final = (1_800 + 300) * SECOND_MS
_UNREPORTED_BEFORE_MS: Final = 2 * HOUR_MS
_STUCK_S: Final = (3_600.0, 14_400.0)
# How often the rank that stands still says anything: one on a stuck device seldom, one that went its own way mostly.
_STUCK_RANK_SPEAKS: Final = 0.5
_WRONG_RANK_SPEAKS: Final = 0.9
_SCHEDULER_HAS_LOG: Final = 0.3
_ECHOES: Final = {"peer_lost": 60, "sigterm": 25, "peer_ib": 8, "silent": 7}


@dataclass(frozen=True, slots=True)
class Ending:
    """When an attempt is over, and whether what its ranks printed gives the cause away. `reported`: an end comes."""

    at_ms: int
    text_tells: bool
    tail: str | None = None
    reported: bool = True
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class _Exit:
    rank: int
    at_ms: int
    exit_code: int | None
    signal: int | None
    tail: str | None = None
    reason: str | None = None
    first_ms: int | None = None


def manner_of_loss(world: World, attempt: Attempt, node: Node, at_ms: int) -> Manner:
    """Return how it shows that a node of an attempt went off: nobody reports the end where its launcher did, too.

    Such an end is only seen after a while; near the end of the simulation it would not be, so there are none.
    """
    alone = attempt.scheduler is None and attempt.launched_on is node
    return "unreported" if alone and at_ms <= world.shape.end_ms - _UNREPORTED_BEFORE_MS else "node_lost"


def tell(world: World, attempt: Attempt, blow: Blow) -> Ending:
    """Send what an attempt's ranks say of their end (its `ended` comes when it is over)."""
    return _MANNERS[blow.manner](world, attempt, blow)


def tell_of_loss(world: World, attempt: Attempt, blow: Blow) -> bool:
    """Send the exit of the rank that an elastic job lost; return whether its text gives the cause away."""
    if blow.manner == "node_lost" or world.delivery.evidence_lost(world.mix.evidence.text_lost):
        return False
    at_ms = blow.at_ms + span_ms(world.chances.lives, (0.3, 4.0))
    _post(world, attempt, _victim_exit(world, attempt, blow, rank=_victims(world, attempt, blow)[0], at_ms=at_ms))
    return blow.text_tells


def post_end(world: World, attempt: Attempt, at_ms: int, end: JobEnded) -> None:
    """Send the end: by the scheduler where there is one, by the launcher else, and now and then by both."""
    rng = world.chances.lives
    if attempt.scheduler is None:
        world.delivery.post(attempt.teller, at_ms, end)
        return
    launched = attempt.launched_on is not None and attempt.started_ms is not None and not attempt.muted
    if launched and happens(rng, world.mix.work.both_report):
        # A launcher sees that its ranks are gone; why is the scheduler's to say.
        outcome: Outcome = "succeeded" if end.outcome == "succeeded" else "failed"
        reason = None if outcome == "succeeded" else "Error"
        world.delivery.post(attempt.teller, at_ms, replace_fields(end, outcome=outcome, reason=reason, message=None))
        end = replace_fields(end, log_tail=None)
        at_ms += span_ms(rng, (0.5, 9.0))
    if launched and not happens(rng, _SCHEDULER_HAS_LOG):
        end = replace_fields(end, log_tail=None)
    world.delivery.post(attempt.scheduler, at_ms, end)


def _crash(world: World, attempt: Attempt, blow: Blow) -> Ending:
    rng = world.chances.lives
    victims = _victims(world, attempt, blow)
    first_ms = blow.at_ms + span_ms(rng, (0.05, 0.6))
    last_ms = first_ms
    shown: list[str] = []
    for rank in victims:
        gone = _victim_exit(world, attempt, blow, rank=rank, at_ms=first_ms + span_ms(rng, (0.2, 3.0)))
        last_ms = max(last_ms, gone.at_ms)
        if not world.delivery.evidence_lost(world.mix.evidence.text_lost):
            _post(world, attempt, replace(gone, first_ms=first_ms))
            shown.append(gone.tail or "")
    last_ms, echoes = _echo(world, attempt, blow, victims, last_ms)
    tail = rng.choice(shown + echoes[-1:]) if shown or echoes else None
    return Ending(last_ms + span_ms(rng, (2.0, 25.0)), text_tells=bool(shown) and blow.text_tells, tail=tail)


def _hang(world: World, attempt: Attempt, blow: Blow) -> Ending:
    """One rank stands still; the others wait in a collective until its watchdog gives up."""
    rng = world.chances.lives
    if len(attempt.seats) == 1:
        return _crash(world, attempt, blow)
    timeout_ms = round(pick(rng, _COLLECTIVE_TIMEOUTS_S) * 1_000)
    since_ms = blow.at_ms + span_ms(rng, (0.2, 6.0))
    victims = _victims(world, attempt, blow)
    _stall_signs(world, attempt, since_ms, since_ms + timeout_ms, victims)
    last_ms = _give_up(world, attempt, victims, since_ms + timeout_ms, timeout_ms)
    speaks = happens(rng, _STUCK_RANK_SPEAKS if blow.blamed else _WRONG_RANK_SPEAKS)
    shown = speaks and not world.delivery.evidence_lost(world.mix.evidence.text_lost)
    if shown:
        last_ms += span_ms(rng, (0.5, 5.0))
        _post(world, attempt, _victim_exit(world, attempt, blow, rank=victims[0], at_ms=last_ms))
    return Ending(last_ms + span_ms(rng, (2.0, 20.0)), text_tells=shown and blow.text_tells)


def _stuck(world: World, attempt: Attempt, blow: Blow) -> Ending:
    """The gang stands still and no watchdog is set: only the time limit ends it, hours later."""
    until_ms = blow.at_ms + span_ms(world.chances.lives, _STUCK_S)
    _stall_signs(world, attempt, blow.at_ms, until_ms, _victims(world, attempt, blow))
    return Ending(until_ms, text_tells=False, outcome="timed_out")


def longest_ms(blow: Blow) -> int:
    """Return how long after the blow the attempt can be over at most."""
    return round(_STUCK_S[1] * SECOND_MS) if blow.manner == "stuck" else _LONGEST_MS


def _give_up(world: World, attempt: Attempt, victims: list[int], at_ms: int, timeout_ms: int) -> int:
    """Send the exits of the ranks whose watchdog ended them; return the last one's time."""
    rng = world.chances.lives
    last_ms = at_ms
    draft, sequence = world.texts.draft("watchdog"), rng.randrange(500, 900_000)
    stuck = [rank for rank in range(len(attempt.seats)) if rank not in victims] or victims
    for rank in sample(rng, stuck, PEERS_REPORTED):
        node, device = attempt.seats[rank]
        known = {"seq": sequence, "timeout": timeout_ms, "over": timeout_ms + rng.randrange(5, 90)}
        tail = world.texts.tail(draft, rank=rank, node=node.name, device=device, **known)
        gone = _Exit(rank, at_ms + span_ms(rng, (0.1, 8.0)), 134, 6, tail)
        last_ms = max(last_ms, gone.at_ms)
        _post(world, attempt, gone)
    return last_ms


def _node_lost(world: World, attempt: Attempt, blow: Blow) -> Ending:
    """The ranks of a node are gone without a word; its peers notice after a while."""
    rng = world.chances.lives
    lost = set(attempt.ranks_on(blow.node)) if blow.node else set()
    attempt.muted = attempt.scheduler is not None and blow.node is not None and attempt.launched_on is blow.node
    survivors = [rank for rank in range(len(attempt.seats)) if rank not in lost]
    last_ms = notice_ms = blow.at_ms + span_ms(rng, (10.0, 90.0))
    for rank in sample(rng, survivors, PEERS_REPORTED):
        exit_ms = notice_ms + span_ms(rng, (0.1, 20.0))
        last_ms = max(last_ms, exit_ms)
        peer = blow.node.name if blow.node else "peer"
        _post(world, attempt, _peer_exit(world, attempt, rank=rank, at_ms=exit_ms, echo="peer_lost", peer=peer))
    return Ending(max(last_ms, blow.at_ms + span_ms(rng, (60.0, 240.0))), text_tells=False)


def _killed(world: World, attempt: Attempt, blow: Blow) -> Ending:
    """Somebody ends the attempt from outside: every rank gets a signal."""
    rng = world.chances.lives
    last_ms = blow.at_ms
    signal = blow.signal or 15
    for rank in sample(rng, range(len(attempt.seats)), PEERS_REPORTED):
        gone = _Exit(rank, blow.at_ms + span_ms(rng, (0.2, 15.0)), 128 + signal, signal)
        last_ms = max(last_ms, gone.at_ms)
        _post(world, attempt, gone)
    return Ending(last_ms + span_ms(rng, (1.0, 30.0)), text_tells=blow.text_tells)


def _victims(world: World, attempt: Attempt, blow: Blow) -> list[int]:
    everyone = range(len(attempt.seats))
    if blow.all_ranks:
        return sample(world.chances.lives, everyone, PEERS_REPORTED + 1)
    struck = attempt.ranks_on(blow.node, blow.device) if blow.node else []
    return [world.chances.lives.choice(struck or list(everyone))]


def _echo(world: World, attempt: Attempt, blow: Blow, victims: list[int], after_ms: int) -> tuple[int, list[str]]:
    """Send the exits of the peers, which complain of the first one or are torn down; return the last time and texts."""
    rng = world.chances.lives
    peers = [] if blow.all_ranks else [rank for rank in range(len(attempt.seats)) if rank not in victims]
    peer = attempt.seats[victims[0]][0].name
    last_ms, texts = after_ms, []
    for rank in sample(rng, peers, PEERS_REPORTED):
        exit_ms = after_ms + span_ms(rng, (0.3, 12.0))
        gone = _peer_exit(world, attempt, rank=rank, at_ms=exit_ms, echo=pick(rng, _ECHOES), peer=peer)
        last_ms = max(last_ms, gone.at_ms)
        texts += [gone.tail] if gone.tail else []
        _post(world, attempt, gone)
    return last_ms, texts


def _stall_signs(world: World, attempt: Attempt, since_ms: int, until_ms: int, victims: list[int]) -> None:
    """Some launchers have a flight recorder, which names the ranks that never came to the stuck collective."""
    rng = world.chances.lives
    if not happens(rng, 0.3):
        return
    stalled = Stalled(moment_of(since_ms + attempt.teller.clock_off_ms), tuple(victims))
    interval_s = world.shape.interval_s
    at_ms = since_ms + span_ms(rng, (60.0, 90.0))
    while at_ms < until_ms:
        world.delivery.post(attempt.teller, at_ms, JobAlive(attempt.job.id, attempt.number, interval_s, stalled))
        at_ms += round(interval_s * 1_000)


def _victim_exit(world: World, attempt: Attempt, blow: Blow, *, rank: int, at_ms: int) -> _Exit:
    node, device = attempt.seats[rank]
    tail = None
    if blow.draft is not None:
        peer = _peer(attempt, node).name
        tail = world.texts.tail(blow.draft, rank=rank, node=node.name, device=device, peer=peer)
    reason = OOM_KILLED if blow.reason == OOM_KILLED else None
    return _Exit(rank, at_ms, blow.exit_code, blow.signal, tail, reason)


def _peer_exit(world: World, attempt: Attempt, *, rank: int, at_ms: int, echo: str, peer: str) -> _Exit:
    if echo == "sigterm":
        return _Exit(rank, at_ms, 143, 15, reason="sibling_failed" if world.chances.lives.random() < 0.5 else None)
    if echo == "silent":
        return _Exit(rank, at_ms, 1, None)
    node, device = attempt.seats[rank]
    return _Exit(
        rank,
        at_ms,
        1,
        None,
        world.texts.tail(world.texts.draft(echo), rank=rank, peer=peer, node=node.name, device=device),
    )


def _post(world: World, attempt: Attempt, gone: _Exit) -> None:
    if attempt.muted:
        return
    node, device = attempt.seats[gone.rank]
    seen = gone.first_ms is not None and happens(world.chances.lives, 0.6)
    first_error_at = moment_of(gone.first_ms + attempt.teller.clock_off_ms) if gone.first_ms and seen else None
    world.delivery.post(
        attempt.teller,
        gone.at_ms,
        RankExited(
            attempt.job.id, attempt.number, gone.rank, node.name, device=device, exit_code=gone.exit_code,
            signal=gone.signal, reason=gone.reason, first_error_at=first_error_at, log_tail=gone.tail,
        ),
    )  # fmt: skip


def _peer(attempt: Attempt, node: Node) -> Node:
    return next((other for other, _ in attempt.seats if other is not node), node)


def _unreported(_world: World, _attempt: Attempt, blow: Blow) -> Ending:
    return Ending(blow.at_ms, text_tells=False, reported=False)


def _refused(_world: World, _attempt: Attempt, blow: Blow) -> Ending:
    return Ending(blow.at_ms, text_tells=blow.text_tells)


_MANNERS: Final[dict[Manner, Callable[[World, Attempt, Blow], Ending]]] = {
    "crash": _crash,
    "hang": _hang,
    "stuck": _stuck,
    "node_lost": _node_lost,
    "killed": _killed,
    "unreported": _unreported,
    "refused": _refused,
}
