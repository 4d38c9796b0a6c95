"""The manifests start what is there, with few rights and within limits, and the chart says nothing that they do not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from typer.testing import CliRunner

from faultlens.cli import VERBS, app
from producers.agent.configuration import load_configuration

ROOT: Final = Path(__file__).parents[2]
MANIFESTS: Final = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
CHART: Final = ROOT / "deploy" / "helm" / "faultlens"
PODS: Final = ("Deployment", "DaemonSet", "StatefulSet")
SAID: Final = {
    "cluster": "c1",
    "brokers": "kafka-1:9092",
    "store": "clickhouse://sink@db:8123/faultlens",
    "kubectlImage": "kubectl:1.36",
}
helm: Final = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed (go install helm.sh/helm)")


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def pods(things: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [thing["spec"]["template"]["spec"] for thing in things if thing["kind"] in PODS]


def containers(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each container with its pod."""
    return [
        (container, pod)
        for pod in pods(documents(path))
        for container in chain(pod.get("initContainers", ()), pod["containers"])
    ]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_a_manifest_runs_commands_that_there_are_within_limits(path: Path) -> None:
    for container, pod in containers(path):
        assert container in pod.get("initContainers", ()) or "limits" in container["resources"], container["name"]
        words = container.get("args") or re.findall(r"faultlens ([\w-]+)", " ".join(container["command"]))
        assert not words or words[0] in VERBS
        if "args" in container:
            shown = re.sub(r"\s", "", CliRunner().invoke(app, [*words, "--help"]).output)
            assert [word for word in words if word.startswith("--") and word not in shown] == []
    assert "cluster-admin" not in path.read_text("utf-8")


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_what_needs_no_host_is_nobody_and_can_write_nothing(path: Path) -> None:
    for container, pod in containers(path):
        security = container["securityContext"]
        if security.get("privileged"):
            assert path.stem == "agent"
            continue
        assert security["readOnlyRootFilesystem"], container["name"]
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not security["allowPrivilegeEscalation"]
        assert path.stem == "agent" or pod["securityContext"]["runAsNonRoot"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_no_secret_stands_in_a_manifest(path: Path) -> None:
    assert "Secret" not in {thing["kind"] for thing in documents(path)}
    told = [entry for container, _ in containers(path) for entry in container.get("env", ())]
    assert [
        e["name"] for e in told if re.search("PASSWORD|TOKEN|KEY", e["name"]) and not e["name"].endswith("FILE")
    ] == []


def test_the_agent_s_configuration_in_its_manifest_can_be_used(tmp_path: Path) -> None:
    things = documents(ROOT / "deploy" / "kubernetes" / "agent.yaml")
    config = next(thing for thing in things if thing["kind"] == "ConfigMap")["data"]["agent.yaml"]
    (tmp_path / "agent.yaml").write_text(config.replace("<CLUSTER>", "c1"), "utf-8")
    assert load_configuration(tmp_path / "agent.yaml").validation is not None


def test_workers_and_sink_are_started_as_the_compose_file_starts_them() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    composed = {name: s["command"] for name, s in services.items() if s.get("command", [""])[0] in ("stream", "sink")}
    composed["sink"] = ["$(POD)" if word == "sink-1" else word for word in composed["sink"]]
    listed = {
        container["name"]: container["args"]
        for name in ("workers", "sink")
        for container, _ in containers(ROOT / "deploy" / "kubernetes" / f"{name}.yaml")
    }
    assert listed == composed


def test_the_image_has_what_the_manifests_start() -> None:
    """Without their extras the commands end with 2."""
    (extras,) = re.findall(r"'\.\[(.*)\]'", (ROOT / "Dockerfile").read_text("utf-8"))
    assert {"stream", "server", "kubernetes", "agent"} <= set(extras.split(","))


# --- the chart -------------------------------------------------------------------------------------------


def test_every_manifest_is_a_part_of_the_chart_and_every_value_is_described() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    described = json.loads((CHART / "values.schema.json").read_text("utf-8"))["properties"]
    assert values.keys() == described.keys() - {"global"}
    parts = {name for name, value in values.items() if isinstance(value, dict) and "enabled" in value}
    assert {path.stem for path in (CHART / "manifests").glob("*.yaml")} == parts
    assert (CHART / "manifests").resolve() == MANIFESTS[0].parent
    asked = {
        name
        for path in (CHART / "templates").glob("*")
        for name in re.findall(r'"<[A-Z ]+>" "(\w+)"', path.read_text("utf-8"))
    }
    assert asked == SAID.keys()


def rendered(*options: str) -> list[dict[str, Any]]:
    said = [f"--set={name}={value}" for name, value in SAID.items()]
    command = [
        "helm",
        "template",
        "ours",
        str(CHART),
        "--kube-version",
        "1.36.0",
        *said,
        "--set=act.enabled=true",
        "--set=nvsentinel.enabled=true",
        "--set=replacing.enabled=true",
        "--set=repairing.enabled=true",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return [thing for thing in yaml.safe_load_all(done.stdout) if thing is not None]


def named(things: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(thing["kind"], thing["metadata"]["name"]): thing for thing in things if thing["kind"] != "Namespace"}


@helm
def test_helm_finds_no_fault_with_the_chart() -> None:
    said = [f"--set={name}={value}" for name, value in SAID.items()]
    subprocess.run(["helm", "lint", "--strict", str(CHART), *said], check=True, timeout=60, capture_output=True)  # noqa: S607


@helm
def test_the_chart_installs_the_manifests_and_nothing_else() -> None:
    wanted: dict[tuple[str, str], dict[str, Any]] = {}
    for path in MANIFESTS:
        text = path.read_text("utf-8")
        for name, value in SAID.items():
            mark = {"kubectlImage": "KUBECTL IMAGE"}.get(name, name.upper())
            text = text.replace(f"<{mark}>", value)
        wanted |= named(list(yaml.safe_load_all(text)))
    assert named(rendered("--namespace=faultlens")) == wanted


@helm
def test_what_is_laid_over_a_part_reaches_its_pods_and_no_others(tmp_path: Path) -> None:
    over = {
        "image": "registry.lab/faultlens:1",
        "kafka": {"secret": "kafka", "env": {"FAULTLENS_KAFKA_SECURITY": "sasl_ssl"}},
        "act": {
            "args": ["--device-taint", "NoExecute"],
            "pod": {"nodeSelector": {"pool": "control"}},
            "resources": {"act": {"limits": {"memory": "2Gi"}}},
        },
    }
    (tmp_path / "over.yaml").write_text(yaml.safe_dump(over), "utf-8")
    things = named(rendered("--namespace=gpus", f"--values={tmp_path / 'over.yaml'}"))
    assert {t["metadata"].get("namespace", "gpus") for t in things.values()} == {"gpus", "default", "faultlens-repair"}
    act = things["Deployment", "faultlens-act"]["spec"]["template"]["spec"]
    (container,) = act["containers"]
    assert (container["image"], container["args"][-2:]) == ("registry.lab/faultlens:1", ["--device-taint", "NoExecute"])
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "2Gi"}
    assert {"name": "FAULTLENS_KAFKA_SECURITY", "value": "sasl_ssl"} in container["env"]
    assert {"name": "kafka", "secret": {"secretName": "kafka"}} in act["volumes"]
    assert act["nodeSelector"] == {"pool": "control"}
    assert "nodeSelector" not in things["Deployment", "faultlens-bridge"]["spec"]["template"]["spec"]


@helm
@pytest.mark.parametrize(
    "wrong", ["brokers=", "store=clickhouse://sink:word@db:8123/faultlens", "kafka.env.PASSWORD=x"]
)
def test_a_value_that_is_missing_or_is_a_secret_is_refused(wrong: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        rendered(f"--set={wrong}")
