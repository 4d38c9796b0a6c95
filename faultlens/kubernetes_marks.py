"""How what we change in Kubernetes is marked: by the actuator that changes it, for the bridge that sees it."""

from __future__ import annotations

from typing import Final

# Who made a change, as the server notes it with each field.
MANAGER: Final = "faultlens"
# The annotation that names the command which changed a node or rule last.
COMMAND: Final = "faultlens.io/command"
