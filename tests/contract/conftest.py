"""What the contract suites share: what an actuator remembers, in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from actuators.ledger import Ledger


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    opened = Ledger(":memory:")
    yield opened
    opened.close()
