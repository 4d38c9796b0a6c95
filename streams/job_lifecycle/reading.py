"""What texts of a job say: scans of log tails, reasons and messages, condensed."""

from __future__ import annotations

import re
from typing import Final

from faultlens.clock import ms_of
from faultlens.codec import Event
from faultlens.events import JobEnded, RankExited
from faultlens.signatures import LogVerdict, SignatureSet, Where, decide
from streams.attribution import End, Exit, Said

_LINE_CHARS: Final = 200
_ROLES: Final = {
    "node_evidence_in_log": "root",
    "explicit_root_in_log": "root",
    "pointing_root_in_log": "root",
    "exception_name_in_log": "root",
    "symptom_in_log": "symptom",
    "consequence_in_log": "cascade",
    "cleared_by_progress_in_log": "symptom",
}
_SIGNALS: Final = {
    "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9, "SIGSEGV": 11, "SIGTERM": 15,
}  # fmt: skip
# Kubernetes' words for it: ErrImagePull, ImagePullBackOff, ImagePullFailed.
_PULLING: Final = "ImagePull"
_OF_IMAGES: Final = re.compile("(?i)image|pull|registry|manifest")
SCHEDULERS: Final = ("scheduler/", "bridge/")


class Reader:
    """Reads texts by the signatures."""

    def __init__(self, signatures: SignatureSet) -> None:
        self._signatures = signatures

    def said(self, text: str | None, where: Where) -> Said:
        """Return what one text says."""
        if not text:
            return Said()
        return _condensed(decide(self._signatures.scan(text, where=where)))

    def of_texts(self, *texts: tuple[str | None, Where]) -> Said:
        """Return what the first of the texts says that names a root; else the first symptom or consequence."""
        read = [self.said(text, where) for text, where in texts]
        for role in ("root", "symptom", "cascade"):
            for said in read:
                if said.role == role:
                    return said
        return Said()

    def exit_of(self, event: Event, data: RankExited) -> Exit:
        """Return a rank's exit with its log tail read."""
        first_ms = event.time_ms if data.first_error_at is None else ms_of(data.first_error_at)
        return Exit(
            id=event.id,
            source=event.source,
            rank=data.rank,
            node=data.node,
            first_ms=min(first_ms, event.time_ms),
            at_ms=event.time_ms,
            said=self.of_texts((data.log_tail, "log_tail"), (data.reason, "reason")),
            device=data.device,
            exit_code=data.exit_code,
            signal=signal_number(data.signal),
            reason=data.reason,
        )

    def end_of(self, event: Event, data: JobEnded, *, now_ms: int) -> End:
        """Return the end as this reporter told it, with its texts read."""
        return End(
            id=event.id,
            source=event.source,
            at_ms=event.time_ms,
            arrived_ms=now_ms,
            outcome=data.outcome,
            said=self.of_texts((data.log_tail, "log_tail"), (_about(data), "message"), (data.reason, "reason")),
            reason=data.reason,
            message=(data.message or "")[:_LINE_CHARS] or None,
            exit_code=data.exit_code,
            signal=signal_number(data.signal),
            command_id=data.command_id,
            scheduler=event.source.startswith(SCHEDULERS),
        )


def _about(data: JobEnded) -> str | None:
    """Return the message, with what it is about where that is an image and it does not say so itself.

    `429 Too Many Requests` alone does not say by whom, nor `no space left on device` whose disk.
    """
    if not data.message or not data.reason or _PULLING not in data.reason or _OF_IMAGES.search(data.message):
        return data.message
    return f"{data.reason}: {data.message}"


def signal_number(signal: int | str | None) -> int | None:
    """Return a signal as a number; None where it is not known."""
    if isinstance(signal, str):
        return int(signal) if signal.isdigit() else _SIGNALS.get(signal.upper())
    return signal


def _condensed(verdict: LogVerdict) -> Said:
    role = _ROLES.get(verdict.rule, "none")
    deciding = verdict.deciding
    if role == "none" or deciding is None:
        return Said()
    return Said(
        cause_class=verdict.cause_class,
        cause_code=verdict.cause_code,
        role=role,  # type: ignore[arg-type]
        strong=verdict.strength in ("strong", "name"),
        signature=deciding.id,
        line=deciding.text[:_LINE_CHARS],
        also=deciding.also,
    )
