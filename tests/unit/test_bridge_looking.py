"""The loop that bridges share: it outlives whoever does not answer, and ends when it is told to."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from faultlens.cli_bridge_looking import look_until_stopped
from faultlens.errors import WorldError


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_who_does_not_answer_is_asked_again_until_it_is_told_to_stop() -> None:
    looks: list[int] = []

    def look() -> dict[str, int]:
        looks.append(len(looks))
        if len(looks) < 3:
            raise WorldError("nobody there")
        os.kill(os.getpid(), signal.SIGTERM)
        return {"new": 1}

    look_until_stopped(look, whom="it", every_s=0.001, once=False)
    assert looks == [0, 1, 2]


def test_of_a_single_look_the_error_is_raised_and_no_other_follows() -> None:
    looks: list[int] = []

    def look() -> dict[str, int]:
        looks.append(1)
        raise WorldError("nobody there")

    with pytest.raises(WorldError, match="nobody there"):
        look_until_stopped(look, whom="it", every_s=0.001, once=True)
    assert looks == [1]
