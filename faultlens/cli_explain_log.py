"""`faultlens explain-log`: what a log alone says of a failure, and how sure that is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec
import typer

from faultlens.errors import UsageError
from faultlens.signatures import LogVerdict, SignatureSet, decide, load_signatures
from faultlens.signatures.excerpt import Excerpt, Part, read_excerpt
from faultlens.signatures.explain import Answer, as_text, explain
from faultlens.signatures.next_steps import load_next_steps
from slo.wording import printable

STANDARD_INPUT: Final = Path("-")
# Bytes that no UTF-8 is and zero bytes; a log with a few torn lines is still one.
_UNREADABLE: Final = ("\N{REPLACEMENT CHARACTER}", "\0")
MAX_UNREADABLE: Final = 0.1


def explain_log(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A job's log, or - for standard input.", allow_dash=True)
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    signatures: Annotated[
        list[Path] | None,
        typer.Option("--signatures", metavar="DIR", help="Directory with a site's own signatures; may be repeated."),
    ] = None,
) -> None:
    """Say what broke by a log alone: the line that decides, what follows from it, how sure, and what to do."""
    known = load_signatures(signatures or ())
    with _opened(file) as stream:
        excerpt = read_excerpt(stream)
    _check_is_text(excerpt, file)
    part, verdict = judge(excerpt, known)
    answer = explain(verdict, load_next_steps(), first_line=part.first_line)
    if as_json:
        typer.echo(_as_json(answer, excerpt, known))
        return
    for line in as_text(answer):
        typer.echo(printable(line, limit=1_000))
    typer.echo(printable(f"  read           {_what_was_read(excerpt)}, by {known.version}"))


def judge(excerpt: Excerpt, known: SignatureSet) -> tuple[Part, LogVerdict]:
    """The verdict of the smallest part, from the end, that supports one; else that of the largest last episode."""
    best: tuple[Part, LogVerdict] | None = None
    for part in excerpt.parts():
        verdict = decide(known.scan(part.text))
        if verdict.basis == "supported":
            return part, verdict
        if best is None or best[1].deciding is None:
            best = part, verdict
    assert best is not None, "an excerpt has at least one part"  # noqa: S101
    return best


def _check_is_text(excerpt: Excerpt, file: Path) -> None:
    """Raise UsageError for what is no log: a verdict on an empty or packed file would be one on nothing."""
    text = excerpt.tail.text or excerpt.head.text
    if not text.strip():
        raise UsageError(f"{file} is empty: there is nothing to explain")
    unreadable = sum(map(text.count, _UNREADABLE))
    if unreadable > MAX_UNREADABLE * len(text):
        raise UsageError(f"{file} is not text: give a log as the job printed it (unpack it first)")


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    try:
        with file.open("rb") as stream:
            yield stream
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}; give a log file, or - for standard input") from None


def _what_was_read(excerpt: Excerpt) -> str:
    whole = f"{excerpt.bytes_read:,} bytes"
    return whole if not excerpt.bytes_skipped else f"{whole}, {excerpt.bytes_skipped:,} of them skipped in the middle"


def _as_json(answer: Answer, excerpt: Excerpt, known: SignatureSet) -> str:
    document = {
        **msgspec.to_builtins(answer),
        "signatures": known.version,
        "bytes_read": excerpt.bytes_read,
        "bytes_skipped": excerpt.bytes_skipped,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


if __name__ == "__main__":
    typer.run(explain_log)
