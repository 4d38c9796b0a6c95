"""What the processors counted as they went is what the store gives afterwards, for every objective and class."""

from pathlib import Path

import pytest

from faultlens.cli import main
from faultlens.objectives import load_objectives
from faultlens.store import open_store
from slo.recompute import extent
from slo.report.collect import view_of
from slo.status import Standing, standings

pytest.importorskip("chdb", reason="chDB is not installed (extra `store`)")
pytestmark = pytest.mark.store

RECOMPUTED = ("node_availability", "gpu_availability", "job_start", "job_success", "goodput")


def called(*arguments: str) -> None:
    """Run the program; it must end well."""
    try:
        main(list(arguments))
    except SystemExit as ended:
        assert not ended.code  # noqa: PT017 - the program always ends its process


def stands(store: Path) -> dict[str, Standing]:
    with open_store(str(store)) as opened:
        known = extent(opened)
        assert known is not None
        return {found.objective.name: found for found in standings(opened, view_of(known), load_objectives())}


@pytest.mark.parametrize("seed", [3, 11])
def test_a_simulated_fleet_gives_the_same_figures_both_ways(seed: int, tmp_path: Path) -> None:
    shape = (
        "--nodes",
        "6",
        "--days",
        "1",
        "--interval-s",
        "3600",
        "--seed",
        str(seed),
        "--out",
        str(tmp_path / "fleet"),
    )
    called("simulate", *shape, "--json")
    called("replay", str(tmp_path / "fleet" / "events.jsonl.zst"), "--store", str(tmp_path / "store"), "--json")
    found = stands(tmp_path / "store")
    for name in RECOMPUTED:
        counted, streamed = found[name].measure, found[name].streamed
        assert counted is not None
        assert streamed is not None
        assert counted.total > 0
        assert 0 <= counted.good <= counted.total
        assert found[name].agreement == "same", (counted, streamed)
        assert sum(counted.by_class.values()) == counted.bad
        # Which incident was open when an attempt started late, only the processors know.
        if name != "job_start":
            assert {k: pytest.approx(v, rel=1e-6, abs=2) for k, v in streamed.by_class.items()} == counted.by_class
        if counted.bounds is not None and streamed.bounds is not None:
            assert counted.bounds == pytest.approx(streamed.bounds)
