"""The objectives processor: rolling counters, attainment, budgets and burn rates of every objective and scope."""

from streams.objectives.processor import ObjectivesProcessor
from streams.samples import sample_key

__all__ = ["ObjectivesProcessor", "sample_key"]
