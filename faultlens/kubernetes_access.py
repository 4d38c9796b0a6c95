"""How an API server of Kubernetes is reached. Needs the client (extra `kubernetes`)."""

from __future__ import annotations

from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration

from faultlens.errors import WorldError


async def access(kubeconfig: str | None) -> Configuration:
    """Return the way by a kubeconfig; without one as the pod's own service account, else by $KUBECONFIG.

    WorldError: there is no way. OSError: a file cannot be read.
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
        await config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
    except config.ConfigException as error:
        raise no_way(error) from None
    return configuration


def no_way(error: Exception) -> WorldError:
    """Return what is raised where the server cannot be reached at all."""
    return WorldError(f"no way to Kubernetes: {error}; give --kubeconfig, or run in the cluster")
