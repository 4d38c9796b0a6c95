"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from faultlens.errors import UsageError
from faultlens.objectives import Objectives, load_objectives
from faultlens.settings import load_settings


def named_cluster(given: str) -> str:
    """Return the cluster's name: as given, else that of the settings. UsageError: nobody names it."""
    name = given or load_settings().cluster
    if not name:
        raise UsageError("which cluster? Give --cluster NAME, or set FAULTLENS_CLUSTER")
    return name


ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="NAME",
        callback=named_cluster,
        show_default=False,
        help="What the cluster is called in events (FAULTLENS_CLUSTER).",
    ),
]
Brokers = Annotated[
    str | None, typer.Option("--brokers", metavar="HOST:PORT,…", help="Where Kafka is (FAULTLENS_BROKERS).")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write events there instead of to Kafka; - is standard output."),
]
StoreOption = Annotated[
    str | None, typer.Option("--store", metavar="DSN", help="Where answers are kept (FAULTLENS_STORE).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
ObjectivesOption = Annotated[
    Path | None,
    typer.Option(
        "--objectives", metavar="PATH", help="A site's own objectives, a file or a folder (FAULTLENS_OBJECTIVES)."
    ),
]
PolicyOption = Annotated[
    Path | None,
    typer.Option("--policy", metavar="FILE", help="A site's own remediation policy (FAULTLENS_POLICY)."),
]
KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="How to reach it; otherwise as a pod's service account, or by $KUBECONFIG.",
    ),
]


def promised(path: Path | None) -> Objectives:
    """Return the objectives with a site's own: those of `path`, else those that the settings name."""
    return load_objectives(path or load_settings().objectives)
