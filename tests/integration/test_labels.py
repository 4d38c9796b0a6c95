"""A person's word: what it changes in verdict, ledger, objectives and report, and what is learnt from it."""

import json
import shutil
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest

from faultlens.cli import main
from tests.unit.test_delivering import Hook, listening

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

STORY = Path(__file__).parents[2] / "examples" / "one-fault.jsonl"


def called(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("replayed")
    assert called("replay", str(STORY), "--store", f"chdb://{directory / 'store'}") == 0
    return directory


@pytest.fixture
def store(replayed: Path, tmp_path: Path) -> str:
    shutil.copytree(replayed, tmp_path / "own", symlinks=True)
    return f"chdb://{tmp_path / 'own' / 'store'}"


class Asked:
    """Asks the program, always for JSON."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> Any:
        self._capsys.readouterr()
        assert called(*arguments, "--json") == code
        return json.loads(self._capsys.readouterr().out)


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Asked:
    return Asked(capsys)


def by_class(found: Any, objective: str) -> dict[str, dict[str, float]]:
    entry = next(entry for entry in found["objectives"] if entry["objective"] == objective)
    assert entry["agreement"] == "same"
    return {way: entry[way]["by_cause"] for way in ("recomputed", "streamed")}


def test_a_label_amends_verdict_ledger_and_objectives_in_the_store_and_as_streamed(store: str, asked: Asked) -> None:
    before = by_class(asked("slo", "--store", store, code=1), "job_success")
    assert before == {"recomputed": {"hardware": 1}, "streamed": {"hardware": 1}}
    said = asked("label", "llm-7", "--class", "user", "--code", "app.config", "--why", "a typo", "--by", "jo",
                 "--store", store)  # fmt: skip
    assert (said["before"]["class"], said["before"]["code"]) == ("hardware", "gpu.off_bus")
    assert (said["after"]["class"], said["after"]["code"], said["after"]["status"]) == ("user", "app.config", "amended")
    after = asked("slo", "--store", store, code=1)
    assert by_class(after, "job_success") == {"recomputed": {}, "streamed": {}}
    lost = by_class(after, "goodput")
    assert lost["recomputed"] == pytest.approx(lost["streamed"])
    assert lost["streamed"]["user"] > 0
    assert "hardware" not in lost["streamed"]
    report = asked("report", "--store", store)
    assert {cause["code"] for cause in report["causes"] if cause["failures"]} == {"app.config"}


def test_the_last_word_holds_and_taking_it_back_gives_the_first_verdict_again(store: str, asked: Asked) -> None:
    for code in ("app.config", "gpu.off_bus", "platform.power"):
        asked("label", "llm-7/1", "--code", code, "--by", "jo", "--store", store)
    assert asked("why", "llm-7", "--store", store)["verdict"]["code"] == "platform.power"
    (label,) = asked("labels", "--store", store)["labels"]
    assert (label["code"], label["held"], label["in_force"]) == ("platform.power", "overrules", True)


def test_the_rule_that_erred_is_named_and_scored_against_the_label(store: str, asked: Asked) -> None:
    assert asked("labels", "--store", store) == {"labels": [], "rules": []}
    asked("label", "llm-7", "--class", "user", "--store", store)
    (rule,) = asked("labels", "--store", store)["rules"]
    assert (rule["rule"], rule["overruled"], rule["examples"]) == ("device_fault_on_allocated_gpu", 1, ["llm-7/1"])
    score = asked("score", store)
    assert score["confusion"]["user"]["hardware"] == 1
    assert score["failures"] == 1


def test_whoever_agrees_is_recorded_and_a_rule_gets_its_due(store: str, asked: Asked) -> None:
    said = asked("label", "llm-7", "--class", "hardware", "--code", "gpu.off_bus", "--node", "node-0042",
                 "--device", "5", "--store", store)  # fmt: skip
    assert said["after"]["class"] == "hardware"
    found = asked("labels", "--store", store)
    assert (found["labels"][0]["held"], found["rules"][0]["overruled"]) == ("agrees", 0)
    assert found["labels"][0]["node"] == "node-0042"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--class", "gremlins"), "hardware, driver, platform, user"),
        (("--code", "gpu.nonsense"), "no such cause"),
        ((), "--class"),
        (("--class", "user", "--why", "x" * 2_001), "2,000"),
        (("--class", "user", "--by", "x" * 101), "--by"),
    ],
)
def test_a_word_that_means_nothing_is_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], word: str
) -> None:
    assert called("label", "llm-7", *options, "--store", "chdb:///nowhere") == 2
    assert word in capsys.readouterr().err


def test_an_unknown_job_ends_with_1_and_names_what_may_be_meant(store: str, asked: Asked) -> None:
    assert asked("label", "llm-8", "--class", "user", "--store", store, code=1)["similar"] == ["llm-7"]


def test_without_a_replays_state_it_says_so(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own" / "store.replay-state").unlink()
    assert called("label", "llm-7", "--class", "user", "--store", store) == 2
    assert "nothing was replayed" in capsys.readouterr().err


def test_an_owner_is_told_of_what_is_new_once_and_again_when_it_was_not_taken(
    store: str, asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = HTTPServer(("127.0.0.1", 0), Hook)
    server.taken = []  # type: ignore[attr-defined]
    with listening(server) as port:
        (routes := tmp_path / "routes.yaml").write_text(
            f"routes:\n  - {{name: owners, to: 'http://127.0.0.1:{port}/{{user}}'}}\n"
            "  - {name: away, to: 'http://127.0.0.1:1/'}\n  - {name: nlp, to: 'http://127.0.0.1:1/', teams: [nlp]}\n"
        )
        look = ("notify", "--routes", str(routes), "--once", "--store", store)
        assert called(*look) == 0
        asked("label", "llm-7", "--class", "user", "--why", "a typo", "--by", "jo", "--store", store)
        assert called(*look) == 3
        assert "away: 127.0.0.1 cannot be reached" in capsys.readouterr().err
        assert called(*look) == 3
    ((path, told),) = server.taken  # type: ignore[attr-defined]
    assert path == "/ada"
    assert "llm-7 (attempt 1) failed. Whose fault: user" in told["text"]
