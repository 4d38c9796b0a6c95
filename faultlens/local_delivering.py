"""Where a report or a notice is sent: a mail server, or an address that takes JSON."""

from __future__ import annotations

import json
import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request

from faultlens.errors import UsageError, WorldError
from faultlens.hooks import open_hook
from faultlens.settings import load_settings, secret

TIMEOUT_S: Final = 20.0
# What chats take in one message.
TEXT_LIMIT: Final = 30_000
_FORMS: Final = "smtp://host:25?from=a@example.org&to=b@example.org (smtps:// for TLS), or https://…"


@dataclass(frozen=True)
class Message:
    """What is sent: Markdown for chat and mail, and a page that a mail carries with it."""

    subject: str
    text: str
    page: str = ""


def deliver(to: str, message: Message) -> None:
    """Send a message to an address; UsageError: it is none, WorldError: it was not taken."""
    scheme = urlsplit(to).scheme
    if scheme in ("smtp", "smtps"):
        _mail(to, message)
    elif scheme in ("http", "https"):
        _post(to, message)
    else:
        raise UsageError(f"not an address to deliver to: {scheme}://… (expected {_FORMS})")


def _mail(to: str, message: Message) -> None:
    url = urlsplit(to)
    query = {name: values[-1] for name, values in parse_qs(url.query).items()}
    if not url.hostname or not query.get("to") or not query.get("from"):
        raise UsageError(f"a mail needs a host, `from` and `to` (expected {_FORMS})")
    if url.password is not None:
        raise UsageError("the address contains a password: leave it out and set FAULTLENS_MAIL_PASSWORD_FILE")
    mail = _letter(query["from"], query["to"], message)
    try:
        with _server(url.scheme, url.hostname, url.port) as server:
            if url.username:
                server.login(unquote(url.username), secret(load_settings(), "mail_password"))
            server.send_message(mail)
    except (OSError, smtplib.SMTPException) as error:
        raise WorldError(f"{url.hostname} did not take the mail: {error}") from None


def _letter(sender: str, recipient: str, message: Message) -> EmailMessage:
    mail = EmailMessage()
    try:
        mail["Subject"], mail["From"], mail["To"] = " ".join(message.subject.split()), sender, recipient
    except ValueError as error:
        raise UsageError(f"not a mail address: {error}") from None
    mail.set_content(message.text)
    if message.page:
        mail.add_attachment(message.page.encode(), maintype="text", subtype="html", filename="report.html")
    return mail


def _server(scheme: str, host: str, port: int | None) -> smtplib.SMTP:
    if scheme == "smtps":
        return smtplib.SMTP_SSL(host, port or 465, timeout=TIMEOUT_S, context=ssl.create_default_context())
    server = smtplib.SMTP(host, port or 25, timeout=TIMEOUT_S)
    server.ehlo()
    if server.has_extn("starttls"):
        server.starttls(context=ssl.create_default_context())
        server.ehlo()
    return server


def _post(to: str, message: Message) -> None:
    text = f"*{message.subject}*\n{message.text}"
    cut = text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}\n… cut"
    body = json.dumps({"text": cut}).encode()
    request = Request(to, body, {"Content-Type": "application/json", "User-Agent": "faultlens"})  # noqa: S310 - checked
    where = urlsplit(to).hostname
    try:
        with open_hook(request, timeout=TIMEOUT_S):
            return
    except HTTPError as error:
        raise WorldError(f"{where} did not take it: {error.code} {error.reason}") from None
    except (URLError, OSError) as error:
        raise WorldError(f"{where} cannot be reached: {getattr(error, 'reason', error)}") from None
