"""The job processor: attempts, their evidence, verdicts, ledger, samples and findings."""

from streams.job_lifecycle.counting import StartLimits
from streams.job_lifecycle.processor import JobLifecycleProcessor

__all__ = ["JobLifecycleProcessor", "StartLimits"]
