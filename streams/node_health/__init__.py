"""The node processor: what state a node is in, and what it knows that bears on jobs."""

from streams.node_health.namesakes import NamesakesProcessor, shared_names
from streams.node_health.processor import NodeHealthProcessor
from streams.node_health.standing import stopped_reporting

__all__ = ["NamesakesProcessor", "NodeHealthProcessor", "shared_names", "stopped_reporting"]
