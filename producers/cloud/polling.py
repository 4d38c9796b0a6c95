"""Asks a provider: an instance's metadata service, or the provider's own program."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from faultlens.errors import WorldError
from producers.cloud import providers
from producers.cloud.notices import Answer

AWS: Final = "http://169.254.169.254"
GCP: Final = "http://metadata.google.internal"
AZURE: Final = "http://169.254.169.254"
_AZURE_VERSION: Final = "2020-07-01"
ANSWER_S: Final = 5.0
PROGRAM_S: Final = 120.0
BODY_BYTES: Final = 1 << 20


def ask_aws(node: str, base: str) -> Answer:
    """Return what this AWS instance is told of itself. WorldError: its metadata service does not answer."""
    token = _get(f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, method="PUT") or ""
    headers = {"X-aws-ec2-metadata-token": token}
    scheduled = _get(f"{base}/latest/meta-data/events/maintenance/scheduled", headers)
    spot = _get(f"{base}/latest/meta-data/spot/instance-action", headers)
    return providers.aws_metadata(node, _json(scheduled), _json(spot))


def ask_gcp(node: str, base: str) -> Answer:
    """Return what this Google Cloud instance is told of itself. WorldError: its metadata service does not answer."""
    place, headers = f"{base}/computeMetadata/v1/instance", {"Metadata-Flavor": "Google"}
    upcoming = _get(f"{place}/upcoming-maintenance?alt=json&recursive=true", headers)
    event = _get(f"{place}/maintenance-event", headers) or ""
    preempted = _get(f"{place}/preempted", headers) or ""
    return providers.gcp_metadata(node, _json(upcoming), event, preempted)


def ask_azure(node: str, base: str) -> Answer:
    """Return what this Azure machine is told of itself. WorldError: its metadata service does not answer."""
    headers = {"Metadata": "true"}
    name = _get(f"{base}/metadata/instance/compute/name?api-version=2021-02-01&format=text", headers) or node
    events = _get(f"{base}/metadata/scheduledevents?api-version={_AZURE_VERSION}", headers)
    return providers.azure_metadata(node, name.strip(), _json(events))


METADATA: Final[Mapping[str, tuple[Callable[[str, str], Answer], str]]] = {
    "aws": (ask_aws, AWS),
    "gcp": (ask_gcp, GCP),
    "azure": (ask_azure, AZURE),
}


def ask_aws_api(nodes: Mapping[str, str], program: str = "aws") -> Answer:
    """Return what AWS says of all instances of the account and region that its program is set up for."""
    path = shutil.which(program)
    if path is None:
        raise WorldError(f"{program} is not installed: it is what asks AWS, with its own credentials")
    command = [path, "ec2", "describe-instance-status", "--include-all-instances", "--output", "json"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROGRAM_S, check=False)  # noqa: S603 - a fixed list
    except subprocess.TimeoutExpired:
        raise WorldError(f"{program} did not answer within {PROGRAM_S:g} s") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise WorldError(f"{program} ended with {done.returncode}: {said[-300:] or 'no message'}")
    return providers.aws_statuses(nodes, _json(done.stdout.decode("utf-8", "replace")))


def _get(url: str, headers: Mapping[str, str], *, method: str = "GET") -> str | None:
    """Return an answer; None: there is none (404), which is how the services say that nothing is planned."""
    request = Request(url, headers=dict(headers), method=method)  # noqa: S310 - the provider's own address
    try:
        with urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
            body: bytes = answer.read(BODY_BYTES)
    except HTTPError as error:
        error.close()
        if error.code == 404:
            return None
        raise WorldError(f"{url} answers {error.code}") from None
    except URLError as error:
        raise WorldError(f"{url} does not answer: {error.reason}") from None
    except OSError as error:
        raise WorldError(f"{url} does not answer: {error}") from None
    return body.decode("utf-8", "replace")


def _json(text: str | None) -> Any:
    """Return what an answer says; WorldError: it is no JSON, so that nothing is taken for over."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        raise WorldError(f"no JSON in an answer: {text[:200]!r}") from None
