"""When a worker that stands still must end."""

from __future__ import annotations

from threading import Event

from streams.live.watchdog import ENDING_SECONDS, STUCK_SECONDS, Watchdog, stuck


def test_a_worker_goes_on_while_records_are_done_with_and_its_loop_turns() -> None:
    assert stuck(None, 100.0, 100.0 + STUCK_SECONDS) is None
    assert stuck(100.0, 100.0, 100.0 + STUCK_SECONDS) is None


def test_a_worker_ends_when_records_are_not_done_with_or_its_loop_stands_still() -> None:
    late_s = 101.0 + STUCK_SECONDS
    assert stuck(100.0, late_s, late_s) == "records that came 91 s ago are not done with"
    assert stuck(None, 100.0, late_s) == "the worker's loop stands still for 91 s"


def test_a_worker_that_is_told_to_end_is_not_waited_for_longer_than_brokers_need() -> None:
    assert stuck(None, 100.0, 100.0 + ENDING_SECONDS, 100.0) is None
    why = stuck(None, 100.0, 101.0 + ENDING_SECONDS, 100.0)
    assert why == "it was told to end 16 s ago, and the brokers do not let it go"


def test_the_watchdog_looks_by_itself() -> None:
    said: list[str] = []
    barked = Event()

    def bark(why: str) -> None:
        said.append(why)
        barked.set()

    dog = Watchdog(lambda: -2 * STUCK_SECONDS, bark)
    dog.start()
    assert barked.wait(30)
    dog.stop()
    assert "are not done with" in said[0]
