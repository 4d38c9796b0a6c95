"""How an API server of Kubernetes is reached. Needs the client (extra `kubernetes`)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration

from faultlens.errors import ConfigurationError, WorldError
from faultlens.yaml_lines import YamlProblemError, read_yaml


async def access(kubeconfig: str | None) -> Configuration:
    """Return the way by a kubeconfig; without one as the pod's own service account, else by $KUBECONFIG.

    WorldError: there is no way. ConfigurationError: a kubeconfig is none.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None:
            try:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            except config.ConfigException:
                pass
            else:
                return configuration
        _check([Path(kubeconfig)] if kubeconfig is not None else _of_this_user())
        await config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
    except config.ConfigException as error:
        if kubeconfig is not None:
            raise ConfigurationError(f"{kubeconfig}: {error}") from None
        raise no_way(error) from None
    return configuration


def _of_this_user() -> list[Path]:
    """Return this user's kubeconfigs. WorldError: there are none."""
    named = os.environ.get("KUBECONFIG", "")
    places = [Path(part) for part in named.split(os.pathsep) if part] or [Path.home() / ".kube" / "config"]
    there = [place for place in places if place.is_file()]
    if not there:
        raise no_way(f"no service account, and no kubeconfig at {' or '.join(map(str, places))}")
    return there


def _check(kubeconfigs: Iterable[Path]) -> None:
    """Look at files before the client does, which expects no other content than the right one."""
    for path in kubeconfigs:
        try:
            content = read_yaml(path).data
        except YamlProblemError as error:
            raise ConfigurationError(str(error)) from None
        if not isinstance(content, dict) or "clusters" not in content:
            raise ConfigurationError(f"{path} is no kubeconfig: it names no clusters")


def no_way(why: Exception | str) -> WorldError:
    """Return what is raised where the server cannot be reached at all."""
    return WorldError(f"no way to Kubernetes: {why}; give --kubeconfig, or run in the cluster")
