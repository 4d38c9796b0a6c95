"""Remediation: graded commands within hard limits, decided by a pure processor and a policy that is data."""

from streams.remediation.policy import Policy, Route, Rung, Trouble
from streams.remediation.policy_file import load_policy
from streams.remediation.processor import RemediationProcessor

__all__ = ["Policy", "RemediationProcessor", "Route", "Rung", "Trouble", "load_policy"]
