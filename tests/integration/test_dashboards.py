"""The dashboards are those of the code, and each of their questions is one that the store can answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.filled import fill
from faultlens.cli import main
from faultlens.clock import DAY_MS, SECOND_MS, parse_moment
from faultlens.store import Store, open_store
from sinks.migrate import migrate
from slo.dashboards import Panel, dashboards, load_boards, written
from tests.clickhouse.grafana import expanded

ROOT = Path(__file__).parents[2]
DEPLOYED = ROOT / "deploy" / "grafana" / "dashboards"
BOARDS = load_boards()
END_MS = parse_moment("2026-11-30T00:00:00Z")
PANELS = [(name, panel) for name, board in BOARDS.items() for panel in board.panels]
ASKING = [(name, panel) for name, panel in PANELS if panel.sql]


def test_what_is_deployed_is_what_the_code_makes(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dashboards", "--out", str(tmp_path)])
    assert not ended.value.code
    made = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert made == {name: written(board) for name, board in dashboards().items()}
    assert {path.name: path.read_text("utf-8") for path in DEPLOYED.iterdir()} == made, (
        f"run `faultlens dashboards --out {DEPLOYED.relative_to(ROOT)}`"
    )


def test_ids_are_theirs_alone_and_panels_do_not_overlap() -> None:
    for board in dashboards().values():
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)
        cells = [
            (x, y)
            for panel in board["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(set(cells)) == len(cells)
        assert max(x for x, _ in cells) < 24
    assert len({board["uid"] for board in dashboards().values()}) == len(BOARDS)


def test_what_prometheus_is_asked_for_is_a_metric_that_there_is() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    names = {
        name for _, panel in PANELS for expr in panel.promql.values() for name in re.findall(r"faultlens_\w+", expr)
    }
    assert names
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
    with open_store(f"chdb://{tmp_path_factory.mktemp('filled') / 'store'}") as opened:
        migrate(opened)
        fill(opened, nodes=20, days=4, end_ms=END_MS)
        yield opened


def asked(store: Store, name: str, panel: Panel, **chosen: str) -> list[dict[str, object]]:
    variables = {"cluster": ["c1"], **{text: [value] for text, value in {**BOARDS[name].texts, **chosen}.items()}}
    begins_s, ends_s = (END_MS - 4 * DAY_MS) // SECOND_MS, END_MS // SECOND_MS
    return store.query(expanded(panel.sql, from_s=begins_s, to_s=ends_s, interval_s=3_600, variables=variables))


@pytest.mark.store
@pytest.mark.parametrize(("name", "panel"), ASKING, ids=[f"{name}: {panel.title}" for name, panel in ASKING])
def test_a_panels_question_has_an_answer_of_the_form_that_it_draws(name: str, panel: Panel, store: Store) -> None:
    chosen = {"job": "job-0", "node": "node-00001"}
    if "job" in BOARDS[name].texts and "Evidence" in panel.title:
        chosen["job"] = str(store.query("SELECT min(job_id) AS job FROM attributions")[0]["job"])
    elif "job" in BOARDS[name].texts:
        chosen["job"] = ""
    rows = asked(store, name, panel, **{key: value for key, value in chosen.items() if key in BOARDS[name].texts})
    assert rows
    columns = [*rows[0]]
    if panel.kind == "timeseries":
        assert columns[0] == "time"
        assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)  # type: ignore[type-var]
    if panel.kind == "stat":
        assert all(isinstance(value, int | float) for value in [*rows[0].values()][-1:])
    assert {*panel.units, *panel.links} <= {*columns}
