"""The node processor: what state a node is in, and what it knows that bears on jobs."""

from streams.node_health.processor import NodeHealthProcessor

__all__ = ["NodeHealthProcessor"]
