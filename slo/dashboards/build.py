"""Grafana's JSON of a dashboard: the same bytes each time, with ids that never change."""

from __future__ import annotations

import json
from typing import Any, Final

from slo.dashboards.model import Board, Panel, load_boards

STORE: Final = {"type": "grafana-clickhouse-datasource", "uid": "faultlens-clickhouse"}
PROMETHEUS: Final = {"type": "prometheus", "uid": "faultlens-prometheus"}
# The version of the JSON's form, that of Grafana 12.
SCHEMA: Final = 41
WIDTH: Final = 24
# 0 is time series, 1 a table, by the data source's own numbers.
_FORMATS: Final = {"timeseries": 0}
_COLOURS: Final = {
    "hardware": "#d1570c",
    "driver": "#8250df",
    "platform": "#0b72c4",
    "user": "#737d88",
    "overhead": "#a8b0b8",
}


def dashboards() -> dict[str, dict[str, Any]]:
    """Return every dashboard by the name of its file."""
    boards = load_boards()
    return {f"faultlens-{name}.json": _dashboard(name, board, boards) for name, board in boards.items()}


def written(dashboard: dict[str, Any]) -> str:
    """Return a dashboard as its file holds it."""
    return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"


def _uid(name: str) -> str:
    return f"faultlens-{name}"


def _dashboard(name: str, board: Board, boards: dict[str, Board]) -> dict[str, Any]:
    return {
        "uid": _uid(name),
        "title": board.title,
        "description": board.about,
        "tags": ["faultlens"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "1m",
        "timezone": "utc",
        "time": {"from": "now-7d", "to": "now"},
        "links": [_link(other, boards[other]) for other in boards if other != name],
        "templating": {"list": [_clusters(), *(_text(text, value) for text, value in board.texts.items())]},
        "panels": _laid_out(board.panels),
    }


def _link(name: str, board: Board) -> dict[str, Any]:
    return {
        "type": "link",
        "title": board.title,
        "url": f"/d/{_uid(name)}",
        "keepTime": True,
        "includeVars": True,
        "targetBlank": False,
    }


def _clusters() -> dict[str, Any]:
    return {
        "name": "cluster",
        "label": "Cluster",
        "type": "query",
        "datasource": STORE,
        "query": "SELECT DISTINCT cluster FROM node_states UNION DISTINCT SELECT DISTINCT cluster FROM attributions",
        "refresh": 1,
        "multi": True,
        "includeAll": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _text(name: str, value: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "textbox",
        "query": value,
        "current": {"text": value, "value": value},
    }


def _laid_out(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """Return the panels from left to right, in rows as high as their highest."""
    made, x, y, row = [], 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.w > WIDTH:
            x, y, row = 0, y + row, 0
        made.append(_panel(panel, number, {"x": x, "y": y, "w": panel.w, "h": panel.h}))
        x, row = x + panel.w, max(row, panel.h)
    return made


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": STORE if panel.sql else PROMETHEUS,
        "gridPos": place,
        "targets": _targets(panel),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
    }


def _targets(panel: Panel) -> list[dict[str, Any]]:
    if panel.sql:
        kind = "timeseries" if panel.kind == "timeseries" else "table"
        query = {"editorType": "sql", "queryType": kind, "format": _FORMATS.get(kind, 1), "rawSql": panel.sql.strip()}
        return [{"refId": "A", "datasource": STORE, **query}]
    return [
        {"refId": chr(ord("A") + index), "datasource": PROMETHEUS, "expr": expr, "legendFormat": legend, "range": True}
        for index, (legend, expr) in enumerate(panel.promql.items())
    ]


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "drawStyle": "bars" if panel.bars else "line",
            "fillOpacity": 70 if panel.bars else 25 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
            "showPoints": "never",
        }
    return defaults


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    units = {name: [{"id": "unit", "value": unit}] for name, unit in panel.units.items()}
    links = {name: [{"id": "links", "value": [_leads(to)]}] for name, to in panel.links.items()}
    columns = {name: units.get(name, []) + links.get(name, []) for name in {**units, **links}}
    found = [{"matcher": {"id": "byName", "options": name}, "properties": said} for name, said in columns.items()]
    if panel.kind in ("timeseries", "barchart"):
        found += [_coloured(name, colour) for name, colour in _COLOURS.items()]
    return found


def _coloured(name: str, colour: str) -> dict[str, Any]:
    said = {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}
    return {"matcher": {"id": "byRegexp", "options": f"/\\b{name}\\b/"}, "properties": [said]}


def _leads(to: str) -> dict[str, Any]:
    """Return where a value leads: to the failures of a cause or job, or to a node."""
    board = "nodes" if to == "node" else "failures"
    url = f"/d/{_uid(board)}?var-{to}=${{__value.raw:percentencode}}&${{__url_time_range}}&${{cluster:queryparam}}"
    return {"title": f"This {to}", "url": url}


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case "stat":
            return {"reduceOptions": {"values": True, "calcs": ["lastNotNull"], "fields": ""}, "colorMode": "value"}
        case "barchart":
            return {"orientation": "horizontal", "stacking": "normal", "legend": {"placement": "bottom"}}
        case "table":
            return {"showHeader": True, "cellHeight": "sm"}
        case _:
            return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
