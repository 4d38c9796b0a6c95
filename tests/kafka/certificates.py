"""A certificate authority for a test's brokers, with certificates of a server and of a client."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """PEM files: the authority's certificate, the server's key and chain in one, the client's certificate and key."""

    ca: Path
    server: Path
    client: Path
    client_key: Path


def make_certificates(directory: Path) -> Certificates:
    """Make them with the `openssl` program, valid for ten days."""
    directory.mkdir(parents=True, mode=0o700)
    ca, ca_key = directory / "ca.pem", directory / "ca.key"
    _openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "10", "-subj", "/CN=test authority",
             "-keyout", str(ca_key), "-out", str(ca))  # fmt: skip
    for name in ("localhost", "client"):
        _openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", str(directory / f"{name}.key"), "-out", str(directory / f"{name}.csr"))  # fmt: skip
        extension = directory / f"{name}.ext"
        extension.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n", "utf-8")
        _openssl("x509", "-req", "-in", str(directory / f"{name}.csr"), "-CA", str(ca), "-CAkey", str(ca_key),
                 "-CAcreateserial", "-days", "10", "-extfile", str(extension),
                 "-out", str(directory / f"{name}.pem"))  # fmt: skip
    server = directory / "server.pem"
    parts = [directory / "localhost.key", directory / "localhost.pem", ca]
    server.write_text("".join(part.read_text("utf-8") for part in parts), "utf-8")
    return Certificates(ca, server, directory / "client.pem", directory / "client.key")


def _openssl(*arguments: str) -> None:
    command = [shutil.which("openssl") or "openssl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr}")
