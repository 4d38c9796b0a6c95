"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Brokers = Annotated[
    str | None, typer.Option("--brokers", metavar="HOST:PORT,…", help="Where Kafka is (FAULTLENS_BROKERS).")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write events there instead of to Kafka; - is standard output."),
]
