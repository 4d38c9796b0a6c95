"""Recording what real controllers make of objects: their programs from Go modules, and each change of the objects."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from time import sleep
from typing import Any, Final

import yaml
import zstandard

from faultlens.clock import wall_ms
from tests.drills.kubelab import Api, until
from tests.drills.pipeline import say

KEPT: Final = Path(__file__).parents[1] / "data" / "kubernetes"
SETTLE_S: Final = 3.0
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def compiled(module: str, main: str, program: Path) -> Path:
    """Return the folder of a module's source; its program is compiled where that was not done before.

    It is built in a copy of its own tree, by the versions that it names: nothing has to be looked up.
    """
    go = shutil.which("go") or "go"
    found = subprocess.run([go, "mod", "download", "-json", module], capture_output=True, check=True, timeout=300)
    source = program.parent / f"{program.name}-source"
    if not program.exists():
        shutil.rmtree(source, ignore_errors=True)
        shutil.copytree(json.loads(found.stdout)["Dir"], source)
        for path in (source, *source.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)
        environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
        build = [go, "build", "-trimpath", "-o", str(program), main]
        subprocess.run(build, cwd=source, env=environment, check=True, timeout=3_600)
    return source


@contextmanager
def meanwhile(command: Sequence[str | Path], log: Path, **environment: str) -> Iterator[None]:
    """Run a program meanwhile, with what it says in `log`."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=out, stderr=out)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def defined(api: Api, folder: Path) -> None:
    """Define the kinds of objects in a folder, and wait until the server knows them."""
    for file in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text("utf-8")):
            if document and document["kind"] == "CustomResourceDefinition":
                _define(api, document)
                spec = document["spec"]
                path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
                until(f"{spec['names']['kind']} to be known", partial(api.ask, "GET", path))


def _define(api: Api, document: dict[str, Any]) -> None:
    """Define a kind; one that the lab brought, maybe of another version, is replaced."""
    if api.make(_DEFINITIONS, document) is None:
        place = f"{_DEFINITIONS}/{document['metadata']['name']}"
        version = api.ask("GET", place)["metadata"]["resourceVersion"]
        api.ask("PUT", place, document | {"metadata": document["metadata"] | {"resourceVersion": version}})


class Recorder:
    """Watches all objects of a few kinds, by the paths of their lists, and keeps each change as it comes."""

    def __init__(self, api: Api, paths: dict[str, str]) -> None:
        self._api = api
        self._lock = Lock()
        self._closed = False
        self.kept: list[dict[str, Any]] = []
        for kind, path in paths.items():
            Thread(target=self._follow, args=(kind, path), daemon=True).start()

    def _follow(self, kind: str, path: str) -> None:
        for change in self._api.watch(path):
            thing = change["object"]
            thing["metadata"].pop("managedFields", None)
            gone = {"gone": True} if change["type"] == "DELETED" else {}
            with self._lock:
                if self._closed:
                    return
                self.kept.append({"ms": wall_ms(), "kind": kind, **gone, "object": thing})

    def close(self) -> None:
        """Keep nothing that comes from now on; what was asked for is heard of sooner than what is watched."""
        sleep(SETTLE_S)
        with self._lock:
            self._closed = True

    def write(self, name: str) -> None:
        """Keep what was seen beside the tests' data."""
        KEPT.mkdir(parents=True, exist_ok=True)
        path = KEPT / f"{name}.jsonl.zst"
        lines = b"".join(json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in self.kept)
        path.write_bytes(zstandard.ZstdCompressor(19).compress(lines))
        say(f"{len(self.kept)} objects and changes of them, {path.stat().st_size} bytes")
