"""What bridge and actuator have in common in Kubernetes: how our changes are marked, and where device taints are."""

from __future__ import annotations

from typing import Final

# Who made a change, as the server notes it with each field.
MANAGER: Final = "faultlens"
# The annotation that names the command which changed a node or rule last.
COMMAND: Final = "faultlens.io/command"
# The annotation that names the incident for which a node is kept out: a person who ends that is not overruled.
INCIDENT: Final = "faultlens.io/incident"
# The annotation that names the command which takes a node's pods away.
DRAIN: Final = "faultlens.io/drain"
# What a manager holds that made a node unschedulable. Nobody holds it once that was undone.
CORDON_FIELD: Final = "f:unschedulable"
# Rules that taint devices of dynamic resource allocation: off by default in 1.36.
DEVICE_TAINT_RULES: Final = "/apis/resource.k8s.io/v1beta2/devicetaintrules"
# The taint on what we take out, node or device: no news to us.
OUT_TAINT: Final = "faultlens.io/out"
