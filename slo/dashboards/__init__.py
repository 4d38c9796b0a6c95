"""Grafana dashboards over the store: panels are data, the rest is made of them."""

from slo.dashboards.build import dashboards, written
from slo.dashboards.model import Board, Panel, load_boards

__all__ = ["Board", "Panel", "dashboards", "load_boards", "written"]
