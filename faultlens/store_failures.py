"""What a failure of the store means for whoever writes to it: wait, stop, or leave the row out."""

from __future__ import annotations

from typing import Final, Literal

FailureClass = Literal["busy", "stop", "data"]

# The numbers are ClickHouse's: https://github.com/ClickHouse/ClickHouse/blob/master/src/Common/ErrorCodes.cpp
# A value, not the statement or the server, is at fault: type, range, length or text of it.
DATA: Final = frozenset({6, 27, 38, 41, 53, 69, 70, 72, 117, 131, 321, 349, 407, 691})
# A table or column is missing.
SCHEMA: Final = frozenset({8, 10, 16, 47, 60, 81})
# The statement is wrong.
STATEMENT: Final = frozenset({42, 43, 44, 48, 50, 62, 73, 115, 452})
# The user may not, or may only read.
ACCESS: Final = frozenset({164, 192, 193, 194, 392, 497, 516})
_STOP: Final = SCHEMA | STATEMENT | ACCESS


def failure_class(code: int | None, *, lasting: bool = False) -> FailureClass:
    """Return what the store's answer `code` means; None: it did not answer, which waiting does not mend if `lasting`.

    Waiting is right for all that is not known to last: nothing is lost by it, and whoever waits is seen to wait.
    """
    if code in DATA:
        return "data"
    if code in _STOP or (code is None and lasting):
        return "stop"
    return "busy"
