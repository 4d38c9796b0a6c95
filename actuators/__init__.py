"""What carries remediation commands out: a small class to write your own, and those that come with it."""

from actuators.sdk import Actuator, Failed, Refused
from actuators.worker import Worker

__all__ = ["Actuator", "Failed", "Refused", "Worker"]
