"""The rules in their order: the first that applies decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streams.attribution.facts import Facts
from streams.attribution.rules import devices, history, outcomes, people, places, texts
from streams.attribution.verdict import Finding

Rule = Callable[[Facts], Finding | None]

RULES: Final[tuple[Rule, ...]] = (
    people.labelled_by_a_person,
    people.ended_by_our_command,
    people.ended_by_maintenance,
    places.power_or_cooling_incident,
    devices.shared_switch,
    devices.device_fault_on_allocated_gpu,
    devices.node_fault_under_the_job,
    places.service_fault_on_the_node,
    places.service_incident,
    people.ended_by_rollout,
    places.host_lost,
    history.device_faults_under_several_users,
    places.black_hole_node,
    places.node_out_of_memory,
    texts.own_error_in_log,
    devices.unexpected_code,
    texts.root_in_log,
    history.same_failure_on_other_nodes,
    devices.application_fault,
    devices.harm_short_of_fatal,
    devices.other_end_of_a_link,
    devices.recovery_announced,
    devices.kernel_stuck,
    outcomes.lost_capacity,
    texts.scheduler_says,
    outcomes.hang,
    outcomes.time_limit,
    history.different_users_fail_here,
    outcomes.exited_by_itself,
    texts.symptom_only,
    outcomes.nothing_known,
)


def name_of(rule: Rule) -> str:
    """Return the name that verdicts carry for the rule."""
    return rule.__name__
