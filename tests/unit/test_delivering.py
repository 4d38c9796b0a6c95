"""Reports by mail and to hooks: what arrives, and what is said when it does not."""

from __future__ import annotations

import json
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_string
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from faultlens.errors import UsageError, WorldError
from faultlens.local_delivering import TEXT_LIMIT, Message, deliver

MESSAGE = Message("Week 47", "# All is well\n\nNothing failed.\n", "<!DOCTYPE html><p>All is well")


@contextmanager
def listening(server: socketserver.TCPServer) -> Iterator[int]:
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.socket.getsockname()[1]
    finally:
        server.shutdown()
        server.server_close()


class _Mail(socketserver.StreamRequestHandler):
    """As much of a mail server as a client asks for."""

    def handle(self) -> None:
        self._say("220 here")
        while line := self.rfile.readline().decode().strip():
            word = line.split(maxsplit=1)[0].upper()
            if word == "RCPT" and "nobody" in line:
                self._say("550 nobody of that name")
            elif word == "DATA":
                self._say("354 go on")
                lines = iter(self.rfile.readline, b".\r\n")
                self.server.letters.append(b"".join(lines).decode())  # type: ignore[attr-defined]
                self._say("250 taken")
            elif word == "QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 fine")

    def _say(self, words: str) -> None:
        self.wfile.write(f"{words}\r\n".encode())


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, json.loads(body)))  # type: ignore[attr-defined]
        self.send_response({"/gone": 302, "/no": 403}.get(self.path, 200))
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def test_a_mail_has_the_words_and_carries_the_page() -> None:
    server = socketserver.TCPServer(("127.0.0.1", 0), _Mail)
    server.letters = []  # type: ignore[attr-defined]
    with listening(server) as port:
        deliver(f"smtp://127.0.0.1:{port}?from=faultlens@example.org&to=team@example.org", MESSAGE)
        with pytest.raises(WorldError, match="did not take the mail"):
            deliver(f"smtp://127.0.0.1:{port}?from=faultlens@example.org&to=nobody@example.org", MESSAGE)
    mail = message_from_string(server.letters[0])  # type: ignore[attr-defined]
    assert (mail["Subject"], mail["To"]) == ("Week 47", "team@example.org")
    text, page = [part for part in mail.walk() if not part.is_multipart()]
    assert b"Nothing failed." in bytes(text.get_payload(decode=True))
    assert page.get_filename() == "report.html"


def test_a_hook_gets_the_words_as_json_and_no_more_than_a_chat_takes() -> None:
    server = HTTPServer(("127.0.0.1", 0), Hook)
    server.taken = []  # type: ignore[attr-defined]
    with listening(server) as port:
        deliver(f"http://127.0.0.1:{port}/hook", MESSAGE)
        deliver(f"http://127.0.0.1:{port}/hook", Message("long", "x" * 2 * TEXT_LIMIT))
        for path, words in (("no", "403"), ("gone", "302")):
            with pytest.raises(WorldError, match=words):
                deliver(f"http://127.0.0.1:{port}/{path}", MESSAGE)
    (_, first), (_, second), *_ = server.taken  # type: ignore[attr-defined]
    assert first == {"text": "*Week 47*\n# All is well\n\nNothing failed.\n"}
    assert second["text"].endswith("… cut")


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("ftp://host/", "not an address"),
        ("smtp://host", "`from` and `to`"),
        ("smtp://me:secret@host?from=a@b&to=c@d", "leave it out"),
    ],
)
def test_an_address_that_is_none_is_wrong_use_and_shows_no_password(to: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        deliver(to, MESSAGE)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_nobody_there_is_said() -> None:
    with pytest.raises(WorldError, match="cannot be reached"):
        deliver("http://127.0.0.1:1/", MESSAGE)
    with pytest.raises(WorldError, match="did not take the mail"):
        deliver("smtp://127.0.0.1:1?from=a@b.example&to=c@d.example", MESSAGE)
